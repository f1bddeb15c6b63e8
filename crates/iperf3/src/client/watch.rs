//! The end of a client's test: by time, by amount, or by silence.

use std::time::Duration;

use results::TestLimit;

use crate::account::{Account, Setup};
use crate::options::ClientOptions;
use crate::run::FOREVER_S;

/// How long past its time a test may run before it is ended from here.
pub(super) const OVERTIME: Duration = Duration::from_millis(500);

/// When a client's test is over.
#[derive(Debug)]
pub(super) struct Watch {
    /// What the engine is told.
    pub(super) limit: TestLimit,
    /// Bytes or packets that this end counts itself, because somebody else sends them too.
    pub(super) amount: Option<Amount>,
    /// Longest time, start and overtime included.
    pub(super) longest: Duration,
    /// Longest time without a byte.
    pub(super) silence: Duration,
    pub(super) receives: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Amount {
    Bytes(u64),
    Blocks { count: u64, block_bytes: u64 },
}

impl Watch {
    pub(super) fn new(setup: &Setup, client: &ClientOptions, receive_timeout_ms: u64) -> Self {
        let block_bytes = u64::try_from(setup.asked.block_bytes).unwrap_or(1).max(1);
        let (bytes, count) = (client.total_bytes, client.total_blocks);
        let seconds = match client.duration_s {
            0 => FOREVER_S,
            seconds => f64::from(seconds),
        };
        let (limit, amount) = match (bytes, count, setup.receives()) {
            (0, 0, _) => (TestLimit::DurationS(seconds), None),
            (0, count, false) => (TestLimit::TotalBlocks(count), None),
            (bytes, _, false) => (TestLimit::TotalBytes(bytes), None),
            (0, count, true) => {
                (TestLimit::DurationS(FOREVER_S), Some(Amount::Blocks { count, block_bytes }))
            }
            (bytes, _, true) => (TestLimit::DurationS(FOREVER_S), Some(Amount::Bytes(bytes))),
        };
        let timed = bytes == 0 && count == 0 && client.duration_s > 0;
        let test = Duration::from_secs(u64::from(client.duration_s) + u64::from(client.omit_s));
        Self {
            limit,
            amount,
            longest: if timed { test + OVERTIME } else { Duration::MAX },
            silence: Duration::from_millis(receive_timeout_ms),
            receives: setup.receives(),
        }
    }

    pub(super) fn is_reached(&self, account: &Account) -> bool {
        let reached = |(bytes, packets): (u64, i64)| match self.amount {
            None => false,
            Some(Amount::Bytes(limit)) => bytes >= limit,
            Some(Amount::Blocks { count, block_bytes }) => {
                let packets = u64::try_from(packets).unwrap_or(0);
                packets >= count || (packets == 0 && bytes / block_bytes >= count)
            }
        };
        reached(account.received()) || reached(account.sent())
    }
}
