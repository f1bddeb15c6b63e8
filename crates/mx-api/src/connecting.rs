//! How endpoints connect: the one that connects sends a note with the filter that it expects, the other answers whether
//! that is its own. Notes travel beside the messages, 128 bits each:
//!
//! | bits | of the first 64 | of the others |
//! |---|---|---|
//! | 56 to 63 | 1: a question, 2: an answer | 0 |
//! | 0 to 31 | the number of the question | the filter; 0 or the status code |

use clearstream_fi::engine::PeerId;

use super::endpoint::State;
use crate::failing::{Code, StatusCode};
use crate::requests::Ended;

const QUESTION: u64 = 1;
const ANSWER: u64 = 2;
const KIND_SHIFT: u32 = 56;

/// A question that waits for its answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Question {
    pub(crate) request: u64,
    peer: PeerId,
    number: u32,
}

/// A note's kind and number.
fn bits(kind: u64, number: u32) -> u64 {
    kind << KIND_SHIFT | u64::from(number)
}

/// What a note is; none where it is none of these.
fn parse(bits: u64) -> Option<(u64, u32)> {
    let (kind, number) = (bits >> KIND_SHIFT, bits as u32);
    ((kind == QUESTION || kind == ANSWER) && bits == self::bits(kind, number))
        .then_some((kind, number))
}

impl State {
    /// Asks a peer; `request` ends with its answer, or when the peer fails.
    ///
    /// # Errors
    /// Too much is under way.
    pub(crate) fn ask(&mut self, request: u64, peer: PeerId, filter: u32) -> Result<(), Code> {
        if self.engine.failure(peer).is_some() {
            self.engine.reconnect(peer);
        }
        self.questions_count = self.questions_count.wrapping_add(1);
        let number = self.questions_count;
        let note = self.engine.send_note(peer, bits(QUESTION, number), filter.into());
        note.map_err(|_error| Code::NoResources)?;
        self.questions.push(Question { request, peer, number });
        Ok(())
    }

    /// Answers questions, and ends the requests whose questions are answered or will not be.
    pub(crate) fn settle_questions(&mut self) {
        while let Some((peer, bits, data)) = self.engine.next_note() {
            match parse(bits) {
                Some((QUESTION, number)) => self.answer(peer, number, data),
                Some((_, number)) => self.end_question(peer, number, data),
                None => {}
            }
        }
        let mut index = 0;
        while let Some(&question) = self.questions.get(index) {
            match self.engine.failure(question.peer) {
                Some(failure) => {
                    self.questions.swap_remove(index);
                    let code = StatusCode::of_failure(failure);
                    self.requests.end_without_message(question.request, code);
                }
                None => index += 1,
            }
        }
    }

    fn answer(&mut self, peer: PeerId, number: u32, filter: u64) {
        let is_good = filter == u64::from(self.own.filter);
        let code = if is_good { StatusCode::Success } else { StatusCode::BadKey };
        if self.know(peer).is_ok() {
            // An answer that cannot leave is missed: whoever asked has its own deadline.
            self.engine.send_note(peer, bits(ANSWER, number), code as u64).ok();
        }
    }

    fn end_question(&mut self, peer: PeerId, number: u32, data: u64) {
        let is_it = |known: &Question| known.peer == peer && known.number == number;
        let Some(index) = self.questions.iter().position(is_it) else { return };
        let question = self.questions.swap_remove(index);
        let code = if data == 0 { StatusCode::Success } else { StatusCode::BadKey };
        let source = self.address_of(peer);
        let ended = Ended { code, source, length_bytes: 0, received_bytes: 0 };
        self.requests.end(question.request, None, ended);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_what_they_were_or_nothing() {
        for kind in [QUESTION, ANSWER] {
            assert_eq!(parse(bits(kind, u32::MAX)), Some((kind, u32::MAX)));
            assert_eq!(parse(bits(kind, 7) | 1 << 40), None);
        }
        assert_eq!(parse(0), None);
        assert_eq!(parse(bits(3, 7)), None);
    }
}
