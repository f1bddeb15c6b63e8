//! A host, three gateways and a far host, each in a network namespace, joined by two bridges in a sixth one.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) const GATEWAYS: usize = 3;

/// Where a command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Both bridges: `c` towards the host, `s` towards the far host.
    Bridges,
    /// `hsn0`, 10.100.0.1/16 and fd00:100::1/64.
    Host,
    /// `hsn0` 10.100.0.91 and up, `ib0` 10.10.0.11 and up.
    Gateway(usize),
    /// `ib0`, 10.10.0.21/24 and fd00:10::21/64.
    Far,
}

/// One rig at a time: what is judged is time, and several would take the cores from each other.
static ONE: Mutex<()> = Mutex::new(());

/// The namespaces; they end with it.
pub(crate) struct Rig {
    namespaces: Vec<OwnedFd>,
    _turn: MutexGuard<'static, ()>,
}

impl Rig {
    /// `None` without root.
    pub(crate) fn up() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: needs root");
            return None;
        }
        let make = || {
            let made = std::thread::spawn(|| sys::namespace::unshare_network().unwrap());
            made.join().unwrap()
        };
        let turn = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let namespaces = (0..3 + GATEWAYS).map(|_| make()).collect();
        let rig = Self { namespaces, _turn: turn };
        let everywhere = (0..GATEWAYS).map(Place::Gateway);
        for place in [Place::Bridges, Place::Host, Place::Far].into_iter().chain(everywhere) {
            rig.ip(place, "link set lo up");
            // IPv6 would look for another station with its link-local address for a second or two.
            rig.sysctl(place, "ipv6/conf/default/dad_transmits", "0");
        }
        for bridge in ["c", "s"] {
            rig.ip(
                Place::Bridges,
                &format!("link add {bridge} type bridge forward_delay 0 stp_state 0"),
            );
            rig.ip(Place::Bridges, &format!("link set {bridge} mtu 4000 up"));
        }
        rig.join(Place::Host, "hsn0", "c", "ch", "10.100.0.1/16", "fd00:100::1/64");
        rig.join(Place::Far, "ib0", "s", "sf", "10.10.0.21/24", "fd00:10::21/64");
        for index in 0..GATEWAYS {
            let gateway = Place::Gateway(index);
            let (near, far) = (91 + index, 11 + index);
            let (v4, v6) = (format!("10.100.0.{near}/16"), format!("fd00:100::{near}/64"));
            rig.join(gateway, "hsn0", "c", &format!("c{index}"), &v4, &v6);
            let (v4, v6) = (format!("10.10.0.{far}/24"), format!("fd00:10::{far}/64"));
            rig.join(gateway, "ib0", "s", &format!("s{index}"), &v4, &v6);
            rig.sysctl(gateway, "ipv4/ip_forward", "1");
            rig.sysctl(gateway, "ipv6/conf/all/forwarding", "1");
            rig.sysctl(gateway, "ipv4/conf/all/send_redirects", "0");
        }
        Some(rig)
    }

    fn join(&self, place: Place, device: &str, bridge: &str, port: &str, v4: &str, v6: &str) {
        let other =
            format!("/proc/{}/fd/{}", std::process::id(), self.descriptor(place).as_raw_fd());
        self.ip(
            Place::Bridges,
            &format!(
                "link add {port} mtu 4000 type veth peer name {device} mtu 4000 netns {other}"
            ),
        );
        self.ip(Place::Bridges, &format!("link set {port} master {bridge} up"));
        self.ip(place, &format!("addr add {v4} dev {device}"));
        self.ip(place, &format!("addr add {v6} dev {device} nodad"));
        self.ip(place, &format!("link set {device} up"));
    }

    fn descriptor(&self, place: Place) -> &OwnedFd {
        match place {
            Place::Bridges => &self.namespaces[0],
            Place::Host => &self.namespaces[1],
            Place::Far => &self.namespaces[2],
            Place::Gateway(index) => &self.namespaces[3 + index],
        }
    }

    /// Runs in a thread of its own in the namespace.
    pub(crate) fn inside<T: Send>(&self, place: Place, body: impl FnOnce() -> T + Send) -> T {
        let namespace = self.descriptor(place);
        let run = || {
            sys::namespace::enter_network(namespace.as_fd()).unwrap();
            body()
        };
        std::thread::scope(|scope| match scope.spawn(run).join() {
            Ok(value) => value,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    }

    /// A descriptor to enter the namespace by.
    pub(crate) fn door(&self, place: Place) -> OwnedFd {
        self.descriptor(place).try_clone().unwrap()
    }

    /// Runs `ip` there.
    pub(crate) fn ip(&self, place: Place, arguments: &str) -> String {
        self.run(place, "ip", arguments)
    }

    pub(crate) fn run(&self, place: Place, program: &str, arguments: &str) -> String {
        let mut command = Command::new(program);
        command.args(arguments.split(' '));
        let output = self.inside(place, || command.output().unwrap());
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{place:?}: {program} {arguments}: {complaint}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Starts a daemon there, in real time as the watcher runs: it must send every 50 ms on a busy machine. It
    /// ends with what is returned.
    pub(crate) fn daemon(&self, place: Place, program: &str, arguments: &[&str]) -> Daemon {
        let mut command = Command::new("chrt");
        command
            .args(["-f", "10", program])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Daemon(self.inside(place, || command.spawn().unwrap()))
    }

    pub(crate) fn sysctl(&self, place: Place, name: &str, value: &str) {
        // Which namespace's setting is meant depends on the thread that opens the file.
        self.inside(place, || fs::write(format!("/proc/sys/net/{name}"), value).unwrap());
    }
}

/// A process that ends with its owner.
pub(crate) struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// How a gateway fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It forwards no more; it still answers ARP.
    Forwarding,
    /// It takes and sends nothing; its links stay up.
    Hang,
    /// Its port towards the far host has no carrier.
    FarPort,
    /// The far side's port loses frames of more than 1500 bytes.
    MtuHole,
}

impl Rig {
    pub(crate) fn fail(&self, gateway: usize, failure: Failure) {
        self.set(gateway, failure, true);
    }

    pub(crate) fn repair(&self, gateway: usize, failure: Failure) {
        self.set(gateway, failure, false);
    }

    fn set(&self, gateway: usize, failure: Failure, is_failed: bool) {
        let pick =
            |failed: &'static str, whole: &'static str| if is_failed { failed } else { whole };
        match failure {
            Failure::Forwarding => {
                let place = Place::Gateway(gateway);
                self.sysctl(place, "ipv4/ip_forward", pick("0", "1"));
                self.sysctl(place, "ipv6/conf/all/forwarding", pick("0", "1"));
            }
            Failure::Hang => {
                // Port states: disabled and forwarding.
                let state = pick("0", "3");
                for port in [format!("c{gateway}"), format!("s{gateway}")] {
                    self.run(
                        Place::Bridges,
                        "bridge",
                        &format!("link set dev {port} state {state}"),
                    );
                }
            }
            Failure::FarPort => {
                self.ip(Place::Bridges, &format!("link set s{gateway} {}", pick("down", "up")));
            }
            Failure::MtuHole => {
                self.ip(
                    Place::Bridges,
                    &format!("link set s{gateway} mtu {}", pick("1500", "4000")),
                );
            }
        }
    }
}
