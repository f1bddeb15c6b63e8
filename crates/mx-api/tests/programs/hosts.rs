//! Hosts of a test: network namespaces without a name, which go with the test's process.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};

/// A network namespace, held by a process that ends with this one.
pub(crate) struct Host {
    holder: Child,
    /// The holder ends when nobody has the other end.
    _hold: ChildStdin,
    pub(crate) address: String,
}

impl Host {
    /// A host with a loopback alone.
    pub(crate) fn start() -> Self {
        let mut holder = Command::new("unshare")
            .args(["-n", "sh", "-c", "ip link set lo up && echo up && exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare is part of util-linux");
        let hold = holder.stdin.take().expect("a pipe");
        let mut line = String::new();
        let out = holder.stdout.take().expect("a pipe");
        BufReader::new(out).read_line(&mut line).expect("a line");
        assert_eq!(line, "up\n");
        Self { holder, _hold: hold, address: "127.0.0.1".to_owned() }
    }

    /// A command that runs on this host.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-n", "-t", &self.holder.id().to_string()]).args(words);
        command
    }

    /// Runs `ip` on this host.
    fn ip(&self, words: &str) {
        let words: Vec<&str> = ["ip"].into_iter().chain(words.split(' ')).collect();
        let outcome = self.command(&words).output().expect("nsenter is part of util-linux");
        assert!(
            outcome.status.success(),
            "{words:?}: {}",
            String::from_utf8_lossy(&outcome.stderr)
        );
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.holder.kill().ok();
        self.holder.wait().ok();
    }
}

/// Two hosts that a cable joins.
pub(crate) fn two_hosts() -> (Host, Host) {
    let [mut here, mut there] = [Host::start(), Host::start()];
    let far = there.holder.id();
    here.ip(&format!("link add cable type veth peer name cable netns {far}"));
    for (host, number) in [(&mut here, 1), (&mut there, 2)] {
        host.address = format!("10.77.0.{number}");
        host.ip(&format!("address add {}/24 dev cable", host.address));
        host.ip("link set cable up");
    }
    (here, there)
}
