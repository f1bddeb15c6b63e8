//! Where frames wait: memory for them and the order in which they leave.
//!
//! The owner reads a frame straight into [`DelayLine::space`], then either [`hold`](DelayLine::hold)s
//! it until its time or leaves the space for the next. Nothing is copied while it waits. Frames lie one
//! behind the other in slabs; a slab whose frames have left is filled again, the one given back last first:
//! while frames pass, the memory in use is little more than what is in flight, which keeps it in cache.
//! Slabs are added when all are taken, never given back, and never more than the limit says, which counts
//! all that is allocated.

use std::collections::VecDeque;

/// Longest packet: virtio-net header, Ethernet header and 64 KiB, rounded up to whole pages.
pub const PACKET_BYTES_MAX: usize = 68 * 1024;

/// Frames held until they leave, each with a `Tag` of the owner's.
#[derive(Debug)]
pub struct DelayLine<Tag> {
    slabs: Vec<Slab>,
    /// Slabs without frames.
    free: Vec<usize>,
    /// The slab being filled, and how far.
    current: usize,
    filled_bytes: usize,
    schedule: VecDeque<Held<Tag>>,
    limit_bytes: usize,
}

/// Memory is added by so many bytes.
pub const SLAB_BYTES: usize = 4 * PACKET_BYTES_MAX;
/// Frames begin at cache lines.
const LINE_BYTES: usize = 64;
/// Places of the schedule at first.
const PLACES_MIN: usize = 64;

#[derive(Debug)]
struct Slab {
    bytes: Box<[u8]>,
    frames_count: u32,
}

impl Slab {
    fn new() -> Self {
        Self { bytes: vec![0; SLAB_BYTES].into_boxed_slice(), frames_count: 0 }
    }
}

#[derive(Debug)]
struct Held<Tag> {
    leaves_ns: u64,
    slab: u32,
    begins: u32,
    len: u32,
    tag: Tag,
}

impl<Tag> DelayLine<Tag> {
    /// An empty line that takes at most `limit_bytes` of memory, and at least a slab.
    #[must_use]
    pub fn new(limit_bytes: usize) -> Self {
        Self {
            slabs: vec![Slab::new()],
            free: Vec::new(),
            current: 0,
            filled_bytes: 0,
            schedule: VecDeque::with_capacity(PLACES_MIN),
            limit_bytes,
        }
    }

    /// Where the next frame goes, [`PACKET_BYTES_MAX`] long. To be filled and held with nothing in between.
    pub fn space(&mut self) -> &mut [u8] {
        &mut self.slabs[self.current].bytes[self.filled_bytes..][..PACKET_BYTES_MAX]
    }

    /// Keeps the first `len` bytes of the space until `leaves_ns`; false when the line is full.
    pub fn hold(&mut self, len: usize, leaves_ns: u64, tag: Tag) -> bool {
        let len = len.min(PACKET_BYTES_MAX);
        let (slab, begins) = (self.current, self.filled_bytes);
        let end = begins + len.max(1).next_multiple_of(LINE_BYTES);
        if !self.has_place() || (end + PACKET_BYTES_MAX > SLAB_BYTES && !self.begin_slab()) {
            return false;
        }
        if self.current == slab {
            self.filled_bytes = end;
        }
        self.slabs[slab].frames_count += 1;
        // All of them are below a slab's length, and slabs are few.
        let held =
            Held { leaves_ns, slab: slab as u32, begins: begins as u32, len: len as u32, tag };
        // Almost always the last; a reordered frame before it lets this one pass.
        let behind = self.schedule.iter().rev().take_while(|h| h.leaves_ns > leaves_ns).count();
        self.schedule.insert(self.schedule.len() - behind, held);
        true
    }

    /// When the next frame leaves.
    #[must_use]
    pub fn next_leaves_ns(&self) -> Option<u64> {
        self.schedule.front().map(|held| held.leaves_ns)
    }

    /// Hands the next frame that is due at `now_ns` to `send` with its due time, and frees it; false
    /// when none is due.
    pub fn poll_due(&mut self, now_ns: u64, send: impl FnOnce(&mut [u8], u64, Tag)) -> bool {
        let Some(held) = self.schedule.pop_front_if(|held| held.leaves_ns <= now_ns) else {
            return false;
        };
        let slab = &mut self.slabs[held.slab as usize];
        send(
            &mut slab.bytes[held.begins as usize..][..held.len as usize],
            held.leaves_ns,
            held.tag,
        );
        slab.frames_count -= 1;
        if slab.frames_count == 0 {
            if held.slab as usize == self.current {
                self.filled_bytes = 0;
            } else {
                self.free.push(held.slab as usize);
            }
        }
        true
    }

    /// Frames held.
    #[must_use]
    pub fn held_count(&self) -> usize {
        self.schedule.len()
    }

    /// All that is allocated.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.slabs.len() * SLAB_BYTES + self.schedule.capacity() * size_of::<Held<Tag>>()
    }

    /// Whether one more frame can be written down.
    fn has_place(&mut self) -> bool {
        let places = self.schedule.len();
        if places < self.schedule.capacity() {
            return true;
        }
        // While they move, both are there.
        let more = 2 * places.max(PLACES_MIN);
        let fits = self.memory_bytes() + more * size_of::<Held<Tag>>() <= self.limit_bytes;
        if fits {
            self.schedule.reserve_exact(more - places);
        }
        fits
    }

    /// Goes on in another slab, if there is one.
    fn begin_slab(&mut self) -> bool {
        let next = match self.free.pop() {
            Some(slab) => slab,
            None if self.memory_bytes() + SLAB_BYTES <= self.limit_bytes => {
                self.slabs.push(Slab::new());
                self.slabs.len() - 1
            }
            None => return false,
        };
        (self.current, self.filled_bytes) = (next, 0);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(line: &mut DelayLine<()>, first: u8, len: usize, leaves_ns: u64) -> bool {
        line.space()[..len].fill(first);
        line.hold(len, leaves_ns, ())
    }

    fn due(line: &mut DelayLine<()>, now_ns: u64) -> Vec<(u8, usize, u64)> {
        let mut out = Vec::new();
        while line.poll_due(now_ns, |bytes, at, ()| {
            assert!(bytes.iter().all(|&byte| byte == bytes[0]), "a frame was overwritten");
            out.push((bytes[0], bytes.len(), at));
        }) {}
        out
    }

    #[test]
    fn frames_leave_when_due_in_order_of_time() {
        let mut line = DelayLine::new(1 << 24);
        assert!(put(&mut line, 1, 60_000, 10));
        assert!(put(&mut line, 2, 60, 30));
        assert!(put(&mut line, 3, 9000, 20));
        assert!(put(&mut line, 4, 100, 20));
        assert_eq!(line.next_leaves_ns(), Some(10));
        assert_eq!(due(&mut line, 9), []);
        assert_eq!(due(&mut line, 25), [(1, 60_000, 10), (3, 9000, 20), (4, 100, 20)]);
        assert_eq!(due(&mut line, 30), [(2, 60, 30)]);
        assert_eq!((line.next_leaves_ns(), line.held_count()), (None, 0));
    }

    #[test]
    fn a_full_line_refuses_and_recovers() {
        let limit = 6 * SLAB_BYTES;
        for len in [1, 60, 2000, 2049, 9000, 65_000] {
            let mut line = DelayLine::new(limit);
            for round in 0..3 {
                let held = (0..1 << 20).take_while(|at| put(&mut line, 1, len, *at)).count();
                // At worst a slab's end is left empty, and places in the schedule double.
                let least =
                    limit / 2 / (len.next_multiple_of(LINE_BYTES) + 2 * size_of::<Held<()>>());
                assert!(held >= least, "{held} frames of {len} bytes in round {round}");
                assert!(line.memory_bytes() <= limit, "{} bytes", line.memory_bytes());
                assert_eq!(due(&mut line, 0).len(), 1);
                assert_eq!(due(&mut line, u64::MAX).len(), held - 1);
            }
        }
    }

    #[test]
    fn memory_follows_what_is_in_flight() {
        let mut line = DelayLine::new(1 << 30);
        for round in 0..10_000_u64 {
            assert!(put(&mut line, 1, 65_000, round + 8));
            due(&mut line, round);
        }
        assert!(line.slabs.len() <= 4, "nine frames in flight, four a slab");
    }

    #[test]
    fn any_sequence_keeps_bytes_and_order() {
        bolero::check!().with_type::<Vec<(u8, u16, u8)>>().for_each(|frames| {
            let mut line = DelayLine::new(1 << 24);
            let mut expected = Vec::new();
            for (index, &(first, len, leaves)) in frames.iter().enumerate() {
                let len = usize::from(len).max(1);
                if put(&mut line, first, len, u64::from(leaves)) {
                    expected.push((u64::from(leaves), index, first, len));
                }
            }
            expected.sort_unstable_by_key(|&(leaves, index, ..)| (leaves, index));
            let expected: Vec<_> =
                expected.into_iter().map(|(at, _, first, len)| (first, len, at)).collect();
            assert_eq!(due(&mut line, 255), expected);
        });
    }
}
