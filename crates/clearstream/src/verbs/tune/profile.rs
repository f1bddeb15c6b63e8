//! `clearstream tune profile`: published lists of settings, compared with the running kernel.

use std::io::{self, Read as _, Write};
use std::path::Path;

use serde_json::json;
use tuning::profile::{Profile, judge, names, own, read};

use crate::VerbResult;
use crate::exit::{Exit, VerbError};
use crate::profiles::{running_values, shown, word};

/// Options of `tune profile`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    clearstream tune profile list\n  \
    clearstream tune profile show cumulus-2018\n  \
    clearstream tune profile compare clearstream-2011\n  \
    clearstream tune profile compare /etc/sysctl.d/90-network.conf\n\n\
    Profiles are for comparing, not for applying: their values were chosen for other paths. `tune\n\
    plan` sizes each setting for the measured path.")]
pub(crate) struct ProfileArgs {
    #[command(subcommand)]
    action: Action,
}

/// Longest file to read, bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List profiles.
    List,
    /// Print a profile in the form of sysctl.conf.
    Show {
        /// Name of a profile, or a file in the form of sysctl.conf.
        #[arg(value_name = "NAME|FILE")]
        profile: String,
    },
    /// Show each setting beside the running kernel's value, and whether it was removed, is harmful
    /// today or was replaced.
    Compare {
        /// Name of a profile, or a file in the form of sysctl.conf.
        #[arg(value_name = "NAME|FILE")]
        profile: String,
    },
}

pub(super) fn run(args: &ProfileArgs, json: bool) -> VerbResult {
    let mut out = crate::out::stdout();
    match &args.action {
        Action::List => {
            let profiles: Vec<Profile> = names().into_iter().filter_map(own).collect();
            if json {
                serde_json::to_writer_pretty(&mut out, &profiles).map_err(io::Error::from)?;
                writeln!(out)?;
            }
            for profile in profiles.iter().filter(|_| !json) {
                writeln!(out, "{:<18} {}", profile.name, profile.title)?;
                writeln!(out, "{:<18} {}", "", profile.source)?;
            }
        }
        Action::Show { profile } => {
            let profile = find(profile)?;
            if json {
                serde_json::to_writer_pretty(&mut out, &profile).map_err(io::Error::from)?;
                writeln!(out)?;
            } else {
                writeln!(out, "# {}\n# {}", profile.title, profile.source)?;
                for (key, value) in &profile.settings {
                    writeln!(out, "{key} = {value}")?;
                }
            }
        }
        Action::Compare { profile } => compare(&mut out, &find(profile)?, json)?,
    }
    Ok(Exit::Ok)
}

fn compare(out: &mut dyn Write, profile: &Profile, json: bool) -> Result<(), VerbError> {
    let running = running_values(profile);
    if json {
        let lines: Vec<_> = profile
            .settings
            .iter()
            .map(|(key, value)| {
                let (advice, text) = judge(key, value);
                let here = running.get(key);
                json!({ "key": key, "published": value, "running": here,
                    "in_kernel": here.is_some() || is_the_machines(key), "advice": advice, "text": text })
            })
            .collect();
        let document =
            json!({ "profile": profile.name, "source": profile.source, "settings": lines });
        writeln!(out, "{document}")?;
        return Ok(());
    }
    writeln!(out, "{}: {}\n{}", profile.name, profile.title, profile.source)?;
    for (key, value) in &profile.settings {
        let (advice, text) = judge(key, value);
        let here = running.get(key).map(String::as_str);
        let word = here.map_or_else(String::new, |here| format!("; {}", word(value, here)));
        let here = here.unwrap_or(absence(key));
        writeln!(out, "\n{key} = {}   (running: {here}{word})", shown(value, advice))?;
        let mut lines = String::new();
        crate::verdict_text::wrapped(&mut lines, "    ", text).ok();
        write!(out, "{lines}")?;
    }
    Ok(())
}

/// Whether a setting exists once per machine, so that a network namespace of its own does not show it.
fn is_the_machines(key: &str) -> bool {
    const ONCE: [&str; 3] =
        ["net.core.netdev_max_backlog", "net.core.netdev_budget", "net.ipv4.tcp_mem"];
    ONCE.contains(&key)
}

/// Why a setting has no value on this host.
fn absence(key: &str) -> &'static str {
    if is_the_machines(key) {
        "the machine's, not shown in this namespace"
    } else {
        "not in this kernel"
    }
}

fn find(name: &str) -> Result<Profile, VerbError> {
    if let Some(profile) = own(name) {
        return Ok(profile);
    }
    let path = Path::new(name);
    if !path.is_file() {
        let known = names().join(", ");
        return Err(VerbError::usage(format!(
            "no profile '{name}'; there are {known}, or name a file"
        )));
    }
    let at = |error: &dyn std::fmt::Display| VerbError::failed(format!("{name}: {error}"));
    let mut text = String::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text))
        .map_err(|error| VerbError::unreadable(path, &error))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(at(&"longer than 1 MiB"));
    }
    read(name, &text).map_err(|error| at(&error))
}
