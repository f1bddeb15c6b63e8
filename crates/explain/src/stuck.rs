//! Transfers of which nothing arrived though the path answers: full segments are lost, small packets are not.

use results::{
    Direction, End, Evidence, Limit, Point, Results, StreamEnd, TestOutcome, Verdict, Work,
};
use units::{saturating_u64, show_count};

use crate::observed::end_name;
use crate::verdict;

/// The section of `docs/limits.md` about transfers of which nothing arrived.
pub(crate) const PAGE: &str = "
# Nothing arrived

`mtu-black-hole` is named if TCP connects and small packets are answered, but no data arrives and the sender
retransmits full segments again and again: a router or a tunnel drops packets that are larger than its next link carries, and its ICMP error
(`fragmentation needed`) is not sent or is filtered. No experiment confirms the verdict; a test with `--mss 536` shows whether smaller
segments pass.
";

/// Segments that may arrive before the first full one, such as a short first write.
const PASSED_MAX: f64 = 2.0;

/// The verdict of a document of whose TCP transfers none brought any data; `None` for any other.
pub(crate) fn explain(results: &Results) -> Option<Verdict> {
    let bulk: Vec<Stuck<'_>> = results
        .points
        .iter()
        .filter(|point| !point.is_confirmation())
        .filter_map(Stuck::of)
        .collect();
    let first = bulk.first()?;
    if !bulk.iter().all(Stuck::is_stuck) {
        return None;
    }
    let answers = answered(results)?;
    let mss = first.mss_bytes?;
    let again = first.retransmits_count;
    let summary = format!(
        "bottleneck: an MTU black hole on the path: TCP connects and {answers}, but none of the segments of {mss} bytes \
         arrives ({} retransmitted)",
        show_count(again)
    );
    let end = end_name(first.sender);
    let mtu = results.path.path_mtu_bytes.filter(|mtu| *mtu < mss);
    let mtu = mtu.map(|mtu| format!("packets of up to {mtu} bytes pass"));
    let probing = sysctl(results, first.sender, PROBING).map(|value| {
        format!("{PROBING} is {value} at the {end} end: 1 lets TCP find the size by itself")
    });
    let evidence = [Some(summary.clone()), mtu, probing].into_iter().flatten();
    let evidence = evidence
        .map(|text| Evidence { limit: Limit::MtuBlackHole, text, weight: WEIGHT })
        .collect();
    let advice = vec![
        "see whether smaller segments pass: --mss 536; then find the size: ping -M do -s SIZE, tracepath".to_owned(),
        "let ICMP `fragmentation needed` (IPv6: `packet too big`) through every firewall on the way".to_owned(),
        format!("until then at the {end} end: sysctl -w {PROBING}=1, or a smaller MTU (ip link set DEV mtu SIZE)"),
    ];
    let plain = verdict::unproven(Limit::MtuBlackHole, None, summary, advice);
    Some(Verdict { evidence, ..plain })
}

const PROBING: &str = "net.ipv4.tcp_mtu_probing";

/// No other limit stops every full segment and no small one; a filter that inspects the data could.
const WEIGHT: f64 = 0.9;

/// One TCP transfer.
struct Stuck<'a> {
    outcome: &'a TestOutcome,
    sender: End,
    mss_bytes: Option<u32>,
    retransmits_count: f64,
}

impl<'a> Stuck<'a> {
    fn of(point: &'a Point) -> Option<Self> {
        let (Work::Bulk(spec), outcome) = (&point.work, point.measured()?) else { return None };
        let sender = if spec.direction == Direction::Reverse { End::Far } else { End::Near };
        let report = match sender {
            End::Near => Some(outcome.near()),
            End::Far => outcome.far(),
        };
        let tcp = |stream: &'a StreamEnd| stream.tcp.as_ref().filter(|_| stream.sending);
        let streams: Vec<_> =
            report.iter().flat_map(|report| &report.streams).filter_map(tcp).collect();
        Some(Self {
            outcome,
            sender,
            mss_bytes: streams.iter().map(|tcp| tcp.mss_bytes).max().filter(|bytes| *bytes > 0),
            retransmits_count: streams.iter().map(|tcp| tcp.last.retransmits_count as f64).sum(),
        })
    }

    fn is_stuck(&self) -> bool {
        let arrived: u64 = self.outcome.directions.iter().map(|way| way.received_bytes).sum();
        let most = PASSED_MAX * self.mss_bytes.map_or(0.0, f64::from);
        arrived <= saturating_u64(most) && self.retransmits_count > 0.0
    }
}

/// That small packets pass both ways, in words; `None` if none was seen to.
fn answered(results: &Results) -> Option<String> {
    let requests: u64 = results
        .points
        .iter()
        .filter_map(|point| Some(point.measured()?.request_response.as_ref()?.transactions_count))
        .sum();
    let idle = results.path.idle_rtt.as_ref().map_or(0, |told| told.count);
    let count = requests.max(idle);
    (count > 0).then(|| format!("{} small requests are answered", show_count(count as f64)))
}

fn sysctl<'a>(results: &'a Results, end: End, key: &str) -> Option<&'a str> {
    let host = match end {
        End::Near => results.near(),
        End::Far => results.far()?,
    };
    host.sysctls.get(key).map(String::as_str)
}
