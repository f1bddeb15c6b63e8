//! Boards: this host's IPv4 addresses. A NIC id is an IPv4 address as a number; endpoint `n` of a board is at UDP port
//! [`first_port`]` + n` of its address. So where a peer is reached follows from its NIC id and endpoint number alone.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::sync::OnceLock;

use clearstream_fi::engine::{Address, derived_key, own_place};
use clearstream_fi::name::{Name, socket_address};

use crate::failing::complain;

/// UDP port of endpoint 0.
const FIRST_PORT: u16 = 19_800;
/// Says it otherwise, for all hosts of a job.
const PORT_VARIABLE: &str = "CLEARSTREAM_MX_PORT";
/// A text that the hosts of a job share and others do not have: the endpoints' keys are derived from it.
const SECRET_VARIABLE: &str = "CLEARSTREAM_MX_SECRET";
/// Names a file of lines `ADDRESS NAME`, with the names of other hosts.
const PEERS_VARIABLE: &str = "CLEARSTREAM_MX_PEERS";
/// Endpoints of a board.
pub(crate) const ENDPOINTS_MAX: u32 = 256;

/// A board.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Board {
    pub(crate) interface: String,
    pub(crate) ip: Ipv4Addr,
}

impl Board {
    pub(crate) fn nic_id(&self) -> u64 {
        nic_id(self.ip)
    }
}

pub(crate) fn nic_id(ip: Ipv4Addr) -> u64 {
    u32::from(ip).into()
}

fn ip_of(nic_id: u64) -> Option<Ipv4Addr> {
    let ip = Ipv4Addr::from(u32::try_from(nic_id).ok()?);
    (!ip.is_unspecified() && !ip.is_multicast() && !ip.is_broadcast()).then_some(ip)
}

/// The boards of this host, as they were at the first call. Board 0 has the address that messages to other hosts leave
/// from; the loopback is the last one.
pub(crate) fn all() -> &'static [Board] {
    static BOARDS: OnceLock<Vec<Board>> = OnceLock::new();
    BOARDS.get_or_init(|| {
        let mut boards = Vec::new();
        match own_place() {
            Ok((interface, ip)) => boards.extend(board(interface, ip)),
            Err(line) => complain(&line),
        }
        let mut others: Vec<_> = sys::own_address::all();
        others.retain(|place| place.is_up);
        others.sort_by_key(|place| place.ip.is_loopback());
        for other in others {
            let other = board(other.interface, other.ip);
            let is_new = |other: &Board| boards.iter().all(|known: &Board| known.ip != other.ip);
            if let Some(other) = other.filter(is_new) {
                boards.push(other);
            }
        }
        boards
    })
}

fn board(interface: String, ip: IpAddr) -> Option<Board> {
    match ip {
        IpAddr::V4(ip) => Some(Board { interface, ip }),
        IpAddr::V6(_) => None,
    }
}

fn first_port() -> u16 {
    static PORT: OnceLock<u16> = OnceLock::new();
    *PORT.get_or_init(|| {
        let Some(text) = std::env::var_os(PORT_VARIABLE).filter(|text| !text.is_empty()) else {
            return FIRST_PORT;
        };
        let port = text.to_str().and_then(|text| text.parse().ok());
        let most = u16::MAX - (ENDPOINTS_MAX - 1) as u16;
        port.filter(|port| (1..=most).contains(port)).unwrap_or_else(|| {
            complain(&format!(
                "{PORT_VARIABLE} is not a port from 1 to {most}; {FIRST_PORT} is used"
            ));
            FIRST_PORT
        })
    })
}

/// The key of the endpoint at an address.
pub(crate) fn key(address: &Address) -> [u8; 16] {
    static SECRET: OnceLock<Vec<u8>> = OnceLock::new();
    let secret = SECRET.get_or_init(|| {
        std::env::var_os(SECRET_VARIABLE).map(OsString::into_encoded_bytes).unwrap_or_default()
    });
    derived_key(secret, address)
}

/// The UDP port of an endpoint number, below [`ENDPOINTS_MAX`].
pub(crate) fn port(endpoint_id: u32) -> u16 {
    first_port() + endpoint_id as u16
}

/// What distinguishes an endpoint's address from those of other libraries at the same port.
pub(crate) fn unique(endpoint_id: u32) -> [u8; 8] {
    let [low, high, ..] = endpoint_id.to_le_bytes();
    [b'm', b'x', low, high, 0, 0, 0, 0]
}

/// The name of an endpoint; none where the NIC id is no address of a host, or the number is too large.
pub(crate) fn name(nic_id: u64, endpoint_id: u32) -> Option<Name> {
    let ip = ip_of(nic_id)?;
    if endpoint_id >= ENDPOINTS_MAX {
        return None;
    }
    let at = SocketAddr::new(ip.into(), port(endpoint_id));
    let Name { address, .. } = Name::new(at, None, unique(endpoint_id), [0; 16]);
    Some(Name { address, key: key(&address) })
}

/// The NIC id and the endpoint number in an address, as its owner says; 0 where it has none.
pub(crate) fn parts(address: &Address) -> (u64, u32) {
    let ip = match socket_address(address).map(|at| at.ip()) {
        Some(IpAddr::V4(ip)) => nic_id(ip),
        _ => 0,
    };
    (ip, u16::from_le_bytes([address.0[26], address.0[27]]).into())
}

/// The name of the host with a NIC, and of its board where the host is this one.
pub(crate) fn host_of(nic_id: u64) -> Option<String> {
    if let Some(board) = all().iter().position(|board| board.nic_id() == nic_id) {
        return Some(format!("{}:{board}", own_name()));
    }
    let ip = ip_of(nic_id)?;
    let named = listed().into_iter().find(|(listed, _)| *listed == ip);
    Some(named.map_or_else(|| ip.to_string(), |(_, name)| name))
}

/// The NIC of a board by its host's name: `name` or `name:board`. `localhost` and this host's own name are its boards;
/// further boards of other hosts need a line in the file of peers.
pub(crate) fn find(host: &str) -> Option<u64> {
    if let Some((ip, _)) = listed().into_iter().find(|(_, name)| name == host) {
        return Some(nic_id(ip));
    }
    let (name, board) = match host.rsplit_once(':') {
        Some((name, board)) => (name, board.parse::<usize>().ok()?),
        None => (host, 0),
    };
    let own = || all().get(board).map(Board::nic_id);
    if name == "localhost" || name == own_name() {
        return own();
    }
    let ip = match name.parse() {
        Ok(ip) => ip,
        Err(_) => resolve(name)?,
    };
    match ip {
        ip if ip.is_loopback() => own(),
        ip if board == 0 => Some(nic_id(ip)),
        _ => None,
    }
}

fn resolve(name: &str) -> Option<Ipv4Addr> {
    let mut found = (name, 0).to_socket_addrs().ok()?;
    found.find_map(|at| match at.ip() {
        IpAddr::V4(ip) => Some(ip),
        IpAddr::V6(_) => None,
    })
}

fn own_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// What the file of peers says; lines that say nothing are passed over.
fn listed() -> Vec<(Ipv4Addr, String)> {
    let path = std::env::var_os(PEERS_VARIABLE).filter(|path| !path.is_empty());
    let text = path.and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
    parse_peers(&text)
}

fn parse_peers(text: &str) -> Vec<(Ipv4Addr, String)> {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let ip = words.next()?.parse().ok()?;
        Some((ip, words.next()?.to_owned()))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_an_endpoint_holds_its_nic_and_its_number() {
        let ip = Ipv4Addr::new(10, 1, 2, 3);
        let name = name(nic_id(ip), 255).expect("an endpoint");
        assert_eq!(parts(&name.address), (nic_id(ip), 255));
        let at = socket_address(&name.address).expect("it is reached somewhere");
        assert_eq!(at, SocketAddr::new(ip.into(), 19_800 + 255));
        assert_eq!(super::name(nic_id(ip), 256), None);
        for nic_id in [0, 0xffff_ffff, 0xe000_0001, 1 << 32] {
            assert_eq!(super::name(nic_id, 0), None, "{nic_id:#x} is no host");
        }
    }

    #[test]
    fn hosts_are_found_by_address_own_name_and_listed_name() {
        assert_eq!(find("10.1.2.3"), Some(0x0a01_0203));
        assert_eq!(find("10.1.2.3:0"), Some(0x0a01_0203));
        assert_eq!(find("10.1.2.3:1"), None);
        let first = all().first().map(Board::nic_id);
        assert!(first.is_some());
        for own in ["localhost", "localhost:0", "127.0.0.1", &own_name()] {
            assert_eq!(find(own), first, "{own}");
        }
        assert_eq!(find("localhost:9999"), None);
        let host = host_of(first.expect("a board")).expect("its host");
        assert_eq!(find(&host), first);
        let peers = parse_peers("10.0.0.2 b:0\n# no line\n\n10.0.0.3\n10.0.0.4 c:1 more\n");
        let [b, c] = [(2, "b:0"), (4, "c:1")]
            .map(|(last, name)| (Ipv4Addr::new(10, 0, 0, last), name.to_owned()));
        assert_eq!(peers, [b, c]);
    }
}
