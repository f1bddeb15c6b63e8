use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use liveness::probe::{Arrived, ProbeCounters, Reflector, ReflectorConfig};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use sys::SyscallError;
use sys::netlink_socket::NetlinkSocket;
use sys::packet::{self, ReceivePackets, SendPackets};

use crate::filter;
use crate::link::{self, WatchError, family, monotonic_ns};
use crate::options::ReflectOptions;

/// Packets taken and answered with one system call each.
const BATCH_COUNT: usize = 64;
/// Room for questions that wait for this thread.
const BUFFER_BYTES: u64 = 8 << 20;

/// Reflects probes on an interface.
#[derive(Debug)]
pub struct Reflecting {
    socket: OwnedFd,
    reflector: Reflector,
    receive: ReceivePackets,
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
        Ok(Self {
            socket: packet::open(link.index, family, &filter, BUFFER_BYTES)?,
            reflector: Reflector::new(ReflectorConfig {
                key: options.key,
                plan_id: options.plan_id,
                ports: options.ports,
                addresses: vec![options.address],
                sources: options.sources.clone(),
                rate_per_s: options.rate_per_s,
                burst_count: options.burst_count,
            }),
            receive: ReceivePackets::new(BATCH_COUNT, packet_bytes),
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
                Ok(_) | Err(Errno::INTR) => self.turn(),
                Err(error) => return Err(SyscallError::new("poll", "reflector", error)),
            }
        }
    }

    /// Answers what is there.
    fn turn(&mut self) {
        loop {
            let came = match self.receive.receive(&self.socket) {
                Ok(came) => came,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // Nothing there, or the interface has just gone down, which was the one report of it.
                Err(_nothing) => return,
            };
            let now_ns = monotonic_ns();
            for index in 0..came {
                let (source_mac, packet) = self.receive.packet(index);
                let arrived = Arrived { source_mac, packet };
                let Ok((length, to)) = self.reflector.reflect(now_ns, arrived) else { continue };
                let (_, answer) = self.receive.packet(index);
                self.send.next_mut()[..length].copy_from_slice(&answer[..length]);
                self.send.push(length, to);
            }
            // What the device has no room for is lost, as any packet.
            self.send.send(self.socket.as_fd()).ok();
            if came < BATCH_COUNT {
                return;
            }
        }
    }
}
