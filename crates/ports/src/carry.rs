//! The one loop over frames.

use crate::end::{EndError, Moved, Sink, Source};

/// What a turn did.
#[derive(Debug, Clone, Copy)]
pub struct Turn {
    /// Packets that left the source.
    pub packets: u32,
    /// Those of them that the sink did not take.
    pub refused: u32,
    /// What became of the last: [`Moved::Nothing`] and [`Moved::NoRoom`] ended the turn before its limit.
    pub last: Moved,
}

/// Carries at most `limit` packets and hands them over.
///
/// # Errors
/// One of the ends has closed.
#[inline]
pub fn carry(from: &mut impl Source, to: &mut impl Sink, limit: u32) -> Result<Turn, EndError> {
    let mut turn = Turn { packets: 0, refused: 0, last: Moved::Nothing };
    from.look()?;
    while turn.packets < limit {
        turn.last = from.pass(to)?;
        match turn.last {
            Moved::NoRoom | Moved::Nothing => break,
            Moved::Refused => turn.refused += 1,
            Moved::Given | Moved::Dropped => {}
        }
        turn.packets += 1;
        if to.is_urgent() {
            to.flush()?;
        }
    }
    if turn.packets > 0 {
        from.release()?;
        to.flush()?;
    }
    Ok(turn)
}
