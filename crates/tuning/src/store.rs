//! The journal on disk: one directory, one lock, one file; every record synced before it counts.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use thiserror::Error;

use crate::engine::{Log, LogError};
use crate::journal::{self, Header, JOURNAL_BYTES_MAX, Journal, JournalError, Record};

/// Why the journal cannot be used. One line each; nothing has been touched.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another process of this program is changing settings with the same journal.
    #[error("{path}: another clearstream tune is at work with this journal; wait for it to end")]
    Busy {
        /// The lock.
        path: String,
    },
    /// The file is not what this program writes.
    #[error("{path}: {source}; nothing was touched")]
    Damaged {
        /// The file.
        path: String,
        /// What is wrong, with the line.
        source: JournalError,
    },
    /// The journal belongs to another network namespace of the same boot.
    #[error(
        "{path}: it is of another network namespace (host {host}); name its own with --state, or drop it with --forget"
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
    /// The system's answer.
    #[error("{path}: {source}")]
    Io {
        /// What it was for.
        path: String,
        /// Why.
        source: io::Error,
    },
}

impl StoreError {
    /// Whether a privilege is missing.
    #[must_use]
    pub fn is_privilege(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied)
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

/// The file's name in the state directory.
const FILE: &str = "journal";

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
        lock.try_lock()
            .map_err(|_held| StoreError::Busy { path: lock_path.display().to_string() })?;
        let (file, journal) = read(directory, true)?;
        Ok(Self { directory: directory.to_owned(), _lock: lock, file, journal })
    }

    /// Reads the journal in `directory` without a lock, for looking only.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn look(directory: &Path) -> Result<Option<Journal>, StoreError> {
        if fs::symlink_metadata(directory).is_ok() {
            sys::private::check_trusted(directory)?;
        }
        Ok(read(directory, false)?.1)
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
            write_synced(&mut file, &header).map_err(|source| at(&path, source))?;
            sync_directory(&self.directory)?;
            self.file = Some(file);
        }
        let journal = self.journal.take().unwrap_or_else(|| Journal::new(header));
        let file = self.file.as_mut().ok_or_else(|| at(&path, io::ErrorKind::NotFound.into()))?;
        Ok((journal, Writer { file, path }))
    }

    /// Removes the journal: everything in it is undone, or the user wants to forget it.
    ///
    /// # Errors
    /// The disk's answer.
    pub fn remove(&mut self) -> Result<(), StoreError> {
        let path = self.path();
        (self.file, self.journal) = (None, None);
        match fs::remove_file(&path) {
            Ok(()) => sync_directory(&self.directory),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(source) => Err(at(&path, source)),
        }
    }
}

/// Appends records.
#[derive(Debug)]
pub struct Writer<'a> {
    file: &'a mut File,
    path: PathBuf,
}

impl Log for Writer<'_> {
    fn append(&mut self, record: &Record) -> Result<(), LogError> {
        write_synced(self.file, record)
            .map_err(|error| LogError(format!("{}: {error}", self.path.display())))
    }
}

fn write_synced(file: &mut File, line: &impl Serialize) -> io::Result<()> {
    file.write_all(&journal::encode(line))?;
    file.sync_data()
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
    fs::create_dir_all(directory).map_err(|source| at(directory, source))?;
    directory.parent().map_or(Ok(()), sync_directory)
}

pub(crate) fn sync_directory(directory: &Path) -> Result<(), StoreError> {
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    File::open(directory)
        .and_then(|opened| opened.sync_all())
        .map_err(|source| at(directory, source))
}

fn at(path: &Path, source: io::Error) -> StoreError {
    StoreError::Io { path: path.display().to_string(), source }
}
