//! Parts of a region as atomics.

use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

use thiserror::Error;

use crate::Region;

/// The part asked for does not lie inside the region, or not on its natural boundary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{length_bytes} bytes at {offset} do not lie inside the region")]
pub struct OutsideRegion {
    /// Where it was to begin.
    pub offset: usize,
    /// How long it was to be.
    pub length_bytes: usize,
}

/// What a view may consist of: every bit pattern is a value, and concurrent access is defined.
pub trait Atomic: sealed::Sealed {}

mod sealed {
    pub trait Sealed {}
}

impl sealed::Sealed for AtomicU16 {}
impl sealed::Sealed for AtomicU32 {}
impl sealed::Sealed for AtomicU64 {}
impl Atomic for AtomicU16 {}
impl Atomic for AtomicU32 {}
impl Atomic for AtomicU64 {}

/// Atomics in a region, which stays mapped as long as the view lives.
pub struct View<A> {
    start: NonNull<A>,
    length: usize,
    region: Arc<Region>,
}

// SAFETY: a view lends atomics only, and the region it holds is Send and Sync.
unsafe impl<A: Atomic> Send for View<A> {}

// SAFETY: as above.
unsafe impl<A: Atomic> Sync for View<A> {}

impl Region {
    /// `length` atomics from `offset` bytes on.
    ///
    /// # Errors
    /// They do not lie inside the region, or `offset` is not a multiple of their size.
    pub fn view<A: Atomic>(
        self: &Arc<Self>,
        offset: usize,
        length: usize,
    ) -> Result<View<A>, OutsideRegion> {
        let outside = |length_bytes| OutsideRegion { offset, length_bytes };
        let length_bytes = length.checked_mul(size_of::<A>()).ok_or_else(|| outside(usize::MAX))?;
        let start =
            self.part(offset, length_bytes).ok_or_else(|| outside(length_bytes))?.cast::<A>();
        if !start.is_aligned() {
            return Err(outside(length_bytes));
        }
        Ok(View { start, length, region: Arc::clone(self) })
    }
}

impl<A> View<A> {
    /// The region it lies in.
    #[must_use]
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }
}

impl<A: Atomic> Deref for View<A> {
    type Target = [A];

    #[inline]
    fn deref(&self) -> &[A] {
        // SAFETY: checked on creation: aligned and inside the mapping, which `self.region` keeps.
        // Every bit pattern is a valid atomic integer, and other processes may write them at any
        // time because they are atomic.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl<A> fmt::Debug for View<A> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("View").field("length", &self.length).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_aligned_parts_inside_are_viewed() {
        let region = Region::private(4096).unwrap();
        assert_eq!(region.view::<AtomicU64>(4096 - 8, 1).unwrap().len(), 1);
        assert_eq!(region.view::<AtomicU64>(4096, 0).unwrap().len(), 0);
        for (offset, length) in
            [(4090, 1), (4096, 1), (4, 1), (0, 513), (usize::MAX, 1), (0, usize::MAX)]
        {
            assert!(region.view::<AtomicU64>(offset, length).is_err(), "{offset} {length}");
        }
        assert!(region.view::<AtomicU32>(4, 1).is_ok());
        assert!(region.view::<AtomicU16>(2, 2047).is_ok());
        assert!(region.view::<AtomicU16>(1, 1).is_err());
    }

    #[test]
    fn a_view_outlives_every_other_handle() {
        let view = Region::private(4096).unwrap().view::<AtomicU32>(0, 1024).unwrap();
        view[1023].store(5, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(view[1023].load(std::sync::atomic::Ordering::Relaxed), 5);
    }
}
