//! The congestion window without loss: slow start, or the algorithm's own choice.

use results::{Limit, TestLimit};
use units::{saturating_u64, show_bit_rate, show_byte_size, show_seconds};

use super::losses::{late, lost_before, marks, none_again, own_drops_bind, several_wait, waits};
use super::packet_core::packet_core_full;
use super::windows::congestion_window_use;
use super::{more_streams, several_streams, several_words};
use crate::advice::Advice;
use crate::ceiling::{is_disproved, window_ceiling};
use crate::change::Change;
use crate::experiment::{Experiment, Prediction, Rule};
use crate::mechanism::{Mechanism, Opinion, Page};
use crate::numbers::{at_least, fine_percent, percent, ratio};
use crate::observed::{Observed, end_name};
use crate::symptoms::names;
use crate::thresholds::{Fitted, path, predictions, signs};
use crate::weighing::{self, Weighing};

#[derive(Debug)]
pub(crate) struct CongestionControl;

impl Mechanism for CongestionControl {
    fn limit(&self) -> Limit {
        Limit::CongestionControl
    }

    fn page(&self) -> Page {
        Page {
            title: "the congestion window, without loss",
            ceiling: "the congestion window over the round-trip time",
            mechanism: "The congestion window over the round-trip time, though little or nothing is lost: the \
                window is still growing (a long path, a short test), slow start ended too early (HyStart), or the algorithm or its pacing chose a lower rate than the path carries.",
            evidence: "The congestion window is used up or paces the sender; neither windows nor buffers nor \
                cores hold it back; window / RTT equals the throughput; throughput still rises through the \
                test, or a test of few round trips ends while the losses of slow start's overshoot are repaired; more \
                streams carry more.",
            against: "More streams carry no more (then a rate is the limit); losses explain the window; a \
                thread never sleeps.",
            experiment: "Leave out the ramp, where throughput still rises; another congestion control; more \
                streams, each with a window of its own: below the next ceiling either loses no more than before.",
            advice: "Another congestion control (BBR), longer tests or transfers, several streams.",
        }
    }

    fn weigh(&self, seen: &Observed<'_>) -> Opinion {
        let rising = rising(seen);
        let unsettled = unsettled(seen);
        let lifted = seen.lifted_by_streams();
        let shown = if seen.shown().path(names::STREAMS_GAIN).is_some() {
            lifted.max(rising)
        } else {
            path::CWND_UNTRIED.max(rising)
        }
        .max(unsettled);
        let used = if paced(seen) || unsettled > signs::LIKELY {
            1.0
        } else {
            congestion_window_use(seen).map_or(path::CWND_USED_UNKNOWN, |used| {
                at_least(path::CWND_USED_LEAST, seen.fit[Fitted::UsedCwnd].of(used))
            })
        };
        let loses = |range| {
            let told = seen.shown().sender_reaches(names::RETRANSMIT_SHARE, range);
            told.unwrap_or(0.0)
        };
        let lost = loses(path::CWND_LOST);
        // Throughput that rises after many losses recovers from them.
        let ramps_up = (rising * (1.0 - loses(path::CWND_RECOVERING))).max(unsettled);
        let weighed = Weighing::most(signs::INDIRECT)
            .by(shown, "more streams carry no more, or were not tried")
            .by(used, "the congestion window is not used up")
            .by(seen.unexplained(), weighing::HELD)
            // Where throughput grows, its mean lags behind the window at the end.
            .by(seen.moves().max(ramps_up), "holes in what is in flight are waited for")
            .by(recorded(seen).max(rising), "what held the sender back was not recorded")
            .unless(lost * (1.0 - ramps_up), path::CWND_OTHER_CAUSE, "losses hold the window down")
            .unless(seen.hosts_full(), 1.0, weighing::HOSTS_FULL)
            // A window that is too small fills no queue, and no way back either.
            .unless(
                seen.queue().max(late(seen) * (1.0 - rising)) * (1.0 - unsettled),
                1.0,
                weighing::QUEUE,
            )
            .unless(
                own_drops_bind(seen).max(marks(seen)),
                path::CWND_OTHER_CAUSE,
                "marks or drops of the sender's own queue hold the window down",
            )
            .unless(
                lost_before(seen),
                path::CWND_OTHER_CAUSE,
                "losses before the measured time cut the window, which has not grown back",
            )
            .unless(
                packet_core_full(seen),
                path::CWND_OTHER_CAUSE,
                "the core that takes the packets has no time left",
            );
        Opinion {
            weight: weighed.weight(),
            doubt: weighed.doubt(),
            end: Some(seen.sender.end),
            evidence: evidence(seen, rising, unsettled),
            against: against(seen),
            ceiling_bits_per_s: law(seen).filter(|_| weighed.weight() > signs::PERHAPS),
        }
    }

    fn experiments(&self, seen: &Observed<'_>, headroom: Option<f64>) -> Vec<Experiment> {
        let rate = seen.rate();
        let mut experiments = Vec::new();
        if let (true, TestLimit::DurationS(duration_s)) =
            (rising(seen).max(unsettled(seen)) > signs::LIKELY, seen.spec.limit)
        {
            let growth = growth(seen)
                .unwrap_or(predictions::OMIT_GROWTH_UNKNOWN)
                .min(predictions::OMIT_GROWTH_MOST);
            let from_s = seen.spec.omit_s;
            experiments.push(Experiment {
                limit: self.limit(),
                change: Change::Omit { from_s, to_s: from_s + duration_s },
                predicted: Prediction::new(
                    rate * predictions::LIFT_LEAST,
                    rate * growth.sqrt(),
                    rate * growth * predictions::OMIT_MOST,
                ),
                rule: Rule::Lifts,
            });
        }
        experiments.extend(more_streams(self.limit(), seen, headroom));
        if let Some(to) = another(seen) {
            let from = seen.setup.congestion_control.clone().unwrap_or_default();
            let most = headroom
                .unwrap_or(rate * predictions::ANOTHER_CONTROL)
                .max(rate * predictions::ANOTHER_CONTROL_EXPECTED);
            experiments.push(Experiment {
                limit: self.limit(),
                change: Change::CongestionControl { from, to },
                predicted: Prediction::new(
                    rate * predictions::ANOTHER_CONTROL_LEAST,
                    most,
                    most.max(rate * predictions::ANOTHER_CONTROL_MOST),
                ),
                rule: Rule::Scales,
            });
        }
        experiments
    }

    fn advice(&self, seen: &Observed<'_>) -> Vec<Advice> {
        let mut lines = Vec::new();
        if rising(seen).max(unsettled(seen)) > signs::PERHAPS {
            let text = "test longer, or leave out the start (--omit): throughput had not settled";
            let from_s = seen.spec.omit_s;
            lines.push(Advice::of(Change::Omit { from_s, to_s: from_s }, text));
        }
        if let Some(name) = another(seen) {
            let end = end_name(seen.sender.end);
            let text =
                format!("at the {end} end: sysctl -w net.ipv4.tcp_congestion_control={name}");
            let from = seen.setup.congestion_control.clone().unwrap_or_default();
            lines.push(Advice::of(Change::CongestionControl { from, to: name }, text));
        }
        if seen.sender.interface().is_some_and(|i| i.route_metrics.contains_key("cwnd")) {
            let end = end_name(seen.sender.end);
            lines.insert(
                0,
                format!("at the {end} end remove `cwnd` from the route: ip route change …").into(),
            );
        }
        let several = "use several streams, each with its own congestion window";
        lines.push(Advice::of(several_streams(seen), several));
        lines
    }
}

/// 1 if the sender's kernel told of its windows, else 0: then a send buffer, pacing or a slow writer would look the same,
/// and more streams would lift each of them.
fn recorded(seen: &Observed<'_>) -> f64 {
    let told = [names::CWND, names::WINDOW_LIMITED, names::BUFFER_LIMITED];
    if told.iter().any(|name| seen.shown().sender(name).is_some()) { 1.0 } else { 0.0 }
}

/// Throughput of the last third of the test over that of the first.
fn growth(seen: &Observed<'_>) -> Option<f64> {
    seen.shown().path(names::GROWTH)
}

fn rising(seen: &Observed<'_>) -> f64 {
    seen.shown().path_reaches(names::GROWTH, path::RISING).unwrap_or(0.0)
}

/// Confidence, 0 to 1, that the test ended while slow start's overshoot was being repaired: few round trips, in which
/// throughput swung, a queue that filled, and one loss event or two.
fn unsettled(seen: &Observed<'_>) -> f64 {
    let of_sender = |name: &str| seen.shown().sender(name);
    let events = || {
        let segments = ratio(of_sender(names::RETRANSMITTED)?, of_sender(names::RETRANSMIT_SHARE)?);
        Some(of_sender(names::LOSS_EVENT_SHARE)? * segments?)
    };
    let round_trips = of_sender(names::RTT).and_then(|rtt_s| ratio(seen.sender.duration_s, rtt_s));
    let (Some(events), Some(round_trips), Some(swing)) =
        (events(), round_trips, seen.shown().path(names::UNSTEADINESS))
    else {
        return 0.0;
    };
    waits(seen).max(several_wait(seen).unwrap_or(0.0))
        * path::UNSETTLED_ROUND_TRIPS.not(round_trips)
        * path::UNSETTLED.of(swing)
        * path::OVERSHOOTS.not(events)
}

/// Segments retransmitted, of those sent, 0 to 1.
fn again(seen: &Observed<'_>) -> Option<f64> {
    seen.shown().sender(names::RETRANSMIT_SHARE)
}

/// Whether the kernel's pacing spaces the packets: its rate then equals the throughput.
fn paced(seen: &Observed<'_>) -> bool {
    let pacing = seen.shown().sender(names::PACING_RATE);
    let pacing = pacing.and_then(|pacing| ratio(pacing, seen.rate()));
    pacing.is_some_and(|of_rate| (path::PACED_FROM..path::PACED_TO).contains(&of_rate))
}

fn law(seen: &Observed<'_>) -> Option<f64> {
    window_ceiling(seen.shown().sender(names::CWND)?, seen.shown().sender(names::RTT)?)
}

/// Another algorithm that the sender has: BBR, or CUBIC if BBR is in use.
fn another(seen: &Observed<'_>) -> Option<String> {
    let names = seen.sysctl(seen.sender.end, "net.ipv4.tcp_available_congestion_control")?;
    let current = seen.setup.congestion_control.as_deref()?;
    ["bbr", "cubic"]
        .into_iter()
        .find(|name| *name != current && names.split_whitespace().any(|offered| offered == *name))
        .map(str::to_owned)
}

fn evidence(seen: &Observed<'_>, rising: f64, unsettled: f64) -> Vec<String> {
    let of_sender = |name: &str| seen.shown().sender(name);
    let mut lines = Vec::new();
    let name = seen.setup.congestion_control.as_deref().unwrap_or("congestion control");
    if let (Some(window), Some(rtt_s), Some(law)) =
        (of_sender(names::CWND), of_sender(names::RTT), law(seen))
    {
        let used = congestion_window_use(seen)
            .map(|used| format!(", {} of that in flight", percent(used)));
        // Half of the time a window that varies is below its median, and the mean rate above what that allows.
        let median = if is_disproved(law, seen.rate()) { "median " } else { "" };
        lines.push(format!(
            "{name}: {median}window {}{} / {} = {}; measured {}",
            show_byte_size(saturating_u64(window)),
            used.unwrap_or_default(),
            show_seconds(rtt_s),
            show_bit_rate(law),
            show_bit_rate(seen.rate())
        ));
    }
    if let Some(locked) = seen.sender.interface().and_then(|i| i.route_metrics.get("cwnd")) {
        lines.push(format!("the sender's route locks the congestion window to {locked} segments"));
    }
    if let (true, Some(growth)) = (rising > 0.0, growth(seen)) {
        lines.push(format!(
            "throughput still rises: the last third carries {growth:.1} times the first"
        ));
    }
    if unsettled > signs::PERHAPS {
        lines.push(format!(
            "throughput had not settled after {}: slow start overshot, and its losses were being repaired",
            show_seconds(seen.sender.duration_s)
        ));
    }
    lines.extend(several_words(seen));
    lines.extend(again(seen).map(|share| match share {
        0.0 => none_again(seen).to_owned(),
        share => format!("{} of the segments retransmitted", fine_percent(share)),
    }));
    lines
}

fn against(seen: &Observed<'_>) -> String {
    let of_sender = |name: &str| seen.shown().sender(name);
    match (seen.streams_gain(), congestion_window_use(seen)) {
        (Some(gain), _) if gain < path::STREAMS_NO_MORE => {
            format!("more streams, more congestion windows: {gain:.2} times as much")
        }
        (_, Some(used)) if used < path::CWND_UNUSED_TOLD => {
            format!("only {} of the congestion window is in flight", percent(used))
        }
        _ if of_sender(names::WINDOW_LIMITED).or(of_sender(names::BUFFER_LIMITED)).is_none() => {
            "what held the sender back was not recorded".to_owned()
        }
        _ if seen.unexplained() < signs::LIKELY => {
            format!("other limits hold it back {} of the time", percent(1.0 - seen.unexplained()))
        }
        _ if seen.queue() > signs::PERHAPS => {
            "round trips grow under load: what its window lets out waits in a queue".to_owned()
        }
        _ if seen.hosts_full() > signs::LIKELY => {
            "the hosts' cores are full before the window is".to_owned()
        }
        _ if again(seen).is_some_and(|share| share > path::CWND_LOST.to) => {
            let share = again(seen).unwrap_or(0.0);
            format!(
                "losses hold its window down: {} of the segments retransmitted",
                fine_percent(share)
            )
        }
        _ => "nothing shows that a larger congestion window would carry more".to_owned(),
    }
}
