//! What one test gave.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::carried::Carried;
use crate::figure::{Figure, Series};
use crate::host::{CoreUse, EndCounters};
use crate::spec::{Direction, TestLimit, TestSpec};
use crate::stream::StreamEnd;

/// The measurements of one point.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TestOutcome {
    /// Seconds measured, without the omitted start.
    pub duration_s: f64,
    /// Every figure of the point, by name.
    #[serde(default)]
    pub figures: Vec<Figure>,
    /// Values over the time of the point that are no host's account.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub series: Vec<Series>,
    /// One entry per direction that carried bulk data (none in a request/response test).
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub directions: Vec<DirectionOutcome>,
    /// Present in a request/response test.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub request_response: Option<RequestResponseOutcome>,
    /// Round trips measured while the test ran.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub latency_under_load: Option<LatencySummary>,
    /// Round trips, for work that measures nothing else.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub round_trips: Option<LatencySummary>,
    /// The accounts of the hosts; that of a peer that reports none is missing (see `absent` of the document).
    #[serde(default)]
    pub hosts: Vec<HostAccount>,
    /// What the hosts of a gateway plan carried meanwhile.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub carried: Option<Carried>,
}

impl TestOutcome {
    /// Goodput of one stream at one end, bit/s; at a bulk sender at least that of its receiver, as in
    /// [`DirectionOutcome::reconciled`]. Of a request/response stream, the requests of completed transactions over
    /// the length of the test, at both ends: the far end's own clock starts with the first request.
    #[must_use]
    pub fn stream_bits_per_s(&self, stream: &StreamEnd) -> f64 {
        let own = |stream: &StreamEnd| stream.bytes as f64 * 8.0 / stream.duration_s.max(1e-9);
        if self.request_response.is_some() {
            return stream.bytes as f64 * 8.0 / self.duration_s.max(1e-9);
        }
        if !stream.sending {
            return own(stream);
        }
        let has_duplicates =
            |end: &StreamEnd| end.udp.as_ref().and_then(|udp| udp.duplicate_count) > Some(0);
        let ends = self.hosts.iter().flat_map(|host| &host.account.streams);
        let receivers = ends
            .filter(|end| !end.sending && end.index == stream.index)
            .filter(|end| !has_duplicates(end));
        receivers.map(own).fold(own(stream), f64::max)
    }
}

/// One host's account of one point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostAccount {
    /// Name of the host, as in `hosts` of the document.
    pub host: String,
    /// Its streams, cores and counters.
    pub account: EndReport,
}

/// One direction of a test, all its streams together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DirectionOutcome {
    /// `forward` or `reverse`.
    pub direction: Direction,
    /// Payload bytes the sender handed to its sockets; at least those received, some of which it may have
    /// sent before an omitted start was over.
    pub sent_bytes: u64,
    /// Payload bytes the receiver took from its sockets; the figure to quote.
    pub received_bytes: u64,
    /// Goodput at the sender, bit/s; where the ends' clocks and windows of time differ, at least that at the
    /// receiver.
    pub sent_bits_per_s: f64,
    /// Goodput at the receiver, bit/s; the figure to quote.
    pub received_bits_per_s: f64,
    /// TCP segments retransmitted, all streams.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub retransmits_count: Option<u64>,
    /// UDP only.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub udp: Option<UdpOutcome>,
}

impl DirectionOutcome {
    /// The same outcome, whose sender sent at least what was received. Each end counts in a window of time
    /// by its own clock, and the receiver's begins with the first byte: over a short test its mean can
    /// exceed the sender's. Duplicates, which the network makes, are no bytes of the sender.
    #[must_use]
    pub fn reconciled(mut self) -> Self {
        match &mut self.udp {
            Some(udp) if udp.duplicate_count > 0 => return self,
            Some(udp) => udp.sent_count = udp.sent_count.max(udp.received_count),
            None => {}
        }
        self.sent_bytes = self.sent_bytes.max(self.received_bytes);
        self.sent_bits_per_s = self.sent_bits_per_s.max(self.received_bits_per_s);
        self
    }
}

/// UDP totals of one direction.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UdpOutcome {
    /// Datagrams handed to the sender's sockets.
    pub sent_count: u64,
    /// Datagrams taken from the receiver's sockets.
    pub received_count: u64,
    /// Sequence numbers that never arrived though a later one did, or that the receiver's socket dropped.
    /// What is missing behind the last arrival may still have been on its way and is not counted.
    pub lost_count: u64,
    /// Datagrams received out of order.
    pub reordered_count: u64,
    /// Datagrams received more than once.
    pub duplicate_count: u64,
    /// Mean jitter over the streams, seconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub jitter_s: Option<f64>,
    /// How long datagrams waited in queues, seconds: beyond the fastest one's time, mean over the streams.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub standing_delay_s: Option<f64>,
    /// Where datagrams were lost.
    pub loss: UdpLoss,
}

impl UdpOutcome {
    /// Datagrams neither received nor known to be lost: those still in queues when the receiver stopped, or lost behind the
    /// last one that arrived.
    #[must_use]
    pub fn unaccounted_count(&self) -> u64 {
        let came = self.received_count.saturating_sub(self.duplicate_count);
        self.sent_count.saturating_sub(came.saturating_add(self.lost_count))
    }

    /// Of [`Self::unaccounted_count`], those beyond what is usually on its way when a test ends: lost or in a
    /// long queue, and nobody can tell which. In a test limited by duration each end counts by its own clock,
    /// so a quarter second of sending is usual; in one limited by amount nothing is.
    #[must_use]
    pub fn undecided_count(&self, spec: &TestSpec) -> u64 {
        const USUAL_S: f64 = 0.25;
        let usual_count = match spec.limit {
            TestLimit::DurationS(duration_s) => {
                units::saturating_u64(self.sent_count as f64 * (USUAL_S / duration_s).min(0.9))
            }
            // With an omitted start the two ends do not count the same datagrams.
            _ if spec.omit_s > 0.0 => return 0,
            TestLimit::TotalBytes(_) | TestLimit::TotalBlocks(_) => 0,
        };
        self.unaccounted_count().saturating_sub(usual_count)
    }

    /// The largest share that may be lost, 0 to 1: [`Self::undecided_count`] counts as lost. `None` where nothing
    /// was sent or received.
    #[must_use]
    pub fn lost_share_max(&self, spec: &TestSpec) -> Option<f64> {
        let came = self.received_count.saturating_sub(self.duplicate_count);
        let missing = self.lost_count.saturating_add(self.undecided_count(spec));
        let all = came.saturating_add(missing);
        (all > 0).then(|| missing as f64 / all as f64)
    }

    /// Lost datagrams over those lost or received, 0 to 1; datagrams still in flight when counting ended
    /// are neither. `None` where both are 0.
    #[must_use]
    pub fn lost_share(&self) -> Option<f64> {
        let came = self.received_count.saturating_sub(self.duplicate_count);
        let known = self.lost_count.saturating_add(came);
        (known > 0).then(|| self.lost_count as f64 / known as f64)
    }
}

/// Where datagrams were lost, as far as the counters of the two ends show.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UdpLoss {
    /// At the receiver's socket buffer (the reader was too slow).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub socket_buffer_count: Option<u64>,
    /// At a softnet backlog (`/proc/net/softnet_stat`, receiver).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub softnet_count: Option<u64>,
    /// In a device queue of the sender or receiver.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub device_count: Option<u64>,
    /// The remainder: somewhere on the path.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub path_count: Option<u64>,
}

/// `TCP_RR`/`UDP_RR`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RequestResponseOutcome {
    /// Transactions completed, all streams.
    pub transactions_count: u64,
    /// Transactions per second, all streams.
    pub transactions_per_s: f64,
    /// Transactions given up for lack of an answer (UDP).
    pub timeouts_count: u64,
    /// Round-trip times.
    pub latency: LatencySummary,
}

/// A distribution of round-trip times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LatencySummary {
    /// Round trips measured.
    pub count: u64,
    /// Lowest, seconds.
    pub min_s: f64,
    /// Mean, seconds.
    pub mean_s: f64,
    /// Standard deviation, seconds.
    pub deviation_s: f64,
    /// Highest, seconds.
    pub max_s: f64,
    /// Percentiles, ascending: 1, 5, 25, 50, 75, 90, 95, 99 and 99.9, as far as the count gives them: 99 needs 100
    /// round trips, 99.9 needs 1000.
    pub percentiles: Vec<PercentilePoint>,
    /// How the round trips were made: `tcp-rr`, `udp-rr`, `tcp-info`, `icmp`.
    pub method: String,
}

impl LatencySummary {
    /// Percentiles every summary lists.
    pub const PERCENTILES: [f64; 9] = [1.0, 5.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9];

    /// The summary of a histogram; `None` when it is empty.
    #[must_use]
    pub fn of(histogram: &stats::LatencyHistogram, method: &str) -> Option<Self> {
        let point = |percentile| {
            let value_s = histogram.known_percentile_s(percentile)?;
            Some(PercentilePoint { percentile, value_s })
        };
        Some(Self {
            count: histogram.count(),
            min_s: histogram.min_s()?,
            mean_s: histogram.mean_s()?,
            deviation_s: histogram.deviation_s()?,
            max_s: histogram.max_s()?,
            percentiles: Self::PERCENTILES.iter().copied().filter_map(point).collect(),
            method: method.to_owned(),
        })
    }

    /// The value at a listed percentile, seconds; `None` with too few round trips for it, also in documents that list
    /// it all the same.
    #[must_use]
    pub fn percentile_s(&self, percentile: f64) -> Option<f64> {
        if self.count < stats::percentile_count_min(percentile) {
            return None;
        }
        self.percentiles
            .iter()
            .find(|point| (point.percentile - percentile).abs() < 1e-9)
            .map(|point| point.value_s)
    }
}

/// A percentile as text: `p99 18.3 ms`, `p99.9: n too small`.
#[must_use]
pub fn show_percentile(percentile: f64, value: Option<String>) -> String {
    match value {
        Some(value) => format!("p{percentile} {value}"),
        None => format!("p{percentile}: n too small"),
    }
}

/// One point of a distribution.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PercentilePoint {
    /// 0 to 100.
    pub percentile: f64,
    /// Seconds.
    pub value_s: f64,
}

/// One end's account of one test.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EndReport {
    /// Every stream this end took part in.
    pub streams: Vec<StreamEnd>,
    /// Use of each core of the host during the measured time.
    pub cores: Vec<CoreUse>,
    /// Increments of the host's counters during the measured time.
    #[serde(default)]
    pub counters: EndCounters,
    /// Processor time of the testing process, seconds (user, system).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub process_cpu_s: Option<(f64, f64)>,
    /// What this end noticed: a clamped buffer, a refused option, a lost privilege.
    #[serde(default)]
    pub findings: Vec<crate::document::Finding>,
    /// Settings that this end changed for the test, as requested, and restored after it.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub changes: Vec<crate::setting::SettingChange>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_an_exchange_have_one_rate() {
        let mut histogram = stats::LatencyHistogram::default();
        histogram.record_many_ns(1_000_000, 4);
        let latency = LatencySummary::of(&histogram, "tcp-rr").expect("round trips");
        let outcome = TestOutcome {
            duration_s: 2.0,
            request_response: Some(RequestResponseOutcome {
                transactions_count: 4,
                transactions_per_s: 2.0,
                timeouts_count: 0,
                latency,
            }),
            ..TestOutcome::default()
        };
        // The far end's clock starts with the first request, which comes after a second.
        for (sending, duration_s) in [(true, 2.0), (false, 1.0)] {
            let stream =
                StreamEnd { sending, duration_s, bytes: 4_000_000, ..StreamEnd::default() };
            assert_eq!(outcome.stream_bits_per_s(&stream), 16e6);
        }
    }
}
