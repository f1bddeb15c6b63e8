//! Recordings made anew: a stock iperf3 over a lab with one planted limit, recorded by tcpdump at both
//! ends and by `ss` at the sender, and `explain` must name the limit and the end from each.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use serde_json::Value;
use stats::Judgement;
use testkit::effort;
use testkit::lab_bed::LabBed;
use testkit::switch_bed::eventually;

use crate::PROGRAM;

/// Share of the answers that are wrong by chance, on cores that others share.
const WRONG_BY_CHANCE: f64 = 0.03;

const WINDOW: &str = "[host.near]\n[host.far]\n[host.far.sysctl]\n\
    \"net.ipv4.tcp_rmem\" = \"4096 65536 131072\"\n[[link]]\nbetween = [\"near\", \"far\"]\n\
    mtu = 1500\ndelay = \"10ms\"\nrate = \"1Gbit\"\n";
const SHAPER: &str = "[host.near]\n[host.far]\n[[link]]\nbetween = [\"near\", \"far\"]\nmtu = 1500\n\
    delay = \"10ms\"\nrate = \"1Gbit\"\nqueue = \"128KiB\"\n\
    shaper = { rate = \"20Mbit\", burst = \"16KiB\" }\n";

/// Files of one recorded transfer, gone with the value.
struct Recording {
    folder: PathBuf,
}

impl Drop for Recording {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

impl Recording {
    fn path(&self, name: &str) -> String {
        self.folder.join(name).to_str().expect("a plain path").to_owned()
    }

    /// Transfers 2.5 MB over the lab; what records ends with the lab.
    fn take(bed: &LabBed, name: &str) -> Self {
        let folder = format!("clearstream-recorded-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir(&folder).expect("a folder of our own");
        let recording = Self { folder };
        let begun = |path: &str| std::fs::metadata(path).is_ok_and(|file| file.len() >= 24);
        let mut running = Vec::new();
        for (host, file) in [("near", "sender.pcap"), ("far", "receiver.pcap")] {
            let path = recording.path(file);
            let tcpdump = "tcpdump -Z root -i eth0 -s 96 -U --immediate-mode -w";
            let words: Vec<&str> = tcpdump.split(' ').chain([path.as_str(), "tcp"]).collect();
            running.push(Running(bed.spawn(host, &words)));
            eventually("the capture begins", || begun(&path));
        }
        running.push(Running(bed.spawn("far", &["iperf3", "-s", "-1"])));
        let is_listening = || {
            let listed = bed.exec("far", &["ss", "-ltn"]);
            String::from_utf8_lossy(&listed.stdout).contains(":5201")
        };
        eventually("iperf3 listens", is_listening);
        let samples = recording.path("ss.txt");
        let sampling = format!("while :; do date +%s.%N; ss -tinm; sleep 0.05; done > '{samples}'");
        running.push(Running(bed.spawn("near", &["sh", "-c", &sampling])));
        eventually("ss samples", || begun(&samples));
        let client = "iperf3 -4 -c 10.77.0.2 -C cubic -n 2500K";
        let words: Vec<&str> = client.split(' ').collect();
        let client = bed.exec("near", &words);
        assert!(client.status.success(), "{client:?}");
        recording
    }

    /// What `explain` says of one of the files: the limit, and where it was taken.
    fn explained(&self, file: &str) -> (String, String) {
        let path = self.path(file);
        let told = Command::new(PROGRAM).args(["--json", "explain", &path]).output();
        let told = told.expect("the program starts");
        assert!(told.status.success(), "{file}: {told:?}");
        let json: Value = serde_json::from_slice(&told.stdout).expect("JSON");
        let limit = json["verdict"]["limit"].as_str().unwrap_or_default().to_owned();
        let text = Command::new(PROGRAM).args(["explain", &path]).output();
        let text = String::from_utf8_lossy(&text.expect("the program starts").stdout).into_owned();
        let taken = text.lines().find(|line| line.contains(" taken at the ")).unwrap_or_default();
        (limit, taken.to_owned())
    }
}

/// A program on a host of the lab, killed and waited for.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn root_planted_limits_are_named_from_recordings_of_either_end() {
    for program in ["iperf3", "tcpdump", "ss"] {
        if !is_installed(program) {
            println!("skipped: {program} not installed");
            return;
        }
    }
    let mut wrong = Vec::new();
    for (name, lab, limit) in [("window", WINDOW, "receive-window"), ("shaper", SHAPER, "shaper")] {
        let Some(bed) = LabBed::up_with(name, lab) else { return };
        let recording = Recording::take(&bed, name);
        drop(bed);
        for (file, end) in
            [("sender.pcap", "sender"), ("receiver.pcap", "receiver"), ("ss.txt", "sender")]
        {
            let (named, taken) = recording.explained(file);
            println!("{name} {file}: {named}; {taken}");
            if named != limit || !taken.contains(&format!("taken at the {end}")) {
                wrong.push(format!("{name} {file}: {named}; {taken}"));
            }
        }
    }
    let judgement = Judgement::strictest(6, WRONG_BY_CHANCE, effort::CHANCE_MAX);
    let told = format!("misjudged: {wrong:#?}; {judgement}");
    println!("{told}");
    assert!(judgement.passes(wrong.len() as u32), "{told}");
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/usr/sbin:/bin:/sbin".into());
    std::env::split_paths(&path).any(|folder: PathBuf| Path::new(&folder).join(program).exists())
}

/// A committed recording.
fn committed(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/recorded");
    folder.join(name).to_str().expect("a plain path").to_owned()
}

fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(PROGRAM).args(arguments).output().expect("the program starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn explain_and_report_take_recordings_and_only_udp_is_compared() {
    let pcap = committed("window-sender.pcap");
    let (code, json, _) = run(&["--json", "explain", &pcap]);
    assert_eq!(code, Some(0));
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["verdict"]["limit"], "receive-window");
    assert!(json["recorded"].as_array().is_some_and(|lines| lines.len() > 5), "{json}");
    let (code, page, complaint) = run(&["report", &pcap, "-o", "-"]);
    assert_eq!(code, Some(0), "{complaint}");
    assert!(page.contains("<html") && page.contains("receive-window"), "the page has the verdict");
    let udp = committed("iperf3-3.12-udp.json");
    let (code, text, complaint) = run(&["explain", &udp]);
    assert_eq!(code, Some(0), "{complaint}");
    assert!(text.contains("one rate alone cannot tell"), "{text}");
    let (code, _, complaint) = run(&["explain", &udp, &committed("iperf3-3.21-udp.json")]);
    assert_eq!(code, Some(2), "{complaint}");
    assert!(complaint.contains("all files offer the same rate"), "{complaint}");
    let (code, _, complaint) = run(&["explain", &udp, &pcap]);
    assert_eq!(code, Some(2), "{complaint}");
    assert!(complaint.contains("holds tests other than UDP"), "{complaint}");
}
