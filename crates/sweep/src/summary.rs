//! Repeats taken together.

use results::{
    Direction, DirectionOutcome, EndReport, Estimate, LatencySummary, Point, PointOutcome, Summary,
    TestOutcome,
};

/// One summary a figure of a setting, in the order the settings first appear in `points`. Failed
/// points count for nothing; a figure that no repeat measured has no summary.
///
/// Figures, `D` being `forward` or `reverse`: `D_received_bits_per_s`, `D_sent_bits_per_s`,
/// `D_lost_share` (UDP: of the datagrams sent, 0 to 1), `D_reordered_share`,
/// `D_delivered_datagrams_per_s`, `D_jitter_s`; `retransmits_count`; `rtt_p50_s`, `rtt_p99_s`,
/// `rtt_p99.9_s`, `transactions_per_s` (request/response and idle round trips);
/// `loaded_rtt_p50_s`, `loaded_rtt_p99_s`; `cpu_s_per_gbit` (both ends), `near_cpu_s_per_gbit`,
/// `far_cpu_s_per_gbit` (of the testing process, per 10^9 bits of payload delivered).
#[must_use]
pub fn summarise(points: &[Point]) -> Vec<Summary> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for point in points {
        let group = match groups.iter_mut().find(|group| group.holds(point)) {
            Some(group) => group,
            None => {
                groups.push(Group { setting: point, figures: Vec::new() });
                groups.last_mut().expect("just pushed")
            }
        };
        figures_of(point).into_iter().for_each(|(name, value)| group.add(name, value));
    }
    groups.into_iter().flat_map(Group::summaries).collect()
}

/// The repeats of one setting.
struct Group<'a> {
    /// Any point of the setting.
    setting: &'a Point,
    figures: Vec<(String, Vec<f64>)>,
}

impl Group<'_> {
    fn holds(&self, point: &Point) -> bool {
        self.setting.experiment == point.experiment && self.setting.varied == point.varied
    }

    fn add(&mut self, name: String, value: f64) {
        match self.figures.iter_mut().find(|(known, _)| *known == name) {
            Some((_, values)) => values.push(value),
            None => self.figures.push((name, vec![value])),
        }
    }

    fn summaries(self) -> impl Iterator<Item = Summary> {
        let setting = self.setting;
        self.figures.into_iter().filter_map(move |(figure, values)| {
            Some(Summary {
                experiment: setting.experiment.clone(),
                varied: setting.varied.clone(),
                figure,
                estimate: Estimate::of(&values)?,
            })
        })
    }
}

type Figure = (String, f64);

fn figures_of(point: &Point) -> Vec<Figure> {
    let mut figures = Vec::new();
    match &point.outcome {
        PointOutcome::Measured(outcome) => test_figures(outcome, &mut figures),
        PointOutcome::RoundTrips(latency) => latency_figures("rtt", latency, &mut figures),
        PointOutcome::Failed(_) => {}
    }
    figures
}

fn test_figures(outcome: &TestOutcome, figures: &mut Vec<Figure>) {
    for direction in &outcome.directions {
        direction_figures(direction, outcome.duration_s, figures);
    }
    let retransmits: Vec<u64> =
        outcome.directions.iter().filter_map(|d| d.retransmits_count).collect();
    if !retransmits.is_empty() {
        figures.push((
            "retransmits_count".into(),
            retransmits.iter().map(|count| *count as f64).sum(),
        ));
    }
    if let Some(transactions) = &outcome.request_response {
        figures.push(("transactions_per_s".into(), transactions.transactions_per_s));
        latency_figures("rtt", &transactions.latency, figures);
    }
    if let Some(latency) = &outcome.latency_under_load {
        latency_figures("loaded_rtt", latency, figures);
    }
    processor_figures(outcome, figures);
}

fn direction_figures(outcome: &DirectionOutcome, duration_s: f64, figures: &mut Vec<Figure>) {
    let way = match outcome.direction {
        Direction::Forward => "forward",
        Direction::Reverse => "reverse",
        Direction::Bidirectional => "bidirectional",
    };
    let mut add = |name: &str, value: f64| figures.push((format!("{way}_{name}"), value));
    add("received_bits_per_s", outcome.received_bits_per_s);
    add("sent_bits_per_s", outcome.sent_bits_per_s);
    let Some(udp) = &outcome.udp else { return };
    if udp.sent_count > 0 {
        add("lost_share", (udp.lost_count as f64 / udp.sent_count as f64).min(1.0));
        add("reordered_share", (udp.reordered_count as f64 / udp.sent_count as f64).min(1.0));
    }
    if duration_s > 0.0 {
        add("delivered_datagrams_per_s", udp.received_count as f64 / duration_s);
    }
    if let Some(jitter_s) = udp.jitter_s {
        add("jitter_s", jitter_s);
    }
}

fn latency_figures(name: &str, latency: &LatencySummary, figures: &mut Vec<Figure>) {
    for percentile in [50.0, 99.0, 99.9] {
        if let Some(value_s) = latency.percentile_s(percentile) {
            figures.push((format!("{name}_p{percentile}_s"), value_s));
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
    let near_s = used_s(&outcome.near);
    let far_s = outcome.far.as_ref().and_then(used_s);
    let both_s = near_s.zip(far_s).map(|(near_s, far_s)| near_s + far_s);
    for (name, used_s) in
        [("cpu_s_per_gbit", both_s), ("near_cpu_s_per_gbit", near_s), ("far_cpu_s_per_gbit", far_s)]
    {
        figures.extend(used_s.map(|used_s| (name.to_owned(), used_s / delivered_gbit)));
    }
}

#[cfg(test)]
mod tests {
    use results::{TestSpec, UdpOutcome};

    use super::*;

    fn point(experiment: &str, window_bytes: f64, repeat: u32, outcome: PointOutcome) -> Point {
        Point {
            experiment: experiment.into(),
            varied: [("window_bytes".to_owned(), window_bytes)].into(),
            repeat,
            started_unix_ms: 0,
            command: String::new(),
            spec: TestSpec::tcp(),
            outcome,
        }
    }

    fn measured(gbit: f64, udp: Option<UdpOutcome>) -> PointOutcome {
        let bytes = units::saturating_u64(gbit * 1e9 / 8.0);
        PointOutcome::Measured(Box::new(TestOutcome {
            duration_s: 1.0,
            directions: vec![DirectionOutcome {
                direction: Direction::Forward,
                sent_bytes: bytes,
                received_bytes: bytes,
                sent_bits_per_s: gbit * 1e9,
                received_bits_per_s: gbit * 1e9,
                retransmits_count: Some(3),
                udp,
            }],
            request_response: None,
            latency_under_load: None,
            near: EndReport { process_cpu_s: Some((0.1, 0.3)), ..EndReport::default() },
            far: Some(EndReport { process_cpu_s: Some((0.2, 0.6)), ..EndReport::default() }),
        }))
    }

    fn find<'a>(summaries: &'a [Summary], window_bytes: f64, figure: &str) -> Option<&'a Estimate> {
        let wanted = |s: &&Summary| {
            s.figure == figure && s.varied.get("window_bytes") == Some(&window_bytes)
        };
        summaries.iter().find(wanted).map(|summary| &summary.estimate)
    }

    #[test]
    fn repeats_of_a_setting_make_one_estimate_a_figure() {
        let mut points: Vec<Point> = [4.0, 2.0, 3.0]
            .into_iter()
            .zip(0..)
            .map(|(gbit, repeat)| point("sweep", 1.0, repeat, measured(gbit, None)))
            .collect();
        points.push(point("sweep", 2.0, 0, measured(8.0, None)));
        points.push(point("sweep", 2.0, 1, PointOutcome::Failed("refused".into())));
        let summaries = summarise(&points);
        let rate = find(&summaries, 1.0, "forward_received_bits_per_s").expect("measured");
        assert_eq!((rate.count, rate.median, rate.low, rate.high), (3, 3e9, 2e9, 4e9));
        assert_eq!(find(&summaries, 2.0, "forward_received_bits_per_s").map(|e| e.count), Some(1));
        assert_eq!(find(&summaries, 1.0, "retransmits_count").map(|e| e.median), Some(3.0));
        let cpu = find(&summaries, 1.0, "cpu_s_per_gbit").expect("both ends told");
        assert!((cpu.median - 0.4).abs() < 1e-6, "{cpu:?}");
        assert!(find(&summaries, 1.0, "forward_lost_share").is_none(), "not a UDP test");
    }

    #[test]
    fn udp_loss_is_a_share_of_what_was_sent() {
        let udp = UdpOutcome {
            sent_count: 200,
            received_count: 150,
            lost_count: 50,
            ..UdpOutcome::default()
        };
        let summaries = summarise(&[point("udp", 0.0, 0, measured(1.0, Some(udp)))]);
        assert_eq!(find(&summaries, 0.0, "forward_lost_share").map(|e| e.median), Some(0.25));
        assert_eq!(
            find(&summaries, 0.0, "forward_delivered_datagrams_per_s").map(|e| e.median),
            Some(150.0)
        );
    }

    #[test]
    fn round_trips_are_summarised_by_their_percentiles() {
        let mut histogram = stats::LatencyHistogram::default();
        (1..=100).for_each(|us| histogram.record_ns(us * 1000));
        let latency = LatencySummary::of(&histogram, "udp-rr").expect("samples");
        let summaries =
            summarise(&[point("round-trip", 0.0, 0, PointOutcome::RoundTrips(latency))]);
        let names: Vec<&str> = summaries.iter().map(|summary| summary.figure.as_str()).collect();
        assert_eq!(names, ["rtt_p50_s", "rtt_p99_s", "rtt_p99.9_s"]);
        assert!((summaries[0].estimate.median - 50e-6).abs() < 1e-7);
    }
}
