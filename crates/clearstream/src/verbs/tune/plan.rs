//! `clearstream tune plan`: lists the changes that the evidence justifies.

use std::io::{self, Write};
use std::path::PathBuf;

use sys::private::Scratch;

use super::evidence::EvidenceOptions;
use super::show;
use crate::VerbResult;
use crate::ending;
use crate::exit::{Exit, VerbError};
use crate::runner::{Conducted, Ended};
use crate::store;

/// Options of `tune plan`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    clearstream tune plan geneva\n  \
    clearstream tune plan --results results.json\n  \
    clearstream --json tune plan geneva > plan.json     for `tune apply --plan plan.json`\n\n\
    Nothing is changed. With HOST a few short tests are run first; with --results the plan is made\n\
    from a file, on any machine.")]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    evidence: EvidenceOptions,
    /// Write the results of the tests made now to this file.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(super) fn run(args: &PlanArgs, json: bool) -> VerbResult {
    store::check_outputs([args.output.as_deref()])?;
    let mut far = if args.evidence.results.is_some() { None } else { args.evidence.far()? };
    // A temporary journal of the tests run now, if no file was named.
    let is_unnamed = args.output.is_none() && args.evidence.results.is_none();
    let scratch = is_unnamed.then(|| Scratch::new("plan")).transpose();
    let scratch = scratch.map_err(|error| VerbError::from_error(&error))?;
    let place = scratch.as_ref().map(|scratch| scratch.path().join("results.json"));
    let beside = args.output.clone().or(place).unwrap_or_default();
    let gathered = args.evidence.gather(far.as_mut(), &beside)?;
    let Conducted { ended: Ok(Ended::Complete), log } = gathered.conducted else {
        return ending::unused(gathered.conducted);
    };
    if let Some(file) = &args.output {
        store::save(file, &gathered.results)?;
    }
    log.map_or(Ok(()), store::PointLog::discard)?;
    let plan = tuning::plan::plan(&gathered.results);
    let mut out = crate::out::stdout();
    if json {
        serde_json::to_writer_pretty(&mut out, &plan).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        write!(out, "{}", show::plan(&plan, &gathered.results))?;
    }
    Ok(Exit::Ok)
}
