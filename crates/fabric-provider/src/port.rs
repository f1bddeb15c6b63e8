//! Ranks on one network of packet switches: their packets go as Ethernet frames through a port of this host's switch,
//! which leads to other processes, to guests, and over links and device queues to other hosts.
//!
//! An endpoint's hardware address and its network follow from its name. So nobody is asked: peers of the same network
//! are reached through the port, all others by UDP. Packets may come by UDP from anybody at any time.

use std::num::NonZeroU32;
use std::path::Path;

use messaging::{Address, Machine, PeerId, wire};
use packet_switch::attachment::Shape;
use packet_switch::client::{Attached, Connection, default_socket};
use packet_switch::{Name as SwitchName, PortName};

use crate::buffers::Buffers;
use crate::held::Users;
use crate::name::{self, Name};

/// Names the switch, and with `@NETWORK` the network that it is part of: `vale0`, `vale0@rack7`.
const PORT_VARIABLE: &str = "FI_CLEARSTREAM_PORT";

/// Addresses and type of an Ethernet frame.
const ETHERNET_BYTES: usize = 14;
/// IEEE 802's number for local experiments.
const ETHER_TYPE: [u8; 2] = [0x88, 0xb5];
/// Shorter frames are filled up: devices do the same, or refuse them.
const FRAME_BYTES_MIN: usize = 60;
/// Slots of each ring, and the bytes of one: two pages of payload with their headers, as in shared memory.
const SHAPE: Shape = Shape { slots: 256, buffer_bytes: 8384 };
/// Most bytes of a packet inside a switch.
const PACKET_BYTES_MAX: u16 = 8192 + 128;
/// The same over a named network: what each Ethernet carries.
const NETWORK_PACKET_BYTES_MAX: u16 = 1500;
/// Most packets taken in a row.
const PACKETS_IN_A_ROW: u32 = 32;
/// How often the daemon is asked whether it still serves the port, where nothing comes.
const CHECK_NS: u64 = 100_000_000;

/// Which switch is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wish {
    switch: SwitchName,
    /// The network's number in names.
    pub(crate) network: NonZeroU32,
    packet_bytes_max: u16,
}

impl Wish {
    /// What the environment asks for; none where it asks for no port.
    ///
    /// # Errors
    /// A line for the user.
    pub(crate) fn asked() -> Result<Option<Self>, String> {
        let text = std::env::var(PORT_VARIABLE).unwrap_or_default();
        if text.is_empty() {
            return Ok(None);
        }
        let wish = Self::parse(&text, &default_socket());
        wish.map(Some).map_err(|line| format!("{PORT_VARIABLE}={text}: {line}"))
    }

    fn parse(text: &str, socket: &Path) -> Result<Self, String> {
        let (switch, network) = text.split_once('@').map_or((text, None), |(a, b)| (a, Some(b)));
        let switch: SwitchName = switch.parse().map_err(|error| format!("{error}"))?;
        if network == Some("") {
            return Err("no network name follows the '@'".to_owned());
        }
        // A switch without a network's name is one of its host alone.
        let whole = network.map_or_else(
            || format!("{}\n{}\n{switch}", boot_id(), socket.display()),
            |network| format!("@{network}"),
        );
        let packet_bytes_max =
            if network.is_some() { NETWORK_PACKET_BYTES_MAX } else { PACKET_BYTES_MAX };
        Ok(Self { switch, network: number_of(whole.as_bytes()), packet_bytes_max })
    }
}

/// Different for each boot of each machine; its containers and network namespaces have the same.
fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}

/// FNV-1a, 32 bits; 0 is no network.
fn number_of(bytes: &[u8]) -> NonZeroU32 {
    let hash = bytes
        .iter()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    NonZeroU32::new(hash).unwrap_or(NonZeroU32::MAX)
}

/// An endpoint's port.
#[derive(Debug)]
pub(crate) struct Port {
    connection: Connection,
    rings: Attached,
    own: [u8; 6],
    network: NonZeroU32,
    packet_bytes_max: u16,
    frame: Vec<u8>,
    /// Slots that are filled and not yet handed over.
    filled: u32,
    /// The frame before goes on in the next slot: it is none of ours.
    goes_on: bool,
    users: Users,
    next_check_ns: u64,
    pub(crate) sends_count: u64,
}

impl Port {
    /// Attaches the endpoint with this name to a new port of the switch.
    ///
    /// # Errors
    /// A line for the user: no switch, or it refuses.
    pub(crate) fn open(wish: &Wish, name: &Name) -> Result<Self, String> {
        let said = |error: &dyn std::fmt::Display| {
            format!("port of {} ({PORT_VARIABLE}): {error}", wish.switch)
        };
        let mut connection = Connection::open(&default_socket()).map_err(|error| said(&error))?;
        let own = name::hardware_address(&name.address);
        let number = own.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let port: SwitchName = format!("mpi-{number}").parse().map_err(|error| said(&error))?;
        let port = PortName { switch: wish.switch.clone(), port };
        let rings = connection.attach_port_as(&port, SHAPE).map_err(|error| said(&error))?;
        Ok(Self {
            connection,
            rings,
            own,
            network: wish.network,
            packet_bytes_max: wish.packet_bytes_max,
            frame: vec![0; SHAPE.buffer_bytes as usize],
            filled: 0,
            goes_on: false,
            users: Users::default(),
            next_check_ns: 0,
            sends_count: 0,
        })
    }

    /// Whether an endpoint with this address is reached through the port.
    pub(crate) fn reaches(&self, address: &Address) -> bool {
        name::network(address) == Some(self.network)
    }

    /// Whether packets to anybody have gone through it.
    pub(crate) fn is_used(&self) -> bool {
        self.users.are_any()
    }

    /// Most bytes of a packet.
    pub(crate) fn packet_bytes_max(&self) -> u16 {
        self.packet_bytes_max
    }

    /// Adds a packet to those that leave with the next [`flush`](Self::flush); one without room is lost, as on any path.
    /// True: there is no room for another, and [`hold`](Self::hold) is due.
    ///
    /// # Errors
    /// The port is of no more use.
    pub(crate) fn push(
        &mut self,
        peer: Option<PeerId>,
        to: &Address,
        [header, payload]: [&[u8]; 2],
    ) -> Result<bool, PortLost> {
        if let Some(peer) = peer {
            self.users.add(peer);
        }
        let sender = &mut self.rings.sender;
        if sender.reserve(self.filled + 1)? <= self.filled {
            return Ok(true);
        }
        let bytes = ETHERNET_BYTES + header.len() + payload.len();
        let padding = &[0; FRAME_BYTES_MIN][bytes.min(FRAME_BYTES_MIN)..];
        let to = name::hardware_address(to);
        let Some(buffer) = sender.buffer(self.filled) else { return Err(PortLost) };
        let mut at = 0;
        for part in [&to[..], &self.own[..], &ETHER_TYPE[..], header, payload, padding] {
            if !buffer.write(at, part) {
                return Ok(false);
            }
            at += part.len();
        }
        if sender.put_length(self.filled, at as u16) {
            self.filled += 1;
            self.sends_count += 1;
        }
        Ok(sender.reserve(self.filled + 1)? <= self.filled)
    }

    /// Holds packets back until there is room.
    pub(crate) fn hold(&mut self, machine: &mut Machine) {
        self.users.hold(machine);
    }

    /// Hands over what was pushed.
    ///
    /// # Errors
    /// The port is of no more use.
    pub(crate) fn flush(&mut self) -> Result<(), PortLost> {
        let filled = std::mem::take(&mut self.filled);
        if filled > 0 {
            self.rings.sender.publish(filled)?;
        }
        Ok(())
    }

    /// Lets the packets go that were held back.
    pub(crate) fn release(&mut self, machine: &mut Machine) {
        self.users.release(machine);
    }

    /// Takes packets in; true: some came.
    ///
    /// # Errors
    /// The port is of no more use.
    pub(crate) fn receive(
        &mut self,
        now_ns: u64,
        machine: &mut Machine,
        buffers: &mut Buffers,
    ) -> Result<bool, PortLost> {
        if self.users.are_held() && self.rings.sender.reserve(1)? > 0 {
            self.release(machine);
        }
        let receiver = &mut self.rings.receiver;
        let count = receiver.peek(1)?.min(PACKETS_IN_A_ROW);
        for slot in 0..count {
            let is_rest = std::mem::replace(&mut self.goes_on, receiver.goes_on(slot));
            // Copied once: the memory may change at any time.
            let Some(length) = receiver.copy(slot, &mut self.frame) else { continue };
            let frame = &self.frame[..length.min(self.frame.len())];
            if let Some(packet) = packet_in(frame, &self.own).filter(|_| !is_rest && !self.goes_on)
            {
                machine.handle_packet(now_ns, packet, buffers);
            }
        }
        if count > 0 {
            receiver.release(count)?;
        } else if now_ns >= self.next_check_ns {
            self.next_check_ns = now_ns + CHECK_NS;
            if self.connection.has_news() {
                return Err(PortLost);
            }
        }
        Ok(count > 0)
    }
}

/// The packet in a frame to this endpoint, without what fills it up; none in any other frame.
fn packet_in<'a>(frame: &'a [u8], own: &[u8; 6]) -> Option<&'a [u8]> {
    let (head, packet) = frame.split_at_checked(ETHERNET_BYTES)?;
    let is_ours = head[..6] == own[..] && head[12..] == ETHER_TYPE;
    is_ours.then(|| &packet[..wire::first_packet_bytes(packet)])
}

/// The switch has ended, or has broken the rules of its rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PortLost;

impl From<ring::Violation> for PortLost {
    fn from(_violation: ring::Violation) -> Self {
        Self
    }
}

impl From<sys::SyscallError> for PortLost {
    fn from(_error: sys::SyscallError) -> Self {
        Self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_is_a_network_of_its_host_unless_one_is_named() {
        let parse = |text: &str| Wish::parse(text, Path::new("/run/clearstream-switch.sock"));
        let own = parse("vale0").expect("a switch");
        assert_eq!(own.packet_bytes_max, PACKET_BYTES_MAX);
        assert_eq!(parse("vale0"), Ok(own.clone()));
        assert_ne!(parse("vale1").expect("a switch").network, own.network);
        let elsewhere = Wish::parse("vale0", Path::new("/run/other.sock")).expect("a switch");
        assert_ne!(elsewhere.network, own.network);

        let [one, other] = ["vale0@rack7", "nic@rack7"].map(|text| parse(text).expect("both"));
        assert_eq!(one.network, other.network);
        assert_ne!(one.network, own.network);
        assert_eq!(one.packet_bytes_max, 1500);
        for wrong in ["vale 0", "@rack7", "vale0@", "a/b@c"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_frames_to_this_endpoint_hold_packets() {
        let own = [2, 1, 2, 3, 4, 5];
        let mut packet = vec![0xc1, 12];
        packet.resize(40, 0);
        packet[38] = 40;
        let frame = |to: &[u8; 6], kind: [u8; 2]| {
            [&to[..], &[2, 9, 9, 9, 9, 9], &kind, &packet[..]].concat()
        };
        let mut padded = frame(&own, ETHER_TYPE);
        assert_eq!(packet_in(&padded, &own), Some(&packet[..]));
        padded.resize(FRAME_BYTES_MIN, 0);
        assert_eq!(packet_in(&padded, &own), Some(&packet[..]), "as a device fills it up");
        assert_eq!(packet_in(&frame(&[0xff; 6], ETHER_TYPE), &own), None);
        assert_eq!(packet_in(&frame(&own, [8, 0]), &own), None);
        assert_eq!(packet_in(&padded[..13], &own), None);
        bolero::check!().for_each(|bytes: &[u8]| {
            let _packet = packet_in(bytes, &[0; 6]);
        });
    }
}
