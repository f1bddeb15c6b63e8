//! Guests with stock virtio-net drivers, as an end: the back end of vhost-user (QEMU's `docs/interop/vhost-user.rst`,
//! virtio 1.2 section 5.1). The hypervisor shares the guest's memory; frames are copied between that and the
//! switch's ring, each once.
//!
//! The hypervisor and the guest are not trusted. A message that is none ends the connection; a queue that breaks
//! virtio's rules stops all queues until the guest resets its device; both are said ([`Guest::trouble`]).

mod connection;
mod frames;
mod guest;
mod memory;
pub mod message;
mod protocol;
mod vring;

pub use connection::{Connection, ConnectionError, Listener};
pub use frames::{FromGuest, ToGuest};
pub use guest::{Guest, GuestState};
