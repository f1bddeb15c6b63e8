//! A lab with one planted limit, and `clearstream path` run in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use lab::ScopedLab;
use results::{Results, Work};
use sys::process::{Ending, Owned};

use super::cases::{Case, OnHost, Quota};

/// Of each `path`: what the verdict rests on, one way, two repeats. A case's own options come after.
const EFFORT: [&str; 6] = ["--duration", "1s", "--repeats", "2", "--no-sweep", "--one-way"];

/// One `path` takes no longer, or something hangs.
const PATH_MAX: Duration = Duration::from_secs(180);

/// The port of `serve`, and how long a crowded core may keep a server from listening on it.
const PORT: u16 = 5201;
const LISTENS_WITHIN: Duration = Duration::from_secs(20);

/// Of what a failed command says.
const COMPLAINT_BYTES_MAX: usize = 4096;

/// A lab that is up, with a server in its far host; gone when dropped.
pub struct PlantedLab {
    // First: what runs in it ends with it, and then the control group is empty.
    bed: ScopedLab,
    background: Vec<Owned>,
    group: Option<Group>,
    folder: Folder,
    program: &'static str,
}

impl PlantedLab {
    /// Brings a case's lab up; `program` measures and serves in it.
    pub fn up(case: &Case, program: &'static str) -> Result<Self, String> {
        let name = format!("planted-{}-{}", case.name, std::process::id());
        let bed =
            ScopedLab::inline(&file(&name, case), program).map_err(|error| error.to_string())?;
        let folder = Folder::new(&name)?;
        let mut lab = Self { bed, background: Vec::new(), group: None, folder, program };
        for OnHost { host, run } in &case.prepare {
            must(lab.bed.command(host).args(["sh", "-ec", run]))?;
        }
        lab.group = case.quota.as_ref().map(|quota| Group::new(&name, quota)).transpose()?;
        let serve = match &case.serve {
            Some(other) => other.split(' ').map(str::to_owned).collect(),
            None => lab.measuring("far", &["serve"]),
        };
        let mut server = start(lab.bed.command("far").args(&serve))?;
        lab.bed
            .wait_for_listener(("far", PORT), &mut server, LISTENS_WITHIN)
            .map_err(|error| error.to_string())?;
        lab.background.push(server);
        for OnHost { host, run } in &case.beside {
            let run = run.replace("clearstream", program);
            lab.background.push(start(lab.bed.command(host).args(["sh", "-c", &run]))?);
        }
        Ok(lab)
    }

    /// Runs `path` once, near to far, or what the case measures instead.
    pub fn path(&self, case: &Case) -> Result<Results, String> {
        if !case.measure.is_empty() {
            return self.tests(case);
        }
        let output = self.folder.0.join("results.json");
        let shown = output.display().to_string();
        let mut line = vec!["path", "far", "--fresh", "--no-report", "-o", &shown];
        line.extend(EFFORT.iter().copied().filter(|option| !case.overrides(option)));
        line.extend(case.options.iter().map(String::as_str));
        must(self.bed.command("near").args(self.measuring("near", &line)))?;
        read(&output)
    }

    /// Runs each of the case's own tests, and joins them.
    fn tests(&self, case: &Case) -> Result<Results, String> {
        let output = self.folder.0.join("results.json");
        let mut all: Option<Results> = None;
        for (line, number) in case.measure.iter().zip(0_u32..) {
            let line = format!("exec clearstream {line} --fresh -o {}", output.display());
            let line = line.replace("clearstream", self.program);
            must(self.bed.command("near").args(["sh", "-ec", &line]))?;
            let mut one = read(&output)?;
            let Some(all) = &mut all else {
                all = Some(one);
                continue;
            };
            for point in &mut one.points {
                if matches!(point.work, Work::RoundTrips(_)) {
                    point.varied.insert(explain::FILE.to_owned(), f64::from(number));
                }
            }
            all.points.append(&mut one.points);
        }
        all.ok_or_else(|| "nothing to measure".to_owned())
    }

    /// The program's command line on a host, inside the host's control group where it has one.
    fn measuring(&self, host: &str, line: &[&str]) -> Vec<String> {
        let program = std::iter::once(self.program).chain(line.iter().copied()).map(str::to_owned);
        match self.group.as_ref().filter(|group| group.host == host) {
            Some(group) => {
                let join = format!("echo $$ > {}; exec \"$@\"", group.members.display());
                let shell = ["sh", "-ec", &join, "sh"].map(str::to_owned);
                shell.into_iter().chain(program).collect()
            }
            None => program.collect(),
        }
    }
}

fn read(output: &Path) -> Result<Results, String> {
    let bytes = fs::read(output).map_err(|error| format!("{}: {error}", output.display()))?;
    results::read_results(&bytes).map_err(|error| error.to_string())
}

/// Starts a program that runs beside the measurement.
fn start(command: &mut Command) -> Result<Owned, String> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Owned::start(command, Ending::KILL).map_err(|error| error.to_string())
}

/// Runs a program, which must succeed in time.
fn must(command: &mut Command) -> Result<(), String> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let ended = Owned::start(command, Ending::KILL)
        .and_then(|child| child.capture(COMPLAINT_BYTES_MAX))
        .and_then(|child| child.ended_within(PATH_MAX))
        .map_err(|error| format!("{command:?}: {error}"))?;
    if ended.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    Err(format!("{command:?}: {} {said}", ended.status))
}

/// The lab file.
fn file(name: &str, case: &Case) -> String {
    let text = |value: &str| toml::Value::String(value.to_owned());
    let windows = ["tcp_rmem", "tcp_wmem"];
    let sysctl: toml::Table = windows
        .map(|key| (format!("net.ipv4.{key}"), text("4096 131072 67108864")))
        .into_iter()
        .collect();
    let mut link = case.link.clone();
    link.insert("between".to_owned(), toml::Value::Array(vec![text("near"), text("far")]));
    let hosts: toml::Table = [("near", &case.near), ("far", &case.far)]
        .map(|(host, keys)| (host.to_owned(), toml::Value::Table(keys.clone())))
        .into_iter()
        .collect();
    let file: toml::Table = [
        ("name".to_owned(), text(name)),
        ("sysctl".to_owned(), toml::Value::Table(sysctl)),
        ("host".to_owned(), toml::Value::Table(hosts)),
        ("link".to_owned(), toml::Value::Array(vec![toml::Value::Table(link)])),
    ]
    .into_iter()
    .collect();
    file.iter().map(|(key, value)| format!("{key} = {}\n", inline(value))).collect()
}

/// A value in one line of TOML.
fn inline(value: &toml::Value) -> String {
    match value {
        toml::Value::Table(table) => {
            let fields: Vec<String> =
                table.iter().map(|(key, value)| format!("{key:?} = {}", inline(value))).collect();
            format!("{{ {} }}", fields.join(", "))
        }
        toml::Value::Array(values) => {
            format!("[{}]", values.iter().map(inline).collect::<Vec<_>>().join(", "))
        }
        toml::Value::String(text) => format!("{text:?}"),
        toml::Value::Integer(number) => number.to_string(),
        toml::Value::Float(number) => number.to_string(),
        toml::Value::Boolean(flag) => flag.to_string(),
        toml::Value::Datetime(date) => format!("{date}"),
    }
}

/// A folder that goes with the value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Result<Self, String> {
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        Ok(Self(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let removed = fs::remove_dir_all(&self.0);
        assert!(removed.is_ok() || thread::panicking(), "{:?} was left behind", self.0);
    }
}

impl Case {
    /// Whether the case gives this option itself.
    fn overrides(&self, option: &str) -> bool {
        let position = EFFORT.iter().position(|known| *known == option);
        let named = |at: usize| self.options.iter().any(|own| own == EFFORT[at]);
        position
            .is_some_and(|at| named(at) || (at > 0 && !option.starts_with('-') && named(at - 1)))
    }
}

/// A control group with a processor bandwidth limit; removed when dropped.
struct Group {
    host: String,
    directory: PathBuf,
    members: PathBuf,
}

impl Group {
    /// Period of the limit, microseconds: the kernel's default.
    const PERIOD_US: f64 = 100_000.0;

    fn new(name: &str, quota: &Quota) -> Result<Self, String> {
        let old = Path::new("/sys/fs/cgroup/cpu");
        let root = if old.join("cpu.cfs_quota_us").exists() || old.join("tasks").exists() {
            old
        } else {
            Path::new("/sys/fs/cgroup")
        };
        let directory = root.join(name);
        fs::create_dir_all(&directory).map_err(|error| format!("{directory:?}: {error}"))?;
        let group =
            Self { host: quota.host.clone(), members: directory.join("cgroup.procs"), directory };
        let quota_us = (quota.share * Self::PERIOD_US).round();
        let limit = if root == old {
            fs::write(group.directory.join("cpu.cfs_quota_us"), quota_us.to_string())
        } else {
            let max = format!("{quota_us} {}", Self::PERIOD_US);
            fs::write(group.directory.join("cpu.max"), max)
        };
        limit.map_err(|error| format!("a processor limit for {:?}: {error}", group.directory))?;
        Ok(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its members go with the lab, which may take a moment.
        let gone = (0..100).any(|_| {
            let removed = fs::remove_dir(&self.directory).is_ok();
            if !removed {
                thread::sleep(Duration::from_millis(10));
            }
            removed
        });
        assert!(gone || thread::panicking(), "{:?} was left behind", self.directory);
    }
}
