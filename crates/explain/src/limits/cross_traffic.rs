//! Other traffic on the interfaces of the path.

use results::Limit;
use units::show_bit_rate;

use super::more_streams;
use super::others::{most_other, shares, with_others};
use super::plateau::plateau_evidence;
use crate::advice::Advice;
use crate::experiment::{Experiment, Rule};
use crate::mechanism::{Mechanism, Opinion, Page};
use crate::numbers::{percent, ratio};
use crate::observed::{Observed, end_name};
use crate::thresholds::signs;
use crate::weighing::{self, Weighing};

#[derive(Debug)]
pub(crate) struct CrossTraffic;

impl Mechanism for CrossTraffic {
    fn limit(&self) -> Limit {
        Limit::CrossTraffic
    }

    fn page(&self) -> Page {
        Page {
            title: "other traffic",
            ceiling: "what other traffic leaves of the line or the rate",
            mechanism: "Other connections use the same interface, so the test gets only its share of the line rate or of a rate on the path.",
            evidence: "Bytes the interface carried the same way beyond the test's own, while test and other \
                traffic together reach the line rate, or a rate that nothing lifts.",
            against: "The interface carried little else. Traffic that joins on the path, beyond both \
                interfaces, is not seen there: it looks like a shaper whose rate varies.",
            experiment: "More streams: with more flows the test gets a larger share of the same rate.",
            advice: "Move or schedule the other traffic; give the test's class its share (DSCP, fq, htb).",
        }
    }

    fn weigh(&self, seen: &Observed<'_>) -> Opinion {
        let Some((host, other)) = most_other(seen) else {
            let against = "the interfaces' own counters are unknown".to_owned();
            return Opinion { against, ..Opinion::default() };
        };
        let together = with_others(seen).unwrap_or(other);
        let of_all = ratio(other, together).unwrap_or(0.0);
        let line = seen.line_goodput(host.end);
        let weighed = Weighing::most(signs::LOCATED)
            .by(
                shares(seen),
                "it takes little of the line, or nothing shows a rate that both share",
            )
            .by(seen.unexplained(), weighing::HELD)
            .unless(seen.hosts_full(), 1.0, weighing::HOSTS_FULL);
        let first = format!(
            "{}: {} carried {} of other traffic the same way, {} of all",
            host.name(),
            host.interface().map_or("the interface", |interface| interface.name.as_str()),
            show_bit_rate(other),
            percent(of_all)
        );
        let mut evidence = vec![first.clone()];
        evidence.extend(line.map(|line| {
            format!(
                "with the test that makes {} of the line's {}",
                show_bit_rate(together),
                show_bit_rate(line)
            )
        }));
        evidence.extend(plateau_evidence(seen));
        Opinion {
            weight: weighed.weight(),
            doubt: weighed.doubt(),
            end: Some(host.end),
            evidence,
            against: first,
            ceiling_bits_per_s: None,
        }
    }

    fn experiments(&self, seen: &Observed<'_>, headroom: Option<f64>) -> Vec<Experiment> {
        let more = more_streams(self.limit(), seen, headroom);
        more.map(|experiment| Experiment { rule: Rule::Eases, ..experiment }).into_iter().collect()
    }

    fn advice(&self, seen: &Observed<'_>) -> Vec<Advice> {
        let end = most_other(seen).map_or("near", |(host, _)| end_name(host.end));
        Advice::all(vec![
            format!("find the other traffic at the {end} end: ss -tin, clearstream live"),
            "move it to another time or interface, or give each its share (htb, fq, DSCP)"
                .to_owned(),
        ])
    }
}
