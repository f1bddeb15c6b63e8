//! The calls on one file or directory, each timed.

use std::fmt::Write as _;
use std::io;

use rustix::fs::{FileType, Mode};

use super::Run;
use crate::clock;
use crate::error::LoadError;
use crate::meta::summary::Phase;
use crate::pattern::invalidate;
use crate::posix;

/// What is done with each item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    MakeDirectory,
    RemoveDirectory,
    Stat,
    CreateFile,
    /// Created by rank 0 for another task: left empty.
    CreateEmpty,
    ReadFile,
    RemoveFile,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::MakeDirectory => "mkdir",
            Self::RemoveDirectory => "rmdir",
            Self::Stat => "stat",
            Self::CreateFile | Self::CreateEmpty => "create",
            Self::ReadFile => "read",
            Self::RemoveFile => "unlink",
        }
    }
}

/// The items of one directory and what is done with them.
#[derive(Debug)]
pub(super) struct Items {
    pub(super) phase: Phase,
    pub(super) operation: Operation,
    /// The task that wrote the files.
    pub(super) owner: u64,
    /// The path up to an item's number.
    pub(super) path: String,
    prefix: usize,
}

impl Items {
    /// Items whose path begins with `prefix`, before their number.
    pub(super) fn new(phase: Phase, operation: Operation, owner: u64, prefix: String) -> Self {
        let length = prefix.len();
        Self { phase, operation, owner, path: prefix, prefix: length }
    }

    /// Goes on to another directory.
    pub(super) fn set_prefix(&mut self, prefix: &str) {
        prefix.clone_into(&mut self.path);
        self.prefix = prefix.len();
    }

    fn set_number(&mut self, number: u64) {
        self.path.truncate(self.prefix);
        // A text never fails to be written to.
        write!(self.path, "{number}").ok();
    }
}

impl Run<'_> {
    /// Names the calls to come for whoever watches this rank.
    pub(super) fn watch(&self, items: &Items) {
        self.team.activity.name_items(items.operation.name(), &items.path[..items.prefix]);
    }

    /// One call, which began at a moment of the monotonic clock, ns; gives the moment when it ended.
    pub(super) fn one(
        &mut self,
        items: &mut Items,
        number: u64,
        begin_ns: u64,
    ) -> Result<u64, LoadError> {
        items.set_number(number);
        self.team.activity.begin(number, begin_ns);
        let done = match items.operation {
            Operation::MakeDirectory => {
                rustix::fs::mkdir(items.path.as_str(), Mode::from_raw_mode(0o777))
                    .map_err(Into::into)
            }
            Operation::RemoveDirectory => {
                rustix::fs::rmdir(items.path.as_str()).map_err(Into::into)
            }
            Operation::RemoveFile => rustix::fs::unlink(items.path.as_str()).map_err(Into::into),
            Operation::Stat => {
                rustix::fs::stat(items.path.as_str()).map(drop).map_err(io::Error::from)
            }
            Operation::CreateFile => {
                self.create(items, number)
                    .map_err(|(what, error)| self.call(what, &items.path, error))?;
                Ok(())
            }
            Operation::CreateEmpty => {
                let done = posix::create(&items.path, false).and_then(posix::close);
                done.map_err(|error| self.call("create", &items.path, error))?;
                Ok(())
            }
            Operation::ReadFile => self.read(items, number),
        };
        let end_ns = clock::now_ns();
        self.latencies[items.phase.place()].record_ns(end_ns - begin_ns);
        if let Some(log) = &mut self.log {
            let start_ns = begin_ns.saturating_sub(self.phase_began_ns);
            log.push((start_ns as f64 * 1e-9, (end_ns - begin_ns) as f64 * 1e-9));
        }
        if let Err(error) = done {
            self.note_failure(items.phase, items.operation.name(), &items.path, &error);
        }
        Ok(end_ns)
    }

    fn create(&mut self, items: &Items, number: u64) -> Result<(), (&'static str, io::Error)> {
        let options = self.options;
        if options.makes_nodes {
            let (kind, mode) = (FileType::RegularFile, Mode::RUSR);
            let done = rustix::fs::mknodat(rustix::fs::CWD, items.path.as_str(), kind, mode, 0);
            return done.map_err(|error| ("mknod", error.into()));
        }
        let fd =
            posix::create(&items.path, options.is_direct).map_err(|error| ("create", error))?;
        if options.write_bytes > 0 {
            let pattern = self.pattern(items.owner);
            pattern.renew(self.write_buffer.get_mut(), number);
            let moved = posix::write_at(&fd, self.write_buffer.get(), 0, false);
            whole(moved, options.write_bytes).map_err(|error| ("write", error))?;
            if options.fsyncs {
                rustix::fs::fsync(&fd).map_err(|error| ("fsync", error.into()))?;
            }
            if options.verifies_writes {
                let buffer = self.write_buffer.get_mut();
                invalidate(buffer);
                let moved = posix::read_at(&fd, buffer, 0, false);
                whole(moved, options.write_bytes).map_err(|error| ("read", error))?;
                self.bad_files += u64::from(!pattern.is_in(self.write_buffer.get(), number));
            }
        }
        posix::close(fd).map_err(|error| ("close", error))
    }

    fn read(&mut self, items: &Items, number: u64) -> io::Result<()> {
        let options = self.options;
        let fd = posix::open(&items.path, options.is_direct)?;
        if options.read_bytes > 0 {
            invalidate(self.read_buffer.get_mut());
            let moved = posix::read_at(&fd, self.read_buffer.get_mut(), 0, false);
            whole(moved, options.read_bytes)?;
            if options.verifies_reads {
                let writer = if options.is_shared { self.team.me() as u64 } else { items.owner };
                let is_good = self.pattern(writer).is_in(self.read_buffer.get(), number);
                self.bad_files += u64::from(!is_good);
            }
        }
        posix::close(fd)
    }
}

fn whole(moved: io::Result<u64>, wanted: u64) -> io::Result<()> {
    match moved? {
        moved if moved == wanted => Ok(()),
        moved => Err(io::Error::other(format!("{moved} of {wanted} bytes"))),
    }
}
