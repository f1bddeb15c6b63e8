//! Writing and reading: opened, transferred, closed, each with its times.

use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use stats::LatencyHistogram;
use sys::file_lock::{ByteRange, LockKind, lock_range};

use super::ring::{Transfers, Until};
use super::{Run, files};
use crate::clock;
use crate::error::LoadError;
use crate::io::layout::{check_task, file_name, read_task};
use crate::io::offsets::{Offsets, Share};
use crate::io::options::Format;
use crate::io::summary::{Access, Measured, RankTimes, Stonewall};
use crate::io::text;
use crate::latency;
use crate::output::Said;
use crate::pattern::{Pattern, invalidate};
use crate::posix;

/// What is done with each transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Write,
    Read,
    /// Read and compared with what was written.
    Check,
}

/// The transfers of one access at this rank.
#[derive(Debug)]
pub(super) struct Moved {
    bytes: u64,
    pub(super) transfers: u64,
    pub(super) bad_transfers: u64,
    stonewall: Option<Stonewall>,
    latencies: LatencyHistogram,
    /// Start, duration, of each transfer, seconds, where they are to be stored.
    log: Option<Vec<(f64, f64)>>,
    started_ns: u64,
}

/// Whose data is moved, in which file.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) kind: Kind,
    pub(super) task: u64,
    pub(super) path: String,
    pub(super) fd: Option<OwnedFd>,
}

impl Moved {
    /// Counts a transfer between two moments of the monotonic clock, ns.
    pub(super) fn note(&mut self, begin_ns: u64, end_ns: u64, bytes: u64) {
        let taken_ns = end_ns - begin_ns;
        self.latencies.record_ns(taken_ns);
        if let Some(log) = &mut self.log {
            log.push(((begin_ns - self.started_ns) as f64 * 1e-9, taken_ns as f64 * 1e-9));
        }
        self.bytes += bytes;
        self.transfers += 1;
    }
}

impl Run<'_> {
    pub(super) fn write(&mut self, repetition: u32) -> Result<(), LoadError> {
        let options = self.options;
        let path = file_name(options, self.rank(), repetition);
        self.make_directory()?;
        self.delay();
        if !options.keeps_existing_file {
            self.remove(repetition)?;
        }
        let target = Target { kind: Kind::Write, task: self.rank(), path, fd: None };
        let moved = self.access((Access::Write, repetition), target)?;
        if options.stonewall_s > 0 {
            // What was written is what there is to read.
            self.wear_out_count = moved;
        }
        Ok(())
    }

    pub(super) fn check_write(&mut self, repetition: u32) -> Result<(), LoadError> {
        self.team.barrier()?;
        let task = check_task(self.options, &self.place, self.rank());
        let path = file_name(self.options, task, repetition);
        let fd = self.open(&path, false)?;
        let target = Target { kind: Kind::Check, task, path, fd };
        let moved = self.transfers(&target)?;
        self.count_errors("write", moved.bad_transfers)?;
        self.close(target)
    }

    pub(super) fn read(&mut self, repetition: u32) -> Result<(), LoadError> {
        let options = self.options;
        if let Some(path) = &options.status_file {
            let mine = if self.team.leads() { files::status(path) } else { None };
            let mine = mine.map_or(-1, |count| count.try_into().unwrap_or(i64::MAX));
            let told = self.team.broadcast_number(mine)?;
            if told < 0 {
                self.warn(&format!("{path} holds no number of transfers; all are read"))?;
            }
            self.wear_out_count = told.max(0).cast_unsigned();
        }
        let task = read_task(options, &self.place, self.rank(), repetition);
        let path = file_name(options, task, repetition);
        let kind = if options.checks_read { Kind::Check } else { Kind::Read };
        self.delay();
        let target = Target { kind, task, path, fd: None };
        self.access((Access::Read, repetition), target).map(|_moved| ())
    }

    /// One timed access, from opening to closing; gives the transfers of the fastest rank with wear-out,
    /// else those of this one.
    fn access(
        &mut self,
        (access, repetition): (Access, u32),
        mut target: Target,
    ) -> Result<u64, LoadError> {
        let has_barriers = self.options.has_barriers;
        let cpu_before_s = cpu_s();
        let mut times = RankTimes::default();
        self.team.barrier()?;
        self.team.begin_phase(self.say)?;
        times.open.0 = self.team.now_s();
        target.fd = self.open(&target.path, access == Access::Write)?;
        times.open.1 = self.team.now_s();
        if has_barriers {
            self.team.barrier()?;
        }
        times.transfer.0 = self.team.now_s();
        let moved = self.transfers(&target)?;
        if target.kind == Kind::Check {
            self.count_errors("read", moved.bad_transfers)?;
        }
        if access == Access::Write && self.options.fsyncs {
            self.fsync(&target)?;
        }
        times.transfer.1 = self.team.now_s();
        if has_barriers {
            self.team.barrier()?;
        }
        times.close.0 = self.team.now_s();
        let path = target.path.clone();
        self.close(target)?;
        times.close.1 = self.team.now_s();
        let cpu_s = cpu_s() - cpu_before_s;
        self.team.barrier()?;
        self.team.end_phase(access.name(), self.say);
        times.moved_bytes = moved.bytes;
        times.file_bytes = if self.options.is_dry { 0 } else { self.length(&path)? };
        times.transfers = moved.transfers;
        self.store_transfers(repetition, &moved)?;
        self.report((access, repetition), times, &moved, cpu_s)?;
        Ok(moved.transfers)
    }

    fn open(&mut self, path: &str, is_writing: bool) -> Result<Option<OwnedFd>, LoadError> {
        if self.options.is_dry {
            return Ok(None);
        }
        let is_direct = self.options.is_direct;
        let open = if is_writing { posix::create } else { posix::open };
        let fd = self.team.activity.during("open", path, || open(path, is_direct));
        fd.map(Some).map_err(|source| self.call("open", path, String::new(), source))
    }

    fn close(&mut self, target: Target) -> Result<(), LoadError> {
        let Some(fd) = target.fd else { return Ok(()) };
        let closed = self.team.activity.during("close", &target.path, || posix::close(fd));
        closed.map_err(|source| self.call("close", &target.path, String::new(), source))
    }

    fn fsync(&mut self, target: &Target) -> Result<(), LoadError> {
        let Some(fd) = &target.fd else { return Ok(()) };
        let synced = self.team.activity.during("fsync", &target.path, || rustix::fs::fsync(fd));
        synced.map_err(|error| self.call("fsync", &target.path, String::new(), error.into()))
    }

    fn length(&self, path: &str) -> Result<u64, LoadError> {
        let length = self.team.activity.during("stat", path, || posix::length(path));
        length.map_err(|source| self.call("stat", path, String::new(), source))
    }

    /// All transfers of this rank, up to the stonewall and, with wear-out, to where the fastest rank was.
    fn transfers(&mut self, target: &Target) -> Result<Moved, LoadError> {
        let mut offsets = self.offsets(target)?;
        if target.kind == Kind::Write && self.options.prefill_bytes > 0 {
            self.prefill(target)?;
        }
        let name = if target.kind == Kind::Write { "write" } else { "read" };
        self.team.activity.name(name, &target.path);
        let mut moved = Moved {
            bytes: 0,
            transfers: 0,
            bad_transfers: 0,
            stonewall: None,
            latencies: LatencyHistogram::default(),
            log: self.to.transfers_file.as_ref().map(|_| Vec::new()),
            started_ns: clock::now_ns(),
        };
        let mut ring = self.ring(target.task)?;
        match &mut ring {
            None => self.one_by_one(target, &mut offsets, &mut moved)?,
            Some(ring) => {
                let ns = |seconds: u64| {
                    moved.started_ns.saturating_add(seconds.saturating_mul(1_000_000_000))
                };
                let until = Until {
                    deadline_ns: match self.options.stonewall_s {
                        0 => u64::MAX,
                        seconds => ns(seconds),
                    },
                    count: self.wear_out_count,
                    at_least_ns: ns(self.options.time_min_s),
                };
                self.transfers_by_ring(ring, (target, &mut offsets), until, &mut moved)?;
            }
        }
        if self.options.wears_out {
            self.wear_out(target, (&mut offsets, ring.as_mut()), &mut moved)?;
        }
        self.team.activity.end();
        Ok(moved)
    }

    /// Transfers one after the other, until the last offset or the stonewall.
    fn one_by_one(
        &mut self,
        target: &Target,
        offsets: &mut Offsets,
        moved: &mut Moved,
    ) -> Result<(), LoadError> {
        let deadline_ns = self.options.stonewall_s.saturating_mul(1_000_000_000);
        let shortest_ns = self.options.time_min_s.saturating_mul(1_000_000_000);
        let mut is_hit = false;
        let mut now_ns = moved.started_ns;
        loop {
            while !offsets.is_at_end() && !is_hit {
                now_ns = self.transfer(target, offsets.draw(), now_ns, moved)?;
                is_hit = deadline_ns > 0 && now_ns - moved.started_ns > deadline_ns
                    || self.wear_out_count > 0 && moved.transfers == self.wear_out_count;
                if self.options.is_collective && deadline_ns > 0 {
                    is_hit = self.team.broadcast_number(i64::from(is_hit))? != 0;
                    now_ns = clock::now_ns();
                }
            }
            if is_hit || offsets.in_segment() == 0 || now_ns - moved.started_ns >= shortest_ns {
                break;
            }
            offsets.rewind();
        }
        Ok(())
    }

    fn offsets(&mut self, target: &Target) -> Result<Offsets, LoadError> {
        let options = self.options;
        let is_writing = target.kind == Kind::Write;
        let tasks = self.place.tasks;
        let whole = options.block_bytes * options.segment_count;
        let whole = if options.file_per_task { whole } else { whole.saturating_mul(tasks) };
        let is_read = options.random_offset > 1 && !is_writing && !options.is_dry;
        let file_bytes = if is_read { self.length(&target.path)? } else { whole };
        let share =
            Share { task: target.task, tasks, seed: self.offset_seed, file_bytes, is_writing };
        Ok(Offsets::new(options, &share))
    }

    /// Goes on to the transfer at which the fastest rank was when the stonewall was hit.
    fn wear_out(
        &mut self,
        target: &Target,
        (offsets, ring): (&mut Offsets, Option<&mut Transfers>),
        moved: &mut Moved,
    ) -> Result<(), LoadError> {
        let mine = [moved.transfers as f64, moved.bytes as f64];
        let all = self.team.share_numbers(&mine)?;
        let mut now_ns = clock::now_ns();
        let column = |place: usize| all.iter().map(move |row| row[place] as u64);
        let stonewall = Stonewall {
            time_s: (now_ns - moved.started_ns) as f64 * 1e-9,
            transfers_min: column(0).min().unwrap_or(0),
            transfers_max: column(0).max().unwrap_or(0),
            bytes_min: column(1).min().unwrap_or(0),
            bytes_mean: column(1).sum::<u64>() / all.len().max(1) as u64,
        };
        moved.stonewall = Some(stonewall);
        if self.to.format == Format::Text {
            self.text(&text::stonewall_line(&stonewall));
        }
        if let Some(ring) = ring {
            let (deadline_ns, at_least_ns) = (u64::MAX, u64::MAX);
            let until = Until { deadline_ns, count: stonewall.transfers_max, at_least_ns };
            self.transfers_by_ring(ring, (target, offsets), until, moved)?;
        }
        while moved.transfers < stonewall.transfers_max && offsets.in_segment() > 0 {
            now_ns = self.transfer(target, offsets.draw(), now_ns, moved)?;
        }
        // As in IOR: the number that all ranks reached.
        moved.transfers = stonewall.transfers_max;
        Ok(())
    }

    /// One transfer; gives the moment when it ended.
    fn transfer(
        &mut self,
        target: &Target,
        offset: u64,
        mut begin_ns: u64,
        moved: &mut Moved,
    ) -> Result<u64, LoadError> {
        let options = self.options;
        let pattern = Pattern { kind: options.pattern, seed: self.seed, writer: target.task };
        match target.kind {
            Kind::Write => pattern.renew(self.buffer.get_mut(), offset),
            Kind::Check => invalidate(self.buffer.get_mut()),
            Kind::Read => {}
        }
        if target.kind != Kind::Read || options.transfer_delay_us > 0 {
            begin_ns = clock::now_ns();
        }
        let bytes = self.call_transfer(target, offset, begin_ns)?;
        let end_ns = clock::now_ns();
        moved.note(begin_ns, end_ns, bytes);
        if target.kind == Kind::Write && options.fsyncs_each_write {
            self.fsync(target)?;
            self.team.activity.name("write", &target.path);
        }
        if target.kind == Kind::Check && !options.is_dry {
            moved.bad_transfers += u64::from(!pattern.is_in(self.buffer.get(), offset));
        }
        if options.transfer_delay_us > 0 && target.kind != Kind::Check {
            thread::sleep(Duration::from_micros(options.transfer_delay_us));
        }
        let has_more = options.fsyncs_each_write || options.transfer_delay_us > 0;
        Ok(if has_more || target.kind == Kind::Check { clock::now_ns() } else { end_ns })
    }

    fn call_transfer(
        &mut self,
        target: &Target,
        offset: u64,
        begin_ns: u64,
    ) -> Result<u64, LoadError> {
        let wanted = self.options.transfer_bytes;
        let Some(fd) = &target.fd else { return Ok(wanted) };
        self.team.activity.begin(offset, begin_ns);
        let range = ByteRange { start: offset, length: wanted };
        let is_writing = target.kind == Kind::Write;
        let (operation, kind) =
            if is_writing { ("write", LockKind::Exclusive) } else { ("read", LockKind::Shared) };
        let at = |run: &Self, operation, source| {
            run.call(operation, &target.path, format!(" at byte {offset}"), source)
        };
        if self.options.locks_ranges {
            lock_range(fd, kind, range, true).map_err(|error| at(self, "lock", error))?;
        }
        let once = self.options.single_attempt;
        let moved = if is_writing {
            posix::write_at(fd, self.buffer.get(), offset, once)
        } else {
            posix::read_at(fd, self.buffer.get_mut(), offset, once)
        };
        let moved = moved.map_err(|error| at(self, operation, error))?;
        if moved != wanted {
            let (rank, host) = (self.team.me(), self.team.host().to_owned());
            let path = target.path.clone();
            return Err(LoadError::Short { rank, host, operation, path, offset, moved, wanted });
        }
        if self.options.locks_ranges {
            lock_range(fd, LockKind::None, range, false)
                .map_err(|error| at(self, "unlock", error))?;
        }
        Ok(moved)
    }

    /// Fills the whole file before random transfers (`--randomPrefill`).
    fn prefill(&mut self, target: &Target) -> Result<(), LoadError> {
        let Some(fd) = &target.fd else { return Ok(()) };
        let options = self.options;
        let bytes = options.prefill_bytes;
        let filled = vec![0xff; bytes as usize];
        let sequential = crate::io::options::IoOptions {
            random_offset: 0,
            transfer_bytes: bytes,
            ..options.clone()
        };
        let (task, tasks) = (target.task, self.place.tasks);
        let share = Share { task, tasks, seed: 0, file_bytes: 0, is_writing: true };
        let mut offsets = Offsets::new(&sequential, &share);
        self.team.activity.name("prefill", &target.path);
        while !offsets.is_at_end() {
            let offset = offsets.draw();
            self.team.activity.begin(offset, clock::now_ns());
            posix::write_at(fd, &filled, offset, false)
                .map_err(|source| self.call("prefill", &target.path, String::new(), source))?;
        }
        self.team.barrier()
    }

    /// Adds up transfers that held other data than was written.
    fn count_errors(&mut self, access: &str, mine: u64) -> Result<(), LoadError> {
        let all = self.team.share_numbers(&[mine as f64])?;
        let errors: u64 = all.iter().map(|row| row[0] as u64).sum();
        self.outcome.errors_count += errors;
        if errors > 0 {
            self.has_errors = true;
            let line = format!(
                "Incorrect data on {access} ({errors} errors found); the seed of the data is {}",
                self.seed.cast_unsigned()
            );
            self.warn(&line)?;
        }
        Ok(())
    }

    /// Stores each transfer's time (`-O savePerOpDataCSV`), a file a rank and repetition.
    fn store_transfers(&self, repetition: u32, moved: &Moved) -> Result<(), LoadError> {
        let (Some(log), Some(prefix)) = (&moved.log, &self.to.transfers_file) else {
            return Ok(());
        };
        let path = format!("{prefix}-{repetition}-{:05}.csv", self.team.me());
        files::replace(&path, &text::transfers(log, self.options.transfer_bytes))
    }

    /// Brings the ranks' times together at rank 0 and shows the row.
    fn report(
        &mut self,
        (access, repetition): (Access, u32),
        times: RankTimes,
        moved: &Moved,
        cpu_s: f64,
    ) -> Result<(), LoadError> {
        let options = self.options;
        let mut numbers = times.to_numbers();
        numbers.push(cpu_s);
        let rows = self.team.gather_numbers(&numbers)?;
        let latencies = self.team.gather(latency::to_bytes(&moved.latencies))?;
        if !self.team.leads() {
            return Ok(());
        }
        let mut ranks = Vec::new();
        for (rank, row) in rows.iter().enumerate() {
            let times = RankTimes::from_numbers(&row[..row.len().saturating_sub(1)]);
            ranks.push(times.ok_or(LoadError::Malformed { rank })?);
        }
        let transfer = options.transfer_bytes;
        let mut one =
            Measured::reduce((access, repetition), &ranks, transfer, options.file_per_task);
        one.cpu_s = rows.iter().filter_map(|row| row.last()).sum();
        one.stonewall = moved.stonewall;
        latencies.iter().for_each(|bytes| latency::add(&mut one.latencies, bytes));
        self.warn_of_sizes(&one)?;
        for (kind, rank, time, mean, deviation) in one.outliers(options.outlier_s as f64) {
            if options.outlier_s > 0 {
                let host = self.team.members()[rank].host.clone();
                self.warn(&format!(
                    "for {host}, task {rank}, {} {kind} is {time:.6} (mean={mean:.6}, \
                     stddev={deviation:.6})",
                    access.name()
                ))?;
            }
        }
        match self.to.format {
            Format::Text => self.text(&text::row(options, &one)),
            Format::Csv => self.text(&text::csv_row(options, &self.place, &one)),
            Format::Json => {}
        }
        if let Some(path) = &self.to.ranks_file {
            files::append(path, &text::rank_rows(&one))?;
        }
        (self.say)(Said::Measured(self.number, &one));
        self.outcome.results.push(one);
        Ok(())
    }

    fn warn_of_sizes(&mut self, one: &Measured) -> Result<(), LoadError> {
        let expected = text::expected_bytes(self.options, &self.place);
        if expected == one.moved_bytes && one.file_bytes == one.moved_bytes || self.options.is_dry {
            return Ok(());
        }
        self.warn(&format!("Expected aggregate file size       = {expected}"))?;
        self.warn(&format!("Stat() of aggregate file size      = {}", one.file_bytes))?;
        self.warn(&format!("Using actual aggregate bytes moved = {}", one.moved_bytes))?;
        if self.options.stonewall_s > 0 {
            self.warn("Maybe caused by deadlineForStonewalling")?;
        }
        Ok(())
    }
}

/// Processor seconds of this thread.
fn cpu_s() -> f64 {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 * 1e-9
}
