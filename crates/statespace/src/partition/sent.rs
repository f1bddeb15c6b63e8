//! States sent lately, so that few are sent twice: neighbours lead to the same states again and again.

/// Memory for it, bytes: what a second-level cache holds.
const BYTES: usize = 1 << 20;

/// A table with one place for each hash; the newest stays.
#[derive(Debug)]
pub(super) struct Sent {
    state_bytes: usize,
    mask: usize,
    states: Vec<u8>,
    /// Distances they were sent with; 0 is an empty place.
    distances: Vec<u32>,
}

impl Sent {
    pub(super) fn new(state_bytes: usize) -> Self {
        let fitting = BYTES / (state_bytes + size_of::<u32>());
        let places = ((fitting + 1).next_power_of_two() / 2).max(1);
        Self {
            state_bytes,
            mask: places - 1,
            states: vec![0; places * state_bytes],
            distances: vec![0; places],
        }
    }

    /// Whether this state was sent with this distance, which is never 0, or a smaller one; from now
    /// on it was.
    #[inline]
    pub(super) fn knows(&mut self, hash: u64, state: &[u8], distance: u32) -> bool {
        let place = hash as usize & self.mask;
        let known = &mut self.distances[place];
        let at = place * self.state_bytes;
        let kept = &mut self.states[at..at + self.state_bytes];
        if *known != 0 && *known <= distance && kept == state {
            return true;
        }
        *known = distance;
        kept.copy_from_slice(state);
        false
    }

    pub(super) fn clear(&mut self) {
        self.distances.fill(0);
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.states.len() + self.distances.len() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_sent_from_as_near_is_known() {
        let mut sent = Sent::new(3);
        assert!(!sent.knows(9, &[1, 2, 3], 5));
        assert!(sent.knows(9, &[1, 2, 3], 5) && sent.knows(9, &[1, 2, 3], 6));
        assert!(!sent.knows(9, &[1, 2, 3], 4), "nearer than it was sent");
        assert!(!sent.knows(9, &[1, 2, 4], 4), "another of the same hash");
        assert!(!sent.knows(9, &[1, 2, 3], 4), "forgotten for the other");
        sent.clear();
        assert!(!sent.knows(9, &[1, 2, 3], 4));
        assert!(!Sent::new(5 << 20).knows(1, &vec![0; 5 << 20], 1), "longer than the whole table");
    }
}
