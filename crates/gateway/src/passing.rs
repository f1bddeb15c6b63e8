//! What a gateway still forwards: the kernel's own count of forwarded packets, and who sends them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use netlink::{Address, AddressFilter, Family};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, eth};
use sys::netlink_socket::{NetlinkError, NetlinkSocket};
use thiserror::Error;

/// UDP ports of watchers' probes and of their reflectors. They cross drained gateways too, to learn when those are
/// fit again, and are no flows.
const PROBE_PORTS: [u16; 2] = [3998, 3999];
/// What is read of each packet: an IPv6 header and two ports.
const HEAD_BYTES: usize = 64;
const UDP: u8 = 17;
/// Most senders that are distinguished; the packets of others are only counted.
const TALKS_COUNT_MAX: usize = 10_000;

/// Why it is not known what a gateway forwards.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PassingError {
    /// The kernel gives no packets.
    #[error("cannot see which packets this gateway forwards; it needs CAP_NET_RAW (root)")]
    Socket(#[source] io::Error),
    /// Its addresses cannot be listed.
    #[error("cannot list this gateway's addresses (rtnetlink)")]
    Addresses(#[from] NetlinkError),
    /// The kernel's counters cannot be read.
    #[error("cannot read how many packets this gateway forwards")]
    Counters(#[source] io::Error),
}

impl PassingError {
    /// Whether a privilege is missing.
    #[must_use]
    pub fn is_privilege(&self) -> bool {
        matches!(self, Self::Socket(error) if error.kind() == io::ErrorKind::PermissionDenied)
    }
}

/// Packets that were forwarded for a while.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Passed {
    /// Packets of flows. 0 is certain: either the kernel has forwarded nothing, or each packet that came and was not for
    /// this host was a watcher's probe.
    pub packets: u64,
    /// Watchers' probes and their answers.
    pub probes: u64,
    /// Who sends to whom, with the packets seen; the busiest first.
    pub talks: Vec<((IpAddr, IpAddr), u64)>,
}

/// Sees what the gateway that the thread is on forwards of one address family.
#[derive(Debug)]
pub struct Passing {
    family: Family,
    socket: OwnedFd,
    own: BTreeSet<IpAddr>,
}

impl Passing {
    /// Opens it.
    ///
    /// # Errors
    /// [`PassingError`].
    pub fn open(family: Family) -> Result<Self, PassingError> {
        let protocol = match family {
            Family::V4 => eth::IP,
            Family::V6 => eth::IPV6,
        };
        // Of one protocol: what arrives is seen, what this host sends is not.
        let socket = rustix::net::socket_with(
            AddressFamily::PACKET,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            Some(protocol),
        )
        .map_err(|error| PassingError::Socket(error.into()))?;
        let filter = AddressFilter { family, interface_index: None };
        let own = NetlinkSocket::open()?.list::<Address>(&Address::dump(filter))?;
        Ok(Self { family, socket, own: own.into_iter().map(|one| one.address).collect() })
    }

    /// Looks for so long.
    ///
    /// # Errors
    /// [`PassingError`].
    pub fn look(&self, window: Duration) -> Result<Passed, PassingError> {
        self.throw_away();
        let before = self.forwarded()?;
        let until = Instant::now() + window;
        let (mut seen, mut probes) = (0_u64, 0_u64);
        let mut talks: BTreeMap<(IpAddr, IpAddr), u64> = BTreeMap::new();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            if !self.wait(left)? {
                continue;
            }
            let mut head = [0; HEAD_BYTES];
            let length = match rustix::net::recv(&self.socket, &mut head[..], RecvFlags::empty()) {
                Ok((length, _)) => length,
                Err(Errno::AGAIN | Errno::INTR) => continue,
                Err(error) => return Err(PassingError::Socket(error.into())),
            };
            match head_of(head.get(..length).unwrap_or_default()) {
                Some(head) if !self.is_forwarded(&head) => {}
                Some(head) if head.is_probe => probes += 1,
                Some(head) => {
                    seen += 1;
                    let talk = (head.from, head.to);
                    if talks.len() < TALKS_COUNT_MAX || talks.contains_key(&talk) {
                        *talks.entry(talk).or_default() += 1;
                    }
                }
                None => seen += 1,
            }
        }
        let forwarded = self.forwarded()?.saturating_sub(before);
        let mut talks: Vec<_> = talks.into_iter().collect();
        talks.sort_by_key(|(_, packets)| std::cmp::Reverse(*packets));
        // A switch that floods shows us packets that are for others: the kernel does not forward those.
        Ok(Passed { packets: seen.min(forwarded), probes, talks })
    }

    /// Forgets what has arrived so far.
    fn throw_away(&self) {
        let mut head = [0; 1];
        while rustix::net::recv(&self.socket, &mut head[..], RecvFlags::empty()).is_ok() {}
    }

    fn wait(&self, left: Duration) -> Result<bool, PassingError> {
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        let timeout = Timespec::try_from(left).ok();
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(count) => Ok(count > 0),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(PassingError::Socket(error.into())),
        }
    }

    fn is_forwarded(&self, head: &Head) -> bool {
        let is_for_the_link = match head.to {
            IpAddr::V4(to) => to.is_broadcast() || to.is_multicast() || to.is_link_local(),
            IpAddr::V6(to) => to.is_multicast() || to.is_unicast_link_local(),
        };
        !is_for_the_link && !self.own.contains(&head.to)
    }

    /// Packets that the kernel has forwarded since it began to count.
    fn forwarded(&self) -> Result<u64, PassingError> {
        let (path, count): (_, fn(&str) -> Option<u64>) = match self.family {
            Family::V4 => ("/proc/thread-self/net/snmp", forwarded_v4),
            Family::V6 => ("/proc/thread-self/net/snmp6", forwarded_v6),
        };
        let text = fs::read_to_string(path).map_err(PassingError::Counters)?;
        let unknown =
            || io::Error::new(io::ErrorKind::InvalidData, format!("{path}: no such line"));
        count(&text).ok_or_else(|| PassingError::Counters(unknown()))
    }
}

fn forwarded_v4(text: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|line| line.starts_with("Ip:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let mut columns = names.split(' ').zip(values.split(' '));
    columns.find(|(name, _)| *name == "ForwDatagrams")?.1.parse().ok()
}

fn forwarded_v6(text: &str) -> Option<u64> {
    let mut lines = text.lines().map(str::split_ascii_whitespace);
    lines.find_map(|mut words| {
        (words.next()? == "Ip6OutForwDatagrams").then(|| words.next()?.parse().ok())?
    })
}

/// What a packet's beginning says.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    from: IpAddr,
    to: IpAddr,
    is_probe: bool,
}

fn head_of(bytes: &[u8]) -> Option<Head> {
    let (from, to, protocol, rest): (IpAddr, IpAddr, u8, &[u8]) = match bytes.first()? >> 4 {
        4 => {
            let address = |at: usize| -> Option<IpAddr> {
                let bytes: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
                Some(Ipv4Addr::from(bytes).into())
            };
            let length = 4 * usize::from(bytes[0] & 15);
            let is_first = u16::from_be_bytes([*bytes.get(6)?, *bytes.get(7)?]) & 0x1fff == 0;
            let rest = if is_first { bytes.get(length..).unwrap_or_default() } else { &[] };
            (address(12)?, address(16)?, *bytes.get(9)?, rest)
        }
        6 => {
            let address = |at: usize| -> Option<IpAddr> {
                let bytes: [u8; 16] = bytes.get(at..at + 16)?.try_into().ok()?;
                Some(Ipv6Addr::from(bytes).into())
            };
            (address(8)?, address(24)?, *bytes.get(6)?, bytes.get(40..).unwrap_or_default())
        }
        _other => return None,
    };
    let port = |at: usize| Some(u16::from_be_bytes([*rest.get(at)?, *rest.get(at + 1)?]));
    let is_probe = protocol == UDP
        && matches!((port(0), port(2)), (Some(from), Some(to))
            if PROBE_PORTS.contains(&from) && PROBE_PORTS.contains(&to));
    Some(Head { from, to, is_probe })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(protocol: u8, ports: [u16; 2]) -> Vec<u8> {
        let mut bytes = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, protocol, 0, 0];
        bytes.extend([10, 100, 0, 1, 10, 10, 0, 21]);
        bytes.extend(ports.into_iter().flat_map(u16::to_be_bytes));
        bytes
    }

    #[test]
    fn probes_are_told_from_flows() {
        let probe = head_of(&packet(UDP, [3998, 3999])).unwrap();
        assert_eq!(
            (probe.from.to_string(), probe.to.to_string()),
            ("10.100.0.1".into(), "10.10.0.21".into())
        );
        assert!(probe.is_probe);
        assert!(head_of(&packet(UDP, [3999, 3998])).unwrap().is_probe);
        for flow in [packet(6, [3998, 3999]), packet(UDP, [3998, 53]), packet(UDP, [5000, 5001])] {
            assert!(!head_of(&flow).unwrap().is_probe);
        }
        // A fragment's later part has no ports.
        let mut fragment = packet(UDP, [3998, 3999]);
        fragment[7] = 1;
        assert!(!head_of(&fragment).unwrap().is_probe);
    }

    #[test]
    fn cut_and_strange_packets_have_no_head() {
        for length in 0..20 {
            assert_eq!(head_of(&packet(UDP, [3998, 3999])[..length]), None);
        }
        assert_eq!(head_of(&[0x60; 39]), None);
        assert_eq!(head_of(&[0xff; 60]), None);
        let v6 = [&[0x60, 0, 0, 0, 0, 4, UDP, 64][..], &[0xfd; 32], &[0x0f, 0x9e, 0x0f, 0x9f]];
        assert!(head_of(&v6.concat()).unwrap().is_probe);
    }

    #[test]
    fn the_kernel_s_counts_are_read() {
        let text = "Ip: Forwarding DefaultTTL ForwDatagrams\nIp: 1 64 17\nIcmp: InMsgs\nIcmp: 3\n";
        assert_eq!(forwarded_v4(text), Some(17));
        assert_eq!(forwarded_v4("Ip: Forwarding\nIp: 1\n"), None);
        assert_eq!(forwarded_v6("Ip6InReceives 5\nIp6OutForwDatagrams \t 23\n"), Some(23));
    }
}
