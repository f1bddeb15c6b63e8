//! The core that takes the packets off the device: a stage of a transfer, which several limits can slow down.

use results::{CoreUse, KernelThreadUse, NapiThread, Nic, ReceiveQueue};

use crate::numbers::share;
use crate::observed::{HostView, Observed};
use crate::symptoms::names;
use crate::thresholds::{hosts, signs};

/// Confidence, 0 to 1, that this core is the slowest stage, for whatever reason.
pub(super) fn packet_core_binds(seen: &Observed<'_>) -> f64 {
    let host = &seen.receiver;
    let free_sender = 1.0 - hosts::PACKET_SENDER * seen.starved(&seen.sender).unwrap_or(0.0);
    // A reader that never sleeps, on a core of its own, is slower than the core that feeds it.
    let fullness = seen.shown().receiver(names::SOCKET_FULLNESS).unwrap_or(0.0);
    let fed = seen.starved(host).unwrap_or(0.0) * fullness;
    let own_reader = seen.starved(host).unwrap_or(0.0) * same_core(host);
    packet_core_full(seen)
        * seen.unexplained()
        * free_sender
        * (1.0 - hosts::PACKET_READER * fed)
        * (1.0 - hosts::PACKET_OWN_READER * own_reader)
}

/// Confidence, 0 to 1, that this core has no time left.
pub(super) fn packet_core_full(seen: &Observed<'_>) -> f64 {
    let host = &seen.receiver;
    let by_softirq = host
        .softirq_core
        .map_or(0.0, |core| signs::INDIRECT * hosts::SOFTIRQ_BUSY.of(core.softirq));
    let by_thread = match hungry_thread(host) {
        // On one machine `ksoftirqd` threads serve both ends and the path between them.
        Some(thread) if !seen.one_machine || thread.name.starts_with("napi/") => signs::LOCATED,
        Some(_) => hosts::SHARED_THREAD,
        None => 0.0,
    };
    let by_crowd = hosts::PINNED_PACKETS * crowded_packet_core(seen, host);
    // Packets that wait for this core are a queue too, but softirq time alone does not locate that queue.
    by_crowd.max(by_thread).max(by_softirq * (1.0 - hosts::PACKET_QUEUE * seen.queue()))
}

/// Confidence, 0 to 1, that RPS or the affinity of a NAPI thread directs packets to cores that other
/// work fills.
fn crowded_packet_core(seen: &Observed<'_>, host: &HostView<'_>) -> f64 {
    let Some(nic) = nic_of(host) else { return 0.0 };
    let chosen: Vec<u32> = match (pinned_napi(nic), rps_cores(nic)) {
        (Some(thread), _) => thread.allowed_cores.clone(),
        (None, Some(cores)) => cores.to_vec(),
        (None, None) => return 0.0,
    };
    // An affinity to all cores explains nothing.
    if chosen.is_empty() || chosen.len() >= host.cores.len().max(1) {
        return 0.0;
    }
    let idle = chosen.iter().filter_map(|core| host.core_use(*core)).map(|core| core.idle);
    let Some(idle) = idle.reduce(f64::max) else { return 0.0 };
    let elsewhere = idlest(host).and_then(|core| host.core_use(core)).map_or(0.0, |core| core.idle);
    let asleep = 1.0 - seen.starved(host).unwrap_or(0.0) * (1.0 - same_core(host));
    hosts::PACKET_CORE_IDLE.not(idle)
        * asleep
        * if seen.one_machine {
            hosts::ELSEWHERE_SHARED
        } else {
            hosts::ELSEWHERE_IDLE.of(elsewhere).max(hosts::ELSEWHERE_FULL)
        }
}

/// The kernel thread for packet processing that always runs or waits for its core.
pub(super) fn hungry_thread<'a>(host: &HostView<'a>) -> Option<&'a KernelThreadUse> {
    let busy = |thread: &KernelThreadUse| {
        share(thread.run_s + thread.wait_s, host.duration_s).unwrap_or(0.0)
    };
    let threads = host.counters?.kernel_threads.iter();
    threads
        .filter(|thread| busy(thread) > hosts::HUNGRY_THREAD)
        .max_by(|a, b| busy(a).total_cmp(&busy(b)))
}

pub(super) fn nic_of<'a>(host: &HostView<'a>) -> Option<&'a Nic> {
    host.machine()?.nic(&host.interface()?.name)
}

/// The NAPI thread with the narrowest affinity, if any has one.
pub(super) fn pinned_napi(nic: &Nic) -> Option<&NapiThread> {
    let threads = nic.napi_threads.iter().filter(|thread| !thread.allowed_cores.is_empty());
    threads.min_by_key(|thread| thread.allowed_cores.len())
}

/// The queue whose packets RPS distributes to the fewest cores.
pub(super) fn rps_queue(nic: &Nic) -> Option<&ReceiveQueue> {
    let queues = nic.receive_queues.iter().filter(|queue| !queue.rps_cores.is_empty());
    queues.min_by_key(|queue| queue.rps_cores.len())
}

/// The cores that RPS distributes packets to.
pub(super) fn rps_cores(nic: &Nic) -> Option<&[u32]> {
    rps_queue(nic).map(|queue| queue.rps_cores.as_slice())
}

/// The core the packets arrived on, else the one full of softirq work.
pub(super) fn packet_core(host: &HostView<'_>) -> Option<CoreUse> {
    let named = host.thread.incoming_core.and_then(|core| host.core_use(core)).copied();
    named.or(host.softirq_core)
}

pub(super) fn idlest(host: &HostView<'_>) -> Option<u32> {
    host.cores.iter().max_by(|a, b| a.idle.total_cmp(&b.idle)).map(|core| core.core)
}

/// 1 if the reader runs on the core that processes its packets, else 0.
fn same_core(host: &HostView<'_>) -> f64 {
    let same = packet_core(host).zip(host.thread.core).is_some_and(|(core, own)| core.core == own);
    f64::from(u8::from(same))
}
