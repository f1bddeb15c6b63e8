//! A lab in which settings are changed, for the tests of `tune`.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use results::Results;

use crate::PROGRAM;

/// A lab with two hosts and a server in the far one; gone when dropped.
pub(crate) struct Testbed {
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    server: Option<Child>,
}

impl Testbed {
    pub(crate) fn up(name: &str, link: &str, near: &str, far: &str) -> Self {
        let name = format!("tune-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(&name);
        fs::create_dir_all(&folder).expect("a folder of our own");
        let windows = "[sysctl]\n\"net.ipv4.tcp_rmem\" = \"4096 131072 33554432\"\n\
                       \"net.ipv4.tcp_wmem\" = \"4096 131072 33554432\"\n";
        let text = format!(
            "name = \"{name}\"\n{windows}[host.near]\n{near}\n[host.far]\n{far}\n[[link]]\n\
             between = [\"near\", \"far\"]\n{link}\n"
        );
        let file = folder.join("lab.toml");
        fs::write(&file, text).expect("the lab file");
        let bed = Self { name, folder, server: None };
        let own_pid = std::process::id().to_string();
        let mut up = Command::new(PROGRAM);
        let up =
            up.args(["lab", "up", "--while", &own_pid]).arg(&file).output().expect("it starts");
        assert!(up.status.success(), "{}", String::from_utf8_lossy(&up.stderr));
        bed
    }

    /// A command for a host, its journal in the bed's folder.
    pub(crate) fn command(&self, host: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(["lab", "exec", &self.name, host, "--", PROGRAM]).args(arguments);
        command.stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, host: &str, arguments: &[&str]) -> Output {
        self.command(host, arguments).output().expect("it starts")
    }

    pub(crate) fn must(&self, host: &str, arguments: &[&str]) -> String {
        let done = self.run(host, arguments);
        let complaint = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{arguments:?}: {:?} {complaint}", done.status.code());
        String::from_utf8(done.stdout).expect("UTF-8")
    }

    pub(crate) fn serve(&mut self, options: &[&str]) {
        let mut arguments = vec!["serve"];
        arguments.extend(options);
        let server = self.command("far", &arguments).stderr(Stdio::null()).spawn();
        self.server = Some(server.expect("it starts"));
        let deadline = Instant::now() + Duration::from_secs(10);
        while !self.run("near", &["test", "far", "-t", "50ms"]).status.success() {
            assert!(Instant::now() < deadline, "the server does not listen");
            thread::sleep(Duration::from_millis(50));
        }
    }

    pub(crate) fn path(&self, file: &str) -> String {
        self.folder.join(file).to_str().expect("a plain path").to_owned()
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        Command::new(PROGRAM).args(["lab", "down", &self.name]).output().ok();
        if let Some(mut server) = self.server.take() {
            server.kill().ok();
            server.wait().ok();
        }
        fs::remove_dir_all(&self.folder).ok();
    }
}

/// 400 Mbit/s over 20 ms.
pub(crate) const LINK: &str = "delay = \"10ms\"\nrate = \"400Mbit\"\nqueue = \"4MiB\"\nmtu = 1500";

pub(crate) fn read_results(file: &str) -> Results {
    results::read_results(&fs::read(file).expect("written")).expect("a results file")
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
