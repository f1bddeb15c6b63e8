//! The core that processes packets from the device.

use results::{Interrupt, Limit};
use settings::Key;

use super::causes::{small_packets, uncombined};
use super::more_streams;
use super::packet_core::{
    hungry_thread, idlest, nic_of, packet_core, packet_core_binds, pinned_napi, rps_cores,
    rps_queue,
};
use super::trials::more_packets;
use crate::advice::Advice;
use crate::experiment::{Experiment, Rule};
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
            mechanism: "Before a thread can read a packet, a core takes it from the device's queue through the stack: in a softirq on the core the queue's interrupt goes to, in the kernel \
                thread of threaded NAPI, or on the core that RPS chooses. When that core has no time left \
                (its own work, or somebody else's), every stream of the queue waits, and reader and sender \
                both sleep.",
            evidence: "A core that spends nearly all its time in softirq, or a `napi/…` or `ksoftirqd/…` thread that \
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
        let weight = packet_core_binds(seen);
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
    lines.extend(seen.thread_text(host).map(|text| format!("{}: {text}", host.name())));
    lines.extend(
        seen.thread_text(&seen.sender).map(|text| format!("{}: {text}", seen.sender.name())),
    );
    lines
}

fn cores_text(cores: &[u32]) -> String {
    let list: Vec<String> = cores.iter().map(u32::to_string).collect();
    format!("{} {}", if list.len() == 1 { "core" } else { "cores" }, list.join(","))
}
