//! Cores without idle time, at either end.

use results::{End, Limit, ReceivePath, SendPath};

use super::causes::other_reason;
use super::processor::processor_binds;
use super::trials::dearer;
use super::{lifted, more_streams, several_streams};
use crate::advice::Advice;
use crate::change::Change;
use crate::experiment::{Experiment, Rule};
use crate::mechanism::{Mechanism, Opinion, Page};
use crate::numbers::percent;
use crate::observed::{HostView, Observed, end_name};
use crate::symptoms::names;
use crate::thresholds::{hosts, predictions};

#[derive(Debug)]
pub(crate) struct SenderCore;

#[derive(Debug)]
pub(crate) struct ReceiverCore;

impl Mechanism for SenderCore {
    fn limit(&self) -> Limit {
        Limit::SenderCore
    }

    fn page(&self) -> Page {
        Page {
            title: "the sending core",
            ceiling: "the sending thread running all the time",
            mechanism: "One thread feeds a stream on one core. A thread that never sleeps never waits for \
                the path: it is the slowest stage. It has no time left because it runs all the time, or \
                because others (threads, interrupts) occupy its core.",
            evidence: "Time run plus time ready but waiting for the core (`/proc/PID/schedstat`) is the whole \
                test; neither the window nor the send buffer holds it back; its core is never idle.",
            against: "The thread sleeps, waiting for room in its socket: something behind it is slower.",
            experiment: "Elsewhere: unpinned, when the test pinned it. Else a cheaper send path \
                (sendfile); smaller blocks, which cost more per byte: throughput falls in proportion; more \
                streams on more cores.",
            advice: "Give the thread a core of its own near the NIC's queue; use sendfile or MSG_ZEROCOPY, \
                larger blocks, segmentation offload, more streams.",
        }
    }

    fn weigh(&self, seen: &Observed<'_>) -> Opinion {
        let (own, other) = (&seen.sender, &seen.receiver);
        opinion(
            seen,
            own,
            other,
            processor_binds(seen, own) * (1.0 - hosts::OTHER_REASON * other_reason(seen, own)),
        )
    }

    fn experiments(&self, seen: &Observed<'_>, headroom: Option<f64>) -> Vec<Experiment> {
        let cheaper =
            (seen.spec.send_path == SendPath::Copy).then_some(Change::SendPath(SendPath::Sendfile));
        experiments(self.limit(), seen, &seen.sender, cheaper, headroom)
    }

    fn advice(&self, seen: &Observed<'_>) -> Vec<Advice> {
        let several = "use several streams on several cores";
        vec![
            placement(seen, &seen.sender),
            Advice::of(
                Change::SendPath(SendPath::Sendfile),
                "spend less on each byte: --send-path sendfile",
            ),
            "larger blocks and segmentation offload cost less per byte".to_owned().into(),
            Advice::of(several_streams(seen), several),
        ]
    }
}

impl Mechanism for ReceiverCore {
    fn limit(&self) -> Limit {
        Limit::ReceiverCore
    }

    fn page(&self) -> Page {
        Page {
            title: "the receiving core",
            ceiling: "the receiving thread running all the time",
            mechanism: "Receiving costs more than sending: the stack's softirq and the copy to the reader, on \
                one core or two. A reading thread that never sleeps always finds data: it is the slowest \
                stage. A core full of softirq delays everything behind it.",
            evidence: "The reading thread's time run plus time waiting for its core is the whole test; unread \
                data fills its socket and the window closes; or one core spends itself in softirq.",
            against: "The reading thread sleeps, waiting for data: something before it is slower.",
            experiment: "Elsewhere: unpinned, when the test pinned it. Else a cheaper receive path \
                (discard without copying); smaller blocks, which cost more per byte: throughput falls in \
                proportion; more streams on more cores.",
            advice: "Give the thread a core of its own that shares a cache with the one that takes the \
                interrupts; larger MTU, GRO, more receive queues, more streams.",
        }
    }

    fn weigh(&self, seen: &Observed<'_>) -> Opinion {
        let (own, other) = (&seen.receiver, &seen.sender);
        opinion(
            seen,
            own,
            other,
            processor_binds(seen, own) * (1.0 - hosts::OTHER_REASON * other_reason(seen, own)),
        )
    }

    fn experiments(&self, seen: &Observed<'_>, headroom: Option<f64>) -> Vec<Experiment> {
        let cheaper = (seen.spec.receive_path == ReceivePath::Copy)
            .then_some(Change::ReceivePath(ReceivePath::Discard));
        experiments(self.limit(), seen, &seen.receiver, cheaper, headroom)
    }

    fn advice(&self, seen: &Observed<'_>) -> Vec<Advice> {
        vec![
            placement(seen, &seen.receiver),
            "let packets come in larger pieces: larger MTU, GRO".to_owned().into(),
            "spread the receive work: more queues, RPS".to_owned().into(),
            Advice::of(several_streams(seen), "use several streams on several cores"),
        ]
    }
}

fn opinion(
    seen: &Observed<'_>,
    own: &HostView<'_>,
    other: &HostView<'_>,
    by_thread: f64,
) -> Opinion {
    let weight = by_thread.max(by_exhaustion(seen, own, other));
    let busy = seen.shown().thread_busy(own.end);
    let mut evidence: Vec<String> =
        seen.thread_text(own).map(|text| format!("{}: {text}", own.name())).into_iter().collect();
    if let Some(text) = own.mode_text() {
        evidence.push(format!("thread time: {text}{}", work_text(seen, own)));
    }
    if let Some(core) = own.core.filter(|core| core.steal > hosts::STEAL_TOLD) {
        evidence.push(format!("the hypervisor took {} of core {}", percent(core.steal), core.core));
    }
    if let Some(core) = own.softirq_core {
        evidence.push(format!(
            "core {} spends {} of its time in softirq and {} idle",
            core.core,
            percent(core.softirq),
            percent(core.idle)
        ));
    }
    if let Some(text) = seen.thread_text(other) {
        evidence.push(format!("{}: {text}", other.name()));
    }
    if let (Some(idle), true) = (seen.shown().host(own.end, names::IDLE), weight > by_thread) {
        let machine =
            if seen.one_machine { " (both ends and the emulated path share them)" } else { "" };
        evidence.push(format!("all cores together are {} idle{machine}", percent(idle)));
        let streams = seen.shown().path(names::STREAMS);
        if let (Some(idle), Some(streams)) = (seen.idle_with_several(own), streams) {
            evidence.push(format!("with {streams:.0} streams they are {} idle", percent(idle)));
        }
    }
    Opinion {
        weight,
        doubt: None,
        end: Some(own.end),
        evidence,
        against: match busy {
            Some(busy) if own.is_process => {
                format!("its process ran {} of the time; its threads were not seen", percent(busy))
            }
            Some(busy) => format!(
                "its thread slept {} of the time, waiting for other parts of the path",
                percent(1.0 - busy)
            ),
            None if own.told => "its thread's times are unknown".to_owned(),
            None => format!("the {} end reports nothing about its cores", end_name(own.end)),
        },
        ceiling_bits_per_s: busy
            // A thread that mostly sleeps spends its time on wake-ups, which do not scale.
            .filter(|busy| *busy > hosts::THREAD_SCALES)
            .map(|busy| seen.rate() / busy),
    }
}

/// Weight for a host without idle time, 0 to 1. Higher if the end's thread was seen waiting for a core;
/// 0 if the other end's thread was busier.
fn by_exhaustion(seen: &Observed<'_>, own: &HostView<'_>, other: &HostView<'_>) -> f64 {
    let exhausted = seen.exhausted(own);
    let lacks = |host: &HostView<'_>| seen.shown().thread_busy(host.end).unwrap_or(0.0);
    if lacks(own) <= hosts::EXHAUSTION_BUSY || lacks(own) < lacks(other) {
        return 0.0;
    }
    let waits = seen.shown().host_reaches(own.end, names::THREAD_WAIT, hosts::EXHAUSTION_WAITS);
    let waits = waits.unwrap_or(0.0);
    (hosts::EXHAUSTION + hosts::EXHAUSTION_WAITED * waits)
        * exhausted
        * seen.unexplained()
        * (1.0 - hosts::OTHER_REASON * other_reason(seen, own))
}

fn experiments(
    limit: Limit,
    seen: &Observed<'_>,
    own: &HostView<'_>,
    cheaper: Option<Change>,
    headroom: Option<f64>,
) -> Vec<Experiment> {
    let mut experiments = Vec::new();
    if !own.pinned.is_empty() {
        let change = Change::MoveCores { end: own.end, from: own.pinned.clone(), to: Vec::new() };
        let waited = seen.shown().thread_waited(own.end).min(predictions::WAITED_MOST);
        let mut elsewhere =
            lifted(limit, seen, change, predictions::MOVED_MOST / (1.0 - waited), headroom);
        // A thread that fills a core by itself would fill another core as well.
        if seen.idle_cores(own).is_none_or(|idle| idle < predictions::IDLE_CORE)
            || waited < predictions::WAITED_LEAST
        {
            elsewhere.rule = Rule::Eases;
        }
        experiments.push(elsewhere);
    }
    experiments.extend(cheaper.map(|change| {
        // The kernel may or may not make it cheaper, and on one machine the other end uses the time that
        // this end saves: only a gain decides.
        let may_cost_more = matches!(change, Change::SendPath(_)) || seen.one_machine;
        let mut experiment = lifted(limit, seen, change, predictions::CHEAPER_MOST, headroom);
        if may_cost_more {
            experiment.rule = Rule::Eases;
        }
        experiment
    }));
    experiments.extend(dearer(limit, seen, own.end));
    // On one machine, or without an idle core, more streams only divide the same time.
    if seen.idle_cores(own).is_none_or(|idle| idle > predictions::IDLE_CORE)
        && own.host.is_none_or(|host| host.usable_cores.len() != 1)
    {
        experiments.extend(more_streams(limit, seen, headroom));
    }
    experiments
}

/// Describes the other work of the core, if it is considerable: `; softirq takes 40% of its core`.
fn work_text(seen: &Observed<'_>, host: &HostView<'_>) -> String {
    let Some(core) = &host.core else { return String::new() };
    let mut text = String::new();
    if core.softirq > hosts::WORK_TOLD {
        text += &format!("; softirq takes {} of core {}", percent(core.softirq), core.core);
    }
    let own = seen.shown().thread_ran(host.end).unwrap_or(0.0);
    let others = (core.user + core.system - own).max(0.0);
    if others > hosts::WORK_TOLD {
        text += &format!("; other threads take {} of core {}", percent(others), core.core);
    }
    text
}

/// Where the end's thread should run.
fn placement(seen: &Observed<'_>, host: &HostView<'_>) -> Advice {
    let end = end_name(host.end);
    let waited = seen.shown().thread_waited(host.end) > hosts::WAIT_TOLD;
    match (&host.pinned[..], waited) {
        ([], false) => {
            format!("pin the {end} end's thread next to the core that serves its NIC queue").into()
        }
        ([], true) => format!("free the {end} end's cores: other threads compete for them").into(),
        (_, waited) => {
            let reason = if waited { ": others use that core too" } else { "" };
            let option = match host.end {
                End::Near => "--cores",
                End::Far => "--far-cores",
            };
            format!(
                "run the {end} end's thread on another core, or unpinned (leave out {option}){reason}"
            )
            .into()
        }
    }
}
