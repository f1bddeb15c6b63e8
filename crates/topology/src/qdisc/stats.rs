//! What queueing disciplines passed, dropped and hold, and the policers below them.

use std::collections::BTreeMap;

use netlink::{Attributes, Discipline, DisciplineKind, ROOT, attribute, text_of, u32_of, u64_of};
use results::QdiscCounters;
use sys::netlink_socket::NetlinkSocket;

use super::{disciplines, rate_bytes_per_s, ratespec};
use crate::counters::gain;
use crate::device::links;

const TCA_STATS2: u16 = 7;
const TCA_STATS_BASIC: u16 = 1;
const TCA_STATS_QUEUE: u16 = 3;
const TCA_STATS_APP: u16 = 4;

/// `TC_H_INGRESS`, and the two sides of `clsact` (kernel `include/uapi/linux/pkt_sched.h`).
const INGRESS: u32 = 0xffff_fff1;
const INGRESS_QDISC: u32 = 0xffff_0000;
const CLSACT_INGRESS: u32 = 0xffff_fff2;
const CLSACT_EGRESS: u32 = 0xffff_fff3;

/// Every queueing discipline of the calling thread's network namespace at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct QdiscReadings {
    rows: Vec<QdiscCounters>,
}

impl QdiscReadings {
    /// Empty where a sandbox forbids netlink.
    pub(crate) fn read() -> Self {
        let Ok(mut socket) = NetlinkSocket::open() else { return Self::default() };
        let names: BTreeMap<u32, String> =
            links(&mut socket).into_iter().map(|link| (link.index, link.name)).collect();
        let qdiscs = disciplines(&mut socket, DisciplineKind::Qdisc, 0, 0);
        let row = |discipline: &Discipline| {
            let row = counters(discipline, names.get(&discipline.index)?.clone())?;
            Some(with_policer(row, discipline, &mut socket))
        };
        Self { rows: qdiscs.iter().filter_map(row).collect() }
    }

    /// Disciplines through which anything went, or that hold or drop anything.
    pub(crate) fn since(&self, earlier: &Self) -> Vec<QdiscCounters> {
        let row = |now: &QdiscCounters| {
            let same = |then: &&QdiscCounters| {
                (&then.interface, &then.handle, &then.parent, &then.kind)
                    == (&now.interface, &now.handle, &now.parent, &now.kind)
            };
            let gained = match earlier.rows.iter().find(same) {
                Some(then) => gained(now, then),
                None => now.clone(),
            };
            let moved = gained.sent_pkts + gained.dropped_pkts + gained.backlog_bytes > 0;
            (moved && now.kind != "noqueue").then_some(gained)
        };
        self.rows.iter().filter_map(row).collect()
    }
}

fn gained(now: &QdiscCounters, then: &QdiscCounters) -> QdiscCounters {
    // Counts of packets and drops have 32 bits and go round through zero.
    let gain_32 = |now: u64, then: u64| now.wrapping_sub(then) & u64::from(u32::MAX);
    QdiscCounters {
        sent_bytes: gain(now.sent_bytes, then.sent_bytes),
        sent_pkts: gain_32(now.sent_pkts, then.sent_pkts),
        dropped_pkts: gain_32(now.dropped_pkts, then.dropped_pkts),
        overlimits_count: gain_32(now.overlimits_count, then.overlimits_count),
        requeues_count: gain_32(now.requeues_count, then.requeues_count),
        marked_pkts: now.marked_pkts.zip(then.marked_pkts).map(|(now, then)| gain_32(now, then)),
        ..now.clone()
    }
}

/// `struct gnet_stats_basic` and `struct gnet_stats_queue` (kernel `include/uapi/linux/gen_stats.h`).
fn counters(discipline: &Discipline, interface: String) -> Option<QdiscCounters> {
    let stats = discipline.other(TCA_STATS2)?;
    let basic = attribute(stats, TCA_STATS_BASIC)?;
    let queue = attribute(stats, TCA_STATS_QUEUE)?;
    let word = |at: usize| u32_of(queue.get(at..)?).map(u64::from);
    let (limit_bytes, limit_pkts) = limits(discipline);
    Some(QdiscCounters {
        interface,
        kind: discipline.kind.clone(),
        handle: show_handle(discipline.handle),
        parent: match discipline.parent {
            ROOT => "root".to_owned(),
            INGRESS => discipline.kind.clone(),
            other => show_handle(other),
        },
        sent_bytes: u64_of(basic)?,
        sent_pkts: u64::from(u32_of(basic.get(8..)?)?),
        backlog_bytes: word(4)?,
        dropped_pkts: word(8)?,
        requeues_count: word(12)?,
        overlimits_count: word(16)?,
        limit_bytes,
        limit_pkts,
        rate_bits_per_s: rate_bytes_per_s(discipline).map(|rate| rate as f64 * 8.0),
        police_bits_per_s: None,
        marked_pkts: attribute(stats, TCA_STATS_APP).and_then(|own| marked(&discipline.kind, own)),
    })
}

/// Marked packets in a discipline's own statistics: `struct tc_fq_codel_xstats` (behind its type,
/// 0 for the whole), `struct tc_codel_xstats`, `struct tc_red_xstats`.
fn marked(kind: &str, own: &[u8]) -> Option<u64> {
    let at = match kind {
        "fq_codel" if u32_of(own)? == 0 => 12,
        "codel" => 28,
        "red" => 12,
        _other => return None,
    };
    u32_of(own.get(at..)?).map(u64::from)
}

/// The most it lets wait, bytes and packets, where its options say.
fn limits(discipline: &Discipline) -> (Option<u64>, Option<u64>) {
    const TCA_TBF_PARMS: u16 = 1;
    const TBF_LIMIT_AT: usize = 24;
    const TCA_FQ_PLIMIT: u16 = 1;
    const TCA_CODEL_LIMIT: u16 = 2;
    let options = &discipline.options[..];
    let option = |kind| attribute(options, kind).and_then(u32_of).map(u64::from);
    match discipline.kind.as_str() {
        "bfifo" => (u32_of(options).map(u64::from), None),
        "pfifo" | "pfifo_head_drop" => (None, u32_of(options).map(u64::from)),
        "tbf" => {
            let parameters = attribute(options, TCA_TBF_PARMS);
            let limit = parameters.and_then(|parameters| u32_of(parameters.get(TBF_LIMIT_AT..)?));
            (limit.map(u64::from), None)
        }
        "fq" => (None, option(TCA_FQ_PLIMIT)),
        "fq_codel" | "codel" => (None, option(TCA_CODEL_LIMIT)),
        _other => (None, None),
    }
}

/// Looks for a policer among the filters of a discipline.
fn with_policer(
    row: QdiscCounters,
    discipline: &Discipline,
    socket: &mut NetlinkSocket,
) -> QdiscCounters {
    let places: &[(u32, &str)] = match row.kind.as_str() {
        "ingress" => &[(INGRESS_QDISC, "ingress")],
        "clsact" => &[(CLSACT_INGRESS, "ingress"), (CLSACT_EGRESS, "egress")],
        "htb" | "prio" | "hfsc" | "drr" | "tbf" => &[(discipline.handle, "root")],
        _other => return row,
    };
    let found = places.iter().find_map(|&(parent, place)| {
        let filters = disciplines(socket, DisciplineKind::Filter, discipline.index, parent);
        let rates = filters.iter().filter_map(|filter| police_rate(&filter.options, 1));
        Some((rates.min()?, place))
    });
    match found {
        Some((rate, place)) => QdiscCounters {
            police_bits_per_s: Some(rate as f64 * 8.0),
            parent: place.to_owned(),
            ..row
        },
        None => row,
    }
}

/// The rate of a `police` action somewhere below, bytes/s: actions stand at another depth and under
/// another number in each classifier. `struct tc_police` holds its rate behind five words.
fn police_rate(attributes: &[u8], depth: u32) -> Option<u64> {
    const DEPTH_MAX: u32 = 6;
    const TCA_ACT_KIND: u16 = 1;
    const TCA_ACT_OPTIONS: u16 = 2;
    const TCA_POLICE_TBF: u16 = 1;
    const TCA_POLICE_RATE64: u16 = 8;
    const RATESPEC_AT: usize = 20;
    if depth > DEPTH_MAX {
        return None;
    }
    let is_police =
        attribute(attributes, TCA_ACT_KIND).and_then(text_of).as_deref() == Some("police");
    if is_police && let Some(options) = attribute(attributes, TCA_ACT_OPTIONS) {
        let wide = attribute(options, TCA_POLICE_RATE64).and_then(u64_of);
        let narrow = || ratespec(attribute(options, TCA_POLICE_TBF)?.get(RATESPEC_AT..)?, 0);
        return wide.or_else(narrow).filter(|&rate| rate > 0);
    }
    // A classifier's old-style policer stands among its options without an action's heading.
    Attributes::new(attributes).find_map(|(_kind, value)| police_rate(value, depth + 1))
}

/// `1:`, `8001:2`, as `tc` writes them.
pub(super) fn show_handle(handle: u32) -> String {
    match handle & 0xffff {
        0 => format!("{:x}:", handle >> 16),
        minor => format!("{:x}:{minor:x}", handle >> 16),
    }
}

#[cfg(test)]
mod tests {
    use netlink::Object;

    use super::*;

    const TCA_KIND: u16 = 1;

    fn attr(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = u16::try_from(4 + value.len()).unwrap().to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn message(kind: &str, options: &[u8], (sent, dropped): (u64, u32)) -> Vec<u8> {
        let mut body = words(&[0, 7, 0x8001_0000, ROOT, 0]);
        body.extend(attr(TCA_KIND, format!("{kind}\0").as_bytes()));
        body.extend(attr(2, options));
        let mut basic = sent.to_ne_bytes().to_vec();
        basic.extend(words(&[9, 0]));
        let mut stats = attr(TCA_STATS_BASIC, &basic);
        stats.extend(attr(TCA_STATS_QUEUE, &words(&[1, 1500, dropped, 2, 3])));
        body.extend(attr(TCA_STATS2, &stats));
        body
    }

    fn row(body: &[u8]) -> QdiscCounters {
        counters(&Discipline::parse(body).unwrap(), "eth0".to_owned()).unwrap()
    }

    #[test]
    fn a_short_queue_that_drops() {
        let before =
            QdiscReadings { rows: vec![row(&message("bfifo", &words(&[15_000]), (10, 4)))] };
        let after =
            QdiscReadings { rows: vec![row(&message("bfifo", &words(&[15_000]), (1010, 54)))] };
        let told = after.since(&before);
        let [qdisc] = &told[..] else { panic!("{told:?}") };
        assert_eq!(
            (qdisc.sent_bytes, qdisc.dropped_pkts, qdisc.limit_bytes),
            (1000, 50, Some(15_000))
        );
        assert_eq!((qdisc.handle.as_str(), qdisc.parent.as_str()), ("8001:", "root"));
        assert_eq!(qdisc.backlog_bytes, 1500);
        let pfifo = row(&message("pfifo", &words(&[2]), (1, 0)));
        assert_eq!((pfifo.limit_pkts, pfifo.limit_bytes), (Some(2), None));
    }

    #[test]
    fn a_policer_is_found_at_any_depth() {
        let mut police = vec![0; 20];
        police.extend([0; 8]);
        police.extend(words(&[12_500_000]));
        let mut action = attr(1, b"police\0");
        action.extend(attr(2, &attr(1, &police)));
        let matchall = attr(2, &attr(2, &attr(1, &action)));
        assert_eq!(police_rate(&matchall, 0), Some(12_500_000));
        assert_eq!(police_rate(&attr(1, b"gact\0"), 0), None);
    }

    #[test]
    fn this_host_has_readings() {
        let readings = QdiscReadings::read();
        assert_eq!(readings.since(&readings).iter().filter(|row| row.dropped_pkts > 0).count(), 0);
    }

    #[test]
    fn any_message_is_read_or_refused() {
        bolero::check!().for_each(|body: &[u8]| {
            if let Ok(discipline) = Discipline::parse(body) {
                counters(&discipline, String::new());
            }
            police_rate(body, 0);
        });
    }
}
