//! Probes' sockets on the asking end.

use std::net::{IpAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::Duration;

use liveness::probe::datagram::Datagram;
use liveness::probe::payload::Ends;
use liveness::probe::{
    Answer, MacAddress, ProbeCounters, Prober, ProberConfig, SizeClass, Unreachable,
};
use liveness::states::Ask;
use netlink::Link;
use sys::packet::{ReceiveRing, SendPackets};

use crate::filter;
use crate::link::{self, WatchError, family, monotonic_ns};
use crate::options::WatchOptions;

/// Packets sent with one system call.
const BATCH_COUNT: usize = 64;
/// Answers of a gateway and a far host that there is room for: those of a round wait for this thread together, at most
/// three small and two full-size ones.
const ROOM_COUNT: usize = 8;

/// Questions to far hosts, and their answers.
#[derive(Debug)]
pub(crate) struct Asking {
    socket: OwnedFd,
    /// One for each far host.
    probers: Vec<Prober>,
    send: SendPackets,
    receive: ReceiveRing,
    mtu_max_bytes: u16,
    /// When all answers that had arrived were taken last.
    taken_ns: u64,
    _port: UdpSocket,
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
        let frames_count = options.gateways.len() * options.far.len() * ROOM_COUNT;
        let (socket, receive) = ReceiveRing::open(link.index, family, &filter, frames_count)?;
        Ok(Self {
            socket,
            send: SendPackets::new(BATCH_COUNT, packet_bytes, link.index, family),
            receive,
            probers,
            mtu_max_bytes: link::mtu(link),
            taken_ns: monotonic_ns(),
            _port: link::hold_port(options.near, options.ports.prober)?,
        })
    }

    pub(crate) fn mac(&self, gateway: u16) -> Option<MacAddress> {
        self.probers.first()?.mac(gateway)
    }

    pub(crate) fn set_mac(&mut self, gateway: u16, mac: Option<MacAddress>) {
        self.probers.iter_mut().for_each(|prober| prober.set_mac(gateway, mac));
    }

    /// The interface has changed. Probes grow no longer than they were at the start.
    pub(crate) fn handle_link(&mut self, link: &Link) {
        link::forget_error(&self.socket);
        let mtu_bytes = link::mtu(link).min(self.mtu_max_bytes);
        self.probers.iter_mut().for_each(|prober| prober.set_mtu(mtu_bytes));
    }

    /// Asks every far host through a gateway; sent with [`flush`](Self::flush) at the latest. A gateway whose
    /// address is unknown is not asked: its round is missed.
    pub(crate) fn ask(&mut self, now_ns: u64, ask: &Ask) {
        for prober in &mut self.probers {
            let Some(mac) = prober.mac(ask.gateway) else { continue };
            let into = self.send.next_mut();
            let length = prober.ask(now_ns, ask.gateway, ask.size, ask.round, into);
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

    /// Takes all answers that are there. They may have waited: the kernel has noted when each arrived.
    pub(crate) fn take(&mut self, mut each: impl FnMut(&Answer)) {
        let before_ns = std::mem::replace(&mut self.taken_ns, monotonic_ns());
        let (now_ns, today) = (self.taken_ns, link::since_1970());
        // A flood does not keep the watcher busy.
        for _packet in 0..self.receive.frames_count() {
            let Some(came) = self.receive.take() else { return };
            let now_ns = arrival_ns(now_ns, today.checked_sub(came.arrived), before_ns);
            let source = match self.probers.as_slice() {
                [_only] => None,
                _several => Datagram::parse_beginning(came.packet, Some(came.packet_bytes))
                    .ok()
                    .map(|datagram| datagram.source),
            };
            let of = |prober: &&mut Prober| source.is_none_or(|one| prober.ends().reflector == one);
            let Some(prober) = self.probers.iter_mut().find(of) else { continue };
            let bytes = came.packet_bytes;
            if let Ok(answer) = prober.handle_answer(now_ns, came.source_mac, came.packet, bytes) {
                each(&answer);
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

/// When a packet arrived that is taken now and, by the system's clock, has waited for so long. That clock may have been
/// set meanwhile: what arrived before `before_ns` would have been taken then.
fn arrival_ns(now_ns: u64, waited: Option<Duration>, before_ns: u64) -> u64 {
    let waited_ns = waited.and_then(|waited| u64::try_from(waited.as_nanos()).ok());
    let arrived_ns = waited_ns.and_then(|waited_ns| now_ns.checked_sub(waited_ns));
    arrived_ns.filter(|arrived_ns| *arrived_ns >= before_ns).unwrap_or(now_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_set_meanwhile_does_not_move_an_arrival_before_the_last_look() {
        let waited = |ns| Some(Duration::from_nanos(ns));
        assert_eq!(arrival_ns(1000, waited(300), 600), 700);
        assert_eq!(arrival_ns(1000, waited(400), 600), 600);
        for set in [None, waited(401), waited(2000), Some(Duration::MAX)] {
            assert_eq!(arrival_ns(1000, set, 600), 1000, "{set:?}");
        }
    }
}
