//! Protocol counters: `/proc/net/snmp`, `/proc/net/netstat`, `/proc/net/snmp6`.

use std::collections::BTreeMap;

use results::CounterDelta;

use crate::counters::gain;

/// Figures that are states or settings, not counts of events (kernel `net/ipv4/proc.c`).
const NOT_COUNTERS: &[&str] = &[
    "Ip.Forwarding",
    "Ip.DefaultTTL",
    "Tcp.RtoAlgorithm",
    "Tcp.RtoMin",
    "Tcp.RtoMax",
    "Tcp.MaxConn",
    "Tcp.CurrEstab",
    "MPTcpExt.MPCurrEstab",
    "MPTcpExt.Blackhole",
];

/// Prefixes of the flat names in `/proc/net/snmp6`, longest first where one begins another.
const GROUPS_V6: &[&str] = &["UdpLite6", "Icmp6", "Udp6", "Ip6"];

/// `Group.Name` → value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ProtocolCounters {
    values: BTreeMap<String, u64>,
}

impl ProtocolCounters {
    /// Adds pairs of lines: `Tcp: RtoAlgorithm RtoMin …` and `Tcp: 1 200 …`. A column whose value
    /// is no natural number (`MaxConn` is -1) is left out; a pair whose groups differ is skipped.
    pub(crate) fn add_tables(&mut self, text: &str) {
        let mut lines = text.lines();
        while let (Some(names), Some(values)) = (lines.next(), lines.next()) {
            let (Some((group, names)), Some((same_group, values))) =
                (names.split_once(':'), values.split_once(':'))
            else {
                continue;
            };
            if group != same_group {
                continue;
            }
            let columns = names.split_ascii_whitespace().zip(values.split_ascii_whitespace());
            for (name, value) in columns {
                self.add(format!("{group}.{name}"), value);
            }
        }
    }

    /// Adds lines of a name and a value: `Udp6RcvbufErrors  0` becomes `Udp6.RcvbufErrors`.
    pub(crate) fn add_list(&mut self, text: &str) {
        for line in text.lines() {
            let Some((name, value)) = line.split_once(|c: char| c.is_ascii_whitespace()) else {
                continue;
            };
            let grouped = GROUPS_V6
                .iter()
                .find_map(|group| name.strip_prefix(group).map(|rest| format!("{group}.{rest}")));
            self.add(grouped.unwrap_or_else(|| name.to_owned()), value.trim());
        }
    }

    /// Counters that moved, by name.
    pub(crate) fn since(&self, earlier: &Self) -> Vec<CounterDelta> {
        self.values
            .iter()
            .filter_map(|(name, &now)| {
                let gain_count = gain(now, *earlier.values.get(name)?);
                (gain_count > 0).then(|| CounterDelta { name: name.clone(), gain_count })
            })
            .collect()
    }

    fn add(&mut self, name: String, value: &str) {
        if NOT_COUNTERS.contains(&name.as_str()) {
            return;
        }
        if let Ok(value) = value.parse() {
            self.values.insert(name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snmp(text: &str) -> ProtocolCounters {
        let mut counters = ProtocolCounters::default();
        counters.add_tables(text);
        counters
    }

    #[test]
    fn only_counters_that_moved_are_told() {
        let before = snmp(
            "Tcp: RtoMin MaxConn CurrEstab RetransSegs InSegs\nTcp: 200 -1 3 7 90\n\
                           Udp: RcvbufErrors\nUdp: 5\n",
        );
        let after = snmp(
            "Tcp: RtoMin MaxConn CurrEstab RetransSegs InSegs\nTcp: 201 -1 9 12 90\n\
                          Udp: RcvbufErrors\nUdp: 6\n",
        );
        let told = after.since(&before);
        let told: Vec<_> = told.iter().map(|d| (d.name.as_str(), d.gain_count)).collect();
        assert_eq!(told, [("Tcp.RetransSegs", 5), ("Udp.RcvbufErrors", 1)]);
    }

    #[test]
    fn the_flat_list_is_grouped() {
        let mut before = ProtocolCounters::default();
        before.add_list("Ip6InReceives                   \t1\nUdpLite6InDatagrams\t4\nOdd 1\n");
        let mut after = ProtocolCounters::default();
        after.add_list("Ip6InReceives                   \t3\nUdpLite6InDatagrams\t5\nOdd 2\n");
        let names: Vec<_> = after.since(&before).into_iter().map(|delta| delta.name).collect();
        assert_eq!(names, ["Ip6.InReceives", "Odd", "UdpLite6.InDatagrams"]);
    }

    #[test]
    fn torn_tables_are_skipped() {
        let counters = snmp("Tcp: A B\nUdp: 1 2\nIp: C D E\nIp: 1 x\nlast");
        assert_eq!(counters.values, BTreeMap::from([("Ip.C".to_owned(), 1)]));
    }
}
