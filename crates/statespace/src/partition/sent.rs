//! States sent lately, so that few are sent twice: neighbours lead to the same states again and again.

/// Memory for it, bytes: a small part of a second-level cache.
const BYTES: usize = 1 << 16;

/// Bytes of a distance.
const DISTANCE_BYTES: usize = size_of::<u32>();

/// A table with one place for each hash; the newest stays.
#[derive(Debug)]
pub(crate) struct Sent {
    place_bytes: usize,
    mask: usize,
    /// In each place the distance a state was sent with, 0 where none was, and the state.
    places: Vec<u8>,
}

impl Sent {
    pub(crate) fn new(state_bytes: usize) -> Self {
        let place_bytes = DISTANCE_BYTES + state_bytes;
        let places = ((BYTES / place_bytes + 1).next_power_of_two() / 2).max(1);
        Self { place_bytes, mask: places - 1, places: vec![0; places * place_bytes] }
    }

    /// Whether this state was sent with this distance, which is never 0, or a smaller one; from now
    /// on it was.
    #[inline]
    pub(crate) fn knows(&mut self, hash: u64, state: &[u8], distance: u32) -> bool {
        let at = (hash as usize & self.mask) * self.place_bytes;
        let place = &mut self.places[at..at + self.place_bytes];
        let (known, kept) = place.split_at_mut(DISTANCE_BYTES);
        let known_distance = u32::from_le_bytes([known[0], known[1], known[2], known[3]]);
        if known_distance.wrapping_sub(1) < distance && kept == state {
            return true;
        }
        known.copy_from_slice(&distance.to_le_bytes());
        kept.copy_from_slice(state);
        false
    }

    pub(crate) fn clear(&mut self) {
        self.places.fill(0);
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.places.len()
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
