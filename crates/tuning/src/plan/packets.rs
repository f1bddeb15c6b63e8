//! Packets between wire and protocol: rings, backlog, queues, offloads, coalescing, MTU.

use results::{End, Limit, Nic};
use units::{saturating_u64, show_count, show_count_of};

use super::seen::{Proposal, Seen};
use super::windows::name;
use super::{Plan, Risk};

const NET_RST: &str = "kernel Documentation/admin-guide/sysctl/net.rst";
const SCALING: &str = "kernel Documentation/networking/scaling.rst";

pub(super) fn rule(seen: &Seen<'_>, plan: &mut Plan) {
    backlog(seen, plan, seen.receiver);
    receive_ring(seen, plan, seen.receiver);
    transmit_queue(seen, plan, seen.sender);
    for end in [seen.sender, seen.receiver] {
        offloads(seen, plan, end);
    }
    coalescing(seen, plan, seen.receiver);
    mtu(seen, plan);
}

/// The longest a receiving core is away from its packets, as a power of ten: 10 ms is two to three
/// scheduler ticks and what a full softirq budget takes.
const PAUSE_S: f64 = 0.01;

/// `dropped` of `/proc/net/softnet_stat`: the queue between device and protocol was full.
fn backlog(seen: &Seen<'_>, plan: &mut Plan, end: End) {
    let Some(counters) = seen.counters(end) else { return };
    let sum = |read: fn(&results::SoftnetCounters) -> u64| {
        counters.softnet.iter().map(read).fold(0, u64::saturating_add)
    };
    let dropped = sum(|core| core.dropped_pkts);
    if let Some(from) = seen.number(end, "net.core.netdev_max_backlog").filter(|_| dropped > 0) {
        let burst = saturating_u64(seen.pkts_per_s() * PAUSE_S).next_power_of_two();
        let to = burst.max(from.saturating_mul(2)).min(1 << 20);
        seen.propose(
            plan,
            end,
            "net.core.netdev_max_backlog",
            Proposal {
                from: Some(from.to_string()),
                to: to.to_string(),
                why: format!("{} found a backlog of {from} full", show_count_of(dropped, "packet")),
                source: NET_RST,
                effect: format!(
                    "holds {} ms at {} packets/s; those drops end",
                    PAUSE_S * 1e3,
                    show_count(seen.pkts_per_s())
                ),
                predicted_bits_per_s: None,
                risk: Risk::Low,
                danger: "packets wait longer when a core is overloaded",
            },
        );
    }
    let (squeezed, processed) = (sum(|core| core.squeezed_count), sum(|core| core.processed_pkts));
    // A squeeze in a hundred batches of 64 packets costs nothing that could be measured.
    let often = squeezed as f64 > processed as f64 / 64.0 / 100.0;
    if let Some(from) =
        seen.number(end, "net.core.netdev_budget").filter(|_| often && squeezed > 10)
    {
        let core_binds = seen.binds(Limit::ReceiverCore) || seen.binds(Limit::InterruptCore);
        if !core_binds {
            return;
        }
        seen.propose(
            plan,
            end,
            "net.core.netdev_budget",
            Proposal {
                from: Some(from.to_string()),
                to: from.saturating_mul(2).to_string(),
                why: format!(
                    "{} times the softirq ran out of its budget of {from} with packets left",
                    show_count(squeezed as f64)
                ),
                source: NET_RST,
                effect: "more packets a round of the softirq; the effect cannot be predicted"
                    .to_owned(),
                predicted_bits_per_s: None,
                risk: Risk::Medium,
                danger: "programs on that core wait longer",
            },
        );
    }
}

/// The device had no descriptor free for a packet.
fn receive_ring(seen: &Seen<'_>, plan: &mut Plan, end: End) {
    let (Some(nic), Some(counters)) = (seen.nic(end), seen.counters(end)) else { return };
    let Some(device) = counters.devices.iter().find(|device| device.interface == nic.name) else {
        return;
    };
    let lost = device.rx_ring_overruns_count.unwrap_or(0);
    let told = seen.suspected(Limit::RingOverrun, end);
    let Some(rings) = nic.rings.filter(|_| lost > 0 || told.is_some()) else { return };
    if rings.receive_count >= rings.receive_max_count {
        plan.remarks.push(format!(
            "{} at the {} end: its receive ring overflows and is as long as it can be ({}): spread the flows over more queues",
            nic.name, name(end), rings.receive_count
        ));
        return;
    }
    let pause = saturating_u64(seen.pkts_per_s() * PAUSE_S).next_power_of_two();
    let wanted =
        u32::try_from(pause).unwrap_or(u32::MAX).max(rings.receive_count.saturating_mul(2));
    let to = wanted.min(rings.receive_max_count);
    seen.propose(
        plan,
        end,
        &format!("{}/ring-rx", nic.name),
        Proposal {
            from: Some(rings.receive_count.to_string()),
            to: to.to_string(),
            why: told.map_or_else(
                || {
                    format!(
                        "{} found the ring of {} full",
                        show_count_of(lost, "packet"),
                        rings.receive_count
                    )
                },
                str::to_owned,
            ),
            source: "ethtool(8) -G; ESnet fasterdata NIC tuning",
            effect: format!(
                "holds {:.1} ms of packets instead of {:.1}",
                f64::from(to) / seen.pkts_per_s() * 1e3,
                f64::from(rings.receive_count) / seen.pkts_per_s() * 1e3
            ),
            predicted_bits_per_s: None,
            risk: Risk::High,
            danger: "most drivers take the link down for a moment; a longer ring leaves the cache",
        },
    );
}

/// The sending host's own queue dropped.
fn transmit_queue(seen: &Seen<'_>, plan: &mut Plan, end: End) {
    let (Some(link), Some(counters)) = (seen.interface(end), seen.counters(end)) else { return };
    let drops: u64 = counters
        .qdiscs
        .iter()
        .filter(|qdisc| qdisc.interface == link.name)
        .map(|qdisc| qdisc.dropped_pkts)
        .fold(0, u64::saturating_add);
    let Some(from) = link.transmit_queue_pkts.filter(|_| drops > 0) else { return };
    let is_fifo = link.qdisc.as_deref().is_none_or(|kind| kind.starts_with("pfifo"));
    if !is_fifo || link.qdisc_rate_bits_per_s.is_some() {
        return;
    }
    let product = seen.bdp_bytes().unwrap_or(0) / u64::from(link.mtu_bytes.max(576));
    let to = product.next_power_of_two().max(u64::from(from) * 2).min(1 << 17);
    seen.propose(
        plan,
        end,
        &format!("{}/txqueuelen", link.name),
        Proposal {
            from: Some(from.to_string()),
            to: to.to_string(),
            why: format!(
                "the host's own queue of {from} packets dropped {}",
                show_count(drops as f64)
            ),
            source: "ip-link(8); ESnet fasterdata; Cumulus 2018 section IV.C",
            effect: format!("holds a bandwidth-delay product ({product} packets); those drops end"),
            predicted_bits_per_s: None,
            risk: Risk::Medium,
            danger: "a longer queue is longer latency under load",
        },
    );
}

/// Segmentation and receive offloads that are off and may be on.
fn offloads(seen: &Seen<'_>, plan: &mut Plan, end: End) {
    const SENDING: [&str; 3] =
        ["tx-scatter-gather", "tx-tcp-segmentation", "tx-generic-segmentation"];
    const RECEIVING: [&str; 2] = ["rx-checksum", "rx-gro"];
    let Some(nic) = seen.nic(end) else { return };
    let (wanted, core): (&[&str], Limit) = if end == seen.sender {
        (&SENDING, Limit::SenderCore)
    } else {
        (&RECEIVING, Limit::ReceiverCore)
    };
    let told = seen.suspected(Limit::Offloads, end).or_else(|| seen.suspected(core, end));
    for feature in wanted {
        let known = nic.offloads.iter().find(|known| known.name == *feature);
        let Some(known) = known.filter(|known| !known.is_on && known.may_change) else { continue };
        let Some(told) = told else {
            plan.remarks.push(format!(
                "{} at the {} end: {} stays off, because no core is short of time",
                nic.name,
                name(end),
                known.name
            ));
            continue;
        };
        seen.propose(plan, end, &format!("{}/feature-{feature}", nic.name), Proposal {
            from: Some("off".to_owned()),
            to: "on".to_owned(),
            why: format!("{told}; {feature} is off, so every packet passes the stack alone"),
            source: "kernel Documentation/networking/segmentation-offloads.rst; ethtool(8) -K",
            effect: "fewer, larger units through the stack: less of the core for each byte; measure it".to_owned(),
            predicted_bits_per_s: None,
            risk: Risk::Medium,
            danger: "a driver with a broken offload corrupts or drops packets; watch its error counters",
        });
    }
}

/// Interrupts a second against what coalescing would allow.
fn coalescing(seen: &Seen<'_>, plan: &mut Plan, end: End) {
    let (Some(nic), Some(counters)) = (seen.nic(end), seen.counters(end)) else { return };
    let Some(coalescing) = nic.coalescing else { return };
    let own = |irq: u32| nic.interrupts.iter().any(|known| known.irq == irq);
    let ran: u64 = counters
        .interrupts
        .iter()
        .filter(|one| own(one.irq))
        .flat_map(|one| one.ran.iter().map(|(_, count)| *count))
        .fold(0, u64::saturating_add);
    let per_s = ran as f64 / seen.outcome.duration_s.max(0.01);
    let told = seen
        .suspected(Limit::InterruptCore, end)
        .or_else(|| seen.suspected(Limit::ReceiverCore, end));
    let Some(told) = told else { return };
    // Above this, entering and leaving interrupts is itself a tenth of a core (about 1 us each way).
    const INTERRUPTS_PER_S: f64 = 50_000.0;
    if coalescing.is_receive_adaptive || per_s < INTERRUPTS_PER_S {
        return;
    }
    let usecs = (1e6 / (INTERRUPTS_PER_S / 2.0)).round();
    let to = saturating_u64(usecs).max(u64::from(coalescing.receive_usecs));
    seen.propose(
        plan,
        end,
        &format!("{}/coalesce-rx-usecs", nic.name),
        Proposal {
            from: Some(coalescing.receive_usecs.to_string()),
            to: to.to_string(),
            why: format!("{told}; {} interrupts per second", show_count(per_s)),
            source: "ethtool(8) -C; ESnet fasterdata interrupt coalescing",
            effect: format!(
                "at most {} interrupts a second and queue",
                show_count(1e6 / to as f64)
            ),
            predicted_bits_per_s: None,
            risk: Risk::Medium,
            danger: "round trips grow by up to that time",
        },
    );
}

/// One end sends smaller packets than the other takes.
fn mtu(seen: &Seen<'_>, plan: &mut Plan) {
    let (Some(own), Some(other)) = (seen.interface(seen.sender), seen.interface(seen.receiver))
    else {
        return;
    };
    let core_binds = seen.binds(Limit::PathMtu)
        || seen.binds(Limit::SenderCore)
        || seen.binds(Limit::ReceiverCore);
    let may = own.mtu_max_bytes.is_none_or(|most| most >= other.mtu_bytes);
    if own.mtu_bytes >= other.mtu_bytes || !core_binds || !may {
        return;
    }
    let headers = explain::Headers::of_path(&seen.results.path);
    let segments = |mtu: u32| headers.payload_bytes(mtu.max(576)).map_or(1.0, f64::from);
    seen.propose(
        plan,
        seen.sender,
        &format!("{}/mtu", own.name),
        Proposal {
            from: Some(own.mtu_bytes.to_string()),
            to: other.mtu_bytes.to_string(),
            why: format!(
                "{} sends {} bytes a packet, the other end's {} takes {}",
                own.name, own.mtu_bytes, other.name, other.mtu_bytes
            ),
            source: "RFC 8899, ESnet fasterdata jumbo frames; Cumulus 2018 section IV.C",
            effect: format!(
                "{:.1} times fewer packets for the same bytes",
                segments(other.mtu_bytes) / segments(own.mtu_bytes)
            ),
            predicted_bits_per_s: None,
            risk: Risk::High,
            danger: "every host and switch of the segment must carry that size, or packets vanish",
        },
    );
}

/// Queues in use of a device.
pub(super) fn queues(nic: &Nic) -> usize {
    nic.receive_queues.len().max(1)
}

pub(super) const SCALING_SOURCE: &str = SCALING;
