//! Ownership of moved interrupts and threads: one file for each, below `/run`, where only root
//! writes.
//!
//! A locked file means that a test owns the interrupt or thread. The guard that restores the cores
//! holds the lock together with the test, so the lock is free only when everything is restored,
//! whoever was killed. The file contains the previous state and is empty once that is restored. A
//! record in an unlocked file was left by a test that was killed together with its guard; the next
//! owner restores it before it reads the current state.
//!
//! Settings are named by [`settings::Key`], as everywhere else.
//! `docs/decisions/0003-one-vocabulary-of-host-changes.md` explains why the records are not part of
//! the journal of `tune`.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity};
use serde::{Deserialize, Deserializer, Serialize};
use settings::Key;

use super::MoveError;

/// Cleared at boot, like the settings that the records describe.
const DIRECTORY: &str = "/run/clearstream-interrupts";

/// How long a test waits for the one before it to end; its guard needs a moment to restore
/// everything.
const PATIENCE: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Longest record that is read, in bytes.
const RECORD_BYTES_MAX: u64 = 64 << 10;

/// An interrupt or thread that receives packets; its cores are a setting of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Source {
    /// For example `irq:42/affinity` or `thread:napi/eth0-8193/affinity`.
    #[serde(alias = "name", deserialize_with = "key_or_name")]
    pub(super) key: Key,
    pub(super) what: What,
}

/// Where the setting is stored, with what distinguishes two sources of one name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum What {
    Interrupt {
        path: PathBuf,
    },
    Thread {
        pid: i32,
        /// Start time in ticks since boot: distinguishes it from another thread with the same
        /// number.
        began: u64,
    },
}

/// The contents of a file.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    source: Source,
    /// The previous cores, for example `0-3,8`.
    from: String,
}

/// The interrupts and threads that this test may move.
#[derive(Debug, Default)]
pub(super) struct InterruptLease {
    /// Each with its previous cores.
    pub(super) sources: Vec<(Source, String)>,
    /// For the guard: files, and what to write to them.
    pub(super) files: Vec<(File, Vec<u8>)>,
    /// For the guard: threads and their cores.
    pub(super) threads: Vec<(i32, Vec<u32>)>,
    /// For the guard: the locked record files.
    pub(super) records: Vec<File>,
}

impl InterruptLease {
    /// Acquires all of `sources`, or none; records their previous cores.
    pub(super) fn take(
        directory: &Path,
        sources: Vec<Source>,
        core: u32,
    ) -> Result<Self, MoveError> {
        let mut locked = Vec::new();
        let mut lease = Self::default();
        let recorded =
            lock(directory, sources, &mut locked).and_then(|()| lease.record(&mut locked, core));
        lease.records = locked.into_iter().map(|(_, file, _)| file).collect();
        if recorded.is_err() {
            lease.forget();
        }
        recorded.map(|()| lease)
    }

    /// Empties the records and lets go of them: nothing was moved, so there is nothing to restore.
    pub(super) fn forget(&self) {
        for file in &self.records {
            // A record that remains only restores cores that nobody has moved, which is harmless.
            file.set_len(0).ok();
            // Closing does not unlock while a process being forked still holds a copy of the descriptor.
            file.unlock().ok();
        }
    }

    fn record(
        &mut self,
        locked: &mut [(Source, File, PathBuf)],
        core: u32,
    ) -> Result<(), MoveError> {
        for (source, file, path) in locked {
            let from = source.cores().map_err(|error| source.refused(core, &error))?;
            match &source.what {
                What::Interrupt { path, .. } => {
                    let opened = File::options().write(true).open(path);
                    let opened = opened.map_err(|error| source.refused(core, &error))?;
                    self.files.push((opened, format!("{from}\n").into_bytes()));
                }
                What::Thread { pid, .. } => {
                    self.threads.push((*pid, settings::cores_of(&from).unwrap_or_default()));
                }
            }
            let record = Record { source: source.clone(), from: from.clone() };
            let text = serde_json::to_vec(&record).map_err(io::Error::from);
            let written = text.and_then(|text| file.write_all(&text));
            self.sources.push((source.clone(), from));
            written.map_err(|error| record_error(path, &error))?;
        }
        Ok(())
    }
}

/// Locks the records of all sources and restores what they describe; `locked` has those that are ours, also after an
/// error.
fn lock(
    directory: &Path,
    sources: Vec<Source>,
    locked: &mut Vec<(Source, File, PathBuf)>,
) -> Result<(), MoveError> {
    let deadline = Instant::now() + PATIENCE;
    for source in sources {
        let path = directory.join(source.file_name());
        let mut file = open(&path)?;
        while file.try_lock().is_err() {
            if Instant::now() > deadline {
                return Err(MoveError::Busy(source.name()));
            }
            thread::sleep(LOOK_EVERY);
        }
        if let Err(error) = put_back(&mut file) {
            // Its record stays for whoever can restore what it describes.
            file.unlock().ok();
            return Err(record_error(&path, &error));
        }
        locked.push((source, file, path));
    }
    Ok(())
}

impl Source {
    /// The name for people: `irq 42`, `napi/eth0-8193`.
    pub(super) fn name(&self) -> String {
        self.key.packet_source().unwrap_or_else(|| self.key.to_string())
    }

    pub(super) fn file_name(&self) -> String {
        match &self.what {
            What::Interrupt { .. } => self.name().replace(' ', "-"),
            What::Thread { pid, .. } => format!("thread-{pid}"),
        }
    }

    pub(super) fn path(&self) -> PathBuf {
        match &self.what {
            What::Interrupt { path, .. } => path.clone(),
            What::Thread { pid, .. } => PathBuf::from(format!("/proc/{pid}")),
        }
    }

    /// Moves it to one core.
    pub(super) fn put_on(&self, core: u32) -> io::Result<()> {
        self.put(&core.to_string())
    }

    pub(super) fn refused(&self, core: u32, error: &io::Error) -> MoveError {
        MoveError::Refused { what: self.name(), core, why: error.to_string() }
    }

    /// The cores on which it may run now.
    fn cores(&self) -> io::Result<String> {
        match &self.what {
            What::Interrupt { path, .. } => Ok(fs::read_to_string(path)?.trim().to_owned()),
            What::Thread { pid, .. } => {
                let set = sched_getaffinity(Pid::from_raw(*pid))?;
                let cores = (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core));
                let cores: Vec<u32> = cores.filter_map(|core| u32::try_from(core).ok()).collect();
                Ok(settings::list_of(&cores))
            }
        }
    }

    fn put(&self, cores: &str) -> io::Result<()> {
        match &self.what {
            What::Interrupt { path, .. } => fs::write(path, cores),
            What::Thread { pid, .. } => {
                let cores = settings::cores_of(cores).ok_or(io::ErrorKind::InvalidData)?;
                sys::thread::pin_thread(*pid, &cores).map_err(|error| error.source)
            }
        }
    }

    /// Whether the same interrupt or thread still exists.
    fn is_there(&self) -> bool {
        match &self.what {
            What::Interrupt { path, .. } => path.exists(),
            What::Thread { pid, began } => thread_began(*pid) == Some(*began),
        }
    }
}

/// When a thread started, in ticks since boot.
pub(super) fn thread_began(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may contain blanks and parentheses; the start time is the 20th word
    // after it.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// The directory of the records, created if it does not exist.
pub(super) fn directory() -> Result<PathBuf, MoveError> {
    let path = PathBuf::from(DIRECTORY);
    let made = DirBuilder::new().mode(0o700).create(&path);
    let known = match made {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => fs::symlink_metadata(&path),
    };
    let known = known.map_err(|error| record_error(&path, &error))?;
    let own = rustix::process::geteuid().as_raw();
    if !known.is_dir() || known.uid() != own || known.mode() & 0o022 != 0 {
        return Err(record_error(&path, &io::Error::other("others can write there")));
    }
    Ok(path)
}

/// Restores what unlocked records describe; returns one line for each.
pub(super) fn put_back_all(directory: &Path) -> Result<Vec<String>, MoveError> {
    let mut told = Vec::new();
    let entries = fs::read_dir(directory).map_err(|error| record_error(directory, &error))?;
    for entry in entries.flatten() {
        let path = entry.path();
        let mut file = open(&path)?;
        if file.try_lock().is_ok() {
            let line = put_back(&mut file).map_err(|error| record_error(&path, &error));
            // Closing does not unlock while a process being forked still holds a copy of the
            // descriptor.
            file.unlock().map_err(|error| record_error(&path, &error))?;
            told.extend(line?);
        }
    }
    Ok(told)
}

/// Restores what a locked file describes, if anything, and empties it.
fn put_back(file: &mut File) -> io::Result<Option<String>> {
    let mut text = Vec::new();
    file.take(RECORD_BYTES_MAX).read_to_end(&mut text)?;
    let mut told = None;
    // A partial record was being written, so nothing had been moved yet.
    if let Ok(Record { source, from }) = serde_json::from_slice::<Record>(&text)
        && source.is_there()
    {
        source.put(&from)?;
        told = Some(format!(
            "{} is back on cores {from}; a test that was killed had moved it",
            source.name()
        ));
    }
    file.set_len(0)?;
    Ok(told)
}

fn open(path: &Path) -> Result<File, MoveError> {
    // Append mode: a record starts at the end of the file, which is 0 for an empty one.
    OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
        .open(path)
        .map_err(|error| record_error(path, &error))
}

fn record_error(path: &Path, error: &io::Error) -> MoveError {
    MoveError::Record { path: path.display().to_string(), why: error.to_string() }
}

/// Reads the key; records of earlier versions have the name of the source in its place.
fn key_or_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Key, D::Error> {
    let text = String::deserialize(deserializer)?;
    let known = text.parse().or_else(|error| Key::of_packet_source(&text).ok_or(error));
    known.map_err(serde::de::Error::custom)
}
