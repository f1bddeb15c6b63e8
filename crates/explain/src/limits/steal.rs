//! A hypervisor that takes the core.

use results::Limit;

use super::causes::{robbed, stolen};
use crate::advice::Advice;
use crate::experiment::Experiment;
use crate::mechanism::{Mechanism, Opinion, Page};
use crate::numbers::percent;
use crate::observed::{HostView, Observed, end_name};
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
            ceiling: "the core left to the guest all the time",
            mechanism: "A virtual core runs only while its hypervisor lets it. What other guests, or the \
                hypervisor's own work for this one, take of the physical core is lost to the guest, which sees \
                it as `steal`: its threads neither run nor wait meanwhile, and packets come late.",
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
            .by(stolen(host), "the hypervisor took little, or the core had time left")
            .by(seen.unexplained(), weighing::HELD)
            .unless(1.0 - needed(host), 1.0, "the thread mostly sleeps");
        let core = robbed(host);
        Opinion {
            weight: weighed.weight(),
            doubt: weighed.doubt(),
            end: Some(host.end),
            evidence: evidence(host),
            against: match core {
                Some(core) => format!(
                    "the hypervisor took {} of core {}, which was {} idle",
                    percent(core.steal),
                    core.core,
                    percent(core.idle)
                ),
                None if host.told => "which cores its threads used is unknown".to_owned(),
                None => format!("the {} end reports nothing about its cores", end_name(host.end)),
            },
            ceiling_bits_per_s: core
                .filter(|_| weighed.weight() > signs::PERHAPS)
                .map(|core| seen.rate() / (1.0 - core.steal.clamp(0.0, hosts::STEAL_MOST))),
        }
    }

    fn experiments(&self, _seen: &Observed<'_>, _headroom: Option<f64>) -> Vec<Experiment> {
        Vec::new()
    }

    fn advice(&self, seen: &Observed<'_>) -> Vec<Advice> {
        let host = worse(seen);
        let core = robbed(host)
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

/// Confidence, 0 to 1, that the thread would have used what was taken: it, or its packets, used the rest.
fn needed(host: &HostView<'_>) -> f64 {
    let thread = host.busy_share().unwrap_or(0.0);
    let Some(core) = robbed(host) else { return 0.0 };
    hosts::STEAL_NEEDED
        .of((thread + core.softirq) / (1.0 - core.steal.clamp(0.0, hosts::STEAL_MOST)))
}

/// The end whose core the hypervisor took more of, as far as it was needed.
fn worse<'s, 'a>(seen: &'s Observed<'a>) -> &'s HostView<'a> {
    let weigh = |host: &HostView<'_>| stolen(host) * needed(host);
    if weigh(&seen.receiver) > weigh(&seen.sender) { &seen.receiver } else { &seen.sender }
}

fn evidence(host: &HostView<'_>) -> Vec<String> {
    let taken = robbed(host).map(|core| {
        format!(
            "{}: the hypervisor took {} of core {}, which was {} idle",
            host.name(),
            percent(core.steal),
            core.core,
            percent(core.idle)
        )
    });
    taken
        .into_iter()
        .chain(host.thread_text().map(|text| format!("{}: {text}", host.name())))
        .collect()
}
