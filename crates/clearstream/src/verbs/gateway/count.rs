//! `clearstream gateway count`: prints this host's counters whenever another host requests them.

use std::io::{BufRead, Write};

use topology::HostReading;

use crate::VerbResult;
use crate::exit::{Exit, VerbError};

/// Runs `gateway count`, until standard input ends.
pub(super) fn run() -> VerbResult {
    for line in std::io::stdin().lock().lines() {
        line?;
        let reading = serde_json::to_string(&HostReading::read()).map_err(VerbError::failed)?;
        let mut out = crate::out::stdout();
        writeln!(out, "{reading}")?;
        out.flush()?;
    }
    Ok(Exit::Ok)
}
