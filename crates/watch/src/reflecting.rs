use std::net::UdpSocket;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use liveness::probe::{Arrived, ProbeCounters, Reflector, ReflectorConfig};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use sys::SyscallError;
use sys::netlink_socket::NetlinkSocket;
use sys::packet::{ReceiveRing, SendPackets};

use crate::filter;
use crate::link::{self, WatchError, family, monotonic_ns};
use crate::options::ReflectOptions;

/// Packets answered with one system call.
const BATCH_COUNT: usize = 64;
/// Most questions that wait for this thread: those of 40 ms at 200 000 a second.
const WAITING_COUNT_MAX: usize = 8192;

/// Reflects probes on an interface.
#[derive(Debug)]
pub struct Reflecting {
    socket: OwnedFd,
    reflector: Reflector,
    receive: ReceiveRing,
    send: SendPackets,
    /// Keeps the kernel from answering probes itself.
    _port: UdpSocket,
}

impl Reflecting {
    /// Opens a reflector in the calling thread's network namespace.
    ///
    /// # Errors
    /// No `CAP_NET_RAW`, no such interface, or the port is taken.
    pub fn open(options: &ReflectOptions) -> Result<Self, WatchError> {
        let mut netlink = NetlinkSocket::open().map_err(WatchError::netlink("interfaces"))?;
        let link = link::interface(&mut netlink, &options.interface)?;
        let family = family(options.address);
        let filter = filter::udp_to(options.ports.reflector, family);
        let packet_bytes = usize::from(link::mtu(&link));
        let waiting_count = options.sources.len().saturating_mul(options.burst_count as usize);
        let waiting_count = waiting_count.min(WAITING_COUNT_MAX);
        let (socket, receive) = ReceiveRing::open(link.index, family, &filter, waiting_count)?;
        Ok(Self {
            socket,
            reflector: Reflector::new(ReflectorConfig {
                key: options.key,
                plan_id: options.plan_id,
                ports: options.ports,
                addresses: vec![options.address],
                sources: options.sources.clone(),
                rate_per_s: options.rate_per_s,
                burst_count: options.burst_count,
            }),
            receive,
            send: SendPackets::new(BATCH_COUNT, packet_bytes, link.index, family),
            _port: link::hold_port(options.address, options.ports.reflector)?,
        })
    }

    /// What became of the packets so far.
    #[must_use]
    pub fn counters(&self) -> ProbeCounters {
        self.reflector.counters()
    }

    /// Reflects until `stop` is readable.
    ///
    /// # Errors
    /// `poll(2)` failed. An interface that is down for a while is no error.
    pub fn run(&mut self, stop: BorrowedFd<'_>) -> Result<(), SyscallError> {
        loop {
            let mut set = [
                PollFd::from_borrowed_fd(stop, PollFlags::IN),
                PollFd::new(&self.socket, PollFlags::IN),
            ];
            match rustix::event::poll(&mut set, None) {
                Ok(_) if !set[0].revents().is_empty() => return Ok(()),
                Ok(_) | Err(Errno::INTR) => {
                    if set[1].revents().contains(PollFlags::ERR) {
                        link::forget_error(&self.socket);
                    }
                    self.turn();
                }
                Err(error) => return Err(SyscallError::new("poll", "reflector", error)),
            }
        }
    }

    /// Answers what is there. Of a question only its beginning is, and the rest of an answer is padding as well.
    fn turn(&mut self) {
        let now_ns = monotonic_ns();
        for _question in 0..self.receive.frames_count() {
            let Some(came) = self.receive.take() else { break };
            // A packet that is longer than the interface's MTU cannot be answered.
            let Some(packet) = self.send.next_mut().get_mut(..came.packet_bytes) else { continue };
            let (beginning, padding) = packet.split_at_mut(came.packet.len().min(packet.len()));
            beginning.copy_from_slice(&came.packet[..beginning.len()]);
            padding.fill(0);
            let arrived = Arrived { source_mac: came.source_mac, packet };
            let Ok((length, to)) = self.reflector.reflect(now_ns, arrived) else { continue };
            self.send.push(length, to);
            if self.send.is_full() {
                self.flush();
            }
        }
        self.flush();
    }

    /// What the device has no room for is lost, as any packet.
    fn flush(&mut self) {
        self.send.send(self.socket.as_fd()).ok();
    }
}
