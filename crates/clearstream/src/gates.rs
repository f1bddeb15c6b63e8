//! Gates as options of the verbs that measure: parsed before anything is measured, judged afterwards. Each
//! missed gate gets a line on standard error, and the exit code is 3.

use std::io::Write;

use compare::{Gate, GateError, GatedVerb, Judged};
use results::{GateResult, Results};

use crate::VerbResult;
use crate::exit::{Exit, VerbError};

/// What a run has to reach.
#[derive(Debug, Clone, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct GateOptions {
    /// Exit with code 3 if the throughput is lower: 1G. Other figures by name; may be repeated.
    #[arg(long, value_name = "[FIGURE=]VALUE", allow_hyphen_values = true, help_heading = "Gates")]
    pub(crate) fail_below: Vec<String>,
    /// Exit with code 3 if a figure is higher: rtt_p99=5ms, loss=0.1%; may be repeated.
    #[arg(long, value_name = "FIGURE=VALUE", allow_hyphen_values = true, help_heading = "Gates")]
    pub(crate) fail_above: Vec<String>,
    /// Exit with code 3 unless this holds: no-loss, no-retransmissions, complete; may be repeated.
    #[arg(long, value_name = "NAME", help_heading = "Gates")]
    pub(crate) require: Vec<String>,
}

impl GateOptions {
    /// Whether no gate is set.
    pub(crate) fn is_empty(&self) -> bool {
        self.fail_below.is_empty() && self.fail_above.is_empty() && self.require.is_empty()
    }

    /// Parses the gates for a verb.
    ///
    /// # Errors
    /// A figure or requirement that the verb does not have, or an unparsable value: exit code 2.
    pub(crate) fn gates(&self, verb: GatedVerb) -> Result<Vec<Gate>, VerbError> {
        let below = self.fail_below.iter().map(|text| Gate::fail_below(verb, text));
        let above = self.fail_above.iter().map(|text| Gate::fail_above(verb, text));
        let required = self.require.iter().map(|name| Gate::require(verb, name));
        let gates: Result<Vec<Gate>, GateError> = below.chain(above).chain(required).collect();
        gates.map_err(VerbError::usage)
    }

    /// The options as given, to pass to another process of this program.
    pub(crate) fn words(&self) -> impl Iterator<Item = String> {
        let of = |option: &'static str, values: &[String]| -> Vec<String> {
            values.iter().map(|value| format!("{option}={value}")).collect()
        };
        let below = of("--fail-below", &self.fail_below);
        let above = of("--fail-above", &self.fail_above);
        below.into_iter().chain(above).chain(of("--require", &self.require))
    }
}

/// Judges a run by its gates.
pub(crate) fn judge(gates: &[Gate], judged: Judged<'_>) -> Vec<GateResult> {
    gates.iter().flat_map(|gate| gate.judge(judged)).collect()
}

/// Judges a run between hosts by its gates and stores the results in its document.
pub(crate) fn judge_run(gates: &[Gate], results: &mut Results) {
    results.gates = judge(gates, Judged::of(results));
}

/// How many gates were met, as a line of a run's text; empty if none was set.
pub(crate) fn line(label: &str, results: &[GateResult]) -> String {
    let met = results.iter().filter(|result| result.is_met).count();
    match results.len() {
        0 => String::new(),
        all => format!("{label}{met} of {all} met\n"),
    }
}

/// Reports the missed gates; a run that succeeded then ends with exit code 3.
///
/// # Errors
/// Those of `ended`.
pub(crate) fn settle(results: &[GateResult], ended: VerbResult) -> VerbResult {
    let mut is_met = true;
    for missed in results.iter().filter(|result| !result.is_met) {
        is_met = false;
        // A closed stderr does not change the exit code.
        writeln!(crate::out::stderr(), "clearstream: gate missed: {}", missed.text).ok();
    }
    match ended {
        Ok(Exit::Ok) if !is_met => Ok(Exit::GateFailed),
        other => other,
    }
}
