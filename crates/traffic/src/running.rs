//! The running part of a test as two state machines, one for each end: no sockets, no threads, no
//! clock.
//!
//! A machine is told what its engine reports (`on_event`), what the other end says (`on_message`) and
//! what time it is (`on_time`, at least every [`TURN`]); it answers with actions (`poll`), which
//! `client::trial` and `server::trial` carry out in that order. An [`Instant`] is a number here: it
//! is passed in and never asked for. So the tests run both ends against each other in virtual time,
//! over a path with any delay.
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

/// How often an end looks at its engine, at the other end and at the clock.
pub(crate) const TURN: Duration = Duration::from_millis(20);

/// What a receiver may still find in its sockets after the other end has said that it is done.
const DRAIN_TCP: Duration = Duration::from_secs(3);
const DRAIN_UDP: Duration = Duration::from_millis(200);

fn drain_of(spec: &TestSpec) -> Duration {
    if spec.protocol == Protocol::Udp { DRAIN_UDP } else { DRAIN_TCP }
}
