//! The end of any run: its results file, its report, its output and its exit code.

use std::io::{self, Write};
use std::path::Path;

use report::RenderOptions;
use results::{Point, Results, RunKind};

use crate::VerbResult;
use crate::exit::{Exit, VerbError};
use crate::runner::{Conducted, Ended};
use crate::store::{self, PointLog};

/// Where a run's results go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outputs<'a> {
    /// The results file, if any.
    pub(crate) results: Option<&'a Path>,
    /// The report page, if requested.
    pub(crate) report: Option<&'a Path>,
    /// A file that the verb has already written and that the output mentions.
    pub(crate) also: Option<&'a Path>,
    /// Whether standard output gets the document instead of text.
    pub(crate) json: bool,
}

/// The output of a run and its exit code if nothing interrupts it.
pub(crate) struct Said<'a> {
    /// Text output.
    pub(crate) text: String,
    /// JSON output, if it is not the whole document.
    pub(crate) json: Option<&'a str>,
    /// Exit code if every point was run.
    pub(crate) exit: Exit,
}

/// Writes the files, prints the output and decides the exit code. An interrupted run keeps its journal and
/// says how to resume.
///
/// # Errors
/// A file cannot be written, or the run could not go on.
pub(crate) fn end(
    outputs: Outputs<'_>,
    results: &Results,
    Conducted { ended, log }: Conducted,
    said: &Said<'_>,
) -> VerbResult {
    // `path` has measured the idle path before its first test. A run that failed before that test may not be the one
    // that writes these files.
    let has_idle_path =
        ended.is_ok() && results.kind == RunKind::Path && results.path.idle_rtt.is_some();
    if results.points.is_empty() && !has_idle_path && results.partial.is_some() {
        return unused(Conducted { ended, log });
    }
    let (files, written) = write(outputs, results);
    print(outputs.json, &files, results, said)?;
    // Checked after printing, so that results are shown even if no file can be written.
    written?;
    match ended {
        Ok(Ended::Complete) => log.map_or(Ok(()), PointLog::discard).map(|()| said.exit),
        Ok(Ended::Interrupted(number)) => {
            let log = log.map(PointLog::unless_empty).transpose()?.flatten();
            say_cut_short(number, log.as_ref());
            Ok(Exit::Signal(number))
        }
        Err(error) if has_measured(results) => {
            let how = log.as_ref().map_or_else(String::new, |log| format!("; {}", to_resume(log)));
            Err(error.with_part_done().and(&how))
        }
        Err(error) => Err(error),
    }
}

/// The end of a run without results; `why` is the reason if neither a signal nor an error is.
///
/// # Errors
/// The run's error, or `why` if it completed. A signal is no error.
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

/// The end of a run whose points only a later step would have used: nothing is written, and the journal
/// keeps the points.
///
/// # Errors
/// Those of [`nothing`].
pub(crate) fn unused(conducted: Conducted) -> VerbResult {
    nothing(conducted, "nothing was measured")
}

/// Reports the signal that ended a run, and how to resume it.
pub(crate) fn say_cut_short(number: i32, log: Option<&PointLog>) {
    let how = log.map_or_else(String::new, |log| format!(": interrupted; {}", to_resume(log)));
    // Informational: a closed stderr does not affect the run.
    writeln!(crate::out::stderr(), "clearstream: ended by signal {number}{how}").ok();
}

/// Whether a run has measured anything. That of `tune` begins with the points of another.
fn has_measured(results: &Results) -> bool {
    let is_measured = |point: &Point| point.measured().is_some();
    results.kind != RunKind::Tune && results.points.iter().any(is_measured)
}

/// How a run goes on from its journal.
fn to_resume(log: &PointLog) -> String {
    format!("run the same command to resume from {}", log.path().display())
}

/// Writes the files up to the first that cannot be written; returns those that are there now.
fn write<'a>(outputs: Outputs<'a>, results: &Results) -> (Vec<&'a Path>, Result<(), VerbError>) {
    let also = outputs.also;
    let mut files = Vec::new();
    if let Some(path) = outputs.results {
        if let Err(error) = store::save(path, results) {
            return (also.into_iter().collect(), Err(error));
        }
        files.push(path);
    }
    files.extend(also);
    if let Some(page) = outputs.report {
        let text = report::render(results, &RenderOptions::default());
        if let Err(error) = store::replace(page, text.as_bytes()) {
            return (files, Err(error));
        }
        files.push(page);
    }
    (files, Ok(()))
}

fn print(
    is_json: bool,
    files: &[&Path],
    results: &Results,
    said: &Said<'_>,
) -> Result<(), VerbError> {
    let mut out = crate::out::stdout();
    match (is_json, said.json) {
        (true, None) => serde_json::to_writer(&mut out, results).map_err(io::Error::from)?,
        (true, Some(text)) => out.write_all(text.as_bytes())?,
        (false, _) => out.write_all(said.text.as_bytes())?,
    }
    if is_json {
        writeln!(out)?;
    } else if !files.is_empty() {
        let names: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
        writeln!(out, "Written  {}", names.join(", "))?;
    }
    out.flush()?;
    Ok(())
}
