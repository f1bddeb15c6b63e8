//! Searches put down in a file and taken up again.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use dve::Model;
use statespace::Reach;
use sys::durable::{self, DurableError};
use sys::private;

use crate::observer::Observer;
use crate::options::Options;
use crate::ranks::{of_ranks, read_manifest};
use crate::{CheckError, ModelSystem};

/// How often a long search is written down.
pub(crate) const INTERVAL: Duration = Duration::from_mins(10);

/// Where a search is written to and taken from.
#[derive(Debug, Default)]
pub(crate) struct CheckpointFiles {
    pub(crate) write: Option<PathBuf>,
    pub(crate) resume: Option<PathBuf>,
    /// Of the model's text and the options that change what is searched.
    pub(crate) fingerprint: u64,
    written: Option<Instant>,
}

impl CheckpointFiles {
    /// Of a model and what is asked of it.
    pub(crate) fn new(model: &Model, options: &Options) -> Self {
        let (write, resume) = (options.checkpoint.clone(), options.resume.clone());
        let flags = [options.allow_deadlock, options.bounds.is_reduced].map(u8::from);
        let fingerprint = fingerprint(model.source().bytes().chain(flags));
        Self { write, resume, fingerprint, written: Some(Instant::now()) }
    }

    /// A new search, or the one of the file.
    pub(crate) fn begin<'m>(
        &self,
        model: &'m Model,
        options: &Options,
    ) -> Result<Reach<ModelSystem<'m>>, CheckError> {
        let system = options.bounds.system(model);
        let Some(path) = &self.resume else {
            return Reach::new(system).map_err(|_full| CheckError::TooManyStates);
        };
        let wrong = |why: String| CheckError::Resume { path: path.clone(), why };
        if let Ok(Some(manifest)) = read_manifest(path) {
            return Err(wrong(of_ranks(manifest.sums.len())));
        }
        let file = private::open_existing(path).map_err(|error| wrong(error.to_string()))?;
        let mut file = BufReader::with_capacity(1 << 20, file);
        let restored =
            Reach::restore(system, self.fingerprint, &mut file, |state| model.is_state(state));
        let (mut search, taken) = restored.map_err(|error| wrong(error.to_string()))?;
        search.system_mut().set_taken(&taken);
        Ok(search)
    }

    /// Writes a long search down from time to time.
    pub(crate) fn now_and_then(
        &mut self,
        search: &Reach<ModelSystem<'_>>,
        observer: &mut dyn Observer,
    ) -> Result<(), CheckError> {
        if self.write.is_some() && self.written.is_some_and(|last| last.elapsed() > INTERVAL) {
            self.save(search, observer)?;
        }
        Ok(())
    }

    /// Writes the search down; the file is there whole or not at all.
    pub(crate) fn save(
        &mut self,
        search: &Reach<ModelSystem<'_>>,
        observer: &mut dyn Observer,
    ) -> Result<(), CheckError> {
        let Some(path) = &self.write else { return Ok(()) };
        let taken = search.system().taken();
        write_whole(path, |out| search.save(self.fingerprint, taken, out))
            .map_err(CheckError::Checkpoint)?;
        self.written = Some(Instant::now());
        observer.checkpoint_written(path, None);
        Ok(())
    }
}

/// Writes a file that is there whole or not at all, whatever happens meanwhile.
pub(crate) fn write_whole(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), DurableError> {
    let write = |file: &mut File| {
        let mut out = BufWriter::with_capacity(1 << 20, file);
        write(&mut out)?;
        out.flush()
    };
    durable::replace_with(path, write).map(drop)
}

/// Which file could not be written, at which step, and why.
pub(crate) fn why(error: &DurableError) -> String {
    format!("{error}: {}", error.source)
}

/// FNV-1a: the same on every machine.
fn fingerprint(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
