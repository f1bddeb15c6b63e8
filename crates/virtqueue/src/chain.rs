//! Chains of descriptors, read once and checked.

use crate::Violation;

/// Most descriptors of a chain, indirect ones included; no driver that is known makes longer ones, and QEMU takes
/// no more either (`VIRTQUEUE_MAX_SIZE`).
pub const CHAIN_SEGMENTS_MAX: u32 = 1024;

/// Bytes of a descriptor.
pub const DESCRIPTOR_BYTES: usize = 16;

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

/// The guest's memory, for tables that lie in it.
pub trait GuestMemory {
    /// Copies bytes at a guest-physical address; false when they do not all lie in the guest's memory.
    fn read(&self, address: u64, out: &mut [u8]) -> bool;
}

/// Bytes of the guest's that a chain names. The address is as the driver wrote it: unchecked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Guest-physical address.
    pub address: u64,
    /// Length, bytes; not 0.
    pub length_bytes: u32,
}

/// A chain: segments for the device to read, then segments for it to write. One value serves for many chains, so
/// that taking one allocates nothing.
#[derive(Debug, Clone, Default)]
pub struct Chain {
    head: u16,
    segments: Vec<Segment>,
    /// How many of them are to be read.
    readable: usize,
    readable_bytes: u32,
    writable_bytes: u32,
}

impl Chain {
    /// The number by which it is given back.
    #[must_use]
    pub fn head(&self) -> u16 {
        self.head
    }

    /// What the device is to read.
    #[must_use]
    pub fn readable(&self) -> &[Segment] {
        &self.segments[..self.readable]
    }

    /// What it is to write.
    #[must_use]
    pub fn writable(&self) -> &[Segment] {
        &self.segments[self.readable..]
    }

    /// Bytes of [`readable`](Self::readable).
    #[must_use]
    pub fn readable_bytes(&self) -> u32 {
        self.readable_bytes
    }

    /// Bytes of [`writable`](Self::writable).
    #[must_use]
    pub fn writable_bytes(&self) -> u32 {
        self.writable_bytes
    }

    pub(crate) fn begin(&mut self, head: u16) {
        self.head = head;
        self.segments.clear();
        (self.readable, self.readable_bytes, self.writable_bytes) = (0, 0, 0);
    }

    fn add(&mut self, descriptor: &Descriptor) -> Result<(), Violation> {
        let Descriptor { address, length_bytes, flags, .. } = *descriptor;
        if length_bytes == 0 {
            return Err(Violation::EmptySegment);
        }
        let is_writable = flags & WRITE != 0;
        if !is_writable && self.readable < self.segments.len() {
            return Err(Violation::Order);
        }
        let bytes = if is_writable { &mut self.writable_bytes } else { &mut self.readable_bytes };
        *bytes = bytes.checked_add(length_bytes).ok_or(Violation::TooLong)?;
        self.segments.push(Segment { address, length_bytes });
        self.readable += usize::from(!is_writable);
        Ok(())
    }

    /// Adds the descriptors of a table from `first` on, `read` one by one; an indirect one ends the walk and comes
    /// back where `indirect` allows it.
    pub(crate) fn walk(
        &mut self,
        size: u32,
        first: u16,
        indirect: bool,
        read: impl Fn(u16) -> Result<Descriptor, Violation>,
    ) -> Result<Option<Descriptor>, Violation> {
        let most = size.min(CHAIN_SEGMENTS_MAX);
        let mut number = first;
        for count in 0..most {
            let descriptor = read(number)?;
            if descriptor.flags & INDIRECT != 0 {
                // Drivers may put one at the end of direct descriptors; none is known to do so.
                let may = indirect && count == 0 && descriptor.flags & NEXT == 0;
                return if may { Ok(Some(descriptor)) } else { Err(Violation::Indirect) };
            }
            self.add(&descriptor)?;
            if descriptor.flags & NEXT == 0 {
                return Ok(None);
            }
            if u32::from(descriptor.next) >= size {
                return Err(Violation::Next { next: descriptor.next, size });
            }
            number = descriptor.next;
        }
        Err(Violation::TooManyDescriptors { most })
    }

    /// Adds the descriptors of an indirect table.
    pub(crate) fn walk_table(
        &mut self,
        table: &Descriptor,
        memory: &impl GuestMemory,
    ) -> Result<(), Violation> {
        let bytes = table.length_bytes;
        let each = DESCRIPTOR_BYTES as u32;
        if bytes == 0 || !bytes.is_multiple_of(each) {
            return Err(Violation::IndirectLength { bytes });
        }
        let read = |number: u16| {
            let mut words = [0; DESCRIPTOR_BYTES];
            let address = table.address.checked_add(u64::from(number) * u64::from(each));
            let is_there = address.is_some_and(|address| memory.read(address, &mut words));
            let outside = Violation::IndirectAddress { address: table.address };
            if is_there { Ok(Descriptor::decode(words)) } else { Err(outside) }
        };
        self.walk(bytes / each, 0, false, read).map(|_| ())
    }
}

/// As the guest has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub(crate) address: u64,
    pub(crate) length_bytes: u32,
    pub(crate) flags: u16,
    pub(crate) next: u16,
}

impl Descriptor {
    fn decode(bytes: [u8; DESCRIPTOR_BYTES]) -> Self {
        let word = u128::from_le_bytes(bytes);
        Self::from_words(word as u64, (word >> 64) as u64)
    }

    /// From its two words, as numbers.
    pub(crate) fn from_words(address: u64, rest: u64) -> Self {
        let (flags, next) = ((rest >> 32) as u16, (rest >> 48) as u16);
        Self { address, length_bytes: rest as u32, flags, next }
    }
}
