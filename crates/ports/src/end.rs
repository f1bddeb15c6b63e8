//! What everything that carries frames can do: a [`Source`] gives packets, a [`Sink`] takes them.
//!
//! A packet is copied once between any two ends. A source whose packets lie in memory shows their parts, and
//! the sink copies them from there ([`Sink::put`]). A source whose packets are in the kernel has them written
//! straight into the sink's space ([`Sink::fill`]). Which of the two it is the source knows, so it decides
//! ([`Source::pass`]). All of this is generic: each pair of ends has a loop of its own, without indirect calls.

use std::io;
use std::os::fd::BorrowedFd;

use ring::Violation;
use shm::{Buffer, Bytes};
use sys::SyscallError;
use thiserror::Error;

/// Longest packet: virtio-net header, Ethernet header with two VLAN tags, 64 KiB.
pub const PACKET_BYTES_MAX: usize = 10 + 22 + 65_535;

/// Why an end carries no more.
#[derive(Debug, Error)]
pub enum EndError {
    /// A system call on the device failed: it was removed, or went down.
    #[error("the device failed: {0}")]
    Device(#[from] io::Error),
    /// The other side of a ring broke the protocol.
    #[error(transparent)]
    Ring(#[from] Violation),
    /// The bell of a ring is broken.
    #[error(transparent)]
    Bell(#[from] SyscallError),
}

/// What became of the next packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moved {
    /// The sink has it.
    Given,
    /// The sink never takes such a packet, or the source cannot read it: it is gone.
    Refused,
    /// A middle part let it go on purpose.
    Dropped,
    /// The sink has no room now: the packet stays with the source.
    NoRoom,
    /// There is none.
    Nothing,
}

/// A packet's parts where they lie, in order.
pub trait Parts<'a>: Iterator<Item = Bytes<'a>> + Clone {}

impl<'a, P: Iterator<Item = Bytes<'a>> + Clone> Parts<'a> for P {}

/// Where packets come from.
pub trait Source {
    /// Learns what has arrived by now.
    ///
    /// # Errors
    /// The end has closed.
    fn look(&mut self) -> Result<(), EndError> {
        Ok(())
    }

    /// Moves the next packet to `to`.
    ///
    /// # Errors
    /// One of the two ends has closed.
    fn pass(&mut self, to: &mut impl Sink) -> Result<Moved, EndError>;

    /// Gives back what the packets that have passed lay in.
    ///
    /// # Errors
    /// The end has closed.
    fn release(&mut self) -> Result<(), EndError> {
        Ok(())
    }

    /// Asks to be woken by [`fds`](Self::fds) when a packet comes. False when one has just come: then do not
    /// sleep. Either way, call [`disarm`](Self::disarm) when awake.
    ///
    /// # Errors
    /// The end has closed.
    fn arm(&mut self) -> Result<bool, EndError> {
        Ok(true)
    }

    /// No longer asks to be woken.
    ///
    /// # Errors
    /// The end has closed.
    fn disarm(&mut self) -> Result<(), EndError> {
        Ok(())
    }

    /// Readable when a packet comes.
    fn fds(&self) -> Vec<BorrowedFd<'_>>;
}

/// An end that frames are written to.
pub trait Sink {
    /// Takes a packet of `bytes` in all that lies elsewhere.
    ///
    /// # Errors
    /// The end has closed.
    fn put<'a>(&mut self, bytes: usize, parts: impl Parts<'a>) -> Result<Moved, EndError>;

    /// Has `from` write its next packet into this end's space.
    ///
    /// # Errors
    /// One of the two ends has closed.
    fn fill(&mut self, from: &mut impl Fill) -> Result<Moved, EndError>;

    /// Whether what was taken should go on before more is.
    fn is_urgent(&self) -> bool {
        false
    }

    /// What was taken since the last call is to be seen now.
    ///
    /// # Errors
    /// The end has closed.
    fn flush(&mut self) -> Result<(), EndError>;
}

/// What a [`Fill`] wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filled {
    /// A packet of so many bytes.
    Bytes(usize),
    /// One that goes nowhere.
    Dropped,
    /// There is none.
    Nothing,
}

/// Packets that lie where only the kernel can copy them from.
pub trait Fill {
    /// Writes the next packet into `space`, each buffer filled before the next.
    ///
    /// # Errors
    /// The end has closed.
    fn fill<'a>(
        &mut self,
        space: impl Iterator<Item = Buffer<'a>> + Clone,
    ) -> Result<Filled, EndError>;
}
