//! Probes that a far host reflects through the gateway they came by.
//!
//! A probe is a UDP datagram that host A sends to the MAC address of gateway g with the IP address of far
//! host B. The reflector on B swaps the addresses and answers to the MAC address that the probe came from,
//! which is g's on B's side. An answer therefore proves that g forwards in both directions; it needs no
//! route, rule or mark. Padded to the MTU, a probe finds a gateway that loses large packets only.
//!
//! * [`payload`]: what a probe says, and its tag;
//! * [`datagram`]: IPv4 and IPv6 with UDP around it, checksums included;
//! * [`Reflector`]: packet in, packet out, or refused with a counted reason;
//! * [`Prober`]: questions out, answers and ICMP errors in.
//!
//! **What is refused.** A tag covers the payload and both IP addresses, so a captured probe cannot be
//! replayed in the name of a third party. The reflector answers known addresses only, never with more bytes
//! than came, never to a multicast MAC address, each sequence number once and each source up to a rate.
//! Refused probes get no answer at all.

pub mod datagram;
pub mod payload;

mod prober;
mod reflector;
mod refused;
mod replay;

pub use payload::{PAYLOAD_BYTES, Payload, SizeClass};
pub use prober::{Answer, Prober, ProberConfig, Unreachable, UnreachableKind};
pub use reflector::{Reflector, ReflectorConfig};
pub use refused::{ProbeCounters, RefusedProbeError};

/// An Ethernet address.
pub type MacAddress = [u8; 6];

/// UDP ports of both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ports {
    /// Questions are sent from it.
    pub prober: u16,
    /// Questions are sent to it.
    pub reflector: u16,
}

impl Default for Ports {
    /// Ports 3998 and 3999.
    fn default() -> Self {
        Self { prober: 3998, reflector: 3999 }
    }
}

/// A packet as it came off an interface.
#[derive(Debug)]
pub struct Arrived<'a> {
    /// Ethernet address of the sender: the last router.
    pub source_mac: MacAddress,
    /// The IP packet; Ethernet's padding may follow it.
    pub packet: &'a mut [u8],
}
