//! Prints one line per interval and direction while a test runs.

use std::collections::BTreeMap;
use std::io::Write;

use results::{Direction, IntervalSample, Protocol, TestSpec};
use traffic::client::IntervalPair;
use traffic::engine::IntervalReport;
use units::{show_bit_rate, show_byte_size, show_count, show_seconds, show_share};

/// Prints intervals on stdout.
pub(super) struct IntervalLines {
    directions: Vec<Direction>,
    protocol: Protocol,
    /// Bytes of a request in a request-response test.
    request_bytes: Option<u64>,
    /// Retransmissions of each sending stream so far, by its end (`true`: near) and number, because the
    /// kernel counts from the beginning of the connection.
    retransmits: BTreeMap<(bool, u32), u64>,
    /// Whether the reader of the lines has gone away.
    closed: bool,
}

/// One direction at one end in one interval.
struct Share {
    bits_per_s: f64,
    /// Stream numbers with their samples.
    samples: Vec<(u32, IntervalSample)>,
}

impl IntervalLines {
    pub(super) fn new(spec: &TestSpec) -> Self {
        let directions = match spec.direction {
            Direction::Bidirectional => vec![Direction::Forward, Direction::Reverse],
            one => vec![one],
        };
        let request_bytes =
            spec.request_response.as_ref().map(|sizes| u64::from(sizes.request_bytes));
        let retransmits = BTreeMap::new();
        Self { directions, protocol: spec.protocol, request_bytes, retransmits, closed: false }
    }

    pub(super) fn print(&mut self, pair: &IntervalPair) {
        if self.closed {
            return;
        }
        let mut text = String::new();
        for direction in self.directions.clone() {
            text.push_str(&crate::tables::fit(&self.line(pair, direction)));
        }
        let mut out = crate::out::stdout();
        self.closed = out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err();
    }

    fn line(&mut self, pair: &IntervalPair, direction: Direction) -> String {
        let span = format!("{:>6.2}-{:<6.2} s", pair.near.start_s, pair.near.end_s);
        let omitted = if pair.near.omitted { "  (omitted)" } else { "" };
        if self.request_bytes.is_some() {
            return format!("{span}  {}{omitted}", self.transactions(&pair.near));
        }
        let here = |sending| share(&pair.near, sending);
        let there = |sending| pair.far.as_ref().and_then(|far| share(far, sending));
        let (arrow, sent, received, sends_here) = match direction {
            Direction::Reverse => ("near <- far", there(true), here(false), false),
            _ => ("near -> far", here(true), there(false), true),
        };
        let again = sent.as_ref().map_or(0, |sent| self.again(sent, sends_here));
        let rate = |share: &Option<Share>| {
            share.as_ref().map_or_else(|| "-".to_owned(), |share| show_bit_rate(share.bits_per_s))
        };
        let detail = match self.protocol {
            Protocol::Tcp => sent.as_ref().map_or_else(String::new, |sent| tcp_detail(sent, again)),
            Protocol::Udp => received.as_ref().map_or_else(String::new, udp_detail),
        };
        format!(
            "{span}  {arrow}  sent {:>11}  received {:>11}{detail}{omitted}",
            rate(&sent),
            rate(&received)
        )
    }

    /// Segments that this end's streams retransmitted in the interval.
    fn again(&mut self, sent: &Share, is_near: bool) -> u64 {
        let counted = |(index, sample): &(u32, IntervalSample)| {
            Some((*index, sample.tcp.as_ref()?.retransmits_count))
        };
        let gain = |(index, now): (u32, u64)| {
            let before = self.retransmits.insert((is_near, index), now).unwrap_or(0);
            now.saturating_sub(before)
        };
        sent.samples.iter().filter_map(counted).map(gain).sum()
    }

    fn transactions(&self, near: &IntervalReport) -> String {
        let bytes: u64 = near.streams.iter().map(|(_, _, sample)| sample.bytes).sum();
        let seconds = (near.end_s - near.start_s).max(1e-9);
        let each = self.request_bytes.unwrap_or(1).max(1);
        format!("{:>8} transactions/s", show_count(bytes as f64 / each as f64 / seconds))
    }
}

fn share(report: &IntervalReport, sending: bool) -> Option<Share> {
    let samples: Vec<(u32, IntervalSample)> = report
        .streams
        .iter()
        .filter(|(_, sends, _)| *sends == sending)
        .map(|(index, _, sample)| (*index, sample.clone()))
        .collect();
    if samples.is_empty() {
        return None;
    }
    let bytes: u64 = samples.iter().map(|(_, sample)| sample.bytes).sum();
    let seconds = (report.end_s - report.start_s).max(1e-9);
    Some(Share { bits_per_s: bytes as f64 * 8.0 / seconds, samples })
}

/// The sender's round-trip time (mean over its streams) and congestion window (sum), and the segments that
/// it retransmitted in the interval.
fn tcp_detail(sent: &Share, again: u64) -> String {
    let states: Vec<_> = sent.samples.iter().filter_map(|(_, one)| one.tcp.as_ref()).collect();
    if states.is_empty() {
        return String::new();
    }
    let rtt_s = states.iter().map(|tcp| tcp.rtt_s).sum::<f64>() / states.len() as f64;
    let window_bytes = states.iter().map(|tcp| tcp.congestion_window_bytes).sum();
    format!(
        "  rtt {:>7}  cwnd {:>8}  retransmits {again}",
        show_seconds(rtt_s),
        show_byte_size(window_bytes)
    )
}

fn udp_detail(received: &Share) -> String {
    let sum = |read: fn(&IntervalSample) -> Option<u64>| {
        received.samples.iter().filter_map(|(_, sample)| read(sample)).sum::<u64>()
    };
    let (lost, came) = (sum(|sample| sample.lost_count), sum(|sample| sample.datagrams_count));
    let jitters: Vec<f64> =
        received.samples.iter().filter_map(|(_, sample)| sample.jitter_s).collect();
    let jitter_s = jitters.iter().sum::<f64>() / jitters.len().max(1) as f64;
    let share = lost as f64 / (lost + came).max(1) as f64;
    format!(
        "  {:>7} datagrams  lost {} ({})  jitter {}",
        show_count(came as f64),
        show_count(lost as f64),
        show_share(share),
        show_seconds(jitter_s)
    )
}

#[cfg(test)]
mod tests {
    use results::TcpSample;

    use super::*;

    /// A second in which two streams sent, their kernels having counted so many retransmissions so far.
    fn second(at_s: f64, counts: [u64; 2]) -> IntervalPair {
        let stream = |index: u32| {
            let tcp = TcpSample {
                rtt_s: 0.02,
                retransmits_count: counts[index as usize],
                ..TcpSample::default()
            };
            (
                index,
                true,
                IntervalSample { bytes: 1_000_000, tcp: Some(tcp), ..IntervalSample::default() },
            )
        };
        let near = IntervalReport {
            start_s: at_s,
            end_s: at_s + 1.0,
            omitted: false,
            streams: vec![stream(0), stream(1)],
        };
        IntervalPair { near, far: None }
    }

    #[test]
    fn retransmissions_of_an_interval_are_those_of_the_interval() {
        let mut lines = IntervalLines::new(&TestSpec::tcp());
        let seconds = [[3, 2], [3, 2], [4, 9]];
        let told: Vec<String> = (0_u32..)
            .zip(seconds)
            .map(|(at, counts)| lines.line(&second(f64::from(at), counts), Direction::Forward))
            .map(|line| line.split("retransmits ").last().unwrap_or_default().to_owned())
            .collect();
        assert_eq!(told, ["5", "0", "8"]);
    }
}
