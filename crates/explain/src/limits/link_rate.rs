//! The line rate of an interface.

use results::{End, Limit};
use units::show_bit_rate;

use super::plateau::{best, plateau, plateau_evidence};
use super::trials::stays;
use crate::advice::Advice;
use crate::ceiling::{ETHERNET_WIRE_BYTES, after_headers, goodput_ceiling};
use crate::experiment::Experiment;
use crate::mechanism::{Mechanism, Opinion, Page};
use crate::numbers::percent;
use crate::observed::{Observed, end_name, opposite};
use crate::thresholds::{path, signs};
use crate::weighing::{self, Weighing};

#[derive(Debug)]
pub(crate) struct LinkRate;

/// An interface and the payload it can carry.
struct Line {
    end: End,
    line_bits_per_s: f64,
    goodput_bits_per_s: f64,
}

impl Mechanism for LinkRate {
    fn limit(&self) -> Limit {
        Limit::LinkRate
    }

    fn page(&self) -> Page {
        Page {
            title: "the line rate of an interface",
            ceiling: "line rate less headers",
            mechanism: "An interface sends at its line rate and no faster. Of that, payload gets what the \
                headers leave: at MTU 1500 with Ethernet, IPv4 and TCP 94.1%, at MTU 9000 99.1%.",
            evidence: "Throughput within a few percent of line rate less headers, at the slower end's \
                interface; more streams and UDP carry no more.",
            against: "Throughput is well below it.",
            experiment: "More streams: nothing changes.",
            advice: "A faster interface or a second one; larger MTU where headers count.",
        }
    }

    fn weigh(&self, seen: &Observed<'_>) -> Opinion {
        let Some(line) = slowest(seen) else {
            let against = "no interface reports its line rate".to_owned();
            return Opinion { against, ..Opinion::default() };
        };
        let reached = seen.rate() / line.goodput_bits_per_s;
        // One stream may leave a little of the line unused that several streams fill.
        let of_all = best(seen) / line.goodput_bits_per_s;
        let nearly = path::LINE_BY_SEVERAL.of(of_all)
            * path::LINE_NEARLY.of(reached)
            * (1.0 - seen.hosts_full());
        let at_the_line = path::LINE_REACHED.of(reached).max(nearly * seen.unexplained());
        // Payload above the line's capacity: the speed that the device reports is not real.
        let believed = path::LINE_EXCEEDED.not(of_all);
        let shown = if plateau(seen) > signs::LIKELY { signs::STATED } else { signs::INDIRECT };
        let weighed = Weighing::most(shown)
            .by(at_the_line, "throughput is below the line's")
            .by(believed, "more was carried than the line's rate")
            .unless(seen.lifted_by_streams(), path::LIFTED_LINE, weighing::LIFTED);
        let ceiling = after_headers(line.goodput_bits_per_s, line.line_bits_per_s);
        let first = format!(
            "the {} end's interface can carry {ceiling}; measured {} ({})",
            end_name(line.end),
            show_bit_rate(seen.rate()),
            percent(reached)
        );
        Opinion {
            weight: weighed.weight(),
            doubt: weighed.doubt(),
            end: Some(line.end),
            evidence: std::iter::once(first.clone()).chain(plateau_evidence(seen)).collect(),
            against: first,
            ceiling_bits_per_s: (believed > signs::LIKELY).then_some(line.goodput_bits_per_s),
        }
    }

    fn experiments(&self, seen: &Observed<'_>, _headroom: Option<f64>) -> Vec<Experiment> {
        // The start of a short test costs one stream a part of the line.
        stays(self.limit(), seen, best(seen))
    }

    fn advice(&self, seen: &Observed<'_>) -> Vec<Advice> {
        let mut lines = vec!["nothing to tune: use a faster interface, or a second one".to_owned()];
        if seen.path_mtu_bytes().is_some_and(|mtu| mtu <= path::MTU_USUAL_BYTES) {
            lines.push(
                "a larger MTU (9000) along the whole path gives headers less of the line"
                    .to_owned(),
            );
        }
        Advice::all(lines)
    }
}

/// The interface with the lowest goodput; if equal, the sender's, where the queue builds up.
fn slowest(seen: &Observed<'_>) -> Option<Line> {
    let ends = [seen.sender.end, opposite(seen.sender.end)];
    let lines = ends.into_iter().filter_map(|end| {
        let line_bits_per_s = crate::numbers::positive(seen.interface(end)?.speed_bits_per_s?)?;
        let goodput_bits_per_s = goodput_ceiling(seen, line_bits_per_s, ETHERNET_WIRE_BYTES)?;
        Some(Line { end, line_bits_per_s, goodput_bits_per_s })
    });
    lines.min_by(|a, b| a.goodput_bits_per_s.total_cmp(&b.goodput_bits_per_s))
}
