//! Memory that a program registered for access by peers: found by key, checked on each access.

use std::collections::HashMap;

use super::request::Refusal;
use crate::abi;
use crate::fence::Number;

/// A program's memory, from its registration until it is closed.
#[derive(Debug, Clone, Copy)]
struct Region {
    start: usize,
    length_bytes: usize,
    access: u64,
}

/// The registered memory of a domain.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    known: HashMap<u64, Region>,
}

/// A part of a region that a request may use. Valid while the region is registered: for one call under the domain's
/// lock, or as a buffer that is revoked when the region is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) length_bytes: usize,
}

impl Regions {
    /// Registers memory under a key that the program chose.
    ///
    /// # Errors
    /// `ENOKEY`: the key is in use. `EINVAL`: a null pointer with a length, or memory that wraps around the end of the
    /// address space, as programs register to mean all of it.
    ///
    /// # Safety
    /// The memory may be read and written, as `access` permits peers to, until [`forget`](Self::forget).
    pub(crate) unsafe fn register(
        &mut self,
        key: u64,
        start: *mut u8,
        length_bytes: usize,
        access: u64,
    ) -> Result<(), Number> {
        let start = start.expose_provenance();
        let is_wrapped =
            start.checked_add(length_bytes).is_none_or(|end| end > isize::MAX as usize);
        if start == 0 && length_bytes > 0 || is_wrapped {
            return Err(libc::EINVAL);
        }
        if self.known.contains_key(&key) {
            return Err(abi::ENOKEY);
        }
        self.known.insert(key, Region { start, length_bytes, access });
        Ok(())
    }

    /// Peers have access no more.
    pub(crate) fn forget(&mut self, key: u64) {
        self.known.remove(&key);
    }

    /// The memory that a request names, if its region permits all of `access`.
    pub(crate) fn find(
        &self,
        key: u64,
        offset: u64,
        length_bytes: u64,
        access: u64,
    ) -> Result<Span, Refusal> {
        let region = self.known.get(&key).ok_or(Refusal::UnknownKey)?;
        if region.access & access != access {
            return Err(Refusal::Access);
        }
        let end = offset.checked_add(length_bytes).ok_or(Refusal::Bounds)?;
        if end > region.length_bytes as u64 {
            return Err(Refusal::Bounds);
        }
        Ok(Span { start: region.start + offset as usize, length_bytes: length_bytes as usize })
    }
}

impl Span {
    /// Replaces the memory.
    ///
    /// # Safety
    /// The region of this part is still registered.
    pub(crate) unsafe fn write(self, bytes: &[u8]) {
        let count = bytes.len().min(self.length_bytes);
        let start = std::ptr::with_exposed_provenance_mut::<u8>(self.start);
        // SAFETY: the program lets peers write this memory, which is of this length, and the bytes are in this library's.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), start, count) };
    }

    /// A copy of the memory, after `into`.
    ///
    /// # Safety
    /// As [`write`](Self::write).
    pub(crate) unsafe fn read(self, into: &mut Vec<u8>) {
        into.reserve(self.length_bytes);
        let start = std::ptr::with_exposed_provenance::<u8>(self.start);
        let to = into.spare_capacity_mut().as_mut_ptr().cast::<u8>();
        // SAFETY: the program lets peers read this memory; there is room for as much behind the vector's end.
        unsafe { std::ptr::copy_nonoverlapping(start, to, self.length_bytes) };
        // SAFETY: the bytes were just written.
        unsafe { into.set_len(into.len() + self.length_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_outside_its_region_or_its_rights_is_refused() {
        let mut memory = [1_u8; 100];
        let mut regions = Regions::default();
        let start = memory.as_mut_ptr();
        // SAFETY: it lives to the end of the test.
        let outcome = unsafe { regions.register(5, start, 100, abi::REMOTE_READ) };
        assert_eq!(outcome, Ok(()));
        // SAFETY: the same; it is refused.
        assert_eq!(unsafe { regions.register(5, start, 10, 0) }, Err(abi::ENOKEY));
        // SAFETY: they are refused.
        let null = unsafe { regions.register(6, std::ptr::null_mut(), usize::MAX, 0) };
        assert_eq!(null, Err(libc::EINVAL));
        // SAFETY: the same.
        let wrapped = unsafe { regions.register(6, start, usize::MAX, 0) };
        assert_eq!(wrapped, Err(libc::EINVAL));
        let read = abi::REMOTE_READ;
        for (offset, length, is_inside) in [
            (0, 100, true),
            (100, 0, true),
            (99, 1, true),
            (101, 0, false),
            (100, 1, false),
            (0, 101, false),
            (1, 100, false),
            (u64::MAX, 1, false),
            (u64::MAX, 100, false),
            (u64::MAX - 49, 100, false),
            (50, u64::MAX - 49, false),
            (0, u64::MAX, false),
        ] {
            let found = regions.find(5, offset, length, read).map(|span| span.start);
            let expected = start.addr().wrapping_add(offset as usize);
            let expected = if is_inside { Ok(expected) } else { Err(Refusal::Bounds) };
            assert_eq!(found, expected, "{offset} {length}");
        }
        assert_eq!(regions.find(5, 0, 1, abi::REMOTE_WRITE), Err(Refusal::Access));
        assert_eq!(regions.find(5, 0, 1, read | abi::REMOTE_WRITE), Err(Refusal::Access));
        assert_eq!(regions.find(4, 0, 1, read), Err(Refusal::UnknownKey));
        regions.forget(5);
        assert_eq!(regions.find(5, 0, 1, read), Err(Refusal::UnknownKey));
    }
}
