//! A host of a gateway plan in a network of its own, and on the same wire an attacker with a packet socket.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use liveness::probe::payload::{Ends, Kind};
use liveness::probe::{PAYLOAD_BYTES, Payload, Ports, SizeClass, datagram};
use liveness::siphash::Key;
use route_plan::{Plan, Role};
use sys::interface::{LinkSettings, RouteSocket};
use sys::packet::{Instruction, MacAddress, ReceivePackets, SendPackets};
use sys::socket::Family;

use crate::case::Scene;
use crate::program::Daemon;

/// The key of the plan, as its file has it.
const KEY: &str = "000102030405060708090a0b0c0d0e0f";
/// The host under attack, the third of its network: one that listens to sentinels.
pub(super) const HOST: Ipv4Addr = Ipv4Addr::new(10, 10, 0, 23);
const HOST_NAME: &str = "s3";
/// A gateway of the plan, on the host's link.
pub(super) const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 10, 0, 11);
/// Hosts behind it.
pub(super) const FAR: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 100, 0, 1), Ipv4Addr::new(10, 100, 0, 2)];
pub(super) const PLAN: &str = "name = \"attacked\"\n\
    [network.compute]\nprefix = \"10.100.0.0/16\"\n[network.storage]\nprefix = \"10.10.0.0/24\"\n\
    [[gateway]]\nnames = \"g[1-2]\"\ninterfaces = { compute = \"a\", storage = \"b\" }\n\
    addresses = { compute = \"10.100.0.[91-92]\", storage = \"10.10.0.[11-12]\" }\n\
    [hosts.c]\nnetwork = \"compute\"\nnames = \"c[1-4]\"\naddresses = \"10.100.0.[1-4]\"\ninterface = \"a\"\n\
    [hosts.s]\nnetwork = \"storage\"\nnames = \"s[1-3]\"\naddresses = \"10.10.0.[21-23]\"\ninterface = \"ib0\"\n\
    [watch]\nmode = \"sentinel\"\n";
/// Longest wait for something that must come.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long answers may take that must not come.
const SETTLE: Duration = Duration::from_millis(300);
const PACKET_BYTES_MAX: usize = 1500;
const BATCH_COUNT: usize = 64;
/// `BPF_RET`: all bytes of every packet.
const EVERYTHING: Instruction =
    Instruction { code: 0x06, if_true: 0, if_false: 0, operand: u32::MAX };

pub(super) fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The program at work on its host; all of it ends with the value, in the thread that made it.
pub(super) struct Rig {
    pub(super) daemon: Daemon,
    pub(super) plan: Plan,
    pub(super) key: Key,
    /// Number of the next genuine probe.
    pub(super) sequence: u64,
    mac: MacAddress,
    socket: OwnedFd,
    send: SendPackets,
    receive: ReceivePackets,
    host: OwnedFd,
}

impl Rig {
    /// Starts `clearstream gateway VERB` on the host; the calling thread is on the attacker's from now on.
    pub(super) fn start(scene: &Scene, verb: &str, more: &[&str]) -> Result<Self, String> {
        let attacker = sys::namespace::unshare_network().map_err(said)?;
        let made = std::thread::spawn(sys::namespace::unshare_network);
        let host = made.join().map_err(|_panic| "no thread")?.map_err(said)?;
        let up = LinkSettings { up: true, ..LinkSettings::default() };
        let mut routes = RouteSocket::open().map_err(said)?;
        routes.add_veth(["evil0", "ib0"], host.as_fd(), None).map_err(said)?;
        routes.set_link("evil0", up).map_err(said)?;
        routes.add_address("evil0", GATEWAY.into(), 24).map_err(said)?;
        let index = routes.index("evil0").map_err(said)?;
        sys::namespace::enter_network(host.as_fd()).map_err(said)?;
        let mut there = RouteSocket::open().map_err(said)?;
        for name in ["lo", "ib0"] {
            there.set_link(name, up).map_err(said)?;
        }
        there.add_address("ib0", HOST.into(), 24).map_err(said)?;
        let mac = there.link("ib0").map_err(said)?.hardware_address;
        let mac = MacAddress::try_from(&mac[..]).map_err(said)?;
        let daemon = start(scene, verb, more)?;
        sys::namespace::enter_network(attacker.as_fd()).map_err(said)?;
        let socket =
            sys::packet::open(index, Family::Ipv4, &[EVERYTHING], 8 << 20).map_err(said)?;
        Ok(Self {
            daemon,
            plan: route_plan::parse_plan("plan.toml", PLAN).map_err(said)?,
            key: Key::from_hex(KEY).ok_or("no key")?,
            sequence: 1_000_000,
            mac,
            socket,
            send: SendPackets::new(BATCH_COUNT, PACKET_BYTES_MAX, index, Family::Ipv4),
            receive: ReceivePackets::new(BATCH_COUNT, PACKET_BYTES_MAX),
            host,
        })
    }

    /// Questions a second that the reflector answers each far host, and as many at once.
    pub(super) fn rate(&self) -> Result<u32, String> {
        let Some(Role::Host(host)) = self.plan.find(HOST_NAME) else {
            return Err("the plan has no such host".to_owned());
        };
        Ok(gateway::reflect_options(&self.plan, host, self.key).rate_per_s)
    }

    /// A question that a host of the plan might ask.
    pub(super) fn question(&mut self) -> Payload {
        self.sequence += 1;
        Payload {
            kind: Kind::Question,
            gateway: 0,
            plan_id: gateway::plan_id(&self.plan),
            sequence: self.sequence,
            sent_ns: 1,
            size: SizeClass::Small,
        }
    }

    /// It as a packet of so many bytes of payload, with a tag for `ends`.
    pub(super) fn packet(&self, payload: &Payload, ends: [Ipv4Addr; 2], bytes: usize) -> Vec<u8> {
        let ends = Ends { prober: ends[0].into(), reflector: ends[1].into() };
        let mut inside = vec![0; bytes.max(PAYLOAD_BYTES)];
        payload.write(&self.key, &ends, &mut inside);
        wrapped(&inside, [ends.prober, ends.reflector], Ports::default())
    }

    /// A genuine question of the first far host.
    pub(super) fn genuine(&mut self) -> Vec<u8> {
        let question = self.question();
        self.packet(&question, [FAR[0], HOST], PAYLOAD_BYTES)
    }

    /// Sends packets to the host's Ethernet address.
    pub(super) fn send<'a>(
        &mut self,
        packets: impl IntoIterator<Item = &'a Vec<u8>>,
    ) -> Result<(), String> {
        for packet in packets {
            let length = packet.len().min(PACKET_BYTES_MAX);
            self.send.next_mut()[..length].copy_from_slice(&packet[..length]);
            self.send.push(length, self.mac);
            if self.send.is_full() {
                self.send.send(&self.socket).map_err(said)?;
            }
        }
        self.send.send(&self.socket).map(drop).map_err(said)
    }

    /// Lengths of all answers of the reflector, until none comes for a while.
    pub(super) fn answers(&mut self) -> Vec<usize> {
        let mut lengths = Vec::new();
        let mut last = Instant::now();
        while last.elapsed() < SETTLE {
            let Ok(came) = self.receive.receive(&self.socket) else {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            };
            for index in 0..came {
                let (_, packet) = self.receive.packet(index);
                let length = packet.len();
                if datagram::Datagram::parse(packet)
                    .is_ok_and(|datagram| datagram.source_port == Ports::default().reflector)
                {
                    lengths.push(length);
                    last = Instant::now();
                }
            }
        }
        lengths
    }

    /// The reflector answers who asks as it should.
    pub(super) fn is_well(&mut self) -> Result<(), String> {
        let until = Instant::now() + PATIENCE;
        loop {
            let question = self.genuine();
            self.send([&question])?;
            if !self.answers().is_empty() {
                return self.daemon.check();
            }
            self.daemon.check()?;
            if Instant::now() > until {
                return Err("a genuine probe gets no answer".to_owned());
            }
        }
    }

    /// Runs in a thread on the host under attack.
    pub(super) fn on_host<T: Send>(
        &self,
        body: impl FnOnce() -> Result<T, String> + Send,
    ) -> Result<T, String> {
        let host = self.host.as_fd();
        let inside = || {
            sys::namespace::enter_network(host).map_err(said)?;
            body()
        };
        std::thread::scope(|scope| {
            scope.spawn(inside).join().map_err(|_panic| "a thread of the suite panicked")?
        })
    }

    /// Where the program listens for `GET /metrics`, once it does.
    pub(super) fn metrics_address(&mut self) -> Result<SocketAddr, String> {
        let until = Instant::now() + PATIENCE;
        loop {
            let text = self.daemon.log_text();
            let address = text.split("metrics at http://").nth(1);
            if let Some(address) = address.and_then(|rest| rest.split("/metrics").next())
                && text.contains(" watches ")
            {
                return address.parse().map_err(said);
            }
            self.daemon.check()?;
            if Instant::now() > until {
                return Err(format!("no metrics: {text}"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn start(scene: &Scene, verb: &str, more: &[&str]) -> Result<Daemon, String> {
    let folder: PathBuf = scene.folder.join(format!("gateway-{}", scene.random_name()));
    std::fs::create_dir_all(&folder).map_err(said)?;
    let (plan, key) = (folder.join("plan.toml"), folder.join("key"));
    std::fs::write(&plan, PLAN).map_err(said)?;
    std::fs::write(&key, KEY).map_err(said)?;
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).map_err(said)?;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let (plan, key) = (text(&plan), text(&key));
    let words = ["gateway", verb, &plan, "--host", HOST_NAME, "--key-file", &key];
    Daemon::start(&scene.program, &[&words, more].concat(), folder.join("log"))
}

/// UDP between two addresses.
pub(super) fn wrapped(inside: &[u8], [from, to]: [IpAddr; 2], ports: Ports) -> Vec<u8> {
    let mut packet = vec![0; datagram::header_bytes(false)];
    packet.extend(inside);
    datagram::write_headers(&mut packet, (from, ports.prober), (to, ports.reflector), inside.len());
    packet
}

/// Asks for the metrics as Prometheus does; how long that took.
pub(super) fn scrape(address: SocketAddr) -> Result<Duration, String> {
    let began = Instant::now();
    let mut client = TcpStream::connect_timeout(&address, PATIENCE).map_err(said)?;
    client.set_read_timeout(Some(PATIENCE)).map_err(said)?;
    client.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").map_err(said)?;
    let mut text = String::new();
    let read: io::Result<usize> = client.read_to_string(&mut text);
    read.map_err(|error| format!("metrics: {error}"))?;
    if text.ends_with("# EOF\n") { Ok(began.elapsed()) } else { Err(format!("metrics: {text:?}")) }
}
