//! What a veth pair can be told: queues, offloads, and who takes its packets in.
//!
//! A veth end hands packets to its peer on the sender's core. With GRO on it polls them through
//! NAPI, and NAPI may run in a kernel thread, which may be pinned: the nearest thing to a network
//! card's interrupt that a machine without one has. Kernel threads live in the first process-id
//! namespace, which the anchor has left, so the anchor finds them and `lab up` pins them.

use std::fs;
use std::thread;

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use serde::{Deserialize, Serialize};
use sys::SyscallError;
use sys::ethtool::Device;
use sys::ethtool_set::set_feature;

use crate::plan::{EndPlan, VethPlan};

/// The TCP segmentation offloads, as the kernel names them.
const SEGMENTATION: [&str; 4] = [
    "tx-tcp-segmentation",
    "tx-tcp6-segmentation",
    "tx-tcp-ecn-segmentation",
    "tx-tcp-mangleid-segmentation",
];

/// A kernel thread that is to run on one core.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinnedThread {
    /// The host whose interface it polls.
    pub host: String,
    /// `napi/eth0-8193`.
    pub name: String,
    /// Its process id in the first process-id namespace.
    pub pid: i32,
    /// Where it is to run.
    pub core: u32,
}

/// Sets up one end; the calling thread is in its namespace and the interface is up. Returns the
/// threads that are to be pinned; what could not be had goes into `notes`.
pub(crate) fn settle(
    plan: &VethPlan,
    which: usize,
    end: &EndPlan,
    notes: &mut Vec<String>,
) -> Vec<PinnedThread> {
    let mut note = |what: &str, why: &dyn std::fmt::Display| {
        notes.push(format!("{}: {} {what}: {why}", end.host, end.interface));
    };
    if let Err(error) = set_features(plan, &end.interface) {
        note(&error.object, &error.source);
    }
    if !plan.napi_threaded {
        return Vec::new();
    }
    if let Err(error) = thread_napi(&end.interface) {
        note("has no threaded NAPI", &format!("{error}: {}", error.source));
        return Vec::new();
    }
    let Some(core) = plan.napi_cores[which] else { return Vec::new() };
    let machine = topology::machine();
    let threads = machine.nic(&end.interface).map(|nic| nic.napi_threads.as_slice());
    let pinned: Vec<PinnedThread> = threads
        .unwrap_or_default()
        .iter()
        .filter_map(|thread| {
            let pid = i32::try_from(thread.pid).ok()?;
            Some(PinnedThread { host: end.host.clone(), name: thread.name.clone(), pid, core })
        })
        .collect();
    if pinned.is_empty() {
        note("napi_core", &"its kernel threads cannot be seen from here");
    }
    pinned
}

fn set_features(plan: &VethPlan, interface: &str) -> Result<(), SyscallError> {
    let device = Device::open(interface)?;
    if let Some(gro) = plan.gro {
        set_feature(&device, "rx-gro", gro)?;
    }
    for name in SEGMENTATION {
        match plan.tso.map(|on| set_feature(&device, name, on)) {
            None | Some(Ok(())) => {}
            Some(Err(error)) => return Err(error),
        }
    }
    Ok(())
}

/// Has the interface polled by kernel threads. Only a view of `/sys` that belongs to the network
/// namespace knows it; a thread of its own gets one, which goes with it.
fn thread_napi(interface: &str) -> Result<(), SyscallError> {
    let path = format!("/sys/class/net/{interface}/threaded");
    let body = move || -> Result<(), SyscallError> {
        sys::namespace::unshare_mounts_and_host_name()?;
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        mount_change("/", private).map_err(|error| SyscallError::new("mount", "/", error))?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        mount("sysfs", "/sys", "sysfs", flags, None)
            .map_err(|error| SyscallError::new("mount", "sysfs", error))?;
        fs::write(&path, "1").map_err(|error| SyscallError::new("write", path, error))
    };
    let refused = |error| SyscallError::new("clone", "thread", error);
    let running =
        thread::Builder::new().name("threaded".to_owned()).spawn(body).map_err(refused)?;
    running.join().unwrap_or_else(|_panicked| {
        Err(SyscallError::new("clone", "thread", std::io::ErrorKind::Other))
    })
}

/// Pins what the anchor found; run by `lab up`, outside. What could not be done goes into `notes`.
pub(crate) fn pin(threads: &[PinnedThread], notes: &mut Vec<String>) {
    for thread in threads {
        let PinnedThread { host, name, pid, core } = thread;
        if let Err(error) = sys::thread::pin_thread(*pid, &[*core]) {
            notes.push(format!("{host}: {name} on core {core}: {}", error.source));
        }
    }
}
