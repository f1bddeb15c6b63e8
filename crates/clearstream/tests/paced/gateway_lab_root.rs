//! The lab `cumulus`: a plan applied on all of its hosts, whose hash seeds differ, carries every pair of hosts by the
//! same gateway in both directions, and goes without a trace. A gateway is drained there under a paced flow. Needs
//! root or user namespaces.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Instant;

use crate::PROGRAM;

/// Packets of each pair.
const PINGS_COUNT: u64 = 20;

/// Whether the lab has its file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Files {
    With,
    Without,
}

/// A copy of the lab under a name of the test's own; it goes with the value.
pub(crate) struct Lab {
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
}

impl Lab {
    pub(crate) fn up(name: &str) -> Self {
        Self::up_by(name, Command::new(PROGRAM), Files::Without)
    }

    /// With switches and wires that a busy machine does not keep waiting: they are programs, real ones are not.
    pub(crate) fn up_in_real_time(name: &str, files: Files) -> Self {
        let mut command = Command::new("chrt");
        command.args(["-f", "10", PROGRAM]);
        Self::up_by(name, command, files)
    }

    fn up_by(name: &str, mut command: Command, files: Files) -> Self {
        let name = format!("{name}{}", std::process::id());
        let folder = std::env::temp_dir().join(&name);
        std::fs::create_dir_all(&folder).expect("a folder of our own");
        let text = include_str!("../../../../labs/cumulus.toml");
        let text = match files {
            Files::With => text,
            // Its clients' packets would be counted too.
            Files::Without => text.split("[filesystem]").next().expect("the rest"),
        };
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

    /// Starts a program on a host; its output is kept.
    fn start(&self, host: &str, line: &str) -> Child {
        let mut command = Command::new(PROGRAM);
        command.args(["lab", "exec", &self.name, host, "--"]).args(line.split(' '));
        command.stdout(Stdio::piped()).spawn().expect("the program starts")
    }

    /// What stands for ssh: it starts a shell on a host of the lab.
    fn shell(&self) -> String {
        let path = self.folder.join("shell");
        let text = format!(
            "#!/bin/sh\n[ \"$1\" = -q ] && shift\nhost=$1; shift\n\
             exec {PROGRAM} lab exec {} \"$host\" -- sh -c \"$*\"\n",
            self.name
        );
        testkit::executable::script(&path, &text);
        format!("--ssh={} -q", path.display())
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
    // By a host that is no gateway.
    lab.exec("c1", "ip route add 192.0.2.0/24 via 10.100.0.2");
    for form in [&[][..], &["--json"]] {
        let on_client = ["lab", "exec", &lab.name, "c1", "--", PROGRAM];
        let question = ["gateway", "explain", "c1:1", "192.0.2.1:1", "--plan", "cumulus", "--ask"];
        let elsewhere = run(&[&on_client[..], form, &question[..]].concat());
        assert_eq!(elsewhere.status.code(), Some(3), "{form:?}");
    }
    lab.exec("c1", "ip route del 192.0.2.0/24");
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
    assert!(lab.gateway(&["apply", "cumulus"]).status.success());
    // What no host sees alone: a gateway that one end only has drained, and packets too long for a gateway.
    let alone = format!("{PROGRAM} gateway drain cumulus g2 --host c1");
    lab.exec("c1", &alone);
    lab.exec("s1", "ip link set eth0 mtu 8000");
    let drifted = lab.gateway(&["check", "cumulus"]);
    assert_eq!(drifted.status.code(), Some(3));
    let told = String::from_utf8_lossy(&drifted.stdout);
    assert!(told.contains("c1  asymmetric c1 reaches s"), "{told}");
    assert!(
        told.contains("s1  mtu        MTU mismatch: eth0 has 8000 bytes, g1's eth1 has 9000"),
        "{told}"
    );
    lab.exec("c1", &alone.replace("drain", "undrain"));
    // Another host's part of the plan is not applied here: its routes would lead by other gateways.
    let routes = lab.routing("c2");
    let foreign = run(&[
        "lab", "exec", &lab.name, "c2", "--", PROGRAM, "gateway", "apply", "cumulus", "--host",
        "c1",
    ]);
    assert_eq!(foreign.status.code(), Some(2), "{}", String::from_utf8_lossy(&foreign.stdout));
    assert_eq!(lab.routing("c2"), routes);
    lab.exec("s1", "ip link set eth0 mtu 9000");
    let checked = lab.gateway(&["check", "cumulus"]);
    assert_eq!(checked.status.code(), Some(0), "{}", String::from_utf8_lossy(&checked.stdout));
    let reverted = lab.gateway(&["revert"]);
    assert!(reverted.status.success(), "{}", String::from_utf8_lossy(&reverted.stdout));
    assert_eq!(["c1", "g2", "s1"].map(|host| lab.routing(host)), before);
    println!("lab up in {up_s:.2} s");
}

/// Time between two packets of a paced flow.
const PACED_S: f64 = 0.005;
/// So many in a row may be missing: 50 ms.
const MISSING_COUNT_MAX: usize = 10;

/// Ends a flow, and waits for what it says.
fn end(flow: Child) -> String {
    let pid = rustix::process::Pid::from_child(&flow);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    let output = flow.wait_with_output().expect("it ends");
    String::from_utf8(output.stdout).expect("text")
}

/// The longest run of packets that got no answer, of how many.
fn longest_gap(ping: &str) -> (usize, usize) {
    let words = ping.split_ascii_whitespace();
    let mut answered: Vec<usize> =
        words.filter_map(|word| word.strip_prefix("icmp_seq=")?.parse().ok()).collect();
    answered.sort_unstable();
    let gaps = answered.windows(2).map(|pair| (pair[1] - pair[0]).saturating_sub(1));
    (gaps.max().unwrap_or(usize::MAX), answered.last().copied().unwrap_or(0))
}

#[test]
fn a_drained_gateway_forwards_nothing_and_a_paced_flow_has_no_gap_root() {
    let lab = Lab::up("drain");
    let ssh = lab.shell();
    let before = ["c1", "g2", "s1"].map(|host| lab.routing(host));
    let text = |output: &Output| {
        let both = [&output.stdout[..], &output.stderr[..]].concat();
        String::from_utf8(both).expect("text")
    };
    let by_ssh = |arguments: &[&str]| {
        let mut all = vec!["gateway"];
        all.extend(arguments);
        all.extend([ssh.as_str(), "--there", PROGRAM]);
        run(&all)
    };
    let applied = by_ssh(&["apply", "cumulus"]);
    assert!(applied.status.success(), "{}", text(&applied));
    assert_eq!(text(&applied).lines().count(), 9, "{}", text(&applied));
    let told = run(&["--json", "gateway", "explain", "c1:1", "s1:1", "--plan", "cumulus"]);
    let told: serde_json::Value = serde_json::from_slice(&told.stdout).expect("JSON");
    let planned = told["gateway"].as_str().expect("a name").to_owned();
    let carries = |ask: &str| {
        let question = format!("{PROGRAM} gateway explain c1:1 s1:1 --plan cumulus --ask");
        lab.exec("c1", &question).starts_with(&format!("Gateway   {ask},"))
    };
    let flow = lab.start("c1", &format!("ping -i {PACED_S} 10.10.0.21"));
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(carries(&planned));
    let drained = lab.gateway(&["drain", "cumulus", &planned, "--quiet", "300ms"]);
    assert!(drained.status.success(), "{}", text(&drained));
    let proof = format!("{planned}  is empty: no packet forwarded in 0.3 s");
    assert!(text(&drained).contains(&proof), "{}", text(&drained));
    assert!(!carries(&planned));
    let checked = by_ssh(&["check", "cumulus"]);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked));
    assert_eq!(text(&checked).matches(&format!("drained    {planned}")).count(), 6);
    // Somebody whom the plan does not know still sends by it.
    let number = planned.trim_start_matches('g');
    lab.exec("s2", "ip addr add 10.10.0.50/24 dev eth0");
    lab.exec("c4", &format!("ip route add 10.10.0.50/32 via 10.100.0.9{number}"));
    let mut stranger = lab.start("c4", "ping -i 0.02 10.10.0.50");
    let mut answers = BufReader::new(stranger.stdout.take().expect("piped"));
    let mut line = String::new();
    while !line.contains(" bytes from ") {
        line.clear();
        assert_ne!(answers.read_line(&mut line).expect("text"), 0, "the stranger's ping ended");
    }
    std::thread::spawn(move || std::io::copy(&mut answers, &mut std::io::sink()));
    let still =
        lab.gateway(&["drain", "cumulus", &planned, "--quiet", "300ms", "--within", "600ms"]);
    assert_eq!(still.status.code(), Some(3), "{}", text(&still));
    assert!(
        text(&still).contains(&format!("{planned}  10.100.0.4 to 10.10.0.50: ")),
        "{}",
        text(&still)
    );
    lab.exec("c4", "ip route del 10.10.0.50/32");
    let back = lab.gateway(&["undrain", "cumulus", &planned]);
    assert!(back.status.success(), "{}", text(&back));
    assert!(carries(&planned));
    let ping = end(flow);
    let (gap, sent) = longest_gap(&ping);
    assert!(gap <= MISSING_COUNT_MAX && sent > 100, "{gap} packets in a row were lost: {ping}");
    end(stranger);
    lab.exec("s2", "ip addr del 10.10.0.50/24 dev eth0");
    let reverted = by_ssh(&["revert", "--plan", "cumulus"]);
    assert!(reverted.status.success(), "{}", text(&reverted));
    assert_eq!(["c1", "g2", "s1"].map(|host| lab.routing(host)), before);
    println!("{gap} packets in a row lost, of {sent}");
}
