//! The lab `cumulus`: a plan applied on all of its hosts, whose hash seeds differ, carries every pair of hosts by the
//! same gateway in both directions, and goes without a trace. Needs root or user namespaces.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Instant;

use crate::PROGRAM;

/// Packets of each pair.
const PINGS_COUNT: u64 = 20;

/// A copy of the lab under a name of the test's own; it goes with the value.
pub(crate) struct Lab {
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
}

impl Lab {
    pub(crate) fn up(name: &str) -> Self {
        Self::up_by(name, Command::new(PROGRAM))
    }

    /// With switches and wires that a busy machine does not keep waiting: they are programs, real ones are not.
    pub(crate) fn up_in_real_time(name: &str) -> Self {
        let mut command = Command::new("chrt");
        command.args(["-f", "10", PROGRAM]);
        Self::up_by(name, command)
    }

    fn up_by(name: &str, mut command: Command) -> Self {
        let name = format!("{name}{}", std::process::id());
        let folder = std::env::temp_dir().join(&name);
        std::fs::create_dir_all(&folder).expect("a folder of our own");
        let text = include_str!("../../../labs/cumulus.toml");
        let file = folder.join("lab.toml");
        std::fs::write(&file, text.replace("\"cumulus\"", &format!("\"{name}\"")))
            .expect("written");
        let lab = Self { name, folder };
        let own = std::process::id().to_string();
        command.args(["lab", "up", file.to_str().expect("text"), "--while", &own]);
        let up = command.output().expect("the program starts");
        assert!(up.status.success(), "{}", String::from_utf8_lossy(&up.stderr));
        lab
    }

    pub(crate) fn gateway(&self, arguments: &[&str]) -> Output {
        let mut all = vec!["gateway"];
        all.extend(arguments);
        all.extend(["--lab", &self.name]);
        run(&all)
    }

    pub(crate) fn exec(&self, host: &str, line: &str) -> String {
        let mut all = vec!["lab", "exec", &self.name, host, "--"];
        all.extend(line.split(' '));
        let output = run(&all);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{host}: {line}: {text}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// Packets that a gateway has received from and sent to the storage network.
    fn carried(&self, gateway: &str) -> [u64; 2] {
        ["rx", "tx"].map(|way| {
            let text = self.exec(gateway, "ip -s -j link show dev eth1");
            let list: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            list[0]["stats64"][way]["packets"].as_u64().expect("a count")
        })
    }

    /// Everything that is routed on a host.
    pub(crate) fn routing(&self, host: &str) -> String {
        let lists = ["ip -d rule", "ip -d route show table all", "ip -d nexthop"];
        lists.map(|list| self.exec(host, list)).join("---\n")
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        run(&["lab", "down", &self.name]);
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

pub(crate) fn run(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).output().expect("the program starts")
}

#[test]
fn both_directions_of_every_pair_take_the_planned_gateway_with_different_seeds_root() {
    let began = Instant::now();
    let lab = Lab::up("gateways");
    let up_s = began.elapsed().as_secs_f64();
    let before = ["c1", "g2", "s1"].map(|host| lab.routing(host));
    let unrouted = run(&["lab", "exec", &lab.name, "c1", "--", "ping", "-c1", "-W1", "10.10.0.21"]);
    assert!(!unrouted.status.success(), "nothing is routed before the plan");
    let applied = lab.gateway(&["apply", "cumulus"]);
    assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
    let checked = lab.gateway(&["check", "cumulus"]);
    assert_eq!(checked.status.code(), Some(0), "{}", String::from_utf8_lossy(&checked.stdout));
    for (client, server, address) in [
        ("c1", "s1", "10.10.0.21"),
        ("c2", "s1", "10.10.0.21"),
        ("c3", "s2", "10.10.0.22"),
        ("c4", "s2", "10.10.0.22"),
    ] {
        let ends = [format!("{client}:1"), format!("{server}:1")];
        let told = run(&["--json", "gateway", "explain", &ends[0], &ends[1], "--plan", "cumulus"]);
        let told: serde_json::Value = serde_json::from_slice(&told.stdout).expect("JSON");
        let planned = told["gateway"].as_str().expect("a name");
        let question =
            format!("{PROGRAM} gateway explain {} {} --plan cumulus --ask", ends[0], ends[1]);
        let asked = lab.exec(client, &question);
        assert!(
            asked.starts_with(&format!("Gateway   {planned}, by this host's kernel")),
            "{asked}"
        );
        let counts = |lab: &Lab| ["g1", "g2", "g3"].map(|gateway| lab.carried(gateway));
        let start = counts(&lab);
        lab.exec(client, &format!("ping -q -c {PINGS_COUNT} -i 0.01 -W 2 {address}"));
        for ((gateway, now), then) in ["g1", "g2", "g3"].iter().zip(counts(&lab)).zip(start) {
            for (now, then) in now.iter().zip(then) {
                let carries_all = now - then >= PINGS_COUNT;
                assert_eq!(
                    carries_all,
                    *gateway == planned,
                    "{client} {server}: {gateway} {now} {then}"
                );
            }
        }
    }
    lab.exec("s2", "ip route replace 10.100.0.3/32 via 10.10.0.11 dev eth0 proto static");
    let drifted = lab.gateway(&["check", "cumulus"]);
    assert_eq!(drifted.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&drifted.stdout).contains("s2  foreign"));
    lab.exec("s2", "ip route del 10.100.0.3/32");
    let reverted = lab.gateway(&["revert"]);
    assert!(reverted.status.success(), "{}", String::from_utf8_lossy(&reverted.stdout));
    assert_eq!(["c1", "g2", "s1"].map(|host| lab.routing(host)), before);
    println!("lab up in {up_s:.2} s");
}
