//! The journal on disk: one directory, one lock, one file; every record synced before it counts.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use sys::durable::{self, DurableError};
use thiserror::Error;

use crate::engine::{Log, LogError};
use crate::journal::{
    self, Header, INTENT_BYTES_MAX, JOURNAL_BYTES_MAX, Journal, JournalError,
    REMOTE_INTENT_BYTES_MAX, Record,
};

/// Why the journal cannot be used. One line each; nothing has been touched.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another process of this program is changing settings with the same journal.
    #[error("{path}: another clearstream command is using this journal; wait for it to end")]
    Busy {
        /// The lock.
        path: String,
    },
    /// The file is not what this program writes.
    #[error("{path}: {source}; nothing was changed")]
    Damaged {
        /// The file.
        path: String,
        /// What is wrong, with the line.
        source: JournalError,
    },
    /// The journal belongs to another network namespace of the same boot.
    #[error(
        "{path}: this journal belongs to another network namespace (host {host}); name your own \
         with --state, or drop this one with --forget"
    )]
    OtherNamespace {
        /// The file.
        path: String,
        /// The host it was written for.
        host: String,
    },
    /// Others could have written what stands there: undoing it would do as they like.
    #[error(transparent)]
    Folder(#[from] sys::private::PrivateError),
    /// The journal belongs to somebody who does not let this user read it.
    #[error(
        "{path}: the changes in force cannot be read: {source}; the owner of the journal (root) can read them"
    )]
    Unreadable {
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// The system's answer.
    #[error("{path}: {source}{}", needs(source))]
    Io {
        /// What it was for.
        path: String,
        /// Why.
        source: io::Error,
    },
}

/// What its caller lacks, if that is why.
fn needs(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => "; changing a host's settings needs root",
        _ => "",
    }
}

impl StoreError {
    /// Whether a privilege is missing.
    #[must_use]
    pub fn is_privilege(&self) -> bool {
        let (Self::Io { source, .. } | Self::Unreadable { source, .. }) = self else {
            return false;
        };
        source.kind() == io::ErrorKind::PermissionDenied
    }
}

/// A journal that is locked for this process.
#[derive(Debug)]
pub struct Store {
    directory: PathBuf,
    _lock: File,
    file: Option<File>,
    journal: Option<Journal>,
}

/// A journal that nobody else works with.
#[derive(Debug)]
pub struct Held {
    _lock: File,
}

/// The file's name in the state directory.
const FILE: &str = "journal";

/// How long somebody else may be at work before this gives up: longer than a server takes for one
/// request.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
/// How often it looks; well within the pause a server makes between two requests.
const LOCK_LOOK_EVERY: Duration = Duration::from_millis(5);

/// A journal this long is written anew without what is undone, bytes, where that halves it.
const COMPACT_BYTES: u64 = 256 << 10;

/// What undoing one change takes in the journal, bytes: `{"undone":{"id":4294967295}}` and its end.
const UNDONE_BYTES: u64 = 32;

impl Store {
    /// Locks the journal in `directory` and reads it. The directory is made when it is not there.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn open(directory: &Path) -> Result<Self, StoreError> {
        make_directory(directory)?;
        sys::private::check_trusted(directory)?;
        let lock_path = directory.join("lock");
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&lock_path)
            .map_err(|source| at(&lock_path, source))?;
        let deadline = Instant::now() + LOCK_PATIENCE;
        while lock.try_lock().is_err() {
            if Instant::now() > deadline {
                return Err(StoreError::Busy { path: lock_path.display().to_string() });
            }
            thread::sleep(LOCK_LOOK_EVERY);
        }
        let (file, journal) = read(directory, true)?;
        let mut store = Self { directory: directory.to_owned(), _lock: lock, file, journal };
        // Without room for the shorter one the long one still does.
        store.compact().ok();
        Ok(store)
    }

    /// Reads the journal in `directory` without a lock, for looking only.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn look(directory: &Path) -> Result<Option<Journal>, StoreError> {
        if fs::symlink_metadata(directory).is_ok() {
            sys::private::check_trusted(directory)?;
        }
        match read(directory, false) {
            Err(StoreError::Io { path, source })
                if source.kind() == io::ErrorKind::PermissionDenied =>
            {
                Err(StoreError::Unreadable { path, source })
            }
            looked => Ok(looked?.1),
        }
    }

    /// Keeps everybody else from changing the host with the journal in `directory` for as long as the value lives,
    /// without waiting and without reading it. `None`: somebody is at work with it, or there is none.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn hold(directory: &Path) -> Result<Option<Held>, StoreError> {
        if fs::symlink_metadata(directory).is_err() {
            return Ok(None);
        }
        sys::private::check_trusted(directory)?;
        let path = directory.join("lock");
        let lock = match OpenOptions::new().write(true).open(&path) {
            Ok(lock) => lock,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(at(&path, source)),
        };
        Ok(lock.try_lock().is_ok().then_some(Held { _lock: lock }))
    }

    /// The journal, if there is one.
    #[must_use]
    pub fn journal(&self) -> Option<&Journal> {
        self.journal.as_ref()
    }

    /// Where it lies.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.directory.join(FILE)
    }

    /// The journal to work with; begun with `header` when there is none.
    ///
    /// # Errors
    /// The disk's answer.
    pub fn begin(&mut self, header: Header) -> Result<(Journal, Writer<'_>), StoreError> {
        let path = self.path();
        if self.file.is_none() {
            let mut file = OpenOptions::new()
                .create(true)
                .truncate(true)
                .write(true)
                .open(&path)
                .map_err(|source| at(&path, source))?;
            let written = file.write_all(&journal::encode(&header)).and_then(|()| file.sync_data());
            if let Err(source) = written {
                // A journal that was not even begun is none.
                fs::remove_file(&path).ok();
                return Err(at(&path, source));
            }
            durable::sync_folder(&self.directory).map_err(not_durable)?;
            self.file = Some(file);
        }
        let journal = self.journal.take().unwrap_or_else(|| Journal::new(header));
        let file = self.file.as_mut().ok_or_else(|| at(&path, io::ErrorKind::NotFound.into()))?;
        let length = file.stream_position().map_err(|source| at(&path, source))?;
        let open_count = journal.open().count() as u64;
        Ok((journal, Writer { file, path, length, open_count, is_torn: false }))
    }

    /// Writes a long journal anew without what is undone.
    fn compact(&mut self) -> Result<(), StoreError> {
        let (Some(file), Some(journal)) = (&mut self.file, &mut self.journal) else {
            return Ok(());
        };
        let length = file.stream_position().map_err(|source| at(&self.directory, source))?;
        if length < COMPACT_BYTES {
            return Ok(());
        }
        let (shorter, records) = journal.compacted();
        let mut bytes = journal::encode(&shorter.header);
        for record in &records {
            bytes.extend(journal::encode(record));
        }
        if bytes.len() as u64 > length / 2 {
            return Ok(());
        }
        match durable::replace_with(&self.directory.join(FILE), |new| new.write_all(&bytes)) {
            Ok(new) => (*file, *journal) = (new, shorter),
            Err(error) if error.is_untouched() => return Err(not_durable(error)),
            // It stands at the name, so it is the one to go on with.
            Err(_) => (self.file, self.journal) = read(&self.directory, true)?,
        }
        Ok(())
    }

    /// Removes the journal: everything in it is undone, or the user wants to forget it.
    ///
    /// # Errors
    /// The disk's answer.
    pub fn remove(&mut self) -> Result<(), StoreError> {
        let path = self.path();
        (self.file, self.journal) = (None, None);
        durable::remove(&path).map_err(not_durable)
    }
}

/// Appends records, each whole or not at all. A change is announced only where the disk has room, set
/// aside for the journal, also for what is written when it is made and undone.
#[derive(Debug)]
pub struct Writer<'a> {
    file: &'a mut File,
    path: PathBuf,
    /// Bytes of whole records.
    length: u64,
    /// Changes that are not undone.
    open_count: u64,
    /// Half a record stands at the end and could not be taken away: the next to open the journal
    /// does that, and nothing may follow it before.
    is_torn: bool,
}

impl Log for Writer<'_> {
    fn append(&mut self, record: &Record) -> Result<(), LogError> {
        self.append_all(std::slice::from_ref(record))
    }

    fn append_all(&mut self, records: &[Record]) -> Result<(), LogError> {
        self.append_lines(records)
            .map_err(|error| LogError(format!("{}: {error}", self.path.display())))
    }
}

impl Writer<'_> {
    fn append_lines(&mut self, records: &[Record]) -> io::Result<()> {
        if self.is_torn {
            return Err(io::Error::other("an earlier record could not be written"));
        }
        let mut lines = Vec::new();
        let (mut announced, mut open_count) = (0, self.open_count);
        for record in records {
            let line = journal::encode(record);
            match record {
                Record::Intent(intent) => {
                    let is_host = intent.owner.is_host();
                    let most = if is_host { INTENT_BYTES_MAX } else { REMOTE_INTENT_BYTES_MAX };
                    if self.length + (lines.len() + line.len()) as u64 > most as u64 {
                        let full = "the journal is full; revert some changes first";
                        return Err(io::Error::new(io::ErrorKind::FileTooLarge, full));
                    }
                    announced += line.len() as u64;
                    open_count += 1;
                }
                Record::Undone { .. } => open_count = open_count.saturating_sub(1),
                Record::Done { .. } => {}
            }
            lines.extend(line);
        }
        if announced > 0 {
            self.set_room_aside(announced, open_count)?;
        }
        self.open_count = open_count;
        let written = self.file.write_all(&lines).and_then(|()| self.file.sync_data());
        if written.is_err() {
            let end = self.file.set_len(self.length).is_ok()
                && self.file.seek(SeekFrom::Start(self.length)).is_ok();
            self.is_torn = !end;
            return written;
        }
        self.length += lines.len() as u64;
        Ok(())
    }

    /// Has the disk keep room behind the journal's end: for announcements of so many bytes, for the values
    /// read back, and for undoing them and all others.
    fn set_room_aside(&self, announced: u64, open_count: u64) -> io::Result<()> {
        let room = 3 * announced + UNDONE_BYTES * open_count;
        match rustix::fs::fallocate(&*self.file, FallocateFlags::KEEP_SIZE, self.length, room) {
            Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => Err(error.into()),
            // Not every file system can; what it cannot promise it may still have.
            _ => Ok(()),
        }
    }
}

/// The file, positioned at its end, and what stands in it. Of a torn end nothing is left when
/// `repair` is set.
fn read(directory: &Path, repair: bool) -> Result<(Option<File>, Option<Journal>), StoreError> {
    let path = directory.join(FILE);
    let mut file = match OpenOptions::new().read(true).write(repair).open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((None, None)),
        Err(source) => return Err(at(&path, source)),
    };
    let mut bytes = Vec::new();
    (&mut file)
        .take(JOURNAL_BYTES_MAX as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|source| at(&path, source))?;
    let decoded = journal::decode(&bytes)
        .map_err(|source| StoreError::Damaged { path: path.display().to_string(), source })?;
    if decoded.journal.is_none() {
        // Not even its first line was finished: it is begun again.
        return Ok((None, None));
    }
    if repair {
        let whole = decoded.whole_bytes as u64;
        let cut = |file: &mut File| -> io::Result<()> {
            if whole < bytes.len() as u64 {
                file.set_len(whole)?;
                file.sync_data()?;
            }
            file.seek(SeekFrom::Start(whole)).map(|_| ())
        };
        cut(&mut file).map_err(|source| at(&path, source))?;
    }
    Ok((Some(file), decoded.journal))
}

fn make_directory(directory: &Path) -> Result<(), StoreError> {
    if directory.is_dir() {
        return Ok(());
    }
    // Whatever the user's mask: nobody else may write there.
    let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(directory);
    made.map_err(|source| at(directory, source))?;
    let parent = directory.parent();
    parent.map_or(Ok(()), |parent| durable::sync_folder(parent).map_err(not_durable))
}

fn not_durable(error: DurableError) -> StoreError {
    StoreError::Io { path: error.to_string(), source: error.source }
}

fn at(path: &Path, source: io::Error) -> StoreError {
    StoreError::Io { path: path.display().to_string(), source }
}
