//! A queue of a network device as a port: frames are copied between the memory that the kernel or the
//! device writes and the port's own buffers, many at a time.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use ports::xdp::{Flush, Port};
use rustix::event::PollFlags;

use super::{DeviceCounters, DeviceError, End, Plug, Stop, sleep};
use crate::datapath::Resident;

/// Packets between two looks at the other direction.
const TURN: u32 = 64;
/// Most slots of one packet, as the switch takes them.
const SLOTS_MAX: u32 = 64;
/// How long frames wait for a kernel that has no room for them.
const AGAIN: Duration = Duration::from_millis(1);
/// The same while the device is down.
const DOWN_AGAIN: Duration = Duration::from_millis(20);
/// How often an idle port asks whether its device is still there: no poll tells.
const CHECK_EVERY: Duration = Duration::from_millis(500);

pub(super) fn run(
    mut port: Port,
    mut plug: Plug,
    stop: &Stop,
    counters: &DeviceCounters,
) -> Result<(), DeviceError> {
    while !stop.is_asked() {
        let received = from_device(&mut port, &mut plug, counters)?;
        let sent = to_device(&mut port, &mut plug, counters)?;
        if received + sent == 0 {
            wait(&mut port, &mut plug, stop)?;
        }
    }
    Ok(())
}

/// A queue that the switch's own thread drives.
#[derive(Debug)]
pub(super) struct Inmate {
    pub(super) port: Port,
    pub(super) plug: Plug,
    pub(super) counters: Arc<DeviceCounters>,
    pub(super) end: End,
}

impl Resident for Inmate {
    fn bring(&mut self) -> Option<u32> {
        let brought = from_device(&mut self.port, &mut self.plug, &self.counters);
        if matches!(brought, Ok(0)) && self.port.wants_poll() {
            self.end.none_of(self.port.poll_now().map_err(DeviceError::Gone))?;
        }
        self.end.none_of(brought)
    }

    fn take_away(&mut self) -> Option<u32> {
        self.end.none_of(to_device(&mut self.port, &mut self.plug, &self.counters))
    }

    fn rest(&mut self) -> Option<Duration> {
        let pause = pause(&mut self.port, &mut self.plug);
        self.end.none_of(pause).map(|pause| match pause {
            // Nobody else empties or fills its rings: what is there is for the next round.
            Pause { arrived: true, torn: false, .. } => Duration::ZERO,
            pause => pause.longest,
        })
    }

    fn check(&mut self) -> Option<()> {
        self.end.none_of(self.port.check().map_err(DeviceError::Gone))
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.port.as_fd()
    }

    fn fail(&mut self, why: String) {
        self.end.none_of::<()>(Err(DeviceError::Fault(why)));
    }
}

/// Parts of the packet that begins at the `offset`th of `arrived`; `None` when its end is not there yet.
fn parts_of(port: &Port, offset: u32, arrived: u32) -> Option<u32> {
    (offset..arrived).position(|part| !port.goes_on(part)).map(|more| more as u32 + 1)
}

fn from_device(
    port: &mut Port,
    plug: &mut Plug,
    counters: &DeviceCounters,
) -> Result<u32, DeviceError> {
    let arrived = port.peek().map_err(DeviceError::Gone)?;
    // Another core has written them.
    (0..arrived.min(TURN)).filter_map(|part| port.frame(part)).for_each(|one| one.bytes.prefetch());
    let (mut taken, mut filled, mut packets, mut refused) = (0, 0, 0, 0);
    while packets < TURN {
        let Some(parts) = parts_of(port, taken, arrived) else { break };
        match take_packet(port, plug, taken..taken + parts, filled)? {
            Took::Slots(slots) => filled += slots,
            Took::Nothing => refused += 1,
            Took::NoRoom => break,
        }
        taken += parts;
        packets += 1;
    }
    counters.refuse(refused);
    port.release(taken).map_err(DeviceError::Gone)?;
    plug.sender.publish(filled)?;
    Ok(packets)
}

enum Took {
    Slots(u32),
    /// The packet makes no sense, or is too long for any port.
    Nothing,
    /// The switch has not made room yet.
    NoRoom,
}

/// Copies one packet to the sender's slots from the `filled`th on.
fn take_packet(
    port: &Port,
    plug: &mut Plug,
    parts: std::ops::Range<u32>,
    filled: u32,
) -> Result<Took, DeviceError> {
    let sender = &mut plug.sender;
    if sender.reserve(filled + 1)? <= filled {
        return Ok(Took::NoRoom);
    }
    let each = sender.buffer(filled).map_or(0, |buffer| buffer.length_bytes());
    let mut needed = 0;
    for part in parts.clone() {
        let Some(frame) = port.frame(part) else { return Ok(Took::Nothing) };
        let bytes = frame.bytes.length_bytes();
        if each == 0 || bytes == 0 {
            return Ok(Took::Nothing);
        }
        needed += bytes.div_ceil(each) as u32;
    }
    if needed > SLOTS_MAX.min(sender.end().slots() / 2) {
        return Ok(Took::Nothing);
    }
    if sender.reserve(filled + needed)? < filled + needed {
        return Ok(Took::NoRoom);
    }
    let mut slot = filled;
    for frame in parts.filter_map(|part| port.frame(part)) {
        let bytes = frame.bytes.length_bytes();
        for begin in (0..bytes).step_by(each) {
            let length = each.min(bytes - begin);
            let more = frame.goes_on || begin + length < bytes;
            let copied = sender
                .buffer(slot)
                .zip(frame.bytes.cut(begin, length))
                .is_some_and(|(to, from)| to.copy_from(&from, length));
            // No longer than a buffer.
            let put = sender.put_part(slot, length as u16, more);
            debug_assert!(copied && put, "a reserved slot takes what is no longer than its buffer");
            slot += 1;
        }
    }
    Ok(Took::Slots(needed))
}

fn to_device(
    port: &mut Port,
    plug: &mut Plug,
    counters: &DeviceCounters,
) -> Result<u32, DeviceError> {
    let arrived = plug.receiver.peek(1)?;
    let (mut taken, mut put, mut packets, mut refused) = (0, 0, 0, 0);
    while taken < arrived && packets < TURN {
        let slots = plug.packet_slots(taken, arrived);
        let bytes: usize =
            (taken..taken + slots).filter_map(|slot| plug.receiver.length_bytes(slot)).sum();
        let parts = bytes.div_ceil(port.part_bytes()) as u32;
        if port.room(put + parts).map_err(DeviceError::Gone)? < put + parts {
            break;
        }
        if parts == 0 || (parts > 1 && !port.takes_parts()) {
            refused += 1;
        } else {
            put_packet(port, plug, taken..taken + slots, put);
            put += parts;
        }
        taken += slots;
        packets += 1;
    }
    counters.refuse(refused);
    plug.receiver.release(taken)?;
    if put > 0 {
        port.publish(put).map_err(DeviceError::Gone)?;
    }
    Ok(packets)
}

/// Copies one packet into chunks from the `first`th on, each filled before the next.
fn put_packet(port: &Port, plug: &Plug, slots: std::ops::Range<u32>, first: u32) {
    let each = port.part_bytes();
    let (mut part, mut filled) = (first, 0);
    let last = slots.end - 1;
    for slot in slots {
        let Some((from, bytes)) = plug.receiver.frame(slot) else { continue };
        let mut done = 0;
        while done < bytes {
            let length = (each - filled).min(bytes - done);
            let copied = port
                .chunk(part)
                .and_then(|chunk| chunk.cut(filled, length))
                .zip(from.cut(done, length))
                .is_some_and(|(to, from)| to.copy_from(&from, length));
            debug_assert!(copied, "there is room for so many parts");
            (filled, done) = (filled + length, done + length);
            let ends = slot == last && done == bytes;
            if ends || filled == each {
                // No longer than a chunk.
                port.put(part, filled as u32, !ends);
                (part, filled) = (part + 1, 0);
            }
        }
    }
}

/// Why nothing moves, and for how long that may be so.
struct Pause {
    /// Frames have arrived.
    arrived: bool,
    /// Only the beginning of a packet has: nobody says when the rest comes.
    torn: bool,
    /// Frames for the device find no room: they wait for the kernel, which rings no bell.
    stuck: bool,
    longest: Duration,
}

fn pause(port: &mut Port, plug: &mut Plug) -> Result<Pause, DeviceError> {
    let again = match port.flush().map_err(DeviceError::Gone)? {
        Flush::Done => CHECK_EVERY,
        Flush::Later => AGAIN,
        Flush::Down => DOWN_AGAIN,
    };
    let arrived = port.peek().map_err(DeviceError::Gone)?;
    let torn = arrived > 0 && parts_of(port, 0, arrived).is_none();
    let stuck = plug.receiver.peek(1)? > 0;
    let longest = if (stuck || torn) && again == CHECK_EVERY { AGAIN } else { again };
    Ok(Pause { arrived: arrived > 0, torn, stuck, longest })
}

fn wait(port: &mut Port, plug: &mut Plug, stop: &Stop) -> Result<(), DeviceError> {
    let Pause { arrived, torn, stuck, longest } = pause(port, plug)?;
    // Frames that have arrived and find no room wait for the switch.
    let has_room = !arrived;
    if (stuck || plug.receiver.arm()?) && (has_room || torn || plug.sender.arm()?) {
        let inside = (plug.receiver.as_fd(), PollFlags::IN);
        let outside = if has_room { port.as_fd() } else { plug.sender.as_fd() };
        sleep(stop, &[inside, (outside, PollFlags::IN)], Some(longest))?;
    }
    plug.receiver.disarm()?;
    if !has_room {
        plug.sender.disarm()?;
    }
    if port.peek().map_err(DeviceError::Gone)? + plug.receiver.peek(1)? > 0 {
        return Ok(());
    }
    port.check().map_err(DeviceError::Gone)
}
