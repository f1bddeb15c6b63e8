//! A network namespace that is one storage host of a small plan, with things of others in it.

#![allow(dead_code, reason = "each test program uses its part")]

use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use gateway::{ApplyError, Made, Network, Options, apply, revert};
use netlink::{Expression, Family, FilterChain, FilterHook, FilterRule, FilterTable, MetaKey};
use route_plan::{Plan, Role, parse_plan};
use sys::netlink_socket::NetlinkSocket;
use tuning::RevertOutcome;

/// Four clients, three gateways, two servers.
pub(crate) const PLAN: &str = r#"
name = "small"
[network.compute]
prefix = "10.100.0.0/16"
[network.storage]
prefix = "10.10.0.0/24"
[[gateway]]
names = "g[1-3]"
addresses = { compute = "10.100.0.[91-93]", storage = "10.10.0.[11-13]" }
interfaces = { compute = "hsn0", storage = "ib0" }
[hosts.c]
network = "compute"
names = "c[1-4]"
addresses = "10.100.0.[1-4]"
interface = "hsn0"
[hosts.s]
network = "storage"
names = "s[1-2]"
addresses = "10.10.0.[21-22]"
interface = "ib0"
[routing]
mode = "pairs"
seed = 12345
"#;

/// The plan with answers by the gateway that asked, whose hardware addresses it gives.
pub(crate) fn follow(plan: &str) -> String {
    let addresses = "hardware_addresses = { storage = \"02:00:00:00:00:[11-13]\" }";
    let plan = plan.replace("[hosts.c]", &format!("{addresses}\n[hosts.c]"));
    format!("{plan}follow = \"storage\"\n")
}

/// The same, and UDP servers do so too.
pub(crate) fn follow_udp(plan: &str) -> String {
    follow(plan) + "follow_udp = true\n"
}

/// The same over IPv6.
pub(crate) fn ipv6(plan: &str) -> String {
    plan.replace("10.100.0.0/16", "fd00:c::/64")
        .replace("10.10.0.0/24", "fd00:5::/64")
        .replace("10.100.0.", "fd00:c::")
        .replace("10.10.0.", "fd00:5::")
}

/// Runs iproute2 or another tool in the calling thread's namespace.
pub(crate) fn must(line: &str) -> String {
    let mut words = line.split(' ');
    let program = words.next().expect("a program");
    let done = Command::new(program).args(words).output().expect("installed");
    assert!(done.status.success(), "{line}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).expect("text")
}

/// Puts the calling thread into a namespace of its own that is the host `s1`; false without root.
pub(crate) fn enter() -> bool {
    let Ok(_namespace) = sys::namespace::unshare_network() else {
        println!("skipped: only root can create network namespaces");
        return false;
    };
    for line in [
        // Link-local addresses would turn up later.
        "sysctl -qw net.ipv6.conf.default.addr_gen_mode=1",
        "ip link set lo up",
        "ip link add ib0 type veth peer name far",
        "ip link set far up",
        "ip link set ib0 up",
        "ip addr add 10.10.0.21/24 dev ib0",
        "ip addr add fd00:5::21/64 dev ib0 nodad",
    ] {
        must(line);
    }
    settle();
    true
}

/// The host `s1` of a plan, with a folder that goes with the value.
pub(crate) struct Bench {
    pub(crate) plan: Plan,
    pub(crate) options: Options,
    folder: PathBuf,
}

impl Bench {
    pub(crate) fn role(&self) -> Role<'_> {
        self.plan.find("s1").expect("there")
    }

    pub(crate) fn apply(&self) -> Result<Made, ApplyError> {
        apply(&self.plan, self.role(), &self.options, &mut Network::default(), &mut |_step| {})
    }

    pub(crate) fn revert(&self) -> Vec<RevertOutcome> {
        revert(&self.options.state, false, &mut Network::default(), &mut |_step| {})
            .expect("it works")
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

/// Runs a test as the host `s1` of a plan, in a thread that enters a namespace of its own.
pub(crate) fn in_namespace(name: &str, plan: &str, test: impl FnOnce(&Bench) + Send) {
    let folder = std::env::temp_dir().join(format!("gateway-{name}-{}", std::process::id()));
    let plan = parse_plan("plan", plan).expect("right");
    let body = || {
        if enter() {
            let options = Options::new(&folder.join("state"), 1);
            test(&Bench { plan, options, folder });
        }
    };
    thread::scope(|scope| scope.spawn(body).join()).expect("the test");
}

/// Waits for the routes that the kernel adds by itself, which is after the commands have returned: they would turn
/// up between two dumps.
fn settle() {
    let routes = [
        "fd00:5::/64 dev ib0 ",
        "local fd00:5::21 dev ib0 ",
        "multicast ff00::/8 dev ib0 ",
        "multicast ff00::/8 dev far ",
    ];
    let began = Instant::now();
    loop {
        let there = must("ip -6 route show table all");
        if routes.iter().all(|route| there.lines().any(|line| line.starts_with(route))) {
            return;
        }
        assert!(began.elapsed() < SETTLED_AFTER, "routes of the kernel are missing: {there}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// How long the kernel may take for its routes.
const SETTLED_AFTER: Duration = Duration::from_secs(20);

/// Things of others: nexthops, a group, routes with everything a route can have, rules, a table of a number near the
/// plan's, settings.
pub(crate) fn furnish() {
    for line in [
        "ip nexthop add id 5 via 10.10.0.250 dev ib0",
        "ip nexthop add id 6 via 10.10.0.251 dev ib0 protocol bird",
        "ip nexthop add id 7 group 5/6,3",
        "ip nexthop add id 8 group 5/6 type resilient buckets 8 idle_timer 60",
        "ip route add 192.0.2.0/24 nhid 7 proto static",
        "ip route add 198.51.100.0/24 nhid 8 proto bird metric 20",
        "ip route add 203.0.113.0/24 proto static mtu lock 1400 initcwnd 20 nexthop via 10.10.0.250 dev ib0 \
         weight 3 nexthop via 10.10.0.251 dev ib0 weight 1",
        "ip route add 10.100.7.0/24 via 10.10.0.250 dev ib0 proto static src 10.10.0.21 realm 7",
        "ip route add default via 10.10.0.254 dev ib0 table 100 proto static",
        "ip route add blackhole 10.66.0.0/16 metric 99",
        "ip rule add from 10.10.0.21 table 100 pref 5000",
        "ip rule add fwmark 0x7/0xff table 100 pref 5001 protocol static",
        "ip -6 route add fd00:99::/64 via fd00:5::250 dev ib0 proto static metric 50",
        "ip -6 rule add from fd00:5::21 table 100 pref 5000",
        "sysctl -qw net.ipv4.fib_multipath_hash_policy=2",
        "sysctl -qw net.ipv4.fib_multipath_hash_seed=99",
        "sysctl -qw net.ipv4.tcp_mtu_probing=0",
    ] {
        must(line);
    }
    let mut socket = NetlinkSocket::open_filters().expect("nf_tables");
    for family in [Family::V4, Family::V6] {
        let theirs = theirs(family);
        socket.set_filter_table(family, &theirs.name, Some(&theirs)).expect("their table");
    }
}

/// A packet filter table of others, with a name near the plan's.
fn theirs(family: Family) -> FilterTable {
    let hook = FilterHook {
        kind: "filter".to_owned(),
        number: FilterHook::BEFORE_ROUTING,
        priority: -150,
        policy: FilterHook::ACCEPT,
    };
    let mark =
        vec![Expression::Load(7_u32.to_ne_bytes().to_vec()), Expression::SetMeta(MetaKey::Mark)];
    let chain = FilterChain {
        name: "follow".to_owned(),
        hook: Some(hook),
        rules: vec![FilterRule::with_comment(mark, "theirs")],
        other: Vec::new(),
    };
    FilterTable {
        family,
        name: "clearstream-78".to_owned(),
        chains: vec![chain],
        maps: Vec::new(),
        other: Vec::new(),
    }
}

/// All packet filter tables of both families.
pub(crate) fn filters() -> String {
    let mut socket = NetlinkSocket::open_filters().expect("nf_tables");
    let mut tables = [Family::V4, Family::V6]
        .map(|family| socket.filter_tables(family, |_name| true).expect("a list"));
    tables.iter_mut().for_each(|tables| tables.sort_by(|one, other| one.name.cmp(&other.name)));
    format!("{tables:#?}\n")
}

/// Everything there is, as iproute2 shows it, and the settings that the plan names.
pub(crate) fn dump() -> String {
    let lists = [
        "ip -d rule",
        "ip -d -6 rule",
        "ip -d route show table all",
        "ip -d -6 route show table all",
        "ip -d nexthop",
        "sysctl net.ipv4.fib_multipath_hash_policy net.ipv6.fib_multipath_hash_policy \
         net.ipv4.fib_multipath_hash_seed net.ipv4.tcp_mtu_probing net.ipv4.ip_forward",
        "sysctl net.ipv4.tcp_fwmark_accept net.ipv4.fwmark_reflect net.ipv6.fwmark_reflect",
        "sysctl -a -r net.ipv[46].conf.*(redirects|forwarding|rp_filter|linkdown|arp_|src_valid)",
    ];
    lists.map(must).join("---\n") + &filters()
}

/// Compares two dumps and shows only the lines that differ.
#[track_caller]
pub(crate) fn assert_same(after: &str, before: &str, when: &str) {
    let only = |one: &str, other: &str| {
        let others: Vec<&str> = other.lines().collect();
        let lines = one.lines().filter(|line| !others.contains(line));
        lines.map(str::to_owned).collect::<Vec<_>>().join("\n")
    };
    let (gone, new) = (only(before, after), only(after, before));
    assert!(after == before, "{when}\ngone:\n{gone}\nnew:\n{new}");
}
