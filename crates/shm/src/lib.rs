//! The second unsafe fence: memory shared with processes that may be broken or hostile.
//!
//! * [`Region`]: a mapping that cannot shrink or grow under its users, so that no access faults;
//! * [`View`]: a part of a region as atomics, and [`Buffers`]: a part of it as packet buffers. Nobody
//!   ever gets a Rust reference to plain bytes of a region: another process may write them at any
//!   time, so they are only copied in and out;
//! * [`Bell`]: an eventfd to wake a sleeper with;
//! * [`Socket`]: messages with descriptors over a UNIX socket.
//!
//! Sizes and offsets that come from elsewhere are checked here, once, before a view exists.
#![expect(unsafe_code, reason = "a fence: mappings and views into them live here")]

mod bell;
mod buffers;
pub mod frames;
mod region;
mod socket;
pub mod transfer;
mod view;

pub use bell::Bell;
pub use buffers::{Buffer, Buffers, Bytes};
pub use region::{REGION_BYTES_MAX, REGION_BYTES_MULTIPLE, Region, RegionError};
pub use socket::{FDS_MAX, Listener, MESSAGE_BYTES_MAX, Message, Socket, Waiting, is_own_file};
pub use view::{Atomic, OutsideRegion, View};
