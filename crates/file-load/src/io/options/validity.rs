//! Which combinations of IOR's options make no test, and what IOR decides by itself.

use super::IoOptions;

/// A remark about a command line that does not keep the test from running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning(pub String);

/// Bytes of IOR's unit of access, of which sizes are multiples.
const ACCESS_BYTES: u64 = 8;

impl IoOptions {
    /// Settles what the command line leaves open, as IOR does after reading it: without -w, -r, -W
    /// and -R a test writes and reads.
    ///
    /// # Errors
    /// One line: why the combination makes no test.
    pub(super) fn settle(&mut self) -> Result<Vec<Warning>, String> {
        if !(self.writes || self.reads || self.checks_write || self.checks_read) {
            self.writes = true;
            self.reads = true;
        }
        let mut warnings = Vec::new();
        if self.repetitions == 0 {
            self.repetitions = 1;
            warnings.push(Warning("-i 0: too few repetitions, 1 is run".to_owned()));
        }
        match self.wrong_size().or_else(|| self.contradiction()) {
            Some(line) => Err(line.to_owned()),
            None => Ok(warnings),
        }
    }

    /// The first rule about sizes that is broken.
    fn wrong_size(&self) -> Option<&'static str> {
        let (block, transfer) = (self.block_bytes, self.transfer_bytes);
        let rules = [
            (transfer == 0, "-t 0: a transfer needs at least 8 bytes"),
            (
                !transfer.is_multiple_of(ACCESS_BYTES),
                "-t: the transfer size must be a multiple of 8 bytes",
            ),
            (
                !block.is_multiple_of(ACCESS_BYTES),
                "-b: the block size must be a multiple of 8 bytes",
            ),
            (
                block < transfer || transfer != 0 && !block.is_multiple_of(transfer),
                "-b: the block size must be a multiple of the transfer size (-t)",
            ),
            (
                self.prefill_bytes > 0 && !block.is_multiple_of(self.prefill_bytes),
                "--randomPrefill must divide the block size (-b)",
            ),
            (self.segment_count == 0, "-s 0: a test needs a segment"),
            (self.file_bytes().is_none(), "-b, -s: a task would write more than 1 EiB"),
        ];
        rules.into_iter().find(|(is_broken, _)| *is_broken).map(|(_, line)| line)
    }

    /// The first rule about options that do not go together that is broken.
    fn contradiction(&self) -> Option<&'static str> {
        let (block, transfer) = (self.block_bytes, self.transfer_bytes);
        let is_random = self.random_offset > 0;
        let reorders = self.reorders_tasks || self.random_reorder > 0;
        let rules = [
            (
                self.status_file.is_some() && !self.keeps_file,
                "stoneWallingStatusFile is for writing and reading in two runs: give -k as well",
            ),
            (
                self.status_file.is_some() && !self.wears_out && self.writes,
                "stoneWallingStatusFile needs stoneWallingWearOut=1 when writing",
            ),
            (self.stonewall_s == 0 && self.wears_out, "stoneWallingWearOut needs a deadline: -D"),
            (self.tasks == Some(0), "-N 0: a test needs a task"),
            (
                self.seed.is_none() && !self.writes && self.checks_read,
                "-R without -w needs the seed that the file was written with: -G",
            ),
            (
                self.random_offset == 1 && block == transfer,
                "-z shuffles the transfers of a block: the block size (-b) must be larger than the \
                 transfer size (-t)",
            ),
            (!is_random && self.prefill_bytes > 0, "--randomPrefill needs random offsets: -z"),
            (
                self.prefill_bytes > 0 && self.stonewall_s > 0,
                "--randomPrefill with -D is not supported: ranks that stop at different segments \
                 would wait for each other forever",
            ),
            (
                self.reorders_tasks && self.random_reorder > 0,
                "-C and -Z are two task orders: give one of them",
            ),
            (
                is_random && reorders && !self.file_per_task,
                "-z with -C or -Z needs a file per process: -F",
            ),
            (
                is_random && self.checks_read && self.offset_seed.is_none(),
                "-z with -R needs --random-offset-seed, so that the same places are read",
            ),
            (
                self.directory_per_task && self.test_file.contains('@'),
                "-u takes one file name, -o has several",
            ),
            (
                self.ring_depth > 0
                    && (self.fsyncs_each_write
                        || self.is_collective
                        || self.locks_ranges
                        || self.single_attempt
                        || self.transfer_delay_us > 0),
                "--uring has many transfers under way: -Y, -c, -x, --posix.rangelocks and \
                 interIODelay need one at a time",
            ),
            (self.test_file.is_empty(), "-o needs a file name"),
        ];
        rules.into_iter().find(|(is_broken, _)| *is_broken).map(|(_, line)| line)
    }

    /// Bytes that one task writes; none above 1 EiB.
    #[must_use]
    pub fn file_bytes(&self) -> Option<u64> {
        let bytes = self.block_bytes.checked_mul(self.segment_count)?;
        (bytes <= 1 << 60).then_some(bytes)
    }
}
