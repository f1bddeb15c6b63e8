//! The destination of tables: standard output, or the file of `-O summaryFile`.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;

use crate::exit::VerbError;
use crate::out;

/// The destination of tables.
#[derive(Debug, Clone)]
pub(crate) struct Page {
    file: Option<Arc<fs::File>>,
    /// Whether tables are printed at all; not with a results document on standard output.
    is_shown: bool,
}

impl Page {
    /// Opens the file or, unless a results document goes there, standard output.
    pub(crate) fn open(file: Option<&str>, is_json: bool) -> Result<Self, VerbError> {
        let open = |path: &str| {
            let failed = |error| VerbError::failed(format!("summaryFile={path}: {error}"));
            sys::private::create(Path::new(path)).map(Arc::new).map_err(failed)
        };
        let file = file.map(open).transpose()?;
        Ok(Self { is_shown: file.is_some() || !is_json, file })
    }

    /// Whether tables are printed.
    pub(crate) fn is_shown(&self) -> bool {
        self.is_shown
    }

    /// Prints part of the tables during the test. Write errors are ignored, so that the test goes on.
    pub(crate) fn text(&self, text: &str) {
        self.write(text).ok();
    }

    /// Prints part of the tables.
    pub(crate) fn write(&self, text: &str) -> io::Result<()> {
        if !self.is_shown {
            return Ok(());
        }
        match &self.file {
            Some(file) => (&**file).write_all(text.as_bytes()),
            None => {
                let mut out = out::stdout();
                out.write_all(text.as_bytes())?;
                out.flush()
            }
        }
    }
}

/// Prints a warning on standard error.
pub(crate) fn warn(line: &str) {
    // If stderr is closed, there is nowhere to report that.
    writeln!(out::stderr(), "WARNING: {line}").ok();
}
