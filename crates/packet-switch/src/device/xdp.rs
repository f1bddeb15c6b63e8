//! A queue of a network device as a port: frames are copied between the memory that the kernel or the
//! device writes and the port's own buffers, many at a time. The loop is the same whose rings these are: a port's of a
//! switch ([`Plug`]), or those of a client to which the queue is [passed through](crate::passthrough).

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use ports::slots::Arrivals;
use ports::xdp::{Flush, Port};
use ports::{EndError, FromSlots, Source, ToSlots, carry};

use super::{DeviceCounters, DeviceError, End, Plug, Stop, TURN, sleep};
use crate::daemon::Share;
use crate::datapath::Resident;

/// How long frames wait for a kernel that has no room for them.
const AGAIN: Duration = Duration::from_millis(1);
/// The same while the device is down.
const DOWN_AGAIN: Duration = Duration::from_millis(20);
/// How often an idle port asks whether its device is still there: no poll tells.
const CHECK_EVERY: Duration = Duration::from_millis(500);

/// The rings that a queue exchanges frames with.
pub(crate) trait Rings {
    /// Puts there what has arrived at the device; how many packets.
    fn receive(&mut self, port: &mut Port, counters: &DeviceCounters) -> Result<u32, DeviceError>;
    /// Has the device send what is there; how many packets.
    fn send(&mut self, port: &mut Port, counters: &DeviceCounters) -> Result<u32, DeviceError>;
    /// Whether there are frames that the device has yet to take.
    fn has_frames(&mut self) -> Result<bool, DeviceError>;
    /// As [`Source::arm`] for frames to send.
    fn arm_frames(&mut self) -> Result<bool, DeviceError>;
    /// The same for room to put frames.
    fn arm_room(&mut self) -> Result<bool, DeviceError>;
    /// No longer asks to be woken for frames, and for room if it did.
    fn disarm(&mut self, room: bool) -> Result<(), DeviceError>;
    /// Readable when there are frames, or room if that is asked for.
    fn fds(&mut self, room: bool) -> Vec<BorrowedFd<'_>>;
}

/// Carries until it is told to stop.
pub(crate) fn run(
    port: &mut Port,
    rings: &mut impl Rings,
    stop: &Stop,
    counters: &DeviceCounters,
) -> Result<(), DeviceError> {
    while !stop.is_asked() {
        let received = rings.receive(port, counters)?;
        let sent = rings.send(port, counters)?;
        if received + sent == 0 {
            wait(port, rings, stop)?;
        }
    }
    Ok(())
}

/// How frames get there, as [`DeviceState`](crate::attachment::DeviceState) says it.
pub(crate) fn mode(is_zero_copy: bool, is_generic: bool) -> &'static str {
    match (is_zero_copy, is_generic) {
        (true, _) => "zero-copy",
        (false, false) => "copy",
        (false, true) => "copy, generic",
    }
}

/// A queue that the switch's own thread drives.
#[derive(Debug)]
pub(super) struct DrivenQueue {
    pub(super) port: Port,
    pub(super) plug: Plug,
    pub(super) counters: Arc<DeviceCounters>,
    pub(super) end: End,
    /// Of the memory that it holds; dropped after it.
    pub(super) _shares: Vec<Share>,
}

impl Resident for DrivenQueue {
    fn bring(&mut self) -> Option<u32> {
        let brought = self.plug.receive(&mut self.port, &self.counters);
        if matches!(brought, Ok(0)) && self.port.wants_poll() {
            self.end.none_of(self.port.poll_now().map_err(gone))?;
        }
        self.end.none_of(brought)
    }

    fn take_away(&mut self) -> Option<u32> {
        self.end.none_of(self.plug.send(&mut self.port, &self.counters))
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
        self.end.none_of(self.port.check().map_err(gone))
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.port.as_fd()
    }

    fn fail(&mut self, why: String) {
        self.end.none_of::<()>(Err(DeviceError::Fault(why)));
    }
}

impl Rings for Plug {
    fn receive(&mut self, port: &mut Port, counters: &DeviceCounters) -> Result<u32, DeviceError> {
        let turn = carry(&mut FromSlots::new(port), &mut self.to, TURN)?;
        counters.refuse(turn.refused);
        Ok(turn.packets)
    }

    fn send(&mut self, port: &mut Port, counters: &DeviceCounters) -> Result<u32, DeviceError> {
        let turn = carry(&mut self.from, &mut ToSlots::new(port), TURN)?;
        counters.refuse(turn.refused);
        Ok(turn.packets)
    }

    fn has_frames(&mut self) -> Result<bool, DeviceError> {
        Ok(self.from.slots().arrived(1)? > 0)
    }

    fn arm_frames(&mut self) -> Result<bool, DeviceError> {
        Ok(self.from.arm()?)
    }

    fn arm_room(&mut self) -> Result<bool, DeviceError> {
        Ok(self.to.arm()?)
    }

    fn disarm(&mut self, room: bool) -> Result<(), DeviceError> {
        self.from.disarm()?;
        if room {
            self.to.disarm()?;
        }
        Ok(())
    }

    fn fds(&mut self, room: bool) -> Vec<BorrowedFd<'_>> {
        let mut set = self.from.fds();
        if room {
            set.push(self.to.fd());
        }
        set
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

fn pause(port: &mut Port, rings: &mut impl Rings) -> Result<Pause, DeviceError> {
    let again = match port.flush().map_err(gone)? {
        Flush::Done => CHECK_EVERY,
        Flush::Later => AGAIN,
        Flush::Down => DOWN_AGAIN,
    };
    let arrived = port.peek().map_err(gone)?;
    let torn = arrived > 0 && (0..arrived).all(|part| port.goes_on(part));
    let stuck = rings.has_frames()?;
    let longest = if (stuck || torn) && again == CHECK_EVERY { AGAIN } else { again };
    Ok(Pause { arrived: arrived > 0, torn, stuck, longest })
}

fn wait(port: &mut Port, rings: &mut impl Rings, stop: &Stop) -> Result<(), DeviceError> {
    let Pause { arrived, torn, stuck, longest } = pause(port, rings)?;
    // Frames that have arrived and find no room wait for whoever has the rings.
    let has_room = !arrived;
    if (stuck || rings.arm_frames()?) && (has_room || torn || rings.arm_room()?) {
        let mut set = rings.fds(!has_room);
        if has_room {
            set.push(port.as_fd());
        }
        sleep(stop, &set, Some(longest))?;
    }
    rings.disarm(!has_room)?;
    if port.peek().map_err(gone)? > 0 || rings.has_frames()? {
        return Ok(());
    }
    port.check().map_err(gone)
}

fn gone(error: std::io::Error) -> DeviceError {
    EndError::from(error).into()
}
