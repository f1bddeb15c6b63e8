//! Figures: measured values with a name and a unit, and the names that readers look for.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::hosts::NEAR;
use crate::outcome::{DirectionOutcome, EndReport, LatencySummary, TestOutcome};
use crate::point::{Point, PointOutcome};
use crate::spec::Direction;

/// Goodput near to far, at the receiver, bit/s.
pub const FORWARD_RECEIVED_BITS_PER_S: &str = "forward_received_bits_per_s";
/// Goodput far to near, at the receiver, bit/s.
pub const REVERSE_RECEIVED_BITS_PER_S: &str = "reverse_received_bits_per_s";
/// TCP retransmissions, all directions.
pub const RETRANSMITS_COUNT: &str = "retransmits_count";
/// Transactions a second, all streams.
pub const TRANSACTIONS_PER_S: &str = "transactions_per_s";
/// Median round trip, seconds.
pub const RTT_P50_S: &str = "rtt_p50_s";
/// Median round trip while the path is loaded, seconds.
pub const LOADED_RTT_P50_S: &str = "loaded_rtt_p50_s";
/// Processor time of both ends' testing processes for 10^9 bits of payload, seconds.
pub const CPU_S_PER_GBIT: &str = "cpu_s_per_gbit";
/// Frames that came in, 1/s.
pub const RECEIVED_PKTS_PER_S: &str = "received_pkts_per_s";
/// Bytes of frames that came in, bit/s.
pub const RECEIVED_BITS_PER_S: &str = "received_bits_per_s";
/// States a search found, 1/s.
pub const STATES_PER_S: &str = "states_per_s";
/// Energy above idle for 10^9 bits of payload, joules.
pub const JOULES_PER_GBIT: &str = "joules_per_gbit";
/// Power while nothing is asked of the host, watts.
pub const IDLE_WATTS: &str = "idle_watts";

/// One measured value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Figure {
    /// Name; ends in its unit.
    pub name: String,
    /// Its unit.
    pub unit: Unit,
    /// The value.
    pub value: f64,
}

/// Unit of a figure. A reader keeps units that it does not know unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Unit {
    /// Bits per second.
    BitsPerS,
    /// Packets or frames per second.
    PktsPerS,
    /// Other events per second: states, transactions, datagrams.
    PerS,
    /// Seconds.
    S,
    /// Seconds for 10^9 bits.
    SPerGbit,
    /// Joules for 10^9 bits.
    JoulesPerGbit,
    /// Watts.
    Watts,
    /// Bytes.
    Bytes,
    /// Bytes per second.
    BytesPerS,
    /// A number of items.
    Count,
    /// A part of a whole, 0 to 1.
    Share,
    /// Another unit, unchanged.
    #[serde(untagged)]
    Other(String),
}

/// Values over the time of one point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Series {
    /// Name; ends in its unit.
    pub name: String,
    /// Unit of the values.
    pub unit: Unit,
    /// When each value was taken, or its interval ended: seconds since the point began.
    pub at_s: Vec<f64>,
    /// The values, one for each time.
    pub values: Vec<f64>,
}

impl Unit {
    /// The unit that a figure's name ends in.
    #[must_use]
    pub fn of_name(name: &str) -> Self {
        /// Endings, a longer one before what it ends in.
        const ENDINGS: [(&str, Unit); 11] = [
            ("_bits_per_s", Unit::BitsPerS),
            ("_pkts_per_s", Unit::PktsPerS),
            ("_bytes_per_s", Unit::BytesPerS),
            ("_per_s", Unit::PerS),
            ("joules_per_gbit", Unit::JoulesPerGbit),
            ("_s_per_gbit", Unit::SPerGbit),
            ("_s", Unit::S),
            ("_watts", Unit::Watts),
            ("_bytes", Unit::Bytes),
            ("_count", Unit::Count),
            ("_share", Unit::Share),
        ];
        let known = ENDINGS.into_iter().find(|(ending, _)| name.ends_with(ending));
        known.map_or_else(
            || Self::Other(name.rsplit('_').next().unwrap_or_default().to_owned()),
            |(_, unit)| unit,
        )
    }
}

impl Figure {
    /// A figure; its unit is the one that its name ends in.
    #[must_use]
    pub fn new(name: impl Into<String>, value: f64) -> Self {
        let name = name.into();
        Self { unit: Unit::of_name(&name), name, value }
    }
}

impl Point {
    /// Every figure of the point, each name once: those that follow from the accounts of a test
    /// between two hosts, then the others that were measured. A failed point has none.
    ///
    /// Figures of a test, `D` being `forward` or `reverse`: `D_received_bits_per_s`,
    /// `D_sent_bits_per_s`, `D_lost_share` (UDP: of the datagrams lost or received, 0 to 1),
    /// `D_reordered_share`, `D_delivered_datagrams_per_s`, `D_jitter_s` (at the end of the
    /// test), `D_jitter_max_s` (the largest at the end of an interval), `D_standing_delay_s` (how long datagrams waited
    /// in queues); `retransmits_count`;
    /// `rtt_p50_s`, `rtt_p99_s`, `rtt_p99.9_s`, `transactions_per_s` (request/response and idle
    /// round trips); `loaded_rtt_p50_s`, `loaded_rtt_p99_s`; `cpu_s_per_gbit` (both ends),
    /// `near_cpu_s_per_gbit`, `far_cpu_s_per_gbit` (of the testing process, per 10^9 bits of payload
    /// delivered).
    #[must_use]
    pub fn figures(&self) -> Vec<Figure> {
        match &self.outcome {
            PointOutcome::Measured(outcome) => outcome.all_figures(),
            PointOutcome::Failed(_) => Vec::new(),
        }
    }
}

impl TestOutcome {
    /// The same with every figure that follows from the accounts written out in `figures`.
    #[must_use]
    pub fn with_figures(mut self) -> Self {
        self.figures = self.all_figures();
        self
    }

    /// The largest jitter (RFC 3550) that a stream of this direction had at the end of an interval, seconds. The
    /// omitted start does not count. Absent where the receiver did not report its intervals.
    #[must_use]
    pub fn jitter_max_s(&self, direction: Direction) -> Option<f64> {
        // With one direction only one end receives; recordings may call either of them near.
        let receives = |host: &str| {
            self.directions.len() == 1 || (host == NEAR) == (direction == Direction::Reverse)
        };
        let receivers = self.hosts.iter().filter(|end| receives(&end.host));
        let streams = receivers.flat_map(|end| &end.account.streams).filter(|one| !one.sending);
        let intervals = streams.flat_map(|one| &one.intervals).filter(|one| !one.omitted);
        intervals.filter_map(|interval| interval.jitter_s).reduce(f64::max)
    }

    fn all_figures(&self) -> Vec<Figure> {
        let mut figures = Vec::new();
        test_figures(self, &mut figures);
        let own = figures.len();
        for figure in &self.figures {
            let is_known = figures[..own].iter().any(|known| known.name == figure.name);
            if !is_known && !self.lacks_percentile(&figure.name) {
                figures.push(figure.clone());
            }
        }
        figures
    }

    /// Whether a figure is a percentile that the account's count cannot give: earlier versions wrote it all the same.
    fn lacks_percentile(&self, name: &str) -> bool {
        let exchanged = self.request_response.as_ref().map(|one| &one.latency);
        let of = |kind: &str| match kind {
            "rtt" => exchanged.or(self.round_trips.as_ref()),
            "loaded_rtt" => self.latency_under_load.as_ref(),
            _ => None,
        };
        let asked = name.strip_suffix("_s").and_then(|name| name.rsplit_once("_p"));
        let asked = asked.and_then(|(kind, value)| Some((of(kind)?, value.parse().ok()?)));
        asked.is_some_and(|(latency, percentile)| latency.percentile_s(percentile).is_none())
    }
}

fn test_figures(outcome: &TestOutcome, figures: &mut Vec<Figure>) {
    for direction in &outcome.directions {
        direction_figures(direction, outcome.duration_s, figures);
        if let Some(jitter_s) = outcome.jitter_max_s(direction.direction) {
            figures.push(Figure::new(format!("{}_jitter_max_s", way(direction)), jitter_s));
        }
    }
    let retransmits: Vec<u64> =
        outcome.directions.iter().filter_map(|d| d.retransmits_count).collect();
    if !retransmits.is_empty() {
        let sum = retransmits.iter().map(|count| *count as f64).sum();
        figures.push(Figure::new(RETRANSMITS_COUNT, sum));
    }
    if let Some(transactions) = &outcome.request_response {
        figures.push(Figure::new(TRANSACTIONS_PER_S, transactions.transactions_per_s));
        latency_figures("rtt", &transactions.latency, figures);
    }
    if let Some(latency) = &outcome.round_trips {
        latency_figures("rtt", latency, figures);
    }
    if let Some(latency) = &outcome.latency_under_load {
        latency_figures("loaded_rtt", latency, figures);
    }
    processor_figures(outcome, figures);
}

fn direction_figures(outcome: &DirectionOutcome, duration_s: f64, figures: &mut Vec<Figure>) {
    let way = way(outcome);
    let mut add =
        |name: &str, value: f64| figures.push(Figure::new(format!("{way}_{name}"), value));
    add("received_bits_per_s", outcome.received_bits_per_s);
    add("sent_bits_per_s", outcome.sent_bits_per_s);
    let Some(udp) = &outcome.udp else { return };
    if let Some(share) = udp.lost_share() {
        add("lost_share", share);
    }
    if udp.sent_count > 0 {
        add("reordered_share", (udp.reordered_count as f64 / udp.sent_count as f64).min(1.0));
    }
    if duration_s > 0.0 {
        add("delivered_datagrams_per_s", udp.received_count as f64 / duration_s);
    }
    if let Some(jitter_s) = udp.jitter_s {
        add("jitter_s", jitter_s);
    }
    if let Some(delay_s) = udp.standing_delay_s {
        add("standing_delay_s", delay_s);
    }
}

fn way(outcome: &DirectionOutcome) -> &'static str {
    match outcome.direction {
        Direction::Forward => "forward",
        Direction::Reverse => "reverse",
        Direction::Bidirectional => "bidirectional",
    }
}

fn latency_figures(name: &str, latency: &LatencySummary, figures: &mut Vec<Figure>) {
    for percentile in [50.0, 99.0, 99.9] {
        if let Some(value_s) = latency.percentile_s(percentile) {
            figures.push(Figure::new(format!("{name}_p{percentile}_s"), value_s));
        }
    }
}

fn processor_figures(outcome: &TestOutcome, figures: &mut Vec<Figure>) {
    let delivered_gbit: f64 =
        outcome.directions.iter().map(|d| d.received_bytes as f64 * 8e-9).sum();
    if delivered_gbit <= 0.0 {
        return;
    }
    let used_s = |end: &EndReport| end.process_cpu_s.map(|(user_s, system_s)| user_s + system_s);
    let near_s = used_s(outcome.near());
    let far_s = outcome.far().and_then(used_s);
    let both_s = near_s.zip(far_s).map(|(near_s, far_s)| near_s + far_s);
    for (name, used_s) in
        [(CPU_S_PER_GBIT, both_s), ("near_cpu_s_per_gbit", near_s), ("far_cpu_s_per_gbit", far_s)]
    {
        figures.extend(used_s.map(|used_s| Figure::new(name, used_s / delivered_gbit)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::HostAccount;
    use crate::stream::{IntervalSample, StreamEnd};

    #[test]
    fn a_name_tells_its_unit() {
        for (name, unit) in [
            (FORWARD_RECEIVED_BITS_PER_S, Unit::BitsPerS),
            (RECEIVED_PKTS_PER_S, Unit::PktsPerS),
            (STATES_PER_S, Unit::PerS),
            (JOULES_PER_GBIT, Unit::JoulesPerGbit),
            (CPU_S_PER_GBIT, Unit::SPerGbit),
            (RTT_P50_S, Unit::S),
            (IDLE_WATTS, Unit::Watts),
            ("near_sent_bytes", Unit::Bytes),
            ("height_furlongs", Unit::Other("furlongs".to_owned())),
        ] {
            assert_eq!(Unit::of_name(name), unit, "{name}");
        }
    }

    #[test]
    fn a_unit_of_a_later_version_is_kept_as_it_is() {
        let figure: Figure =
            serde_json::from_str(r#"{"name":"x_kelvin","unit":"kelvin","value":2.7}"#)
                .expect("read");
        assert_eq!(figure.unit, Unit::Other("kelvin".to_owned()));
        assert!(serde_json::to_string(&figure).expect("written").contains(r#""unit":"kelvin""#));
    }

    #[test]
    fn a_stored_percentile_that_its_count_cannot_give_is_no_figure() {
        let mut histogram = stats::LatencyHistogram::default();
        histogram.record_many_ns(1_000_000, 300);
        let outcome = TestOutcome {
            latency_under_load: LatencySummary::of(&histogram, "tcp-rr"),
            figures: vec![Figure::new("loaded_rtt_p99.9_s", 0.001), Figure::new(IDLE_WATTS, 5.0)],
            ..TestOutcome::default()
        };
        let figures = outcome.with_figures().figures;
        let names: Vec<&str> = figures.iter().map(|figure| figure.name.as_str()).collect();
        assert_eq!(names, ["loaded_rtt_p50_s", "loaded_rtt_p99_s", IDLE_WATTS]);
    }

    #[test]
    fn the_largest_jitter_is_that_of_the_worst_interval_of_the_receiver() {
        let stream = |sending, jitters: &[(f64, bool)]| StreamEnd {
            sending,
            intervals: jitters
                .iter()
                .map(|&(jitter_s, omitted)| IntervalSample {
                    jitter_s: Some(jitter_s),
                    omitted,
                    ..IntervalSample::default()
                })
                .collect(),
            ..StreamEnd::default()
        };
        let way = |direction| DirectionOutcome {
            direction,
            sent_bytes: 0,
            received_bytes: 0,
            sent_bits_per_s: 0.0,
            received_bits_per_s: 0.0,
            retransmits_count: None,
            udp: None,
        };
        let near = EndReport {
            streams: vec![stream(true, &[(9.0, false)]), stream(false, &[(0.5, false)])],
            ..EndReport::default()
        };
        let far = EndReport {
            streams: vec![
                stream(false, &[(7.0, true), (0.1, false), (0.3, false), (0.2, false)]),
                stream(false, &[(0.2, false)]),
            ],
            ..EndReport::default()
        };
        let outcome = TestOutcome {
            directions: vec![way(Direction::Forward), way(Direction::Reverse)],
            hosts: HostAccount::of_ends(near, Some(far)),
            ..TestOutcome::default()
        };
        assert_eq!(outcome.jitter_max_s(Direction::Forward), Some(0.3));
        assert_eq!(outcome.jitter_max_s(Direction::Reverse), Some(0.5));
        let figures = outcome.with_figures().figures;
        let value = |name: &str| figures.iter().find(|one| one.name == name).map(|one| one.value);
        assert_eq!(value("forward_jitter_max_s"), Some(0.3), "{figures:?}");
        assert_eq!(value("reverse_jitter_max_s"), Some(0.5), "{figures:?}");
        // An iperf3 server tells the last value only.
        let of_one_end = TestOutcome {
            directions: vec![way(Direction::Forward)],
            hosts: HostAccount::of_ends(EndReport::default(), None),
            ..TestOutcome::default()
        };
        assert_eq!(of_one_end.jitter_max_s(Direction::Forward), None);
    }

    #[test]
    fn the_account_of_a_test_decides_over_a_figure_of_the_same_name() {
        let outcome = TestOutcome {
            directions: vec![DirectionOutcome {
                direction: Direction::Forward,
                sent_bytes: 8,
                received_bytes: 8,
                sent_bits_per_s: 1.0,
                received_bits_per_s: 2.0,
                retransmits_count: None,
                udp: None,
            }],
            figures: vec![
                Figure::new(FORWARD_RECEIVED_BITS_PER_S, 99.0),
                Figure::new(IDLE_WATTS, 5.0),
            ],
            ..TestOutcome::default()
        };
        let figures = outcome.with_figures().figures;
        let values: Vec<f64> = figures.iter().map(|figure| figure.value).collect();
        assert_eq!(values, [2.0, 1.0, 5.0], "{figures:?}");
    }
}
