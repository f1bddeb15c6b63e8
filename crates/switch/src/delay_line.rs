//! Where frames wait: a pool of buffers and the order in which they leave.
//!
//! The owner reads a frame straight into [`DelayLine::space`], then either [`hold`](DelayLine::hold)s
//! it until its time or leaves the space for the next. Nothing is copied while it waits, except that
//! frames of up to [`SMALL_BYTES`] move to a small buffer, so that a million of them stay compact.
//! The buffer given back last is used first: while frames pass, the memory in use is what is in
//! flight and not more, which keeps it in cache. Buffers are added when all are taken, never given
//! back, and never more than the limit says.

use std::collections::VecDeque;

/// Longest packet: virtio-net header, Ethernet header and 64 KiB, rounded up to whole pages.
pub const PACKET_BYTES_MAX: usize = 68 * 1024;

/// Frames up to this length are moved to a small buffer.
pub const SMALL_BYTES: usize = 2048;

/// Frames held until they leave, each with a `Tag` of the owner's.
#[derive(Debug)]
pub struct DelayLine<Tag> {
    large: Pool,
    small: Pool,
    space: usize,
    schedule: VecDeque<Held<Tag>>,
    held_bytes: usize,
    limit_bytes: usize,
}

#[derive(Debug)]
struct Held<Tag> {
    leaves_ns: u64,
    buffer: usize,
    len: usize,
    tag: Tag,
}

impl<Tag> DelayLine<Tag> {
    /// An empty line for at most `limit_bytes` of frames.
    #[must_use]
    pub fn new(limit_bytes: usize) -> Self {
        let mut large = Pool::new(PACKET_BYTES_MAX);
        let space = large.take();
        Self {
            large,
            small: Pool::new(SMALL_BYTES),
            space,
            schedule: VecDeque::new(),
            held_bytes: 0,
            limit_bytes,
        }
    }

    /// Where the next frame goes, [`PACKET_BYTES_MAX`] long.
    pub fn space(&mut self) -> &mut [u8] {
        self.large.get(self.space)
    }

    /// Keeps the first `len` bytes of the space until `leaves_ns`; false when the line is full.
    pub fn hold(&mut self, len: usize, leaves_ns: u64, tag: Tag) -> bool {
        // Short frames count as the buffer they take, so that the limit bounds memory.
        if self.held_bytes + len.max(SMALL_BYTES) > self.limit_bytes {
            return false;
        }
        self.held_bytes += len.max(SMALL_BYTES);
        let buffer = if len <= SMALL_BYTES {
            let buffer = self.small.take();
            self.small.get(buffer)[..len].copy_from_slice(&self.large.get(self.space)[..len]);
            buffer
        } else {
            std::mem::replace(&mut self.space, self.large.take())
        };
        let held = Held { leaves_ns, buffer, len, tag };
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
        let pool = if held.len <= SMALL_BYTES { &mut self.small } else { &mut self.large };
        send(&mut pool.get(held.buffer)[..held.len], held.leaves_ns, held.tag);
        pool.give_back(held.buffer);
        self.held_bytes -= held.len.max(SMALL_BYTES);
        true
    }

    /// Frames held.
    #[must_use]
    pub fn held_count(&self) -> usize {
        self.schedule.len()
    }
}

/// Buffers of one size; the one given back last is taken first.
#[derive(Debug)]
struct Pool {
    buffer_bytes: usize,
    slabs: Vec<Box<[u8]>>,
    free: Vec<usize>,
}

/// Buffers are added by so many bytes.
const SLAB_BYTES: usize = 68 * 1024 * 16;

impl Pool {
    fn new(buffer_bytes: usize) -> Self {
        Self { buffer_bytes, slabs: Vec::new(), free: Vec::new() }
    }

    fn per_slab_count(&self) -> usize {
        SLAB_BYTES / self.buffer_bytes
    }

    fn take(&mut self) -> usize {
        if let Some(index) = self.free.pop() {
            return index;
        }
        let first = self.slabs.len() * self.per_slab_count();
        self.slabs.push(vec![0; SLAB_BYTES].into_boxed_slice());
        self.free.extend((first + 1..first + self.per_slab_count()).rev());
        first
    }

    fn give_back(&mut self, index: usize) {
        self.free.push(index);
    }

    fn get(&mut self, index: usize) -> &mut [u8] {
        let start = index % self.per_slab_count() * self.buffer_bytes;
        let slab = index / self.per_slab_count();
        &mut self.slabs[slab][start..start + self.buffer_bytes]
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
        assert_eq!((line.next_leaves_ns(), line.held_count(), line.held_bytes), (None, 0, 0));
    }

    #[test]
    fn a_full_line_refuses_and_recovers() {
        let mut line = DelayLine::new(3 * SMALL_BYTES);
        assert!(put(&mut line, 1, 60, 1) && put(&mut line, 2, 60, 2) && put(&mut line, 3, 60, 3));
        assert!(!put(&mut line, 4, 60, 4));
        assert_eq!(due(&mut line, 1).len(), 1);
        assert!(put(&mut line, 5, 60, 5));
    }

    #[test]
    fn memory_follows_what_is_in_flight() {
        let mut line = DelayLine::new(1 << 30);
        for round in 0..10_000_u64 {
            assert!(put(&mut line, 1, 65_000, round + 8));
            due(&mut line, round);
        }
        assert_eq!(line.large.slabs.len(), 1, "nine frames in flight fit one slab");
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
