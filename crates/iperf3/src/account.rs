//! What the intervals of a test add up to, as iperf3 counts. Pure.
//!
//! An [`Account`] is fed with the engine's intervals and outcome, and gives iperf3's three views:
//! an [`Interval`] to print, the [`EndResults`] to send, the [`Summary`] to end with.

mod setup;
mod views;

use results::{IntervalSample, StreamEnd};

pub use setup::{Setup, Side, StreamLabel};
pub use views::{
    DirectionSummary, Interval, StreamInterval, StreamSummary, Summary, TcpExtremes, TcpFigures,
};

use super::wire::{CpuPercent, EndResults, StreamResult};
use traffic::engine::{EndOutcome, IntervalReport};

/// What one stream has come to so far.
#[derive(Debug, Clone, Default)]
struct Tally {
    bytes: u64,
    retransmits: i64,
    retransmits_seen: u64,
    packets: i64,
    lost: i64,
    omitted_packets: i64,
    omitted_lost: i64,
    jitter_s: f64,
    out_of_order: i64,
    path_mtu_bytes: u64,
    extremes: TcpExtremes,
    rtt_us_sum: u64,
    rtt_samples_count: u64,
    congestion: Option<String>,
}

/// The books of one test at one end.
#[derive(Debug)]
pub struct Account {
    setup: Setup,
    labels: Vec<StreamLabel>,
    tallies: Vec<Tally>,
    pending: Option<Interval>,
    any_printed: bool,
    /// End of the last interval taken in, on the engine's clock.
    seen_s: f64,
    /// Where the measured time begins on the engine's clock.
    measured_from_s: Option<f64>,
    duration_s: f64,
    cpu: CpuPercent,
}

impl Account {
    /// Empty books.
    #[must_use]
    pub fn new(setup: Setup, labels: Vec<StreamLabel>) -> Self {
        let tallies = vec![Tally::default(); labels.len()];
        Self {
            setup,
            labels,
            tallies,
            pending: None,
            any_printed: false,
            seen_s: 0.0,
            measured_from_s: None,
            duration_s: 0.0,
            cpu: CpuPercent::default(),
        }
    }

    /// The path MTU of a stream, where the kernel told it.
    pub fn set_path_mtu(&mut self, position: usize, path_mtu_bytes: u32) {
        if let Some(tally) = self.tallies.get_mut(position) {
            tally.path_mtu_bytes = u64::from(path_mtu_bytes);
        }
    }

    /// Streams of the test.
    #[must_use]
    pub fn streams_count(&self) -> usize {
        self.labels.len()
    }

    /// Payload bytes and packets received so far, the omitted start not counted.
    #[must_use]
    pub fn received(&self) -> (u64, i64) {
        self.moved(false)
    }

    /// Payload bytes and packets sent so far, the omitted start not counted.
    #[must_use]
    pub fn sent(&self) -> (u64, i64) {
        self.moved(true)
    }

    fn moved(&self, sending: bool) -> (u64, i64) {
        let tallies = self.labels.iter().zip(&self.tallies);
        tallies
            .filter(|(label, _)| label.sending == sending)
            .fold((0, 0), |sum, (_, tally)| (sum.0 + tally.bytes, sum.1 + tally.packets))
    }

    /// Takes in what the engine saw in one interval; gives the report that is due, if one is.
    pub fn interval(&mut self, report: &IntervalReport) -> Option<Interval> {
        let mut due = None;
        if self.pending.as_ref().is_some_and(|pending| pending.omitted != report.omitted) {
            due = self.flush();
        }
        if !report.omitted && self.measured_from_s.is_none() {
            self.measured_from_s = Some(report.start_s);
        }
        let zero_s = if report.omitted { 0.0 } else { self.measured_from_s.unwrap_or(0.0) };
        let rows = self.rows(report);
        self.seen_s = self.seen_s.max(report.end_s);
        match &mut self.pending {
            Some(pending) => merge(pending, report.end_s - zero_s, rows),
            None => {
                self.pending = Some(Interval {
                    start_s: report.start_s - zero_s,
                    end_s: report.end_s - zero_s,
                    omitted: report.omitted,
                    first: false,
                    streams: rows,
                });
            }
        }
        let length_s = self.pending.as_ref().map_or(0.0, Interval::length_s);
        // Half an engine's tick early is on time.
        let enough = self.setup.interval_s > 0.0 && length_s > self.setup.interval_s * 0.97;
        due.or_else(|| if enough { self.flush() } else { None })
    }

    /// The report of what has come in since the last one; `None` when there is nothing worth
    /// showing: shorter than a tenth of an interval and without a byte, as in iperf3.
    pub fn flush(&mut self) -> Option<Interval> {
        let mut interval = self.pending.take()?;
        let any = interval.streams.iter().any(|stream| stream.bytes > 0);
        if !any && interval.length_s() < self.setup.interval_s * 0.1 {
            return None;
        }
        interval.first = !std::mem::replace(&mut self.any_printed, true);
        Some(interval)
    }

    fn rows(&mut self, report: &IntervalReport) -> Vec<StreamInterval> {
        let mut rows = Vec::with_capacity(self.labels.len());
        for (label, tally) in self.labels.iter().zip(&mut self.tallies) {
            let key = (engine_index(label.position), label.sending);
            let found = report.streams.iter().find(|(index, sending, _)| (*index, *sending) == key);
            let row = match found {
                Some((_, _, sample)) => tally.take_in(label, sample, report.omitted),
                None => StreamInterval::default(),
            };
            rows.push(StreamInterval { position: label.position, sending: label.sending, ..row });
        }
        rows
    }

    /// Closes the books with the engine's account; `cpu` is this process's use over the test.
    /// Gives the reports that were still missing.
    pub fn finish(&mut self, outcome: &EndOutcome, cpu: CpuPercent) -> Vec<Interval> {
        let mut intervals = Vec::new();
        for report in unseen(&outcome.report.streams, self.seen_s) {
            intervals.extend(self.interval(&report));
        }
        intervals.extend(self.flush());
        self.duration_s = outcome.duration_s;
        self.cpu = cpu;
        for (label, tally) in self.labels.iter().zip(&mut self.tallies) {
            let index = engine_index(label.position);
            let ends = &outcome.report.streams;
            let end = ends.iter().find(|end| (end.index, end.sending) == (index, label.sending));
            if let Some(end) = end {
                tally.close(label, end);
            }
        }
        intervals
    }

    /// What the other end is told.
    #[must_use]
    pub fn results(&self) -> EndResults {
        let has_retransmits = self.setup.has_retransmits();
        let mode = if !self.setup.sends() { -1 } else { i64::from(has_retransmits) };
        let stream = |(label, tally): (&StreamLabel, &Tally)| StreamResult {
            id: label.id(),
            bytes: tally.bytes,
            retransmits: if label.sending && has_retransmits { tally.retransmits } else { -1 },
            jitter_s: tally.jitter_s,
            errors: tally.lost + tally.omitted_lost,
            omitted_errors: Some(tally.omitted_lost),
            packets: tally.packets + tally.omitted_packets,
            omitted_packets: Some(tally.omitted_packets),
            duration_s: Some(self.duration_s),
        };
        EndResults {
            cpu: self.cpu,
            sender_has_retransmits: mode,
            congestion_used: self.congestion(),
            server_output: None,
            streams: self.labels.iter().zip(&self.tallies).map(stream).collect(),
        }
    }

    /// Whether every stream of `remote` is one of ours.
    #[must_use]
    pub fn knows_streams_of(&self, remote: &EndResults) -> bool {
        let ours = |id| self.labels.iter().any(|label| label.id() == id);
        remote.streams.iter().all(|stream| ours(stream.id))
    }

    /// The end of the test, with what the other end told (a server prints before it is told).
    #[must_use]
    pub fn summary(&self, remote: Option<&EndResults>) -> Summary {
        let flags = self.setup.sending_flags();
        let first = flags.first().copied().unwrap_or(true);
        let both = if self.setup.asked.bidirectional { vec![first, !first] } else { vec![first] };
        Summary {
            directions: both.into_iter().map(|sending| self.direction(sending, remote)).collect(),
            duration_s: self.duration_s,
            local_cpu: self.cpu,
            remote_cpu: remote.map(|remote| remote.cpu).unwrap_or_default(),
            local_congestion: self.congestion(),
            remote_congestion: remote.and_then(|remote| remote.congestion_used.clone()),
            server_output: remote.and_then(|remote| remote.server_output.clone()),
        }
    }

    fn direction(&self, sending: bool, remote: Option<&EndResults>) -> DirectionSummary {
        let theirs_of = |label: &StreamLabel| {
            remote.and_then(|all| all.streams.iter().find(|stream| stream.id == label.id()))
        };
        let of_direction = || {
            let pairs = self.labels.iter().zip(&self.tallies);
            pairs.filter(move |(label, _)| label.sending == sending)
        };
        let their_s = of_direction()
            .next()
            .and_then(|(label, _)| theirs_of(label)?.duration_s)
            .filter(|&seconds| seconds > 0.0)
            .unwrap_or(self.duration_s);
        let (sender_s, receiver_s) =
            if sending { (self.duration_s, their_s) } else { (their_s, self.duration_s) };
        let counted_there = remote.is_some_and(|remote| remote.sender_has_retransmits > 0);
        let datagram_bytes = u64::try_from(self.setup.asked.block_bytes).unwrap_or(0).max(1);
        DirectionSummary {
            sending,
            has_retransmits: if sending { self.setup.has_retransmits() } else { counted_there },
            sender_s,
            receiver_s,
            streams: of_direction()
                .map(|(label, tally)| tally.summary(label, theirs_of(label), datagram_bytes))
                .collect(),
        }
    }

    fn congestion(&self) -> Option<String> {
        self.tallies.iter().find_map(|tally| tally.congestion.clone())
    }
}

/// The engine's number of a stream.
#[must_use]
pub fn engine_index(position: usize) -> u32 {
    u32::try_from(position).unwrap_or(u32::MAX)
}

impl Tally {
    fn take_in(
        &mut self,
        label: &StreamLabel,
        sample: &IntervalSample,
        omitted: bool,
    ) -> StreamInterval {
        let lost = signed(sample.lost_count.unwrap_or(0));
        let arrived = signed(sample.datagrams_count.unwrap_or(0));
        let packets = if label.sending { arrived } else { arrived + lost };
        self.jitter_s = sample.jitter_s.unwrap_or(self.jitter_s);
        if omitted {
            self.omitted_packets += packets;
            self.omitted_lost += lost;
        } else {
            self.bytes += sample.bytes;
            self.packets += packets;
            self.lost += lost;
        }
        let tcp = sample.tcp.as_ref().map(|tcp| {
            let gained = tcp.retransmits_count.saturating_sub(self.retransmits_seen);
            self.retransmits_seen = tcp.retransmits_count;
            TcpFigures {
                retransmits: signed(gained),
                congestion_window_bytes: tcp.congestion_window_bytes,
                peer_window_bytes: tcp.peer_window_bytes.unwrap_or(0),
                rtt_us: microseconds(tcp.rtt_s),
                rtt_variation_us: microseconds(tcp.rtt_variation_s),
                path_mtu_bytes: self.path_mtu_bytes,
                reordering: tcp.reordering_segments.unwrap_or(0),
            }
        });
        if let Some(tcp) = tcp
            && !omitted
        {
            self.retransmits += tcp.retransmits;
            self.note_extremes(tcp);
        }
        StreamInterval {
            bytes: sample.bytes,
            tcp: tcp.filter(|_| label.sending),
            packets,
            lost,
            jitter_s: self.jitter_s,
            ..StreamInterval::default()
        }
    }

    fn note_extremes(&mut self, tcp: TcpFigures) {
        let extremes = &mut self.extremes;
        extremes.congestion_window_bytes_max =
            extremes.congestion_window_bytes_max.max(tcp.congestion_window_bytes);
        extremes.peer_window_bytes_max = extremes.peer_window_bytes_max.max(tcp.peer_window_bytes);
        extremes.rtt_us_max = extremes.rtt_us_max.max(tcp.rtt_us);
        extremes.rtt_us_min = match extremes.rtt_us_min {
            0 => tcp.rtt_us,
            lowest => lowest.min(tcp.rtt_us),
        };
        self.rtt_us_sum = self.rtt_us_sum.saturating_add(tcp.rtt_us);
        self.rtt_samples_count += 1;
        extremes.rtt_us_mean = self.rtt_us_sum / self.rtt_samples_count;
        extremes.reordering = tcp.reordering;
    }

    fn close(&mut self, label: &StreamLabel, end: &StreamEnd) {
        self.bytes = end.bytes;
        if let Some(tcp) = &end.tcp {
            self.congestion = Some(tcp.congestion_control.clone());
            let gained = tcp.last.retransmits_count.saturating_sub(tcp.first.retransmits_count);
            self.retransmits = signed(gained);
        }
        if let Some(udp) = &end.udp {
            self.lost = signed(udp.lost_count.unwrap_or(0));
            let arrived = signed(udp.datagrams_count);
            self.packets = if label.sending { arrived } else { arrived + self.lost };
            self.jitter_s = udp.jitter_s.unwrap_or(0.0);
            self.out_of_order = signed(udp.reordered_count.unwrap_or(0));
        }
    }

    fn summary(
        &self,
        label: &StreamLabel,
        theirs: Option<&StreamResult>,
        datagram_bytes: u64,
    ) -> StreamSummary {
        // Peers before 3.14 count the omitted start's datagrams in and do not say how many they were. Their bytes
        // begin when the start is over.
        let by_bytes = |theirs: &StreamResult| signed(theirs.bytes / datagram_bytes);
        let hides_start = self.omitted_packets > 0;
        let their_packets = theirs.map_or(0, |theirs| match theirs.omitted_packets {
            Some(omitted) => theirs.packets - omitted,
            None if hides_start && !label.sending => by_bytes(theirs),
            None => theirs.packets - self.omitted_packets,
        });
        let their_lost = theirs.map_or(0, |theirs| match theirs.omitted_errors {
            Some(omitted) => theirs.errors - omitted,
            None if hides_start => (self.packets - by_bytes(theirs)).clamp(0, theirs.errors.max(0)),
            None => theirs.errors,
        });
        let their_bytes = theirs.map_or(0, |theirs| theirs.bytes);
        let their_retransmits = theirs.map_or(0, |theirs| theirs.retransmits);
        let shared = StreamSummary {
            position: label.position,
            tcp: self.extremes,
            out_of_order: self.out_of_order,
            ..StreamSummary::default()
        };
        if label.sending {
            StreamSummary {
                sent_bytes: self.bytes,
                received_bytes: their_bytes,
                retransmits: self.retransmits,
                sender_packets: self.packets,
                receiver_packets: their_packets,
                lost: their_lost,
                jitter_s: theirs.map_or(0.0, |theirs| theirs.jitter_s),
                ..shared
            }
        } else {
            StreamSummary {
                sent_bytes: their_bytes,
                received_bytes: self.bytes,
                retransmits: their_retransmits,
                sender_packets: their_packets,
                receiver_packets: self.packets,
                lost: self.lost,
                jitter_s: self.jitter_s,
                ..shared
            }
        }
    }
}

/// The samples that end after `seen_s`, gathered by interval.
fn unseen(ends: &[StreamEnd], seen_s: f64) -> Vec<IntervalReport> {
    let mut reports: Vec<IntervalReport> = Vec::new();
    for end in ends {
        for sample in end.intervals.iter().filter(|sample| sample.end_s > seen_s + 1e-6) {
            let entry = (end.index, end.sending, sample.clone());
            let same = |report: &&mut IntervalReport| (report.end_s - sample.end_s).abs() < 1e-3;
            match reports.iter_mut().find(same) {
                Some(report) => report.streams.push(entry),
                None => reports.push(IntervalReport {
                    start_s: sample.start_s,
                    end_s: sample.end_s,
                    omitted: sample.omitted,
                    streams: vec![entry],
                }),
            }
        }
    }
    reports
}

fn merge(pending: &mut Interval, end_s: f64, rows: Vec<StreamInterval>) {
    pending.end_s = end_s;
    for (sum, row) in pending.streams.iter_mut().zip(rows) {
        sum.bytes += row.bytes;
        sum.packets += row.packets;
        sum.lost += row.lost;
        sum.jitter_s = row.jitter_s;
        let before = sum.tcp.map_or(0, |tcp| tcp.retransmits);
        sum.tcp = row.tcp.map(|tcp| TcpFigures { retransmits: tcp.retransmits + before, ..tcp });
    }
}

/// Held where sums over all streams cannot overflow.
fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX).min(1 << 53)
}

fn microseconds(seconds: f64) -> u64 {
    units::saturating_u64((seconds * 1e6).round())
}

#[cfg(test)]
mod tests;
