//! A hypervisor that takes the core.

use results::Limit;

use super::causes::stolen;
use crate::advice::Advice;
use crate::experiment::Experiment;
use crate::mechanism::{Mechanism, Opinion, Page};
use crate::numbers::percent;
use crate::observed::{HostView, Observed, end_name};
use crate::symptoms::names;
use crate::thresholds::{hosts, signs};
use crate::weighing::{self, Weighing};

#[derive(Debug)]
pub(crate) struct Steal;

impl Mechanism for Steal {
    fn limit(&self) -> Limit {
        Limit::Steal
    }

    fn page(&self) -> Page {
        Page {
            title: "a hypervisor that takes the core",
            ceiling: "the core available to the guest all the time",
            mechanism: "A virtual core runs only while its hypervisor lets it. What other guests, or the \
                hypervisor's own work for this one, take of the physical core is lost to the guest, which sees \
                it as `steal`: its threads neither run nor wait meanwhile, and packets are processed late.",
            evidence: "`steal` of `/proc/stat` on the core of the stream's thread or of its packets; that core \
                has no idle time left.",
            against: "Little steal; the core had idle time; windows, buffers or applications hold the sender back.",
            experiment: "None from inside: no setting of a guest changes what its hypervisor takes.",
            advice: "On the hypervisor pin virtual cores to physical ones of their own, and keep the threads of \
                its devices (vhost, io) off them; ask the provider for dedicated cores.",
        }
    }

    fn weigh(&self, seen: &Observed<'_>) -> Opinion {
        let host = worse(seen);
        let weighed = Weighing::most(signs::STATED)
            .by(stolen(seen, host), "the hypervisor took little, or the core had time left")
            .by(seen.unexplained(), weighing::HELD)
            .unless(1.0 - needed(seen, host), 1.0, "the thread mostly sleeps");
        let taken = taken(seen, host);
        Opinion {
            weight: weighed.weight(),
            doubt: weighed.doubt(),
            end: Some(host.end),
            evidence: evidence(seen, host),
            against: match taken_words(seen, host) {
                Some(words) => words,
                None if host.told => "which cores its threads used is unknown".to_owned(),
                None => format!("the {} end reports nothing about its cores", end_name(host.end)),
            },
            ceiling_bits_per_s: taken
                .filter(|_| weighed.weight() > signs::PERHAPS)
                .map(|taken| seen.rate() / (1.0 - taken)),
        }
    }

    fn experiments(&self, _seen: &Observed<'_>, _headroom: Option<f64>) -> Vec<Experiment> {
        Vec::new()
    }

    fn advice(&self, seen: &Observed<'_>) -> Vec<Advice> {
        let host = worse(seen);
        let core = host
            .robbed_core()
            .map_or_else(|| "the core".to_owned(), |core| format!("core {}", core.core));
        let end = end_name(host.end);
        Advice::all(vec![
            format!(
                "on the hypervisor of the {end} end give {core} a physical core of its own (virsh vcpupin, \
                 isolcpus), and move the threads of its devices elsewhere"
            ),
            format!("or pin the {end} end's threads to virtual cores that lose less: vmstat, `st`"),
        ])
    }
}

/// Part of its core, 0 to less than 1, that the hypervisor took from an end.
fn taken(seen: &Observed<'_>, host: &HostView<'_>) -> Option<f64> {
    Some(seen.shown().host(host.end, names::STOLEN)?.clamp(0.0, hosts::STEAL_MOST))
}

/// Confidence, 0 to 1, that the thread would have used what was taken: it, or its packets, used the rest.
fn needed(seen: &Observed<'_>, host: &HostView<'_>) -> f64 {
    let Some(taken) = taken(seen, host) else { return 0.0 };
    let thread = seen.shown().thread_busy(host.end).unwrap_or(0.0);
    let packets = seen.shown().host(host.end, names::STOLEN_SOFTIRQ).unwrap_or(0.0);
    hosts::STEAL_NEEDED.of((thread + packets) / (1.0 - taken))
}

/// The end whose core the hypervisor took more of, as far as it was needed.
fn worse<'s, 'a>(seen: &'s Observed<'a>) -> &'s HostView<'a> {
    let weigh = |host: &HostView<'_>| stolen(seen, host) * needed(seen, host);
    if weigh(&seen.receiver) > weigh(&seen.sender) { &seen.receiver } else { &seen.sender }
}

/// What the hypervisor took of which core.
fn taken_words(seen: &Observed<'_>, host: &HostView<'_>) -> Option<String> {
    let of_host = |name: &str| seen.shown().host(host.end, name);
    Some(format!(
        "the hypervisor took {} of core {}, which was {} idle",
        percent(of_host(names::STOLEN)?),
        host.robbed_core()?.core,
        percent(of_host(names::STOLEN_IDLE)?)
    ))
}

fn evidence(seen: &Observed<'_>, host: &HostView<'_>) -> Vec<String> {
    let lines = taken_words(seen, host).into_iter().chain(seen.thread_text(host));
    lines.map(|line| format!("{}: {line}", host.name())).collect()
}
