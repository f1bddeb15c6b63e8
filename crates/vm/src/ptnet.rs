//! The memory of a port whose rings a guest drives itself: made and kept by the guest's keeper, lent to the switch or joined
//! to a device's queue.
//!
//! It is laid out as any port's memory; what else the guest and the keeper have to tell each other is in a part of page 0
//! that is otherwise unused (`docs/attachment.md`, "A guest's own port"). The guest may write anything anywhere in it at
//! any time. The keeper believes nothing of it but the number of the reset that the guest asks for, and the switch checks
//! what it takes from the rings, as of any client.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use packet_switch::attachment::{PAIRS_MAX, Shape, TrustSeat};
use ring::{Bells, Geometry, Layout};
use shm::{Bell, Region, View};
use sys::SyscallError;

use crate::VmError;
use crate::ivshmem::Descriptors;

/// Most pairs of queues of a guest that drives its port's rings itself.
pub(crate) const RING_QUEUES_MAX: u32 = PAIRS_MAX;

/// Doorbells of the host, and as many interrupts of the guest: for each queue one of its transmit ring and one of its receive
/// ring, then that of the control.
pub(crate) fn vectors(queues: u32) -> usize {
    2 * queues as usize + 1
}

/// As of the ports of devices: the slots of their super-segments are copied to slots of this port one by one.
pub(crate) fn shape() -> Shape {
    Shape::of_device()
}

/// Its rings, one pair for each queue, and no spare buffers.
pub(crate) fn geometry(queues: u32) -> Geometry {
    let Shape { slots, buffer_bytes } = shape();
    Geometry { tx_rings: queues, rx_rings: queues, slots, buffer_bytes, extra_buffers: 0 }
}

/// Longest frame's payload that any guest may be configured for, bytes.
pub(crate) const MTU_MAX: u32 = 9000;

/// What a guest is told of its network device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Traits {
    /// Hardware address.
    pub(crate) mac: [u8; 6],
    /// Bytes of virtio-net header before each frame: 0 where nobody finishes checksums and segments for it.
    pub(crate) header_bytes: u8,
    /// Longest payload that it may be configured for, bytes; drivers take no less than 1500.
    pub(crate) mtu_max: u32,
    /// Pairs of queues, 1 to [`RING_QUEUES_MAX`]; in a trust group 1.
    pub(crate) queues: u32,
}

/// Where the part of page 0 of the guest at the first seat begins, those of others follow.
const PAGE_OFFSET: usize = 2048;
const PART_BYTES: usize = 4 * word::COUNT;
/// "CSPTNET1", little-endian.
const MAGIC: u64 = 0x3154_454e_5450_5343;
/// With one pair of queues, as drivers know it that know of no more.
const VERSION: u32 = 1;
/// With several.
const VERSION_QUEUES: u32 = 2;

/// Words of that part.
mod word {
    pub(super) const MAGIC: usize = 0;
    pub(super) const VERSION: usize = 2;
    pub(super) const HEADER_BYTES: usize = 3;
    pub(super) const MTU_MAX: usize = 4;
    pub(super) const MAC: usize = 5;
    pub(super) const GENERATION: usize = 7;
    pub(super) const LINK: usize = 8;
    pub(super) const QUEUES: usize = 9;
    /// The guest's, in a cache line of its own.
    pub(super) const RESET: usize = 16;
    pub(super) const COUNT: usize = 32;
}

/// Memory and doorbells of a guest's port.
#[derive(Debug)]
pub(crate) struct PortMemory {
    region: Arc<Region>,
    page: View<AtomicU32>,
    traits: Traits,
    /// In the memory of a trust group.
    seat: Option<TrustSeat>,
    doorbells: Vec<Bell>,
    interrupts: Vec<Bell>,
}

impl PortMemory {
    /// New memory for a guest with such a device.
    ///
    /// # Errors
    /// No memory or descriptor left.
    pub(crate) fn new(traits: Traits) -> Result<Self, VmError> {
        let geometry = geometry(traits.queues);
        let failed = |error: &dyn std::fmt::Display| VmError::NotStarted(error.to_string());
        // A device's memory has such a length, or QEMU aborts.
        let bytes = geometry.region_bytes().map_err(|error| failed(&error))?.next_power_of_two();
        let region = Region::create("clearstream-ptnet", bytes).map_err(|error| failed(&error))?;
        Layout::format(&region, &geometry).map_err(|error| failed(&error))?;
        Self::at(region, traits, None)
    }

    /// A seat in the memory of a trust group, which the switch has made.
    ///
    /// # Errors
    /// The memory is not what it should be, or no descriptor is left.
    pub(crate) fn of_group(
        memory: OwnedFd,
        traits: Traits,
        seat: TrustSeat,
    ) -> Result<Self, VmError> {
        let region = Region::attach(memory);
        let region = region.map_err(|error| VmError::NotStarted(error.to_string()))?;
        Self::at(region, traits, Some(seat))
    }

    fn at(region: Arc<Region>, traits: Traits, seat: Option<TrustSeat>) -> Result<Self, VmError> {
        let number = seat.as_ref().map_or(0, |seat| usize::from(seat.seat));
        let page = region.view(PAGE_OFFSET + number * PART_BYTES, word::COUNT);
        let page = page.map_err(|error| VmError::NotStarted(error.to_string()))?;
        let bells =
            || (0..vectors(traits.queues)).map(|_| Bell::new()).collect::<Result<Vec<_>, _>>();
        let (doorbells, interrupts) = (bells()?, bells()?);
        let memory = Self { region, page, traits, seat, doorbells, interrupts };
        // Another guest may have had the seat.
        [word::GENERATION, word::LINK, word::RESET].into_iter().for_each(|at| memory.put(at, 0));
        memory.describe();
        Ok(memory)
    }

    /// The guest's seat in the memory of a trust group, if it is one's.
    pub(crate) fn seat(&self) -> Option<&TrustSeat> {
        self.seat.as_ref()
    }

    /// Writes what does not change, over whatever a guest has made of it.
    pub(crate) fn describe(&self) {
        let Traits { mac: [a, b, c, d, e, f], header_bytes, mtu_max, queues } = self.traits;
        self.put(word::VERSION, if queues > 1 { VERSION_QUEUES } else { VERSION });
        self.put(word::QUEUES, queues);
        self.put(word::HEADER_BYTES, header_bytes.into());
        self.put(word::MTU_MAX, mtu_max);
        self.put(word::MAC, u32::from_le_bytes([a, b, c, d]));
        self.put(word::MAC + 1, u32::from_le_bytes([e, f, 0, 0]));
        self.put(word::MAGIC, MAGIC as u32);
        self.put(word::MAGIC + 1, (MAGIC >> 32) as u32);
    }

    fn put(&self, word: usize, value: u32) {
        self.page[word].store(value.to_le(), Ordering::Release);
    }

    /// The reset that the guest asks for; 0 is none: it has no driver.
    pub(crate) fn reset(&self) -> u32 {
        u32::from_le(self.page[word::RESET].load(Ordering::Acquire))
    }

    /// Tells the guest which reset its rings are of (0: of none), and whether there is a link behind them.
    pub(crate) fn tell(&self, generation: u32, has_link: bool) -> Result<(), SyscallError> {
        // Whoever sees the link up sees the rings as they are then.
        self.put(word::GENERATION, generation);
        self.put(word::LINK, has_link.into());
        // What was rung while nobody listened is lost: the guest looks at its rings.
        self.interrupts.iter().try_for_each(Bell::ring)
    }

    /// Rung by the guest when it asks for a reset.
    pub(crate) fn control(&self) -> &Bell {
        &self.doorbells[self.doorbells.len() - 1]
    }

    /// What the switch maps.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.region.fd().expect("made as shared memory")
    }

    /// Of each queue's transmit ring and receive ring: the bell that the switch waits for, and the one that it rings.
    pub(crate) fn bells(&self) -> Vec<[[&Bell; 2]; 2]> {
        let of_queue = |queue: usize| {
            [2 * queue, 2 * queue + 1].map(|ring| [&self.doorbells[ring], &self.interrupts[ring]])
        };
        (0..self.traits.queues as usize).map(of_queue).collect()
    }

    /// The memory itself.
    pub(crate) fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Other handles to the bells of the first queue, for an owner of the rings in this process.
    ///
    /// # Errors
    /// No descriptor left.
    pub(crate) fn owner_bells(&self) -> Result<[Bells; 2], SyscallError> {
        let bells = |[ours, theirs]: [&Bell; 2]| {
            Ok::<_, SyscallError>(Bells { ours: ours.share()?, theirs: theirs.share()? })
        };
        let [tx, rx] = [0, 1].map(|ring| [&self.doorbells[ring], &self.interrupts[ring]]);
        Ok([bells(tx)?, bells(rx)?])
    }

    /// What QEMU makes the device of.
    ///
    /// # Errors
    /// No descriptor left.
    pub(crate) fn descriptors(&self) -> Result<Descriptors, SyscallError> {
        let own = |fd: BorrowedFd<'_>| {
            fd.try_clone_to_owned().map_err(|error| SyscallError::new("dup", "ptnet", error))
        };
        let all = |bells: &[Bell]| -> Result<Vec<OwnedFd>, _> {
            bells.iter().map(|bell| own(bell.as_fd())).collect()
        };
        Ok(Descriptors {
            memory: own(self.fd())?,
            seat: self.seat.as_ref().map_or(0, |seat| seat.seat),
            doorbells: all(&self.doorbells)?,
            interrupts: all(&self.interrupts)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traits(queues: u32) -> Traits {
        Traits { mac: [0x52, 0x54, 0, 1, 2, 3], header_bytes: 10, mtu_max: MTU_MAX, queues }
    }

    #[test]
    fn the_memory_is_a_power_of_two_and_the_page_is_as_documented() {
        let memory = PortMemory::new(traits(1)).unwrap();
        assert_eq!(memory.region.length_bytes(), 16 << 20);
        assert_eq!((memory.reset(), &MAGIC.to_le_bytes()), (0, b"CSPTNET1"));
        memory.tell(7, true).unwrap();
        // A guest writes where it likes.
        memory.page[word::MAC].store(0, Ordering::Relaxed);
        memory.page[word::RESET].store(9, Ordering::Relaxed);
        memory.describe();
        assert_eq!(memory.reset(), 9);
        let words: Vec<u32> = (0..10).map(|at| memory.page[at].load(Ordering::Relaxed)).collect();
        let [low, high] = [MAGIC as u32, (MAGIC >> 32) as u32];
        assert_eq!(words, [low, high, 1, 10, 9000, 0x0100_5452, 0x0302, 7, 1, 1]);
        assert_eq!(memory.interrupts.len(), 3);
        assert!(memory.interrupts.iter().all(|bell| bell.wait(None).unwrap()));
    }

    #[test]
    fn several_queues_have_rings_and_vectors_each_and_a_version_that_older_drivers_refuse() {
        for (queues, mib) in [(2, 32), (4, 64), (RING_QUEUES_MAX, 128)] {
            let memory = PortMemory::new(traits(queues)).unwrap();
            assert_eq!(memory.region.length_bytes(), mib << 20, "{queues} queues");
            let word = |at: usize| memory.page[at].load(Ordering::Relaxed);
            assert_eq!((word(word::VERSION), word(word::QUEUES)), (2, queues));
            let bells = memory.bells();
            assert_eq!((bells.len(), memory.doorbells.len()), (queues as usize, vectors(queues)));
            // Each bell is another: none of a queue's is the control's or another queue's.
            let mut all: Vec<*const Bell> =
                bells.iter().flatten().flatten().map(|&bell| std::ptr::from_ref(bell)).collect();
            all.push(memory.control());
            let count = all.len();
            all.sort_unstable();
            all.dedup();
            assert_eq!((count, all.len()), (4 * queues as usize + 1, 4 * queues as usize + 1));
        }
    }
}
