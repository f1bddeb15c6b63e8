//! What a sentinel sends: a UDP payload.
//!
//! | bytes | |
//! |---|---|
//! | 0–3 | `CSsv` |
//! | 4 | version, 2 |
//! | 5 | 0 |
//! | 6–7 | number of gateways, n |
//! | 8–15 | the plan's number |
//! | 16–23 | sequence number |
//! | 24–27 | the sentinel's number |
//! | 28–31 | interval between summaries, milliseconds |
//! | 32–39 | the sentinel's session |
//! | 40–47 | nonce of the challenge that this answers; 0: none |
//! | 48– | n times: gateway's index (2), opinion (1), loss in percent (1), round trip in microseconds (4) |
//! | last 16 | tag ([`siphash`](crate::siphash)) of all before |

use thiserror::Error;

use crate::siphash::{Key, TAG_BYTES};

const MAGIC: [u8; 4] = *b"CSsv";
pub(super) const VERSION: u8 = 2;
const HEADER_BYTES: usize = 48;
const VERDICT_BYTES: usize = 8;
const VERDICTS_COUNT_MAX: usize = 256;

/// Bytes of the longest summary.
pub const SUMMARY_BYTES_MAX: usize = HEADER_BYTES + VERDICTS_COUNT_MAX * VERDICT_BYTES + TAG_BYTES;

/// What a sentinel thinks of a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opinion {
    /// The gateway forwards.
    Works,
    /// The gateway does not forward.
    Failed,
    /// It loses large packets.
    MtuHole,
    /// The sentinel cannot tell.
    Unknown,
}

/// What a sentinel knows of a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// Index of the gateway in the plan.
    pub gateway: u16,
    /// What the sentinel thinks of it.
    pub opinion: Opinion,
    /// Probes lost lately, percent.
    pub loss_percent: u8,
    /// Round trip, microseconds.
    pub rtt_us: u32,
}

/// What a sentinel sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// The plan's number.
    pub plan_id: u64,
    /// The sentinel's number.
    pub sentinel: u32,
    /// Random number that the sentinel chose when it began.
    pub session: u64,
    /// Grows with each summary of the session.
    pub sequence: u64,
    /// Nonce of the host's [`Challenge`](super::Challenge) that this answers; 0 if it answers none.
    pub nonce: u64,
    /// Interval between summaries, milliseconds.
    pub interval_ms: u32,
    /// At most 256 gateways.
    pub verdicts: Vec<Verdict>,
}

/// Why bytes are no summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum MalformedSummaryError {
    /// It is something else.
    #[error("the message is not a summary of a sentinel")]
    NoSummary,
    /// The message is of another version.
    #[error("the message is of version {0}, not 2")]
    Version(u8),
    /// Its length is not what it says.
    #[error("the summary has {came} bytes and states {stated}")]
    Length {
        /// Bytes that arrived.
        came: usize,
        /// What the number of gateways makes.
        stated: usize,
    },
    /// Its tag is not its own.
    #[error("the summary's tag is wrong")]
    Forged,
    /// An opinion that does not exist.
    #[error("the summary has an opinion of number {0}")]
    Opinion(u8),
}

impl Summary {
    /// The summary with its tag. Of more than 256 gateways the first 256 are sent.
    #[must_use]
    pub fn encode(&self, key: &Key) -> Vec<u8> {
        let verdicts = &self.verdicts[..self.verdicts.len().min(VERDICTS_COUNT_MAX)];
        let mut bytes =
            Vec::with_capacity(HEADER_BYTES + verdicts.len() * VERDICT_BYTES + TAG_BYTES);
        bytes.extend(MAGIC);
        bytes.extend([VERSION, 0]);
        bytes.extend((verdicts.len() as u16).to_be_bytes());
        bytes.extend(self.plan_id.to_be_bytes());
        bytes.extend(self.sequence.to_be_bytes());
        bytes.extend(self.sentinel.to_be_bytes());
        bytes.extend(self.interval_ms.to_be_bytes());
        bytes.extend(self.session.to_be_bytes());
        bytes.extend(self.nonce.to_be_bytes());
        for verdict in verdicts {
            let opinion = match verdict.opinion {
                Opinion::Works => 0,
                Opinion::Failed => 1,
                Opinion::MtuHole => 2,
                Opinion::Unknown => 3,
            };
            bytes.extend(verdict.gateway.to_be_bytes());
            bytes.extend([opinion, verdict.loss_percent]);
            bytes.extend(verdict.rtt_us.to_be_bytes());
        }
        let tag = key.tag(&bytes);
        bytes.extend(tag);
        bytes
    }

    /// Reads a summary whose tag is right.
    ///
    /// # Errors
    /// It is none.
    pub fn parse(bytes: &[u8], key: &Key) -> Result<Self, MalformedSummaryError> {
        use MalformedSummaryError as Malformed;
        let head = bytes.first_chunk::<HEADER_BYTES>().ok_or(Malformed::NoSummary)?;
        if head[..4] != MAGIC {
            return Err(Malformed::NoSummary);
        }
        if head[4] != VERSION {
            return Err(Malformed::Version(head[4]));
        }
        let count = usize::from(u16::from_be_bytes([head[6], head[7]]));
        let stated = HEADER_BYTES + count * VERDICT_BYTES + TAG_BYTES;
        if bytes.len() != stated || count > VERDICTS_COUNT_MAX {
            return Err(Malformed::Length { came: bytes.len(), stated });
        }
        let (message, tag) = bytes.split_last_chunk::<TAG_BYTES>().ok_or(Malformed::NoSummary)?;
        if !key.verifies(message, tag) {
            return Err(Malformed::Forged);
        }
        let wide =
            |at: usize| head[at..].first_chunk().map_or(0, |eight| u64::from_be_bytes(*eight));
        let half = |at: usize| head[at..].first_chunk().map_or(0, |four| u32::from_be_bytes(*four));
        let verdicts = message[HEADER_BYTES..].as_chunks::<VERDICT_BYTES>().0.iter().map(verdict);
        Ok(Self {
            plan_id: wide(8),
            sequence: wide(16),
            sentinel: half(24),
            interval_ms: half(28),
            session: wide(32),
            nonce: wide(40),
            verdicts: verdicts.collect::<Result<_, _>>()?,
        })
    }
}

fn verdict(bytes: &[u8; VERDICT_BYTES]) -> Result<Verdict, MalformedSummaryError> {
    let [g0, g1, opinion, loss_percent, r0, r1, r2, r3] = *bytes;
    let opinion = match opinion {
        0 => Opinion::Works,
        1 => Opinion::Failed,
        2 => Opinion::MtuHole,
        3 => Opinion::Unknown,
        number => return Err(MalformedSummaryError::Opinion(number)),
    };
    let gateway = u16::from_be_bytes([g0, g1]);
    Ok(Verdict { gateway, opinion, loss_percent, rtt_us: u32::from_be_bytes([r0, r1, r2, r3]) })
}
