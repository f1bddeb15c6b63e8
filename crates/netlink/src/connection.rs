//! TCP connections of a network namespace (`struct inet_diag_msg`, `sock_diag(7)`), with what the kernel measured on
//! them.

use core::net::{IpAddr, SocketAddr};

use crate::attribute::read;
use crate::bytes::{u32_of, u64_of};
use crate::message::{Message, flag};
use crate::object::{MalformedError, Object, split};
use crate::prefix::Family;

/// `INET_DIAG_INFO`: a `struct tcp_info`.
const INET_DIAG_INFO: u16 = 2;
/// `TCP_ESTABLISHED`.
const ESTABLISHED: u32 = 1;
/// `IPPROTO_TCP`.
const TCP: u8 = 6;
/// Length of `struct inet_diag_sockid`.
const SOCKET_ID_BYTES: usize = 48;
/// Length of `struct inet_diag_msg`.
const HEADER_BYTES: usize = 72;

/// Offsets in `struct tcp_info`.
mod info {
    pub(super) const RTT_US: usize = 68;
    pub(super) const RETRANSMITS: usize = 100;
    pub(super) const BYTES_ACKNOWLEDGED: usize = 120;
    pub(super) const BYTES_RECEIVED: usize = 128;
}

/// An established connection, whoever owns its socket: a program or the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connection {
    /// This end. An IPv4 address that a socket for IPv6 uses is an IPv4 address here.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// Smoothed round-trip time in microseconds; 0 before the first measurement.
    pub rtt_us: u32,
    /// Segments that this end retransmitted since the beginning.
    pub retransmits_count: u32,
    /// Bytes that the other end acknowledged since the beginning (Linux 4.1).
    pub sent_bytes: u64,
    /// Bytes received since the beginning (Linux 4.1).
    pub received_bytes: u64,
}

impl Connection {
    /// Lists the established connections of a family. The question goes to a socket for `NETLINK_SOCK_DIAG`.
    #[must_use]
    pub fn dump(family: Family) -> Message {
        let mut body = vec![family.number(), TCP, 1 << (INET_DIAG_INFO - 1), 0];
        body.extend((1_u32 << ESTABLISHED).to_ne_bytes());
        body.resize(body.len() + SOCKET_ID_BYTES, 0);
        Message { kind: Self::NEW_KIND, flags: flag::DUMP, body }
    }
}

impl Object for Connection {
    const NAME: &'static str = "connection";
    /// `SOCK_DIAG_BY_FAMILY`.
    const NEW_KIND: u16 = 20;

    fn parse(body: &[u8]) -> Result<Self, MalformedError> {
        const NAME: &str = Connection::NAME;
        let (header, attributes) = split::<HEADER_BYTES>(NAME, body)?;
        let family = header[0];
        let address = |at: usize| -> Option<IpAddr> {
            let bytes = header.get(at..at + 16)?;
            match Family::from_number(family)? {
                Family::V4 => bytes.first_chunk::<4>().map(|four| IpAddr::from(*four)),
                Family::V6 => {
                    bytes.first_chunk::<16>().map(|all| IpAddr::from(*all).to_canonical())
                }
            }
        };
        let end = |port: usize, at: usize| {
            let number = u16::from_be_bytes([header[port], header[port + 1]]);
            let wrong = MalformedError::Family { object: NAME, family };
            address(at).map(|address| SocketAddr::new(address, number)).ok_or(wrong)
        };
        let mut connection = Self {
            local: end(4, 8)?,
            remote: end(6, 24)?,
            rtt_us: 0,
            retransmits_count: 0,
            sent_bytes: 0,
            received_bytes: 0,
        };
        read(NAME, attributes, |attribute| {
            if attribute.kind() == INET_DIAG_INFO {
                // Older kernels have a shorter structure.
                let word = |at: usize| attribute.value.get(at..).and_then(u32_of).unwrap_or(0);
                let double = |at: usize| attribute.value.get(at..).and_then(u64_of).unwrap_or(0);
                connection.rtt_us = word(info::RTT_US);
                connection.retransmits_count = word(info::RETRANSMITS);
                connection.sent_bytes = double(info::BYTES_ACKNOWLEDGED);
                connection.received_bytes = double(info::BYTES_RECEIVED);
            }
            Ok(())
        })?;
        Ok(connection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(family: u8, (local, remote): ([u8; 16], [u8; 16]), info_bytes: usize) -> Vec<u8> {
        let mut body = vec![family, 1, 0, 0, 0x9c, 0x40, 0x04, 0xa7];
        body.extend(local);
        body.extend(remote);
        body.resize(HEADER_BYTES, 0);
        let mut info = vec![0; 232];
        info[info::RTT_US..][..4].copy_from_slice(&250_u32.to_ne_bytes());
        info[info::RETRANSMITS..][..4].copy_from_slice(&3_u32.to_ne_bytes());
        info[info::BYTES_ACKNOWLEDGED..][..8].copy_from_slice(&(1_u64 << 40).to_ne_bytes());
        info[info::BYTES_RECEIVED..][..8].copy_from_slice(&77_u64.to_ne_bytes());
        info.truncate(info_bytes);
        body.extend(((4 + info_bytes) as u16).to_ne_bytes());
        body.extend(INET_DIAG_INFO.to_ne_bytes());
        body.extend(info);
        body
    }

    fn v4(last: u8) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&[10, 0, 0, last]);
        bytes
    }

    #[test]
    fn ends_round_trips_and_bytes_are_read() {
        let body = message(2, (v4(1), v4(2)), 232);
        let read = Connection::parse(&body).expect("whole");
        assert_eq!(read.local, "10.0.0.1:40000".parse().expect("an end"));
        assert_eq!(read.remote, "10.0.0.2:1191".parse().expect("an end"));
        assert_eq!((read.rtt_us, read.retransmits_count), (250, 3));
        assert_eq!((read.sent_bytes, read.received_bytes), (1 << 40, 77));
        // A kernel whose structure is shorter.
        let old = Connection::parse(&message(2, (v4(1), v4(2)), 104)).expect("whole");
        assert_eq!((old.rtt_us, old.retransmits_count, old.sent_bytes), (250, 3, 0));
    }

    #[test]
    fn an_ipv4_address_of_a_socket_for_ipv6_is_one() {
        let mapped = |last| std::net::Ipv4Addr::new(10, 0, 0, last).to_ipv6_mapped().octets();
        let read = Connection::parse(&message(10, (mapped(1), mapped(2)), 232)).expect("whole");
        assert_eq!(read.local, "10.0.0.1:40000".parse().expect("an end"));
    }

    #[test]
    fn any_body_is_read_or_refused() {
        assert!(Connection::parse(&message(1, (v4(1), v4(2)), 0)).is_err());
        bolero::check!().for_each(|bytes: &[u8]| {
            let is_short = bytes.len() < HEADER_BYTES;
            assert!(!is_short || Connection::parse(bytes).is_err());
        });
    }

    #[test]
    fn the_question_has_the_length_that_the_kernel_expects() {
        let question = Connection::dump(Family::V4);
        assert!(question.is_dump());
        assert_eq!((question.body.len(), question.body[..4].to_vec()), (56, vec![2, 6, 2, 0]));
    }
}
