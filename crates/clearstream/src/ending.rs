//! How a run ends, whatever it was: its results written, its report, what it prints, its exit code.

use std::io::{self, Write};
use std::path::Path;

use report::RenderOptions;
use results::Results;

use crate::VerbResult;
use crate::exit::{Exit, VerbError};
use crate::runner::{Conducted, Ended};
use crate::store::{self, PointLog};

/// Where what a run found goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outputs<'a> {
    /// The results file, where there is one.
    pub(crate) results: Option<&'a Path>,
    /// The report page, where one is asked for.
    pub(crate) report: Option<&'a Path>,
    /// What the verb has written already and the user should be told of.
    pub(crate) also: Option<&'a Path>,
    /// Whether the document goes to standard output instead of text.
    pub(crate) json: bool,
}

/// What a run says of itself, and how it ends where nothing came between.
pub(crate) struct Said<'a> {
    /// What people read.
    pub(crate) text: String,
    /// What programs read, where it is not the whole document.
    pub(crate) json: Option<&'a str>,
    /// The verb's end when every point was run.
    pub(crate) exit: Exit,
}

/// Writes the files, prints, and decides the exit: what was cut short keeps its journal and says so.
///
/// # Errors
/// A file cannot be written; why the run could not go on.
pub(crate) fn end(
    outputs: Outputs<'_>,
    results: &Results,
    Conducted { ended, log }: Conducted,
    said: &Said<'_>,
) -> VerbResult {
    if results.points.is_empty() && results.partial.is_some() {
        return unused(Conducted { ended, log });
    }
    let written = write(outputs, results);
    print(outputs, results, said)?;
    // Only now, so that what was found is told also where no file can be written.
    written?;
    match ended {
        Ok(Ended::Complete) => log.map_or(Ok(()), PointLog::discard).map(|()| said.exit),
        Ok(Ended::Interrupted(number)) => {
            say_cut_short(number, log.as_ref());
            Ok(Exit::Signal(number))
        }
        Err(error) => Err(error),
    }
}

/// The end of a run that has nothing to write; `why` where neither a signal nor an error says it.
///
/// # Errors
/// Why there is nothing.
pub(crate) fn nothing(Conducted { ended, log }: Conducted, why: &str) -> VerbResult {
    match ended {
        Ok(Ended::Complete) => Err(VerbError::failed(why)),
        Ok(Ended::Interrupted(number)) => {
            let log = log.map(PointLog::unless_empty).transpose()?.flatten();
            say_cut_short(number, log.as_ref());
            Ok(Exit::Signal(number))
        }
        Err(error) => {
            log.map(PointLog::unless_empty).transpose()?;
            Err(error)
        }
    }
}

/// The end of tests whose points only another step would have used: nothing is written, and the journal
/// has what there is.
///
/// # Errors
/// Why the tests could not go on.
pub(crate) fn unused(conducted: Conducted) -> VerbResult {
    nothing(conducted, "nothing was measured")
}

/// Says by what a run was cut short and how it goes on.
pub(crate) fn say_cut_short(number: i32, log: Option<&PointLog>) {
    let how = log.map_or_else(String::new, |log| {
        let path = log.path().display();
        format!(": cut short; the same command takes it up again from {path}")
    });
    // Only talk: a closed stderr takes nothing from the run.
    writeln!(crate::out::stderr(), "clearstream: ended by signal {number}{how}").ok();
}

fn write(outputs: Outputs<'_>, results: &Results) -> Result<(), VerbError> {
    if let Some(path) = outputs.results {
        store::save(path, results)?;
    }
    if let Some(page) = outputs.report {
        store::replace(page, report::render(results, &RenderOptions::default()).as_bytes())?;
    }
    Ok(())
}

fn print(outputs: Outputs<'_>, results: &Results, said: &Said<'_>) -> Result<(), VerbError> {
    let mut out = crate::out::stdout();
    match (outputs.json, said.json) {
        (true, None) => serde_json::to_writer(&mut out, results).map_err(io::Error::from)?,
        (true, Some(text)) => out.write_all(text.as_bytes())?,
        (false, _) => out.write_all(said.text.as_bytes())?,
    }
    if outputs.json {
        writeln!(out)?;
    } else {
        let files = [outputs.results, outputs.also, outputs.report];
        let names: Vec<String> =
            files.into_iter().flatten().map(|path| path.display().to_string()).collect();
        if !names.is_empty() {
            writeln!(out, "Written  {}", names.join(", "))?;
        }
    }
    out.flush()?;
    Ok(())
}
