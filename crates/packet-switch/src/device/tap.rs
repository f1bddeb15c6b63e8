//! A TAP device as a port: what the host sends comes into the switch, what the switch delivers the host
//! receives, super-segments whole. Frames go straight between the device and the port's buffers.

use std::os::fd::AsFd;

use port_tap::Port;
use rustix::event::PollFlags;
use shm::transfer;

use super::{DeviceCounters, DeviceError, Plug, Stop, sleep};

/// Longest packet: virtio-net header, Ethernet header with two VLAN tags, 64 KiB.
const PACKET_BYTES_MAX: usize = 10 + 22 + 65_535;
/// Packets between two looks at the other direction.
const TURN: u32 = 64;

pub(super) fn run(
    port: &Port,
    mut plug: Plug,
    stop: &Stop,
    counters: &DeviceCounters,
) -> Result<(), DeviceError> {
    let room = slots_needed(&mut plug)?;
    while !stop.is_asked() {
        let sent = from_host(port, &mut plug, room)?;
        let received = to_host(port, &mut plug, counters)?;
        if sent + received == 0 {
            wait(port, &mut plug, stop, room)?;
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

fn from_host(port: &Port, plug: &mut Plug, room: u32) -> Result<u32, DeviceError> {
    let sender = &mut plug.sender;
    let (mut filled, mut packets) = (0, 0);
    while packets < TURN && sender.reserve(filled + room)? >= filled + room {
        let buffers = (filled..filled + room).filter_map(|slot| sender.buffer(slot));
        let each = sender.buffer(filled).map_or(64, |buffer| buffer.length_bytes());
        let Some(bytes) = transfer::read_into(port, buffers).map_err(DeviceError::Gone)? else {
            break;
        };
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

fn to_host(port: &Port, plug: &mut Plug, counters: &DeviceCounters) -> Result<u32, DeviceError> {
    let arrived = plug.receiver.peek(1)?;
    let (mut taken, mut packets, mut refused) = (0, 0, 0);
    while taken < arrived && packets < TURN {
        let slots = plug.packet_slots(taken, arrived);
        let parts = (taken..taken + slots).filter_map(|slot| plug.receiver.frame(slot));
        // A host whose interface is down, or has no memory, loses frames as from any wire.
        if !transfer::write_from(port, parts).unwrap_or(false) {
            refused += 1;
        }
        taken += slots;
        packets += 1;
    }
    counters.refuse(refused);
    plug.receiver.release(taken)?;
    Ok(packets)
}

fn wait(port: &Port, plug: &mut Plug, stop: &Stop, room: u32) -> Result<(), DeviceError> {
    let has_room = plug.sender.reserve(room)? >= room;
    if plug.receiver.arm()? && (has_room || plug.sender.arm()?) {
        // Without room what the host sends stays in the device's queue.
        let sending = if has_room { port.as_fd() } else { plug.sender.as_fd() };
        let set = [(plug.receiver.as_fd(), PollFlags::IN), (sending, PollFlags::IN)];
        sleep(stop, &set, None)?;
    }
    plug.receiver.disarm()?;
    if !has_room {
        plug.sender.disarm()?;
    }
    Ok(())
}
