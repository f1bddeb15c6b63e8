//! Overruns of the receive ring, which `/proc/net/dev` adds to other drops.

use std::collections::BTreeMap;

use results::DeviceCounters;

use crate::netlink::{RouteSocket, attribute, text_of, u64_of};

/// Overruns of each interface of the calling thread's network namespace.
pub(super) fn read() -> BTreeMap<String, u64> {
    let Some(socket) = RouteSocket::open() else { return BTreeMap::new() };
    socket.links().iter().filter_map(|body| parse(body)).collect()
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

/// `struct rtnl_link_stats64` of a link message (kernel `include/uapi/linux/if_link.h`): receive
/// over-run errors, FIFO errors and missed frames are all frames the ring had no room for.
fn parse(body: &[u8]) -> Option<(String, u64)> {
    const IFINFOMSG_BYTES: usize = 16;
    const IFLA_IFNAME: u16 = 3;
    const IFLA_STATS64: u16 = 23;
    const PLACES: [usize; 3] = [11, 14, 15];
    let attributes = body.get(IFINFOMSG_BYTES..)?;
    let stats = attribute(attributes, IFLA_STATS64)?;
    let sum = PLACES
        .iter()
        .try_fold(0_u64, |sum, place| Some(sum.saturating_add(u64_of(stats.get(place * 8..)?)?)))?;
    Some((text_of(attribute(attributes, IFLA_IFNAME)?)?, sum))
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
        let mut stats = vec![0; 24 * 8];
        for (place, count) in [(11, 1_u8), (14, 2), (15, 4), (6, 9)] {
            stats[place * 8] = count;
        }
        let mut body = vec![0; 16];
        body.extend([9, 0, 3, 0, b'e', b't', b'h', b'0', 0, 0, 0, 0]);
        body.extend(u16::try_from(4 + stats.len()).unwrap().to_ne_bytes());
        body.extend([23, 0]);
        body.extend(stats);
        assert_eq!(parse(&body), Some(("eth0".to_owned(), 7)));
        bolero::check!().for_each(|body: &[u8]| {
            parse(body);
        });
    }
}
