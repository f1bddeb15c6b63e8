//! The few rtnetlink questions asked here, and the reading of their answers (`netlink(7)`,
//! `rtnetlink(7)`, kernel `include/uapi/linux/netlink.h`).
//!
//! Questions need no privilege and see the calling thread's namespace. Reading is over plain byte
//! slices and cannot run past their end.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt,
};

const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const RTM_NEWQDISC: u16 = 36;
const RTM_GETQDISC: u16 = 38;
const RTM_NEWTCLASS: u16 = 40;
const RTM_GETTCLASS: u16 = 42;
const RTM_NEWTFILTER: u16 = 44;
const RTM_GETTFILTER: u16 = 46;

const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;

/// Length of `struct nlmsghdr`.
const HEADER_BYTES: usize = 16;
/// Length of `struct genlmsghdr`.
const GENERIC_HEADER_BYTES: usize = 4;
/// What the kernel fills at most in one answer to a dump (`NLMSG_GOODSIZE` grown to the reader's
/// buffer, at most 32 KiB).
const ANSWER_BYTES_MAX: usize = 32 << 10;
/// Answers read before giving up on a dump that never ends.
const ANSWERS_COUNT_MAX: usize = 4096;

/// A message's body: what follows `struct nlmsghdr`.
pub(crate) type Body = Vec<u8>;

/// A socket to ask with.
#[derive(Debug)]
pub(crate) struct RouteSocket {
    socket: OwnedFd,
}

impl RouteSocket {
    /// `None` where the sandbox forbids netlink.
    pub(crate) fn open() -> Option<Self> {
        // No protocol means protocol 0, which is NETLINK_ROUTE.
        Self::open_for(None)
    }

    /// A socket for generic netlink, whose families are numbered as the kernel boots.
    pub(crate) fn open_generic() -> Option<Self> {
        Self::open_for(Some(rustix::net::netlink::GENERIC))
    }

    fn open_for(protocol: Option<Protocol>) -> Option<Self> {
        let socket = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            protocol,
        )
        .ok()?;
        let patience = Some(Duration::from_secs(1));
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, patience).ok()?;
        Some(Self { socket })
    }

    /// All interfaces (`struct ifinfomsg` and attributes).
    pub(crate) fn links(&self) -> Vec<Body> {
        self.ask(RTM_GETLINK, NLM_F_DUMP, &[0; 16], RTM_NEWLINK)
    }

    /// The index of the interface the kernel would send to this address through.
    pub(crate) fn route_toward(&self, address: IpAddr) -> Option<u32> {
        let answers = self.ask(RTM_GETROUTE, 0, &route_question(address)?, RTM_NEWROUTE);
        u32_of(attribute(answers.first()?.get(12..)?, RTA_OIF)?)
    }

    /// Metrics of the route to an address, by the names of `ip-route(8)`; those that are not set are
    /// left out. `cwnd` is told only where it is locked, as it binds only then.
    pub(crate) fn metrics_toward(&self, address: IpAddr) -> BTreeMap<String, u64> {
        let Some(body) = route_question(address) else { return BTreeMap::new() };
        let answers = self.ask(RTM_GETROUTE, 0, &body, RTM_NEWROUTE);
        answers.first().and_then(|body| route_metrics(body)).unwrap_or_default()
    }

    /// All queueing disciplines of the namespace (`struct tcmsg` and attributes).
    pub(crate) fn qdiscs(&self) -> Vec<Body> {
        self.ask(RTM_GETQDISC, NLM_F_DUMP, &[0; 20], RTM_NEWQDISC)
    }

    /// The classes of one interface (`struct tcmsg` and attributes).
    pub(crate) fn classes(&self, index: u32) -> Vec<Body> {
        let mut body = [0; 20];
        body[4..8].copy_from_slice(&index.to_ne_bytes());
        self.ask(RTM_GETTCLASS, NLM_F_DUMP, &body, RTM_NEWTCLASS)
    }

    /// A dump of a generic netlink family: the attributes of each answer.
    pub(crate) fn generic_dump(&self, family: u16, command: u8) -> Vec<Body> {
        let answers = self.ask(family, NLM_F_DUMP, &[command, 1, 0, 0], family);
        answers.iter().filter_map(|body| Some(body.get(GENERIC_HEADER_BYTES..)?.to_vec())).collect()
    }

    /// The number of a generic netlink family; `None` where the kernel has none of this name.
    pub(crate) fn generic_family(&self, name: &str) -> Option<u16> {
        const GENL_ID_CTRL: u16 = 16;
        const CTRL_CMD_GETFAMILY: u8 = 3;
        const CTRL_ATTR_FAMILY_ID: u16 = 1;
        const CTRL_ATTR_FAMILY_NAME: u16 = 2;
        let mut body = vec![CTRL_CMD_GETFAMILY, 1, 0, 0];
        body.extend(u16::try_from(4 + name.len() + 1).ok()?.to_ne_bytes());
        body.extend(CTRL_ATTR_FAMILY_NAME.to_ne_bytes());
        body.extend(name.bytes());
        body.push(0);
        body.resize(body.len().next_multiple_of(4), 0);
        let answers = self.ask(GENL_ID_CTRL, 0, &body, GENL_ID_CTRL);
        u16_of(attribute(answers.first()?.get(GENERIC_HEADER_BYTES..)?, CTRL_ATTR_FAMILY_ID)?)
    }

    /// The filters of one interface below a qdisc's handle (`struct tcmsg` and attributes).
    pub(crate) fn filters(&self, index: u32, parent: u32) -> Vec<Body> {
        let mut body = [0; 20];
        body[4..8].copy_from_slice(&index.to_ne_bytes());
        body[12..16].copy_from_slice(&parent.to_ne_bytes());
        self.ask(RTM_GETTFILTER, NLM_F_DUMP, &body, RTM_NEWTFILTER)
    }

    /// Sends one question and gathers the bodies of the wanted kind; empty when refused.
    fn ask(&self, kind: u16, flags: u16, body: &[u8], wanted: u16) -> Vec<Body> {
        let length = u32::try_from(HEADER_BYTES + body.len()).unwrap_or(0);
        let mut question = Vec::with_capacity(HEADER_BYTES + body.len());
        question.extend(length.to_ne_bytes());
        question.extend(kind.to_ne_bytes());
        question.extend((NLM_F_REQUEST | flags).to_ne_bytes());
        // Sequence and port stay 0: the socket carries one question at a time.
        question.extend([0; 8]);
        question.extend(body);
        let mut bodies = Vec::new();
        if rustix::net::send(&self.socket, &question, SendFlags::empty()).is_err() {
            return bodies;
        }
        let mut buffer = vec![0; ANSWER_BYTES_MAX];
        for _answer in 0..ANSWERS_COUNT_MAX {
            let received = rustix::net::recv(&self.socket, &mut buffer[..], RecvFlags::empty());
            let Ok((length, _truncated)) = received else { break };
            let mut done = length == 0 || flags & NLM_F_DUMP != NLM_F_DUMP;
            for (kind, body) in Messages::new(&buffer[..length.min(ANSWER_BYTES_MAX)]) {
                match kind {
                    NLMSG_DONE | NLMSG_ERROR => done = true,
                    kind if kind == wanted => bodies.push(body.to_vec()),
                    _other => {}
                }
            }
            if done {
                break;
            }
        }
        bodies
    }
}

/// `struct rtmsg` and a destination.
fn route_question(address: IpAddr) -> Option<Vec<u8>> {
    let (family, bytes) = match address {
        IpAddr::V4(address) => (AF_INET, address.octets().to_vec()),
        IpAddr::V6(address) => (AF_INET6, address.octets().to_vec()),
    };
    // struct rtmsg: family, destination prefix length, the rest zero.
    let mut body = vec![family, u8::try_from(bytes.len() * 8).ok()?];
    body.resize(12, 0);
    body.extend(u16::try_from(4 + bytes.len()).ok()?.to_ne_bytes());
    body.extend(RTA_DST.to_ne_bytes());
    body.extend(bytes);
    Some(body)
}

/// The metrics of a route's answer (kernel `include/uapi/linux/rtnetlink.h`, `RTAX_…`).
fn route_metrics(body: &[u8]) -> Option<BTreeMap<String, u64>> {
    const RTMSG_BYTES: usize = 12;
    const RTA_METRICS: u16 = 8;
    const RTAX_LOCK: u16 = 1;
    const RTAX_CWND: u16 = 7;
    const NAMES: [(u16, &str); 6] = [
        (2, "mtu"),
        (3, "window"),
        (RTAX_CWND, "cwnd"),
        (8, "advmss"),
        (11, "initcwnd"),
        (13, "rto_min"),
    ];
    let metrics = attribute(body.get(RTMSG_BYTES..)?, RTA_METRICS)?;
    let locks = attribute(metrics, RTAX_LOCK).and_then(u32_of).unwrap_or(0);
    let told = NAMES.iter().filter_map(|&(kind, name)| {
        let value = attribute(metrics, kind).and_then(u32_of).filter(|&value| value > 0)?;
        let binds = kind != RTAX_CWND || locks & (1 << RTAX_CWND) != 0;
        binds.then(|| (name.to_owned(), u64::from(value)))
    });
    Some(told.collect())
}

/// The messages of one answer: kind and body. Ends at the first that is cut off.
#[derive(Debug)]
pub(crate) struct Messages<'a> {
    rest: &'a [u8],
}

impl<'a> Messages<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let length = u32_of(self.rest.get(..4)?)? as usize;
        let kind = u16_of(self.rest.get(4..6)?)?;
        let body = self.rest.get(HEADER_BYTES..length)?;
        self.rest = self.rest.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, body))
    }
}

/// The attributes after a message's fixed part: kind (flags taken off) and value.
#[derive(Debug, Clone)]
pub(crate) struct Attributes<'a> {
    rest: &'a [u8],
}

impl<'a> Attributes<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        /// Without `NLA_F_NESTED` and `NLA_F_NET_BYTEORDER`.
        const NLA_TYPE_MASK: u16 = 0x3fff;
        let length = usize::from(u16_of(self.rest.get(..2)?)?);
        let kind = u16_of(self.rest.get(2..4)?)? & NLA_TYPE_MASK;
        let value = self.rest.get(4..length)?;
        self.rest = self.rest.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, value))
    }
}

/// The first attribute of a kind.
pub(crate) fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    Attributes::new(bytes).find(|&(found, _value)| found == kind).map(|(_kind, value)| value)
}

/// A NUL-terminated text attribute.
pub(crate) fn text_of(value: &[u8]) -> Option<String> {
    let end = value.iter().position(|&byte| byte == 0).unwrap_or(value.len());
    String::from_utf8(value.get(..end)?.to_vec()).ok().filter(|text| !text.is_empty())
}

/// A number in the host's byte order.
pub(crate) fn u16_of(bytes: &[u8]) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?))
}

/// A number in the host's byte order.
pub(crate) fn u32_of(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?))
}

/// A number in the host's byte order.
pub(crate) fn u64_of(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(..8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_addresses_go_through_lo() {
        let socket = RouteSocket::open().unwrap();
        assert_eq!(socket.route_toward("127.0.0.1".parse().unwrap()), Some(1));
        assert_eq!(socket.route_toward("::1".parse().unwrap()), Some(1));
    }

    #[test]
    fn any_bytes_end() {
        bolero::check!().for_each(|bytes: &[u8]| {
            assert!(Messages::new(bytes).count() <= bytes.len());
            assert!(Attributes::new(bytes).count() <= bytes.len());
            for (_kind, body) in Messages::new(bytes) {
                attribute(body, 1).and_then(text_of);
            }
        });
    }

    #[test]
    fn an_attribute_shorter_than_its_own_heading_ends_the_walk() {
        assert_eq!(Attributes::new(&[3, 0, 1, 0, 9, 9, 9, 9]).count(), 0);
        assert_eq!(Attributes::new(&[4, 0, 1, 0, 5, 0, 2, 0, 7]).count(), 2);
        assert_eq!(Messages::new(&[0; 64]).count(), 0);
    }
}
