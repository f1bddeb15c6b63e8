//! Mappings, and where they come from.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use sys::SyscallError;
use thiserror::Error;

/// Largest region that is created or accepted, bytes: some seven times what 64 rings of 4096 slots with
/// netmap's buffers take, and far from what overflows an offset.
pub const REGION_BYTES_MAX: u64 = 4 << 30;

/// Regions are multiples of this, so that the kernel can use 2 MiB pages for them.
pub const REGION_BYTES_MULTIPLE: u64 = 2 << 20;

/// The filesystem of ordinary shared memory (`include/uapi/linux/magic.h`).
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// What keeps a region as long as it is: without these seals its creator could cut it off under
/// whoever mapped it, whose next access would be a SIGBUS.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Memory mapped from a sealed memfd; unmapped with the last handle.
#[derive(Debug)]
pub struct Region {
    start: NonNull<u8>,
    length: usize,
    fd: Option<OwnedFd>,
}

// SAFETY: the mapping is not bound to a thread, and all access goes through atomics or raw copies.
unsafe impl Send for Region {}

// SAFETY: as above; no method lends plain bytes.
unsafe impl Sync for Region {}

/// Why a region could not be made or accepted.
#[derive(Debug, Error)]
pub enum RegionError {
    /// The kernel refused.
    #[error(transparent)]
    Syscall(#[from] SyscallError),
    /// No bytes, or more than may be: [`REGION_BYTES_MAX`], of a guest's memory what its user allows.
    #[error("a region of {bytes} bytes is not possible")]
    Size {
        /// Requested size, bytes.
        bytes: u64,
    },
    /// Its sender could still truncate it.
    #[error("the memory handed over is not sealed against shrinking and growing")]
    Unsealed,
    /// Not ordinary shared memory: pages of another size may be missing when they are needed.
    #[error("the memory handed over is not a memfd, or has huge pages")]
    Pages,
}

impl Region {
    /// New zeroed shared memory of at least so many bytes, rounded up to 2 MiB, sealed at that size.
    /// It lies in 2 MiB pages where the host gives them for shared memory
    /// (`/sys/kernel/mm/transparent_hugepage/shmem_enabled`).
    ///
    /// # Errors
    /// The size is 0 or beyond [`REGION_BYTES_MAX`]; no memory or no descriptor left.
    pub fn create(name: &str, bytes: u64) -> Result<Arc<Self>, RegionError> {
        if bytes == 0 || bytes > REGION_BYTES_MAX {
            return Err(RegionError::Size { bytes });
        }
        let bytes = bytes.next_multiple_of(REGION_BYTES_MULTIPLE);
        let failed = |call| move |error| SyscallError::new(call, name, error);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create(name, flags).map_err(failed("memfd_create"))?;
        rustix::fs::ftruncate(&fd, bytes).map_err(failed("ftruncate"))?;
        rustix::fs::fcntl_add_seals(&fd, SEALS).map_err(failed("fcntl(F_ADD_SEALS)"))?;
        Self::map(bytes, Some(fd))
    }

    /// Maps memory that another process made. Its size is what the kernel says, not what the sender
    /// does, and it must be sealed.
    ///
    /// # Errors
    /// Not a memfd of ordinary pages, not sealed, of a size no region has, or the kernel refused to map it.
    pub fn attach(fd: OwnedFd) -> Result<Arc<Self>, RegionError> {
        Self::attach_up_to(fd, REGION_BYTES_MAX)
    }

    /// As [`attach`](Self::attach), of memory that may have up to `bytes_max` bytes: a guest's.
    ///
    /// # Errors
    /// As [`attach`](Self::attach).
    pub fn attach_up_to(fd: OwnedFd, bytes_max: u64) -> Result<Arc<Self>, RegionError> {
        Self::attach_among(fd, bytes_max, &[])
    }

    /// As [`attach_up_to`](Self::attach_up_to), but memory that is `mapped` already is not mapped once more, and no
    /// limit concerns it.
    ///
    /// # Errors
    /// As [`attach`](Self::attach).
    pub fn attach_among(
        fd: OwnedFd,
        bytes_max: u64,
        mapped: &[Arc<Self>],
    ) -> Result<Arc<Self>, RegionError> {
        // Anything but a memfd has no seals, and the call fails.
        let seals = rustix::fs::fcntl_get_seals(&fd).unwrap_or(SealFlags::empty());
        if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) {
            return Err(RegionError::Unsealed);
        }
        // Huge pages of a reserved pool (MFD_HUGETLB) have seals too. The pool may be empty when one is
        // touched, which is a SIGBUS, and its mappings have other lengths than were asked for.
        let of = rustix::fs::fstatfs(&fd)
            .map_err(|error| SyscallError::new("fstatfs", "shared memory", error))?;
        if u64::try_from(of.f_type) != Ok(TMPFS_MAGIC) {
            return Err(RegionError::Pages);
        }
        let stat = stat(fd.as_fd())?;
        let file = (stat.st_dev, stat.st_ino);
        for region in mapped {
            if region.file()? == Some(file) {
                return Ok(Arc::clone(region));
            }
        }
        let bytes = u64::try_from(stat.st_size).unwrap_or(0);
        if bytes == 0 || bytes > bytes_max {
            return Err(RegionError::Size { bytes });
        }
        Self::map(bytes, Some(fd))
    }

    /// Memory of this process alone: for tests, also under Miri, which has no memfd.
    ///
    /// # Errors
    /// As [`Region::create`].
    pub fn private(bytes: u64) -> Result<Arc<Self>, RegionError> {
        if bytes == 0 || bytes > REGION_BYTES_MAX {
            return Err(RegionError::Size { bytes });
        }
        Self::map(bytes, None)
    }

    fn map(bytes: u64, fd: Option<OwnedFd>) -> Result<Arc<Self>, RegionError> {
        let Ok(length) = usize::try_from(bytes) else { return Err(RegionError::Size { bytes }) };
        let start = map_bytes(length, fd.as_ref())
            .map_err(|error| SyscallError::new("mmap", format!("{bytes} bytes"), error))?;
        let start = NonNull::new(start.cast::<u8>()).expect("mmap gives no null page unasked");
        Ok(Arc::new(Self { start, length, fd }))
    }

    /// Length of the region.
    #[must_use]
    pub fn length_bytes(&self) -> usize {
        self.length
    }

    /// The memfd to hand to another process; none for private memory.
    #[must_use]
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(AsFd::as_fd)
    }

    /// Device and number of the memfd, by which it is known again; none for private memory.
    ///
    /// # Errors
    /// As `fstat(2)`.
    pub fn file(&self) -> Result<Option<(u64, u64)>, SyscallError> {
        let stat = self.fd().map(stat).transpose()?;
        Ok(stat.map(|stat| (stat.st_dev, stat.st_ino)))
    }

    /// Address of `length` bytes from `offset`, if they lie inside.
    pub(crate) fn part(&self, offset: usize, length: usize) -> Option<NonNull<u8>> {
        let end = offset.checked_add(length)?;
        // SAFETY: `offset <= end <= self.length`, so the result is within the mapping or one past.
        (end <= self.length).then(|| unsafe { self.start.add(offset) })
    }
}

fn stat(fd: BorrowedFd<'_>) -> Result<rustix::fs::Stat, SyscallError> {
    rustix::fs::fstat(fd).map_err(|error| SyscallError::new("fstat", "shared memory", error))
}

#[cfg(not(miri))]
fn map_bytes(length: usize, fd: Option<&OwnedFd>) -> rustix::io::Result<*mut std::ffi::c_void> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let anywhere = std::ptr::null_mut();
    let start = match fd {
        // SAFETY: the kernel chooses the address, so nothing mapped already is touched.
        Some(fd) => unsafe {
            rustix::mm::mmap(anywhere, length, protection, MapFlags::SHARED, fd, 0)
        },
        // SAFETY: as above.
        None => unsafe {
            rustix::mm::mmap_anonymous(anywhere, length, protection, MapFlags::PRIVATE)
        },
    }?;
    // SAFETY: the advice concerns this mapping only and keeps its contents. Where huge pages are
    // switched off it is refused, and small ones serve.
    unsafe { rustix::mm::madvise(start, length, Advice::LinuxHugepage) }.ok();
    Ok(start)
}

/// Miri has no system calls: zeroed heap memory, aligned as pages are.
#[cfg(miri)]
fn map_bytes(length: usize, _fd: Option<&OwnedFd>) -> rustix::io::Result<*mut std::ffi::c_void> {
    let layout = miri_layout(length);
    // SAFETY: the length is not zero.
    Ok(unsafe { std::alloc::alloc_zeroed(layout) }.cast())
}

#[cfg(miri)]
fn miri_layout(length: usize) -> std::alloc::Layout {
    std::alloc::Layout::from_size_align(length, 4096).expect("less than 4 GiB")
}

impl Drop for Region {
    fn drop(&mut self) {
        #[cfg(not(miri))]
        // SAFETY: `start` and `length` are what mmap gave; views hold the region, so none is left.
        // A failure would leak the mapping, no more.
        unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.length) }.ok();
        #[cfg(miri)]
        // SAFETY: allocated with this layout.
        unsafe {
            std::alloc::dealloc(self.start.as_ptr(), miri_layout(self.length));
        }
    }
}

#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn both_mappings_see_the_same_memory() {
        let ours = Region::create("test", 100_000).unwrap();
        assert_eq!(ours.length_bytes(), 2 << 20, "rounded up to a huge page");
        let theirs = Region::attach(ours.fd().unwrap().try_clone_to_owned().unwrap()).unwrap();
        let here = ours.view::<std::sync::atomic::AtomicU64>(4096, 2).unwrap();
        let there = theirs.view::<std::sync::atomic::AtomicU64>(4096, 2).unwrap();
        here[1].store(7, std::sync::atomic::Ordering::Release);
        assert_eq!(there[1].load(std::sync::atomic::Ordering::Acquire), 7);
    }

    #[test]
    fn nobody_can_truncate_a_region() {
        let region = Region::create("test", 1).unwrap();
        let file = File::from(region.fd().unwrap().try_clone_to_owned().unwrap());
        for bytes in [0, 4096, 4 << 20] {
            let error = file.set_len(bytes).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied, "{bytes}");
        }
    }

    #[test]
    fn memory_that_is_mapped_is_not_mapped_again() {
        let fd = |region: &Region| region.fd().unwrap().try_clone_to_owned().unwrap();
        let [one, other] = ["one", "other"].map(|name| Region::create(name, 1).unwrap());
        let known = Region::attach_among(fd(&one), 0, &[one.clone(), other.clone()]).unwrap();
        assert!(Arc::ptr_eq(&known, &one), "whatever the limit is");
        let unknown = Region::attach_among(fd(&one), 0, &[other]);
        assert!(matches!(unknown, Err(RegionError::Size { .. })));
    }

    #[test]
    fn hostile_memory_is_refused() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memfd = |bytes: u64, seals| {
            let fd = rustix::fs::memfd_create("hostile", flags).unwrap();
            rustix::fs::ftruncate(&fd, bytes).unwrap();
            rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
            fd
        };
        let refused = |fd| Region::attach(fd).unwrap_err();
        assert!(matches!(refused(memfd(4096, SealFlags::empty())), RegionError::Unsealed));
        assert!(matches!(refused(memfd(4096, SealFlags::GROW)), RegionError::Unsealed));
        assert!(matches!(refused(memfd(0, SEALS)), RegionError::Size { bytes: 0 }));
        assert!(matches!(refused(memfd(8 << 30, SEALS)), RegionError::Size { .. }));
        let huge = rustix::fs::memfd_create("huge", flags | MemfdFlags::HUGETLB).unwrap();
        rustix::fs::ftruncate(&huge, 2 << 20).unwrap();
        rustix::fs::fcntl_add_seals(&huge, SEALS).unwrap();
        assert!(matches!(refused(huge), RegionError::Pages));
        let file = File::open("/proc/self/exe").unwrap();
        assert!(matches!(refused(file.into()), RegionError::Unsealed));
        assert!(matches!(Region::create("none", 0), Err(RegionError::Size { .. })));
        assert!(matches!(Region::create("huge", u64::MAX), Err(RegionError::Size { .. })));
    }
}
