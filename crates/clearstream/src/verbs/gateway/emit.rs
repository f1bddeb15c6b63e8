//! `clearstream gateway emit`: writes a host's part of the plan as another system's configuration.

use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use clap::ValueEnum;
use route_plan::{PACKAGED_PROGRAM, Role, SYSTEMS, System};
use serde_json::json;

use super::plan::{print_json, unknown};
use crate::VerbResult;
use crate::exit::{Exit, VerbError};
use crate::plans::{parse, plan_text};

/// Options of `gateway emit`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    clearstream gateway emit cumulus --host s1 --to networkd\n  \
    clearstream gateway emit cumulus --host s1 --to ifupdown --root /tmp/s1\n  \
    clearstream gateway emit cumulus --to ansible --root playbook\n\n\
    Without --root the files are printed. What the system cannot express is named on standard error;\n\
    `unit`, `ansible` and `ifupdown` express the whole plan; `clearstream help gateways` lists what\n\
    each lacks.")]
pub(crate) struct EmitArgs {
    /// The plan, a TOML file.
    #[arg(value_name = "PLAN")]
    plan: PathBuf,
    /// The host or gateway of the plan; `ansible` is for all of them.
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// The system that configures the host.
    #[arg(long, value_name = "SYSTEM")]
    to: To,
    /// Write the files below this folder instead of printing them; existing files are left alone.
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
}

/// A system that configures hosts.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum To {
    /// systemd-networkd.
    Networkd,
    /// NetworkManager's keyfiles.
    Networkmanager,
    /// netplan over networkd.
    Netplan,
    /// Debian's ifupdown.
    Ifupdown,
    /// An Ansible playbook that installs the plan and our own units on all its machines.
    Ansible,
    /// Our own systemd units: one applies the plan, one watches its gateways.
    Unit,
}

impl To {
    fn system(self) -> System {
        match self {
            Self::Networkd => System::Networkd,
            Self::Networkmanager => System::NetworkManager,
            Self::Netplan => System::Netplan,
            Self::Ifupdown => System::Ifupdown,
            Self::Ansible => System::Ansible,
            Self::Unit => System::Unit,
        }
    }
}

pub(super) fn run(args: &EmitArgs, json: bool) -> VerbResult {
    let text = plan_text(&args.plan)?;
    let plan = parse(&args.plan, &text)?;
    let system = args.to.system();
    let name = SYSTEMS.iter().find(|(known, _)| *known == system).map_or("", |(_, name)| name);
    let role = match &args.host {
        Some(host) => plan.find(host).ok_or_else(|| unknown(&plan, host))?,
        // A playbook is the same for all of them.
        None => match (system, plan.gateways.first()) {
            (System::Ansible, Some(first)) => Role::Gateway(0, first),
            _one => {
                let line = format!("{name} is for one host: name it with --host");
                return Err(VerbError::usage(line));
            }
        },
    };
    let program = installed_program();
    let named = program.as_deref().unwrap_or(PACKAGED_PROGRAM);
    let mut emission = route_plan::emit(&plan, role, system, named)
        .map_err(|error| VerbError::from_error(&error))?;
    if system == System::Ansible {
        // The playbook installs it.
        emission.files.push((format!("{}.toml", plan.name), text));
    }
    for lack in &emission.lacks {
        writeln!(crate::out::stderr(), "{name}: {lack}")?;
    }
    if program.is_none() && matches!(system, System::Unit | System::Ansible) {
        writeln!(
            crate::out::stderr(),
            "{name}: the units run {PACKAGED_PROGRAM}, because users other than root could \
             replace the program that emitted them"
        )?;
    }
    if json {
        let files: Vec<_> = emission
            .files
            .iter()
            .map(|(path, text)| json!({ "path": path, "text": text }))
            .collect();
        return print_json(&json!({ "system": name, "files": files, "lacks": emission.lacks }));
    }
    let mut out = crate::out::stdout();
    for (path, text) in &emission.files {
        match &args.root {
            Some(root) => {
                let place = root.join(path);
                write_new(&place, text)?;
                writeln!(out, "{}", place.display())?;
            }
            None => writeln!(out, "==> /{path}\n{text}")?,
        }
    }
    Ok(Exit::Ok)
}

/// This program, where units that run as root can run it: nobody else can replace it, or a folder on its path.
fn installed_program() -> Option<String> {
    let program = std::env::current_exe().ok()?;
    let is_roots = |path: &Path| {
        let found = std::fs::symlink_metadata(path);
        found.is_ok_and(|found| found.uid() == 0 && found.mode() & 0o022 == 0)
    };
    let program = program.ancestors().all(is_roots).then_some(program)?;
    program.into_os_string().into_string().ok().filter(|path| route_plan::is_plain_path(path))
}

/// Systems refuse, or warn of, configuration of this kind that others can read.
fn is_private(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "nmconnection" || ending == "yaml")
}

/// Writes a new file; an existing one is not replaced.
fn write_new(place: &Path, text: &str) -> Result<(), VerbError> {
    let failed = |error: std::io::Error| VerbError::failed(format!("{}: {error}", place.display()));
    if place.components().any(|part| part == Component::ParentDir) {
        return Err(VerbError::usage(format!(
            "{}: '..' could lead out of the folder",
            place.display()
        )));
    }
    if let Some(folder) = place.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    let mode = if is_private(place) { 0o600 } else { 0o644 };
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(mode).open(place).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)
}
