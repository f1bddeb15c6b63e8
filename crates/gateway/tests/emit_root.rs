//! What `route-plan` emits for systemd-networkd, read by networkd itself in a namespace: afterwards the host has what the
//! plan wants, nexthops and groups of pairs included. Needs root and systemd-networkd.

#[path = "support/bed.rs"]
mod bed;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use bed::{PLAN, must};
use gateway::read_host;
use netlink::Nexthop;
use route_plan::{
    Change, Difference, Found, HostState, Plan, System, difference, emit, parse_plan, wanted,
};

const NETWORKD: &str = "/lib/systemd/systemd-networkd";
/// `RTPROT_STATIC`, which networkd gives every nexthop.
const STATIC: u8 = 4;
const PATIENCE: Duration = Duration::from_secs(20);

/// Files below `/run`, which is the daemon's own: it sees nothing of this machine's configuration there.
const START: &str = "mount --make-rprivate / && mount -t tmpfs t /run \
    && mkdir -p /run/systemd/netif/links /run/systemd/netif/leases /run/systemd/netif/lldp /run/dbus \
    && chown -R systemd-network:systemd-network /run/systemd/netif \
    && cp -r \"$FOLDER\"/etc/systemd/. /run/systemd/ && mount -o remount,ro,bind /sys \
    && exec /lib/systemd/systemd-networkd";

/// The daemon; it goes with the value.
struct Daemon(Child);

impl Daemon {
    fn start(folder: &Path) -> Self {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", START]).env("FOLDER", folder);
        command.env("container", "lxc").stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().expect("unshare is part of util-linux"))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// The host with networkd's nexthops taken for the plan's.
fn found(plan: &Plan, state: &HostState) -> Found {
    let found = read_host(plan.family, state.sysctls.iter().map(|(key, _)| key)).expect("read");
    let own = |one: Nexthop| match one.protocol {
        STATIC => Nexthop { protocol: plan.routing.protocol, ..one },
        _other => one,
    };
    let nexthops = found.nexthops.iter().cloned().map(own).collect();
    Found { nexthops, ..found }
}

/// What differs besides settings, which `sysctl.d` has.
fn objects(difference: &Difference) -> Vec<&Change> {
    difference.changes.iter().filter(|change| !matches!(change, Change::Set { .. })).collect()
}

#[test]
fn networkd_gives_a_host_what_the_plan_wants_root() {
    if !Path::new(NETWORKD).exists() {
        println!("skipped: needs systemd-networkd");
        return;
    }
    let folder = std::env::temp_dir().join(format!("gateway-emit-{}", std::process::id()));
    let body = || {
        let Ok(_namespace) = sys::namespace::unshare_network() else {
            println!("skipped: only root can create network namespaces");
            return;
        };
        for line in
            ["ip link set lo up", "ip link add ib0 type veth peer name far", "ip link set far up"]
        {
            must(line);
        }
        let plan = parse_plan("plan", PLAN).expect("right");
        let role = plan.find("s1").expect("there");
        for (path, text) in emit(&plan, role, System::Networkd).expect("emitted").files {
            let path = folder.join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(path, text).expect("written");
        }
        let interfaces = read_host(plan.family, []).expect("read").interfaces;
        let state = wanted(&plan, role, &interfaces, &[]).expect("wanted");
        let daemon = Daemon::start(&folder);
        let began = Instant::now();
        loop {
            let difference = difference(&plan, &state, &found(&plan, &state));
            if objects(&difference).is_empty() && difference.conflicts.is_empty() {
                break;
            }
            assert!(began.elapsed() < PATIENCE, "{:#?}", objects(&difference));
            thread::sleep(Duration::from_millis(50));
        }
        drop(daemon);
    };
    let ended = thread::scope(|scope| scope.spawn(body).join());
    std::fs::remove_dir_all(&folder).ok();
    ended.expect("the test");
}
