//! Overruns of the receive ring, which `/proc/net/dev` adds to other drops.

use std::collections::BTreeMap;

use netlink::Link;
use results::DeviceCounters;
use sys::netlink_socket::NetlinkSocket;

use crate::device::links;

/// Overruns of each interface of the calling thread's network namespace.
pub(super) fn read() -> BTreeMap<String, u64> {
    let Ok(mut socket) = NetlinkSocket::open() else { return BTreeMap::new() };
    links(&mut socket).into_iter().filter_map(overruns).collect()
}

/// Puts each device's overruns beside its other counters.
pub(super) fn join(
    devices: Vec<DeviceCounters>,
    rings: &BTreeMap<String, u64>,
) -> Vec<DeviceCounters> {
    let joined = |device: DeviceCounters| DeviceCounters {
        rx_ring_overruns_count: rings.get(&device.interface).copied(),
        ..device
    };
    devices.into_iter().map(joined).collect()
}

/// Receive over-run errors, FIFO errors and missed frames (`struct rtnl_link_stats64`) are all frames
/// the ring had no room for.
fn overruns(link: Link) -> Option<(String, u64)> {
    const PLACES: [usize; 3] = [11, 14, 15];
    let sum = PLACES
        .iter()
        .try_fold(0_u64, |sum, &place| Some(sum.saturating_add(*link.statistics.get(place)?)))?;
    Some((link.name, sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_overrun_nothing() {
        assert_eq!(read().get("lo"), Some(&0));
    }

    #[test]
    fn the_three_kinds_are_added() {
        let mut link = Link { name: "eth0".to_owned(), statistics: vec![0; 24], ..Link::default() };
        for (place, count) in [(11, 1), (14, 2), (15, 4), (6, 9)] {
            link.statistics[place] = count;
        }
        assert_eq!(overruns(link.clone()), Some(("eth0".to_owned(), 7)));
        // A kernel that lists fewer counters.
        link.statistics.truncate(15);
        assert_eq!(overruns(link), None);
    }
}
