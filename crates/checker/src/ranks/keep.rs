//! A search of many ranks put down in files and taken up again.
//!
//! Each rank writes its own part beside the file that is named, on its own host. The file itself says
//! which parts belong together; it is written last, by rank 0. Parts have two names in turn, so those of
//! the checkpoint before are there until the new one is whole.

use std::fs;
use std::io::{BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crew::{Exchange, ExchangeError};
use dve::Model;
use statespace::SnapshotError;
use statespace::partition::{FileRequest, Manifest, Rank, Written};
use sys::private;

use super::Task;
use crate::checkpoint::{CheckpointFiles, INTERVAL, why, write_whole};
use crate::observer::Observer;
use crate::{CheckError, DriveError, RankedModel};

/// While files are written or read, the other ranks hear so often that this one is alive.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// What ranks have to do with files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Files {
    /// Of the model's text and the options that change what is searched.
    fingerprint: u64,
    write: Option<PathBuf>,
    resume: Option<(PathBuf, Manifest)>,
}

impl Files {
    /// For rank 0 of so many; looks at the file that is to be gone on with.
    pub(crate) fn new(
        keep: CheckpointFiles,
        is_full: bool,
        ranks_count: usize,
    ) -> Result<Self, CheckError> {
        let fingerprint = keep.fingerprint.wrapping_mul(3).wrapping_add(is_full.into());
        let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
        let mut files = Self { fingerprint, write: keep.write.map(absolute), resume: None };
        if let Some(path) = keep.resume.map(absolute) {
            let wrong = |why: String| CheckError::Resume { path: path.clone(), why };
            let manifest = read_manifest(&path).map_err(|error| wrong(error.to_string()))?;
            let manifest = manifest
                .ok_or_else(|| wrong("the file is not a checkpoint of many ranks".into()))?;
            if manifest.sums.len() != ranks_count {
                return Err(wrong(of_ranks(manifest.sums.len())));
            }
            if manifest.fingerprint != fingerprint {
                return Err(wrong(SnapshotError::Other.to_string()));
            }
            files.resume = Some((path, manifest));
        }
        Ok(files)
    }

    /// For the other ranks of a job.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut manifest = Vec::new();
        let (resume, is_there) = match &self.resume {
            Some((path, of)) => (Some(path), of.write(&mut manifest).is_ok()),
            None => (None, true),
        };
        let mut bytes = self.fingerprint.to_le_bytes().to_vec();
        for path in [&self.write.as_ref(), &resume.filter(|_| is_there)] {
            bytes.extend(text_of(path.map_or(Path::new(""), PathBuf::as_path)));
        }
        bytes.extend((manifest.len() as u32).to_le_bytes());
        bytes.extend(manifest);
        bytes
    }

    /// The same, and what follows it.
    pub(super) fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (fingerprint, mut rest) = bytes.split_first_chunk()?;
        let mut part = || {
            let (length, behind) = rest.split_first_chunk()?;
            let length = u32::from_le_bytes(*length) as usize;
            let (part, behind) = behind.split_at_checked(length)?;
            rest = behind;
            Some(part)
        };
        let (write, resume, manifest) = (part()?, part()?, part()?);
        let resume = match path_of(resume)? {
            Some(path) => Some((path, Manifest::read(&mut &manifest[..]).ok()?)),
            None => None,
        };
        let fingerprint = u64::from_le_bytes(*fingerprint);
        Some((Self { fingerprint, write: path_of(write)?, resume }, rest))
    }
}

fn text_of(path: &Path) -> Vec<u8> {
    let bytes = path.as_os_str().as_encoded_bytes();
    [&(bytes.len() as u32).to_le_bytes()[..], bytes].concat()
}

fn path_of(bytes: &[u8]) -> Option<Option<PathBuf>> {
    let text = std::str::from_utf8(bytes).ok()?;
    Some((!text.is_empty()).then(|| PathBuf::from(text)))
}

/// What a file is that so many ranks wrote.
pub(crate) fn of_ranks(count: usize) -> String {
    format!("the checkpoint was written by {count} ranks: resume it with --ranks {count}")
}

/// What belongs to a search of many ranks; none where the file is something else.
pub(crate) fn read_manifest(path: &Path) -> Result<Option<Manifest>, SnapshotError> {
    let mut file = BufReader::new(private::open_existing(path)?);
    let mut head = Vec::new();
    file.by_ref().take(8).read_to_end(&mut head)?;
    if !Manifest::is_one(&head) {
        return Ok(None);
    }
    Manifest::read(&mut head.chain(file)).map(Some)
}

/// A rank's part beside the file.
fn part(path: &Path, is_second: bool, rank: usize) -> PathBuf {
    let turn = if is_second { 'b' } else { 'a' };
    let mut name = path.to_owned().into_os_string();
    name.push(format!(".{turn}{rank}"));
    PathBuf::from(name)
}

/// A rank of a search that begins, or of the one in the files. While it reads, `exchange` is kept alive.
pub(super) fn begin<'m>(
    model: &'m Model,
    task: &Task<'_>,
    (me, ranks_count): (usize, usize),
    exchange: &mut impl Exchange,
) -> Result<Rank<RankedModel<'m>>, DriveError> {
    let fresh = || task.rank(model, me, ranks_count);
    let Some((path, manifest)) = &task.files.resume else { return Ok(fresh()?) };
    let path = part(path, manifest.is_second, me);
    let restored = beside(exchange, || restore(model, task, (me, ranks_count), (&path, manifest)))?;
    match restored {
        Ok(rank) => Ok(rank),
        Err(error) => {
            // It searches nothing: before it could say that it has nothing to do, all hear why.
            let mut rank = fresh()?;
            rank.give_up(format!("{}: {error}", path.display()));
            Ok(rank)
        }
    }
}

fn restore<'m>(
    model: &'m Model,
    task: &Task<'_>,
    (me, ranks_count): (usize, usize),
    (path, manifest): (&Path, &Manifest),
) -> Result<Rank<RankedModel<'m>>, SnapshotError> {
    let mut file = BufReader::with_capacity(1 << 20, private::open_existing(path)?);
    let (rank, sum) = Rank::restore(
        task.system(model),
        task.aim,
        (me, ranks_count),
        (task.files.fingerprint, manifest.serial),
        &mut file,
        |state| model.is_state(state),
    )?;
    let is_ours = manifest.sums.get(me) == Some(&sum);
    if is_ours { Ok(rank) } else { Err(SnapshotError::Damaged) }
}

/// Does what takes long, and keeps the other ranks from taking this one for lost.
fn beside<T: Send>(
    exchange: &mut impl Exchange,
    work: impl FnOnce() -> T + Send,
) -> Result<T, ExchangeError> {
    thread::scope(|scope| {
        let worker = scope.spawn(work);
        while !worker.is_finished() {
            exchange.keep_alive()?;
            thread::sleep(LOOK_EVERY);
        }
        worker.join().map_err(|_panic| ExchangeError::Panicked)
    })
}

/// Does a rank's errands.
pub(super) fn run(
    files: &Files,
    me: usize,
    rank: &mut Rank<RankedModel<'_>>,
    exchange: &mut impl Exchange,
) -> Result<(), ExchangeError> {
    match (rank.errand(), &files.write) {
        (Some(FileRequest::Write { serial, is_second }), Some(path)) => {
            let path = part(path, is_second, me);
            let searched: &Rank<_> = rank;
            let written =
                beside(exchange, || write_part(searched, files.fingerprint, serial, &path))?;
            rank.was_written(written);
        }
        (Some(FileRequest::Settled { is_whole, is_second }), Some(path)) => {
            // The parts of the checkpoint before, or those that came to nothing. There may be none.
            fs::remove_file(part(path, is_second != is_whole, me)).ok();
        }
        _ => {}
    }
    Ok(())
}

fn write_part(rank: &Rank<RankedModel<'_>>, fingerprint: u64, serial: u64, path: &Path) -> Written {
    let mut sum = 0;
    let write = |out: &mut dyn Write| {
        sum = rank.save(fingerprint, serial, out)?;
        Ok(())
    };
    write_whole(path, write).map_err(|error| why(&error))?;
    Ok(sum)
}

/// Rank 0's part: when to write, and what makes a whole.
#[derive(Debug)]
pub(super) struct Keeping {
    files: Files,
    last: Instant,
    /// What is being written.
    under_way: Option<(u64, bool)>,
    /// Why it could not be.
    pub(super) failure: Option<String>,
}

impl Keeping {
    pub(super) fn new(files: &Files) -> Self {
        Self { files: files.clone(), last: Instant::now(), under_way: None, failure: None }
    }

    /// Whether the search is written down when it ends early.
    pub(super) fn is_wanted(&self) -> bool {
        self.files.write.is_some()
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// Whether a long search should be written down.
    pub(super) fn is_due(&self) -> bool {
        self.is_wanted() && !self.is_under_way() && self.last.elapsed() > INTERVAL
    }

    /// Halts the search to write it down, unless that is under way; tells whether it is.
    pub(super) fn begin(&mut self, rank: &mut Rank<RankedModel<'_>>) -> bool {
        let Some(path) = self.files.write.as_ref().filter(|_| !self.is_under_way()) else {
            return self.is_under_way();
        };
        // What cannot be read is no checkpoint either: nothing is lost with it.
        let before = read_manifest(path).ok().flatten();
        let is_second = before.is_some_and(|manifest| !manifest.is_second);
        let serial = serial();
        self.last = Instant::now();
        if rank.pause(serial, is_second) {
            self.under_way = Some((serial, is_second));
        }
        self.is_under_way()
    }

    /// Once all have written, says what belongs together; whether that is done, well or not.
    pub(super) fn is_done(
        &mut self,
        rank: &mut Rank<RankedModel<'_>>,
        observer: &mut dyn Observer,
    ) -> bool {
        let (Some((serial, is_second)), Some(path)) = (self.under_way, &self.files.write) else {
            return false;
        };
        let Some(all) = rank.all_written() else { return false };
        self.under_way = None;
        let ranks_count = all.len();
        let written = all.into_iter().collect::<Result<Vec<u64>, String>>().and_then(|sums| {
            let manifest =
                Manifest { fingerprint: self.files.fingerprint, serial, is_second, sums };
            let write = |out: &mut dyn Write| manifest.write(out);
            write_whole(path, write).map_err(|error| why(&error))
        });
        rank.settle(written.is_ok(), is_second);
        match written {
            Ok(()) => observer.checkpoint_written(path, Some(ranks_count)),
            Err(why) => self.failure = Some(why),
        }
        true
    }
}

/// A number that no other checkpoint has.
fn serial() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (now.as_nanos() as u64) ^ u64::from(std::process::id()) << 40
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ranks_have_to_do_with_files_comes_back() {
        let manifest = Manifest { fingerprint: 7, serial: 9, is_second: true, sums: vec![1, 2] };
        let path = PathBuf::from("/tmp/ä b");
        for write in [None, Some(path.clone())] {
            for resume in [None, Some((path.clone(), manifest.clone()))] {
                let files = Files { fingerprint: 7, write: write.clone(), resume };
                let bytes = [&files.encode()[..], b"rest"].concat();
                assert_eq!(Files::decode(&bytes), Some((files, &b"rest"[..])));
                for length in 0..bytes.len() - 4 {
                    assert_eq!(Files::decode(&bytes[..length]), None, "cut to {length}");
                }
            }
        }
    }
}
