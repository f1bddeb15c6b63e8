//! The core that processes packets from the device.

use results::{CoreUse, Interrupt, KernelThreadUse, Limit, NapiThread, Nic, ReceiveQueue};
use settings::Key;

use super::causes::{small_packets, uncombined};
use super::{halved_segments, more_streams};
use crate::advice::Advice;
use crate::experiment::{Experiment, Prediction, Rule};
use crate::mechanism::{Mechanism, Opinion, Page};
use crate::numbers::{percent, share};
use crate::observed::{HostView, Observed, end_name};
use crate::remedy::{Remedy, change};
use crate::thresholds::{hosts, predictions, signs};

#[derive(Debug)]
pub(crate) struct InterruptCore;

impl Mechanism for InterruptCore {
    fn limit(&self) -> Limit {
        Limit::InterruptCore
    }

    fn page(&self) -> Page {
        Page {
            title: "the core that takes the packets",
            ceiling: "that core doing nothing but packets",
            mechanism: "Before a thread reads a byte, some core takes the packet off the device's queue and \
                through the stack: in a softirq on the core the queue's interrupt goes to, in the kernel \
                thread of threaded NAPI, or on the core that RPS chooses. When that core has no time left \
                (its own work, or somebody else's), every stream of the queue waits, and reader and sender \
                both sleep.",
            evidence: "A core that spends itself in softirq, or a `napi/…` or `ksoftirqd/…` thread that \
                always runs or waits for its core, while the stream's threads sleep; the core the packets \
                came in on (`SO_INCOMING_CPU`), its use, packets per core (`softnet_stat`), interrupts per \
                core (`/proc/interrupts`); one queue or one RPS core for everything.",
            against: "The core that takes the packets has idle time; or a stream's thread never sleeps.",
            experiment: "Smaller segments, so that a byte costs more packets: throughput falls. More \
                streams, where there are more queues: throughput rises.",
            advice: "Give the queue's interrupt (or NAPI thread, or RPS) a core with spare time near the \
                reader's; more queues and RSS; RPS over several cores; GRO and a larger MTU.",
        }
    }

    fn weigh(&self, seen: &Observed<'_>) -> Opinion {
        let host = &seen.receiver;
        let weight = weight(seen);
        let core = packet_core(host);
        Opinion {
            weight,
            doubt: None,
            end: Some(host.end),
            evidence: evidence(seen, host),
            against: match core {
                Some(core) => format!(
                    "core {}, where its packets came in, was {} idle, {} in softirq",
                    core.core,
                    percent(core.idle),
                    percent(core.softirq)
                ),
                None if host.told => "where its packets came in is unknown".to_owned(),
                None => format!("the {} end reports nothing about its cores", end_name(host.end)),
            },
            ceiling_bits_per_s: host
                .softirq_core
                .filter(|core| core.softirq > hosts::SOFTIRQ_TOLD)
                .map(|core| seen.rate() / core.softirq.min(1.0)),
        }
    }

    fn experiments(&self, seen: &Observed<'_>, headroom: Option<f64>) -> Vec<Experiment> {
        let mut experiments = Vec::new();
        if small_packets(seen, &seen.receiver) > signs::LIKELY {
            experiments.extend(more_packets(self.limit(), seen));
        }
        experiments.extend(
            more_streams(self.limit(), seen, headroom)
                .map(|experiment| Experiment { rule: Rule::Eases, ..experiment }),
        );
        experiments
    }

    fn host_change(&self, seen: &Observed<'_>, headroom: Option<f64>) -> Option<Remedy> {
        let host = &seen.receiver;
        let to = idlest(host)?;
        Some(Remedy::setting(
            host.end,
            packets_on(host, to)?,
            headroom
                .unwrap_or(seen.rate() * predictions::CHANGE_HALF_MORE)
                .max(seen.rate() * predictions::LIFT_MOST),
            format!("with the packet work on core {to}, which has time, throughput rises"),
        ))
    }

    fn advice(&self, seen: &Observed<'_>) -> Vec<Advice> {
        let end = end_name(seen.receiver.end);
        let mut lines = Vec::new();
        if let Some(remedy) = self.host_change(seen, None) {
            lines.push(format!("at the {end} end: {}", remedy.shown().command));
        }
        lines.push(format!("at the {end} end spread the packets: more queues (ethtool -L), RSS, RPS over several cores"));
        if uncombined(seen, &seen.receiver) > signs::LIKELY {
            lines.push("let the kernel join packets: ethtool -K DEV gro on".to_owned());
        }
        lines.push("larger packets cost less a byte: a larger MTU along the whole path".to_owned());
        Advice::all(lines)
    }
}

/// An experiment in which each byte costs more packets, if the segments can be halved.
pub(super) fn more_packets(limit: Limit, seen: &Observed<'_>) -> Option<Experiment> {
    let rate = seen.rate();
    Some(Experiment {
        limit,
        change: halved_segments(seen)?,
        predicted: Prediction::new(
            rate * predictions::PACKETS_LOW,
            rate * predictions::PACKETS_EXPECTED,
            rate * predictions::PACKETS_HIGH,
        ),
        rule: Rule::FollowsPackets,
    })
}

/// Confidence, 0 to 1, that this core binds.
pub(super) fn weight(seen: &Observed<'_>) -> f64 {
    let host = &seen.receiver;
    let free_sender = 1.0 - hosts::PACKET_SENDER * seen.sender.starved().unwrap_or(0.0);
    // A reader that never sleeps, on a core of its own, is slower than the core that feeds it.
    let fed = host.starved().unwrap_or(0.0) * seen.receiver_fullness().unwrap_or(0.0);
    let others = seen.unexplained() * free_sender * (1.0 - hosts::PACKET_READER * fed);
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
    let own_reader = host.starved().unwrap_or(0.0) * same_core(host);
    // Packets that wait for this core are a queue too, but softirq time alone does not locate that queue.
    by_crowd.max(by_thread).max(by_softirq * (1.0 - hosts::PACKET_QUEUE * seen.queue()))
        * others
        * (1.0 - hosts::PACKET_OWN_READER * own_reader)
}

/// 1 if the reader runs on the core that processes its packets, else 0.
fn same_core(host: &HostView<'_>) -> f64 {
    let same = packet_core(host).zip(host.thread.core).is_some_and(|(core, own)| core.core == own);
    f64::from(u8::from(same))
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
    let asleep = 1.0 - host.starved().unwrap_or(0.0) * (1.0 - same_core(host));
    hosts::PACKET_CORE_IDLE.not(idle)
        * asleep
        * if seen.one_machine {
            hosts::ELSEWHERE_SHARED
        } else {
            hosts::ELSEWHERE_IDLE.of(elsewhere).max(hosts::ELSEWHERE_FULL)
        }
}

/// The kernel thread for packet processing that always runs or waits for its core.
fn hungry_thread<'a>(host: &HostView<'a>) -> Option<&'a KernelThreadUse> {
    let busy = |thread: &KernelThreadUse| {
        share(thread.run_s + thread.wait_s, host.duration_s).unwrap_or(0.0)
    };
    let threads = host.counters?.kernel_threads.iter();
    threads
        .filter(|thread| busy(thread) > hosts::HUNGRY_THREAD)
        .max_by(|a, b| busy(a).total_cmp(&busy(b)))
}

fn nic_of<'a>(host: &HostView<'a>) -> Option<&'a Nic> {
    host.machine()?.nic(&host.interface()?.name)
}

/// The NAPI thread with the narrowest affinity, if any has one.
fn pinned_napi(nic: &Nic) -> Option<&NapiThread> {
    let threads = nic.napi_threads.iter().filter(|thread| !thread.allowed_cores.is_empty());
    threads.min_by_key(|thread| thread.allowed_cores.len())
}

/// The queue whose packets RPS distributes to the fewest cores.
fn rps_queue(nic: &Nic) -> Option<&ReceiveQueue> {
    let queues = nic.receive_queues.iter().filter(|queue| !queue.rps_cores.is_empty());
    queues.min_by_key(|queue| queue.rps_cores.len())
}

/// The cores that RPS distributes packets to.
fn rps_cores(nic: &Nic) -> Option<&[u32]> {
    rps_queue(nic).map(|queue| queue.rps_cores.as_slice())
}

/// The core the packets arrived on, else the one full of softirq work.
fn packet_core(host: &HostView<'_>) -> Option<CoreUse> {
    let named = host.thread.incoming_core.and_then(|core| host.core_use(core)).copied();
    named.or(host.softirq_core)
}

fn idlest(host: &HostView<'_>) -> Option<u32> {
    host.cores.iter().max_by(|a, b| a.idle.total_cmp(&b.idle)).map(|core| core.core)
}

/// The change that moves the packet processing to core `to`: of the kernel thread that has no time left,
/// else of a NAPI thread with an affinity, else of RPS, else of the interrupt that fired most.
fn packets_on(host: &HostView<'_>, to: u32) -> Option<settings::Change> {
    let nic = nic_of(host);
    // A `ksoftirqd` cannot move: it belongs to its core.
    let hungry = hungry_thread(host).map(|thread| (&thread.name, &thread.allowed_cores));
    let pinned = nic.and_then(pinned_napi).map(|thread| (&thread.name, &thread.allowed_cores));
    let thread = [hungry, pinned].into_iter().flatten().find_map(|(name, cores)| {
        let key = Key::of_packet_source(name)?;
        change(&key.to_string(), Some(&settings::list_of(cores)), &to.to_string())
    });
    let steered = || {
        let nic = nic?;
        let queue = rps_queue(nic)?;
        let key = format!("{}/rx-{}/rps_cpus", nic.name, queue.queue);
        change(&key, Some(&settings::mask_of(&queue.rps_cores)), &settings::mask_of(&[to]))
    };
    let interrupt = || {
        let rang = |irq: &&Interrupt| irq.ran.iter().map(|ran| ran.1).sum::<u64>();
        let interrupt = nic?.interrupts.iter().max_by_key(rang)?;
        let key = Key::InterruptAffinity(interrupt.irq).to_string();
        change(&key, Some(&settings::list_of(&interrupt.allowed_cores)), &to.to_string())
    };
    thread.or_else(steered).or_else(interrupt)
}

fn evidence(seen: &Observed<'_>, host: &HostView<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(thread) = hungry_thread(host) {
        let of_time = |seconds: f64| percent(share(seconds, host.duration_s).unwrap_or(0.0));
        let place = thread.core.map(|core| format!(" (core {core})")).unwrap_or_default();
        lines.push(format!(
            "{}: kernel thread {}{place} ran {} and waited for its core {} of the time",
            host.name(),
            thread.name,
            of_time(thread.run_s),
            of_time(thread.wait_s)
        ));
    }
    if let Some(core) = packet_core(host) {
        lines.push(format!(
            "{}: core {}, where its packets came in: {} idle, {} softirq, {} system, {} user",
            host.name(),
            core.core,
            percent(core.idle),
            percent(core.softirq),
            percent(core.system),
            percent(core.user)
        ));
    }
    if let Some(nic) = nic_of(host) {
        if let Some(thread) = pinned_napi(nic) {
            lines.push(format!(
                "NAPI thread {} may run on {} only",
                thread.name,
                cores_text(&thread.allowed_cores)
            ));
        }
        if let Some(cores) = rps_cores(nic) {
            lines.push(format!("RPS of {} hands packets to {} only", nic.name, cores_text(cores)));
        }
        if nic.receive_queues.len() == 1 && host.cores.len() > 1 {
            lines.push(format!("{} has one receive queue for everything", nic.name));
        }
    }
    let softnet = host.counters.map_or(&[][..], |counters| &counters.softnet);
    if let Some(most) = softnet.iter().max_by_key(|core| core.processed_pkts) {
        let all: u64 = softnet.iter().map(|core| core.processed_pkts).sum();
        let of_all = percent(share(most.processed_pkts as f64, all as f64).unwrap_or(0.0));
        lines.push(format!("core {} processed {of_all} of the host's packets", most.core));
    }
    lines.extend(host.thread_text().map(|text| format!("{}: {text}", host.name())));
    lines.extend(seen.sender.thread_text().map(|text| format!("{}: {text}", seen.sender.name())));
    lines
}

fn cores_text(cores: &[u32]) -> String {
    let list: Vec<String> = cores.iter().map(u32::to_string).collect();
    format!("{} {}", if list.len() == 1 { "core" } else { "cores" }, list.join(","))
}
