//! Applications that offer or read less than the path carries.

use results::Limit;
use units::{saturating_u64, show_bit_rate, show_byte_size};

use super::lifted;
use crate::advice::Advice;
use crate::change::Change;
use crate::experiment::Experiment;
use crate::mechanism::{Mechanism, Opinion, Page};
use crate::numbers::{percent, ratio};
use crate::observed::{Observed, end_name};
use crate::symptoms::names;
use crate::thresholds::{Fitted, path, predictions, signs};

#[derive(Debug)]
pub(crate) struct SendingApplication;

#[derive(Debug)]
pub(crate) struct ReceivingApplication;

impl Mechanism for SendingApplication {
    fn limit(&self) -> Limit {
        Limit::SendingApplication
    }

    fn page(&self) -> Page {
        Page {
            title: "the sending application",
            ceiling: "the rate the application offers",
            mechanism: "The sending application writes less than the connection could carry.",
            evidence: "Throughput equals the rate that the application was configured to offer; it paused by choice; the connection \
                had nothing outstanding for part of the time, or its delivery was application-limited, while \
                the sending thread had processor time to spare.",
            against: "The thread never sleeps (then its core is the limit); data waits in the send buffer.",
            experiment: "The same test without the offered rate: throughput rises to the next ceiling.",
            advice: "Let the application write faster: larger blocks, more in flight, no rate limit of its own.",
        }
    }

    fn weigh(&self, seen: &Observed<'_>) -> Opinion {
        let reached = seen
            .spec
            .offered_bits_per_s
            .and_then(|offered| ratio(seen.rate(), offered * seen.streams()));
        let paused = seen.sender_idle();
        let of_sender = |name: &str| seen.shown().sender(name);
        let weight = match reached {
            Some(reached) => signs::STATED * path::OFFERED_REACHED.of(reached),
            None => path::PAUSED.of(paused),
        };
        let mut evidence = Vec::new();
        if let (Some(offered), Some(reached)) = (seen.spec.offered_bits_per_s, reached) {
            evidence.push(format!(
                "the application offers {} per stream; measured {} ({} of that)",
                show_bit_rate(offered),
                show_bit_rate(seen.rate()),
                percent(reached)
            ));
        }
        if let Some(idle) = of_sender(names::WRITER_IDLE).filter(|idle| *idle > 0.0) {
            evidence.push(format!("it paused by choice {} of the time", percent(idle)));
        }
        // Over a long round trip something is outstanding though the application pauses.
        if let Some(busy) = of_sender(names::BUSY).filter(|busy| *busy < path::OUTSTANDING_TOLD) {
            evidence
                .push(format!("the connection had data outstanding {} of the time", percent(busy)));
        }
        if let Some(limited) =
            of_sender(names::APPLICATION_LIMITED).filter(|limited| *limited > 0.0)
        {
            evidence.push(format!(
                "delivery was application-limited in {} of the samples",
                percent(limited)
            ));
        }
        Opinion {
            weight,
            doubt: None,
            end: Some(seen.sender.end),
            against: match reached {
                Some(reached) => {
                    format!("it offers more: {} of its rate got through", percent(reached))
                }
                None if !seen.tells_idle() => "whether it paused was not seen".to_owned(),
                None => format!("it left the connection idle {} of the time", percent(paused)),
            },
            evidence,
            ceiling_bits_per_s: seen
                .spec
                .offered_bits_per_s
                .map(|offered| offered * seen.streams()),
        }
    }

    fn experiments(&self, seen: &Observed<'_>, headroom: Option<f64>) -> Vec<Experiment> {
        let lift = |from_bits_per_s| {
            let change = Change::LiftOfferedRate { from_bits_per_s };
            lifted(self.limit(), seen, change, predictions::OWN_RATE_MOST, headroom)
        };
        seen.spec.offered_bits_per_s.map(lift).into_iter().collect()
    }

    fn advice(&self, seen: &Observed<'_>) -> Vec<Advice> {
        Advice::all(match seen.spec.offered_bits_per_s {
            Some(_) => vec!["offer more: raise or leave out --offered-rate".to_owned()],
            None => {
                vec!["make the application write more at a time, or from more threads".to_owned()]
            }
        })
    }
}

impl Mechanism for ReceivingApplication {
    fn limit(&self) -> Limit {
        Limit::ReceivingApplication
    }

    fn page(&self) -> Page {
        Page {
            title: "the receiving application",
            ceiling: "the rate the application reads at",
            mechanism: "The receiving application reads less than arrives; unread data fills its socket, \
                and the window closes.",
            evidence: "Throughput equals the rate at which the application was configured to read; unread data fills the receive queue \
                while the reading thread neither runs nor waits for its core; the sender is held back by \
                the receive window.",
            against: "The receive queue is empty; the reading thread never sleeps (then its core is the limit).",
            experiment: "The same test without the read rate: throughput rises to the next ceiling.",
            advice: "Let the application read faster: larger reads, no work between them, more threads.",
        }
    }

    fn weigh(&self, seen: &Observed<'_>) -> Opinion {
        let reached =
            seen.spec.read_bits_per_s.and_then(|read| ratio(seen.rate(), read * seen.streams()));
        let weight = match reached {
            Some(reached) => {
                signs::STATED * path::READ_REACHED.of(reached) * path::READ_EXCEEDED.not(reached)
            }
            None => unasked_weight(seen),
        };
        Opinion {
            weight,
            doubt: None,
            end: Some(seen.receiver.end),
            evidence: reading_evidence(seen, reached),
            against: match (reached, fullness(seen)) {
                (Some(reached), _) => {
                    format!("it reads more: {} of its rate arrived", percent(reached))
                }
                (None, Some(fullness)) => {
                    format!("it keeps up: its socket is {} full", percent(fullness))
                }
                (None, None) => "its socket's queue was not seen".to_owned(),
            },
            ceiling_bits_per_s: seen.spec.read_bits_per_s.map(|read| read * seen.streams()),
        }
    }

    fn experiments(&self, seen: &Observed<'_>, headroom: Option<f64>) -> Vec<Experiment> {
        let lift = |from_bits_per_s| {
            let change = Change::LiftReadRate { from_bits_per_s };
            lifted(self.limit(), seen, change, predictions::OWN_RATE_MOST, headroom)
        };
        seen.spec.read_bits_per_s.map(lift).into_iter().collect()
    }

    fn advice(&self, seen: &Observed<'_>) -> Vec<Advice> {
        Advice::all(match seen.spec.read_bits_per_s {
            Some(_) => vec!["read faster: raise or leave out --read-rate".to_owned()],
            None => {
                vec!["make the application read more at a time, or from more threads".to_owned()]
            }
        })
    }
}

/// How full the receiver's socket is, 0 (the reader keeps up) to 1 (it does not).
fn fullness(seen: &Observed<'_>) -> Option<f64> {
    seen.shown().receiver(names::SOCKET_FULLNESS)
}

/// Weight of a slow reader without a requested read rate: its socket is full although its thread has time.
fn unasked_weight(seen: &Observed<'_>) -> f64 {
    let held_back = path::HELD_BY_READER.of(seen.receive_window_share());
    let slow_reader = seen.fit[Fitted::SlowReader];
    let Some(full) = seen.shown().receiver_reaches(names::SOCKET_FULLNESS, slow_reader) else {
        let steadiness = seen.shown().sender(names::PEER_WINDOW_STEADINESS);
        let unsteady = steadiness.map_or(0.0, |steady| path::STEADY_WINDOW.not(steady));
        return path::READER_UNSEEN * unsteady * held_back;
    };
    // Reported pauses count; without them, the time in which the thread neither ran nor waited.
    match (seen.shown().receiver(names::READER_IDLE), seen.shown().thread_busy(seen.receiver.end)) {
        (Some(paused), _) => full * held_back * path::READER_PAUSED.of(paused),
        (None, Some(busy)) => full * held_back * path::READER_AT_WORK.not(busy),
        (None, None) => path::READER_UNTIMED * full * held_back,
    }
}

fn reading_evidence(seen: &Observed<'_>, reached: Option<f64>) -> Vec<String> {
    let mut lines = Vec::new();
    if let (Some(read), Some(reached)) = (seen.spec.read_bits_per_s, reached) {
        lines.push(format!(
            "the application reads at {} per stream; measured {} ({} of that)",
            show_bit_rate(read),
            show_bit_rate(seen.rate()),
            percent(reached)
        ));
    }
    if let (Some(unread), Some(fullness)) =
        (seen.shown().receiver(names::RECEIVE_QUEUE), fullness(seen))
    {
        lines.push(format!(
            "{} lie unread in its socket, {} of what it can hold",
            show_byte_size(saturating_u64(unread)),
            percent(fullness)
        ));
    }
    lines.push(format!(
        "receive-window-limited {} of the time",
        percent(seen.receive_window_share())
    ));
    if let Some(busy) = seen.shown().thread_busy(seen.receiver.end) {
        let end = end_name(seen.receiver.end);
        lines.push(format!("the {end} end's thread had work only {} of the time", percent(busy)));
    }
    lines
}
