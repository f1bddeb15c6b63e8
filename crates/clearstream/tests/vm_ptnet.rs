//! Guests that drive their port's rings themselves: their driver, its queues, its programs and its trust group.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::vm_bed::{
    Testbed, carrier_becomes, file_by_tcp, kill, memory_of_port, netmap_between, pid, wait_until,
};

/// What `ethtool -S` says in a guest.
fn statistics(bed: &Testbed, short: &str) -> HashMap<String, u64> {
    let said = bed.shell(short, "ethtool -S eth0");
    let pairs = said.lines().filter_map(|line| line.trim().split_once(": "));
    pairs.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect()
}

/// Flows to a guest with three pairs of queues come in all of its receive rings, each with its interrupt, and leave by
/// the queues of its processors.
fn flows_are_spread(bed: &Testbed) {
    let channels = bed.shell("one", "ethtool -l eth0; ls /sys/class/net/eth0/queues");
    assert_eq!(channels.matches("Combined:\t3").count(), 2, "{channels}");
    assert_eq!((channels.matches("rx-").count(), channels.matches("tx-").count()), (3, 3));
    flows_reach_all_rings(bed);
    let all = statistics(bed, "one");
    let sum =
        |kind: &str| (0..3).map(|queue| all[&format!("rx_queue_{queue}_{kind}")]).sum::<u64>();
    assert_eq!(all["rx_bytes"], sum("bytes"));
}

/// Connections from the other guest come in all three rings, and are answered.
fn flows_reach_all_rings(bed: &Testbed) {
    let before = statistics(bed, "one");
    // Nobody listens: each is refused. That one of the queues is left out by chance is less likely than 1 in a million.
    bed.shell("two", "for port in $(seq 6001 6040); do nc -w 9 10.0.0.1 $port; done 2>&1; true");
    let grown = |wanted: &str| {
        let after = statistics(bed, "one");
        let of_queue = |queue: usize| {
            let name = wanted.replace('#', &queue.to_string());
            after[&name].checked_sub(before[&name]).expect("counters only grow")
        };
        [0, 1, 2].map(of_queue)
    };
    wait_until("all queues have received", || {
        grown("rx_queue_#_packets").iter().all(|&count| count > 0)
    });
    assert!(
        grown("rx_queue_#_irqs").iter().all(|&count| count > 0),
        "{:?}",
        grown("rx_queue_#_irqs")
    );
    let sent = grown("tx_queue_#_packets");
    assert!(sent.iter().sum::<u64>() > 0, "{sent:?}");
}

/// Each queue of an interface can have a program of its own; one that is killed leaves the others their rings.
fn programs_have_queues_of_their_own(bed: &Testbed) {
    const COUNT: u64 = 5000;
    let busy = |interface: &str| {
        let refused = bed.exec("one", &["netmap_frames", "receive", interface, "1"]);
        refused.status.code() == Some(1)
            && String::from_utf8_lossy(&refused.stdout).contains("busy")
    };
    let runs = |queue: u32| {
        let found = bed.shell("one", &format!("ps | grep -c '[r]eceive eth0-{queue} '; true"));
        found.trim() == "1"
    };
    for queue in [0, 2] {
        bed.shell(
            "one",
            &format!("netmap_frames receive eth0-{queue} 1000000 >/tmp/{queue} 2>&1 &"),
        );
        let pid = format!("$(ps | grep '[r]eceive eth0-{queue} ' | awk '{{ print $1 }}')");
        wait_until("the program has its queue", || {
            let found = format!("grep -c /dev/netmap /proc/{pid}/maps 2>/dev/null; true");
            bed.shell("one", &found).trim().parse().is_ok_and(|count: u32| count > 0)
        });
        assert!(busy(&format!("eth0-{queue}")));
    }
    assert!(busy("eth0"), "whoever wants all queues finds some taken");
    assert!(bed.exec("one", &["ethtool", "-L", "eth0", "combined", "1"]).status.code() != Some(0));
    let none = bed.exec("one", &["netmap_frames", "receive", "eth0-3", "1"]);
    assert!(String::from_utf8_lossy(&none.stdout).contains("Invalid argument"), "{none:?}");
    let address = bed.shell("two", "cat /sys/class/net/eth0/address").trim().replace(':', "");
    let resets = statistics(bed, "one")["resets"];
    let send = || {
        let arrived = bed.arrived_at("two");
        let sent = bed.shell("one", &format!("netmap_frames send eth0-1 {COUNT} {address}"));
        assert_eq!(sent.trim().parse(), Ok(COUNT));
        wait_until("the switch has had every frame", || bed.arrived_at("two") >= arrived + COUNT);
    };
    send();
    bed.shell("one", "kill -9 $(ps | grep '[r]eceive eth0-0 ' | awk '{ print $1 }')");
    wait_until("the killed one's queue is free", || !runs(0));
    assert!(runs(2) && busy("eth0-2") && !bed.shell("one", "cat /tmp/2").contains("error"));
    // What both have left stays where it was, for whoever comes next.
    send();
    assert_eq!(statistics(bed, "one")["resets"], resets, "the others kept their rings");
    bed.shell("one", "killall -9 netmap_frames");
    carrier_becomes(bed, "1");
    assert!(statistics(bed, "one")["resets"] > resets, "the interface has new rings");
    file_by_tcp(bed, "one", "two");
}

/// With fewer channels than rings each channel serves several, and no frame stays in a ring.
fn channels_follow_ethtool(bed: &Testbed) {
    let queues = || bed.shell("one", "ls /sys/class/net/eth0/queues | wc -l");
    for channels in [1, 2, 3] {
        bed.shell("one", &format!("ethtool -L eth0 combined {channels}"));
        assert_eq!(queues().trim(), (2 * channels).to_string());
        carrier_becomes(bed, "1");
        flows_reach_all_rings(bed);
        let sent = statistics(bed, "one");
        file_by_tcp(bed, "one", "two");
        let after = statistics(bed, "one");
        let grows = |queue: usize| {
            let name = format!("tx_queue_{queue}_packets");
            after[&name] > sent[&name]
        };
        assert!((channels..3).all(|queue| !grows(queue)), "{sent:?} {after:?}");
        assert!((0..channels).any(grows));
    }
    for refused in ["0", "4"] {
        let refused = bed.exec("one", &["ethtool", "-L", "eth0", "combined", refused]);
        assert!(refused.status.code() != Some(0), "{refused:?}");
    }
}

/// A program in the guest writes nonsense into the rings that it was given: the guest's kernel refuses what it can see, the
/// switch the rest, and afterwards all is as before.
fn nonsense_harms_nobody(bed: &Testbed) {
    let daemon = bed.switch.daemon.id();
    for seed in 1..=3 {
        let said = bed.shell("one", &format!("netmap_nonsense eth0 2000 {seed}"));
        let counts: Vec<u64> = said.split_whitespace().map(|one| one.parse().unwrap()).collect();
        assert!(counts.len() == 2 && !counts.contains(&0), "refused and not: {said}");
    }
    wait_until("the guest has its interface again", || {
        bed.shell("one", "cat /sys/class/net/eth0/carrier").trim() == "1"
    });
    assert_eq!(bed.switch.daemon.id(), daemon);
    let fault = bed.listed("two")["network"].as_str().unwrap().to_owned();
    assert!(fault.starts_with("guest runs") && !fault.contains("fault"), "{fault}");
    file_by_tcp(bed, "one", "two");
    file_by_tcp(bed, "two", "one");
}

/// A driver that finds another layout makes no interface, and the kernel's log has the reason.
fn driver_refuses_what_it_does_not_know(bed: &Testbed, memory: &File) {
    const GUEST_PART: u64 = 2048;
    let wrong = [
        (0, "it is no port of a ClearStream switch"),
        (GUEST_PART, "it is no port of a ClearStream switch"),
        (GUEST_PART + 8, "it is of another version"),
        (GUEST_PART + 12, "its frames have a header of an unknown length"),
        (GUEST_PART + 36, "it has an impossible number of queues"),
    ];
    for (offset, why) in wrong {
        let mut right = [0; 4];
        memory.read_exact_at(&mut right, offset).unwrap();
        memory.write_all_at(&7_u32.to_le_bytes(), offset).unwrap();
        let said =
            bed.shell("one", "insmod /modules/ptnet.ko; dmesg | tail -n 1; ls /sys/class/net");
        assert!(said.contains(&format!("refused: {why}")), "{said}");
        assert!(!said.contains("eth0"), "{said}");
        memory.write_all_at(&right, offset).unwrap();
        bed.shell("one", "rmmod ptnet");
    }
}

/// A guest that drives its port's rings itself, with several queues, beside one with a stock virtio-net driver.
#[test]
fn a_ptnet_guest_speaks_with_a_virtio_guest_and_outlives_its_switch_its_driver_and_its_faults() {
    let mut bed = Testbed::new("ptnet");
    let (one, _two) = std::thread::scope(|scope| {
        let two = scope.spawn(|| bed.run("two", ""));
        (bed.run("one", " --type ptnet --cores 2 --queues 3"), two.join().unwrap())
    });
    let listed = bed.listed("one");
    assert_eq!((&listed["type"], &bed.listed("two")["type"]), (&"ptnet".into(), &"virtio".into()));
    let mac = bed.shell("one", "cat /sys/class/net/eth0/address");
    assert_eq!(mac.trim(), listed["mac"].as_str().unwrap());
    for (short, last) in [("one", 1), ("two", 2)] {
        bed.shell(short, &format!("ip addr add 10.0.0.{last}/24 dev eth0; ip link set eth0 up"));
        bed.runs_at_its_port(short);
    }
    bed.shell("one", "ping -c 3 -W 60 10.0.0.2");
    bed.shell("two", "ping -c 3 -W 60 -s 1400 10.0.0.1");
    file_by_tcp(&bed, "one", "two");
    file_by_tcp(&bed, "two", "one");
    flows_are_spread(&bed);
    channels_follow_ethtool(&bed);
    netmap_between(&bed, "one", "two");
    programs_have_queues_of_their_own(&bed);
    nonsense_harms_nobody(&bed);
    // The switch is killed: the guest has no carrier until another serves the same rings.
    carrier_becomes(&bed, "1");
    bed.kill_switch();
    carrier_becomes(&bed, "0");
    bed.start_switch();
    ["one", "two"].into_iter().for_each(|short| bed.runs_at_its_port(short));
    file_by_tcp(&bed, "one", "two");
    // A cursor of the last receive ring that is no slot, as the guest could write it: the switch ends the rings and says
    // why, and the driver gets new ones.
    let memory = memory_of_port(pid(&one, "pid"));
    memory.write_all_at(&9999_u32.to_le_bytes(), 4096 + 5 * 64).unwrap();
    bed.exec("one", &["ping", "-c", "1", "-W", "1", "10.0.0.2"]);
    wait_until("the guest has new rings", || {
        let network = bed.listed("one")["network"].as_str().unwrap().to_owned();
        network.starts_with("guest runs") && network.contains("cursor 9999")
    });
    file_by_tcp(&bed, "one", "two");
    // The driver goes, and comes again.
    bed.shell("one", "rmmod ptnet");
    wait_until("the switch hears that it has gone", || {
        let network = bed.listed("one")["network"].as_str().unwrap().to_owned();
        network.starts_with("guest without a driver")
    });
    driver_refuses_what_it_does_not_know(&bed, &memory);
    bed.shell(
        "one",
        "insmod /modules/ptnet.ko; ip addr add 10.0.0.1/24 dev eth0; ip link set eth0 up",
    );
    bed.runs_at_its_port("one");
    file_by_tcp(&bed, "two", "one");
    kill(pid(&one, "pid"));
    bed.is_gone("one", &one);
}

#[test]
fn guests_of_a_trust_group_hand_their_frames_over_and_find_each_other_at_the_next_switch() {
    let mut bed = Testbed::new("trust");
    let more = " --type ptnet --trust twins";
    std::thread::scope(|scope| {
        let two = scope.spawn(|| bed.run("two", more));
        bed.run("one", more);
        two.join().unwrap();
    });
    for (short, last) in [("one", 1), ("two", 2)] {
        bed.shell(short, &format!("ip addr add 10.0.0.{last}/24 dev eth0; ip link set eth0 up"));
        bed.runs_at_its_port(short);
    }
    bed.shell("one", "ping -c 3 -W 60 -s 8000 10.0.0.2");
    file_by_tcp(&bed, "one", "two");
    file_by_tcp(&bed, "two", "one");
    let handed_over = |bed: &Testbed| ["one", "two"].map(|short| bed.handed_over_to(short));
    let [to_one, to_two] = handed_over(&bed);
    assert!(to_one > 3 && to_two > 3, "{to_one} and {to_two} frames");
    // A program that fills the port's buffers itself: the slots that come back have others.
    let (before, copied) = (to_two, bed.arrived_at("two") - to_two);
    netmap_between(&bed, "one", "two");
    let (arrived, to_two) = (bed.arrived_at("two"), bed.handed_over_to("two"));
    assert!(to_two > before + 500, "{to_two} of {arrived}, {copied} copied before");
    bed.kill_switch();
    carrier_becomes(&bed, "0");
    bed.start_switch();
    ["one", "two"].into_iter().for_each(|short| bed.runs_at_its_port(short));
    file_by_tcp(&bed, "one", "two");
    file_by_tcp(&bed, "two", "one");
    assert!(handed_over(&bed).iter().all(|&frames| frames > 3), "{:?}", handed_over(&bed));
}
