//! File-system load: what each phase gave, how long its calls took, and who did it.

use results::{Estimate, LatencySummary, Point, PointOutcome, Results, RunKind, Work};

use super::{Section, verdict};
use crate::digest::Digest;
use crate::markup::{Element, el};
use crate::show::{self, DASH};
use crate::table::Table;

/// Phases that stand in the card.
const NAMED_MAX: usize = 3;
/// Hosts listed at most.
const HOSTS_MAX: usize = 200;

/// Whether a document is of such a load: there is no path with two ends then.
pub(crate) fn is_one(results: &Results) -> bool {
    let is_on_files = |point: &Point| {
        matches!(point.work, Work::FileIo(_) | Work::FileMetadata(_) | Work::FileLocks(_))
    };
    let points = &results.points;
    match results.kind {
        RunKind::Io | RunKind::Meta => true,
        RunKind::Reproduce => !points.is_empty() && points.iter().all(is_on_files),
        _ => false,
    }
}

/// `/mnt/pfs/f from c1`.
pub(crate) fn subject(digest: &Digest<'_>) -> String {
    let path = digest.results.points.iter().find_map(|point| match &point.work {
        Work::FileIo(work) => Some(&work.path),
        Work::FileMetadata(work) => Some(&work.path),
        Work::FileLocks(work) => Some(&work.path),
        _ => None,
    });
    match path {
        Some(path) => format!("{} from {}", show::clip(path, 80), digest.near_name),
        None => digest.near_name.clone(),
    }
}

/// The verdict or what became of a paper's law; where there is neither, the rates.
pub(crate) fn card(digest: &Digest<'_>) -> Element {
    if digest.results.verdict.is_some() || digest.results.reproduction.is_some() {
        return verdict::card(digest);
    }
    let mut phases: Vec<&Point> = Vec::new();
    for point in &digest.results.points {
        if !phases.iter().any(|known| known.experiment == point.experiment) {
            phases.push(point);
        }
    }
    let median = |phase: &&Point| {
        let all = digest.results.points.iter();
        let repeats = all.filter(|point| point.experiment == phase.experiment);
        let rates: Vec<f64> = repeats.filter_map(rate_of).collect();
        let rate = show_rate(&phase.work, Estimate::of(&rates)?.median);
        Some(format!("{} {rate}", show::clip(compare::phase_name(&phase.experiment), 40)))
    };
    let named: Vec<String> = phases.iter().filter_map(median).take(NAMED_MAX).collect();
    let failed = digest.results.points.iter().any(|point| point.measured().is_none());
    let title = match (named.is_empty(), failed) {
        (false, _) => named.join(" · "),
        (true, true) => "No phase is complete".to_owned(),
        (true, false) => "No rate".to_owned(),
    };
    let lead = "The median of each phase's repetitions.";
    el("section")
        .attr("id", "verdict")
        .class("verdict")
        .attr("aria-labelledby", "verdict-heading")
        .child(el("p").class("eyebrow").text("Measured"))
        .child(verdict::title(title))
        .child(el("p").class("lead").text(lead))
}

/// What every phase gave.
pub(crate) fn section(digest: &Digest<'_>) -> Option<Section> {
    let head = ["phase", "repetition", "tasks", "rate", "calls", "call p50", "p99", "highest"];
    let mut table = Table::new("Every phase", 2, &head);
    let phases = digest.results.points.iter().filter(|point| is_phase(point));
    phases.for_each(|point| table.row(row(point)));
    let table = (!table.is_empty()).then(|| table.into_element());
    Section::new("phases", "Phases", table)
}

/// Whether a point is a phase of a load, or a load that failed: the load of a planned experiment stands beside its phases.
fn is_phase(point: &Point) -> bool {
    let is_verdict =
        |work: &Work| matches!(work, Work::FileLocks(work) if !work.verdict.is_empty());
    point.measured().is_none() || rate_of(point).is_some() || is_verdict(&point.work)
}

fn row(point: &Point) -> Vec<String> {
    let mut cells =
        vec![show::name(&point.experiment), point.repeat.to_string(), tasks(&point.work)];
    let outcome = match &point.outcome {
        PointOutcome::Measured(outcome) => outcome,
        PointOutcome::Failed(why) => {
            cells.push(format!("failed: {why}"));
            return cells;
        }
    };
    let rate = match &point.work {
        Work::FileLocks(work) => work.verdict.clone(),
        work => rate_of(point).map_or_else(|| DASH.to_owned(), |rate| show_rate(work, rate)),
    };
    cells.push(rate);
    let calls = outcome.round_trips.as_ref();
    let time = |read: &dyn Fn(&LatencySummary) -> Option<f64>| {
        calls.and_then(read).map_or_else(|| DASH.to_owned(), show::seconds)
    };
    cells.push(calls.map_or_else(|| DASH.to_owned(), |calls| calls.count.to_string()));
    cells.extend([
        time(&|calls| calls.percentile_s(50.0)),
        time(&|calls| calls.percentile_s(99.0)),
        time(&|calls| Some(calls.max_s)),
    ]);
    cells
}

fn tasks(work: &Work) -> String {
    match work {
        Work::FileIo(work) => work.ranks_count.to_string(),
        Work::FileMetadata(work) => work.ranks_count.to_string(),
        _ => DASH.to_owned(),
    }
}

/// The rate of a phase: bytes or items a second.
fn rate_of(point: &Point) -> Option<f64> {
    let name = match &point.work {
        Work::FileIo(_) => "moved_bytes_per_s",
        Work::FileMetadata(_) => "items_per_s",
        _ => return None,
    };
    let figures = &point.measured()?.figures;
    figures.iter().find(|figure| figure.name == name).map(|figure| figure.value)
}

fn show_rate(work: &Work, rate: f64) -> String {
    match work {
        Work::FileIo(_) => format!("{}/s", show::size(rate)),
        _ => format!("{}/s", show::count(rate)),
    }
}

/// Who took part.
pub(crate) fn hosts(digest: &Digest<'_>) -> Option<Section> {
    let head = ["host", "own name", "kernel", "processor", "cores"];
    let mut table = Table::new("Every host that took part", 4, &head);
    for host in digest.results.hosts.iter().take(HOSTS_MAX) {
        let facts = &host.facts;
        table.row([
            host.name.clone(),
            facts.name.clone(),
            told(&facts.kernel),
            told(facts.processor.as_deref().unwrap_or_default()),
            if facts.online_cores_count > 0 {
                facts.online_cores_count.to_string()
            } else {
                DASH.to_owned()
            },
        ]);
    }
    let table = (!table.is_empty()).then(|| table.into_element());
    Section::new("hosts", "Hosts", table)
}

fn told(text: &str) -> String {
    if text.is_empty() { DASH.to_owned() } else { text.to_owned() }
}
