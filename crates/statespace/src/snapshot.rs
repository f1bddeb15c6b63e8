//! A breadth-first search put down and taken up again.
//!
//! The file: a mark and a version, then numbers of 64 bits, all little-endian: what was searched (the
//! caller's fingerprint), length of a state and where it is cut in two, how far the search is, the ends of its levels, roots and
//! joints of the store, bytes of the caller's own, and a sum over everything before it.

mod summed;

use std::io::{self, Read, Write};

use thiserror::Error;

use crate::reach::{Mark, Reach, System};
use crate::store::{Store, Unpacked};
pub(crate) use summed::Summed;

const MAGIC: [u8; 8] = *b"CSREACH2";

/// Most levels of a search.
const LEVELS_MAX: u64 = 1 << 32;

/// Why a snapshot cannot be taken up.
#[derive(Debug, Error)]
pub enum SnapshotError {
    /// It cannot be read.
    #[error(transparent)]
    Io(io::Error),
    /// It is of another search.
    #[error("the checkpoint is of another model or of other options")]
    Other,
    /// It is damaged, or no snapshot.
    #[error("the file is damaged or is not a checkpoint")]
    Damaged,
}

impl From<io::Error> for SnapshotError {
    /// One that ends too early is damaged.
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Damaged,
            _ => Self::Io(error),
        }
    }
}

impl<S: System> Reach<S> {
    /// Writes down how far the search is. `fingerprint` says what is searched; `extra` is kept with it.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn save(&self, fingerprint: u64, extra: &[u8], out: &mut dyn Write) -> io::Result<()> {
        let (store, mark, levels) = self.parts();
        let levels = &levels[..mark.levels_count];
        let mut out = Summed::new(out);
        out.bytes(&MAGIC)?;
        for number in [
            fingerprint,
            store.state_bytes() as u64,
            store.cut_at() as u64,
            u64::from(mark.next),
            mark.transitions_count,
            mark.deadlocks_count,
            levels.len() as u64,
        ] {
            out.number(number)?;
        }
        for &level in levels {
            out.number(level.into())?;
        }
        out.store(store)?;
        out.extra(extra)?;
        out.end().map(|_sum| ())
    }

    /// Takes a search up again; also what was kept with it. `is_state` says whether bytes are a state
    /// of the system.
    ///
    /// # Errors
    /// [`SnapshotError`].
    pub fn restore(
        system: S,
        fingerprint: u64,
        input: &mut dyn Read,
        is_state: impl Fn(&[u8]) -> bool,
    ) -> Result<(Self, Vec<u8>), SnapshotError> {
        let mut input = Summed::new(input);
        let mut magic = [0; 8];
        input.fill(&mut magic)?;
        if magic != MAGIC {
            return Err(SnapshotError::Damaged);
        }
        if input.next()? != fingerprint || input.next()? != system.state_bytes() as u64 {
            return Err(SnapshotError::Other);
        }
        let (cut_at, next) = (input.next()?, input.next()?);
        let (transitions_count, deadlocks_count) = (input.next()?, input.next()?);
        let levels_count = input.next()?;
        if !(1..LEVELS_MAX).contains(&levels_count) {
            return Err(SnapshotError::Damaged);
        }
        let mut levels: Vec<u32> = Vec::new();
        for _ in 0..levels_count {
            let level = u32::try_from(input.next()?).map_err(|_large| SnapshotError::Damaged)?;
            if levels.last().is_some_and(|&before| before >= level) {
                return Err(SnapshotError::Damaged);
            }
            levels.push(level);
        }
        let roots = input.pairs()?;
        let inner = input.pairs()?;
        let extra = input.extra()?;
        input.end()?;
        if levels.last().is_none_or(|&last| last > roots.count()) {
            return Err(SnapshotError::Damaged);
        }
        let cut_at = usize::try_from(cut_at).map_err(|_large| SnapshotError::Damaged)?;
        let store = Store::restored(system.state_bytes(), cut_at, roots, inner);
        let store = store.ok_or(SnapshotError::Damaged)?;
        let next = u32::try_from(next).map_err(|_large| SnapshotError::Damaged)?;
        let mut state = Unpacked::default();
        let is_sound = store.is_sound()
            && next <= store.len()
            && (0..store.len()).all(|id| {
                store.unpack(id, &mut state);
                is_state(state.bytes())
            });
        if !is_sound {
            return Err(SnapshotError::Damaged);
        }
        let mark = Mark { next, transitions_count, deadlocks_count, levels_count: levels.len() };
        Ok((Self::of(system, store, mark, levels), extra))
    }
}
