//! What `route-plan` emits for the systems that set hosts up, read by each system's own program in namespaces of the
//! test: afterwards the host has what the plan wants, but for what the emission says is missing. Needs root and
//! the system.

#[path = "support/bed.rs"]
mod bed;

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use bed::{PLAN, follow, ipv6, must};
use gateway::{ApplyError, Network, Options, Steered, apply, check, read_host, revert};
use netlink::{Nexthop, Route, Rule, Target};
use route_plan::{
    Change, Difference, Found, HostState, PACKAGED_PROGRAM, Plan, Role, System, difference, emit,
    parse_plan, wanted,
};

const NETWORKD: &str = "/lib/systemd/systemd-networkd";
/// `RTPROT_STATIC`, which networkd gives nexthops and NetworkManager everything.
const STATIC: u8 = 4;
const PATIENCE: Duration = Duration::from_secs(20);

/// Files below `/run`, which is the daemon's own: it sees nothing of this machine's configuration there.
const START_NETWORKD: &str = "mount -t tmpfs t /run \
    && mkdir -p /run/systemd/netif/links /run/systemd/netif/leases /run/systemd/netif/lldp /run/dbus \
    && chown -R systemd-network:systemd-network /run/systemd/netif \
    && cp -r etc/systemd/. /run/systemd/ && { [ ! -d run ] || cp -r run/systemd/network /run/systemd/; } \
    && mount -o remount,ro,bind /sys && { /lib/systemd/systemd-networkd & wait; }";

/// The host's interface as somebody else configures it; `go` and `done` are files by which the test and this take turns.
const RECONFIGURE: &str = "mount -t tmpfs t /run \
    && mkdir -p /run/systemd/netif/links /run/systemd/netif/leases /run/systemd/netif/lldp /run/dbus /run/systemd/network \
    && chown -R systemd-network:systemd-network /run/systemd/netif && mount -o remount,ro,bind /sys \
    && printf '[Match]\\nName=ib0\\n[Network]\\nAddress=10.10.0.21/24\\n' > /run/systemd/network/10.network \
    && dbus-daemon --config-file=bus.conf --nopidfile --fork && { /lib/systemd/systemd-networkd & } \
    && until [ -e go ]; do sleep 0.05; done \
    && printf '[Route]\\nDestination=192.0.2.0/24\\nGateway=10.10.0.250\\n' >> /run/systemd/network/10.network \
    && networkctl reload && networkctl reconfigure ib0 && touch done && wait";

/// It reads no file of this machine's NetworkManager, writes no `resolv.conf`, reaches no bus of this machine, and no device
/// but the host's is its own. The profile `other` for the same interface is older and has another address.
const START_NETWORK_MANAGER: &str = "mount -t tmpfs t /run && mkdir -p /run/dbus /run/NetworkManager /run/none \
    && mount -t tmpfs t /var/lib && mkdir -p /var/lib/NetworkManager /var/lib/dbus \
    && cp -r etc/NetworkManager/system-connections /run/profiles \
    && printf '[connection]\\nid=other\\ntype=ethernet\\ninterface-name=ib0\\n[ipv4]\\nmethod=manual\\n\
        address1=192.0.2.1/24\\n' > /run/profiles/other.nmconnection && chmod 600 /run/profiles/other.nmconnection \
    && printf '[main]\\nplugins=keyfile\\nno-auto-default=*\\ndns=none\\nrc-manager=unmanaged\\nhostname-mode=none\\n\
        [keyfile]\\npath=/run/profiles\\n' > /run/nm.conf \
    && mount -o remount,ro,bind /sys && dbus-daemon --config-file=bus.conf --nopidfile --fork \
    && { NetworkManager --no-daemon --log-level=WARN --config=/run/nm.conf --config-dir=/run/none \
        --system-config-dir=/run/none --intern-config=/run/intern.conf --state-file=/run/state & wait; }";

/// `bus.conf`: a system bus on which whoever is there may own and send anything.
const BUS: &str = r#"<busconfig><type>system</type><listen>unix:path=/run/dbus/system_bus_socket</listen>
<auth>EXTERNAL</auth><policy context="default"><allow user="*"/><allow own="*"/>
<allow send_destination="*"/><allow send_type="signal"/><allow eavesdrop="true"/></policy></busconfig>"#;

/// The machine's `/etc` is seen, and what is written to it stays in this namespace.
const PLAY: &str = "mount -t tmpfs t /mnt && mkdir /mnt/upper /mnt/work \
    && mount -t overlay o -o lowerdir=/etc,upperdir=/mnt/upper,workdir=/mnt/work /etc \
    && HOME=/mnt ansible-playbook -i localhost, -c local --tags files clearstream-gateway.yml \
    && cp -r /mnt/upper installed";

/// A host `s1` without addresses, and a folder with what was emitted for it.
struct Host {
    plan: Plan,
    state: HostState,
    folder: PathBuf,
}

impl Host {
    /// Objects of the plan with the protocol that a system gives everything taken for the plan's.
    fn found(&self) -> Found {
        let keys = self.state.sysctls.iter().map(|(key, _)| key);
        let found = read_host(self.plan.family, keys).expect("read");
        let protocol = self.plan.routing.protocol;
        let own = |one: u8| if one == STATIC { protocol } else { one };
        let nexthops = found.nexthops.into_iter();
        let routes = found.routes.into_iter();
        let rules = found.rules.into_iter();
        Found {
            nexthops: nexthops.map(|one| Nexthop { protocol: own(one.protocol), ..one }).collect(),
            routes: routes.map(|one| Route { protocol: own(one.protocol), ..one }).collect(),
            rules: rules.map(|one| Rule { protocol: own(one.protocol), ..one }).collect(),
            ..found
        }
    }

    fn address(&self) -> std::net::IpAddr {
        match self.plan.find("s1").expect("there") {
            Role::Host(host) => host.port.address,
            Role::Gateway(..) => unreachable!("s1 is a server"),
        }
    }

    /// Waits until the host is what the plan wants, or this part of it.
    #[track_caller]
    fn becomes(&self, state: &HostState) {
        let began = Instant::now();
        loop {
            let difference = difference(&self.plan, state, &self.found());
            if objects(&difference).is_empty() && difference.conflicts.is_empty() {
                return;
            }
            assert!(
                began.elapsed() < PATIENCE,
                "{:#?} {:#?}",
                objects(&difference),
                difference.conflicts
            );
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// A program in the folder, with mounts and processes of its own; it goes with the value. The shell stays the first of
    /// these processes, with which all others end: a daemon that gives up root would outlive its parent.
    fn start(&self, script: &str) -> Running {
        self.start_of(script, None)
    }

    /// The same with the programs and libraries of an unpacked package before the machine's.
    fn start_of(&self, script: &str, unpacked: Option<&Path>) -> Running {
        let mut command = Command::new("setpriv");
        if let Some(root) = unpacked {
            let below =
                |folders: &[&str]| folders.iter().map(|one| root.join(one)).collect::<Vec<_>>();
            let path = std::env::var_os("PATH").unwrap_or_default();
            let programs = std::env::split_paths(&path).chain(below(&["usr/sbin", "usr/bin"]));
            command.env("PATH", std::env::join_paths(programs).expect("no colons"));
            let triple = format!("{}-linux-gnu", std::env::consts::ARCH);
            let libraries = below(&[&format!("usr/lib/{triple}"), &format!("lib/{triple}")]);
            command.env("LD_LIBRARY_PATH", std::env::join_paths(libraries).expect("no colons"));
        }
        command.args(["--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork"]);
        command.args(["--kill-child", "--mount-proc", "sh", "-c", script]);
        command.current_dir(&self.folder).env("container", "lxc");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Running(command.spawn().expect("util-linux"))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

struct Running(Child);

impl Running {
    fn succeeds(mut self) -> bool {
        self.0.wait().expect("ours").success()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// What differs besides settings, which `sysctl.d` has.
fn objects(difference: &Difference) -> Vec<&Change> {
    difference.changes.iter().filter(|change| !matches!(change, Change::Set { .. })).collect()
}

/// Whether a program is missing, which is said.
fn is_missing(program: &str, name: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let is_there = |folder: PathBuf| folder.join(program).exists();
    let is_missing = !std::env::split_paths(&folders).chain(more).any(is_there);
    if is_missing {
        println!("skipped: needs {name}");
    }
    is_missing
}

/// Whether there is no `dbus-daemon`, neither installed nor unpacked with NetworkManager, which is said.
fn lacks_bus(unpacked: Option<&Path>) -> bool {
    unpacked.is_none_or(|root| !root.join("usr/bin/dbus-daemon").exists())
        && is_missing("dbus-daemon", "dbus")
}

/// The package that tools/prepare has unpacked beside what cargo builds, without installing it.
fn unpacked(name: &str) -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let folders = program.ancestors().map(|folder| folder.join("peers").join(name));
    folders.into_iter().find(|folder| folder.is_dir())
}

fn in_namespace(name: &str, plan: &str, system: System, test: impl FnOnce(&Host) + Send) {
    let folder = std::env::temp_dir().join(format!("gateway-{name}-{}", std::process::id()));
    let plan = parse_plan("plan", plan).expect("right");
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
        let role = plan.find("s1").expect("there");
        for (path, text) in emit(&plan, role, system, PACKAGED_PROGRAM).expect("emitted").files {
            let path = folder.join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(&path, text).expect("written");
            // Of keyfiles and YAML only their owner may read; networkd reads its own without privilege.
            let is_private = ["nmconnection", "yaml"]
                .iter()
                .any(|ending| path.extension() == Some(OsStr::new(ending)));
            let mode = if is_private { 0o600 } else { 0o644 };
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&path, permissions).expect("ours");
        }
        let interfaces = read_host(plan.family, []).expect("read").interfaces;
        let state = wanted(&plan, role, &interfaces, &[]).expect("wanted");
        // The emission says that there are no marks.
        let state = HostState { steering: Vec::new(), ..state };
        test(&Host { plan, state, folder });
    };
    thread::scope(|scope| scope.spawn(body).join()).expect("the test");
}

/// `apply` counts as its own what another system has made by the plan: a watcher moves it, and after a revert it is as
/// that system made it.
fn is_taken_over_and_given_back(host: &Host) {
    let list = || ["ip -d nexthop", "ip -d route show table all"].map(must).join("---\n");
    let before = list();
    let role = host.plan.find("s1").expect("there");
    let state = host.folder.join("state");
    let options = Options::new(&state, 1);
    apply(&host.plan, role, &options, &mut Network::default(), &mut |_step| {}).expect("applied");
    let mut watcher = Steered::open(host.plan.clone(), "s1", &state).expect("it is applied");
    watcher.lead_over(&[1, 2]).expect("moved");
    let ways = (1..=4).map(|last| must(&format!("ip route get 10.100.0.{last}")));
    let ways: String = ways.collect();
    assert!(!ways.contains("via 10.10.0.11 "), "{ways}");
    assert!(!list().contains("via 10.10.0.11 dev ib0 weight"), "{}", list());
    let outcomes = revert(&state, false, &mut Network::default(), &mut |_step| {}).expect("works");
    let left: Vec<_> = outcomes.iter().filter(|one| !one.result.is_settled()).collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(list(), before);
}

#[test]
fn networkd_gives_a_host_what_the_plan_wants_root() {
    if !Path::new(NETWORKD).exists() {
        println!("skipped: needs systemd-networkd");
        return;
    }
    for plan in [PLAN.to_owned(), ipv6(PLAN), follow(PLAN)] {
        in_namespace("networkd", &plan, System::Networkd, |host| {
            let _daemon = host.start(START_NETWORKD);
            host.becomes(&host.state);
        });
    }
}

#[test]
fn netplan_gives_a_host_what_the_plan_wants_root() {
    if is_missing("netplan", "netplan") {
        return;
    }
    in_namespace("netplan", &follow(PLAN), System::Netplan, |host| {
        must(&format!("netplan generate --root-dir {}", host.folder.display()));
        let _daemon = host.start(START_NETWORKD);
        host.becomes(&host.state);
    });
}

/// What NetworkManager cannot say is as the emission tells it: the nexthops are not there, and `apply` refuses to go on
/// from what NetworkManager has made.
#[test]
fn network_manager_gives_a_host_all_but_the_nexthops_root() {
    let unpacked = unpacked("network-manager");
    if unpacked.is_none() && is_missing("NetworkManager", "NetworkManager") {
        return;
    }
    if lacks_bus(unpacked.as_deref()) {
        return;
    }
    let uneven = follow(PLAN).replace("g[1-3]", "g[1-2]").replace("[91-93]", "[91-92]");
    let uneven = uneven.replace("[11-13]", "[11-12]").replace(
        "[hosts.c]",
        "weight = 5\n[[gateway]]\nnames = \"g3\"\naddresses = { compute = \"10.100.0.93\", storage = \"10.10.0.13\" }\n\
         interfaces = { compute = \"hsn0\", storage = \"ib0\" }\nweight = 2\n\
         hardware_addresses = { storage = \"02:00:00:00:00:13\" }\n[hosts.c]",
    );
    let hash = uneven.replace("\"pairs\"", "\"hash\"");
    for plan in [follow(PLAN), ipv6(&follow(PLAN)), uneven, hash] {
        in_namespace("manager", &plan, System::NetworkManager, |host| {
            std::fs::write(host.folder.join("bus.conf"), BUS).expect("written");
            let _daemon = host.start_of(START_NETWORK_MANAGER, unpacked.as_deref());
            let routes = host.state.routes.iter().cloned();
            let plain = routes.filter(|route| matches!(route.target, Target::Paths(_))).collect();
            host.becomes(&HostState { nexthops: Vec::new(), routes: plain, ..host.state.clone() });
            let addresses = must("ip -o addr show dev ib0 scope global");
            assert_eq!(addresses.lines().count(), 1, "{addresses}");
            assert!(addresses.contains(&format!(" {}/", host.address())), "{addresses}");
            let role = host.plan.find("s1").expect("there");
            let options = Options::new(&host.folder.join("state"), 1);
            let refused =
                apply(&host.plan, role, &options, &mut Network::default(), &mut |_step| {});
            assert!(matches!(refused, Err(ApplyError::Conflicts(_))), "{refused:?}");
        });
    }
}

#[test]
fn ifupdown_gives_a_host_what_the_plan_wants_and_takes_it_back_root() {
    if is_missing("ifup", "ifupdown") {
        return;
    }
    let resilient = follow(PLAN).replace("\"pairs\"", "\"resilient\"");
    for plan in [PLAN.to_owned(), ipv6(PLAN), resilient] {
        in_namespace("ifupdown", &plan, System::Ifupdown, |host| {
            let lists = || ["ip rule", "ip -6 rule", "ip nexthop"].map(must);
            let before = lists();
            let folder = host.folder.display();
            let options = format!(
                "--no-scripts -i {folder}/etc/network/interfaces.d/clearstream-gateway --state-dir {folder} ib0"
            );
            must(&format!("ifup {options}"));
            host.becomes(&host.state);
            if plan == PLAN {
                is_taken_over_and_given_back(host);
            }
            must(&format!("ifdown {options}"));
            assert_eq!(lists(), before);
            let routes = must("ip route show table all") + &must("ip -6 route show table all");
            assert!(!routes.contains("proto 77"), "{routes}");
        });
    }
}

#[test]
fn ansible_installs_the_plan_and_the_units_root() {
    if is_missing("ansible-playbook", "ansible") {
        return;
    }
    in_namespace("ansible", PLAN, System::Ansible, |host| {
        let (plan, key) = (host.folder.join("small.toml"), host.folder.join("small.key"));
        std::fs::write(&plan, PLAN).expect("written");
        std::fs::write(&key, "00\n").expect("written");
        assert!(host.start(PLAY).succeeds());
        let installed = host.folder.join("installed");
        let read = |path: &Path| std::fs::read_to_string(path).expect("installed");
        assert_eq!(read(&installed.join("clearstream/gateway/small.toml")), PLAN);
        let key = installed.join("clearstream/gateway/small.key");
        assert_eq!(std::fs::metadata(key).expect("installed").permissions().mode() & 0o777, 0o600);
        for unit in ["clearstream-gateway@.service", "clearstream-gateway-watch@.service"] {
            let unit = Path::new("systemd/system").join(unit);
            assert_eq!(read(&installed.join(&unit)), read(&host.folder.join("etc").join(&unit)));
        }
    });
}

/// networkd, which has only the host's address, is told to read its files again.
#[test]
fn routes_of_the_plan_outlast_networkd_s_reload_root() {
    if !Path::new(NETWORKD).exists() {
        println!("skipped: needs systemd-networkd");
        return;
    }
    let unpacked = unpacked("network-manager");
    if lacks_bus(unpacked.as_deref()) {
        return;
    }
    in_namespace("reload", PLAN, System::Unit, |host| {
        std::fs::write(host.folder.join("bus.conf"), BUS).expect("written");
        let _daemon = host.start_of(RECONFIGURE, unpacked.as_deref());
        waits_for("an address", || must("ip -4 addr show ib0").contains("10.10.0.21/24"));
        let role = host.plan.find("s1").expect("there");
        let options = Options::new(&host.folder.join("state"), 1);
        apply(&host.plan, role, &options, &mut Network::default(), &mut |_step| {})
            .expect("applied");
        let mut watcher = Steered::open(host.plan.clone(), "s1", &options.state).expect("applied");
        std::fs::write(host.folder.join("go"), "").expect("written");
        waits_for("the reload", || host.folder.join("done").exists());
        waits_for("its route", || must("ip route").contains("192.0.2.0/24 "));
        watcher.put_back(&[0, 1, 2]).expect("put back");
        let drifts = check(&host.plan, role, &[]).expect("it can be read");
        assert!(drifts.is_empty(), "{drifts:?}");
    });
}

#[track_caller]
fn waits_for(what: &str, mut is_there: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_there() {
        assert!(began.elapsed() < PATIENCE, "{what} did not come");
        thread::sleep(Duration::from_millis(20));
    }
}

/// What systemd says of the files themselves: unknown keys, missing programs.
#[test]
fn systemd_has_nothing_to_say_of_our_units() {
    if is_missing("systemd-analyze", "systemd") {
        return;
    }
    let plan = parse_plan("plan", PLAN).expect("right");
    let folder = std::env::temp_dir().join(format!("gateway-units-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("made");
    let role = plan.find("s1").expect("there");
    let files = emit(&plan, role, System::Unit, "/bin/true").expect("emitted").files;
    let units: Vec<PathBuf> = files
        .iter()
        .filter(|(path, _)| path.ends_with(".service"))
        .map(|(path, text)| {
            let place = folder.join(Path::new(path).file_name().expect("a name"));
            std::fs::write(&place, text).expect("written");
            place
        })
        .collect();
    assert_eq!(units.len(), 2);
    let done = Command::new("systemd-analyze").args(["verify", "--man=no"]).args(&units).output();
    std::fs::remove_dir_all(&folder).ok();
    let done = done.expect("systemd");
    let said = String::from_utf8_lossy(&done.stderr);
    let ours = said.lines().filter(|line| line.contains("clearstream"));
    let ours: Vec<&str> = ours.collect();
    assert!(ours.is_empty() && done.status.success(), "{said}");
}
