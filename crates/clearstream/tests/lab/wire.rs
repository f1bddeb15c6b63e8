//! What an emulated link does to traffic, measured from inside its hosts.

use std::fs::File;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::PROGRAM;
use testkit::effort;
use testkit::lab_bed::{LabBed, complaint, eventually};

/// A socket on a host of the lab. Only for root: it enters the host's network namespace without
/// its user namespace.
fn socket(bed: &LabBed, host: usize) -> Option<UdpSocket> {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can open sockets in a lab from outside");
        return None;
    }
    let pid = bed.status()["pid"].as_i64()?;
    let path = format!("/proc/{pid}/fd");
    // The anchor's descriptors of network namespaces, in the order of the hosts.
    let mut namespaces: Vec<i32> = std::fs::read_dir(&path)
        .ok()?
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let target = std::fs::read_link(entry.path()).ok()?;
            let number = entry.file_name().to_str()?.parse().ok()?;
            target.to_str()?.starts_with("net:").then_some(number)
        })
        .collect();
    namespaces.sort_unstable();
    let namespace = File::open(format!("{path}/{}", namespaces.get(host)?)).ok()?;
    let opened = thread::spawn(move || {
        sys::namespace::enter_network(namespace.as_fd()).expect("root may");
        UdpSocket::bind(if host == 0 { "10.77.0.1:7000" } else { "10.77.0.2:7000" })
    });
    let socket = opened.join().expect("no panic").expect("the host has its address");
    socket.set_read_timeout(Some(Duration::from_secs(1))).expect("a timeout");
    Some(socket)
}

fn ends(bed: &LabBed) -> Option<(UdpSocket, UdpSocket)> {
    let (near, far) = (socket(bed, 0)?, socket(bed, 1)?);
    near.connect("10.77.0.2:7000").expect("a route");
    far.connect("10.77.0.1:7000").expect("a route");
    // The first packet waits for the neighbour's address, and may be lost.
    far.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
    eventually("a greeting arrives", || {
        near.send(b"hello").expect("sent");
        far.recv(&mut [0; 8]).is_ok()
    });
    far.set_read_timeout(Some(Duration::from_secs(1))).expect("a timeout");
    Some((near, far))
}

#[test]
fn root_round_trips_take_17_ms_and_their_jitter() {
    let link = "delay = \"8.5ms\"\njitter = \"0.1ms\"\nrate = \"40Gbit\"\nmtu = 9000";
    let Some(bed) = LabBed::up("rtt", link) else { return };
    let Some((near, far)) = ends(&bed) else { return };
    thread::spawn(move || {
        let mut packet = [0; 64];
        // Until nothing has come for a second.
        while let Ok(len) = far.recv(&mut packet) {
            far.send(&packet[..len]).expect("sent");
        }
    });
    let round_trip_ms = |_: u32| {
        let sent = Instant::now();
        near.send(&[7; 56]).expect("sent");
        near.recv(&mut [0; 64]).expect("arrived");
        sent.elapsed().as_secs_f64() * 1e3
    };
    // Taken beforehand, judged once. Other programs on this machine make some late, and at times most:
    // half of them are judged where nothing else runs.
    let (count, least_share) = if effort::is_all() { (1000, 0.5) } else { (300, 0.1) };
    let mut rtts_ms: Vec<f64> = (0..count).map(round_trip_ms).collect();
    rtts_ms.sort_by(f64::total_cmp);
    let at = |share: f64| rtts_ms[(rtts_ms.len() as f64 * share) as usize];
    println!("{:.2} ms; a tenth {:.2}; half {:.2}; most {:.2}", at(0.0), at(0.1), at(0.5), at(0.9));
    assert!(rtts_ms[0] >= 16.8, "nothing is early: {} ms", rtts_ms[0]);
    assert!(at(least_share) < 17.7, "of {least_share} {} ms", at(least_share));
    eventually("the status counts them", || {
        bed.status()["links"][0]["backward"]["delivered_pkts"].as_u64() >= Some(u64::from(count))
    });
    let late = bed.status()["links"][0]["forward"]["lateness"].clone();
    let late_s = late["p50_s"].as_f64().expect("a figure");
    if effort::is_all() {
        assert!(late_s < 1e-3, "{late}");
    } else {
        effort::left_to_test_all("whether half of the round trips take 17 ms");
    }
}

#[test]
fn root_loss_has_its_share() {
    let Some(bed) = LabBed::up("loss", "delay = \"1ms\"\nloss = \"5%\"\nseed = 3") else { return };
    let Some((near, far)) = ends(&bed) else { return };
    // A receiver that waits for its core must not lose any itself.
    sys::socket::set_receive_buffer(&far, 64 << 20).expect("root may");
    let receiver = thread::spawn(move || {
        let mut packet = [0; 64];
        std::iter::from_fn(|| far.recv(&mut packet).ok()).count()
    });
    let sent_count = 20_000;
    for index in 0..sent_count {
        near.send(&[1; 32]).expect("sent");
        if index % 20 == 0 {
            thread::sleep(Duration::from_millis(1));
        }
    }
    let received = receiver.join().expect("no panic");
    // What arrived is counted a moment later.
    eventually("the status counts what arrived", || {
        bed.status()["links"][0]["forward"]["delivered_pkts"].as_u64() >= Some(received as u64)
    });
    let forward = &bed.status()["links"][0]["forward"];
    let counted = |name: &str| forward[name].as_u64().expect("a counter") as f64;
    let (lost, delivered) = (counted("dropped_loss_pkts"), counted("delivered_pkts"));
    // Of what reached the link: a sender or receiver that waits for its core may lose some beside.
    let share = lost / (lost + delivered);
    println!("{received} of {sent_count} received, {lost} lost, {delivered} delivered");
    assert!((0.04..0.06).contains(&share), "5% of {sent_count}: {share}");
    assert!(received as f64 <= delivered && received > 10_000, "{received} of {delivered}");
}

/// Waits until something on the far host listens on port 5201, which is 0x1451: state 0A of proc(5).
fn wait_for_listener(bed: &LabBed) {
    let listens = ["grep", "-q", ":1451 .* 0A ", "/proc/net/tcp", "/proc/net/tcp6"];
    eventually("the server listens", || bed.exec("far", &listens).status.success());
}

#[test]
fn root_udp_streams_are_set_up_over_a_path_that_loses_packets() {
    let Some(bed) = LabBed::up("udploss", "delay = \"1ms\"\nloss = \"12%\"\nseed = 5") else {
        return;
    };
    let server = bed.spawn("far", &[PROGRAM, "serve"]);
    wait_for_listener(&bed);
    // Of 16 streams' greetings and answers some are lost: they are sent again.
    let test = [PROGRAM, "--json", "test", "far", "-u", "-P", "16", "-b", "500K", "-t", "1"];
    let done = bed.exec("near", &test);
    assert!(done.status.success(), "{}", complaint(&done));
    drop(server);
    let told: serde_json::Value = serde_json::from_slice(&done.stdout).expect("JSON");
    let outcome = &told["points"][0]["outcome"]["measured"];
    let forward = &outcome["directions"][0]["udp"];
    let counted = |name: &str| forward[name].as_u64().expect("counted");
    let share = counted("lost_count") as f64 / counted("sent_count") as f64;
    assert!((0.06..0.18).contains(&share), "12%: {share}: {forward}");
    let streams = outcome["hosts"][1]["account"]["streams"].as_array().expect("streams");
    assert_eq!(streams.len(), 16);
    assert!(streams.iter().all(|stream| stream["bytes"].as_u64() > Some(0)), "{streams:?}");
}

#[test]
fn root_the_rate_is_the_rate() {
    let Some(bed) = LabBed::up("rate", "rate = \"100Mbit\"\nqueue = \"100K\"") else { return };
    let Some((near, far)) = ends(&bed) else { return };
    let receiver = thread::spawn(move || {
        let (mut packet, mut arrivals) = ([0; 2000], vec![(Instant::now(), 0)]);
        while let Ok(bytes) = far.recv(&mut packet) {
            arrivals.push((Instant::now(), bytes));
        }
        arrivals
    });
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(2) {
        for _ in 0..20 {
            near.send(&[1; 1472]).expect("sent");
        }
        // About 230 Mbit/s, more than twice what fits.
        thread::sleep(Duration::from_millis(1));
    }
    let arrivals = receiver.join().expect("no panic");
    let rate = |arrivals: &[(Instant, usize)]| {
        let (first, last) = (arrivals[0].0, arrivals[arrivals.len() - 1].0);
        let bytes: usize = arrivals[1..].iter().map(|(_, bytes)| bytes).sum();
        // 1472 of each 1538 bytes on the wire.
        bytes as f64 * 8.0 * 1538.0 / 1472.0 / (last - first).as_secs_f64()
    };
    // Whoever waits for a core leaves a gap: the median of stretches of about 25 ms is the link's own,
    // and no gap makes the whole faster.
    let stretches: Vec<f64> = arrivals[1..].chunks_exact(200).map(rate).collect();
    let median = stats::median(&stretches).expect("some stretches");
    println!("{:.4e} in all, median {median:.4e} bit/s", rate(&arrivals));
    assert!(rate(&arrivals) < 103e6, "{}", rate(&arrivals));
    if effort::is_all() {
        assert!((90e6..103e6).contains(&median), "{median} of {stretches:?}");
    } else {
        // A sender that waits for its core does not fill the link.
        effort::left_to_test_all("whether the link is filled");
    }
    eventually("the status counts the drops", || {
        bed.status()["links"][0]["forward"]["dropped_queue_pkts"].as_u64() > Some(100)
    });
    let most = bed.status()["links"][0]["forward"]["queue_bytes_max"].as_u64();
    assert!(most <= Some(100 * 1024), "{most:?}");
}

#[test]
fn root_a_stock_iperf3_runs_over_it() {
    if Command::new("iperf3").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("skipped: no iperf3 here");
        return;
    }
    let link =
        "delay = \"2ms\"\nrate = \"10Gbit\"\nqueue = \"16MiB\"\nmtu = 9000\nloss = \"0.001%\"";
    let Some(bed) = LabBed::up("iperf3", link) else { return };
    let mut server = bed.spawn("far", &["iperf3", "-s", "-1"]);
    wait_for_listener(&bed);
    let client = bed.exec("near", &["iperf3", "-c", "far", "-t", "2", "-C", "cubic", "-J"]);
    let answer: serde_json::Value = serde_json::from_slice(&client.stdout).expect("JSON");
    let bits_per_s = answer["end"]["sum_received"]["bits_per_second"].as_f64();
    assert!(bits_per_s > Some(0.0), "{bits_per_s:?}: {}", answer["error"]);
    assert!(bits_per_s < Some(10e9), "{bits_per_s:?}");
    if effort::is_all() {
        assert!(bits_per_s > Some(200e6), "{bits_per_s:?}");
    } else {
        effort::left_to_test_all("how fast iperf3 is over a lab's link");
    }
    server.wait().expect("one test, then it ends");
    let forward = bed.status()["links"][0]["forward"].clone();
    assert_eq!(forward["overflow_frames_count"], 0);
    assert_eq!(forward["refused_frames_count"], 0);
}
