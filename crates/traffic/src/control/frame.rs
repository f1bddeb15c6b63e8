//! Frames: a length of four bytes, big-endian, then that many bytes of JSON.

use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

const LENGTH_BYTES: usize = 4;

/// Why a frame is invalid.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The announced length exceeds the limit; nothing was allocated for it.
    #[error("a message of {bytes} bytes is announced, {max_bytes} are allowed")]
    TooLong {
        /// The announced length.
        bytes: usize,
        /// The limit of this end.
        max_bytes: usize,
    },
    /// Not JSON, or not a message of this protocol.
    #[error("not a message of this protocol ({0})")]
    Malformed(String),
}

/// Received bytes, split into frames. Holds at most one frame and one read beyond it.
#[derive(Debug)]
pub struct FrameBuffer {
    bytes: Vec<u8>,
    /// How much of `bytes` was returned as messages: moving the rest after each message would cost
    /// quadratic time.
    taken: usize,
    frame_bytes_max: usize,
}

impl FrameBuffer {
    /// Creates an empty buffer that accepts frames of at most `frame_bytes_max` bytes of JSON.
    #[must_use]
    pub fn new(frame_bytes_max: usize) -> Self {
        Self { bytes: Vec::new(), taken: 0, frame_bytes_max }
    }

    /// From now on accepts frames of at most this.
    pub fn set_frame_bytes_max(&mut self, frame_bytes_max: usize) {
        self.frame_bytes_max = frame_bytes_max;
    }

    /// Appends received bytes.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.bytes.drain(..std::mem::take(&mut self.taken));
        self.bytes.extend_from_slice(bytes);
    }

    /// Whether a frame has arrived in part.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.bytes.len() > self.taken
    }

    /// Removes and returns the next message; `None` until it has arrived completely.
    ///
    /// # Errors
    /// The frame is too long or not a message; the connection is no longer usable.
    pub fn next_message<M: DeserializeOwned>(&mut self) -> Result<Option<M>, FrameError> {
        let bytes = &self.bytes[self.taken..];
        let Some(length) = bytes.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        let length_bytes = u32::from_be_bytes(*length) as usize;
        if length_bytes > self.frame_bytes_max {
            let max_bytes = self.frame_bytes_max;
            return Err(FrameError::TooLong { bytes: length_bytes, max_bytes });
        }
        let end = LENGTH_BYTES + length_bytes;
        let Some(json) = bytes.get(LENGTH_BYTES..end) else { return Ok(None) };
        // serde_json itself rejects nesting beyond 128 levels.
        let message = serde_json::from_slice(json)
            .map_err(|error| FrameError::Malformed(error.to_string()))?;
        self.taken += end;
        Ok(Some(message))
    }
}

/// Encodes `message` as a frame.
///
/// # Errors
/// The message cannot be serialised, or exceeds 4 GiB.
pub fn encode(message: &impl Serialize) -> Result<Vec<u8>, FrameError> {
    let mut frame = vec![0; LENGTH_BYTES];
    serde_json::to_writer(&mut frame, message)
        .map_err(|error| FrameError::Malformed(error.to_string()))?;
    let length_bytes = frame.len() - LENGTH_BYTES;
    let length = u32::try_from(length_bytes).map_err(|_beyond_four_gib| FrameError::TooLong {
        bytes: length_bytes,
        max_bytes: u32::MAX as usize,
    })?;
    frame[..LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
    Ok(frame)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{CLIENT_FRAME_BYTES_MAX, ClientMessage, ServerMessage};

    #[test]
    fn arbitrary_bytes_never_panic_nor_grow_beyond_what_came() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let mut buffer = FrameBuffer::new(CLIENT_FRAME_BYTES_MAX);
            for piece in bytes.chunks(7) {
                buffer.extend(piece);
                assert!(buffer.bytes.len() <= bytes.len());
                if buffer.next_message::<ClientMessage>().is_err() {
                    return;
                }
            }
        });
    }

    #[test]
    fn arbitrary_json_in_a_good_frame_never_panics() {
        bolero::check!().for_each(|json: &[u8]| {
            let mut buffer = FrameBuffer::new(CLIENT_FRAME_BYTES_MAX);
            buffer.extend(&u32::try_from(json.len()).expect("short").to_be_bytes());
            buffer.extend(json);
            if let Ok(Some(message)) = buffer.next_message::<ServerMessage>() {
                let again = encode(&message).expect("what was read can be written");
                buffer.extend(&again);
                buffer.next_message::<ServerMessage>().expect("and read again").expect("whole");
            }
        });
    }

    #[test]
    fn an_absurd_length_is_refused_at_once() {
        let mut buffer = FrameBuffer::new(CLIENT_FRAME_BYTES_MAX);
        buffer.extend(&(2_u32 << 30).to_be_bytes());
        let error = buffer.next_message::<ClientMessage>().expect_err("2 GiB");
        assert!(matches!(error, FrameError::TooLong { bytes: 2_147_483_648, .. }), "{error}");
        assert!(buffer.bytes.capacity() < 1024);
    }

    #[test]
    fn deep_nesting_is_refused() {
        let json = "[".repeat(60_000);
        let mut buffer = FrameBuffer::new(CLIENT_FRAME_BYTES_MAX);
        buffer.extend(&u32::try_from(json.len()).expect("short").to_be_bytes());
        buffer.extend(json.as_bytes());
        assert!(buffer.next_message::<ClientMessage>().is_err());
    }

    #[test]
    fn frames_survive_any_cut() {
        let messages = [ClientMessage::Go, ClientMessage::Alive, ClientMessage::Bye];
        let bytes: Vec<u8> =
            messages.iter().flat_map(|message| encode(message).expect("encodes")).collect();
        for cut in 0..bytes.len() {
            let mut buffer = FrameBuffer::new(CLIENT_FRAME_BYTES_MAX);
            let mut seen = Vec::new();
            for piece in [&bytes[..cut], &bytes[cut..]] {
                buffer.extend(piece);
                while let Some(message) = buffer.next_message::<ClientMessage>().expect("good") {
                    seen.push(message);
                }
            }
            assert_eq!(seen, messages);
            assert!(!buffer.is_partial());
        }
    }
}
