//! A guest's memory as its hypervisor shares it: every address is looked up in the table, at each access.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use shm::{Atomic, Buffer, Buffers, OutsideRegion, Region, RegionError, View};
use thiserror::Error;
use virtqueue::GuestMemory;

use super::message::RegionEntry;

/// Largest memory of a guest, bytes of all its files together. A hypervisor may hand over files that have no pages, so
/// it costs it nothing: what is mapped for all guests that a process may serve (128 in the switch) must leave half
/// of the addresses of a process, 128 TiB, for everybody else.
const BYTES_MAX: u64 = GIB_MAX << 30;

const GIB_MAX: u64 = 512;

/// Why a guest's memory is refused.
#[derive(Debug, Error)]
pub(super) enum MemoryError {
    /// The memory itself: for one, it is not sealed, so it could be cut off under whoever reads it.
    #[error("guest memory: {0} (QEMU: memory-backend-memfd,share=on)")]
    Region(#[from] RegionError),
    /// More than is mapped for one guest.
    #[error("guest memory of more than {GIB_MAX} GiB")]
    Bytes,
    /// An entry that names bytes that its file does not have.
    #[error("guest memory: {0}")]
    Outside(#[from] OutsideRegion),
    /// Not a descriptor a region.
    #[error("a memory table of {regions} regions with {fds} descriptors")]
    Descriptors {
        /// Regions in the table.
        regions: usize,
        /// That came with it.
        fds: usize,
    },
    /// A region that ends beyond all addresses.
    #[error("guest memory at {0:#x} wraps")]
    Wraps(u64),
}

#[derive(Debug)]
struct Mapped {
    entry: RegionEntry,
    bytes: Buffers,
}

/// Bytes of the guest's that were looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    region: usize,
    offset: usize,
    pub(super) bytes: usize,
}

/// The memory table.
#[derive(Debug, Default)]
pub(super) struct Memory {
    regions: Vec<Mapped>,
}

impl Memory {
    pub(super) fn map(entries: &[RegionEntry], fds: Vec<OwnedFd>) -> Result<Self, MemoryError> {
        if entries.len() != fds.len() {
            return Err(MemoryError::Descriptors { regions: entries.len(), fds: fds.len() });
        }
        // A file is mapped once, however many entries are in it: below and above 4 GiB, for one.
        let mut files: Vec<Arc<Region>> = Vec::new();
        let map = |(entry, fd): (&RegionEntry, OwnedFd)| {
            let ends =
                [entry.guest_address, entry.user_address].map(|at| at.checked_add(entry.bytes));
            if ends.contains(&None) {
                return Err(MemoryError::Wraps(entry.guest_address));
            }
            let mapped: u64 = files.iter().map(|file| file.length_bytes() as u64).sum();
            let region = Region::attach_among(fd, BYTES_MAX - mapped, &files);
            let region = region.map_err(|error| match error {
                RegionError::Size { bytes: 1.. } => MemoryError::Bytes,
                error => error.into(),
            })?;
            if !files.iter().any(|file| Arc::ptr_eq(file, &region)) {
                files.push(Arc::clone(&region));
            }
            let number = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
            let (offset, bytes) = (number(entry.file_offset), number(entry.bytes));
            Ok(Mapped { entry: *entry, bytes: Buffers::new(&region, offset, bytes, 1)? })
        };
        let regions = entries.iter().zip(fds).map(map).collect::<Result<_, _>>()?;
        Ok(Self { regions })
    }

    /// Where `bytes` at a guest-physical address are; `None` when they do not lie in one region.
    #[inline]
    pub(super) fn place(&self, address: u64, bytes: usize) -> Option<Place> {
        self.regions.iter().enumerate().find_map(|(region, mapped)| {
            let offset = inside(address, bytes, mapped.entry.guest_address, mapped.entry.bytes)?;
            Some(Place { region, offset, bytes })
        })
    }

    #[inline]
    pub(super) fn buffer(&self, place: Place) -> Option<Buffer<'_>> {
        self.regions.get(place.region)?.bytes.get(0)?.cut(place.offset, place.bytes)
    }

    /// Atomics at an address of the hypervisor's.
    pub(super) fn view<A: Atomic>(&self, address: u64, count: usize) -> Option<View<A>> {
        let bytes = count.checked_mul(size_of::<A>())?;
        self.regions.iter().find_map(|mapped| {
            let offset = inside(address, bytes, mapped.entry.user_address, mapped.entry.bytes)?;
            let region: &Arc<Region> = mapped.bytes.region();
            let in_file = usize::try_from(mapped.entry.file_offset).ok()?.checked_add(offset)?;
            region.view(in_file, count).ok()
        })
    }
}

/// How far into a region an address lies, if all its bytes do.
#[inline]
fn inside(address: u64, bytes: usize, start: u64, length: u64) -> Option<usize> {
    let offset = address.checked_sub(start)?;
    let end = offset.checked_add(bytes as u64)?;
    (end <= length).then(|| usize::try_from(offset).ok()).flatten()
}

impl GuestMemory for Memory {
    fn read(&self, address: u64, out: &mut [u8]) -> bool {
        let buffer = self.place(address, out.len()).and_then(|place| self.buffer(place));
        buffer.is_some_and(|buffer| buffer.read(0, out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn addresses_outside_the_table_are_none() {
        let file = Region::create("guest", 2 << 20).unwrap();
        let fd = || file.fd().unwrap().as_fd().try_clone_to_owned().unwrap();
        let entry = |guest_address, file_offset| RegionEntry {
            guest_address,
            bytes: 8192,
            user_address: 0x7000_0000 + guest_address,
            file_offset,
        };
        let memory = Memory::map(&[entry(4096, 0), entry(65536, 8192)], vec![fd(), fd()]).unwrap();
        assert!(memory.place(4096, 8192).is_some() && memory.place(12287, 1).is_some());
        for (address, bytes) in [(4095, 1), (12287, 2), (0, 1), (u64::MAX, 1), (4096, usize::MAX)] {
            assert_eq!(memory.place(address, bytes), None, "{address:#x} {bytes}");
        }
        let second = memory.place(65537, 3).unwrap();
        assert!(memory.buffer(second).unwrap().write(0, &[1, 2, 3]));
        assert_eq!(
            Buffers::new(&file, 8193, 3, 1).unwrap().get(0).unwrap().take(0),
            Some([1, 2, 3])
        );
        let mut out = [0; 3];
        assert!(memory.read(65537, &mut out) && out == [1, 2, 3] && !memory.read(73727, &mut out));
        type Word = std::sync::atomic::AtomicU16;
        assert!(memory.view::<Word>(0x7000_0000 + 4096, 4096).is_some());
        assert!(memory.view::<Word>(0x7000_0000 + 4096, 4097).is_none());
        assert!(memory.view::<Word>(0x7000_0000 + 4097, 1).is_none(), "not aligned");
        assert!(memory.view::<Word>(4096, 1).is_none(), "the guest's address");
    }

    /// Files without pages cost their maker nothing, but whoever maps them addresses, of which all guests' ports have
    /// one lot.
    #[test]
    fn a_guest_has_so_many_bytes_in_all_and_a_file_counts_once() {
        let sparse = || {
            let flags = rustix::fs::MemfdFlags::CLOEXEC | rustix::fs::MemfdFlags::ALLOW_SEALING;
            let fd = rustix::fs::memfd_create("sparse", flags).unwrap();
            rustix::fs::ftruncate(&fd, BYTES_MAX / 2).unwrap();
            let seals = rustix::fs::SealFlags::SHRINK | rustix::fs::SealFlags::GROW;
            rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
            fd
        };
        let entry = |guest_address| RegionEntry {
            guest_address,
            bytes: 4096,
            user_address: guest_address,
            file_offset: guest_address,
        };
        let entries = [0, 1 << 20, 2 << 20].map(entry);
        let (one, other) = (sparse(), sparse());
        let copy = || one.try_clone().unwrap();
        let memory = Memory::map(&entries, vec![copy(), copy(), other]).unwrap();
        let [first, second, third] = &memory.regions[..] else { panic!() };
        assert!(Arc::ptr_eq(first.bytes.region(), second.bytes.region()));
        assert!(!Arc::ptr_eq(first.bytes.region(), third.bytes.region()));
        drop(memory);
        let refused = Memory::map(&entries, vec![copy(), sparse(), sparse()]).unwrap_err();
        assert!(matches!(refused, MemoryError::Bytes), "{refused}");
    }

    #[test]
    fn hostile_tables_are_refused() {
        let file = Region::create("guest", 2 << 20).unwrap();
        let fd = || file.fd().unwrap().as_fd().try_clone_to_owned().unwrap();
        let entry = |address, bytes, file_offset| RegionEntry {
            guest_address: address,
            bytes,
            user_address: 0,
            file_offset,
        };
        let refused = |entry, fds| Memory::map(&[entry], fds).unwrap_err();
        let one = || vec![fd()];
        assert!(matches!(refused(entry(0, 1, 0), vec![]), MemoryError::Descriptors { .. }));
        assert!(matches!(
            refused(entry(0, 1, 0), vec![fd(), fd()]),
            MemoryError::Descriptors { .. }
        ));
        assert!(matches!(refused(entry(u64::MAX, 2, 0), one()), MemoryError::Wraps(_)));
        assert!(matches!(refused(entry(0, (2 << 20) + 1, 0), one()), MemoryError::Outside(_)));
        assert!(matches!(refused(entry(0, 2, u64::MAX), one()), MemoryError::Outside(_)));
        let device = std::fs::File::open("/dev/zero").unwrap().into();
        assert!(matches!(refused(entry(0, 1, 0), vec![device]), MemoryError::Region(_)));
    }
}
