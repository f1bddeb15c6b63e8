//! A guest with a stock virtio-net driver as a port, by vhost-user. Frames go straight between the guest's memory and
//! the port's buffers, super-segments whole.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ports::vm::{FromGuest, Guest, GuestState, ToGuest};
use ports::{Moved, Source, carry};

use super::{DeviceCounters, DeviceError, Plug, Stop, TURN, sleep};
use crate::attachment::DeviceState;
use crate::panics::printable;

/// Turns between two looks at what the hypervisor says while frames flow.
const HEAR_EVERY: u32 = 16;

/// Most threads that serve guests at once. One that hangs in a descriptor of its hypervisor's counts on when its port
/// has gone.
const GUESTS_MAX: usize = 128;

static GUESTS: AtomicUsize = AtomicUsize::new(0);

/// A place among the threads that serve guests, as long as it is there.
#[derive(Debug)]
pub(super) struct Place(());

impl Place {
    pub(super) fn take() -> Result<Self, DeviceError> {
        let place = Self(());
        if GUESTS.fetch_add(1, Ordering::Relaxed) < GUESTS_MAX {
            Ok(place)
        } else {
            Err(DeviceError::Guests { most: GUESTS_MAX })
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        GUESTS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Longest reason that is kept, characters.
const TROUBLE_MAX: usize = 200;

/// What the port's entry says of its guest.
#[derive(Debug, Default)]
pub(super) struct Status {
    state: GuestState,
    trouble: Option<String>,
}

pub(super) type SharedStatus = Arc<Mutex<Status>>;

impl Status {
    pub(super) fn tell(&self, state: &mut DeviceState) {
        state.mode = Some(match self.state {
            GuestState::Waiting => "no guest".to_owned(),
            GuestState::Connected => "guest without a driver".to_owned(),
            GuestState::Running { pairs: 1 } => "guest runs, 1 pair of queues".to_owned(),
            GuestState::Running { pairs } => format!("guest runs, {pairs} pairs of queues"),
        });
        state.trouble.clone_from(&self.trouble);
    }

    /// Keeps what has changed.
    fn note(shared: &SharedStatus, guest: &Guest) {
        let mut status = shared.lock().unwrap_or_else(PoisonError::into_inner);
        status.state = guest.state();
        if status.trouble.as_deref() != guest.trouble() {
            // What a hypervisor sent is in it.
            status.trouble = guest.trouble().map(|why| printable(why, TROUBLE_MAX));
        }
    }
}

pub(super) fn run(
    mut guest: Guest,
    mut plug: Plug,
    stop: &Stop,
    counters: &DeviceCounters,
    status: &SharedStatus,
) -> Result<(), DeviceError> {
    let mut turns = 0_u32;
    while !stop.is_asked() {
        let sent = carry(&mut FromGuest(&mut guest), &mut plug.to, TURN)?;
        let received = carry(&mut plug.from, &mut ToGuest(&mut guest), TURN)?;
        counters.refuse(sent.refused + received.refused);
        turns += 1;
        let idle = sent.packets + received.packets == 0;
        if idle || turns.is_multiple_of(HEAR_EVERY) {
            let heard = guest.attend()?;
            Status::note(status, &guest);
            if idle && !heard {
                wait(&mut guest, &mut plug, stop, [sent.last, received.last])?;
            }
        }
    }
    Ok(())
}

/// Sleeps until one of the two, or the hypervisor, has something.
fn wait(
    guest: &mut Guest,
    plug: &mut Plug,
    stop: &Stop,
    last: [Moved; 2],
) -> Result<(), DeviceError> {
    // What finds no room stays where it is, and nobody is to wake this thread for more of it.
    let [switch_has_room, guest_has_room] = last.map(|last| last != Moved::NoRoom);
    let guest_is_idle = if switch_has_room { guest.arm() } else { plug.to.arm()? };
    let switch_is_idle =
        guest_is_idle && if guest_has_room { plug.from.arm()? } else { guest.arm_room() };
    if guest_is_idle && switch_is_idle {
        let to = (!switch_has_room).then(|| plug.to.fd());
        let mut set = guest.fds(switch_has_room, !guest_has_room);
        set.extend(to);
        if guest_has_room {
            set.extend(plug.from.fds());
        }
        sleep(stop, &set, None)?;
    }
    guest.disarm();
    plug.from.disarm()?;
    if !switch_has_room {
        plug.to.disarm()?;
    }
    Ok(())
}
