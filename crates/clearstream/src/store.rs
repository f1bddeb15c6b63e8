//! Durable files: results documents, replaced atomically, and the journal that keeps every finished
//! point of an interrupted run.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use results::{Host, PathFacts, Point, Results, read_results};
use sweep::{Earlier, Journal, JournalError, Plan};
use sys::{durable, private};

use crate::exit::VerbError;
use crate::runner::Keeping;

/// Longest results file to read, bytes: one more than the parser accepts, so that it can report the excess.
const FILE_BYTES_MAX: u64 = (256 << 20) + 1;

/// Reads a results document; `-` is standard input.
///
/// # Errors
/// One line that names the file and the problem.
pub(crate) fn load(path: &Path) -> Result<Results, VerbError> {
    parse(path, &read(path)?)
}

/// How messages call a file that is read: by its path, or `standard input` for `-`.
pub(crate) fn input_name(path: &Path) -> String {
    if path.as_os_str() == "-" { "standard input".to_owned() } else { path.display().to_string() }
}

/// The bytes of a file, or of standard input for `-`; at most [`FILE_BYTES_MAX`] of them.
///
/// # Errors
/// One line: the file and the system's error.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, VerbError> {
    let mut bytes = Vec::new();
    let read = if path.as_os_str() == "-" {
        io::stdin().lock().take(FILE_BYTES_MAX).read_to_end(&mut bytes)
    } else {
        File::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes))
    };
    read.map_err(|error| VerbError::unreadable(path, &error))?;
    Ok(bytes)
}

/// Parses the bytes of a results file.
///
/// # Errors
/// One line that names the file and the problem.
pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<Results, VerbError> {
    read_results(bytes).map_err(|error| at(path, &error))
}

/// Writes a results document atomically.
///
/// # Errors
/// One line: the file and the system's error; the file at `path` is then unchanged.
pub(crate) fn save(path: &Path, results: &Results) -> Result<(), VerbError> {
    let text = serde_json::to_vec_pretty(results).map_err(|error| VerbError::from_error(&error))?;
    replace(path, &text)
}

/// Replaces a file atomically ([`durable`]). Anything but a regular file (a pipe, a device) is written
/// directly.
///
/// # Errors
/// One line: the file and the system's error.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), VerbError> {
    let is_plain = fs::symlink_metadata(path).map_or(true, |known| known.is_file());
    if !is_plain {
        let written = private::create(path).and_then(|mut file| file.write_all(bytes));
        return written.map_err(|error| at(path, &error));
    }
    durable::replace(path, bytes).map_err(|error| VerbError::from_error(&error))
}

/// Checks that each of these files can be written, before anything is measured for them. Nothing is created.
///
/// # Errors
/// One line, exit code 2: the first file that cannot be written and why, or a file that is named twice.
pub(crate) fn check_outputs<'a>(
    paths: impl IntoIterator<Item = Option<&'a Path>>,
) -> Result<(), VerbError> {
    let mut checked: Vec<PathBuf> = Vec::new();
    for path in paths.into_iter().flatten() {
        let name = path.display();
        check_output(path)
            .map_err(|why| VerbError::usage(format!("{name}: cannot be written: {why}")))?;
        let whole = std::path::absolute(path).unwrap_or_else(|_no_folder| path.to_owned());
        // A device or a pipe takes several.
        if checked.contains(&whole) && (!path.exists() || path.is_file()) {
            return Err(VerbError::usage(format!("{name}: two outputs name this file")));
        }
        checked.push(whole);
    }
    Ok(())
}

/// Why a file cannot be written.
fn check_output(path: &Path) -> Result<(), String> {
    use rustix::fs::{Access, access};

    let refused = |error: rustix::io::Errno| io::Error::from(error).to_string();
    match fs::symlink_metadata(path) {
        Ok(known) if known.is_dir() => return Err("it is a directory".to_owned()),
        // Written in place.
        Ok(known) if !known.is_file() => return access(path, Access::WRITE_OK).map_err(refused),
        // A file is replaced in its folder.
        _ => {}
    }
    if path.file_name().is_none() {
        return Err("it names no file".to_owned());
    }
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    match fs::metadata(folder) {
        Err(error) => return Err(format!("directory {}: {error}", folder.display())),
        Ok(known) if !known.is_dir() => {
            return Err(format!("{} is not a directory", folder.display()));
        }
        Ok(_) => {}
    }
    access(folder, Access::WRITE_OK | Access::EXEC_OK)
        .map_err(|error| format!("directory {}: {}", folder.display(), refused(error)))
}

/// The journal: the finished points of a run, each on disk before the next one starts.
#[derive(Debug)]
pub(crate) struct PointLog {
    path: PathBuf,
    file: File,
    is_empty: bool,
}

impl PointLog {
    /// Opens the journal of the results file `results_path`, and returns the points that an earlier,
    /// interrupted run of the same plan to the same target left there. If nothing is resumed or the plan is
    /// another one, there are none and the journal starts afresh. `document` then gets the path's idle state
    /// that the earlier run found, because its later rounds depend on it, and the hosts if the run changes them.
    ///
    /// # Errors
    /// The journal cannot be read or written, or is of a version that this program does not read.
    pub(crate) fn open(
        results_path: &Path,
        plan: &Plan,
        keeping: Keeping<'_>,
        document: &mut Results,
    ) -> Result<(Self, Vec<Point>), VerbError> {
        let path = with_suffix(results_path, ".journal");
        let mut file = open_locked(&path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(|error| at(&path, &error))?;
        let kept = match Journal::decode(plan, &bytes) {
            Ok(earlier) if keeping.resumes => earlier,
            Err(error @ JournalError::Version { .. }) if keeping.resumes => {
                let way_out = "finish that run with the version that began it, or remove the file";
                return Err(VerbError::failed(format!("{}: {error}; {way_out}", path.display())));
            }
            _ => Earlier::default(),
        };
        let kept = of_same_path(kept, keeping.restores_hosts, document);
        let hosts = if keeping.restores_hosts { document.hosts.as_slice() } else { &[] };
        let log = Self { path, file, is_empty: kept.is_empty() };
        log.restart(&Journal::encode_header(plan, &document.path, hosts), &kept, &bytes)?;
        // Without a durable name the journal would lose its points in a crash.
        durable::sync_name(&log.path, &log.file).map_err(|error| VerbError::from_error(&error))?;
        Ok((log, kept))
    }

    /// Appends a finished point; returns once it is on disk.
    pub(crate) fn append(&mut self, point: &Point) -> Result<(), VerbError> {
        self.is_empty = false;
        self.file
            .write_all(&Journal::encode_point(point))
            .and_then(|()| self.file.sync_data())
            .map_err(|error| at(&self.path, &error))
    }

    /// Removes the journal, because the results file now has the points.
    pub(crate) fn discard(self) -> Result<(), VerbError> {
        fs::remove_file(&self.path).map_err(|error| at(&self.path, &error))
    }

    /// The journal; one without points is removed, because there is nothing to resume.
    pub(crate) fn unless_empty(self) -> Result<Option<Self>, VerbError> {
        if self.is_empty { self.discard().map(|()| None) } else { Ok(Some(self)) }
    }

    /// Path of the journal, for the message that says how to resume.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Rewrites the file, whose content is `found`, to the header and `points`: a torn last line is dropped.
    fn restart(&self, header: &[u8], points: &[Point], found: &[u8]) -> Result<(), VerbError> {
        let mut bytes = header.to_vec();
        points.iter().for_each(|point| bytes.extend(Journal::encode_point(point)));
        let rewrite = || -> io::Result<()> {
            // If the file begins with these bytes, keep them: a crash or a full disk during a rewrite would lose them.
            if found.starts_with(&bytes) {
                self.file.set_len(bytes.len() as u64)?;
            } else {
                self.file.set_len(0)?;
                (&self.file).write_all(&bytes)?;
            }
            self.file.sync_data()
        };
        rewrite().map_err(|error| at(&self.path, &error))
    }
}

/// Points of an earlier run, if they are of the same path; `document` then gets that run's idle state of
/// the path and, with `restores_hosts`, its hosts.
fn of_same_path(earlier: Earlier, restores_hosts: bool, document: &mut Results) -> Vec<Point> {
    let Earlier { path, hosts, points } = earlier;
    let names = |hosts: &[Host]| -> Vec<String> {
        hosts.iter().map(|host| host.facts.name.clone()).collect()
    };
    let is_of_other_hosts = restores_hosts && names(&hosts) != names(&document.hosts);
    let Some(then) = path else { return points };
    if then.target != document.path.target || is_of_other_hosts {
        return Vec::new();
    }
    if !points.is_empty() {
        let PathFacts { idle_rtt, path_mtu_bytes, .. } = then;
        document.path = PathFacts { idle_rtt, path_mtu_bytes, ..document.path.clone() };
        if restores_hosts {
            document.hosts = hosts;
        }
    }
    points
}

/// How long a lock is waited for. A run that is killed while it starts a program leaves it to the copy of itself
/// that becomes this program, for a moment.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);

/// Opens or creates a journal that no other run writes.
fn open_locked(path: &Path) -> Result<File, VerbError> {
    let until = Instant::now() + LOCK_PATIENCE;
    loop {
        let file = private::append_to(path).map_err(|error| at(path, &error))?;
        match file.try_lock() {
            // The run that held it may have ended meanwhile, and have removed it.
            Ok(()) if is_at(path, &file) => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(at(path, &error)),
            Ok(()) | Err(TryLockError::WouldBlock) if Instant::now() < until => {
                thread::sleep(Duration::from_millis(10));
            }
            Ok(()) | Err(TryLockError::WouldBlock) => {
                let path = path.display();
                return Err(VerbError::failed(format!(
                    "{path}: in use by another run; choose another file with -o"
                )));
            }
        }
    }
}

/// Whether the open file is the one of this name.
fn is_at(path: &Path, file: &File) -> bool {
    let known =
        |facts: io::Result<fs::Metadata>| facts.map(|facts| (facts.dev(), facts.ino())).ok();
    known(fs::metadata(path)).is_some_and(|there| Some(there) == known(file.metadata()))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn at(path: &Path, error: &dyn std::error::Error) -> VerbError {
    VerbError::failed(format!("{}: {}", input_name(path), crate::exit::chain(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_is_let_go_in_a_moment_is_waited_for() {
        let folder = private::Scratch::new("store").expect("a folder");
        let path = folder.path().join("r.json.journal");
        let held = open_locked(&path).expect("nobody has it");
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(50));
                fs::remove_file(&path).expect("there");
                drop(held);
            });
            let next = open_locked(&path).expect("after a moment");
            assert!(is_at(&path, &next), "a file that was removed is not written");
        });
    }
}
