//! The program's memory. A program lends a buffer with each send and receive until that completes; the
//! machine knows it by number.

use std::ffi::c_void;

use messaging::{BufferId, CopyRequest, Memory};

use crate::fence::Number;
use crate::interfaces::complain;
use crate::local::Process;
use crate::remote::regions::Span;

/// Numbers with this bit name a list of pieces, others are addresses: no address of a process has it.
const LIST: u64 = 1 << 63;

/// A piece of memory.
#[derive(Debug, Clone, Copy)]
struct Piece {
    start: usize,
    length_bytes: usize,
}

/// Pieces that are lent together.
#[derive(Debug)]
struct List {
    pieces: Vec<Piece>,
    /// The key of the registered memory that they are part of.
    region: Option<u64>,
}

/// Buffers that consist of pieces, or that may be revoked.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    lists: Vec<Option<List>>,
}

/// A buffer that was lent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lent {
    pub(crate) buffer: BufferId,
    pub(crate) length_bytes: u64,
}

impl Lent {
    /// Nothing.
    pub(crate) const NOTHING: Self = Self { buffer: BufferId(0), length_bytes: 0 };

    /// A buffer in one piece.
    ///
    /// # Errors
    /// `EFAULT`: a null pointer with a length, as Open MPI gives for memory relative to `MPI_BOTTOM`.
    ///
    /// # Safety
    /// The memory may be read, for receives written, until [`Buffers::give_back`].
    pub(crate) unsafe fn whole(start: *const u8, length_bytes: usize) -> Result<Self, Number> {
        check(start.addr(), length_bytes)?;
        Ok(Self {
            buffer: BufferId(start.expose_provenance() as u64),
            length_bytes: length_bytes as u64,
        })
    }

    /// Its address; 0 for one of pieces.
    pub(crate) fn address(&self) -> usize {
        if self.buffer.0 & LIST == 0 { self.buffer.0 as usize } else { 0 }
    }
}

/// In the environment of Open MPI's ranks.
const OPEN_MPI_VARIABLE: &str = "OMPI_COMM_WORLD_RANK";

/// Refuses a null pointer with a length, and says so. A rank of Open MPI ends then: its `osc/pt2pt` passes a null pointer
/// for memory relative to `MPI_BOTTOM`, ignores the error and would wait for ever for a message that was not sent.
fn check(start: usize, length_bytes: usize) -> Result<(), Number> {
    if start != 0 || length_bytes == 0 {
        return Ok(());
    }
    let is_rank = std::env::var_os(OPEN_MPI_VARIABLE).is_some();
    let more = if is_rank {
        "; Open MPI passes one for one-sided operations relative to MPI_BOTTOM and would wait for ever, so this rank ends"
    } else {
        ""
    };
    complain(&format!(
        "a message of {length_bytes} bytes was refused, because its buffer is a null pointer{more}"
    ));
    if is_rank {
        // SAFETY: it ends the process. Open MPI's launcher then ends the job; an abort would add a trace of the stack.
        unsafe { libc::_exit(1) };
    }
    Err(libc::EFAULT)
}

impl Buffers {
    /// A buffer of the pieces that `vectors` lists.
    ///
    /// # Errors
    /// As [`Lent::whole`], for any piece.
    ///
    /// # Safety
    /// As [`Lent::whole`], for each piece.
    pub(crate) unsafe fn pieces(&mut self, vectors: &[libc::iovec]) -> Result<Lent, Number> {
        match vectors {
            [] => Ok(Lent::NOTHING),
            // SAFETY: the caller's promise.
            [one] => unsafe { Lent::whole(one.iov_base.cast(), one.iov_len) },
            many => {
                many.iter().try_for_each(|one| check(one.iov_base.addr(), one.iov_len))?;
                let piece = |vector: &libc::iovec| Piece {
                    start: vector.iov_base.expose_provenance(),
                    length_bytes: vector.iov_len,
                };
                let pieces: Vec<Piece> = many.iter().map(piece).collect();
                let length_bytes = pieces.iter().map(|piece| piece.length_bytes as u64).sum();
                let index = crate::fence::keep(&mut self.lists, List { pieces, region: None });
                Ok(Lent { buffer: BufferId(LIST | index as u64), length_bytes })
            }
        }
    }

    /// A buffer within registered memory, until it is given back or [revoked](Self::revoke).
    pub(crate) fn of_region(&mut self, key: u64, span: Span) -> Lent {
        let pieces = vec![Piece { start: span.start, length_bytes: span.length_bytes }];
        let index = crate::fence::keep(&mut self.lists, List { pieces, region: Some(key) });
        Lent { buffer: BufferId(LIST | index as u64), length_bytes: span.length_bytes as u64 }
    }

    /// Whether buffers within the registered memory of this key are in use.
    pub(crate) fn uses(&self, key: u64) -> bool {
        self.lists.iter().flatten().any(|list| list.region == Some(key))
    }

    /// Registered memory is no longer to be touched: what is read from its buffers is 0, what is written is lost.
    pub(crate) fn revoke(&mut self, key: u64) {
        for list in self.lists.iter_mut().flatten().filter(|list| list.region == Some(key)) {
            *list = List { pieces: Vec::new(), region: None };
        }
    }

    /// Whether a buffer within registered memory still is that.
    pub(crate) fn is_of_region(&self, buffer: BufferId) -> bool {
        self.list(buffer).is_some_and(|list| list.region.is_some())
    }

    fn list(&self, buffer: BufferId) -> Option<&List> {
        let index = (buffer.0 & LIST != 0).then_some((buffer.0 & !LIST) as usize)?;
        self.lists.get(index)?.as_ref()
    }

    /// The program has its memory again.
    pub(crate) fn give_back(&mut self, buffer: BufferId) {
        if buffer.0 & LIST != 0
            && let Some(list) = self.lists.get_mut((buffer.0 & !LIST) as usize)
        {
            *list = None;
        }
    }

    /// Calls `each` with the pieces of a part of a buffer, in order.
    fn for_each_piece(
        &self,
        buffer: BufferId,
        offset: u64,
        length_bytes: usize,
        mut each: impl FnMut(Piece),
    ) {
        if buffer.0 & LIST == 0 {
            return each(Piece { start: buffer.0 as usize + offset as usize, length_bytes });
        }
        let pieces = self.list(buffer).into_iter().flat_map(|list| &list.pieces);
        let (mut skip, mut left) = (offset as usize, length_bytes);
        for piece in pieces {
            if skip >= piece.length_bytes {
                skip -= piece.length_bytes;
                continue;
            }
            let length_bytes = left.min(piece.length_bytes - skip);
            if length_bytes > 0 {
                each(Piece { start: piece.start + skip, length_bytes });
            }
            (skip, left) = (0, left - length_bytes);
        }
    }

    /// Reads a message from another process into the buffer of its receive; false: not all of it, or what was
    /// read does not count.
    pub(crate) fn fill_from(&mut self, process: &Process, copy: &CopyRequest) -> bool {
        let mut parts = Vec::new();
        self.for_each_piece(copy.buffer, copy.offset, copy.length_bytes as usize, |piece| {
            let iov_base = std::ptr::with_exposed_provenance_mut::<c_void>(piece.start);
            parts.push(libc::iovec { iov_base, iov_len: piece.length_bytes });
        });
        // SAFETY: the program lent this memory for a receive, and the machine stays within it.
        unsafe { process.copy(copy.place, &mut parts) }.is_ok()
    }

    /// A part of a buffer in one piece: the program's own memory where that is in one, else a copy in
    /// `scratch`.
    pub(crate) fn part<'a>(
        &'a self,
        buffer: BufferId,
        offset: u64,
        length_bytes: usize,
        scratch: &'a mut Vec<u8>,
    ) -> &'a [u8] {
        if buffer.0 & LIST == 0 && length_bytes > 0 {
            let start = std::ptr::with_exposed_provenance(buffer.0 as usize + offset as usize);
            // SAFETY: the program lent this memory (`Lent::whole`) and the machine stays within what was
            // lent. The program does not write it before the send completed, which needs a call that
            // the domain's lock keeps out while this borrow lasts.
            return unsafe { std::slice::from_raw_parts(start, length_bytes) };
        }
        scratch.clear();
        self.read(buffer, offset, length_bytes, scratch);
        scratch
    }
}

impl Memory for Buffers {
    fn write(&mut self, buffer: BufferId, offset: u64, bytes: &[u8]) {
        let mut rest = bytes;
        self.for_each_piece(buffer, offset, bytes.len(), |piece| {
            let (now, later) = rest.split_at(piece.length_bytes.min(rest.len()));
            let start = std::ptr::with_exposed_provenance_mut::<u8>(piece.start);
            // SAFETY: the program lent this memory for a receive, the machine stays within it, and
            // packets are in memory of this library.
            unsafe { std::ptr::copy_nonoverlapping(now.as_ptr(), start, now.len()) };
            rest = later;
        });
    }

    fn read(&self, buffer: BufferId, offset: u64, bytes_count: usize, into: &mut Vec<u8>) {
        let end = into.len() + bytes_count;
        self.for_each_piece(buffer, offset, bytes_count, |piece| {
            let start = std::ptr::with_exposed_provenance::<u8>(piece.start);
            // SAFETY: the program lent this memory for a send, and the machine stays within it.
            let bytes = unsafe { std::slice::from_raw_parts(start, piece.length_bytes) };
            into.extend_from_slice(bytes);
        });
        // Of a buffer that was revoked.
        into.resize(end, 0);
    }

    fn place(&self, buffer: BufferId, offset: u64) -> Option<u64> {
        if buffer.0 & LIST == 0 {
            return Some(buffer.0.wrapping_add(offset));
        }
        match self.list(buffer)?.pieces.as_slice() {
            [one] => Some((one.start as u64).wrapping_add(offset)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_read_and_written_in_order_wherever_a_part_begins() {
        let mut memory = [0_u8; 30];
        let start = memory.as_mut_ptr();
        let vectors = [(0, 7), (10, 0), (12, 5), (20, 10)].map(|(offset, iov_len)| libc::iovec {
            iov_base: start.wrapping_add(offset).cast(),
            iov_len,
        });
        let mut buffers = Buffers::default();
        // SAFETY: `memory` outlives `buffers` and is not touched otherwise meanwhile.
        let lent = unsafe { buffers.pieces(&vectors) }.expect("no null pointer");
        assert_eq!(lent.length_bytes, 22);
        let bytes: Vec<u8> = (1..=22).collect();
        for (offset, length) in [(0, 22), (3, 6), (7, 5), (21, 1), (22, 0), (6, 16)] {
            buffers.write(lent.buffer, offset, &bytes[offset as usize..offset as usize + length]);
            let (mut read, mut scratch) = (Vec::new(), Vec::new());
            buffers.read(lent.buffer, offset, length, &mut read);
            assert_eq!(read, bytes[offset as usize..offset as usize + length]);
            assert_eq!(buffers.part(lent.buffer, offset, length, &mut scratch), read);
        }
        buffers.give_back(lent.buffer);
        assert_eq!(memory[7..12], [0; 5]);
        assert_eq!(memory[12..17], [8, 9, 10, 11, 12]);
    }
}
