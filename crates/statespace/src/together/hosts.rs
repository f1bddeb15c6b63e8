//! Hosts that search together, each with one set of states that its threads share.
//!
//! The caller of thread 0 carries messages between [`SharedSearch::handle`] and [`SharedSearch::poll`], at first while
//! the threads work ([`SharedSearch::work_and_post`]), then until host 0 has heard how the search ended everywhere
//! ([`SharedSearch::all_ends`]), asked for a run to a violation ([`SharedSearch::ask`]) and let the others go.

use std::sync::atomic::Ordering;

use super::far::{Far, Heard, HostEnd};
use super::{BROKEN, Common, STOP, Seat, SharedSearch};
use crate::pairs::StoreFull;
use crate::partition::{Figures, MalformedMessage, Subject};
use crate::store::Unpacked;

impl SharedSearch {
    /// As [`Self::new`] for one of many hosts; all must have the same system.
    ///
    /// # Errors
    /// As of [`Self::new`].
    ///
    /// # Panics
    /// When there are no threads, or no such host.
    pub fn of_host(
        system: &mut impl Subject,
        (me, hosts_count): (usize, usize),
        threads_count: usize,
        is_full: bool,
    ) -> Result<Self, StoreFull> {
        let far = Far::new(system, me, hosts_count);
        Self::begin(&system.initial(), threads_count, is_full, usize::MAX, Some(far))
    }

    /// Takes in a message of another host.
    ///
    /// # Errors
    /// [`MalformedMessage`] for what no host sends.
    pub fn handle(&self, from: usize, bytes: &[u8]) -> Result<(), MalformedMessage> {
        let Some(far) = &self.far else { return Err(MalformedMessage) };
        let halt = match far.handle(from, bytes, self.is_full)? {
            Heard::Nothing => return Ok(()),
            Heard::Halt => STOP,
            Heard::Broken => BROKEN,
        };
        self.halt.0.fetch_max(halt, Ordering::Relaxed);
        Ok(())
    }

    /// What is to be sent, and to which host; to be called until there is nothing.
    pub fn poll(&self) -> Option<(usize, Vec<u8>)> {
        self.far.as_ref()?.poll()
    }

    /// What this host has done so far.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let (progress, sent) =
            (self.progress(), self.far.as_ref().map_or((0, 0), |far| far.sent()));
        Figures {
            states_count: progress.states_count,
            queued_count: progress.queued_count,
            transitions_count: progress.transitions_count,
            deadlocks_count: progress.deadlocks_count,
            depth: u64::from(progress.depth),
            memory_bytes: progress.memory_bytes as u64,
            sent_batches: sent.0,
            sent_bytes: sent.1,
            ..Figures::default()
        }
    }

    /// Tells host 0 how far this one is.
    pub fn tell_figures(&self) {
        if let Some(far) = &self.far {
            far.tell_figures(self.figures());
        }
    }

    /// How far all hosts were when host 0, which alone knows, last heard of them.
    #[must_use]
    pub fn all_figures(&self) -> Vec<Figures> {
        self.far.as_ref().map(Far::all_figures).unwrap_or_default()
    }

    /// Tells host 0 how the search ended here; once all threads are back.
    pub fn tell_end(&self, notes: Vec<u8>) {
        let Some(far) = &self.far else { return };
        let common = self.common();
        let broken = common.broken.map(|(id, level)| {
            let mut state = Unpacked::default();
            common.store.unpack(id, &mut state);
            (level as u32, state.bytes().to_vec())
        });
        drop(common);
        let (ended, figures) = (self.ended(), self.figures());
        far.tell_end(HostEnd { ended, figures, broken, notes });
    }

    /// How it ended on every host, once host 0, which alone learns it, knows.
    #[must_use]
    pub fn all_ends(&self) -> Option<Vec<HostEnd>> {
        self.far.as_ref()?.all_ends()
    }

    /// A state of a level that leads to this one: asks this host, and all others if it has none. For host 0.
    #[must_use]
    pub fn ask(&self, level: u32, state: &[u8], system: &mut impl Subject) -> Option<Vec<u8>> {
        let own = self.before(level as usize, state, system);
        if let (None, Some(far)) = (&own, &self.far) {
            far.ask(level, state);
        }
        own
    }

    /// What the others answered: a state, or none; `None` while that is open.
    #[must_use]
    pub fn answer(&self) -> Option<Option<Vec<u8>>> {
        self.far.as_ref()?.answer()
    }

    /// Answers what host 0 has asked.
    pub fn answer_asked(&self, system: &mut impl Subject) {
        let Some(far) = &self.far else { return };
        while let Some((question, level, state)) = far.asked() {
            let found = self.before(level as usize, &state, system);
            far.tell_answer(question, found.as_deref());
        }
    }

    /// Lets the others go; for host 0.
    pub fn finish(&self) {
        if let Some(far) = &self.far {
            far.finish();
        }
    }

    /// Whether host 0 has let the others go.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.far.as_ref().is_none_or(Far::is_finished)
    }

    /// A state of a level of this host that leads to `wanted`.
    pub(super) fn before(
        &self,
        level: usize,
        wanted: &[u8],
        system: &mut impl Subject,
    ) -> Option<Vec<u8>> {
        let common = self.common();
        let mut state = Unpacked::default();
        common.levels.states(level).find_map(|id| {
            common.store.unpack(id, &mut state);
            let mut leads_there = false;
            system.each(state.bytes(), |next| leads_there |= next == wanted);
            leads_there.then(|| state.bytes().to_vec())
        })
    }

    /// Adds what other hosts send until the level is complete, or there is something else to do.
    pub(super) fn receive(
        &self,
        common: &Common,
        seat: &mut Seat,
        post: &mut dyn FnMut(bool),
    ) -> Result<(), StoreFull> {
        let Some(far) = &self.far else { return Ok(()) };
        while !self.is_halted() && !common.store.wants_more() && !self.meeting.0.is_broken() {
            seat.take_in(far, &common.store)?;
            seat.flush(&common.store)?;
            if far.is_level_complete() {
                break;
            }
            post(true);
        }
        Ok(())
    }
}
