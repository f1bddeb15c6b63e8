//! The basis of a plan: a results file, or a few tests run now.

use std::path::{Path, PathBuf};

use results::{Direction, Point, Protocol, Results, RunKind, TestLimit, TestSpec};
use sweep::{Experiment, Plan, Setting};

use crate::exit::VerbError;
use crate::far::FarEnd;
use crate::progress::Progress;
use crate::runner::{self, Conducted, Keeping, Tested};
use crate::signals;
use crate::store;
use crate::verbs::options::{ApplicationOptions, ServerOptions};

/// Seed of the shuffled order of the tests; its value has no significance.
const SEED: u64 = 0x7e57;

/// Where evidence comes from.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct EvidenceOptions {
    /// Far host, which is measured briefly now; `clearstream serve` must run there.
    #[arg(value_name = "HOST", value_hint = clap::ValueHint::Hostname)]
    pub(super) host: Option<String>,
    /// Take the evidence from this results file (of `path`) instead of measuring.
    #[arg(long, value_name = "FILE")]
    pub(super) results: Option<PathBuf>,
    #[command(flatten)]
    pub(super) server: ServerOptions,
    /// Time for which each test measures.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = crate::verbs::options::duration)]
    pub(super) duration: std::time::Duration,
    #[command(flatten)]
    pub(super) application: ApplicationOptions,
}

impl EvidenceOptions {
    /// The test whose throughput is compared.
    pub(super) fn spec(&self) -> TestSpec {
        let duration_s = self.duration.as_secs_f64().max(0.2);
        TestSpec {
            protocol: Protocol::Tcp,
            direction: Direction::Forward,
            streams: 1,
            limit: TestLimit::DurationS(duration_s),
            omit_s: 0.5,
            interval_s: 0.25_f64.min(duration_s / 4.0).max(0.05),
            ..self.application.spec()
        }
    }

    /// The far end, if one was named.
    pub(super) fn far(&self) -> Result<Option<FarEnd>, VerbError> {
        let Some(host) = &self.host else { return Ok(None) };
        FarEnd::connect(&self.server.at(host)).map(Some)
    }

    /// The evidence: from the file, or from tests run now with a journal beside `output`.
    pub(super) fn gather(
        &self,
        far: Option<&mut FarEnd>,
        output: &Path,
    ) -> Result<Gathered, VerbError> {
        if let Some(file) = &self.results {
            return Ok(Gathered { results: store::load(file)?, conducted: Conducted::AT_ONCE });
        }
        let far = named(far)?;
        signals::watch().map_err(|error| VerbError::from_error(&error))?;
        let mut progress = Progress::new(1);
        let mut results = far.describe(RunKind::Tune, &mut progress);
        crate::granted::check(&self.spec(), &results)?;
        let (evidence, mut driver) = (Evidence { single: self.spec() }, Tested(far));
        let keeping = Keeping::beside(output);
        let conducted = runner::conduct(&evidence, &mut driver, keeping, &mut results, progress);
        Ok(Gathered { results, conducted })
    }
}

/// The far end; fails if none was named, which is allowed only with a results file.
pub(super) fn named(far: Option<&mut FarEnd>) -> Result<&mut FarEnd, VerbError> {
    let missing = "name the far HOST to measure now, or a results file with --results";
    far.ok_or_else(|| VerbError::usage(missing))
}

/// Evidence, and how its tests ended.
pub(super) struct Gathered {
    pub(super) results: Results,
    pub(super) conducted: Conducted,
}

/// The experiment that a plan is based on: a few tests that show what limits throughput.
pub(super) struct Evidence {
    /// The test whose throughput is compared.
    pub(super) single: TestSpec,
}

impl Experiment for Evidence {
    fn round(&self, number: u32, so_far: &Results) -> Option<Plan> {
        if number == 0 {
            return Some(battery(&self.single));
        }
        // A window that binds hides the limits that would bind without it, so wider windows are tested first.
        let mut windows = so_far.points.iter().filter(|point| point.experiment == WIDE_WINDOW);
        if windows.next_back().is_some_and(|last| last.measured().is_none()) {
            return None;
        }
        let bytes = tuning::plan::next_window_bytes(so_far)?;
        Some(one_more(&self.single, bytes, &so_far.points))
    }

    /// Adds the path's BDP and the verdict without an experiment: the change itself will be the experiment.
    fn conclude(&self, results: &mut Results, _is_complete: bool) {
        let mut first = results.clone();
        first.points.retain(|point| point.experiment != WIDE_WINDOW);
        first.summaries = sweep::summarise(&first.points);
        let rtt_s = results.path.idle_rtt.as_ref().and_then(|rtt| rtt.percentile_s(50.0));
        let rates =
            first.summaries.iter().filter(|one| one.figure == "forward_received_bits_per_s");
        let best = rates.map(|one| one.estimate.median).max_by(f64::total_cmp);
        first.path.bandwidth_delay_product_bytes =
            rtt_s.zip(best).map(|(rtt_s, best)| units::bandwidth_delay_product_bytes(best, rtt_s));
        // The tests with wider windows show which rate the windows are to be sized for.
        if results.verdict.is_none() {
            results.verdict = Some(explain::diagnose(results).verdict());
        }
        results.path = first.path;
        results.summaries = sweep::summarise(&results.points);
    }
}

/// Experiment name of the tests with wider windows.
const WIDE_WINDOW: &str = "wide-window";

/// The judged stream with a given window, with one more repeat than is in `done`.
fn one_more(single: &TestSpec, bytes: u64, done: &[Point]) -> Plan {
    let spec = TestSpec { window_bytes: Some(bytes), ..single.clone() };
    let done = done.iter().filter(|point| point.spec() == Some(&spec)).count();
    let setting = Setting::new(WIDE_WINDOW, spec).varying("window_bytes", bytes as f64);
    Plan::new(vec![setting], u32::try_from(done).unwrap_or(u32::MAX).saturating_add(1), SEED)
}

/// The judged stream three times, and tests that tell a per-stream limit from one of the path.
fn battery(single: &TestSpec) -> Plan {
    const REPEATS: u32 = 3;
    let settings = vec![
        Setting::new("single-stream", single.clone()),
        Setting::new("multi-stream", TestSpec { streams: 4, ..single.clone() }).with_repeats(1),
        Setting::new("reverse", TestSpec { direction: Direction::Reverse, ..single.clone() })
            .with_repeats(1),
    ];
    Plan::new(settings, REPEATS, SEED)
}
