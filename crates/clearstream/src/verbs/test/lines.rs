//! A line an interval and direction, while the test runs.

use std::io::Write;

use results::{Direction, IntervalSample, Protocol, TestSpec};
use traffic::client::IntervalPair;
use traffic::engine::IntervalReport;
use units::{show_bit_rate, show_byte_size, show_count, show_seconds};

/// Prints intervals on stdout.
pub(super) struct IntervalLines {
    directions: Vec<Direction>,
    protocol: Protocol,
    /// Bytes of a request, in a request/response test.
    request_bytes: Option<u64>,
    /// Nobody reads them any more.
    closed: bool,
}

/// What one end saw of one direction in one interval.
struct Share {
    bits_per_s: f64,
    samples: Vec<IntervalSample>,
}

impl IntervalLines {
    pub(super) fn new(spec: &TestSpec) -> Self {
        let directions = match spec.direction {
            Direction::Bidirectional => vec![Direction::Forward, Direction::Reverse],
            one => vec![one],
        };
        let request_bytes =
            spec.request_response.as_ref().map(|sizes| u64::from(sizes.request_bytes));
        Self { directions, protocol: spec.protocol, request_bytes, closed: false }
    }

    pub(super) fn print(&mut self, pair: &IntervalPair) {
        if self.closed {
            return;
        }
        let mut text = String::new();
        for &direction in &self.directions {
            text.push_str(&self.line(pair, direction));
            text.push('\n');
        }
        let mut out = crate::out::stdout();
        self.closed = out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err();
    }

    fn line(&self, pair: &IntervalPair, direction: Direction) -> String {
        let span = format!("{:>6.2}-{:<6.2} s", pair.near.start_s, pair.near.end_s);
        let omitted = if pair.near.omitted { "  (omitted)" } else { "" };
        if self.request_bytes.is_some() {
            return format!("{span}  {}{omitted}", self.transactions(&pair.near));
        }
        let here = |sending| share(&pair.near, sending);
        let there = |sending| pair.far.as_ref().and_then(|far| share(far, sending));
        let (arrow, sent, received) = match direction {
            Direction::Reverse => ("near <- far", there(true), here(false)),
            _ => ("near -> far", here(true), there(false)),
        };
        let rate = |share: &Option<Share>| {
            share.as_ref().map_or_else(|| "-".to_owned(), |share| show_bit_rate(share.bits_per_s))
        };
        let detail = match self.protocol {
            Protocol::Tcp => sent.as_ref().map_or_else(String::new, tcp_detail),
            Protocol::Udp => received.as_ref().map_or_else(String::new, udp_detail),
        };
        format!(
            "{span}  {arrow}  sent {:>11}  received {:>11}{detail}{omitted}",
            rate(&sent),
            rate(&received)
        )
    }

    fn transactions(&self, near: &IntervalReport) -> String {
        let bytes: u64 = near.streams.iter().map(|(_, _, sample)| sample.bytes).sum();
        let seconds = (near.end_s - near.start_s).max(1e-9);
        let each = self.request_bytes.unwrap_or(1).max(1);
        format!("{:>8} transactions/s", show_count(bytes as f64 / each as f64 / seconds))
    }
}

fn share(report: &IntervalReport, sending: bool) -> Option<Share> {
    let samples: Vec<IntervalSample> = report
        .streams
        .iter()
        .filter(|(_, sends, _)| *sends == sending)
        .map(|(_, _, sample)| sample.clone())
        .collect();
    if samples.is_empty() {
        return None;
    }
    let bytes: u64 = samples.iter().map(|sample| sample.bytes).sum();
    let seconds = (report.end_s - report.start_s).max(1e-9);
    Some(Share { bits_per_s: bytes as f64 * 8.0 / seconds, samples })
}

/// The sender's round-trip time and congestion window; of several streams the mean and the sum.
fn tcp_detail(sent: &Share) -> String {
    let states: Vec<_> = sent.samples.iter().filter_map(|sample| sample.tcp.as_ref()).collect();
    if states.is_empty() {
        return String::new();
    }
    let rtt_s = states.iter().map(|tcp| tcp.rtt_s).sum::<f64>() / states.len() as f64;
    let window_bytes = states.iter().map(|tcp| tcp.congestion_window_bytes).sum();
    let retransmits: u64 = states.iter().map(|tcp| tcp.retransmits_count).sum();
    format!(
        "  rtt {:>7}  cwnd {:>8}  retransmits {retransmits}",
        show_seconds(rtt_s),
        show_byte_size(window_bytes)
    )
}

fn udp_detail(received: &Share) -> String {
    let sum = |read: fn(&IntervalSample) -> Option<u64>| {
        received.samples.iter().filter_map(read).sum::<u64>()
    };
    let (lost, came) = (sum(|sample| sample.lost_count), sum(|sample| sample.datagrams_count));
    let jitters: Vec<f64> = received.samples.iter().filter_map(|sample| sample.jitter_s).collect();
    let jitter_s = jitters.iter().sum::<f64>() / jitters.len().max(1) as f64;
    let share = lost as f64 * 100.0 / (lost + came).max(1) as f64;
    format!(
        "  {:>7} datagrams  lost {lost} ({share:.2}%)  jitter {}",
        show_count(came as f64),
        show_seconds(jitter_s)
    )
}
