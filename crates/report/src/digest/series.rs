//! What happened over time, thinned to what a chart can show.

use results::{Direction, IntervalSample, StreamEnd, TcpSample, TestOutcome};

use super::{ends_of, streams_of};
use crate::show::finite;

/// Streams drawn one line each; more are added up.
pub(crate) const LINES_MAX: usize = 8;

/// Samples a line keeps; longer series become their mean with an envelope.
const SAMPLES_MAX: usize = 240;

/// Samples a series may have before it is thinned on reading (an hour at 0.1 s).
const BINS_MAX: usize = 36_000;

/// One line of a chart.
#[derive(Debug, Clone, Default)]
pub(crate) struct Track {
    /// What it is.
    pub(crate) label: String,
    /// Colour and dash, 0 to 7.
    pub(crate) style: usize,
    /// In time order.
    pub(crate) samples: Vec<Sample>,
}

/// One moment of a track.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sample {
    /// Middle of the interval, seconds since the test began.
    pub(crate) at_s: f64,
    /// Mean.
    pub(crate) mean: f64,
    /// Lowest of the intervals it stands for.
    pub(crate) low: f64,
    /// Highest of them.
    pub(crate) high: f64,
}

/// Everything a time chart shows of one test.
#[derive(Debug, Default)]
pub(crate) struct TestSeries {
    /// Goodput, bit/s.
    pub(crate) rates: Vec<Track>,
    /// Congestion windows of the senders, bytes.
    pub(crate) windows: Vec<Track>,
    /// Smoothed round-trip times at the senders, seconds.
    pub(crate) rtts: Vec<Track>,
    /// Segments retransmitted: moment and gain.
    pub(crate) retransmits: Vec<(f64, u64)>,
    /// End of the last interval, seconds.
    pub(crate) end_s: f64,
    /// End of the start that does not count, seconds.
    pub(crate) omitted_s: f64,
    /// Whether each line stands for many streams.
    pub(crate) summed: bool,
}

impl TestSeries {
    /// The series of a test; `ways` names each direction in words.
    pub(crate) fn of(outcome: &TestOutcome, way: impl Fn(Direction) -> String) -> Self {
        let mut series = Self::default();
        let lines_count: usize = outcome
            .directions
            .iter()
            .map(|one| measured_streams(outcome, one.direction).len())
            .sum();
        series.summed = lines_count > LINES_MAX;
        let is_alone = outcome.directions.len() == 1;
        for one in &outcome.directions {
            let way = way(one.direction);
            let names = Names { whole: &way, each: if is_alone { "stream" } else { &way } };
            series.add_direction(outcome, one.direction, names);
        }
        series.retransmits = gains(&series.retransmits);
        series
    }

    fn add_direction(&mut self, outcome: &TestOutcome, direction: Direction, names: Names<'_>) {
        let streams = measured_streams(outcome, direction);
        let senders = streams_of(ends_of(outcome, direction).0, true);
        for interval in streams.iter().flat_map(|stream| &stream.intervals) {
            self.end_s = self.end_s.max(finite(interval.end_s));
            if interval.omitted {
                self.omitted_s = self.omitted_s.max(finite(interval.end_s));
            }
        }
        let first = self.rates.len();
        self.rates.extend(tracks(&streams, names, first, self.summed, Join::Sum, |interval| {
            Some(interval.bytes as f64 * 8.0 / (interval.end_s - interval.start_s))
        }));
        let tcp = |read: fn(&TcpSample) -> f64| {
            // What is zero was not told: a recording of packets holds no congestion window.
            move |interval: &IntervalSample| {
                interval.tcp.as_ref().map(read).filter(|value| *value > 0.0)
            }
        };
        let window = tcp(|tcp| tcp.congestion_window_bytes as f64);
        self.windows.extend(tracks(&senders, names, first, self.summed, Join::Sum, window));
        let rtt = tcp(|tcp| tcp.rtt_s);
        self.rtts.extend(tracks(&senders, names, first, self.summed, Join::Mean, rtt));
        for stream in senders {
            let mut before = stream.tcp.as_ref().map(|tcp| tcp.first.retransmits_count);
            for interval in &stream.intervals {
                let Some(now) = interval.tcp.as_ref().map(|tcp| tcp.retransmits_count) else {
                    continue;
                };
                let gain = now.saturating_sub(before.unwrap_or(0));
                if gain > 0 && !interval.omitted {
                    self.retransmits.push((middle(interval), gain));
                }
                before = Some(now);
            }
        }
    }
}

/// The streams whose bytes tell a direction's goodput: the receiver's, or the sender's where the
/// receiver could not be seen.
fn measured_streams(outcome: &TestOutcome, direction: Direction) -> Vec<&StreamEnd> {
    let (sender, receiver) = ends_of(outcome, direction);
    let received = streams_of(receiver, false);
    if received.iter().any(|stream| !stream.intervals.is_empty()) {
        return received;
    }
    streams_of(sender, true)
}

/// What the lines of one direction are called.
#[derive(Debug, Clone, Copy)]
struct Names<'a> {
    /// A line for all of it.
    whole: &'a str,
    /// Before the number of one stream.
    each: &'a str,
}

/// How lines of many streams become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Join {
    Sum,
    Mean,
}

fn tracks(
    streams: &[&StreamEnd],
    names: Names<'_>,
    first_style: usize,
    summed: bool,
    join: Join,
    read: impl Fn(&IntervalSample) -> Option<f64>,
) -> Vec<Track> {
    let lines: Vec<Vec<Sample>> = streams.iter().map(|stream| samples(stream, &read)).collect();
    let several = streams.len() > 1;
    if summed && several {
        let how = if join == Join::Sum { "together" } else { "mean" };
        let label = format!("{}, {} streams {how}", names.whole, streams.len());
        return track(label, first_style, joined(&lines, join)).into_iter().collect();
    }
    let numbered = streams.iter().zip(lines).enumerate();
    numbered
        .filter_map(|(index, (stream, line))| {
            let label = if several {
                format!("{} {}", names.each, stream.index)
            } else {
                names.whole.to_owned()
            };
            track(label, first_style + index, line)
        })
        .collect()
}

fn track(label: String, style: usize, samples: Vec<Sample>) -> Option<Track> {
    (!samples.is_empty()).then(|| Track {
        label,
        style: style % 8,
        samples: thinned(&samples, SAMPLES_MAX),
    })
}

fn samples(stream: &StreamEnd, read: impl Fn(&IntervalSample) -> Option<f64>) -> Vec<Sample> {
    stream
        .intervals
        .iter()
        .take(BINS_MAX)
        .filter(|interval| interval.end_s > interval.start_s && interval.start_s >= 0.0)
        .filter_map(|interval| {
            let value = read(interval).filter(|value| value.is_finite())?;
            let value = finite(value).max(0.0);
            Some(Sample { at_s: middle(interval), mean: value, low: value, high: value })
        })
        .collect()
}

fn middle(interval: &IntervalSample) -> f64 {
    f64::midpoint(finite(interval.start_s), finite(interval.end_s))
}

/// Many lines as one, on a common grid as fine as the finest line.
fn joined(lines: &[Vec<Sample>], join: Join) -> Vec<Sample> {
    let bins_count = lines.iter().map(Vec::len).max().unwrap_or(0);
    let last_s = lines.iter().flatten().map(|sample| sample.at_s).fold(0.0, f64::max);
    let first_s = lines.iter().flatten().map(|sample| sample.at_s).fold(last_s, f64::min);
    if bins_count == 0 {
        return Vec::new();
    }
    let width_s = (last_s - first_s) / (bins_count.max(2) - 1) as f64;
    let mut bins = vec![(0.0, 0_usize); bins_count];
    for line in lines {
        let mut own = vec![(0.0, 0_usize); bins_count];
        for sample in line {
            let place =
                if width_s > 0.0 { ((sample.at_s - first_s) / width_s).round() } else { 0.0 };
            let bin = &mut own[(place as usize).min(bins_count - 1)];
            *bin = (bin.0 + sample.mean, bin.1 + 1);
        }
        for (bin, (sum, count)) in bins.iter_mut().zip(own).filter(|(_, (_, count))| *count > 0) {
            *bin = (bin.0 + sum / count as f64, bin.1 + 1);
        }
    }
    let place_s = |index: usize| first_s + index as f64 * width_s;
    let filled = bins.into_iter().enumerate().filter(|(_, (_, count))| *count > 0);
    filled
        .map(|(index, (sum, count))| {
            let value = if join == Join::Mean { sum / count as f64 } else { sum };
            Sample { at_s: place_s(index), mean: value, low: value, high: value }
        })
        .collect()
}

/// At most `limit` samples: each the mean of its neighbours with their lowest and highest.
pub(crate) fn thinned(samples: &[Sample], limit: usize) -> Vec<Sample> {
    if samples.len() <= limit {
        return samples.to_vec();
    }
    samples
        .chunks(samples.len().div_ceil(limit))
        .map(|chunk| {
            let mean_of =
                |read: fn(&Sample) -> f64| chunk.iter().map(read).sum::<f64>() / chunk.len() as f64;
            Sample {
                at_s: mean_of(|sample| sample.at_s),
                mean: mean_of(|sample| sample.mean),
                low: chunk.iter().map(|sample| sample.low).fold(f64::MAX, f64::min),
                high: chunk.iter().map(|sample| sample.high).fold(0.0, f64::max),
            }
        })
        .collect()
}

/// Retransmissions by moment, at most as many moments as a line has samples.
fn gains(raw: &[(f64, u64)]) -> Vec<(f64, u64)> {
    let mut sorted = raw.to_vec();
    sorted.sort_by(|one, other| one.0.total_cmp(&other.0));
    sorted
        .chunks(sorted.len().div_ceil(SAMPLES_MAX).max(1))
        .map(|chunk| {
            let gain = chunk.iter().fold(0_u64, |sum, (_, gain)| sum.saturating_add(*gain));
            (chunk.iter().map(|(at_s, _)| at_s).sum::<f64>() / chunk.len() as f64, gain)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(rates: &[f64]) -> Vec<Sample> {
        let sample = |(index, rate): (usize, &f64)| Sample {
            at_s: index as f64 + 0.5,
            mean: *rate,
            low: *rate,
            high: *rate,
        };
        rates.iter().enumerate().map(sample).collect()
    }

    #[test]
    fn streams_add_up() {
        let sum = joined(&[line(&[1.0, 2.0, 3.0]), line(&[10.0, 20.0, 30.0])], Join::Sum);
        assert_eq!(sum.iter().map(|sample| sample.mean).collect::<Vec<_>>(), [11.0, 22.0, 33.0]);
        let mean = joined(&[line(&[1.0, 2.0]), line(&[3.0, 4.0])], Join::Mean);
        assert_eq!(mean.iter().map(|sample| sample.mean).collect::<Vec<_>>(), [2.0, 3.0]);
    }

    #[test]
    fn thinning_keeps_the_extremes() {
        let rates: Vec<f64> =
            (0..3600).map(|second| if second == 1801 { 0.0 } else { 5.0 }).collect();
        let kept = thinned(&line(&rates), 240);
        assert_eq!(kept.len(), 240);
        assert_eq!(kept.iter().map(|sample| sample.low).fold(9.0, f64::min), 0.0);
        assert_eq!(kept.iter().map(|sample| sample.high).fold(0.0, f64::max), 5.0);
    }
}
