//! A TAP device as a port: what the host sends comes into the switch, what the switch delivers the host
//! receives, super-segments whole. Frames go straight between the device and the port's buffers.
//!
//! A device has one queue or several. They are read in turn; what goes to the host is written to the
//! queue of its flow, so frames of a flow stay in order, and so do the answers: the kernel sends them
//! to the queue that the flow came from.

use std::os::fd::AsFd;

use ports::tap::Port;
use ring::Receiver;
use rustix::event::PollFlags;
use shm::transfer;
use switch::flow;

use super::{DeviceCounters, DeviceError, Plug, Stop, sleep};
use crate::attachment::HEADER_BYTES;

/// Longest packet: virtio-net header, Ethernet header with two VLAN tags, 64 KiB.
const PACKET_BYTES_MAX: usize = 10 + 22 + 65_535;
/// Packets between two looks at the other direction.
const TURN: u32 = 64;

pub(super) fn run(
    queues: &[Port],
    mut plug: Plug,
    stop: &Stop,
    counters: &DeviceCounters,
) -> Result<(), DeviceError> {
    let room = slots_needed(&mut plug)?;
    let mut next = 0;
    while !stop.is_asked() {
        let sent = from_host(queues, &mut next, &mut plug, room)?;
        let received = to_host(queues, &mut plug, counters)?;
        if sent + received == 0 {
            wait(queues, &mut plug, stop, room)?;
        }
    }
    Ok(())
}

/// Slots that the longest packet takes, at most half a ring.
fn slots_needed(plug: &mut Plug) -> Result<u32, DeviceError> {
    plug.sender.reserve(1)?;
    let buffer_bytes = plug.sender.buffer(0).map_or(64, |buffer| buffer.length_bytes());
    let slots = PACKET_BYTES_MAX.div_ceil(buffer_bytes).min(transfer::BUFFERS_MAX);
    Ok((slots as u32).min(plug.sender.end().slots() / 2))
}

/// A turn's packets; the queues take turns, beginning with the `next`th.
fn from_host(
    queues: &[Port],
    next: &mut usize,
    plug: &mut Plug,
    room: u32,
) -> Result<u32, DeviceError> {
    let sender = &mut plug.sender;
    let (mut filled, mut packets, mut dry) = (0, 0, 0);
    while packets < TURN && dry < queues.len() && sender.reserve(filled + room)? >= filled + room {
        let buffers = (filled..filled + room).filter_map(|slot| sender.buffer(slot));
        let each = sender.buffer(filled).map_or(64, |buffer| buffer.length_bytes());
        let queue = &queues[*next];
        *next = (*next + 1) % queues.len();
        let Some(bytes) = transfer::read_into(queue, buffers).map_err(DeviceError::Gone)? else {
            dry += 1;
            continue;
        };
        dry = 0;
        let slots = bytes.div_ceil(each).max(1);
        for number in 0..slots {
            let length = (bytes - number * each).min(each);
            let more = number + 1 < slots;
            // Within the reserved slots, and no longer than a buffer.
            let put = sender.put_part(filled + number as u32, length as u16, more);
            debug_assert!(put, "a reserved slot takes what was read into its buffer");
        }
        filled += slots as u32;
        packets += 1;
    }
    sender.publish(filled)?;
    Ok(packets)
}

fn to_host(
    queues: &[Port],
    plug: &mut Plug,
    counters: &DeviceCounters,
) -> Result<u32, DeviceError> {
    let arrived = plug.receiver.peek(1)?;
    let (mut taken, mut packets, mut refused) = (0, 0, 0);
    while taken < arrived && packets < TURN {
        let slots = plug.packet_slots(taken, arrived);
        let parts = (taken..taken + slots).filter_map(|slot| plug.receiver.frame(slot));
        let parts = parts.map(|(buffer, length)| buffer.first(length));
        let queue = match queues {
            [only] => only,
            several => &several[flow_of(&plug.receiver, taken) as usize % several.len()],
        };
        // A host whose interface is down, or has no memory, loses frames as from any wire.
        if !transfer::write_from(queue, parts).unwrap_or(false) {
            refused += 1;
        }
        taken += slots;
        packets += 1;
    }
    counters.refuse(refused);
    plug.receiver.release(taken)?;
    Ok(packets)
}

/// The flow of the packet that begins in this slot.
fn flow_of(receiver: &Receiver, slot: u32) -> u32 {
    let mut head = [0; flow::HEAD_BYTES];
    // Behind the header, which has no slot of its own: the switch's translation puts the two together, and
    // so does the kernel. What a client sends otherwise is a flow too.
    let there = receiver.frame(slot).and_then(|(buffer, length)| {
        let skip = usize::from(HEADER_BYTES);
        let bytes = length.checked_sub(skip)?.min(head.len());
        buffer.read(skip, &mut head[..bytes]).then_some(bytes)
    });
    flow::number(&head[..there.unwrap_or(0)])
}

fn wait(queues: &[Port], plug: &mut Plug, stop: &Stop, room: u32) -> Result<(), DeviceError> {
    let has_room = plug.sender.reserve(room)? >= room;
    if plug.receiver.arm()? && (has_room || plug.sender.arm()?) {
        let mut set = vec![(plug.receiver.as_fd(), PollFlags::IN)];
        if has_room {
            set.extend(queues.iter().map(|queue| (queue.as_fd(), PollFlags::IN)));
        } else {
            // What the host sends stays in the device's queues.
            set.push((plug.sender.as_fd(), PollFlags::IN));
        }
        sleep(stop, &set, None)?;
    }
    plug.receiver.disarm()?;
    if !has_room {
        plug.sender.disarm()?;
    }
    Ok(())
}
