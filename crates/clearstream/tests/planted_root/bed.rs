//! A lab with one planted limit, and `clearstream path` run in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use results::Results;

use super::cases::{Case, OnHost, Quota};
use super::program;

/// Of each `path`: what the verdict rests on, one way, two repeats. A case's own options come after.
const EFFORT: [&str; 6] = ["--duration", "1s", "--repeats", "2", "--no-sweep", "--one-way"];

/// One `path` takes no longer, or something hangs.
const PATH_MAX: Duration = Duration::from_secs(60);

/// A lab that is up, with a server in its far host; gone when dropped.
pub(crate) struct PlantedLab {
    name: String,
    directory: PathBuf,
    background: Vec<Child>,
    group: Option<Group>,
}

impl PlantedLab {
    /// Brings a case's lab up.
    pub(crate) fn up(case: &Case) -> Result<Self, String> {
        let name = format!("planted-{}-{}", case.name, std::process::id());
        let directory = std::env::temp_dir().join(&name);
        fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
        let mut lab = Self { name, directory, background: Vec::new(), group: None };
        let file = lab.directory.join("lab.toml");
        fs::write(&file, lab.file(case)).map_err(|error| error.to_string())?;
        let own_pid = std::process::id().to_string();
        lab.must(&["lab", "up", &file.display().to_string(), "--while", &own_pid])?;
        for OnHost { host, run } in &case.prepare {
            lab.must(&["lab", "exec", &lab.name, host, "--", "sh", "-ec", run])?;
        }
        lab.group = case.quota.as_ref().map(|quota| Group::new(&lab.name, quota)).transpose()?;
        let serve = match &case.serve {
            Some(other) => other.split(' ').map(str::to_owned).collect(),
            None => lab.measuring("far", &["serve"]),
        };
        let server = lab.spawn("far", &serve)?;
        lab.background.push(server);
        // 0x1451 is port 5201; a crowded core must not keep the server from its start.
        let listens = "until grep -q ':1451 ' /proc/net/tcp /proc/net/tcp6; do sleep 0.02; done";
        lab.must(&["lab", "exec", &lab.name, "far", "--", "timeout", "20", "sh", "-c", listens])?;
        for OnHost { host, run } in &case.beside {
            let run = run.replace("clearstream", program());
            let busy = lab.spawn(host, &["sh", "-c", run.as_str()].map(str::to_owned))?;
            lab.background.push(busy);
        }
        Ok(lab)
    }

    /// Runs `path` once, near to far.
    pub(crate) fn path(&self, case: &Case) -> Result<Results, String> {
        let output = self.directory.join("results.json");
        let shown = output.display().to_string();
        let mut line = vec!["path", "far", "--fresh", "--no-report", "-o", &shown];
        line.extend(EFFORT.iter().copied().filter(|option| !case.overrides(option)));
        line.extend(case.options.iter().map(String::as_str));
        let mut exec = vec!["lab", "exec", &self.name, "near", "--"];
        let measuring = self.measuring("near", &line);
        exec.extend(measuring.iter().map(String::as_str));
        self.must(&exec)?;
        let bytes = fs::read(&output).map_err(|error| format!("{shown}: {error}"))?;
        results::read_results(&bytes).map_err(|error| error.to_string())
    }

    /// The lab file.
    fn file(&self, case: &Case) -> String {
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
            ("name".to_owned(), text(&self.name)),
            ("sysctl".to_owned(), toml::Value::Table(sysctl)),
            ("host".to_owned(), toml::Value::Table(hosts)),
            ("link".to_owned(), toml::Value::Array(vec![toml::Value::Table(link)])),
        ]
        .into_iter()
        .collect();
        file.iter().map(|(key, value)| format!("{key} = {}\n", inline(value))).collect()
    }

    /// The program's command line on a host, inside the host's control group where it has one.
    fn measuring(&self, host: &str, line: &[&str]) -> Vec<String> {
        let program = std::iter::once(program()).chain(line.iter().copied()).map(str::to_owned);
        match self.group.as_ref().filter(|group| group.host == host) {
            Some(group) => {
                let join = format!("echo $$ > {}; exec \"$@\"", group.members.display());
                let shell = ["sh", "-ec", &join, "sh"].map(str::to_owned);
                shell.into_iter().chain(program).collect()
            }
            None => program.collect(),
        }
    }

    fn must(&self, line: &[&str]) -> Result<(), String> {
        let log = self.directory.join("stderr");
        let complaint = fs::File::create(&log).map_err(|error| error.to_string())?;
        let mut child = Command::new(program())
            .args(line)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(complaint)
            .spawn()
            .map_err(|error| error.to_string())?;
        let began = Instant::now();
        let status = loop {
            match child.try_wait().map_err(|error| error.to_string())? {
                Some(status) => break status,
                None if began.elapsed() > PATH_MAX => {
                    child.kill().ok();
                    child.wait().ok();
                    return Err(format!("{line:?}: still running after {PATH_MAX:?}"));
                }
                None => thread::sleep(Duration::from_millis(10)),
            }
        };
        if status.success() {
            return Ok(());
        }
        let complaint = fs::read_to_string(&log).unwrap_or_default();
        Err(format!("{line:?}: {status} {complaint}"))
    }

    fn spawn(&self, host: &str, line: &[String]) -> Result<Child, String> {
        Command::new(program())
            .args(["lab", "exec", &self.name, host, "--"])
            .args(line)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| error.to_string())
    }
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

impl Drop for PlantedLab {
    fn drop(&mut self) {
        let down = Command::new(program()).args(["lab", "down", &self.name]).status();
        for child in &mut self.background {
            // The lab is gone and its programs with it; this only collects them.
            child.wait().ok();
        }
        let removed = fs::remove_dir_all(&self.directory);
        let clean = down.is_ok_and(|status| status.success()) && removed.is_ok();
        assert!(clean || thread::panicking(), "{} was left behind", self.name);
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
