//! What exceeds a rate waits in a queue or does not: datagrams that arrive tell which. Needs iperf3, nft and a lab.

use std::process::Child;
use std::time::Instant;

use serde_json::Value;
use testkit::lab_bed::{LabBed, complaint, eventually};

use crate::PROGRAM;

/// A server on the far host, which ends with the value.
struct Server(Child);

impl Server {
    fn start(bed: &LabBed, port: u16, program: &[&str]) -> Self {
        let port = port.to_string();
        let server = Self(bed.spawn("far", &[program, &["-p", &port]].concat()));
        let listens = ["ss", "-Hltn", "sport", "=", &port];
        eventually("the server listens", || !bed.exec("far", &listens).stdout.is_empty());
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// The verdict on UDP at 40 and 120 Mbit/s, and all that is said for it.
fn verdict(bed: &LabBed, name: &str, options: &[&str]) -> (String, String) {
    let began = Instant::now();
    let folder = std::env::temp_dir();
    let files = ["40M", "120M"].map(|rate| {
        let file = folder.join(format!("{}-{name}-{rate}.json", bed.name));
        let file = file.to_str().expect("a plain path").to_owned();
        let test = [PROGRAM, "--json", "test", "far", "-u", "-b", rate, "-t", "1", "-l", "1400"];
        let done = bed.exec("near", &[&test, options].concat());
        assert!(done.status.success(), "{}", complaint(&done));
        std::fs::write(&file, &done.stdout).expect("room for a file");
        file
    });
    let told = bed.exec("near", &[PROGRAM, "--json", "explain", &files[0], &files[1]]);
    files.iter().for_each(|file| std::fs::remove_file(file).expect("it is there"));
    let told: Value = serde_json::from_slice(&told.stdout).expect("JSON");
    let verdict = &told["verdict"];
    let limit = verdict["limit"].as_str().unwrap_or_default().to_owned();
    println!("{name}: {limit} after {:?}", began.elapsed());
    (limit, verdict.to_string())
}

#[test]
fn root_what_exceeds_a_rate_has_waited_in_a_shapers_queue_and_not_before_a_policer() {
    let Some(bed) = LabBed::up("queued", "delay = \"1ms\"\nrate = \"60Mbit\"\nqueue = \"128KiB\"")
    else {
        return;
    };
    let server = Server::start(&bed, 5201, &[PROGRAM, "serve"]);
    let (limit, told) = verdict(&bed, "shaper", &[]);
    assert!(limit == "shaper" && told.contains("had waited"), "{told}");
    assert!(told.contains("in a queue"), "{told}");
    drop((server, bed));

    let Some(bed) = LabBed::up("policed", "delay = \"1ms\"\nrate = \"1Gbit\"") else { return };
    // 60 Mbit/s of such datagrams, dropped where they arrive.
    let policer = "add table inet t; add chain inet t c { type filter hook prerouting priority -300; }; \
                   add rule inet t c udp dport != 0 limit rate over 5200/second burst 100 packets drop";
    for host in ["near", "far"] {
        let planted = bed.exec(host, &["nft", policer]);
        assert!(planted.status.success(), "{}", complaint(&planted));
    }
    let _own = Server::start(&bed, 5201, &[PROGRAM, "serve"]);
    // A stock sender: its datagrams tell when they left.
    let _stock = Server::start(&bed, 5202, &["iperf3", "-s"]);
    for (name, options) in [("policer", &[][..]), ("policer-stock", &["-p", "5202", "-R"])] {
        let (limit, told) = verdict(&bed, name, options);
        assert!(limit == "policer" && told.contains("had waited in no queue"), "{name}: {told}");
    }
}
