//! A queue of a network device as a port: frames are copied between the memory that the kernel or the
//! device writes and the port's own buffers, many at a time.

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
        let brought = from_device(&mut self.port, &mut self.plug, &self.counters);
        if matches!(brought, Ok(0)) && self.port.wants_poll() {
            self.end.none_of(self.port.poll_now().map_err(gone))?;
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
        self.end.none_of(self.port.check().map_err(gone))
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.port.as_fd()
    }

    fn fail(&mut self, why: String) {
        self.end.none_of::<()>(Err(DeviceError::Fault(why)));
    }
}

fn from_device(
    port: &mut Port,
    plug: &mut Plug,
    counters: &DeviceCounters,
) -> Result<u32, DeviceError> {
    let turn = carry(&mut FromSlots::new(port), &mut plug.to, TURN)?;
    counters.refuse(turn.refused);
    Ok(turn.packets)
}

fn to_device(
    port: &mut Port,
    plug: &mut Plug,
    counters: &DeviceCounters,
) -> Result<u32, DeviceError> {
    let turn = carry(&mut plug.from, &mut ToSlots::new(port), TURN)?;
    counters.refuse(turn.refused);
    Ok(turn.packets)
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
    let again = match port.flush().map_err(gone)? {
        Flush::Done => CHECK_EVERY,
        Flush::Later => AGAIN,
        Flush::Down => DOWN_AGAIN,
    };
    let arrived = port.peek().map_err(gone)?;
    let torn = arrived > 0 && (0..arrived).all(|part| port.goes_on(part));
    let stuck = plug.from.slots().arrived(1)? > 0;
    let longest = if (stuck || torn) && again == CHECK_EVERY { AGAIN } else { again };
    Ok(Pause { arrived: arrived > 0, torn, stuck, longest })
}

fn wait(port: &mut Port, plug: &mut Plug, stop: &Stop) -> Result<(), DeviceError> {
    let Pause { arrived, torn, stuck, longest } = pause(port, plug)?;
    // Frames that have arrived and find no room wait for the switch.
    let has_room = !arrived;
    if (stuck || plug.from.arm()?) && (has_room || torn || plug.to.arm()?) {
        let mut set = plug.from.fds();
        set.push(if has_room { port.as_fd() } else { plug.to.fd() });
        sleep(stop, &set, Some(longest))?;
    }
    plug.from.disarm()?;
    if !has_room {
        plug.to.disarm()?;
    }
    if port.peek().map_err(gone)? + plug.from.slots().arrived(1)? > 0 {
        return Ok(());
    }
    port.check().map_err(gone)
}

fn gone(error: std::io::Error) -> DeviceError {
    EndError::from(error).into()
}
