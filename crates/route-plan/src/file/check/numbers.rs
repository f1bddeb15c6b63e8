//! `[routing]` and `[watch]`: numbers that the kernel, other daemons and clocks set limits to.

use core::time::Duration;

use super::Reader;
use crate::file::line_of;
use crate::file::raw::{Number, RawRouting, RawWatch, Text};
use crate::hash::HashPolicy;
use crate::plan::{Bfd, Buckets, Mode, Network, Routing, RoutingLines, Watch, WatchMode};
use crate::wanted::NEXTHOP_IDS_COUNT;

/// Protocols that the kernel or a routing daemon marks its routes with (`rtnetlink.h`): what they
/// find with their number they take for their own.
const PROTOCOLS_OF_OTHERS: &[(u8, &str)] = &[
    (0, "unspecified"),
    (1, "ICMP redirects"),
    (2, "the kernel"),
    (3, "boot, which iproute2 uses"),
    (4, "static routes"),
    (8, "gated"),
    (9, "router advertisements"),
    (10, "MRT"),
    (11, "zebra"),
    (12, "BIRD"),
    (13, "DECnet"),
    (14, "XORP"),
    (15, "NetworkManager's teaming"),
    (16, "DHCP"),
    (17, "mrouted"),
    (18, "keepalived"),
    (42, "babel"),
    (84, "openr"),
    (99, "openr"),
    (186, "BGP"),
    (187, "IS-IS"),
    (188, "OSPF"),
    (189, "RIP"),
    (192, "EIGRP"),
];

/// Tables with a meaning of their own: unspecified, default, main, local; 252 stands for large numbers.
const TABLES_OF_OTHERS: &[u32] = &[0, 252, 253, 254, 255];
/// The rule of the table main; rules behind it are not reached by packets that have a route.
const PRIORITY_OF_MAIN: u32 = 32_766;
const BUCKETS_COUNT_DEFAULT: u16 = 128;
/// `NLA` timers are hundredths of a second in 32 bits.
const TIMER_MAX: Duration = Duration::from_secs(40_000_000);

impl Reader<'_> {
    pub(super) fn routing(
        &mut self,
        raw: &RawRouting,
        networks: &[Network],
        gateways_count: usize,
    ) -> Option<Routing> {
        let gateways_count = u32::try_from(gateways_count).unwrap_or(u32::MAX);
        let policy = match self.number(&raw.policy, "policy", 0..=1, 1)? {
            0 => HashPolicy::Addresses,
            _one => HashPolicy::Ports,
        };
        let tables = self.number(&raw.tables, "tables", 1..=u32::MAX - gateways_count - 1, 100)?;
        let used = tables + 1..=tables + gateways_count;
        if let Some(table) = TABLES_OF_OTHERS.iter().find(|table| used.contains(table)) {
            let (first, last) = (used.start(), used.end());
            let reason = format!(
                "tables {first} to {last} would be used; {table} has a meaning of its own in the kernel"
            );
            self.wrong(raw.tables.as_ref().map_or(0..0, |given| given.span()), reason);
        }
        let last_priority = PRIORITY_OF_MAIN.saturating_sub(gateways_count);
        let rule_priority =
            self.number(&raw.rule_priority, "rule_priority", 1..=last_priority, 1000)?;
        let ids_max = u32::MAX - NEXTHOP_IDS_COUNT;
        Some(Routing {
            mode: self.mode(raw, gateways_count)?,
            follow: self.follow(raw, networks)?,
            follow_udp: raw.follow_udp.as_ref().is_some_and(|given| *given.get_ref()),
            policy,
            seed: self.seed(&raw.seed)?,
            gateway_seed: self.seed(&raw.gateway_seed)?,
            tables,
            rule_priority,
            protocol: self.protocol(&raw.protocol)?,
            nexthop_ids: self.number(&raw.nexthop_ids, "nexthop_ids", 1..=ids_max, 7700)?,
            lines: RoutingLines {
                tables: self.line(&raw.tables),
                rule_priority: self.line(&raw.rule_priority),
                nexthop_ids: self.line(&raw.nexthop_ids),
            },
        })
    }

    pub(super) fn watch(&mut self, raw: &RawWatch) -> Option<Watch> {
        let mode = match raw.mode.as_ref().map(|mode| (mode, mode.get_ref().as_str())) {
            None | Some((_, "self")) => WatchMode::SelfProbing,
            Some((_, "sentinel")) => WatchMode::Sentinel,
            Some((place, other)) => {
                let reason = format!("unknown watch mode '{other}'; expected self or sentinel");
                self.wrong(place.span(), reason);
                return None;
            }
        };
        let (shortest, longest) = (Duration::from_millis(1), Duration::from_secs(3600));
        let interval = self.duration(&raw.interval, "interval", shortest, 50)?;
        let hold_down = self.duration(&raw.hold_down, "hold_down", Duration::ZERO, 2000)?;
        if let Some(place) = raw.interval.as_ref().filter(|_| interval > longest) {
            self.wrong(place.span(), "the longest interval is one hour");
        }
        let multiplier = self.number(&raw.multiplier, "multiplier", 1..=255, 3)?;
        let up_after = self.number(&raw.up_after, "up_after", 1..=255, 5)?;
        let bfd = raw.bfd.as_ref().map_or(Bfd::Off, |given| given.get_ref().0);
        let bfd_ttl_min = self.number(&raw.bfd_ttl_min, "bfd_ttl_min", 1..=255, 1)?;
        if let (Bfd::OneHop, Some(given)) = (bfd, &raw.bfd_ttl_min) {
            let reason = "bfd_ttl_min belongs to bfd = \"multihop\"; over one hop only a TTL of 255 is accepted \
                          (RFC 5881)";
            self.wrong(given.span(), reason);
        }
        Some(Watch {
            interval,
            multiplier: u8::try_from(multiplier).ok()?,
            up_after: u8::try_from(up_after).ok()?,
            hold_down,
            mode,
            bfd,
            bfd_ttl_min: u8::try_from(bfd_ttl_min).ok()?,
            key_file: raw.key_file.as_ref().map(|file| file.get_ref().clone()),
        })
    }

    fn mode(&mut self, raw: &RawRouting, gateways_count: u32) -> Option<Mode> {
        let resilient_keys = [
            raw.buckets.as_ref().map(|given| given.span()),
            raw.idle_timer.as_ref().map(|given| given.span()),
            raw.unbalanced_timer.as_ref().map(|given| given.span()),
        ];
        let mode = match raw.mode.as_ref().map(|mode| (mode, mode.get_ref().as_str())) {
            None | Some((_, "pairs")) => Mode::Pairs,
            Some((_, "hash")) => Mode::Hash,
            Some((_, "resilient")) => {
                let range = gateways_count.max(1)..=u16::MAX.into();
                let default = gateways_count.saturating_mul(16).max(BUCKETS_COUNT_DEFAULT.into());
                let count = self.number(&raw.buckets, "buckets", range, default)?;
                return Some(Mode::Resilient(Buckets {
                    count: u16::try_from(count).ok()?,
                    idle: self.timer(&raw.idle_timer, "idle_timer", 120_000)?,
                    unbalanced: self.timer(&raw.unbalanced_timer, "unbalanced_timer", 0)?,
                }));
            }
            Some((place, other)) => {
                let reason = format!("unknown mode '{other}'; expected pairs, hash or resilient");
                self.wrong(place.span(), reason);
                return None;
            }
        };
        if let Some(place) = resilient_keys.into_iter().flatten().next() {
            self.wrong(place, "buckets and timers belong to mode = \"resilient\"");
        }
        Some(mode)
    }

    fn follow(&mut self, raw: &RawRouting, networks: &[Network]) -> Option<Option<usize>> {
        let Some(wanted) = &raw.follow else {
            if let Some(given) = raw.follow_udp.as_ref().filter(|given| *given.get_ref()) {
                let reason =
                    "follow_udp needs `follow`, which names the network whose hosts follow";
                self.wrong(given.span(), reason);
            }
            return Some(None);
        };
        let found = networks.iter().position(|network| network.name == *wanted.get_ref());
        if found.is_none() {
            let mut reason = super::unknown_network(wanted.get_ref(), networks);
            reason.push_str("; follow names the network whose hosts accept connections");
            self.wrong(wanted.span(), reason);
        }
        found.map(Some)
    }

    fn seed(&mut self, given: &Option<Number>) -> Option<Option<u32>> {
        let Some(given) = given else { return Some(None) };
        match u32::try_from(*given.get_ref()) {
            Ok(0) => {
                let reason = "with a seed of 0 each kernel chooses a secret one of its own: leave the key \
                     out, or write 1 to 4294967295";
                self.wrong(given.span(), reason);
                None
            }
            Ok(seed) => Some(Some(seed)),
            Err(_beyond) => {
                self.wrong(given.span(), "a seed is a number from 1 to 4294967295");
                None
            }
        }
    }

    fn protocol(&mut self, given: &Option<Number>) -> Option<u8> {
        let default = netlink::protocol::CLEARSTREAM;
        let number = self.number(given, "protocol", 0..=255, default.into())?;
        let number = u8::try_from(number).ok()?;
        if let Some((_, owner)) = PROTOCOLS_OF_OTHERS.iter().find(|(known, _)| *known == number) {
            let reason = format!("protocol {number} marks the routes of others: {owner}");
            self.wrong(given.as_ref().map_or(0..0, |given| given.span()), reason);
            return None;
        }
        Some(number)
    }

    fn line(&self, given: &Option<Number>) -> Option<usize> {
        given.as_ref().map(|given| line_of(self.text, given.span().start))
    }

    fn number(
        &mut self,
        given: &Option<Number>,
        name: &str,
        range: core::ops::RangeInclusive<u32>,
        default: u32,
    ) -> Option<u32> {
        let Some(given) = given else { return Some(default) };
        let number = u32::try_from(*given.get_ref()).ok().filter(|one| range.contains(one));
        if number.is_none() {
            let (first, last) = (range.start(), range.end());
            let reason = format!("{name} = {}; it goes from {first} to {last}", given.get_ref());
            self.wrong(given.span(), reason);
        }
        number
    }

    fn timer(&mut self, given: &Option<Text>, name: &str, default_ms: u64) -> Option<Duration> {
        let timer = self.duration(given, name, Duration::ZERO, default_ms)?;
        if timer > TIMER_MAX {
            let seconds = TIMER_MAX.as_secs();
            let place = given.as_ref().map_or(0..0, |given| given.span());
            self.wrong(place, format!("{name}: the kernel allows at most {seconds} s"));
            return None;
        }
        Some(timer)
    }

    fn duration(
        &mut self,
        given: &Option<Text>,
        name: &str,
        shortest: Duration,
        default_ms: u64,
    ) -> Option<Duration> {
        let Some(given) = given else { return Some(Duration::from_millis(default_ms)) };
        match units::parse_duration_with_unit(given.get_ref()) {
            Ok(duration) if duration >= shortest => Some(duration),
            Ok(_shorter) => {
                self.wrong(given.span(), format!("{name}: at least {shortest:?}"));
                None
            }
            Err(error) => {
                self.wrong(given.span(), format!("{name}: {error}"));
                None
            }
        }
    }
}
