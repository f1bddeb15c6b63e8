//! What hosts that search together say to each other, as bytes. All numbers are little-endian.

use super::Ended;
use crate::partition::{Figures, MalformedMessage};

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Letter<'a> {
    /// States that states of this level lead to, one behind the other.
    Batch { level: u32, states: &'a [u8] },
    /// All states of this level were looked at.
    Done { level: u32, done: Done },
    /// So many of your batches were taken in.
    Taken { batches: u64 },
    /// The search ends here, before it is done.
    Halt,
    /// To host 0: how far I am, now and then.
    Figures(Figures),
    /// To host 0: my search is over.
    Ended { ended: Ended, figures: Figures, broken: Option<(u32, &'a [u8])>, notes: &'a [u8] },
    /// From host 0: which of your states of this level leads to this state?
    Ask { question: u32, level: u32, state: &'a [u8] },
    /// To host 0: this one, or none.
    Answer { question: u32, state: Option<&'a [u8]> },
    /// From host 0: nothing more will be asked.
    Finish,
}

/// What a host tells another at the end of a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Done {
    /// Batches of this level to the other.
    pub(super) batches: u64,
    /// States of this level that it has looked at.
    pub(super) looked_count: u64,
    /// Whether one of them violates a property.
    pub(super) is_broken: bool,
}

const BATCH: u8 = 1;
const DONE: u8 = 2;
const TAKEN: u8 = 3;
const HALT: u8 = 4;
const FIGURES: u8 = 5;
const ENDED: u8 = 6;
const ASK: u8 = 7;
const ANSWER: u8 = 8;
const FINISH: u8 = 9;

/// The beginning of a batch of states that a level leads to.
pub(super) fn batch_head(level: u32) -> [u8; 5] {
    let [a, b, c, d] = level.to_le_bytes();
    [BATCH, a, b, c, d]
}

impl<'a> Letter<'a> {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Batch { level, states } => [&batch_head(*level), *states].concat(),
            Self::Done { level, done } => {
                let Done { batches, looked_count, is_broken } = *done;
                let counts = [batches.to_le_bytes(), looked_count.to_le_bytes()].concat();
                [&[DONE][..], &level.to_le_bytes(), &counts, &[u8::from(is_broken)]].concat()
            }
            Self::Taken { batches } => [&[TAKEN][..], &batches.to_le_bytes()].concat(),
            Self::Halt => vec![HALT],
            Self::Figures(figures) => [&[FIGURES][..], &encode_figures(*figures)].concat(),
            Self::Ended { ended, figures, broken, notes } => {
                let head = [ENDED, ended_code(*ended)];
                let (level, state) = broken.unwrap_or((0, &[]));
                let broken = [&[u8::from(broken.is_some())], &level.to_le_bytes()[..], state];
                [&head[..], &encode_figures(*figures), &broken.concat(), notes].concat()
            }
            Self::Ask { question, level, state } => {
                [&[ASK][..], &question.to_le_bytes(), &level.to_le_bytes(), state].concat()
            }
            Self::Answer { question, state } => {
                let known = u8::from(state.is_some());
                let state = state.unwrap_or_default();
                [&[ANSWER][..], &question.to_le_bytes(), &[known], state].concat()
            }
            Self::Finish => vec![FINISH],
        }
    }

    /// A message of ranks whose states have so many bytes.
    pub(super) fn decode(bytes: &'a [u8], state_bytes: usize) -> Result<Self, MalformedMessage> {
        let mut rest = Rest(bytes);
        let letter = rest.letter(state_bytes).ok_or(MalformedMessage)?;
        if rest.0.is_empty() { Ok(letter) } else { Err(MalformedMessage) }
    }
}

/// What is still to be read.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn letter(&mut self, state_bytes: usize) -> Option<Letter<'a>> {
        Some(match self.byte()? {
            BATCH => {
                let (level, states) = (self.u32()?, self.all());
                if !states.len().is_multiple_of(state_bytes.max(1)) {
                    return None;
                }
                Letter::Batch { level, states }
            }
            DONE => {
                let (level, batches, looked_count) = (self.u32()?, self.u64()?, self.u64()?);
                let done = Done { batches, looked_count, is_broken: self.flag()? };
                Letter::Done { level, done }
            }
            TAKEN => Letter::Taken { batches: self.u64()? },
            HALT => Letter::Halt,
            FIGURES => Letter::Figures(self.figures()?),
            ENDED => {
                let (ended, figures) = (ended_of(self.byte()?)?, self.figures()?);
                let (is_broken, level) = (self.flag()?, self.u32()?);
                let broken = if is_broken { Some((level, self.take(state_bytes)?)) } else { None };
                Letter::Ended { ended, figures, broken, notes: self.all() }
            }
            ASK => {
                let (question, level) = (self.u32()?, self.u32()?);
                Letter::Ask { question, level, state: self.take(state_bytes)? }
            }
            ANSWER => {
                let question = self.u32()?;
                let state = if self.flag()? { Some(self.take(state_bytes)?) } else { None };
                Letter::Answer { question, state }
            }
            FINISH => Letter::Finish,
            _ => return None,
        })
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn all(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn flag(&mut self) -> Option<bool> {
        match self.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn figures(&mut self) -> Option<Figures> {
        let mut values = [0; Figures::COUNT];
        for value in &mut values {
            *value = self.u64()?;
        }
        Some(Figures::from_array(values))
    }
}

fn encode_figures(figures: Figures) -> Vec<u8> {
    figures.to_array().into_iter().flat_map(u64::to_le_bytes).collect()
}

fn ended_code(ended: Ended) -> u8 {
    match ended {
        Ended::Whole => 0,
        Ended::Broken => 1,
        Ended::Stopped => 2,
        Ended::StoreFull => 3,
    }
}

fn ended_of(code: u8) -> Option<Ended> {
    [Ended::Whole, Ended::Broken, Ended::Stopped, Ended::StoreFull].get(usize::from(code)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATE_BYTES: usize = 3;

    fn letters() -> Vec<Letter<'static>> {
        let figures = Figures { states_count: 7, depth: u64::MAX, ..Figures::default() };
        let done = Done { batches: 3, looked_count: 1 << 40, is_broken: true };
        let ended = Ended::StoreFull;
        vec![
            Letter::Batch { level: 9, states: &[1, 2, 3, 4, 5, 6] },
            Letter::Batch { level: 9, states: &[] },
            Letter::Done { level: u32::MAX, done },
            Letter::Taken { batches: u64::MAX },
            Letter::Halt,
            Letter::Figures(figures),
            Letter::Ended { ended, figures, broken: Some((4, &[7, 8, 9])), notes: &[1, 0] },
            Letter::Ended { ended: Ended::Whole, figures, broken: None, notes: &[] },
            Letter::Ask { question: 1, level: 2, state: &[3, 4, 5] },
            Letter::Answer { question: 1, state: Some(&[3, 4, 5]) },
            Letter::Answer { question: 1, state: None },
            Letter::Finish,
        ]
    }

    #[test]
    fn letters_come_back_as_they_were() {
        for letter in letters() {
            assert_eq!(Letter::decode(&letter.encode(), STATE_BYTES), Ok(letter));
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused() {
        bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
            if let Ok(letter) = Letter::decode(bytes, STATE_BYTES) {
                assert_eq!(Letter::decode(&letter.encode(), STATE_BYTES), Ok(letter));
            }
        });
        for letter in letters() {
            let bytes = letter.encode();
            assert_eq!(
                Letter::decode(&bytes[..bytes.len() - 1], STATE_BYTES).ok(),
                match letter {
                    Letter::Ended { ended, figures, broken, notes: &[1, 0] } => {
                        Some(Letter::Ended { ended, figures, broken, notes: &[1] })
                    }
                    _ => None,
                }
            );
        }
    }
}
