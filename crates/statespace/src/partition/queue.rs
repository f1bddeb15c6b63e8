//! States that wait for their steps to be looked at, nearest first.

use std::collections::BTreeMap;

use crate::store::StateId;

/// Waiting states by distance; within one distance in the order they came.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// The bucket that is taken from, and its distance.
    nearest: u32,
    here: Vec<StateId>,
    taken: usize,
    /// One step farther: where nearly all come in.
    beyond: Vec<StateId>,
    others: BTreeMap<u32, Vec<StateId>>,
    waiting_count: u64,
}

impl Queue {
    #[inline]
    pub(super) fn push(&mut self, distance: u32, id: StateId) {
        self.waiting_count += 1;
        if distance < self.nearest {
            self.move_to(distance);
        }
        match distance - self.nearest {
            0 => self.here.push(id),
            1 => self.beyond.push(id),
            _ => self.others.entry(distance).or_default().push(id),
        }
    }

    /// The next, with the distance it was pushed with.
    pub(super) fn pop(&mut self) -> Option<(u32, StateId)> {
        loop {
            if let Some(&id) = self.here.get(self.taken) {
                self.taken += 1;
                self.waiting_count -= 1;
                return Some((self.nearest, id));
            }
            if self.waiting_count == 0 {
                return None;
            }
            let next = if self.beyond.is_empty() {
                *self.others.first_key_value()?.0
            } else {
                self.nearest + 1
            };
            self.move_to(next);
        }
    }

    /// Takes from another bucket.
    fn move_to(&mut self, distance: u32) {
        let mut here = std::mem::take(&mut self.here);
        here.drain(..self.taken);
        self.taken = 0;
        for (at, bucket) in [
            (self.nearest, here),
            (self.nearest.saturating_add(1), std::mem::take(&mut self.beyond)),
        ] {
            if !bucket.is_empty() {
                self.others.insert(at, bucket);
            }
        }
        self.nearest = distance;
        self.here = self.others.remove(&distance).unwrap_or_default();
        let beyond = distance.checked_add(1).and_then(|next| self.others.remove(&next));
        self.beyond = beyond.unwrap_or_default();
    }

    /// All that wait, with the distances they were pushed with.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, StateId)> {
        let here = self.here[self.taken..].iter().map(|&id| (self.nearest, id));
        let beyond = self.beyond.iter().map(|&id| (self.nearest.saturating_add(1), id));
        let others = self.others.iter().flat_map(|(&at, ids)| ids.iter().map(move |&id| (at, id)));
        here.chain(beyond).chain(others)
    }

    pub(super) fn len(&self) -> u64 {
        self.waiting_count
    }

    /// Distance of those that are next.
    pub(super) fn nearest(&self) -> u32 {
        self.nearest
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let others: usize = self.others.values().map(Vec::capacity).sum();
        (self.here.capacity() + self.beyond.capacity() + others) * size_of::<StateId>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_comes_first_also_when_it_comes_late() {
        let mut queue = Queue::default();
        for (distance, id) in [(5, 1), (7, 2), (5, 3)] {
            queue.push(distance, id);
        }
        assert_eq!(queue.pop(), Some((5, 1)));
        queue.push(2, 4);
        queue.push(7, 5);
        assert_eq!(queue.len(), 4);
        let mut waiting: Vec<_> = queue.iter().collect();
        waiting.sort_unstable();
        assert_eq!(waiting, [(2, 4), (5, 3), (7, 2), (7, 5)]);
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, [(2, 4), (5, 3), (7, 2), (7, 5)]);
        assert_eq!((queue.len(), queue.pop()), (0, None));
        queue.push(1, 6);
        assert_eq!(queue.pop(), Some((1, 6)));
    }
}
