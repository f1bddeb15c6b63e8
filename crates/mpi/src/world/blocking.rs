//! Calls that wait, as benchmarks make them. Only for ranks that all run: one that waits for a rank that is gone waits
//! until MPI or the launcher ends it.

use std::ffi::c_int;

use super::{Handle, MpiError, Session, World, checked};
use crate::calls::Status;

/// The blocking calls of a [`Session`].
pub(super) trait Blocking {
    fn send_now(&mut self, to: c_int, tag: c_int, message: &[u8]) -> Result<(), MpiError>;
    fn receive_now(&mut self, from: c_int, tag: c_int, room: &mut [u8]) -> Result<(), MpiError>;
    fn send_many(
        &mut self,
        to: c_int,
        tag: c_int,
        bytes: usize,
        all: &[u8],
    ) -> Result<(), MpiError>;
    fn receive_many(
        &mut self,
        from: c_int,
        tag: c_int,
        bytes: usize,
        all: &mut [u8],
    ) -> Result<(), MpiError>;
    fn all_to_all(&mut self, each: usize, from: &[u8], to: &mut [u8]) -> Result<(), MpiError>;
    fn barrier(&mut self) -> Result<(), MpiError>;
}

impl World {
    /// Sends a message; returns when the buffer may be used again (`MPI_Send`).
    ///
    /// # Errors
    /// [`MpiError::TooLong`]; [`MpiError::Failed`].
    ///
    /// # Panics
    /// When there is no such rank, or the tag is negative.
    pub fn send_now(&mut self, to: usize, tag: i32, message: &[u8]) -> Result<(), MpiError> {
        assert!(to < self.size && tag >= 0, "no rank {to} of {}, or tag {tag}", self.size);
        self.port.send_now(to as c_int, tag, message)
    }

    /// Waits for a message of this rank with this tag, which has at most as many bytes as there is room for
    /// (`MPI_Recv`).
    ///
    /// # Errors
    /// [`MpiError::TooLong`]; [`MpiError::Failed`], also if the message is longer.
    ///
    /// # Panics
    /// When there is no such rank, or the tag is negative.
    pub fn receive_now(&mut self, from: usize, tag: i32, room: &mut [u8]) -> Result<(), MpiError> {
        assert!(from < self.size && tag >= 0, "no rank {from} of {}, or tag {tag}", self.size);
        self.port.receive_now(from as c_int, tag, room)
    }

    /// Sends `all` as messages of `bytes` each, all under way at once (`MPI_Isend`), and waits for all (`MPI_Wait`).
    ///
    /// # Errors
    /// [`MpiError::TooLong`]; [`MpiError::Failed`].
    ///
    /// # Panics
    /// When there is no such rank, the tag is negative, or `bytes` is 0.
    pub fn send_many(
        &mut self,
        to: usize,
        tag: i32,
        bytes: usize,
        all: &[u8],
    ) -> Result<(), MpiError> {
        assert!(to < self.size && tag >= 0, "no rank {to} of {}, or tag {tag}", self.size);
        self.port.send_many(to as c_int, tag, bytes, all)
    }

    /// Receives messages of at most `bytes` each until `all` is full, all posted at once (`MPI_Irecv`), and waits for all.
    ///
    /// # Errors
    /// [`MpiError::TooLong`]; [`MpiError::Failed`], also if a message is longer.
    ///
    /// # Panics
    /// As [`send_many`](Self::send_many).
    pub fn receive_many(
        &mut self,
        from: usize,
        tag: i32,
        bytes: usize,
        all: &mut [u8],
    ) -> Result<(), MpiError> {
        assert!(from < self.size && tag >= 0, "no rank {from} of {}, or tag {tag}", self.size);
        self.port.receive_many(from as c_int, tag, bytes, all)
    }

    /// Sends `each` bytes to every rank, in the ranks' order, and receives as many from every one (`MPI_Alltoall`). All
    /// ranks must call it with the same length.
    ///
    /// # Errors
    /// [`MpiError::TooLong`]; [`MpiError::Failed`].
    ///
    /// # Panics
    /// When a buffer has not `each` bytes for every rank.
    pub fn all_to_all(&mut self, each: usize, from: &[u8], to: &mut [u8]) -> Result<(), MpiError> {
        let all = each.checked_mul(self.size);
        assert!(all == Some(from.len()) && all == Some(to.len()), "{each} bytes of {}", self.size);
        self.port.all_to_all(each, from, to)
    }

    /// Waits until all ranks call it (`MPI_Barrier`).
    ///
    /// # Errors
    /// [`MpiError::Failed`].
    pub fn barrier(&mut self) -> Result<(), MpiError> {
        self.port.barrier()
    }
}

/// A length as MPI counts it.
fn counted(bytes: usize) -> Result<c_int, MpiError> {
    c_int::try_from(bytes).map_err(|_too_many| MpiError::TooLong { bytes })
}

impl<H: Handle> Session<H> {
    /// Begins a request for each part, up to the first that fails, and waits for all that were begun. `begin` is the call
    /// of this name; it returns MPI's code.
    fn all_of<Part>(
        &self,
        call: &'static str,
        parts: impl ExactSizeIterator<Item = Part>,
        mut begin: impl FnMut(Part, *mut H) -> c_int,
    ) -> Result<(), MpiError> {
        let mut requests = Vec::with_capacity(parts.len());
        let mut begun = Ok(());
        for part in parts {
            let mut request = H::ZERO;
            begun = checked(call, begin(part, &raw mut request));
            if begun.is_err() {
                break;
            }
            requests.push(request);
        }
        let mut done = Ok(());
        for request in &mut requests {
            let mut status = Status::default();
            // SAFETY: the request was begun by this library, and is waited for once; `Status` has room for the library's.
            let code = unsafe { (self.calls.wait)(request, &raw mut status) };
            done = done.and(checked("MPI_Wait", code));
        }
        begun.and(done)
    }
}

impl<H: Handle> Blocking for Session<H> {
    fn send_now(&mut self, to: c_int, tag: c_int, message: &[u8]) -> Result<(), MpiError> {
        let (world, byte, count) = (self.calls.world, self.calls.byte, counted(message.len())?);
        // SAFETY: MPI is entered; it reads `count` bytes, which the slice has, until the call returns.
        let code =
            unsafe { (self.calls.send)(message.as_ptr().cast(), count, byte, to, tag, world) };
        checked("MPI_Send", code)
    }

    fn receive_now(&mut self, from: c_int, tag: c_int, room: &mut [u8]) -> Result<(), MpiError> {
        let (world, byte, count) = (self.calls.world, self.calls.byte, counted(room.len())?);
        let (to, mut status) = (room.as_mut_ptr().cast(), Status::default());
        // SAFETY: MPI is entered; it writes at most `count` bytes, which the slice has, until the call returns;
        // `Status` has room for the library's.
        let code = unsafe { (self.calls.recv)(to, count, byte, from, tag, world, &raw mut status) };
        checked("MPI_Recv", code)
    }

    fn send_many(
        &mut self,
        to: c_int,
        tag: c_int,
        bytes: usize,
        all: &[u8],
    ) -> Result<(), MpiError> {
        let (calls, count) = (&self.calls, counted(bytes)?);
        self.all_of("MPI_Isend", all.chunks_exact(bytes), |message, request| {
            let from = message.as_ptr().cast();
            // SAFETY: MPI is entered; it reads `count` bytes, which the slice has, until the request is done, which
            // `all_of` waits for.
            unsafe { (calls.isend)(from, count, calls.byte, to, tag, calls.world, request) }
        })
    }

    fn receive_many(
        &mut self,
        from: c_int,
        tag: c_int,
        bytes: usize,
        all: &mut [u8],
    ) -> Result<(), MpiError> {
        let (calls, count) = (&self.calls, counted(bytes)?);
        self.all_of("MPI_Irecv", all.chunks_exact_mut(bytes), |room, request| {
            let to = room.as_mut_ptr().cast();
            // SAFETY: MPI is entered; it writes at most `count` bytes, which the slice has and no other request has, until the
            // request is done, which `all_of` waits for.
            unsafe { (calls.irecv)(to, count, calls.byte, from, tag, calls.world, request) }
        })
    }

    fn all_to_all(&mut self, each: usize, from: &[u8], to: &mut [u8]) -> Result<(), MpiError> {
        let (world, byte, count) = (self.calls.world, self.calls.byte, counted(each)?);
        let (from, to) = (from.as_ptr().cast(), to.as_mut_ptr().cast());
        // SAFETY: MPI is entered; both slices have `count` bytes for every rank, as `World::all_to_all` asserts, and
        // do not overlap; MPI uses them until the call returns.
        let code = unsafe { (self.calls.alltoall)(from, count, byte, to, count, byte, world) };
        checked("MPI_Alltoall", code)
    }

    fn barrier(&mut self) -> Result<(), MpiError> {
        // SAFETY: MPI is entered; the handle is this library's.
        checked("MPI_Barrier", unsafe { (self.calls.barrier)(self.calls.world) })
    }
}
