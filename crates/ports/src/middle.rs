//! Parts that stand between two ends: each is a [`Sink`] in front of another and looks at packets where they
//! lie. A stack is a type, `Inspected<Counters, Inspected<Capture<_>, ToRing>>`; what nobody asks for does not
//! exist and costs nothing. What holds packets back is [`Delayed`](crate::Delayed).

use std::time::Instant;

use shm::Buffer;
use switch::frame::{FrameShape, VNET_HEADER_BYTES};
use switch::lightpath::{Lightpath, Verdict};

use crate::end::{EndError, Fill, Filled, Moved, Parts, Sink};

/// Looks at packets as they pass.
pub trait Inspect {
    /// Sees one, of `bytes` in all; false to drop it.
    fn see<'a>(&mut self, bytes: usize, parts: impl Parts<'a>) -> bool;
}

/// A sink behind something that looks at each packet, once.
#[derive(Debug)]
pub struct Inspected<I, S> {
    /// The inspector.
    pub inspect: I,
    to: S,
    /// The packet that comes next was seen already, when the sink had no room for it.
    is_seen: bool,
}

impl<I: Inspect, S: Sink> Inspected<I, S> {
    /// In front of `to`.
    pub fn new(inspect: I, to: S) -> Self {
        Self { inspect, to, is_seen: false }
    }

    /// What it stands in front of.
    pub fn into_sink(self) -> S {
        self.to
    }
}

impl<I: Inspect, S: Sink> Sink for Inspected<I, S> {
    #[inline]
    fn put<'a>(&mut self, bytes: usize, parts: impl Parts<'a>) -> Result<Moved, EndError> {
        if !self.is_seen && !self.inspect.see(bytes, parts.clone()) {
            return Ok(Moved::Dropped);
        }
        let moved = self.to.put(bytes, parts)?;
        self.is_seen = moved == Moved::NoRoom;
        Ok(moved)
    }

    #[inline]
    fn fill(&mut self, from: &mut impl Fill) -> Result<Moved, EndError> {
        self.to.fill(&mut Seen { inspect: &mut self.inspect, from })
    }

    #[inline]
    fn is_urgent(&self) -> bool {
        self.to.is_urgent()
    }

    #[inline]
    fn flush(&mut self) -> Result<(), EndError> {
        self.to.flush()
    }
}

/// Packets that are looked at in the space they were written to.
struct Seen<'s, I, F> {
    inspect: &'s mut I,
    from: &'s mut F,
}

impl<I: Inspect, F: Fill> Fill for Seen<'_, I, F> {
    #[inline]
    fn fill<'a>(
        &mut self,
        space: impl Iterator<Item = Buffer<'a>> + Clone,
    ) -> Result<Filled, EndError> {
        let filled = self.from.fill(space.clone())?;
        let Filled::Bytes(bytes) = filled else { return Ok(filled) };
        let parts = space.scan(bytes, |left, buffer| {
            let part = buffer.first(*left);
            *left -= part.length_bytes();
            (part.length_bytes() > 0).then_some(part)
        });
        Ok(if self.inspect.see(bytes, parts) { filled } else { Filled::Dropped })
    }
}

/// Counts what passes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counters {
    /// Packets.
    pub packets: u64,
    /// Their bytes, headers included.
    pub bytes: u64,
}

impl Inspect for Counters {
    #[inline]
    fn see<'a>(&mut self, bytes: usize, _parts: impl Parts<'a>) -> bool {
        self.packets += 1;
        self.bytes += bytes as u64;
        true
    }
}

/// Copies the beginning of each packet for somebody who watches.
#[derive(Debug)]
pub struct Capture<F> {
    head: Vec<u8>,
    record: F,
}

impl<F: FnMut(&[u8], usize)> Capture<F> {
    /// Gives at most `snap_bytes` of each packet to `record`, with the packet's length in bytes.
    pub fn new(snap_bytes: usize, record: F) -> Self {
        Self { head: vec![0; snap_bytes], record }
    }
}

impl<F: FnMut(&[u8], usize)> Inspect for Capture<F> {
    fn see<'a>(&mut self, bytes: usize, parts: impl Parts<'a>) -> bool {
        let copied = copy_out(&mut self.head, parts);
        (self.record)(&self.head[..copied], bytes);
        true
    }
}

/// Loses packets as a lightpath does, without its delay. A super-segment is lost whole.
#[derive(Debug)]
pub struct Loss {
    path: Lightpath,
    began: Instant,
}

impl Loss {
    /// As often as this path says.
    #[must_use]
    pub fn new(path: Lightpath) -> Self {
        Self { path, began: Instant::now() }
    }
}

impl Inspect for Loss {
    fn see<'a>(&mut self, bytes: usize, _parts: impl Parts<'a>) -> bool {
        let now_ns = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let frame_bytes = u32::try_from(bytes.saturating_sub(VNET_HEADER_BYTES));
        let shape = FrameShape::one_packet(frame_bytes.unwrap_or(u32::MAX), false);
        matches!(self.path.handle_frame(now_ns, &shape), Verdict::Forward { .. })
    }
}

/// Copies the beginning of a packet, as much as there is room for; how many bytes.
pub(crate) fn copy_out<'a>(out: &mut [u8], parts: impl Parts<'a>) -> usize {
    let mut at = 0;
    for part in parts {
        let length = part.length_bytes().min(out.len() - at);
        let read = part.cut(0, length).is_some_and(|part| part.read(0, &mut out[at..][..length]));
        debug_assert!(read, "no longer than the part");
        at += length;
    }
    at
}
