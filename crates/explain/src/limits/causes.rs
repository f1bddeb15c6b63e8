//! Why a core has no time left, if the reason is not its own work: shared by the limits that name
//! the reason and by those that name the core.

use results::Proximity;

use crate::numbers::ratio;
use crate::observed::{HostView, Observed};
use crate::symptoms::names;
use crate::thresholds::{hosts, signs};

/// Confidence, 0 to 1, that a processor quota throttled an end.
pub(super) fn throttled(seen: &Observed<'_>, host: &HostView<'_>) -> f64 {
    let of_host =
        |name: &str, range| seen.shown().host_reaches(host.end, name, range).unwrap_or(0.0);
    of_host(names::QUOTA_THROTTLED, signs::THROTTLED_PERIODS)
        * of_host(names::QUOTA_STOPPED, signs::THROTTLED_TIME)
}

/// Confidence, 0 to 1, that the clock is held low.
pub(super) fn slow_clock(seen: &Observed<'_>, host: &HostView<'_>) -> f64 {
    let clock = seen.shown().host(host.end, names::THREAD_CLOCK);
    clock.map_or(0.0, |of_maximum| signs::SLOW_CLOCK.of(1.0 - of_maximum))
}

/// Proximity of the busiest thread's core to the core its packets arrive on (for a sender, its
/// acknowledgements), and the two cores.
pub(super) fn distance(host: &HostView<'_>) -> Option<(Proximity, u32, u32)> {
    let machine = host.machine()?;
    let thread = host.thread.core?;
    let packets = host.thread.incoming_core?;
    Some((machine.proximity(thread, packets)?, thread, packets))
}

/// Memory nodes of the busiest thread and of the device, if they differ.
pub(super) fn device_nodes(host: &HostView<'_>) -> Option<(u32, u32)> {
    let machine = host.machine()?;
    let own = machine.core(host.thread.core?)?.node?;
    let device = machine.nic(&host.interface()?.name)?.node.or(host.interface()?.memory_node)?;
    (own != device).then_some((own, device))
}

/// Confidence, 0 to 1, that the thread runs far from its packets or its device.
pub(super) fn misplaced(host: &HostView<'_>) -> f64 {
    let by_cores = match distance(host).map(|found| found.0) {
        Some(Proximity::OtherNode) => 1.0,
        Some(Proximity::SameNode) if shares_caches(host) => signs::MISPLACED_ON_NODE,
        _ => 0.0,
    };
    let by_device: f64 = if device_nodes(host).is_some() { 1.0 } else { 0.0 };
    by_device.max(by_cores)
}

/// Whether any two cores of the host share a cache of the second level or above: only then could
/// the thread have been placed next to its packets.
fn shares_caches(host: &HostView<'_>) -> bool {
    host.machine().is_some_and(|machine| {
        machine.caches.iter().any(|cache| cache.level >= 2 && cache.cores.len() > 1)
    })
}

/// Confidence, 0 to 1, that an end's stack handles small packets one by one; 0 if its device combines them.
pub(super) fn small_packets(seen: &Observed<'_>, host: &HostView<'_>) -> f64 {
    seen.packet_bytes(host).map_or(0.0, |bytes| signs::SMALL_PACKET_BYTES.not(bytes))
}

/// Offloads that would combine an end's packets and are off; empty if the host does not report them.
pub(super) fn offloads_off(seen: &Observed<'_>, host: &HostView<'_>) -> Vec<&'static str> {
    let Some(interface) = host.interface() else { return Vec::new() };
    if interface.offloads.is_empty() && host.machine().is_none() {
        return Vec::new();
    }
    let is_on = |name: &str| interface.offloads.iter().any(|on| on == name);
    let mut off = Vec::new();
    if host.end == seen.sender.end {
        let segmentation = if seen.is_ipv6() { "tso6" } else { "tso" };
        // Either one suffices: the device segments, or the stack does just before it.
        if !is_on(segmentation) && !is_on("tso") {
            off.push("tso");
        }
        if !is_on("gso") {
            off.push("gso");
        }
        let cuts_small = interface
            .gso_max_bytes
            .is_some_and(|most| f64::from(most) < signs::SMALL_PACKET_BYTES.from);
        if cuts_small {
            off.push("gso_max_size");
        }
        // One of them is enough for the stack to pass super-segments down.
        let joined = (is_on("gso") || is_on(segmentation) || is_on("tso")) && !cuts_small;
        if joined {
            off.retain(|name| *name != "gso");
        }
    } else if !is_on("gro") && !is_on("gro-hw") && !is_on("lro") {
        off.push("gro");
    }
    off
}

/// Confidence, 0 to 1, that missing offloads raise an end's number of packets.
pub(super) fn uncombined(seen: &Observed<'_>, host: &HostView<'_>) -> f64 {
    if offloads_off(seen, host).is_empty() { 0.0 } else { small_packets(seen, host) }
}

/// Confidence, 0 to 1, that the connection's segments are smaller than necessary.
pub(super) fn small_segments(seen: &Observed<'_>, host: &HostView<'_>) -> f64 {
    let Some(mss) = seen.shown().sender(names::SEGMENT_PAYLOAD) else { return 0.0 };
    // Combined segments cost as much as one packet.
    signs::SMALL_SEGMENT_BYTES.not(mss) * small_packets(seen, host)
}

/// Confidence, 0 to 1, that the hypervisor leaves an end's core too little time: it took a considerable part, and what
/// it left was used up.
pub(super) fn stolen(seen: &Observed<'_>, host: &HostView<'_>) -> f64 {
    let of_host = |name: &str, range| seen.shown().host_reaches(host.end, name, range);
    let Some(steals) = of_host(names::STOLEN, hosts::STEAL) else { return 0.0 };
    steals * (1.0 - of_host(names::STOLEN_IDLE, hosts::STEAL_IDLE).unwrap_or(0.0))
}

/// The strongest of these reasons at one end, 0 to 1.
pub(super) fn other_reason(seen: &Observed<'_>, host: &HostView<'_>) -> f64 {
    [
        throttled(seen, host),
        host.held_behind(),
        stolen(seen, host),
        slow_clock(seen, host),
        signs::MISPLACED_AS_REASON * misplaced(host),
        uncombined(seen, host),
        small_segments(seen, host),
    ]
    .into_iter()
    .fold(0.0, f64::max)
}

/// Share of the retransmissions that an end's drops explain, 0 (none) to 1 (all).
pub(super) fn explains_losses(seen: &Observed<'_>, dropped_pkts: u64) -> f64 {
    let of_all = seen.shown().sender_events(names::RETRANSMITTED);
    if of_all.is_none_or(|again| again < signs::RETRANSMITS_MIN) {
        return 0.0;
    }
    // The drops are those of one repeat.
    let again = seen.flow.retransmits_count.unwrap_or(0.0).max(1.0);
    // A dropped packet may combine many segments, so a few drops may cause many retransmissions.
    signs::DROPS_OF_RETRANSMITS.of(ratio(dropped_pkts as f64, again).unwrap_or(0.0))
        * signs::DROPS_COUNT.of(dropped_pkts as f64)
}
