//! A rank's part of a search put down and taken up again.
//!
//! Rank 0 halts the search ([`Rank::pause`]). Once nothing is under way any more, which is found out as
//! the end of a search is, each rank is asked to write ([`FileRequest::Write`]) and says how that went. Rank
//! 0 then tells all whether the whole is there ([`Rank::settle`]) and ends the search or goes on.
//!
//! A part: a mark and a version, then numbers of 64 bits, all little-endian: what was searched (the
//! caller's fingerprint), of which checkpoint it is, rank and ranks, length of a state and where it is
//! cut in two, steps and states without one so far, roots and joints of the store, a number for each
//! state (flags above its distance), what the rank learnt beside, and a sum over everything before it.

use std::io::{self, Read, Write};

use super::{Marks, Message, Rank};
use crate::partition::{Goal, Subject};
use crate::snapshot::{SnapshotError, Summed};
use crate::store::{Store, Unpacked};

const MAGIC: [u8; 8] = *b"CSPART_1";

/// What a rank's caller is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileRequest {
    /// Write the rank down ([`Rank::save`]) and tell how that went ([`Rank::was_written`]).
    Write {
        /// Of which checkpoint this is a part.
        serial: u64,
        /// Which of its two names the part gets ([`crate::partition::Manifest::is_second`]).
        is_second: bool,
    },
    /// The parts of all ranks make a whole, or this rank's is of no use.
    Settled {
        /// They do.
        is_whole: bool,
        /// Which of its two names this rank's part has.
        is_second: bool,
    },
}

/// A rank wrote its part down, which has this sum; or why it could not.
pub type Written = Result<u64, String>;

impl<S: Subject> Rank<S> {
    /// Halts the search so that it can be written down; for rank 0 to call. Tells whether it will be
    /// halted: it will not when all states are known, or when it looks for accepting cycles. Ranks are
    /// then asked to write, with what is given here.
    pub fn pause(&mut self, serial: u64, is_second: bool) -> bool {
        let lead = self.lead.as_mut();
        let orders = lead.map(|lead| lead.pause(serial, is_second)).unwrap_or_default();
        let is_pausing = !orders.is_empty();
        self.give(orders);
        is_pausing
    }

    /// What this rank's caller is to do now, once.
    pub fn errand(&mut self) -> Option<FileRequest> {
        self.errand.take()
    }

    /// How [`FileRequest::Write`] went.
    pub fn was_written(&mut self, written: Written) {
        self.tell(0, Message::Written(written));
    }

    /// How it went on all ranks, once; rank 0 alone knows.
    pub fn all_written(&mut self) -> Option<Vec<Written>> {
        self.lead.as_mut()?.take_written()
    }

    /// Tells all ranks whether the whole is there; for rank 0 to call.
    pub fn settle(&mut self, is_whole: bool, is_second: bool) {
        self.give(vec![(None, Message::Settled { is_whole, is_second })]);
    }

    /// Searches on after a pause; for rank 0 to call.
    pub fn go_on(&mut self) {
        let orders = self.lead.as_mut().map(super::Lead::go_on).unwrap_or_default();
        self.give(orders);
    }

    /// Ends the search of all ranks: this one cannot begin.
    pub fn give_up(&mut self, why: String) {
        self.tell(0, Message::Unable { why });
    }

    /// Writes this rank down while the search is halted; tells the sum. `fingerprint` says what is
    /// searched, `serial` which checkpoint this is a part of.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn save(&self, fingerprint: u64, serial: u64, out: &mut dyn Write) -> io::Result<u64> {
        let mut out = Summed::new(out);
        out.bytes(&MAGIC)?;
        for number in [
            fingerprint,
            serial,
            self.me as u64,
            self.ranks_count as u64,
            self.store.state_bytes() as u64,
            self.store.cut_at() as u64,
            self.transitions_count,
            self.deadlocks_count,
        ] {
            out.number(number)?;
        }
        out.store(&self.store)?;
        for number in self.marks.written() {
            out.number(number)?;
        }
        out.extra(&self.system.notes())?;
        out.end()
    }

    /// Takes a part up again, as rank `me` of `ranks_count`; also its sum. `is_state` says whether
    /// bytes are a state of the system.
    ///
    /// # Errors
    /// [`SnapshotError`].
    pub fn restore(
        system: S,
        aim: Goal,
        (me, ranks_count): (usize, usize),
        (fingerprint, serial): (u64, u64),
        input: &mut dyn Read,
        is_state: impl Fn(&[u8]) -> bool,
    ) -> Result<(Self, u64), SnapshotError> {
        let mut input = Summed::new(input);
        let mut magic = [0; 8];
        input.fill(&mut magic)?;
        if magic != MAGIC || !matches!(aim, Goal::BadState { .. }) {
            return Err(SnapshotError::Damaged);
        }
        let state_bytes = system.state_bytes();
        for wanted in [fingerprint, serial, me as u64, ranks_count as u64, state_bytes as u64] {
            if input.next()? != wanted {
                return Err(SnapshotError::Other);
            }
        }
        let cut_at = usize::try_from(input.next()?).map_err(|_large| SnapshotError::Damaged)?;
        let (transitions_count, deadlocks_count) = (input.next()?, input.next()?);
        let (roots, inner) = (input.pairs()?, input.pairs()?);
        let mut marks = Marks::new(me as u32, aim);
        for _ in 0..roots.count() {
            if !marks.take_up(input.next()?) {
                return Err(SnapshotError::Damaged);
            }
        }
        let notes = input.extra()?;
        let sum = input.end()?;
        let store = Store::restored(state_bytes, cut_at, roots, inner);
        let store = store.filter(Store::is_sound).ok_or(SnapshotError::Damaged)?;
        let mut rank = Self::of(system, aim, me, ranks_count, (store, marks));
        let mut state = Unpacked::default();
        let is_sound = (0..rank.store.len()).all(|id| {
            rank.store.unpack(id, &mut state);
            is_state(state.bytes()) && rank.home.of(state.bytes()) == me
        });
        if !is_sound {
            return Err(SnapshotError::Damaged);
        }
        rank.system.learn(&notes);
        rank.transitions_count = transitions_count;
        rank.deadlocks_count = deadlocks_count;
        Ok((rank, sum))
    }
}
