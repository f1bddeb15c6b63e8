//! The running part of a test as two state machines, one for each end: no sockets, no threads, no
//! clock.
//!
//! A machine takes the events of its engine (`on_event`), the messages of the other end
//! (`on_message`) and the time (`on_time`, at least every [`TURN`]). It answers with actions
//! (`poll`), which `client::trial` and `server::trial` carry out in that order. An [`Instant`] is
//! only a number here: the machines never read the clock. The tests can therefore run both ends
//! against each other in virtual time, over a path with any delay.
//!
//! [`Instant`]: std::time::Instant

mod far;
mod near;
#[cfg(test)]
mod tests;

use std::time::Duration;

use results::{Protocol, TestSpec};

pub(crate) use far::{FarAction, FarEnding, FarRun, MARGIN};
pub(crate) use near::{NearAction, NearRun};

/// How often an end checks its engine, the other end and the clock.
pub(crate) const TURN: Duration = Duration::from_millis(20);

/// How long a receiver may keep reading its sockets after the other end has reported that it is
/// done.
const DRAIN_TCP: Duration = Duration::from_secs(3);
const DRAIN_UDP: Duration = Duration::from_millis(200);

fn drain_of(spec: &TestSpec) -> Duration {
    if spec.protocol == Protocol::Udp { DRAIN_UDP } else { DRAIN_TCP }
}
