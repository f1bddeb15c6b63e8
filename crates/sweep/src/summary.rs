//! Repeats taken together.

use results::{Estimate, Point, Summary};

/// One summary a figure of a setting, in the order the settings first appear in `points`. Failed
/// points count for nothing; a figure that no repeat measured has no summary. The figures are those of [`Point::figures`].
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
        point.figures().into_iter().for_each(|figure| group.add(figure.name, figure.value));
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

#[cfg(test)]
mod tests {
    use results::{
        Direction, DirectionOutcome, EndReport, Figure, FramesWork, HostAccount, LatencySummary,
        PointOutcome, TestOutcome, TestSpec, UdpOutcome, Work,
    };

    use super::*;

    fn point(experiment: &str, window_bytes: f64, repeat: u32, outcome: PointOutcome) -> Point {
        Point {
            varied: [("window_bytes".to_owned(), window_bytes)].into(),
            repeat,
            ..Point::new(experiment, TestSpec::tcp(), outcome)
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
            hosts: HostAccount::of_ends(
                EndReport { process_cpu_s: Some((0.1, 0.3)), ..EndReport::default() },
                Some(EndReport { process_cpu_s: Some((0.2, 0.6)), ..EndReport::default() }),
            ),
            ..TestOutcome::default()
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
    fn udp_loss_is_a_share_of_those_lost_or_received() {
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
        // Ten times each: fewer than 1000 do not tell the 99.9th percentile.
        (0..1000).for_each(|number| histogram.record_ns((number / 10 + 1) * 1000));
        let latency = LatencySummary::of(&histogram, "udp-rr").expect("samples");
        let outcome = TestOutcome { round_trips: Some(latency), ..TestOutcome::default() };
        let outcome = PointOutcome::Measured(Box::new(outcome));
        let summaries = summarise(&[point("round-trip", 0.0, 0, outcome)]);
        let names: Vec<&str> = summaries.iter().map(|summary| summary.figure.as_str()).collect();
        assert_eq!(names, ["rtt_p50_s", "rtt_p99_s", "rtt_p99.9_s"]);
        assert!((summaries[0].estimate.median - 50e-6).abs() < 1e-7);
    }

    #[test]
    fn work_that_is_no_test_between_hosts_is_summarised_alike() {
        let frames = |repeat, rate: f64| Point {
            work: Work::Frames(FramesWork {
                frame_bytes: 60,
                slots_only: true,
                through: "pipe".into(),
                duration_s: 1.0,
            }),
            ..point(
                "frames",
                0.0,
                repeat,
                PointOutcome::Measured(Box::new(TestOutcome {
                    figures: vec![Figure::new("received_pkts_per_s", rate)],
                    ..TestOutcome::default()
                })),
            )
        };
        let summaries = summarise(&[frames(0, 1.0), frames(1, 3.0), frames(2, 2.0)]);
        let rate = find(&summaries, 0.0, "received_pkts_per_s").expect("measured");
        assert_eq!((rate.count, rate.median), (3, 2.0));
        assert_eq!(summaries.len(), 1);
    }
}
