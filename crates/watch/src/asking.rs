//! Probes' sockets on the asking end.

use std::net::{IpAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use liveness::probe::datagram::Datagram;
use liveness::probe::payload::Ends;
use liveness::probe::{
    Answer, MacAddress, ProbeCounters, Prober, ProberConfig, SizeClass, Unreachable,
};
use liveness::states::Ask;
use netlink::Link;
use sys::packet::{self, ReceivePackets, SendPackets};

use crate::filter;
use crate::link::{self, WatchError, family, monotonic_ns};
use crate::options::WatchOptions;

/// Packets sent and taken with one system call each.
const BATCH_COUNT: usize = 64;
/// Room for answers that wait for this thread.
const BUFFER_BYTES: u64 = 4 << 20;

/// Questions to far hosts, and their answers.
#[derive(Debug)]
pub(crate) struct Asking {
    socket: OwnedFd,
    /// One for each far host.
    probers: Vec<Prober>,
    send: SendPackets,
    receive: ReceivePackets,
    mtu_max_bytes: u16,
    _port: UdpSocket,
}

impl AsFd for Asking {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Asking {
    pub(crate) fn open(options: &WatchOptions, link: &Link) -> Result<Self, WatchError> {
        let family = family(options.near);
        let filter = filter::udp_to(options.ports.prober, family);
        let first_sequence = link::unix_us();
        let prober = |far: &IpAddr| {
            Prober::new(ProberConfig {
                key: options.key,
                plan_id: options.plan_id,
                ports: options.ports,
                ends: Ends { prober: options.near, reflector: *far },
                gateways: vec![None; options.gateways.len()],
                mtu_bytes: link::mtu(link),
                first_sequence,
            })
        };
        let probers: Vec<Prober> = options.far.iter().map(prober).collect();
        let longest = probers.iter().map(|prober| prober.packet_bytes(SizeClass::Full)).max();
        let packet_bytes = longest.unwrap_or(1);
        Ok(Self {
            socket: packet::open(link.index, family, &filter, BUFFER_BYTES)?,
            send: SendPackets::new(BATCH_COUNT, packet_bytes, link.index, family),
            receive: ReceivePackets::new(BATCH_COUNT, packet_bytes),
            probers,
            mtu_max_bytes: link::mtu(link),
            _port: link::hold_port(options.near, options.ports.prober)?,
        })
    }

    pub(crate) fn mac(&self, gateway: u16) -> Option<MacAddress> {
        self.probers.first()?.mac(gateway)
    }

    pub(crate) fn set_mac(&mut self, gateway: u16, mac: Option<MacAddress>) {
        self.probers.iter_mut().for_each(|prober| prober.set_mac(gateway, mac));
    }

    /// The interface has another MTU now. Probes grow no longer than they were at the start.
    pub(crate) fn set_mtu(&mut self, link: &Link) {
        let mtu_bytes = link::mtu(link).min(self.mtu_max_bytes);
        self.probers.iter_mut().for_each(|prober| prober.set_mtu(mtu_bytes));
    }

    /// Asks every far host through a gateway; sent with [`flush`](Self::flush) at the latest. A gateway whose
    /// address is unknown is not asked: its round is missed.
    pub(crate) fn ask(&mut self, ask: &Ask) {
        for prober in &mut self.probers {
            let Some(mac) = prober.mac(ask.gateway) else { continue };
            let into = self.send.next_mut();
            let length = prober.ask(monotonic_ns(), ask.gateway, ask.size, ask.round, into);
            self.send.push(length, mac);
            if self.send.is_full() {
                self.send.send(&self.socket).ok();
            }
        }
    }

    /// Sends what was asked. What cannot be sent is lost, as on a wire.
    pub(crate) fn flush(&mut self) {
        self.send.send(&self.socket).ok();
    }

    /// Takes all answers that are there.
    pub(crate) fn take(&mut self, mut each: impl FnMut(&Answer)) {
        while let Ok(came) = self.receive.receive(&self.socket) {
            let now_ns = monotonic_ns();
            for index in 0..came {
                let (mac, packet) = self.receive.packet(index);
                let source = match self.probers.as_slice() {
                    [_only] => None,
                    _several => Datagram::parse(packet, false).ok().map(|datagram| datagram.source),
                };
                let of =
                    |prober: &&mut Prober| source.is_none_or(|one| prober.ends().reflector == one);
                let Some(prober) = self.probers.iter_mut().find(of) else { continue };
                if let Ok(answer) = prober.handle_answer(now_ns, mac, packet) {
                    each(&answer);
                }
            }
            if came < BATCH_COUNT {
                return;
            }
        }
    }

    /// What an ICMP message says about a question, if it is about one.
    pub(crate) fn handle_icmp(&mut self, message: &[u8]) -> Option<Unreachable> {
        self.probers.iter_mut().find_map(|prober| prober.handle_icmp(message).ok())
    }

    /// What became of the packets so far, for each far host.
    pub(crate) fn counters(&self) -> impl Iterator<Item = (IpAddr, ProbeCounters)> {
        self.probers.iter().map(|prober| (prober.ends().reflector, prober.counters()))
    }
}
