//! Reusable byte vectors: for copies of short messages, unexpected messages and early packets.

/// Capacities in bytes, and how many free vectors of each are kept at most.
const CLASSES: [(usize, usize); 3] = [(256, 1024), (2048, 512), (32_768, 64)];

/// Free vectors by capacity.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    free: [Vec<Vec<u8>>; CLASSES.len()],
    lent_bytes: u64,
}

impl Pool {
    /// Total bytes of the vectors in use: the capacity of their class, or as requested above the
    /// largest.
    pub(crate) fn lent_bytes(&self) -> u64 {
        self.lent_bytes
    }

    /// An empty vector with room for `bytes`.
    pub(crate) fn take(&mut self, bytes: usize) -> Vec<u8> {
        if bytes == 0 {
            return Vec::new();
        }
        let class = CLASSES.iter().position(|(capacity, _)| bytes <= *capacity);
        let capacity = class.map_or(bytes, |class| CLASSES[class].0);
        self.lent_bytes += capacity as u64;
        let kept = class.and_then(|class| self.free[class].pop());
        kept.unwrap_or_else(|| Vec::with_capacity(capacity))
    }

    /// Takes back a vector that [`take`](Self::take) returned for the same `bytes`.
    pub(crate) fn put(&mut self, mut vector: Vec<u8>, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let class = CLASSES.iter().position(|(capacity, _)| bytes <= *capacity);
        let capacity = class.map_or(bytes, |class| CLASSES[class].0);
        self.lent_bytes -= capacity as u64;
        if let Some(class) = class
            && self.free[class].len() < CLASSES[class].1
        {
            vector.clear();
            self.free[class].push(vector);
        }
    }
}
