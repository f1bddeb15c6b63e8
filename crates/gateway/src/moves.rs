//! Flows moved off gateways that have failed, and back: a few groups and plain routes replaced, however many routes
//! lead over them.

use netlink::{Message, Mode, create};
use route_plan::{Interfaces, Plan, Role, WantedError, wanted};
use sys::netlink_socket::{NetlinkError, NetlinkSocket};
use thiserror::Error;

/// Why flows are not moved.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MoveError {
    /// The host has not what the plan names.
    #[error(transparent)]
    Wanted(#[from] WantedError),
    /// The kernel does not answer.
    #[error("cannot move flows (rtnetlink)")]
    Netlink(#[from] NetlinkError),
    /// The kernel refuses some; the others are moved.
    #[error("the kernel refuses {refused} of {requests} changes that move flows: {first}")]
    Refused {
        /// Number of refused changes.
        refused: usize,
        /// Number of requested changes.
        requests: usize,
        /// The first refusal.
        first: String,
    },
}

/// Moves the flows of a host on which the plan is applied, from one state of its gateways to another. Returns the
/// number of objects replaced. Nothing is journalled: a revert knows them by the plan's protocol. With all gateways
/// down everything stays as it was planned.
///
/// # Errors
/// [`MoveError`].
pub fn move_flows(
    plan: &Plan,
    role: Role<'_>,
    interfaces: &Interfaces,
    socket: &mut NetlinkSocket,
    (before, after): (&[bool], &[bool]),
) -> Result<usize, MoveError> {
    let old = wanted(plan, role, interfaces, before)?;
    let new = wanted(plan, role, interfaces, after)?;
    let mut messages: Vec<Message> = Vec::new();
    // Both states have the same objects in the same order; only members and paths differ.
    for (old, new) in old.nexthops.iter().zip(&new.nexthops).filter(|(old, new)| old != new) {
        debug_assert_eq!(old.id, new.id);
        messages.extend(create(new, Mode::Replace));
    }
    for (_, new) in old.routes.iter().zip(&new.routes).filter(|(old, new)| old != new) {
        messages.extend(create(new, Mode::Replace));
    }
    replace(socket, &messages)
}

/// Sends messages that move flows; returns how many.
pub(crate) fn replace(
    socket: &mut NetlinkSocket,
    messages: &[Message],
) -> Result<usize, MoveError> {
    let outcomes = socket.batch(messages)?;
    let mut refusals = outcomes.iter().filter_map(|outcome| outcome.as_ref().err());
    match refusals.next() {
        None => Ok(messages.len()),
        Some(first) => Err(MoveError::Refused {
            refused: 1 + refusals.count(),
            requests: messages.len(),
            first: first.to_string(),
        }),
    }
}
