//! Labs for tests: brought up under a name of their own, taken down when dropped.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::{executable, program};

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A lab of hosts `near` and `far` with one link, or only its file.
pub struct LabBed {
    pub name: String,
    file: PathBuf,
    owns_name: bool,
}

impl LabBed {
    /// Only the file, with these keys in its link.
    pub fn file(name: &str, link: &str) -> Self {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let mut bed = Self::file_named(&format!("t{}-{number}-{name}", std::process::id()), link);
        bed.owns_name = true;
        bed
    }

    /// A file for a lab that somebody else takes down.
    pub fn file_named(name: &str, link: &str) -> Self {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("{name}.{number}"));
        fs::create_dir(&directory).expect("a directory of our own");
        let file = directory.join("lab.toml");
        let text = format!(
            "name = \"{name}\"\n[host.near]\n[host.far]\n[[link]]\nbetween = [\"near\", \"far\"]\n\
             {link}\n"
        );
        fs::write(&file, text).expect("the lab file");
        Self { name: name.to_owned(), file, owns_name: false }
    }

    /// A lab that is up; `None` after saying why it cannot be here.
    pub fn up(name: &str, link: &str) -> Option<Self> {
        Self::file(name, link).brought_up()
    }

    /// The same with hosts, links and switches of its own.
    pub fn up_with(name: &str, sections: &str) -> Option<Self> {
        let bed = Self::file(name, "");
        fs::write(&bed.file, format!("name = \"{}\"\n{sections}", bed.name)).expect("the lab file");
        bed.brought_up()
    }

    fn brought_up(self) -> Option<Self> {
        let up = self.run_up();
        match code(&up) {
            0 => Some(self),
            4 => {
                println!("skipped: {}", complaint(&up));
                None
            }
            other => panic!("lab up: {other}: {}", complaint(&up)),
        }
    }

    /// `lab up` for as long as this process runs, however it ends.
    pub fn run_up(&self) -> Output {
        run(&["lab", "up", self.path(), "--while", &std::process::id().to_string()])
    }

    pub fn path(&self) -> &str {
        self.file.to_str().expect("a plain path")
    }

    pub fn is_up(&self) -> bool {
        run(&["lab", "status", &self.name]).status.success()
    }

    pub fn status(&self) -> Value {
        let status = run(&["--json", "lab", "status", &self.name]);
        let all: Value = serde_json::from_slice(&status.stdout).expect("JSON");
        all["labs"][0].clone()
    }

    /// Runs a program on a host to its end.
    pub fn exec(&self, host: &str, program: &[&str]) -> Output {
        let mut command = clearstream(&["lab", "exec", &self.name, host, "--"]);
        command.args(program).output().expect("the program starts")
    }

    /// Starts a program on a host, with its output piped.
    pub fn spawn(&self, host: &str, program: &[&str]) -> Child {
        let mut command = clearstream(&["lab", "exec", &self.name, host, "--"]);
        command.args(program).stdin(Stdio::null()).stdout(Stdio::piped());
        command.spawn().expect("the program starts")
    }

    pub fn kill_anchor(&self) {
        let pid = self.status()["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
        let pid = pid.and_then(rustix::process::Pid::from_raw).expect("a pid");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it runs");
    }

    /// What the lab has left in the system at this moment.
    pub fn traces(&self) -> Traces {
        Traces::of(&self.name)
    }
}

impl Drop for LabBed {
    fn drop(&mut self) {
        if self.owns_name {
            run(&["lab", "down", &self.name]);
        }
        self.file.parent().map(fs::remove_dir_all).transpose().ok();
    }
}

/// Processes and files of a lab. Its network is held by its processes alone: no process has a name
/// for it in the file system.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Traces {
    /// Processes in a network namespace other than ours that know the lab's name.
    pub processes: Vec<i32>,
    /// A directory with the lab's state.
    pub state: bool,
    /// A mount that names the lab, seen from here.
    pub mounts: Vec<String>,
}

impl Traces {
    fn of(name: &str) -> Self {
        let needle = format!("CLEARSTREAM_LAB={name}");
        let knows = |pid: &i32| {
            // Zombies have neither.
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let own = line.windows(8).any(|word| word == b"internal")
                && String::from_utf8_lossy(&line).contains(name);
            own || environment.split(|&byte| byte == 0).any(|word| word == needle.as_bytes())
        };
        let processes = fs::read_dir("/proc")
            .expect("procfs")
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter(knows)
            .collect();
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("procfs");
        let user = rustix::process::geteuid();
        let base = if user.is_root() {
            PathBuf::from("/run/clearstream")
        } else {
            std::env::var_os("XDG_RUNTIME_DIR").map_or_else(
                || std::env::temp_dir().join(format!("clearstream-{}", user.as_raw())),
                |dir| PathBuf::from(dir).join("clearstream"),
            )
        };
        Self {
            processes,
            state: base.join("labs").join(name).exists(),
            mounts: mounts.lines().filter(|line| line.contains(name)).map(str::to_owned).collect(),
        }
    }

    pub fn process(pid: &str) -> bool {
        fs::metadata(format!("/proc/{pid}")).is_ok()
    }
}

pub fn clearstream(arguments: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(arguments);
    command
}

pub fn run(arguments: &[&str]) -> Output {
    clearstream(arguments).stdin(Stdio::null()).output().expect("the program starts")
}

pub fn code(output: &Output) -> i32 {
    output.status.code().expect("it ends by itself")
}

pub fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).expect("UTF-8")
}

/// The one line on stderr.
pub fn complaint(output: &Output) -> &str {
    let text = std::str::from_utf8(&output.stderr).expect("UTF-8");
    assert!(text.lines().count() <= 1, "one line: {text}");
    text.trim_end()
}

/// Waits for something that the kernel does in its own time.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Up, exec and down as user 65534, who may not open `/dev/net/tun` on most systems. The program
/// is copied to where that user can reach it.
pub fn as_nobody() {
    let directory = std::env::temp_dir().join(format!("nobody-{}", std::process::id()));
    fs::create_dir(&directory).expect("a directory of our own");
    let copy = directory.join("clearstream");
    executable::copy(program(), &copy);
    let runtime = directory.join("run");
    fs::create_dir(&runtime).expect("a runtime directory");
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    fs::set_permissions(&runtime, private).expect("ours");
    let nobody = Some((65_534, 65_534));
    std::os::unix::fs::chown(
        &runtime,
        nobody.map(|(user, _)| user),
        nobody.map(|(_, group)| group),
    )
    .expect("root may");
    let run = |arguments: &[&str]| {
        Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(&copy)
            .args(arguments)
            .env("XDG_RUNTIME_DIR", &runtime)
            .output()
            .expect("setpriv is part of util-linux")
    };
    let up = run(&["lab", "up", "lossy"]);
    if code(&up) == 4 {
        println!("skipped: {}", String::from_utf8_lossy(&up.stderr));
    } else {
        assert_eq!(code(&up), 0, "{}", String::from_utf8_lossy(&up.stderr));
        let inside =
            run(&["lab", "exec", "lossy", "near", "--", "sh", "-c", "id -u; ls /sys/class/net"]);
        assert_eq!(stdout(&inside), "0\neth0\nlo\n");
        assert_eq!(code(&run(&["lab", "down", "lossy"])), 0);
        assert_eq!(fs::read_dir(&runtime).expect("it is there").count(), 0, "nothing is left");
    }
    fs::remove_dir_all(&directory).expect("ours");
}
