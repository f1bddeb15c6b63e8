//! What a frame makes the switch do, and how much of that a port may cause before others have their turn.
//!
//! Work is counted in bytes that are copied; what else has to be done is put into that unit, of which a
//! core does some 5 a nanosecond. It is charged to the port that the frame comes from, before it is done:
//!
//! * In a round each port has its [share] of [`ROUND_WORK`], at most [`TURN_WORK`].
//! * A turn takes the frames that the share pays for; the others wait in their sender's own ring.
//! * A single frame that costs more (one to everybody, mostly) goes to as many ports as the share pays for, at
//!   least one, and to the others in the next turns of its sender. By how much a turn went beyond its share
//!   is taken off the next ones.
//!
//! By how much turns go beyond their shares is limited for all ports together: [`STEPS_WORK`] a round. Where
//! that is used up, the ports whose next frame costs more than their share wait, and the [next round](Steps) begins with
//! the first of them.
//!
//! So a turn does at most its share and `STEP_WORK_MAX`, and between two turns of a port the switch does no
//! more than `ROUND_WORK`, `STEPS_WORK` and once `STEP_WORK_MAX`: 21 million, some 4 ms, whatever they send and however
//! many they are. What watchers take is not the senders' fault: they have [`WATCH_WORK`] together, and miss what is more.
//!
//! Waking a sleeping port is not counted: a microsecond or two, and longer where its client lets many epoll sets wait
//! for its bell. In a round a port is woken at most twice for frames that arrive ([`super::wake`]) and once for room
//! in its transmit ring.

use switch::vale::PortId;

/// What all ports together may cause in a round.
pub(super) const ROUND_WORK: u64 = 16 << 20;
/// What one port may cause in a turn, however few there are.
pub(super) const TURN_WORK: u64 = 512 << 10;
/// By how much all turns of a round together may go beyond their shares.
pub(super) const STEPS_WORK: u64 = 4 << 20;
/// Most work for all watchers' copies in a round.
pub(super) const WATCH_WORK: u64 = 8 << 20;
/// Longest packet, virtio-net header included: no port sends longer ones.
pub(super) const PACKET_BYTES_MAX: u32 = switch::delay_line::PACKET_BYTES_MAX as u32;
/// The most that a turn goes beyond its share: one frame taken, made into the most packets there are and
/// copied to one port.
#[cfg(test)]
pub(super) const STEP_WORK_MAX: u64 = 64 * SLOT_WORK
    + DELIVERY_WORK
    + making(PACKET_BYTES_MAX, switch::frame::PACKETS_MAX)
    + copying_parts(PACKET_BYTES_MAX, switch::frame::PACKETS_MAX);

/// Taking a slot, and finding out where its frame goes.
const SLOT_WORK: u64 = 64;
/// Writing a slot at its destination.
pub(super) const WRITE_WORK: u64 = 128;
/// Turning to a destination with a packet, with as many ports as there can be: their rings fit into no cache, so that
/// each delivery waits some 300 ns for memory.
const DELIVERY_WORK: u64 = 1536;
/// Making one packet of a super-segment: its headers and their checksums.
const PACKET_WORK: u64 = 256;

/// What each of so many ports may cause in a round.
pub(super) const fn share(ports: u32) -> u64 {
    let all = ROUND_WORK / if ports == 0 { 1 } else { ports as u64 };
    if all < TURN_WORK { all } else { TURN_WORK }
}

/// Taking a packet.
pub(super) const fn taking(slots: u16) -> u64 {
    SLOT_WORK * slots as u64
}

/// Turning to a destination with a packet where there are so many ports.
pub(super) const fn delivering(ports: u32) -> u64 {
    DELIVERY_WORK * ports as u64 / switch::vale::PORTS_MAX as u64
}

/// Copying it to a port as it is.
pub(super) const fn copying(bytes: u32, slots: u16) -> u64 {
    bytes as u64 + WRITE_WORK * slots as u64
}

/// Handing it over to a port that shares the sender's region.
pub(super) const fn trading(slots: u16) -> u64 {
    2 * WRITE_WORK * slots as u64
}

/// Copying it to a port with other headers, as so many packets.
pub(super) const fn copying_parts(bytes: u32, packets: u32) -> u64 {
    // In buffers of at least a kilobyte, mostly.
    bytes as u64 + WRITE_WORK * (packets as u64 + bytes as u64 / 1024)
}

/// Putting it into the form of such ports, once however many they are.
pub(super) const fn making(bytes: u32, packets: u32) -> u64 {
    // Copied, and summed up.
    2 * bytes as u64 + PACKET_WORK * packets as u64
}

/// What a round has left for turns that go beyond their shares, and whose turn that is first in the next.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Steps {
    left: u64,
    first: Option<PortId>,
}

impl Steps {
    /// Another round; the port that it is to begin with, if any waits.
    pub(super) fn begin(&mut self) -> Option<PortId> {
        self.left = STEPS_WORK;
        self.first.take()
    }

    /// Whether the port may go beyond its share by so much. If not, it waits for the next round.
    pub(super) fn take(&mut self, port: PortId, work: u64) -> bool {
        if work > 0 && self.left == 0 {
            self.first.get_or_insert(port);
            return false;
        }
        self.left = self.left.saturating_sub(work);
        true
    }
}

/// What a port has left of its shares.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Credit {
    left: i64,
}

impl Credit {
    /// Another round; what the port may cause in it, unless it still owes.
    pub(super) fn refill(&mut self, share: u64) -> Option<u64> {
        self.left = self.left.saturating_add_unsigned(share).min(share.cast_signed());
        u64::try_from(self.left).ok().filter(|&left| left > 0)
    }

    pub(super) fn spend(&mut self, work: u64) {
        self.left = self.left.saturating_sub_unsigned(work);
    }
}
