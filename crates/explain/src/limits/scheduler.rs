//! Threads that are ready but not running.

use results::Limit;
use units::show_seconds;

use super::causes::throttled;
use super::processor::processor_binds;
use super::trials::cpu_experiments;
use crate::advice::Advice;
use crate::experiment::Experiment;
use crate::mechanism::{Mechanism, Opinion, Page};
use crate::numbers::percent;
use crate::observed::{HostView, Observed, end_name};
use crate::remedy::{Method, Remedy};
use crate::symptoms::names;
use crate::thresholds::{Ramp, hosts, predictions, signs};

#[derive(Debug)]
pub(crate) struct Scheduler;

impl Mechanism for Scheduler {
    fn limit(&self) -> Limit {
        Limit::Scheduler
    }

    fn page(&self) -> Page {
        Page {
            title: "the scheduler",
            ceiling: "the thread running whenever it is ready",
            mechanism: "A stream's thread is ready but does not run: it is niced or has the `idle` or `batch` \
                policy, so that others run first on its core; or it waits for a busy core while others of \
                the host idle and nothing pins it.",
            evidence: "The thread's policy (`/proc/PID/stat`); time ready but waiting and the mean delay \
                from ready to running (`/proc/PID/schedstat`); how often other threads preempted it; idle time \
                of the host's other cores.",
            against: "The thread has the default policy and hardly waits; it is pinned to its core, \
                which is then the limit.",
            experiment: "The scheduling policy can be changed only on the host: run the same test by a program that was started without it \
                (`clearstream explain BEFORE --after AFTER`). If the policy is the default: smaller blocks, which cost the thread more per byte; throughput falls in proportion.",
            advice: "Run the program with the default policy and nice value, or a higher priority (`chrt --rr`, `nice`); keep other work off its cores.",
        }
    }

    fn weigh(&self, seen: &Observed<'_>) -> Opinion {
        let (host, weight) = worse(seen);
        let waited = seen.shown().host(host.end, names::THREAD_WAIT);
        Opinion {
            weight,
            doubt: None,
            end: Some(host.end),
            evidence: evidence(seen, host),
            against: match waited {
                Some(wait) => format!("its threads wait for a core {} of the time", percent(wait)),
                None => "the threads' waiting is unknown".to_owned(),
            },
            // Without waiting, the thread would do the same work in the time it ran.
            ceiling_bits_per_s: waited
                .filter(|_| weight > signs::PERHAPS)
                .map(|wait| seen.rate() / (1.0 - wait.min(hosts::WAIT_MOST))),
        }
    }

    fn experiments(&self, seen: &Observed<'_>, _headroom: Option<f64>) -> Vec<Experiment> {
        let (host, _) = worse(seen);
        // Scheduling priority is not a setting of the test.
        if host.low_policy().is_some() {
            return Vec::new();
        }
        cpu_experiments(self.limit(), seen, host)
    }

    fn host_change(&self, seen: &Observed<'_>, headroom: Option<f64>) -> Option<Remedy> {
        let (host, _) = worse(seen);
        let policy = host.low_policy()?;
        Some(Remedy {
            end: host.end,
            method: Method::ByHand { command: of_shell(policy).0, undo: Some(of_shell(policy).1) },
            predicted_bits_per_s: unheld(seen, host, headroom),
            text: format!(
                "in the shell that starts the {} end's program; started from there it does not run as {policy}, and waits less",
                end_name(host.end)
            ),
        })
    }

    fn advice(&self, seen: &Observed<'_>) -> Vec<Advice> {
        let (host, _) = worse(seen);
        let end = end_name(host.end);
        Advice::all(match host.low_policy() {
            Some(policy) => vec![
                format!(
                    "start the {end} end's program with the default policy, not {policy}: from a shell in which `{}` was run",
                    of_shell(policy).0
                ),
                format!("or give it a core that nobody else uses: --{}", cores_option(host)),
            ],
            None => vec![
                format!("pin the {end} end's threads to idle cores: --{}", cores_option(host)),
                "keep other programs off them (cpuset, isolcpus)".to_owned(),
            ],
        })
    }
}

/// Commands that take a policy from the shell in which they are typed, so that what it starts afterwards has none, and
/// that give it back.
fn of_shell(policy: &str) -> (String, String) {
    match policy.strip_prefix("nice ") {
        Some(nice) => ("sudo renice -n 0 -p $$".to_owned(), format!("renice -n {nice} -p $$")),
        None => ("sudo chrt --other -p 0 $$".to_owned(), format!("chrt --{policy} -p 0 $$")),
    }
}

fn cores_option(host: &HostView<'_>) -> &'static str {
    if host.end == results::End::Near { "cores" } else { "far-cores" }
}

fn unheld(seen: &Observed<'_>, host: &HostView<'_>, headroom: Option<f64>) -> f64 {
    let wait = seen.shown().thread_waited(host.end).min(predictions::STOPPED_MOST);
    (seen.rate() / (1.0 - wait)).min(headroom.unwrap_or(f64::MAX)).max(seen.rate())
}

/// The end whose threads wait more, and the confidence, 0 to 1, that this binds.
fn worse<'s, 'a>(seen: &'s Observed<'a>) -> (&'s HostView<'a>, f64) {
    let weigh = |host: &HostView<'_>| {
        let cpu = processor_binds(seen, host);
        // For a thread of lower priority, waiting for its core is by itself the symptom.
        let waits = waits(seen, host, hosts::LOW_PRIORITY_WAITS);
        let behind = signs::STATED * host.held_behind() * cpu.max(waits * seen.unexplained());
        let unmoved =
            hosts::LEFT_WAITING * cpu * left_waiting(seen, host) * (1.0 - throttled(seen, host));
        behind.max(unmoved)
    };
    let (sender, receiver) = (weigh(&seen.sender), weigh(&seen.receiver));
    if receiver > sender { (&seen.receiver, receiver) } else { (&seen.sender, sender) }
}

/// Confidence, 0 to 1, that an end's thread waits for its core as long as the range asks.
fn waits(seen: &Observed<'_>, host: &HostView<'_>, range: Ramp) -> f64 {
    seen.shown().host_reaches(host.end, names::THREAD_WAIT, range).unwrap_or(0.0)
}

/// Confidence, 0 to 1, that it waits although other cores are idle and nothing pins it.
fn left_waiting(seen: &Observed<'_>, host: &HostView<'_>) -> f64 {
    let free = host.pinned.is_empty() && host.host.is_some_and(|host| host.usable_cores.len() > 1);
    if !free {
        return 0.0;
    }
    waits(seen, host, hosts::LEFT_WAITS)
        * hosts::LEFT_IDLE_CORES.of(seen.idle_cores(host).unwrap_or(0.0))
}

fn evidence(seen: &Observed<'_>, host: &HostView<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(policy) = host.low_policy() {
        lines.push(format!(
            "{}: its stream thread runs as {policy}, so other threads take precedence",
            host.name()
        ));
    }
    lines.extend(seen.thread_text(host).map(|text| format!("{}: {text}", host.name())));
    if let Some(delay_s) = host.thread.delay_s {
        let preempted = host.thread.preempted_per_s.unwrap_or(0.0);
        lines.push(format!(
            "the thread waited {} on average from ready to running; it slept {:.0} times and was preempted {preempted:.0} times per second",
            show_seconds(delay_s),
            host.thread.sleeps_per_s.unwrap_or(0.0)
        ));
    }
    if let Some(idle) = seen.idle_cores(host).filter(|idle| *idle > hosts::LEFT_IDLE_CORES.from) {
        lines.push(format!("{idle:.1} cores of that host were idle meanwhile"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::of_shell;

    #[test]
    fn the_shell_gets_back_what_it_had() {
        let words = |policy| {
            let (without, back) = of_shell(policy);
            format!("{without}; {back}")
        };
        assert_eq!(words("nice 5"), "sudo renice -n 0 -p $$; renice -n 5 -p $$");
        assert_eq!(words("batch"), "sudo chrt --other -p 0 $$; chrt --batch -p 0 $$");
    }
}
