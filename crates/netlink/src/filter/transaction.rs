//! Changes of packet filters that the kernel makes at one moment, and the number by which it knows that none came between.

use super::{HEADER_BYTES, SUBSYSTEM, big_endian, kind_of};
use crate::attribute::read;
use crate::encoder::Encoder;
use crate::message::Message;
use crate::object::{MalformedError, split};

/// `NFNL_MSG_BATCH_BEGIN` and `…_END`.
const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;
const NFNL_BATCH_GENID: u16 = 1;
const GET_GENERATION: u8 = 16;
const NFTA_GEN_ID: u16 = 1;

/// Asks for the number of the present ruleset, which every change of it counts up.
#[must_use]
pub fn generation_question() -> Message {
    Message { kind: kind_of(GET_GENERATION), flags: 0, body: vec![0; HEADER_BYTES] }
}

/// The number of the ruleset, from the answer to [`generation_question`].
///
/// # Errors
/// The answer has no number.
pub fn generation_of(body: &[u8]) -> Result<u32, MalformedError> {
    const NAME: &str = "filter generation";
    let (_, attributes) = split::<HEADER_BYTES>(NAME, body)?;
    let mut generation = None;
    read(NAME, attributes, |attribute| {
        if attribute.kind() == NFTA_GEN_ID {
            generation = Some(big_endian(&attribute, NAME)?);
        }
        Ok(())
    })?;
    generation.ok_or(MalformedError::Missing { object: NAME, kind: NFTA_GEN_ID })
}

/// The requests between the marks of a transaction: the kernel makes all of them at one moment or none, and none if
/// the ruleset is no longer the one with this number.
#[must_use]
pub fn transaction(generation: u32, requests: Vec<Message>) -> Vec<Message> {
    let mark = |kind, generation: Option<u32>| {
        let mut encoder = Encoder::default();
        encoder.fixed(&[0, 0, 0, SUBSYSTEM]);
        if let Some(generation) = generation {
            encoder.attribute(NFNL_BATCH_GENID, &generation.to_be_bytes());
        }
        Message { kind, flags: 0, body: encoder.finish().unwrap_or_default() }
    };
    let mut messages = vec![mark(BATCH_BEGIN, Some(generation))];
    messages.extend(requests);
    messages.push(mark(BATCH_END, None));
    messages
}
