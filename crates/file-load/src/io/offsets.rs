//! Where each transfer of a task lies in its file.

use crate::c_random::{CRandom, OffsetRandom};
use crate::io::options::IoOptions;

/// The offsets of one task, in the order in which it makes its transfers.
#[derive(Debug, Clone)]
pub struct Offsets {
    transfer_bytes: u64,
    block_bytes: u64,
    /// Bytes from one segment of the task to its next.
    stride_bytes: u64,
    /// Where the task's block begins in a segment.
    start_bytes: u64,
    segments: u64,
    order: Order,
    /// The next transfer: its segment, and its number in it.
    at: (u64, u64),
    /// Where the present block of `-z -z` begins.
    random_start: u64,
    /// The first block of this task is the last of the file, so that the file has its whole length.
    begins_at_end: bool,
}

#[derive(Debug, Clone)]
enum Order {
    /// One after the other: so many in a segment.
    Sequential(u64),
    /// Shuffled within a segment, the same in each.
    Shuffled(Vec<u64>),
    /// Blocks anywhere in a file of so many bytes.
    Random { random: OffsetRandom, file_bytes: u64, in_block: u64 },
}

/// What offsets depend on beside the options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// The task whose part of the file it is.
    pub task: u64,
    /// Tasks that share it out.
    pub tasks: u64,
    /// Seed of `-z`, the same at all tasks.
    pub seed: i32,
    /// Length of the file, for `-z -z`.
    pub file_bytes: u64,
    /// The transfers write.
    pub is_writing: bool,
}

impl Offsets {
    /// The offsets of a task.
    #[must_use]
    pub fn new(options: &IoOptions, share: &Share) -> Self {
        let block = options.block_bytes;
        let in_block = block / options.transfer_bytes;
        let (stride_bytes, start_bytes) = if options.file_per_task {
            (block, 0)
        } else {
            (block * share.tasks, block * share.task)
        };
        let order = match options.random_offset {
            0 => Order::Sequential(in_block),
            1 => Order::Shuffled(shuffled(options, share)),
            _ => {
                let seed = i64::from(task_seed(options, share)).cast_unsigned();
                let random = OffsetRandom::new(seed.wrapping_mul(share.task + 1));
                Order::Random { random, file_bytes: share.file_bytes.max(block), in_block }
            }
        };
        let is_shuffled = matches!(order, Order::Shuffled(_));
        Self {
            transfer_bytes: options.transfer_bytes,
            block_bytes: block,
            stride_bytes,
            // A shuffled shared file is dealt out anew: its offsets lie anywhere in the segment.
            start_bytes: if is_shuffled { 0 } else { start_bytes },
            segments: options.segment_count,
            order,
            at: (0, 0),
            random_start: 0,
            begins_at_end: share.is_writing && (options.file_per_task || share.task == 0),
        }
    }

    /// Transfers in one segment; a shuffled shared file may deal a task none.
    #[must_use]
    pub fn in_segment(&self) -> u64 {
        match &self.order {
            Order::Sequential(count) => *count,
            Order::Shuffled(offsets) => offsets.len() as u64,
            Order::Random { in_block, .. } => *in_block,
        }
    }

    /// Whether all transfers have been handed out; [`Self::draw`] begins again then.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        self.at.0 == self.segments || self.in_segment() == 0
    }

    /// Begins again from the first transfer, where the last has been handed out.
    pub fn rewind(&mut self) {
        if self.at.0 == self.segments {
            self.at = (0, 0);
        }
    }

    /// Whether the next transfer begins a segment, and which.
    #[must_use]
    pub fn begins_segment(&self) -> Option<u64> {
        (self.at.1 == 0).then_some(self.at.0)
    }

    /// The offset of the next transfer, bytes. After the last one it is the first again.
    pub fn draw(&mut self) -> u64 {
        self.rewind();
        let (segment, number) = self.at;
        let offset = match &mut self.order {
            Order::Sequential(_) => {
                segment * self.stride_bytes + self.start_bytes + number * self.transfer_bytes
            }
            Order::Shuffled(offsets) => segment * self.stride_bytes + offsets[number as usize],
            Order::Random { random, file_bytes, .. } => {
                if number == 0 {
                    let blocks = *file_bytes / self.block_bytes;
                    let block = random.draw() % blocks;
                    let is_first = segment == 0 && self.begins_at_end;
                    self.random_start =
                        if is_first { blocks - 1 } else { block } * self.block_bytes;
                }
                self.random_start + number * self.transfer_bytes
            }
        };
        self.at =
            if number + 1 == self.in_segment() { (segment + 1, 0) } else { (segment, number + 1) };
        offset
    }
}

/// With a file per task each task has a seed of its own.
fn task_seed(options: &IoOptions, share: &Share) -> i32 {
    if options.file_per_task && options.offset_seed.is_some() {
        share.seed.wrapping_add(share.task as i32)
    } else {
        share.seed
    }
}

/// The offsets of `-z` in one segment, as IOR draws them.
fn shuffled(options: &IoOptions, share: &Share) -> Vec<u64> {
    let seed = task_seed(options, share).cast_unsigned();
    let transfer = options.transfer_bytes;
    let mut random = CRandom::new(seed);
    let mut offsets: Vec<u64> = if options.file_per_task {
        (0..options.block_bytes / transfer).map(|number| number * transfer).collect()
    } else {
        let all = options.block_bytes * share.tasks / transfer;
        let mine = (0..all).filter(|_| random.below(share.tasks) == share.task);
        mine.map(|number| number * transfer).collect()
    };
    let count = offsets.len() as u64;
    for place in 0..offsets.len() {
        let other = random.below(count) as usize;
        offsets.swap(place, other);
    }
    offsets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::options::CommandLine;

    fn options(words: &str) -> IoOptions {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let mut line = CommandLine::parse(&words).expect("options");
        line.settle().expect("a test");
        line.tests.remove(0)
    }

    fn all(words: &str, task: u64, tasks: u64) -> Vec<u64> {
        let share = Share { task, tasks, seed: 5, file_bytes: 1 << 16, is_writing: false };
        let mut offsets = Offsets::new(&options(words), &share);
        let mut all = Vec::new();
        while !offsets.is_at_end() {
            all.push(offsets.draw());
        }
        all
    }

    #[test]
    fn offsets_follow_rank_segment_and_transfer() {
        let table: [(&str, u64, &[u64]); 4] = [
            // A shared file: segment · N · b + rank · b + j · t.
            ("-b 16 -t 8 -s 2", 0, &[0, 8, 48, 56]),
            ("-b 16 -t 8 -s 2", 2, &[32, 40, 80, 88]),
            // A file per process: segment · b + j · t.
            ("-F -b 16 -t 8 -s 2", 2, &[0, 8, 16, 24]),
            // IO500's hard shape.
            ("-b 47008 -t 47008 -s 3", 1, &[47_008, 188_032, 329_056]),
        ];
        for (words, task, expected) in table {
            assert_eq!(all(words, task, 3), expected, "{words} task {task}");
        }
    }

    #[test]
    fn shuffled_offsets_cover_the_file_once() {
        let mut own = all("-F -z -b 64 -t 8 -s 2", 1, 3);
        assert_ne!(own[..8], [0, 8, 16, 24, 32, 40, 48, 56]);
        assert_eq!(own[8] - 64, own[0], "each segment in the same order");
        own.sort_unstable();
        assert_eq!(own, (0..16).map(|number| number * 8).collect::<Vec<_>>());
        let mut shared: Vec<u64> = (0..3).flat_map(|task| all("-z -b 64 -t 8", task, 3)).collect();
        shared.sort_unstable();
        assert_eq!(shared, (0..24).map(|number| number * 8).collect::<Vec<_>>());
    }

    #[test]
    fn random_offsets_are_whole_blocks_within_the_file() {
        let offsets = all("-z -z -b 64 -t 8 -s 50", 1, 3);
        assert_eq!(offsets.len(), 400);
        for block in offsets.chunks(8) {
            assert!(block[0].is_multiple_of(64) && block[0] < 1 << 16, "{block:?}");
            assert!(block.windows(2).all(|pair| pair[1] == pair[0] + 8), "{block:?}");
        }
        let share = Share { task: 0, tasks: 3, seed: 5, file_bytes: 1 << 16, is_writing: true };
        let first = Offsets::new(&options("-z -z -b 64 -t 8"), &share).draw();
        assert_eq!(first, (1 << 16) - 64, "the file gets its whole length");
    }

    #[test]
    fn after_the_last_transfer_the_first_comes_again() {
        let share = Share { task: 0, tasks: 1, seed: 5, file_bytes: 0, is_writing: true };
        let mut offsets = Offsets::new(&options("-b 16 -t 8"), &share);
        let drawn: Vec<u64> = (0..5).map(|_| offsets.draw()).collect();
        assert_eq!(drawn, [0, 8, 0, 8, 0]);
    }
}
