//! Clients that the plan does not know, in a namespace whose interfaces have the gateways' hardware addresses: what
//! arrives at one of them would have passed that gateway.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, SocketType};

use crate::bed::must;

pub(crate) const GATEWAYS_COUNT: usize = 3;
const CLIENTS_COUNT: usize = 8;
const PORT: u16 = 7000;
const SERVER_MAC: &str = "02:00:00:00:00:21";
/// How long anything may take that has no bound of its own.
const PATIENCE: Duration = Duration::from_secs(10);

/// How an address is written in a family.
struct Words {
    address: AddressFamily,
    client: fn(usize) -> String,
    gateway: fn(usize) -> String,
    server: &'static str,
    any: &'static str,
    ip: &'static str,
}

const V4: Words = Words {
    address: AddressFamily::INET,
    client: |client| format!("10.100.0.{}", 101 + client),
    gateway: |gateway| format!("10.10.0.{}", 11 + gateway),
    server: "10.10.0.21",
    any: "0.0.0.0",
    ip: "ip -4",
};

const V6: Words = Words {
    address: AddressFamily::INET6,
    client: |client| format!("fd00:c::{}", 101 + client),
    gateway: |gateway| format!("fd00:5::{}", 11 + gateway),
    server: "fd00:5::21",
    any: "::",
    ip: "ip -6",
};

/// Each client has one address and one port, and a socket for each gateway; the server is the calling thread's host.
pub(crate) struct Strangers {
    clients: Vec<[UdpSocket; GATEWAYS_COUNT]>,
    server: UdpSocket,
    to: SocketAddr,
}

impl Strangers {
    /// Connects their namespace with the host `s1`, whose namespace the calling thread is in.
    pub(crate) fn meet(is_v6: bool) -> Self {
        let words = if is_v6 { V6 } else { V4 };
        must("ip link add lan type bridge");
        must("ip link set far master lan");
        must("ip link set lan up");
        must(&format!("ip link set ib0 address {SERVER_MAC}"));
        let (say_thread, hear_thread) = channel();
        let (say_linked, hear_linked) = channel();
        let clients = thread::scope(|scope| {
            let words = &words;
            let strangers = scope.spawn(move || {
                let _namespace = sys::namespace::unshare_network().expect("root");
                say_thread.send(rustix::thread::gettid()).expect("heard");
                hear_linked.recv().expect("said");
                furnish(words);
                (0..CLIENTS_COUNT).map(|client| sockets(words, client)).collect()
            });
            let thread = hear_thread.recv().expect("said").as_raw_nonzero();
            for gateway in 0..GATEWAYS_COUNT {
                let (mac, hop) = (mac(gateway), (words.gateway)(gateway));
                must(&format!(
                    "ip link add port{gateway} type veth peer name g{gateway} address {mac} netns {thread}"
                ));
                must(&format!("ip link set port{gateway} master lan up"));
                must(&format!("ip neigh add {hop} dev ib0 lladdr {mac} nud permanent"));
            }
            say_linked.send(()).expect("heard");
            strangers.join().expect("sockets")
        });
        let server = UdpSocket::bind((words.any, PORT)).expect("a free port");
        server.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let to = SocketAddr::new(words.server.parse().expect("an address"), PORT);
        Self { clients, server, to }
    }

    /// Every client asks by that gateway; says by which gateways the answers came.
    pub(crate) fn ask_by(&self, gateway: usize) -> Vec<usize> {
        self.clients.iter().map(|sockets| self.ask(sockets, gateway)).collect()
    }

    fn ask(&self, sockets: &[UdpSocket; GATEWAYS_COUNT], gateway: usize) -> usize {
        let mut bytes = [0; 16];
        sockets[gateway].send_to(b"question", self.to).expect("sent");
        let (length, client) = self.server.recv_from(&mut bytes).expect("the question");
        self.server.send_to(&bytes[..length], client).expect("answered");
        let mut ready: Vec<PollFd<'_>> =
            sockets.iter().map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
        let patience = PATIENCE.try_into().expect("seconds");
        assert_eq!(poll(&mut ready, Some(&patience)), Ok(1), "an answer at one gateway");
        let by = ready.iter().position(|one| one.revents().contains(PollFlags::IN));
        let by = by.expect("one is ready");
        let length = sockets[by].recv(&mut bytes).expect("the answer");
        assert_eq!(&bytes[..length], b"question");
        by
    }
}

fn mac(gateway: usize) -> String {
    format!("02:00:00:00:00:1{}", gateway + 1)
}

/// The strangers' namespace: each interface leads to the server.
fn furnish(words: &Words) {
    let Words { ip, server, .. } = words;
    must("ip link set lo up");
    for name in ["all", "default", "g0", "g1", "g2"] {
        must(&format!("sysctl -qw net.ipv4.conf.{name}.rp_filter=0"));
    }
    for client in 0..CLIENTS_COUNT {
        must(&format!("{ip} addr add {} dev lo", (words.client)(client)));
    }
    for gateway in 0..GATEWAYS_COUNT {
        must(&format!("ip link set g{gateway} up"));
        must(&format!("{ip} route add {server} dev g{gateway} metric {}", 10 + gateway));
        must(&format!("ip neigh add {server} dev g{gateway} lladdr {SERVER_MAC} nud permanent"));
    }
}

/// One client's: each sends and receives by one interface only.
fn sockets(words: &Words, client: usize) -> [UdpSocket; GATEWAYS_COUNT] {
    let address: IpAddr = (words.client)(client).parse().expect("an address");
    std::array::from_fn(|gateway| {
        let socket = rustix::net::socket(words.address, SocketType::DGRAM, None).expect("a socket");
        sys::binding::bind_to_device(&socket, &format!("g{gateway}")).expect("root");
        rustix::net::bind(&socket, &SocketAddr::new(address, PORT)).expect("a free address");
        UdpSocket::from(socket)
    })
}
