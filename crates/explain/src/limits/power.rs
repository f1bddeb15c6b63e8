//! Idle states and low clocks of cores.

use results::{IdleStateUse, Limit};
use units::show_seconds;

use super::causes::slow_clock;
use super::processor::processor_binds;
use super::trials::cpu_experiments;
use crate::advice::Advice;
use crate::experiment::Experiment;
use crate::mechanism::{Mechanism, Opinion, Page};
use crate::numbers::{percent, positive};
use crate::observed::{HostView, Observed, end_name};
use crate::remedy::{Method, Remedy, change};
use crate::symptoms::names;
use crate::thresholds::{hosts, signs};

#[derive(Debug)]
pub(crate) struct IdleStates;

#[derive(Debug)]
pub(crate) struct CpuFrequency;

impl Mechanism for IdleStates {
    fn limit(&self) -> Limit {
        Limit::IdleStates
    }

    fn page(&self) -> Page {
        Page {
            title: "idle states",
            ceiling: "cores that are awake when packets come",
            mechanism: "A core that waits for packets enters an idle state, a deeper one the longer it waits; leaving a \
                deep state takes tens to hundreds of microseconds, during which packets and threads wait.",
            evidence: "Entries into deep states (`cpuidle`) times their exit latency is a large part of the time, on the core of a thread that sleeps and wakes often; no other limit explains the throughput.",
            against: "The thread's core never sleeps, or only lightly.",
            experiment: "None by a change to the test alone; with deep states off, throughput or latency improves.",
            advice: "Keep latency-bound cores awake: `cpupower idle-set -D 10`, `tuned-adm profile \
                network-latency`, or a program that holds `/dev/cpu_dma_latency`.",
        }
    }

    fn weigh(&self, seen: &Observed<'_>) -> Opinion {
        let (host, waking) = sleepier(seen);
        let weight = hosts::IDLE_STATES_MOST
            * hosts::WAKING.of(waking)
            * seen.unexplained()
            * (1.0 - seen.hosts_full())
            * (1.0 - seen.queue())
            * (1.0 - hosts::IDLE_STATES_PLATEAU * super::plateau::plateau(seen));
        Opinion {
            weight,
            doubt: None,
            end: Some(host.end),
            evidence: deepest(host)
                .map(|state| {
                    format!(
                        "{}: core {} slept in {} {} times, {} in all; leaving it takes {}: {} of the time spent waking",
                        host.name(),
                        state.core,
                        state.state,
                        state.entered_count,
                        show_seconds(state.time_s),
                        show_seconds(state.exit_latency_us as f64 * 1e-6),
                        percent(waking)
                    )
                })
                .into_iter()
                .collect(),
            against: if deepest(host).is_some() {
                format!("waking its core took {} of the time", percent(waking))
            } else {
                "no host reports idle states".to_owned()
            },
            ceiling_bits_per_s: None,
        }
    }

    fn experiments(&self, _seen: &Observed<'_>, _headroom: Option<f64>) -> Vec<Experiment> {
        Vec::new()
    }

    fn host_change(&self, seen: &Observed<'_>, _headroom: Option<f64>) -> Option<Remedy> {
        let (host, waking) = sleepier(seen);
        deepest(host).map(|_| Remedy {
            end: host.end,
            method: Method::ByHand {
                command: "cpupower idle-set -D 10".to_owned(),
                undo: Some("cpupower idle-set -E".to_owned()),
            },
            predicted_bits_per_s: seen.rate() * (1.0 + waking),
            text: "with states that take more than 10 us to leave switched off, throughput rises"
                .to_owned(),
        })
    }

    fn advice(&self, seen: &Observed<'_>) -> Vec<Advice> {
        let end = end_name(sleepier(seen).0.end);
        Advice::all(vec![format!(
            "keep the {end} end's cores awake: cpupower idle-set -D 10, or tuned-adm profile network-latency"
        )])
    }
}

/// The deep idle state that costs the busiest thread's core most.
fn deepest<'a>(host: &HostView<'a>) -> Option<&'a IdleStateUse> {
    let core = host.thread.incoming_core.or(host.thread.core)?;
    let states = host.counters?.idle_states.iter().filter(|state| state.core == core);
    let cost = |state: &IdleStateUse| state.exit_latency_us.saturating_mul(state.entered_count);
    states.filter(|state| state.exit_latency_us >= 10).max_by_key(|state| cost(state))
}

/// The end whose core takes longer to wake up, and the part of the time, 0 to 1, that this takes.
fn sleepier<'s, 'a>(seen: &'s Observed<'a>) -> (&'s HostView<'a>, f64) {
    let waking = |host: &HostView<'_>| seen.shown().host(host.end, names::IDLE_EXIT).unwrap_or(0.0);
    let (sender, receiver) = (waking(&seen.sender), waking(&seen.receiver));
    if sender > receiver { (&seen.sender, sender) } else { (&seen.receiver, receiver) }
}

impl Mechanism for CpuFrequency {
    fn limit(&self) -> Limit {
        Limit::CpuFrequency
    }

    fn page(&self) -> Page {
        Page {
            title: "the processor's clock",
            ceiling: "the core at its highest clock",
            mechanism: "A core that has no time left runs below the clock it could have: a governor that \
                saves power, a lowered maximum, a hot or power-limited processor.",
            evidence: "`scaling_cur_freq` of the thread's core against `cpuinfo_max_freq`, and the governor's \
                maximum; the thread never sleeps.",
            against: "The clock is near its highest, or the thread has time to spare; most virtual machines \
                do not show a clock.",
            experiment: "Smaller blocks, which cost more per byte: throughput falls in proportion, so processor time is the limit. A higher clock: `cpupower frequency-set -g performance`.",
            advice: "Governor `performance`; lift `scaling_max_freq`; look for thermal or power limits.",
        }
    }

    fn weigh(&self, seen: &Observed<'_>) -> Opinion {
        let host = slower(seen);
        let weight = signs::SEEN * processor_binds(seen, host) * slow_clock(seen, host);
        let clock = of_maximum(seen, host);
        Opinion {
            weight,
            doubt: None,
            end: Some(host.end),
            evidence: evidence(seen, host),
            against: match clock {
                Some(clock) => {
                    format!("its core runs at {} of its highest clock", percent(clock))
                }
                None => "no host reports its clock".to_owned(),
            },
            ceiling_bits_per_s: clock
                .filter(|_| weight > signs::PERHAPS)
                .map(|clock| seen.rate() / clock),
        }
    }

    fn experiments(&self, seen: &Observed<'_>, _headroom: Option<f64>) -> Vec<Experiment> {
        cpu_experiments(self.limit(), seen, slower(seen))
    }

    fn host_change(&self, seen: &Observed<'_>, headroom: Option<f64>) -> Option<Remedy> {
        let host = slower(seen);
        let faster = seen.rate() / of_maximum(seen, host)?;
        let method = governor(seen, host).map_or_else(
            || Method::ByHand {
                command: "cpupower frequency-set -g performance".to_owned(),
                undo: None,
            },
            |change| Method::Settings(vec![change]),
        );
        Some(Remedy {
            end: host.end,
            method,
            predicted_bits_per_s: faster.min(headroom.unwrap_or(f64::MAX)).max(seen.rate()),
            text: "at the highest clock throughput rises in proportion, up to the next ceiling"
                .to_owned(),
        })
    }

    fn advice(&self, seen: &Observed<'_>) -> Vec<Advice> {
        let end = end_name(slower(seen).end);
        Advice::all(vec![
            format!(
                "at the {end} end: cpupower frequency-set -g performance, and raise scaling_max_freq if it is lowered"
            ),
            "look for thermal throttling and power limits (turbostat)".to_owned(),
        ])
    }
}

/// Clock of an end's core over its highest, above 0 up to 1.
fn of_maximum(seen: &Observed<'_>, host: &HostView<'_>) -> Option<f64> {
    seen.shown().host(host.end, names::THREAD_CLOCK).and_then(positive)
}

/// The governor of the one core that the test was pinned to at this end; a thread that may move between
/// cores has no single governor to change.
fn governor(seen: &Observed<'_>, host: &HostView<'_>) -> Option<settings::Change> {
    let near = host.end == results::End::Near;
    let cores = if near { &seen.spec.near_cores } else { &seen.spec.far_cores };
    let [core] = cores.as_slice() else { return None };
    let frequency = host.machine()?.core(*core)?.frequency.as_ref()?;
    change(&format!("cpu:{core}/governor"), Some(&frequency.governor), "performance")
}

fn slower<'s, 'a>(seen: &'s Observed<'a>) -> &'s HostView<'a> {
    let weigh = |host: &HostView<'_>| processor_binds(seen, host) * slow_clock(seen, host);
    if weigh(&seen.receiver) > weigh(&seen.sender) { &seen.receiver } else { &seen.sender }
}

fn evidence(seen: &Observed<'_>, host: &HostView<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    if let (Some((now, most)), Some(core)) = (host.clock_khz(), host.thread.core) {
        lines.push(format!(
            "{}: core {core} ran at {:.2} GHz of {:.2} GHz ({})",
            host.name(),
            now / 1e6,
            most / 1e6,
            percent(now / most)
        ));
        let frequency = host.machine().and_then(|machine| machine.core(core)?.frequency.as_ref());
        if let Some(frequency) = frequency {
            let most = frequency.max_khz.map(|khz| format!(", up to {:.2} GHz", khz as f64 / 1e6));
            lines.push(format!(
                "its governor is {}{}",
                frequency.governor,
                most.unwrap_or_default()
            ));
        }
    }
    lines.extend(seen.thread_text(host).map(|text| format!("{}: {text}", host.name())));
    lines
}
