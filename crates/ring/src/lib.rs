//! Packet rings in shared memory: netmap's slots, ptnet's communication status block (CSB), and a
//! wake-up protocol that lets both sides sleep.
//!
//! A ring is a circle of [slots](Slot) that name buffers. Of its slots the *user* (an application, a
//! guest) holds one run and the *owner* (the switch, a device, the other end of a pipe) the rest.
//! Each side hands slots over by moving a cursor that it alone writes, and each side has a flag that
//! says "wake me". A slot of a transmit ring comes to the owner full and returns empty; on a receive
//! ring it is the other way round; the cursors are the same.
//!
//! * [`memory`]: the shared words, and in [`Word`] and [`Fence`] every memory order with its reason;
//! * [`End`]: one side of one ring: how far it may go, handing over, arming and answering;
//! * [`Layout`]: where rings, CSB and buffers lie in a region, written by its maker and checked by
//!   everybody else;
//! * [`Sender`] and [`Receiver`]: `reserve` and `publish`, `peek` and `release`, blocking and polling.
//!
//! ```
//! use ring::{Bells, Geometry, Layout, Receiver, Seat, Sender};
//!
//! // A pipe within one process: one ring, a sender at its user seat, a receiver at its owner's.
//! let geometry = Geometry { tx_rings: 1, rx_rings: 0, slots: 256, buffer_bytes: 2048, extra_buffers: 0 };
//! let region = shm::Region::private(geometry.region_bytes()?)?;
//! let layout = Layout::format(&region, &geometry)?;
//! let (near, far) = Bells::pair()?;
//! let seat = |seat| layout.end(&region, 0, seat, 1);
//! let mut sender = Sender::join(seat(Seat::User)?, layout.buffers(&region)?, near);
//! let mut receiver = Receiver::join(seat(Seat::TxOwner)?, layout.buffers(&region)?, far);
//!
//! assert_eq!(sender.reserve(1)?, 255);
//! assert!(sender.put(0, b"a frame"));
//! sender.publish(1)?;
//!
//! assert_eq!(receiver.peek(1)?, 1);
//! let mut frame = [0; 7];
//! assert_eq!(receiver.copy(0, &mut frame), Some(7));
//! assert_eq!(&frame, b"a frame");
//! receiver.release(1)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod channel;
mod eagerness;
mod end;
mod layout;
mod mapped;
pub mod memory;
mod slot;

pub use channel::{Bells, Channel, Patience, Receiver, Receives, Sender, Sends, WaitError, swap};
pub use eagerness::Eagerness;
pub use end::{End, Seat, Violation};
pub use layout::{
    BUFFER_BYTES_DEFAULT, BUFFER_BYTES_MAX, Direction, FIRST_BUFFER, Geometry, Layout, LayoutError,
    RINGS_MAX, RingPlace, SLOTS_MAX,
};
pub use mapped::Mapped;

/// Where things lie in a region, for programs in other languages.
pub mod places {
    pub use crate::layout::{
        CSB_ENTRY_BYTES, OWNER_CSB_OFFSET, RING_HEADER_BYTES, SLOT_BYTES, USER_CSB_OFFSET, VERSION,
    };
}

pub use memory::{Fence, Shared, Word};
pub use slot::{Slot, SlotFlags};
