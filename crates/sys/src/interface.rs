//! Network interfaces through rtnetlink (`rtnetlink(7)`): making, addressing, bringing up.
//!
//! A [`RouteSocket`] acts in the network namespace its thread was in when it was opened. Every
//! request waits for the kernel's acknowledgement, so that each error belongs to one request.

mod tuning;

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::SyscallError;
use crate::ethtool::PORT_FIBRE;

pub use tuning::RootQdisc;

const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;
const NLMSG_ERROR: u16 = 2;
const NLA_F_NESTED: u16 = 1 << 15;

const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;

const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_TXQLEN: u16 = 13;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_NUM_TX_QUEUES: u16 = 31;
const IFLA_NUM_RX_QUEUES: u16 = 32;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;

const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_F_NODAD: u8 = 0x02;

const RTA_DST: u16 = 1;
const RTA_GATEWAY: u16 = 5;
const RT_TABLE_MAIN: u8 = 254;
const RTPROT_STATIC: u8 = 4;
const RTN_UNICAST: u8 = 1;

const SIOCETHTOOL: libc::c_ulong = 0x8946;
const ETHTOOL_GLINKSETTINGS: u32 = 0x4c;
const ETHTOOL_SLINKSETTINGS: u32 = 0x4d;

/// What to change on an interface; `None` leaves it.
#[derive(Debug, Clone, Copy, Default)]
pub struct LinkSettings {
    /// Largest packet, bytes.
    pub mtu_bytes: Option<u32>,
    /// Packets the device queues before it drops.
    pub tx_queue_pkts: Option<u32>,
    /// Bring it up.
    pub up: bool,
}

/// A conversation with the kernel about one network namespace.
#[derive(Debug)]
pub struct RouteSocket {
    socket: OwnedFd,
    sequence: u32,
}

impl RouteSocket {
    /// For the calling thread's network namespace.
    ///
    /// # Errors
    /// No socket is to be had.
    pub fn open() -> Result<Self, SyscallError> {
        let refused = |error| SyscallError::new("socket", "NETLINK_ROUTE", error);
        let socket = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            // NETLINK_ROUTE is protocol 0, which is spelled "none".
            None,
        )
        .map_err(refused)?;
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, 0)).map_err(refused)?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Makes a veth pair: the first of `names` here, the second in the namespace behind
    /// `peer_namespace`; each with so many queues either way, or one.
    ///
    /// # Errors
    /// No `CAP_NET_ADMIN`, no veth in this kernel, or a name that is taken.
    pub fn add_veth(
        &mut self,
        [name, peer_name]: [&str; 2],
        peer_namespace: BorrowedFd<'_>,
        queues_count: Option<u32>,
    ) -> Result<(), SyscallError> {
        let mut message = Message::new(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL);
        message.bytes(&LinkBody::default().encode());
        message.text(IFLA_IFNAME, name);
        message.queues(queues_count);
        message.nested(IFLA_LINKINFO, |info| {
            info.text(IFLA_INFO_KIND, "veth");
            info.nested(IFLA_INFO_DATA, |data| {
                data.nested(VETH_INFO_PEER, |peer| {
                    peer.bytes(&LinkBody::default().encode());
                    peer.text(IFLA_IFNAME, peer_name);
                    peer.queues(queues_count);
                    peer.attribute(IFLA_NET_NS_FD, &peer_namespace.as_raw_fd().to_ne_bytes());
                });
            });
        });
        self.request(message).map_err(|error| SyscallError::new("rtnetlink newlink", name, error))
    }

    /// Changes an interface.
    ///
    /// # Errors
    /// No such interface, or a value the device refuses (an MTU beyond its limit).
    pub fn set_link(&mut self, name: &str, settings: LinkSettings) -> Result<(), SyscallError> {
        let refused = |error: io::Error| SyscallError::new("rtnetlink setlink", name, error);
        let index = self.index(name)?;
        let up = u32::from(settings.up) * libc::IFF_UP.unsigned_abs();
        let mut message = Message::new(RTM_NEWLINK, 0);
        message.bytes(&LinkBody { index, flags: up, change: up }.encode());
        if let Some(mtu_bytes) = settings.mtu_bytes {
            message.attribute(IFLA_MTU, &mtu_bytes.to_ne_bytes());
        }
        if let Some(pkts) = settings.tx_queue_pkts {
            message.attribute(IFLA_TXQLEN, &pkts.to_ne_bytes());
        }
        self.request(message).map_err(refused)
    }

    /// Gives an interface an address, ready for use at once: IPv6 without duplicate detection.
    ///
    /// # Errors
    /// No such interface, or it has that address already.
    pub fn add_address(
        &mut self,
        name: &str,
        address: IpAddr,
        prefix_bits: u8,
    ) -> Result<(), SyscallError> {
        let index = self.index(name)?;
        let mut message = Message::new(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL);
        let flags = if address.is_ipv6() { IFA_F_NODAD } else { 0 };
        message.bytes(&[family(address), prefix_bits, flags, 0]);
        message.bytes(&index.to_ne_bytes());
        message.address(IFA_LOCAL, address);
        message.address(IFA_ADDRESS, address);
        self.request(message).map_err(|error| {
            SyscallError::new("rtnetlink newaddr", format!("{address} on {name}"), error)
        })
    }

    /// Routes `destination/prefix_bits` through `gateway`.
    ///
    /// # Errors
    /// The gateway is not reachable from here, or the route exists.
    pub fn add_route(
        &mut self,
        destination: IpAddr,
        prefix_bits: u8,
        gateway: IpAddr,
    ) -> Result<(), SyscallError> {
        let mut message = Message::new(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL);
        message.bytes(&[family(destination), prefix_bits, 0, 0]);
        message.bytes(&[RT_TABLE_MAIN, RTPROT_STATIC, 0, RTN_UNICAST]);
        message.bytes(&[0; 4]);
        message.address(RTA_DST, destination);
        message.address(RTA_GATEWAY, gateway);
        self.request(message).map_err(|error| {
            let object = format!("{destination}/{prefix_bits} via {gateway}");
            SyscallError::new("rtnetlink newroute", object, error)
        })
    }

    /// The interface's number.
    ///
    /// # Errors
    /// No such interface.
    pub fn index(&self, name: &str) -> Result<u32, SyscallError> {
        rustix::net::netdevice::name_to_index(&self.socket, name)
            .map_err(|error| SyscallError::new("ioctl(SIOCGIFINDEX)", name, error))
    }

    /// Has the device say this speed when asked (`ethtool`, `/sys/class/net/NAME/speed`), and that
    /// it is of fibre: a TAP device nobody has set claims 10 Gbit/s of copper. TAP devices take it,
    /// most others do not.
    ///
    /// # Errors
    /// The device refuses.
    pub fn set_speed(&self, name: &str, megabits_per_s: u32) -> Result<(), SyscallError> {
        // struct ethtool_link_settings: 12 words, then three link-mode masks whose length in words
        // the kernel must be told as it told us.
        let mut words = [0_u32; 12 + 3 * 127];
        words[0] = ETHTOOL_GLINKSETTINGS;
        self.ethtool(name, &mut words)?;
        // Byte 15, the masks' length in words, is negative in the first answer: what to ask with.
        let mut bytes = words[3].to_ne_bytes();
        bytes[3] = bytes[3].wrapping_neg();
        words[3] = u32::from_ne_bytes(bytes);
        words[0] = ETHTOOL_GLINKSETTINGS;
        self.ethtool(name, &mut words)?;
        words[0] = ETHTOOL_SLINKSETTINGS;
        words[1] = megabits_per_s;
        let mut bytes = words[2].to_ne_bytes();
        bytes[1] = PORT_FIBRE;
        words[2] = u32::from_ne_bytes(bytes);
        self.ethtool(name, &mut words)
    }

    fn ethtool(&self, name: &str, words: &mut [u32; 12 + 3 * 127]) -> Result<(), SyscallError> {
        // SAFETY: all-zero is a valid `ifreq`.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        write_name(&mut request.ifr_name, name)
            .map_err(|error| SyscallError::new("ioctl(SIOCETHTOOL)", name, error))?;
        request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
        // SAFETY: link settings fill at most the 12 words and 3 masks of 127 words that `words` has.
        let answer = unsafe { libc::ioctl(self.socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
        if answer == 0 { Ok(()) } else { Err(SyscallError::last("ioctl(SIOCETHTOOL)", name)) }
    }

    fn request(&mut self, message: Message) -> io::Result<()> {
        self.sequence += 1;
        let request = message.finish(self.sequence);
        rustix::net::send(&self.socket, &request, SendFlags::empty())?;
        let mut answer = [0_u8; 8192];
        loop {
            let (len, _) = rustix::net::recv(&self.socket, &mut answer[..], RecvFlags::empty())?;
            match parse_answer(&answer[..len.min(answer.len())]) {
                Some((sequence, 0)) if sequence == self.sequence => return Ok(()),
                Some((sequence, code)) if sequence == self.sequence => {
                    return Err(io::Error::from_raw_os_error(code.wrapping_neg()));
                }
                Some(_) => {}
                None => return Err(io::Error::from(io::ErrorKind::InvalidData)),
            }
        }
    }
}

/// Copies an interface name into a request, NUL-terminated.
pub(crate) fn write_name(
    to: &mut [libc::c_char; libc::IFNAMSIZ],
    name: &str,
) -> Result<(), rustix::io::Errno> {
    if name.is_empty() || name.len() >= to.len() || name.bytes().any(|byte| byte == 0) {
        return Err(rustix::io::Errno::INVAL);
    }
    for (slot, byte) in to.iter_mut().zip(name.bytes()) {
        *slot = libc::c_char::from_ne_bytes([byte]);
    }
    Ok(())
}

fn family(address: IpAddr) -> u8 {
    let family = if address.is_ipv6() { libc::AF_INET6 } else { libc::AF_INET };
    u8::try_from(family).unwrap_or(0)
}

/// `struct ifinfomsg`.
#[derive(Default)]
struct LinkBody {
    index: u32,
    flags: u32,
    change: u32,
}

impl LinkBody {
    fn encode(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[4..8].copy_from_slice(&self.index.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.flags.to_ne_bytes());
        bytes[12..16].copy_from_slice(&self.change.to_ne_bytes());
        bytes
    }
}

/// One netlink message under construction: header, body, attributes, each padded to 4 bytes.
struct Message {
    buffer: Vec<u8>,
}

impl Message {
    fn new(kind: u16, flags: u16) -> Self {
        let mut buffer = vec![0; 16];
        buffer[4..6].copy_from_slice(&kind.to_ne_bytes());
        buffer[6..8].copy_from_slice(&(flags | NLM_F_REQUEST | NLM_F_ACK).to_ne_bytes());
        Self { buffer }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
        self.buffer.resize(self.buffer.len().next_multiple_of(4), 0);
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) {
        let len = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
        self.buffer.extend_from_slice(&len.to_ne_bytes());
        self.buffer.extend_from_slice(&kind.to_ne_bytes());
        self.bytes(value);
    }

    /// So many queues either way, where that is said.
    fn queues(&mut self, count: Option<u32>) {
        for kind in [IFLA_NUM_TX_QUEUES, IFLA_NUM_RX_QUEUES] {
            count.into_iter().for_each(|count| self.attribute(kind, &count.to_ne_bytes()));
        }
    }

    fn text(&mut self, kind: u16, text: &str) {
        self.attribute(kind, &[text.as_bytes(), b"\0"].concat());
    }

    fn address(&mut self, kind: u16, address: IpAddr) {
        match address {
            IpAddr::V4(v4) => self.attribute(kind, &v4.octets()),
            IpAddr::V6(v6) => self.attribute(kind, &v6.octets()),
        }
    }

    fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) {
        let start = self.buffer.len();
        self.attribute(kind | NLA_F_NESTED, &[]);
        fill(self);
        let len = u16::try_from(self.buffer.len() - start).unwrap_or(u16::MAX);
        self.buffer[start..start + 2].copy_from_slice(&len.to_ne_bytes());
    }

    fn finish(mut self, sequence: u32) -> Vec<u8> {
        let len = u32::try_from(self.buffer.len()).unwrap_or(u32::MAX);
        self.buffer[0..4].copy_from_slice(&len.to_ne_bytes());
        self.buffer[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.buffer
    }
}

/// Sequence and (negated) error number of an acknowledgement.
fn parse_answer(answer: &[u8]) -> Option<(u32, i32)> {
    let word = |at: usize| <[u8; 4]>::try_from(answer.get(at..at + 4)?).ok();
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    let sequence = u32::from_ne_bytes(word(8)?);
    (kind == NLMSG_ERROR).then_some(())?;
    Some((sequence, i32::from_ne_bytes(word(16)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_interface_is_named() {
        let mut socket = RouteSocket::open().unwrap();
        let error = socket.set_link("no-such-dev", LinkSettings::default()).unwrap_err();
        assert_eq!(error.object, "no-such-dev");
        assert_eq!(error.source.raw_os_error(), Some(libc::ENODEV));
    }

    #[test]
    fn answers_are_taken_apart_without_panic() {
        for len in 0..40 {
            parse_answer(&vec![2; len]);
        }
        assert_eq!(parse_answer(&[0; 3]), None);
        let mut ack = vec![0; 36];
        ack[4..6].copy_from_slice(&NLMSG_ERROR.to_ne_bytes());
        ack[8..12].copy_from_slice(&7_u32.to_ne_bytes());
        ack[16..20].copy_from_slice(&(-libc::EEXIST).to_ne_bytes());
        assert_eq!(parse_answer(&ack), Some((7, -libc::EEXIST)));
    }

    #[test]
    fn attributes_are_padded_and_nested() {
        let mut message = Message::new(RTM_NEWLINK, 0);
        message.nested(IFLA_LINKINFO, |info| info.text(IFLA_INFO_KIND, "veth"));
        let bytes = message.finish(1);
        assert_eq!(bytes.len(), 16 + 4 + 4 + 8);
        assert_eq!(&bytes[16..18], &16_u16.to_ne_bytes());
        assert_eq!(&bytes[20..22], &9_u16.to_ne_bytes());
        assert_eq!(&bytes[24..32], b"veth\0\0\0\0");
    }
}
