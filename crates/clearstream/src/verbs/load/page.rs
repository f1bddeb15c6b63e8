//! Where tables go: standard output, or the file of `-O summaryFile`.

use std::fs;
use std::io::{self, Write as _};
use std::sync::Arc;

use crate::exit::VerbError;
use crate::out;

/// Where tables go.
#[derive(Debug, Clone)]
pub(crate) struct Page {
    file: Option<Arc<fs::File>>,
    /// Tables are wanted: not a results document.
    is_shown: bool,
}

impl Page {
    /// A file, or standard output unless a results document goes there.
    pub(crate) fn open(file: Option<&str>, is_json: bool) -> Result<Self, VerbError> {
        let open = |path: &str| {
            let failed = |error| VerbError::failed(format!("summaryFile={path}: {error}"));
            fs::File::create(path).map(Arc::new).map_err(failed)
        };
        let file = file.map(open).transpose()?;
        Ok(Self { is_shown: file.is_some() || !is_json, file })
    }

    /// Whether tables are wanted.
    pub(crate) fn is_shown(&self) -> bool {
        self.is_shown
    }

    /// Shows a text of the tables while the test runs. Nobody may read any more; the test goes on.
    pub(crate) fn text(&self, text: &str) {
        self.write(text).ok();
    }

    /// Shows a text of the tables.
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

/// A remark, for people.
pub(crate) fn warn(line: &str) {
    // Nowhere left to complain to when stderr is closed.
    writeln!(out::stderr(), "WARNING: {line}").ok();
}
