//! Packets paced by the sender's kernel.

use results::Limit;
use units::show_bit_rate;

use super::{lifted, more_streams, several_words};
use crate::advice::Advice;
use crate::ceiling::{ETHERNET_QDISC_BYTES, goodput_ceiling};
use crate::change::Change;
use crate::experiment::Experiment;
use crate::mechanism::{Mechanism, Opinion, Page};
use crate::numbers::{percent, positive, ratio};
use crate::observed::{Observed, end_name};
use crate::remedy::{Method, Remedy};
use crate::symptoms::names;
use crate::thresholds::{path, predictions, signs};
use crate::weighing::Weighing;

#[derive(Debug)]
pub(crate) struct Pacing;

/// A rate at which the kernel paces packets, all streams together.
struct Paced {
    goodput_bits_per_s: f64,
    words: String,
    how: How,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// The test requested it.
    Test,
    /// The application set `SO_MAX_PACING_RATE`.
    Socket,
    /// The queueing discipline fq has a `maxrate`.
    Fq,
}

impl Mechanism for Pacing {
    fn limit(&self) -> Limit {
        Limit::Pacing
    }

    fn page(&self) -> Page {
        Page {
            title: "the sender's pacing",
            ceiling: "the rate the sender's kernel spaces packets at",
            mechanism: "The sender's kernel spaces each connection's packets: at most at the rate its program \
                set (`SO_MAX_PACING_RATE`) or its queueing discipline allows each flow (fq `maxrate`).",
            evidence: "Throughput equals that rate, as read back from the socket or from `tc`; several \
                streams carry several times as much.",
            against: "No such rate is set, or throughput is well below it.",
            experiment: "The same test without its pacing: throughput rises. Under fq's `maxrate`, more \
                streams: each gets as much again.",
            advice: "Raise or leave out the rate: `--pacing-rate`; `tc qdisc change dev DEV root fq maxrate RATE`.",
        }
    }

    fn weigh(&self, seen: &Observed<'_>) -> Opinion {
        let Some(paced) = paced(seen) else {
            return Opinion {
                against: "no pacing rate is set in the sender's kernel".to_owned(),
                end: Some(seen.sender.end),
                ..Opinion::default()
            };
        };
        let reached = ratio(seen.rate(), paced.goodput_bits_per_s).unwrap_or(0.0);
        let line = format!(
            "{}; measured {} ({} of that)",
            paced.words,
            show_bit_rate(seen.rate()),
            percent(reached)
        );
        let weighed = Weighing::most(signs::STATED)
            .by(path::PACING_REACHED.of(reached), "throughput is below the pacing rate")
            .unless(path::PACING_EXCEEDED.of(reached), 1.0, "throughput is above the pacing rate");
        let mut evidence = vec![line.clone()];
        evidence.extend(several_words(seen));
        Opinion {
            weight: weighed.weight(),
            doubt: weighed.doubt(),
            end: Some(seen.sender.end),
            evidence,
            against: line,
            ceiling_bits_per_s: Some(paced.goodput_bits_per_s),
        }
    }

    fn experiments(&self, seen: &Observed<'_>, headroom: Option<f64>) -> Vec<Experiment> {
        match (paced(seen).map(|paced| paced.how), seen.spec.pacing_bits_per_s) {
            (Some(How::Test), Some(from_bits_per_s)) => {
                let change = Change::LiftPacing { from_bits_per_s };
                vec![lifted(self.limit(), seen, change, predictions::OWN_RATE_MOST, headroom)]
            }
            (Some(_), _) => more_streams(self.limit(), seen, headroom).into_iter().collect(),
            (None, _) => Vec::new(),
        }
    }

    fn host_change(&self, seen: &Observed<'_>, headroom: Option<f64>) -> Option<Remedy> {
        let name = &seen.sender.interface()?.name;
        paced(seen).filter(|paced| paced.how == How::Fq).map(|_| Remedy {
            end: seen.sender.end,
            method: Method::ByHand {
                command: format!("tc qdisc change dev {name} root fq maxrate 1000gbit"),
                undo: None,
            },
            predicted_bits_per_s: headroom.unwrap_or(seen.rate() * predictions::CHANGE_TWICE),
            text: "without a rate for each flow, one stream carries more".to_owned(),
        })
    }

    fn advice(&self, seen: &Observed<'_>) -> Vec<Advice> {
        let end = end_name(seen.sender.end);
        Advice::all(match paced(seen).map(|paced| paced.how) {
            Some(How::Test) => vec!["raise or leave out --pacing-rate".to_owned()],
            Some(How::Fq) => {
                let name = seen.sender.interface().map_or("DEV", |interface| &interface.name);
                vec![
                    format!(
                        "at the {end} end raise what fq allows each flow: tc qdisc change dev {name} root fq maxrate 1000gbit"
                    ),
                    "or use several streams: each gets that rate".to_owned(),
                ]
            }
            _ => vec![format!(
                "at the {end} end let the program ask for no SO_MAX_PACING_RATE, or a higher one"
            )],
        })
    }
}

fn paced(seen: &Observed<'_>) -> Option<Paced> {
    let by_test = seen.spec.pacing_bits_per_s.and_then(positive).map(|rate| {
        let all = rate * seen.streams();
        let words = format!("the test asks the kernel to pace at {}", show_bit_rate(all));
        Paced { goodput_bits_per_s: all, words, how: How::Test }
    });
    let by_socket = || {
        let all = seen.shown().sender(names::PACING_MAXIMUM)?;
        let words = format!("SO_MAX_PACING_RATE of its sockets is {} together", show_bit_rate(all));
        Some(Paced { goodput_bits_per_s: all, words, how: How::Socket })
    };
    let by_fq = fq_rate(seen).and_then(|rate| {
        let goodput = goodput_ceiling(seen, rate, ETHERNET_QDISC_BYTES)? * seen.streams();
        let words = format!(
            "fq at the {} end allows each flow {}, {} of payload",
            end_name(seen.sender.end),
            show_bit_rate(rate),
            show_bit_rate(goodput)
        );
        Some(Paced { goodput_bits_per_s: goodput, words, how: How::Fq })
    });
    let own = by_test.or_else(by_socket);
    match (own, by_fq) {
        (Some(own), Some(fq)) if fq.goodput_bits_per_s < own.goodput_bits_per_s => Some(fq),
        (Some(own), _) => Some(own),
        (None, fq) => fq,
    }
}

/// fq's `maxrate` at the sender's interface, bit/s per flow.
fn fq_rate(seen: &Observed<'_>) -> Option<f64> {
    let interface = seen.sender.interface()?;
    let of_facts =
        interface.qdisc_rate_bits_per_s.filter(|_| interface.qdisc.as_deref() == Some("fq"));
    let below = seen.sender.qdiscs().filter(|qdisc| qdisc.kind == "fq");
    let of_counters = below.filter_map(|qdisc| qdisc.rate_bits_per_s).reduce(f64::min);
    of_facts.or(of_counters).and_then(positive)
}
