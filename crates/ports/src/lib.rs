//! What frames come from and go to outside the switch, behind one interface: TAP devices, queues of network
//! devices by `AF_XDP`, guests by vhost-user, rings at a client's seat.
//!
//! * [`Source`] and [`Sink`]: the two halves of an end, and [`carry()`], the one loop between them;
//! * [`slots`]: what ends have in common whose packets lie in slots: rings and AF_XDP sockets;
//! * [`tap`], [`xdp`], [`vm`], [`rings`]: the ends;
//! * [`middle`] and [`Delayed`]: what can be put between them.
#![forbid(unsafe_code)]

mod carry;
mod delayed;
pub mod end;
pub mod middle;
pub mod rings;
pub mod slots;
pub mod tap;
pub mod vm;
pub mod xdp;

pub use carry::{Turn, carry};
pub use delayed::{Delayed, LineReport};
pub use end::{EndError, Moved, Sink, Source};
pub use rings::{FromRing, ToRing};
pub use slots::{FromSlots, ToSlots};
