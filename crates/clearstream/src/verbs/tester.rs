//! `clearstream tester`: the process in a lab that runs tests for another process of this program.

use crate::exit::Exit;
use crate::{VerbResult, tester};

/// Options of `tester`.
#[derive(Debug, clap::Args)]
pub(crate) struct TesterArgs {
    /// The host of the lab that serves.
    host: String,
}

pub(crate) fn run(args: &TesterArgs, _json: bool) -> VerbResult {
    tester::answer_all(&args.host).map(|()| Exit::Ok)
}
