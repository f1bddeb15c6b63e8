//! Transfers by `io_uring` (`--uring`): so many under way at once at each rank.

use sys::file_ring::{Call, FileRing};

use super::Run;
use super::access::{Kind, Moved, Target};
use crate::clock;
use crate::error::LoadError;
use crate::io::offsets::Offsets;
use crate::pattern::{Pattern, invalidate};

/// Until when transfers are begun.
#[derive(Debug, Clone, Copy)]
pub(super) struct Until {
    /// None later than this, ns of the monotonic clock.
    pub(super) deadline_ns: u64,
    /// So many in all; 0: no limit.
    pub(super) count: u64,
    /// After the last offset the first comes again, until this moment, ns of the monotonic clock.
    pub(super) at_least_ns: u64,
}

/// A ring and what is under way on it: where each slot's transfer lies and when it began, ns.
#[derive(Debug)]
pub(super) struct Transfers {
    ring: FileRing,
    under_way: Vec<(u64, u64)>,
}

impl Run<'_> {
    /// A ring whose buffers hold the pattern of this repetition; none without `--uring`.
    pub(super) fn ring(&self, task: u64) -> Result<Option<Transfers>, LoadError> {
        let options = self.options;
        if options.ring_depth == 0 || options.is_dry {
            return Ok(None);
        }
        let ring = FileRing::new(options.ring_depth, options.transfer_bytes as usize);
        let mut ring = ring.map_err(|error| {
            let path = format!("--uring {}: {error}", options.ring_depth);
            LoadError::File { path, source: error.source }
        })?;
        let pattern = self.pattern(task);
        for slot in 0..ring.depth() {
            pattern.fill(ring.buffer(slot));
        }
        let under_way = vec![(0, 0); ring.depth()];
        Ok(Some(Transfers { ring, under_way }))
    }

    /// Transfers until the last offset, the deadline or the count; all that were begun have ended. Whether it
    /// was the deadline or the count.
    pub(super) fn transfers_by_ring(
        &mut self,
        transfers: &mut Transfers,
        (target, offsets): (&Target, &mut Offsets),
        until: Until,
        moved: &mut Moved,
    ) -> Result<bool, LoadError> {
        let mut begun = moved.transfers;
        let mut is_hit = false;
        loop {
            let now_ns = clock::now_ns();
            is_hit |= now_ns > until.deadline_ns || until.count > 0 && begun >= until.count;
            if offsets.is_at_end() && now_ns < until.at_least_ns && offsets.in_segment() > 0 {
                offsets.rewind();
            }
            let is_more = !is_hit && !offsets.is_at_end();
            match transfers.ring.free_slot() {
                Some(slot) if is_more => {
                    self.begin_transfer(transfers, slot, target, offsets.draw())?;
                    begun += 1;
                }
                _ if transfers.ring.busy_count() > 0 => {
                    self.end_transfer(transfers, target, moved)?;
                }
                _ => return Ok(is_hit),
            }
        }
    }

    fn begin_transfer(
        &mut self,
        transfers: &mut Transfers,
        slot: usize,
        target: &Target,
        offset: u64,
    ) -> Result<(), LoadError> {
        let Some(fd) = &target.fd else { return Ok(()) };
        let pattern = Pattern { writer: target.task, ..self.pattern(target.task) };
        let buffer = transfers.ring.buffer(slot);
        let call = match target.kind {
            Kind::Write => {
                pattern.renew(buffer, offset);
                Call::Write
            }
            Kind::Check => {
                invalidate(buffer);
                Call::Read
            }
            Kind::Read => Call::Read,
        };
        let now_ns = clock::now_ns();
        transfers.under_way[slot] = (offset, now_ns);
        self.team.activity.begin(offset, now_ns);
        let begun = transfers.ring.begin(slot, call, fd, offset);
        begun.map_err(|source| self.call(name(call), &target.path, at(offset), source))
    }

    fn end_transfer(
        &mut self,
        transfers: &mut Transfers,
        target: &Target,
        moved: &mut Moved,
    ) -> Result<(), LoadError> {
        let call = if target.kind == Kind::Write { Call::Write } else { Call::Read };
        let done = transfers.ring.wait();
        let done = done
            .map_err(|source| self.call("io_uring_enter", &target.path, String::new(), source))?;
        let end_ns = clock::now_ns();
        let (offset, begin_ns) = transfers.under_way[done.slot];
        let failed = |source| self.call(name(call), &target.path, at(offset), source);
        let bytes = done.moved.map_err(failed)?;
        let wanted = self.options.transfer_bytes;
        if bytes != wanted {
            let (rank, host) = (self.team.me(), self.team.host().to_owned());
            let (operation, path) = (name(call), target.path.clone());
            return Err(LoadError::Short {
                rank,
                host,
                operation,
                path,
                offset,
                moved: bytes,
                wanted,
            });
        }
        moved.note(begin_ns, end_ns, bytes);
        if target.kind == Kind::Check {
            let is_good = self.pattern(target.task).is_in(transfers.ring.buffer(done.slot), offset);
            moved.bad_transfers += u64::from(!is_good);
        }
        Ok(())
    }
}

fn name(call: Call) -> &'static str {
    match call {
        Call::Read => "read",
        Call::Write => "write",
    }
}

fn at(offset: u64) -> String {
    format!(" at byte {offset}")
}
