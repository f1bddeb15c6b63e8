//! Jobs of stock Open MPI whose ranks have receive queues of their own (AF_XDP), on two hosts of a lab whose link has two queues.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::PROGRAM;
use crate::mpi_placement_root::{RANKS, Running, hosts, text_of};
use crate::mpi_root::{Hosts, said};

const OPTIONS: &str = "--transport xdp";

/// What a host says of its interface.
fn on(hosts: &Hosts, host: &str, script: &str) -> String {
    said(&hosts.lab.exec(host, &["sh", "-c", script]))
}

/// Packets that came by a queue and were taken past the kernel.
fn redirected(hosts: &Hosts, host: &str, queue: u64) -> u64 {
    let name = format!("rx_queue_{queue}_xdp_redirect:");
    let text = on(hosts, host, "ethtool -S eth0");
    let value = text.lines().find_map(|line| line.trim().strip_prefix(&name)?.trim().parse().ok());
    value.unwrap_or_else(|| panic!("{name} {text}"))
}

fn has_program(hosts: &Hosts, host: &str) -> bool {
    on(hosts, host, "ip link show dev eth0").contains("xdp")
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn each_rank_receives_by_its_own_queue_and_nothing_is_left_root() {
    let Some(hosts) = hosts("mpi-xdp") else { return };
    let plan = format!(
        "exec '{PROGRAM}' mpi plan --interface eth0 {OPTIONS} -- mpirun.openmpi --allow-run-as-root {RANKS} true"
    );
    let plan = text_of(&mut hosts.on_near(&plan));
    for queue in 0..2 {
        let line =
            format!("eth0 rx-{queue}: BPF programs, by the endpoint's port modulo the queues");
        assert!(plan.contains(&line), "{line}: {plan}");
    }
    let job = hosts.job.display().to_string();
    let output =
        hosts.command_of(OPTIONS, &format!("{RANKS} {job} 2")).output().expect("it starts");
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("correct: 4 ranks"), "{}", said(&output));

    let reports = hosts.reports();
    assert_eq!(reports.len(), 4, "{}", said(&output));
    for report in &reports {
        let count =
            |name: &str| report[name].as_u64().unwrap_or_else(|| panic!("{name}: {report}"));
        let (rank, queue) = (count("rank"), count("xdp_queue"));
        assert_eq!(queue, rank % 2, "{report}");
        let received = count("xdp_received_pkts");
        assert!(received > 1000 && count("xdp_pkts") > 500, "{report}");
        // Greetings, and what came before the kernel knew the neighbour.
        assert!(count("receives") < 100, "packets come by the socket: {reports:?}");
        assert_eq!(count("forged_pkts"), 0, "{report}");
        // Those that came when the rank had closed were not taken in.
        let host = report["host"].as_str().expect("a host");
        let came = redirected(&hosts, host, queue);
        assert!((received..received + 100).contains(&came), "{came} at {host}: {report}");
    }
    for host in ["near", "far"] {
        until("the program goes with the job", || !has_program(&hosts, host));
    }
}

#[test]
fn packets_of_others_reach_the_kernel_and_a_killed_job_leaves_no_program_root() {
    let Some(hosts) = hosts("mpi-xdp-kill") else { return };
    let running = Running::begin(&hosts, OPTIONS, RANKS);
    assert!(has_program(&hosts, "near") && has_program(&hosts, "far"));
    let address = on(&hosts, "near", "ip -4 -o addr show dev eth0");
    let address = address.split_whitespace().skip_while(|&word| word != "inet").nth(1);
    let address = address.and_then(|address| address.split('/').next()).expect("an address");
    let unheard = || {
        let text = on(&hosts, "near", "grep Udp: /proc/net/snmp");
        let value =
            text.lines().nth(1).and_then(|line| line.split_whitespace().nth(2)?.parse().ok());
        value.unwrap_or_else(|| panic!("{text}"))
    };
    let before: u64 = unheard();
    // To port 9, where nobody listens: as our packets to that endpoint look, and as no packet of ours.
    for bytes in ["\\301\\006\\011\\000 and more", "hello"] {
        let script = format!("printf '{bytes}' > /dev/udp/{address}/9");
        let sent = hosts.lab.exec("far", &["bash", "-c", &script]);
        assert!(sent.status.success(), "{}", said(&sent));
    }
    until("the kernel has both datagrams", || unheard() == before + 2);
    // Hostile frames for a rank's own endpoint: it drops them, and the job goes on.
    let script = format!(
        "for port in 61008 61009; do for bytes in '\\301' '\\301\\006\\120\\356' '\\301\\006\\121\\356\\377\\377'; do \
         printf \"$bytes\" > /dev/udp/{address}/$port; done; done"
    );
    assert!(hosts.lab.exec("far", &["bash", "-c", &script]).status.success());
    let ping = hosts.lab.exec("far", &["ping", "-c", "3", "-i", "0.05", "-W", "5", address]);
    assert!(ping.status.success(), "{}", said(&ping));

    // One of the two has attached the program, which both hold.
    let job = hosts.job.display().to_string();
    let pid = |rank| running.process(&job, &format!("OMPI_COMM_WORLD_RANK={rank}")).to_string();
    let kill = Command::new("kill").args(["-KILL", &pid(0), &pid(1)]).status();
    assert!(kill.expect("kill is installed").success());
    let told = running.wait();
    assert!(!told.contains("panicked"), "{told}");
    for host in ["near", "far"] {
        until("the kernel takes the program off", || !has_program(&hosts, host));
    }
}

#[test]
fn ranks_without_the_privilege_say_so_once_and_use_udp_root() {
    let Some(hosts) = hosts("mpi-xdp-none") else { return };
    let job = hosts.job.display().to_string();
    let without = "setpriv --bounding-set=-net_raw,-bpf --inh-caps=-net_raw,-bpf";
    let words = format!("{RANKS} {without} {job} 1");
    let output = hosts.command_of(OPTIONS, &words).output().expect("it starts");
    assert!(said(&output).contains("correct: 4 ranks"), "{}", said(&output));
    let line = "messages go over UDP, not by AF_XDP: ";
    assert_eq!(said(&output).matches(line).count(), 4, "{}", said(&output));
    assert!(said(&output).contains("needs CAP_NET_RAW"), "{}", said(&output));
    assert!(hosts.reports().iter().all(|report| report["xdp_pkts"] == 0));
}
