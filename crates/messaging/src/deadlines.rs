//! The earliest deadline of each peer, in a binary heap with positions. A deadline that moves later
//! is left in place: when it expires, the peer's deadlines are examined and it is inserted anew.

const NOWHERE: u32 = u32::MAX;

#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    heap: Vec<(u64, u32)>,
    positions: Vec<u32>,
}

impl Deadlines {
    pub(crate) fn add_peer(&mut self) {
        self.positions.push(NOWHERE);
    }

    pub(crate) fn earliest_ns(&self) -> Option<u64> {
        self.heap.first().map(|(at_ns, _)| *at_ns)
    }

    /// Wakes `peer` at `at_ns` or earlier.
    #[inline]
    pub(crate) fn wake_by(&mut self, peer: u32, at_ns: u64) {
        let position = self.positions[peer as usize];
        if position == NOWHERE {
            self.heap.push((at_ns, peer));
            self.rise(self.heap.len() - 1);
        } else if self.heap[position as usize].0 > at_ns {
            self.heap[position as usize].0 = at_ns;
            self.rise(position as usize);
        }
    }

    /// Removes a peer whose deadline has passed.
    pub(crate) fn pop_due(&mut self, now_ns: u64) -> Option<u32> {
        let (_, peer) = *self.heap.first().filter(|(at_ns, _)| *at_ns <= now_ns)?;
        self.positions[peer as usize] = NOWHERE;
        let last = self.heap.pop().expect("there is a first");
        if !self.heap.is_empty() {
            self.heap[0] = last;
            self.sink();
        }
        Some(peer)
    }

    fn place(&mut self, position: usize, entry: (u64, u32)) {
        self.heap[position] = entry;
        self.positions[entry.1 as usize] = position as u32;
    }

    fn rise(&mut self, mut position: usize) {
        let entry = self.heap[position];
        while position > 0 {
            let parent = (position - 1) / 2;
            if self.heap[parent].0 <= entry.0 {
                break;
            }
            self.place(position, self.heap[parent]);
            position = parent;
        }
        self.place(position, entry);
    }

    fn sink(&mut self) {
        let (entry, mut position) = (self.heap[0], 0);
        loop {
            let [left, right] = [2 * position + 1, 2 * position + 2];
            if left >= self.heap.len() {
                break;
            }
            let is_right_less = right < self.heap.len() && self.heap[right].0 < self.heap[left].0;
            let child = if is_right_less { right } else { left };
            if self.heap[child].0 >= entry.0 {
                break;
            }
            self.place(position, self.heap[child]);
            position = child;
        }
        self.place(position, entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wakes_in_order_and_never_late() {
        bolero::check!().with_type::<Vec<(u8, u16)>>().for_each(|steps| {
            let mut deadlines = Deadlines::default();
            let mut oracle = [None::<u64>; 8];
            (0..8).for_each(|_| deadlines.add_peer());
            for &(peer, at_ns) in steps {
                let (peer, at_ns) = (u32::from(peer % 9), u64::from(at_ns));
                if peer == 8 {
                    while let Some(due) = deadlines.pop_due(at_ns) {
                        let least = oracle.iter().flatten().min().copied();
                        assert_eq!(oracle[due as usize].take(), least);
                    }
                    assert!(oracle.iter().flatten().all(|due| *due > at_ns));
                } else {
                    deadlines.wake_by(peer, at_ns);
                    let known = &mut oracle[peer as usize];
                    *known = Some(known.map_or(at_ns, |known| known.min(at_ns)));
                }
                assert_eq!(deadlines.earliest_ns(), oracle.iter().flatten().min().copied());
            }
        });
    }
}
