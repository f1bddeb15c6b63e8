//! What a host asks a sentinel whose session it does not know: a UDP payload.
//!
//! | bytes | |
//! |---|---|
//! | 0–3 | `CSsq` |
//! | 4 | version, 2 |
//! | 5–7 | 0 |
//! | 8–15 | the plan's number |
//! | 16–23 | nonce |
//! | 24–27 | the sentinel's number |
//! | 28–31 | 0 |
//! | 32–47 | tag ([`siphash`](crate::siphash)) of all before |

use super::summary::{MalformedSummaryError, VERSION};
use crate::siphash::{Key, TAG_BYTES};

const MAGIC: [u8; 4] = *b"CSsq";
const HEADER_BYTES: usize = 32;

/// Bytes of a challenge.
pub const CHALLENGE_BYTES: usize = HEADER_BYTES + TAG_BYTES;

/// Has a sentinel prove that it is running now: its next summary to the host repeats the nonce.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Challenge {
    /// The plan's number.
    pub plan_id: u64,
    /// Number of the sentinel that is asked.
    pub sentinel: u32,
    /// Random, never 0.
    pub nonce: u64,
}

impl Challenge {
    /// The challenge with its tag.
    #[must_use]
    pub fn encode(&self, key: &Key) -> [u8; CHALLENGE_BYTES] {
        let mut bytes = [0; CHALLENGE_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[8..16].copy_from_slice(&self.plan_id.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.nonce.to_be_bytes());
        bytes[24..28].copy_from_slice(&self.sentinel.to_be_bytes());
        let tag = key.tag(&bytes[..HEADER_BYTES]);
        bytes[HEADER_BYTES..].copy_from_slice(&tag);
        bytes
    }

    /// Reads a challenge whose tag is right.
    ///
    /// # Errors
    /// It is none.
    pub fn parse(bytes: &[u8], key: &Key) -> Result<Self, MalformedSummaryError> {
        use MalformedSummaryError as Malformed;
        let whole: &[u8; CHALLENGE_BYTES] =
            bytes.try_into().map_err(|_length| Malformed::NoSummary)?;
        if whole[..4] != MAGIC {
            return Err(Malformed::NoSummary);
        }
        if whole[4] != VERSION {
            return Err(Malformed::Version(whole[4]));
        }
        let (message, tag) = whole.split_last_chunk::<TAG_BYTES>().ok_or(Malformed::NoSummary)?;
        if !key.verifies(message, tag) {
            return Err(Malformed::Forged);
        }
        let wide =
            |at: usize| message[at..].first_chunk().map_or(0, |eight| u64::from_be_bytes(*eight));
        let sentinel = message[24..].first_chunk().map_or(0, |four| u32::from_be_bytes(*four));
        Ok(Self { plan_id: wide(8), nonce: wide(16), sentinel })
    }
}
