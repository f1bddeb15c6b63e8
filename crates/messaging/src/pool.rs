//! Byte vectors that are used again: copies of small messages, unexpected messages, early packets.

/// Capacities that are kept, and how many of each at most.
const CLASSES: [(usize, usize); 3] = [(256, 1024), (2048, 512), (32_768, 64)];

/// Vectors by capacity.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    free: [Vec<Vec<u8>>; CLASSES.len()],
    lent_bytes: u64,
}

impl Pool {
    /// Bytes of the vectors that are lent, as asked for.
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

    /// Takes a vector back that [`take`](Self::take) gave for as many bytes.
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
