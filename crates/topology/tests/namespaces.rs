//! What is read belongs to the namespace of the calling thread: needs root and iproute2.

use std::fs::File;
use std::net::UdpSocket;
use std::process::Command;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use testkit::root::is_root;

/// A network namespace that goes away with the value.
struct Namespace {
    name: String,
}

impl Namespace {
    fn new(label: &str) -> Self {
        let name = format!("topology-{label}-{}", std::process::id());
        ip(&["netns", "add", &name]);
        Self { name }
    }

    fn ip(&self, arguments: &str) {
        let mut all = vec!["-n", &self.name];
        all.extend(arguments.split(' '));
        ip(&all);
    }

    fn tc(&self, arguments: &str) {
        let mut all = vec!["-n", &self.name];
        all.extend(arguments.split(' '));
        assert!(Command::new("tc").args(&all).status().unwrap().success(), "tc {arguments}");
    }

    /// Runs in a thread of its own inside the namespace.
    fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let path = format!("/run/netns/{}", self.name);
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                let namespace = File::open(path).unwrap();
                let kind = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(std::os::fd::AsFd::as_fd(&namespace), kind).unwrap();
                work()
            });
            inside.join().unwrap()
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        Command::new("ip").args(["netns", "del", &self.name]).status().ok();
    }
}

fn ip(arguments: &[&str]) {
    assert!(Command::new("ip").args(arguments).status().unwrap().success(), "ip {arguments:?}");
}

#[test]
fn root_facts_are_those_of_the_interface_toward_the_address() {
    if !is_root() {
        return;
    }
    let space = Namespace::new("facts");
    space.ip("link add ends type veth peer name other");
    space.ip("tuntap add wire mode tap");
    for (link, address) in [("ends", "10.99.1.1/24"), ("wire", "10.99.2.1/24")] {
        space.ip(&format!("addr add {address} dev {link}"));
        space.ip(&format!("link set {link} mtu 9000 up"));
    }
    space.ip("addr add fd99::1/64 dev ends nodad");
    space.tc("qdisc add dev ends root tbf rate 3gbit burst 256kb latency 10ms");
    let toward = |address: &str| {
        let address = Some(address.parse().unwrap());
        space.run(move || topology::host_facts(address)).interface
    };

    let ends = toward("10.99.1.2").unwrap();
    assert_eq!((ends.name.as_str(), ends.driver.as_deref()), ("ends", Some("veth")));
    assert_eq!(ends.speed_bits_per_s, None, "veth makes its speed up");
    assert_eq!((ends.qdisc.as_deref(), ends.qdisc_rate_bits_per_s), (Some("tbf"), Some(3e9)));
    assert_eq!(ends.mtu_bytes, 9000);
    assert!(ends.queues_count.is_some());

    let wire = toward("10.99.2.2").unwrap();
    assert_eq!((wire.name.as_str(), wire.driver.as_deref()), ("wire", Some("tun")));
    assert_eq!((wire.speed_bits_per_s, wire.queues_count), (None, Some((1, 1))));
    assert!(
        Command::new("ip")
            .args(["netns", "exec", &space.name, "ethtool", "-s", "wire", "speed", "40000"])
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(toward("10.99.2.2").unwrap().speed_bits_per_s, Some(40e9));

    assert_eq!(toward("fd99::2").unwrap().name, "ends");
    assert_eq!(toward("10.99.1.1").unwrap().name, "lo", "an address of this very host");
    assert_eq!(toward("192.0.2.1"), None, "no route");
}

#[test]
fn root_htb_holds_to_the_class_unclassified_traffic_goes_to() {
    if !is_root() {
        return;
    }
    let space = Namespace::new("htb");
    space.ip("link add ends type veth peer name other");
    space.ip("link set ends up");
    space.tc("qdisc add dev ends root handle 1: htb default 10 r2q 100000");
    space.tc("class add dev ends parent 1: classid 1:1 htb rate 5gbit ceil 40gbit");
    space.tc("class add dev ends parent 1:1 classid 1:10 htb rate 1gbit ceil 36gbit");
    let facts = space.run(|| topology::interface_facts("ends")).unwrap();
    assert_eq!((facts.qdisc.as_deref(), facts.qdisc_rate_bits_per_s), (Some("htb"), Some(36e9)));
}

#[test]
fn root_counters_are_those_of_the_thread_s_namespace() {
    if !is_root() {
        return;
    }
    let space = Namespace::new("counters");
    space.ip("link set lo up");
    let gained = space.run(|| {
        let before = topology::CounterSnapshot::read();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _datagram in 0..7 {
            socket.send_to(&[0; 1000], socket.local_addr().unwrap()).unwrap();
        }
        topology::CounterSnapshot::read().since(&before)
    });
    // The namespace is ours alone: the figures are exact (20 bytes IP, 8 UDP; loopback
    // counts no Ethernet header).
    assert_eq!(gained.devices.len(), 1);
    assert_eq!((gained.devices[0].tx_pkts, gained.devices[0].tx_bytes), (7, 7 * 1028));
    let of = |name: &str| {
        gained.protocols.iter().find(|counter| counter.name == name).map(|c| c.gain_count)
    };
    assert_eq!(of("Udp.OutDatagrams"), Some(7));
    let names: Vec<_> =
        space.run(topology::interfaces).into_iter().map(|link| (link.name, link.is_up)).collect();
    assert!(names.contains(&("lo".to_owned(), true)), "{names:?}");
    assert!(!names.iter().any(|(name, _up)| name == "eth0"), "{names:?}");
}
