//! What a failure changes on a host, as found before; runs in the host's network namespace.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sys::SyscallError;
use sys::interface::{LinkSettings, RouteSocket};

use super::FailureKind;
use crate::LabError;

/// Bit of a hardware address that says that somebody made it up (IEEE 802).
const LOCALLY_ADMINISTERED: u8 = 2;
const IPV4: &str = "/proc/sys/net/ipv4";
const IPV6_CONF: &str = "/proc/sys/net/ipv6/conf";

/// One thing that is changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Change {
    /// A kernel setting.
    Setting {
        /// File below `/proc/sys`.
        path: String,
        /// Former value.
        was: String,
        /// What is written; absent where the kernel changes it along with another one.
        becomes: Option<String>,
    },
    /// An interface takes and sends nothing: it has another hardware address than others know, and no ARP. Its own
    /// packets go to that address, which nobody has. Works on every Ethernet device, without a privilege beyond the
    /// namespace, and the carrier stays.
    Deaf {
        /// Name of the interface.
        interface: String,
        /// Former hardware address.
        was: [u8; 6],
    },
    /// An interface has no carrier.
    Carrier {
        /// Name of the interface.
        interface: String,
    },
}

/// What a failure changes here.
pub(super) fn needed(
    host: &str,
    kind: FailureKind,
    interfaces: &[String],
) -> Result<Vec<Change>, LabError> {
    let refused = |why: String| LabError::Port { host: host.to_owned(), why };
    if kind == FailureKind::Forward {
        let changes = settings()?;
        let forwards = |change: &Change| matches!(change, Change::Setting { was, becomes: Some(to), .. } if was != to);
        if !changes.iter().any(forwards) {
            return Err(refused("it already forwards nothing".to_owned()));
        }
        return Ok(changes);
    }
    let mut socket = RouteSocket::open()?;
    let mut changes = Vec::new();
    for name in interfaces {
        let link = socket.link(name)?;
        match <[u8; 6]>::try_from(&link.hardware_address[..]) {
            Ok(was) if link.has_arp() => {
                changes.push(Change::Deaf { interface: name.clone(), was });
            }
            _ => return Err(refused(format!("{name} is not an Ethernet device with ARP"))),
        }
        if kind == FailureKind::Carrier {
            if !link.has_carrier() {
                return Err(refused(format!("{name} already has no carrier")));
            }
            // A TAP device goes on receiving without one: it is deaf as well.
            changes.push(Change::Carrier { interface: name.clone() });
        }
    }
    Ok(changes)
}

/// The settings that make it forward, and those that the kernel changes when they are written.
fn settings() -> Result<Vec<Change>, LabError> {
    let mut changes = Vec::new();
    let mut add = |path: String, becomes: Option<&str>| {
        let was = fs::read_to_string(&path).map_err(LabError::state("read", &path))?;
        let becomes = becomes.map(str::to_owned);
        changes.push(Change::Setting { path, was: was.trim_end().to_owned(), becomes });
        Ok::<(), LabError>(())
    };
    add(format!("{IPV4}/ip_forward"), Some("0"))?;
    // The kernel turns it over; what fails is forwarding alone.
    let redirects = format!("{IPV4}/conf/all/accept_redirects");
    let was = fs::read_to_string(&redirects).map_err(LabError::state("read", &redirects))?;
    add(redirects, Some(was.trim_end()))?;
    for name in scopes(&format!("{IPV4}/conf"))? {
        add(format!("{IPV4}/conf/{name}/forwarding"), None)?;
    }
    if Path::new(IPV6_CONF).is_dir() {
        add(format!("{IPV6_CONF}/all/forwarding"), Some("0"))?;
        for name in scopes(IPV6_CONF)? {
            add(format!("{IPV6_CONF}/{name}/forwarding"), None)?;
        }
    }
    Ok(changes)
}

/// Interfaces, and what holds for new ones.
fn scopes(folder: &str) -> Result<Vec<String>, LabError> {
    let entries = fs::read_dir(folder).map_err(LabError::state("read", folder))?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| name != "all").collect();
    names.sort();
    Ok(names)
}

/// Makes the changes, in their order.
pub(super) fn make(changes: &[Change]) -> Result<(), LabError> {
    let mut socket = RouteSocket::open()?;
    for change in changes {
        match change {
            Change::Setting { path, becomes: Some(value), .. } => write(path, value)?,
            Change::Setting { becomes: None, .. } => {}
            Change::Deaf { interface, was } => {
                let mut other = *was;
                other[0] ^= LOCALLY_ADMINISTERED;
                let settings = LinkSettings {
                    hardware_address: Some(other),
                    arp: Some(false),
                    ..LinkSettings::default()
                };
                socket.set_link(interface, settings)?;
            }
            Change::Carrier { interface } => set_carrier(&mut socket, interface, false)?,
        }
    }
    Ok(())
}

/// Puts back how everything was; what has not been changed is left as it is.
pub(super) fn take_back(changes: &[Change]) -> Result<(), LabError> {
    let mut socket = RouteSocket::open()?;
    for change in changes {
        match change {
            Change::Setting { path, was, .. } => write(path, was)?,
            Change::Deaf { interface, was } => {
                let settings = LinkSettings {
                    hardware_address: Some(*was),
                    arp: Some(true),
                    ..LinkSettings::default()
                };
                socket.set_link(interface, settings)?;
            }
            Change::Carrier { interface } => set_carrier(&mut socket, interface, true)?,
        }
    }
    Ok(())
}

fn set_carrier(socket: &mut RouteSocket, name: &str, carrier: bool) -> Result<(), LabError> {
    let settings = LinkSettings { carrier: Some(carrier), ..LinkSettings::default() };
    socket.set_link(name, settings).map_err(|error| match error.source.raw_os_error() {
        Some(UNSUPPORTED) => {
            let what = format!("{name} (the carrier of a veth pair cannot be removed; use `port`)");
            SyscallError::new(error.call, what, error.source).into()
        }
        _ => LabError::from(error),
    })?;
    // The kernel stops and starts the queues a little later.
    let began = Instant::now();
    while (socket.link(name)?.flags & IFF_RUNNING != 0) != carrier && began.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// `linux/if.h`: operational.
const IFF_RUNNING: u32 = 0x40;
/// Longest that the kernel may take to notice a carrier: it looks once a second.
const PATIENCE: Duration = Duration::from_secs(3);

/// `EOPNOTSUPP`.
const UNSUPPORTED: i32 = rustix::io::Errno::OPNOTSUPP.raw_os_error();

fn write(path: &str, value: &str) -> Result<(), LabError> {
    // Whose setting is meant depends on the thread that opens the file. What already holds is not written: the kernel
    // would do more than that.
    if fs::read_to_string(path).is_ok_and(|now| now.trim_end() == value) {
        return Ok(());
    }
    fs::write(path, value).map_err(LabError::state("write", path))
}
