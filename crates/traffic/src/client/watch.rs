//! Periodic readings of the far host's counters.

use std::time::{Duration, Instant};

use super::{ANSWER_TIMEOUT, ClientError, Session};
use crate::control::{ALIVE_EVERY, ClientMessage, CounterReading, ServerMessage};

/// A far host that is being watched; dropping it ends the watch.
#[derive(Debug)]
pub struct Watch {
    session: Session,
    interval: Duration,
    heard: Instant,
    spoke: Instant,
}

impl Watch {
    pub(super) fn begin(
        mut session: Session,
        interfaces: &[String],
        interval: Duration,
    ) -> Result<Self, ClientError> {
        let interval_s = interval.as_secs_f64();
        let interfaces = interfaces.to_vec();
        session.say(&ClientMessage::Watch { interfaces, interval_s })?;
        let now = Instant::now();
        Ok(Self { session, interval, heard: now, spoke: now })
    }

    /// The next reading; `None` if none arrives within `timeout`.
    ///
    /// # Errors
    /// The far host refuses (for example, it has no such interface), has closed the connection, or
    /// has fallen silent.
    pub fn next_reading(
        &mut self,
        timeout: Duration,
    ) -> Result<Option<CounterReading>, ClientError> {
        let deadline = Instant::now() + timeout;
        loop {
            if self.spoke.elapsed() > ALIVE_EVERY {
                self.spoke = Instant::now();
                self.session.say(&ClientMessage::Alive)?;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.session.hear(left.min(ALIVE_EVERY))? {
                Some(ServerMessage::Counters(reading)) => {
                    self.heard = Instant::now();
                    return Ok(Some(reading));
                }
                Some(ServerMessage::Refused(refusal)) => {
                    return Err(ClientError::refused(&self.session.target, refusal));
                }
                Some(_) => {}
                None if self.heard.elapsed() > self.interval + ANSWER_TIMEOUT => {
                    return Err(self.session.silent());
                }
                None if left.is_zero() => return Ok(None),
                None => {}
            }
        }
    }

    /// The far host's address.
    #[must_use]
    pub fn address(&self) -> std::net::SocketAddr {
        self.session.address()
    }

    /// Facts about the far host.
    #[must_use]
    pub fn host(&self) -> &results::HostFacts {
        self.session.host()
    }
}
