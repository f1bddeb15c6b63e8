//! The rings that a guest drives itself, and who has the other side of them: made anew when the guest wishes, ended when it
//! breaks the protocol, kept as they are when the other side changes.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use sys::SyscallError;

use super::log;
use crate::ptnet::PortMemory;

/// How often everything is looked at that rings no bell.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often rings that could not be attached are tried again, and how often a guest may have new ones.
const RESET_EVERY: Duration = Duration::from_millis(200);

/// What became of an attempt to attach the rings.
pub(super) enum Attached {
    Yes,
    /// The seat is about to let go of them, or takes only new ones: the guest is to ask again.
    NotYet,
    Refused(String),
}

/// Where a guest's rings are attached, one at a time.
pub(super) trait Seat {
    /// Why it is there no longer.
    type Gone: From<SyscallError>;

    /// How the log calls it.
    const NAME: &'static str;

    /// Readable when it has something to say.
    fn news(&self) -> Option<BorrowedFd<'_>>;

    /// Why the rings were cut off, if that has happened.
    fn poll_cut_off(&mut self) -> Result<Option<String>, Self::Gone>;

    /// Attaches the guest's rings, made anew or as they are.
    fn attach(&mut self, memory: &PortMemory, is_fresh: bool) -> Result<Attached, Self::Gone>;

    /// Lets go of them.
    fn detach(&mut self) -> Result<(), Self::Gone>;

    /// Whether there is a link behind it; asked about every [`LOOK_EVERY`].
    fn has_link(&mut self) -> bool;
}

/// The rings that a guest drives itself.
pub(super) struct GuestRings {
    memory: PortMemory,
    /// The reset that they are of; 0 when they are nobody's.
    generation: u32,
    /// What the guest was told of the link behind them.
    has_link: bool,
    /// When they were last attached, or should have been.
    tried: Option<Instant>,
    /// Why they could not be, as the log has it already.
    complaint: Option<String>,
}

impl GuestRings {
    pub(super) fn new(memory: PortMemory) -> Self {
        Self { memory, generation: 0, has_link: false, tried: None, complaint: None }
    }

    /// Keeps the rings as the guest wants them, until the seat has gone: why.
    pub(super) fn attend<S: Seat>(&mut self, seat: &mut S) -> S::Gone {
        // A guest that had rings before this seat was there goes on with them.
        let mut outcome =
            if self.generation == 0 { Ok(()) } else { self.attach(seat, self.generation, false) };
        loop {
            if let Err(error) = outcome {
                return error;
            }
            outcome = self.turn(seat);
        }
    }

    fn turn<S: Seat>(&mut self, seat: &mut S) -> Result<(), S::Gone> {
        let mut fds = vec![PollFd::new(self.memory.control(), PollFlags::IN)];
        fds.extend(seat.news().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let most = Timespec::try_from(LOOK_EVERY).ok();
        // Interrupted or not, everything is looked at again.
        rustix::event::poll(&mut fds, most.as_ref()).ok();
        while let Some(why) = seat.poll_cut_off()? {
            log(&format!("{} disconnected the guest: {why}", S::NAME));
            self.end()?;
        }
        let has_link = seat.has_link();
        if self.generation != 0 && has_link != self.has_link {
            self.tell(self.generation, has_link)?;
        }
        self.memory.control().clear()?;
        let wanted = self.memory.reset();
        let is_early = self.tried.is_some_and(|then| then.elapsed() < RESET_EVERY);
        if wanted == self.generation || is_early {
            return Ok(());
        }
        self.end()?;
        seat.detach()?;
        if wanted == 0 { Ok(()) } else { self.attach(seat, wanted, true) }
    }

    /// The guest has no rings any more.
    fn end(&mut self) -> Result<(), SyscallError> {
        self.tell(0, false)
    }

    fn tell(&mut self, generation: u32, has_link: bool) -> Result<(), SyscallError> {
        (self.generation, self.has_link) = (generation, has_link);
        self.memory.tell(generation, has_link)
    }

    fn attach<S: Seat>(
        &mut self,
        seat: &mut S,
        generation: u32,
        is_fresh: bool,
    ) -> Result<(), S::Gone> {
        self.tried = Some(Instant::now());
        self.memory.describe();
        match seat.attach(&self.memory, is_fresh)? {
            Attached::Yes => {
                self.complaint = None;
                let has_link = seat.has_link();
                return Ok(self.tell(generation, has_link)?);
            }
            Attached::Refused(why) if self.complaint.as_ref() != Some(&why) => {
                log(&format!("{} refuses the guest: {why}", S::NAME));
                self.complaint = Some(why);
            }
            Attached::Refused(_) | Attached::NotYet => {}
        }
        Ok(self.end()?)
    }

    /// The seat has gone; the rings stay as they are, for the next one.
    pub(super) fn lose_seat(&mut self) {
        if let Err(error) = self.tell(self.generation, false) {
            log(&error.to_string());
        }
    }
}
