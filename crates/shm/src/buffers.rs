//! Parts of a region as packet buffers.
//!
//! Their bytes belong to whoever holds the slot that names them, by a protocol that the other process
//! may break. So nothing here lends them: they are copied in and out. A copy that races with a
//! writer gets some mixture of bytes, which its user must check like any other input.

use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::{OutsideRegion, Region};

/// Buffers of one size, one after the other.
pub struct Buffers {
    start: NonNull<u8>,
    buffer_bytes: usize,
    count: u32,
    region: Arc<Region>,
}

// SAFETY: bytes are only copied, and the region held is Send and Sync.
unsafe impl Send for Buffers {}

// SAFETY: as above.
unsafe impl Sync for Buffers {}

impl Buffers {
    /// `count` buffers of `buffer_bytes` each from `offset` bytes on.
    ///
    /// # Errors
    /// They do not lie inside the region.
    pub fn new(
        region: &Arc<Region>,
        offset: usize,
        buffer_bytes: usize,
        count: u32,
    ) -> Result<Self, OutsideRegion> {
        let outside = |length_bytes| OutsideRegion { offset, length_bytes };
        let all = buffer_bytes.checked_mul(count as usize).ok_or_else(|| outside(usize::MAX))?;
        let start = region.part(offset, all).ok_or_else(|| outside(all))?;
        Ok(Self { start, buffer_bytes, count, region: Arc::clone(region) })
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Length of each buffer.
    #[must_use]
    pub fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    /// The region they lie in.
    #[must_use]
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// The buffer with that index; `None` beyond the last.
    #[inline]
    #[must_use]
    pub fn get(&self, index: u32) -> Option<Buffer<'_>> {
        if index >= self.count {
            return None;
        }
        let offset = index as usize * self.buffer_bytes;
        // SAFETY: `index < count`, and `count` buffers were checked to lie inside the mapping.
        let start = unsafe { self.start.add(offset) };
        let length = self.buffer_bytes;
        Some(Buffer { bytes: Bytes { start, length, keeper: PhantomData } })
    }
}

impl fmt::Debug for Buffers {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Buffers")
            .field("buffer_bytes", &self.buffer_bytes)
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

/// Bytes to copy from, in a buffer or of this process's own; they may change at any time.
#[derive(Debug, Clone, Copy)]
pub struct Bytes<'a> {
    start: NonNull<u8>,
    length: usize,
    keeper: PhantomData<&'a [u8]>,
}

/// One buffer: bytes to copy from and to.
#[derive(Debug, Clone, Copy)]
pub struct Buffer<'a> {
    bytes: Bytes<'a>,
}

/// Up to this length a copy is a few loads and stores; beyond, a call.
const SMALL_BYTES: usize = 64;

impl<'a> From<&'a [u8]> for Bytes<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self { start: NonNull::from(bytes).cast(), length: bytes.len(), keeper: PhantomData }
    }
}

/// Memory of this process that is lent as if it were a region's.
impl<'a> From<&'a mut [u8]> for Buffer<'a> {
    fn from(bytes: &'a mut [u8]) -> Self {
        let length = bytes.len();
        Self { bytes: Bytes { start: NonNull::from(bytes).cast(), length, keeper: PhantomData } }
    }
}

impl<'a> std::ops::Deref for Buffer<'a> {
    type Target = Bytes<'a>;

    #[inline]
    fn deref(&self) -> &Bytes<'a> {
        &self.bytes
    }
}

impl Bytes<'_> {
    /// Length of the buffer.
    #[inline]
    #[must_use]
    pub fn length_bytes(&self) -> usize {
        self.length
    }

    /// The `N` bytes from `offset` on, whose number is known where this is compiled: a few loads, no
    /// call. `None` when they do not lie inside.
    #[inline]
    #[must_use]
    pub fn take<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        let from = self.part(offset, N)?.cast::<[u8; N]>();
        // SAFETY: `from` is valid for `N` bytes, and any bytes are a valid array; unaligned is allowed.
        Some(unsafe { from.read_unaligned() })
    }

    /// Copies bytes from `offset` on into `out`; false when they do not lie inside.
    #[inline]
    #[must_use]
    pub fn read(&self, offset: usize, out: &mut [u8]) -> bool {
        let Some(from) = self.part(offset, out.len()) else { return false };
        // SAFETY: `from` is valid for `out.len()` bytes; `out` is ours alone, so it cannot overlap
        // a shared mapping. Races with another process yield unspecified bytes, which are valid u8.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), out.as_mut_ptr(), out.len()) };
        true
    }

    /// `length` bytes of it from `offset` on; `None` when they do not lie inside.
    #[inline]
    #[must_use]
    pub fn cut(&self, offset: usize, length: usize) -> Option<Self> {
        let start = self.part(offset, length)?;
        Some(Self { start, length, keeper: PhantomData })
    }

    /// For a system call.
    pub(crate) fn as_part(&self) -> sys::vectored::Part {
        sys::vectored::Part::new(self.start.as_ptr(), self.length)
    }

    /// Tells the processor that the first bytes will be read soon.
    #[inline]
    pub fn prefetch(&self) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: a prefetch reads nothing that the program can see, wherever it points.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(
                self.start.as_ptr().cast(),
            );
        }
    }

    #[inline]
    fn part(&self, offset: usize, length: usize) -> Option<NonNull<u8>> {
        let end = offset.checked_add(length)?;
        // SAFETY: `offset <= end <= self.length`.
        (end <= self.length).then(|| unsafe { self.start.add(offset) })
    }
}

impl<'a> Buffer<'a> {
    /// Copies `bytes` to `offset`; false when they do not fit.
    #[inline]
    #[must_use]
    pub fn write(&self, offset: usize, bytes: &[u8]) -> bool {
        let Some(to) = self.part(offset, bytes.len()) else { return false };
        type Half = [u8; SMALL_BYTES / 2];
        // Most frames are that short: two overlapping halves cost less than a call.
        if bytes.len() <= SMALL_BYTES
            && let (Some(first_half), Some(last_half)) =
                (bytes.first_chunk::<{ size_of::<Half>() }>(), bytes.last_chunk())
        {
            // SAFETY: `to` is valid for `bytes.len()` bytes, which are at least a half.
            unsafe { to.cast::<Half>().write_unaligned(*first_half) };
            // SAFETY: the length is at least a half's.
            let to_last = unsafe { to.add(bytes.len() - size_of::<Half>()) };
            // SAFETY: a half from there ends with the length checked above.
            unsafe { to_last.cast::<Half>().write_unaligned(*last_half) };
            return true;
        }
        // SAFETY: as in `read`, the other way.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), bytes.len()) };
        true
    }

    /// `length` bytes of it from `offset` on; `None` when they do not lie inside.
    #[inline]
    #[must_use]
    pub fn cut(&self, offset: usize, length: usize) -> Option<Self> {
        Some(Self { bytes: self.bytes.cut(offset, length)? })
    }

    /// Its first `length` bytes, to read; all of them where it is shorter.
    #[inline]
    #[must_use]
    pub fn first(&self, length: usize) -> Bytes<'a> {
        Bytes { length: length.min(self.length), ..self.bytes }
    }

    /// Copies the first `length` bytes of `from`, not a byte more; false when one of the two is
    /// shorter.
    #[inline]
    #[must_use]
    pub fn copy_from(&self, from: &Bytes<'_>, length: usize) -> bool {
        if length > self.length || length > from.length {
            return false;
        }
        if (SMALL_BYTES / 2..=SMALL_BYTES).contains(&length) {
            self.copy_small(from, length);
            return true;
        }
        // SAFETY: both are valid for `length` bytes. They may be the same buffer when a client put
        // it into two slots, hence `copy`, which allows overlap.
        unsafe { std::ptr::copy(from.start.as_ptr(), self.start.as_ptr(), length) };
        true
    }

    /// 32 to 64 bytes as two overlapping halves: most frames are that short, and a call costs as
    /// much as their copy.
    #[inline]
    fn copy_small(&self, from: &Bytes<'_>, length: usize) {
        type Half = [u8; SMALL_BYTES / 2];
        let last = length - size_of::<Half>();
        // SAFETY: the caller checked 32 <= length <= both lengths.
        let first_half = unsafe { from.start.cast::<Half>().read_unaligned() };
        // SAFETY: `last + 32 == length`.
        let from_last = unsafe { from.start.add(last) };
        // SAFETY: 32 bytes from there are inside.
        let last_half = unsafe { from_last.cast::<Half>().read_unaligned() };
        // SAFETY: as for reading; both halves are in registers, so overlap does no harm.
        unsafe { self.start.cast::<Half>().write_unaligned(first_half) };
        // SAFETY: `last + 32 == length`.
        let to_last = unsafe { self.start.add(last) };
        // SAFETY: 32 bytes from there are inside.
        unsafe { to_last.cast::<Half>().write_unaligned(last_half) };
    }

    /// Tells the processor that the first bytes will be written soon: another core's copy is given up before
    /// the write has to wait for that.
    #[inline]
    pub fn prefetch_to_write(&self) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: a prefetch changes nothing that the program can see, wherever it points; every 64-bit
        // x86 processor knows the instruction, if only as one that does nothing.
        unsafe {
            std::arch::asm!(
                "prefetchw [{}]",
                in(reg) self.start.as_ptr(),
                options(nostack, preserves_flags, readonly)
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_stay_inside_and_are_exact() {
        let region = Region::private(8192).unwrap();
        let buffers = Buffers::new(&region, 1024, 256, 4).unwrap();
        assert!(buffers.get(4).is_none());
        let (from, to) = (buffers.get(0).unwrap(), buffers.get(3).unwrap());
        let bytes: Vec<u8> = (0..=255).collect();
        assert!(from.write(0, &bytes) && !from.write(1, &bytes) && !from.write(usize::MAX, &[1]));
        for length in 0..=256 {
            assert!(to.write(0, &[0xee; 256]));
            assert!(to.copy_from(&from, length));
            let mut out = [0; 256];
            assert!(to.read(0, &mut out));
            assert_eq!(out[..length], bytes[..length]);
            assert!(out[length..].iter().all(|&byte| byte == 0xee), "not a byte beyond {length}");
        }
        assert!(!to.copy_from(&from, 257));
        for length in 0..=256 {
            assert!(to.write(0, &[0xee; 256]) && to.write(0, &bytes[..length]));
            let out = to.take::<256>(0).unwrap();
            assert_eq!(out[..length], bytes[..length]);
            assert!(out[length..].iter().all(|&byte| byte == 0xee), "not a byte beyond {length}");
        }
        assert_eq!(from.take::<3>(253), Some([253, 254, 255]));
        assert!(from.take::<3>(254).is_none() && from.take::<1>(usize::MAX).is_none());
        assert!(from.write(0, &bytes) && to.write(0, &[0xee; 256]));
        let copied = to.cut(10, 56).unwrap().copy_from(&from.cut(200, 56).unwrap(), 56);
        assert!(copied && from.cut(200, 57).is_none() && from.cut(usize::MAX, 2).is_none());
        let mut out = [0; 256];
        assert!(to.read(0, &mut out));
        assert_eq!((&out[10..66], out[9], out[66]), (&bytes[200..], 0xee, 0xee));
        assert!(to.copy_from(&to, 100), "a buffer in two slots is copied onto itself");
        to.prefetch();
        to.prefetch_to_write();
    }

    #[test]
    fn memory_of_this_process_is_copied_like_a_regions() {
        let (mut own, from) = (vec![0; 70], (0..70).collect::<Vec<u8>>());
        let buffer = Buffer::from(&mut own[3..]);
        assert!(buffer.copy_from(&Bytes::from(&from[..]), 67) && !buffer.write(67, &[1]));
        let mut back = [0; 67];
        assert!(buffer.first(67).read(0, &mut back) && !buffer.first(66).read(0, &mut back));
        assert_eq!(buffer.first(68).length_bytes(), 67);
        assert_eq!((&back[..], &own[..3], &own[3..]), (&from[..67], &[0; 3][..], &from[..67]));
    }

    #[test]
    fn buffers_beyond_the_region_are_refused() {
        let region = Region::private(8192).unwrap();
        assert!(Buffers::new(&region, 0, 2048, 4).is_ok());
        for (offset, bytes, count) in
            [(1, 2048, 4), (0, 2048, 5), (0, usize::MAX, 2), (usize::MAX, 1, 1)]
        {
            assert!(Buffers::new(&region, offset, bytes, count).is_err());
        }
    }
}
