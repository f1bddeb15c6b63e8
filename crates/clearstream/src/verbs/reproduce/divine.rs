//! C-divine and C-mix: the distributed model checker over the path, alone and beside a bulk flow.
//!
//! Two hosts of a lab search one model together, with one rank each, over MPI; their traffic is read
//! from the interfaces of both ends: first over a short path, then over the demonstration's 17 ms.

mod job;
mod latency;

use std::fs;
use std::path::{Path, PathBuf};

use results::{
    Estimate, FAR, Figure, LawCheck, NEAR, PaperFigure, Results, SearchWork, Summary, TestLimit,
    TestOutcome, TestSpec, Work, Worker, figure,
};
use sweep::{Plan, PlannedPoint, Setting};
use sys::private::Scratch;
use units::show_bit_rate;

use super::catalogue::Entry;
use super::recipes::undecided;
use super::{ReproduceArgs, conduct, local, publish};
use crate::VerbResult;
use crate::bed::TestBed;
use crate::exit::VerbError;
use crate::progress::Progress;
use crate::runner::{self, Done, Driver};
use crate::signals;
use job::Search;
use latency::{Beside, Probe};

const SHORT: &str = "local40g";
const LONG: &str = "glif2010";

/// Philosophers of the model: 892 296 states of 21 bytes, 3.9 million steps.
const PHILOSOPHERS: usize = 7;

/// Measurements of one repeat: the figure with its unit, and its value.
type Measured = Vec<(&'static str, f64)>;

/// Seed of the order of settings; every round has only one.
const SEED: u64 = 0x2008;

const STATES: &str = figure::STATES_PER_S;
const STATES_BESIDE: &str = "states_per_s_beside_bulk";
const MEAN: &str = "both_ways_bits_per_s";
const PEAK: &str = "peak_both_ways_bits_per_s";
const NEAR_SENT: &str = "near_sent_bytes";
const FAR_SENT: &str = "far_sent_bytes";
/// Duration of the idle path's measurement, seconds.
const PROBE_S: f64 = 1.0;

const BULK: &str = "bulk_bits_per_s";
const BULK_BESIDE: &str = "bulk_bits_per_s_beside_checker";

/// Runs C-divine or C-mix; starting the job requires a lab.
pub(super) fn run(entry: &'static Entry, args: &ReproduceArgs, json: bool) -> VerbResult {
    if args.host.is_some() {
        return Err(VerbError::usage(format!(
            "{} starts its ranks in a lab; between hosts run `clearstream check --hosts`",
            entry.id
        )));
    }
    let launcher = job::launcher()?;
    signals::watch().map_err(|error| VerbError::from_error(&error))?;
    let model = ScratchModel::new()?;
    let is_mix = entry.id == "C-mix";
    let plans = [SHORT, LONG].map(|lab| {
        let setting = Setting::new(experiment(entry.id, lab), Work::Search(search_work()));
        Plan::new(vec![setting], args.repeats, SEED)
    });
    let duration_s = args.duration.as_secs_f64();
    let mut ranks = Ranks { launcher, model: &model.0, is_mix, duration_s, bed: None };
    let document = local::document();
    let conducted = conduct(entry, &plans[..], &mut ranks, document, Progress::new(0), args);
    drop(ranks);
    let judge = if is_mix { judge_mix } else { judge_alone };
    publish(entry, conducted, |results| judge(entry, results), args, json)
}

/// Experiment name of the points in one of the labs.
fn experiment(id: &str, lab: &str) -> String {
    format!("{id} {lab}")
}

fn search_work() -> SearchWork {
    SearchWork {
        model: format!("{PHILOSOPHERS} philosophers"),
        checked: None,
        ranks_count: 2,
        threads_count: Some(1),
    }
}

/// Two ranks in a lab, one on each host; the last point's lab stays up for the next.
struct Ranks<'a> {
    launcher: &'a str,
    model: &'a Path,
    /// Whether to measure a bulk flow beside the search too.
    is_mix: bool,
    /// Duration of the bulk flow alone, seconds.
    duration_s: f64,
    bed: Option<(&'static str, TestBed)>,
}

impl Driver for Ranks<'_> {
    fn run(
        &mut self,
        planned: &PlannedPoint,
        _what: &str,
        _progress: &mut Progress,
    ) -> Result<Done, VerbError> {
        self.stand_in(if planned.experiment.ends_with(SHORT) { SHORT } else { LONG })?;
        let started_unix_ms = runner::now_unix_ms();
        let mut measured = Measured::new();
        let done =
            if self.is_mix { self.beside_bulk(&mut measured) } else { self.alone(&mut measured) };
        let mut done = match done {
            Err(error) => Done::failed(planned, started_unix_ms, error),
            Ok(search) => {
                let figures = measured.into_iter().map(|(name, value)| Figure::new(name, value));
                let outcome = TestOutcome {
                    duration_s: search.seconds,
                    figures: figures.collect(),
                    ..TestOutcome::default()
                };
                Done::measured(planned, started_unix_ms, outcome)
            }
        };
        let worker = |host: &str| Worker {
            host: host.to_owned(),
            part: "search".to_owned(),
            cores: Vec::new(),
        };
        done.point.by = vec![worker(NEAR), worker(FAR)];
        Ok(done)
    }
}

impl Ranks<'_> {
    /// Brings the lab up, after taking down another one.
    fn stand_in(&mut self, lab: &'static str) -> Result<(), VerbError> {
        if self.bed.as_ref().is_none_or(|(name, _)| *name != lab) {
            self.bed = None;
            let bed = TestBed::up(lab)?;
            if self.is_mix {
                bed.serve()?;
            }
            self.bed = Some((lab, bed));
        }
        Ok(())
    }

    fn bed(&self) -> Result<&TestBed, VerbError> {
        let bed = self.bed.as_ref().map(|(_, bed)| bed);
        bed.ok_or_else(|| VerbError::failed("no lab is up"))
    }

    fn search(
        &self,
        while_running: &mut dyn FnMut() -> Result<(), VerbError>,
    ) -> Result<Search, VerbError> {
        job::search(self.bed()?, self.launcher, self.model, while_running)
    }

    /// Measures one search alone.
    fn alone(&self, measured: &mut Measured) -> Result<Search, VerbError> {
        let search = self.search(&mut || Ok(()))?;
        measured.extend([
            (STATES, search.states_per_s()),
            (MEAN, search.bits_per_s()),
            (PEAK, search.peak_bits_per_s),
            (NEAR_SENT, search.near_sent_bytes),
            (FAR_SENT, search.far_sent_bytes),
        ]);
        Ok(search)
    }

    /// Measures the checker alone, a bulk flow alone, and both at once.
    fn beside_bulk(&self, measured: &mut Measured) -> Result<Search, VerbError> {
        let search = self.alone(measured)?;
        let bed = self.bed()?;
        let mut flow = bed.tester()?;
        latency::keep(measured, Beside::Nothing, &Probe::begin(bed, PROBE_S)?.end()?);
        self.watched(measured, search.seconds)?;
        flow.begin(&bulk(self.duration_s))?;
        let outcome = flow.outcome(&mut |_| {})?;
        measured.push((BULK, received_bits_per_s(&outcome)?));
        latency::keep(measured, Beside::Bulk, &latency::under_load(outcome)?);
        // The flow should outlast the search beside it; the round trips measured by the flow itself cover its
        // whole duration.
        flow.begin(&bulk((3.0 * search.seconds).max(self.duration_s)))?;
        let mut probe = Probe::while_searching(bed, search.seconds);
        let beside = self.search(&mut || probe.go());
        measured.push((STATES_BESIDE, beside?.states_per_s()));
        measured.push((BULK_BESIDE, received_bits_per_s(&flow.outcome(&mut |_| {})?)?));
        if let Some(found) = probe.end()? {
            latency::keep(measured, Beside::Both, &found);
        }
        Ok(search)
    }

    /// Measures a search with only round trips beside it.
    fn watched(&self, measured: &mut Measured, search_s: f64) -> Result<(), VerbError> {
        let mut probe = Probe::while_searching(self.bed()?, search_s);
        self.search(&mut || probe.go())?;
        if let Some(found) = probe.end()? {
            latency::keep(measured, Beside::Checker, &found);
        }
        Ok(())
    }
}

/// One TCP flow from the near host to the far one, with round trips beside it.
fn bulk(seconds: f64) -> TestSpec {
    let limit = TestLimit::DurationS(seconds);
    TestSpec { limit, latency_under_load: true, ..TestSpec::tcp() }
}

/// Rate that the far host received, bit/s.
fn received_bits_per_s(outcome: &TestOutcome) -> Result<f64, VerbError> {
    let rate = outcome.directions.first().map(|direction| direction.received_bits_per_s);
    rate.ok_or_else(|| VerbError::failed("the bulk flow reports no rate"))
}

/// A figure of one lab over its repeats.
fn estimate(results: &Results, id: &str, lab: &str, figure: &str) -> Option<Estimate> {
    let experiment = experiment(id, lab);
    let wanted = |one: &&Summary| one.experiment == experiment && one.figure == figure;
    results.summaries.iter().find(wanted).map(|one| one.estimate)
}

fn row(
    name: &str,
    lab: &str,
    paper: &str,
    here: Option<Estimate>,
    show: fn(f64) -> String,
) -> PaperFigure {
    let here = here.map(|one| one.text(show));
    PaperFigure { name: format!("{name}, {lab}"), paper: paper.to_owned(), here }
}

fn show_states(value: f64) -> String {
    format!("{} states/s", units::show_count(value))
}

fn show_bytes(value: f64) -> String {
    units::show_byte_size(value as u64)
}

fn checker_rows(entry: &Entry, results: &Results) -> Vec<PaperFigure> {
    let mut rows = Vec::new();
    for lab in [SHORT, LONG] {
        let of = |figure| estimate(results, entry.id, lab, figure);
        rows.push(row("2 ranks on 2 hosts", lab, "-", of(STATES), show_states));
        rows.push(row(
            "both ways, mean",
            lab,
            "about 400 Mbit/s per core",
            of(MEAN),
            show_bit_rate,
        ));
        rows.push(row("both ways, peak", lab, "11 Gbit/s", of(PEAK), show_bit_rate));
        rows.push(row("sent by the near end", lab, "-", of(NEAR_SENT), show_bytes));
        rows.push(row("sent by the far end", lab, "-", of(FAR_SENT), show_bytes));
    }
    rows
}

fn judge_alone(entry: &Entry, results: &Results) -> (Vec<PaperFigure>, LawCheck) {
    let rows = checker_rows(entry, results);
    let peak = |lab| estimate(results, entry.id, lab, PEAK).map(|one| one.median);
    let states = |lab| estimate(results, entry.id, lab, STATES).map(|one| one.median);
    let (Some(short), Some(long), Some(fast), Some(slow)) =
        (peak(SHORT), peak(LONG), states(SHORT), states(LONG))
    else {
        return (rows, undecided(entry.law, "a search did not finish"));
    };
    let peak = short.max(long);
    let judged = format!(
        "{} at most by two ranks, one per host; the paper's 11 Gbit/s took about 400 Mbit/s from each \
         of many cores; over 17 ms the search takes {:.2} times as long",
        show_bit_rate(peak),
        fast / slow
    );
    (rows, LawCheck { law: entry.law.to_owned(), holds: Some(peak >= 10e9), judged })
}

fn judge_mix(entry: &Entry, results: &Results) -> (Vec<PaperFigure>, LawCheck) {
    /// Least share of its rate alone that each must keep for the path to count as shared.
    const SHARE_MIN: f64 = 0.2;
    let mut rows = checker_rows(entry, results);
    let mut shares = Vec::new();
    for lab in [SHORT, LONG] {
        let of = |figure| estimate(results, entry.id, lab, figure);
        rows.push(row("bulk flow alone", lab, "35 Gbit/s", of(BULK), show_bit_rate));
        rows.push(row("bulk flow beside it", lab, "35 Gbit/s", of(BULK_BESIDE), show_bit_rate));
        rows.push(row("2 ranks beside bulk", lab, "-", of(STATES_BESIDE), show_states));
        let share = |beside, alone| Some(of(beside)?.median / of(alone)?.median);
        shares.push((share(BULK_BESIDE, BULK), share(STATES_BESIDE, STATES)));
        rows.extend(latency::rows(results, entry.id, lab));
    }
    let [(Some(bulk), Some(states)), (Some(long_bulk), Some(long_states))] = shares[..] else {
        return (rows, undecided(entry.law, "a run did not finish"));
    };
    let least = bulk.min(states).min(long_bulk).min(long_states);
    let percent = |share: f64| (share * 100.0).round();
    let times = |lab, beside| {
        let stretch = latency::stretch(results, entry.id, lab, beside);
        stretch.map_or_else(|| "unknown".to_owned(), |times| format!("{times:.1}"))
    };
    let judged = format!(
        "beside each other the bulk flow keeps {}% and the checker {}% of what each has alone on the \
         short path, {}% and {}% over 17 ms; here they share the cores as well as the path. Of 100 round trips the \
         slowest takes {} times as long as on the idle path beside the checker, {} beside the bulk flow \
         and {} beside both; over 17 ms {}, {} and {}",
        percent(bulk),
        percent(states),
        percent(long_bulk),
        percent(long_states),
        times(SHORT, Beside::Checker),
        times(SHORT, Beside::Bulk),
        times(SHORT, Beside::Both),
        times(LONG, Beside::Checker),
        times(LONG, Beside::Bulk),
        times(LONG, Beside::Both),
    );
    (rows, LawCheck { law: entry.law.to_owned(), holds: Some(least >= SHARE_MIN), judged })
}

/// The model in a temporary file: philosophers, each counting its meals up to three.
struct ScratchModel(PathBuf, #[expect(dead_code, reason = "goes with the value")] Scratch);

impl ScratchModel {
    fn new() -> Result<Self, VerbError> {
        let scratch = Scratch::new("divine").map_err(|error| VerbError::from_error(&error))?;
        let path = scratch.path().join("model.dve");
        fs::write(&path, model(PHILOSOPHERS))?;
        Ok(Self(path, scratch))
    }
}

/// A model of so many philosophers, each counting its meals up to three.
pub(super) fn model(philosophers: usize) -> String {
    let mut text = format!("byte fork[{philosophers}];\n");
    for me in 0..philosophers {
        let next = (me + 1) % philosophers;
        let (first, second) = (me.min(next), me.max(next));
        text += &format!(
            "process P{me} {{ byte eaten; state thinks, has, eats; init thinks; trans\n \
             thinks -> has {{ guard fork[{first}] == 0; effect fork[{first}] = 1; }},\n \
             has -> eats {{ guard fork[{second}] == 0; effect fork[{second}] = 1, \
             eaten = (eaten + 1) % 3; }},\n \
             eats -> thinks {{ effect fork[{first}] = 0, fork[{second}] = 0; }}; }}\n"
        );
    }
    text + "system async;\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_one() {
        assert!(dve::Model::parse(&model(PHILOSOPHERS)).is_ok());
    }

    #[test]
    fn laws_are_judged_by_what_was_measured() {
        let entry = super::super::catalogue::find("C-mix").expect("an entry");
        let mut results = Results::begun(results::RunKind::Reproduce, 0);
        let mut repeat = 0;
        let mut note = |results: &mut Results, lab: &str, figures: &[(&str, f64)]| {
            let figures = figures.iter().map(|(name, value)| Figure::new(*name, *value)).collect();
            let planned = PlannedPoint {
                experiment: experiment(entry.id, lab),
                varied: Default::default(),
                repeat,
                work: Work::Search(search_work()),
            };
            let outcome = TestOutcome { figures, ..TestOutcome::default() };
            results.points.push(Done::measured(&planned, 0, outcome).point);
            results.summaries = sweep::summarise(&results.points);
            repeat += 1;
        };
        for lab in [SHORT, LONG] {
            note(&mut results, lab, &[(STATES, 1e6), (STATES_BESIDE, 5e5), (BULK, 2e10)]);
        }
        assert_eq!(judge_mix(entry, &results).1.holds, None, "nothing beside the checker yet");
        for lab in [SHORT, LONG] {
            note(&mut results, lab, &[(BULK_BESIDE, 1e10)]);
        }
        assert_eq!(judge_mix(entry, &results).1.holds, Some(true));
        note(&mut results, SHORT, &[(PEAK, 4e8)]);
        note(&mut results, LONG, &[(PEAK, 3e8)]);
        let (_, law) = judge_alone(entry, &results);
        assert_eq!(law.holds, Some(false), "{law:?}");
    }
}
