//! Devices that the switch's own thread drives, where it has but one core: a thread beside it could only
//! take turns with it there, and every turn is a wake-up and a change of threads.

use std::fmt::Debug;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::deferred_drop::{DAEMON, DeferredDrop};
use crate::panics;

/// A device at the client's seat of a port of this very switch. Each call is `None` once it has come to its
/// end, which it says where its port's entry shows it; it is dropped then.
pub(crate) trait Resident: Debug + Send {
    /// Brings what has arrived to the port; how many packets.
    fn bring(&mut self) -> Option<u32>;
    /// Takes what the port has for it away; how many packets.
    fn take_away(&mut self) -> Option<u32>;
    /// How long the thread may sleep for its sake; zero when something is to be done.
    fn rest(&mut self) -> Option<Duration>;
    /// Asked every second or so: whether the device is still there.
    fn check(&mut self) -> Option<()>;
    /// Readable when something has arrived.
    fn fd(&self) -> BorrowedFd<'_>;
    /// It goes, because one of these calls panicked.
    fn fail(&mut self, why: String);
}

/// All devices of a switch that its thread drives, by the serial numbers of their ports.
#[derive(Default)]
pub(super) struct Residents {
    all: Vec<(u64, Box<dyn Resident>)>,
    checked_s: u32,
    deferred_drop: DeferredDrop,
}

impl Residents {
    pub(super) fn set_deferred_drop(&mut self, deferred_drop: DeferredDrop) {
        self.deferred_drop = deferred_drop;
    }

    pub(super) fn add(&mut self, serial: u64, resident: Box<dyn Resident>) {
        self.all.push((serial, resident));
    }

    pub(super) fn remove(&mut self, serial: u64) {
        let gone = self.all.extract_if(.., |(one, _)| *one == serial);
        gone.for_each(|(_, resident)| self.deferred_drop.drop_later(DAEMON, Box::new(resident)));
    }

    /// What is to be listened to while the thread sleeps.
    pub(super) fn fds(&self) -> Vec<BorrowedFd<'_>> {
        self.all.iter().map(|(_, resident)| resident.fd()).collect()
    }

    /// Before the ports' turns; how many packets.
    pub(super) fn bring(&mut self, now_s: u32) -> usize {
        if self.all.is_empty() {
            return 0;
        }
        if now_s != self.checked_s {
            self.checked_s = now_s;
            self.keep(|resident| resident.check());
        }
        let mut packets = 0;
        self.keep(|resident| resident.bring().map(|count| packets += count as usize));
        packets
    }

    /// After them.
    pub(super) fn take_away(&mut self) -> usize {
        let mut packets = 0;
        self.keep(|resident| resident.take_away().map(|count| packets += count as usize));
        packets
    }

    /// How long the thread may sleep; `None` for as long as it likes.
    pub(super) fn rest(&mut self) -> Option<Duration> {
        let mut longest = None;
        self.keep(|resident| {
            let time = resident.rest()?;
            longest = Some(longest.map_or(time, |other| time.min(other)));
            Some(())
        });
        longest
    }

    fn keep(&mut self, mut stays: impl FnMut(&mut Box<dyn Resident>) -> Option<()>) {
        let gone = self.all.extract_if(.., |(_, resident)| {
            let stays = panics::caught(|| stays(resident)).unwrap_or_else(|why| {
                resident.fail(why);
                None
            });
            stays.is_none()
        });
        gone.for_each(|(_, resident)| self.deferred_drop.drop_later(DAEMON, Box::new(resident)));
    }
}
