//! C-divine and C-mix: the distributed model checker over the path, alone and beside a bulk flow.
//!
//! Two hosts of a lab search one model together, a rank each, over MPI; what goes between them is read
//! from the interfaces of both ends. Once over a short path, once over the 17 ms of the demonstration.

mod job;
mod latency;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use results::{Estimate, LawCheck, PaperFigure, Results, Summary};
use sys::private::Scratch;
use sys::process::{Ending, Owned};
use units::show_bit_rate;

use super::catalogue::Entry;
use super::in_lab::TestBed;
use super::{ReproduceArgs, local, publish};
use crate::VerbResult;
use crate::exit::VerbError;
use crate::progress::Progress;
use crate::runner::Ended;
use crate::store;
use crate::{signals, verbs::reproduce::recipes::undecided};
use job::Search;
use latency::{Beside, Probe};

const SHORT: &str = "local40g";
const LONG: &str = "glif2010";

/// Philosophers of the model: 892 296 states of 21 bytes, 3.9 million steps.
const PHILOSOPHERS: usize = 7;

/// What was measured: the lab, the figure with its unit, the repeats.
type Measured = Vec<(&'static str, &'static str, Vec<f64>)>;

const STATES: &str = "states_per_s";
const STATES_BESIDE: &str = "states_per_s_beside_bulk";
const MEAN: &str = "both_ways_bits_per_s";
const PEAK: &str = "peak_both_ways_bits_per_s";
const NEAR: &str = "near_sent_bytes";
const FAR: &str = "far_sent_bytes";
/// How long the idle path is watched, seconds.
const PROBE_S: f64 = 1.0;

const BULK: &str = "bulk_bits_per_s";
const BULK_BESIDE: &str = "bulk_bits_per_s_beside_checker";

/// Runs C-divine or C-mix; the job's start needs a lab.
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
    let mut measured = Measured::new();
    let mut progress = Progress::new(2 * args.repeats as usize);
    let mut ended = Ended::Complete;
    'labs: for lab in [SHORT, LONG] {
        let bed = TestBed::up(lab)?;
        if is_mix {
            bed.serve()?;
        }
        for repeat in 0..args.repeats {
            progress.begin(&format!("{} over {lab}, repeat {repeat}", entry.id));
            let done = if is_mix {
                beside_bulk(&bed, launcher, &model.0, args, lab, &mut measured)
            } else {
                alone(&bed, launcher, &model.0, lab, &mut measured).map(|_| ())
            };
            if let Some(number) = signals::caught() {
                ended = Ended::Interrupted(number);
                break 'labs;
            }
            done?;
        }
    }
    drop(progress);
    let mut results = local::document();
    results.summaries.clear();
    let judge = move |results: &mut Results| {
        results.summaries.extend(summaries(entry.id, &measured));
        if is_mix { judge_mix(entry, &measured) } else { judge_alone(entry, &measured) }
    };
    publish(entry, results, judge, ended, args, json)
}

/// One search with nothing beside it.
fn alone(
    bed: &TestBed,
    launcher: &str,
    model: &Path,
    lab: &'static str,
    measured: &mut Measured,
) -> Result<Search, VerbError> {
    let search = job::search(bed, launcher, model, &mut || Ok(()))?;
    note(measured, lab, STATES, search.states_per_s());
    note(measured, lab, MEAN, search.bits_per_s());
    note(measured, lab, PEAK, search.peak_bits_per_s);
    note(measured, lab, NEAR, search.near_sent_bytes);
    note(measured, lab, FAR, search.far_sent_bytes);
    Ok(search)
}

/// The checker alone, a bulk flow alone, and both at once.
fn beside_bulk(
    bed: &TestBed,
    launcher: &str,
    model: &Path,
    args: &ReproduceArgs,
    lab: &'static str,
    measured: &mut Measured,
) -> Result<(), VerbError> {
    let search = alone(bed, launcher, model, lab, measured)?;
    let scratch = Scratch::new("mix").map_err(|error| VerbError::from_error(&error))?;
    let file = scratch.path().join("bulk.json");
    let seconds = args.duration.as_secs_f64();
    latency::keep(measured, lab, Beside::Nothing, &Probe::begin(bed, PROBE_S)?.end()?);
    watched(bed, launcher, model, lab, measured, search.seconds)?;
    let rate = bulk_end(bulk_begin(bed, seconds, &file)?, &file)?;
    note(measured, lab, BULK, rate);
    latency::keep(measured, lab, Beside::Bulk, &latency::of_file(&file)?);
    // The flow lasts longer than the search beside it is expected to; the round trips of its probe
    // are those of all that time.
    let flow = bulk_begin(bed, (3.0 * search.seconds).max(seconds), &file)?;
    let mut probe = Probe::while_searching(bed, search.seconds);
    let beside = job::search(bed, launcher, model, &mut || probe.go());
    let rate = bulk_end(flow, &file);
    note(measured, lab, STATES_BESIDE, beside?.states_per_s());
    note(measured, lab, BULK_BESIDE, rate?);
    if let Some(found) = probe.end()? {
        latency::keep(measured, lab, Beside::Both, &found);
    }
    Ok(())
}

/// A search with nothing beside it but round trips.
fn watched(
    bed: &TestBed,
    launcher: &str,
    model: &Path,
    lab: &'static str,
    measured: &mut Measured,
    search_s: f64,
) -> Result<(), VerbError> {
    let mut probe = Probe::while_searching(bed, search_s);
    job::search(bed, launcher, model, &mut || probe.go())?;
    if let Some(found) = probe.end()? {
        latency::keep(measured, lab, Beside::Checker, &found);
    }
    Ok(())
}

/// Starts one TCP flow from the near host to the far one.
fn bulk_begin(bed: &TestBed, seconds: f64, file: &Path) -> Result<Owned, VerbError> {
    let mut test = bed.program(bed.near(), false);
    test.args(["test", bed.far(), "--latency", "--duration", &seconds.to_string()]);
    test.arg("--output").arg(file);
    test.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(Owned::start(&mut test, Ending::KILL)?)
}

/// What the far host received of it, bit/s.
fn bulk_end(mut flow: Owned, file: &Path) -> Result<f64, VerbError> {
    let status = flow.wait()?;
    if !status.success() {
        return Err(VerbError::failed(format!("the bulk flow ended with {status}")));
    }
    let results: Results = store::load(file)?;
    let summaries = sweep::summarise(&results.points);
    let rate = summaries.iter().find(|one| one.figure == "forward_received_bits_per_s");
    rate.map(|one| one.estimate.median)
        .ok_or_else(|| VerbError::failed("the bulk flow tells no rate"))
}

fn note(measured: &mut Measured, lab: &'static str, figure: &'static str, value: f64) {
    match measured.iter_mut().find(|(of, name, _)| (*of, *name) == (lab, figure)) {
        Some((_, _, values)) => values.push(value),
        None => measured.push((lab, figure, vec![value])),
    }
}

fn summaries(experiment: &str, measured: &Measured) -> Vec<Summary> {
    let summary = |(lab, figure, values): &(&str, &str, Vec<f64>)| {
        Some(Summary {
            experiment: format!("{experiment} {lab}"),
            varied: Default::default(),
            figure: (*figure).to_owned(),
            estimate: Estimate::of(values)?,
        })
    };
    measured.iter().filter_map(summary).collect()
}

fn estimate(measured: &Measured, lab: &str, figure: &str) -> Option<Estimate> {
    let found = measured.iter().find(|(of, name, _)| (*of, *name) == (lab, figure))?;
    Estimate::of(&found.2)
}

fn row(
    name: &str,
    lab: &str,
    paper: &str,
    here: Option<Estimate>,
    show: fn(f64) -> String,
) -> PaperFigure {
    let here = here.map(|one| {
        format!("{} ({} .. {}, n={})", show(one.median), show(one.low), show(one.high), one.count)
    });
    PaperFigure { name: format!("{name}, {lab}"), paper: paper.to_owned(), here }
}

fn show_states(value: f64) -> String {
    format!("{} states/s", units::show_count(value))
}

fn show_bytes(value: f64) -> String {
    units::show_byte_size(value as u64)
}

fn checker_rows(measured: &Measured) -> Vec<PaperFigure> {
    let mut rows = Vec::new();
    for lab in [SHORT, LONG] {
        let of = |figure| estimate(measured, lab, figure);
        rows.push(row("2 ranks on 2 hosts", lab, "-", of(STATES), show_states));
        rows.push(row("both ways, mean", lab, "about 400 Mbit/s a core", of(MEAN), show_bit_rate));
        rows.push(row("both ways, peak", lab, "11 Gbit/s", of(PEAK), show_bit_rate));
        rows.push(row("sent by the near end", lab, "-", of(NEAR), show_bytes));
        rows.push(row("sent by the far end", lab, "-", of(FAR), show_bytes));
    }
    rows
}

fn judge_alone(entry: &Entry, measured: &Measured) -> (Vec<PaperFigure>, LawCheck) {
    let rows = checker_rows(measured);
    let peak = |lab| estimate(measured, lab, PEAK).map(|one| one.median);
    let states = |lab| estimate(measured, lab, STATES).map(|one| one.median);
    let (Some(short), Some(long), Some(fast), Some(slow)) =
        (peak(SHORT), peak(LONG), states(SHORT), states(LONG))
    else {
        return (rows, undecided(entry.law, "a search did not finish"));
    };
    let peak = short.max(long);
    let judged = format!(
        "{} at most by two ranks, one a host; the paper's 11 Gbit/s took about 400 Mbit/s from each \
         of many cores; over 17 ms the search takes {:.2} times as long",
        show_bit_rate(peak),
        fast / slow
    );
    (rows, LawCheck { law: entry.law.to_owned(), holds: Some(peak >= 10e9), judged })
}

fn judge_mix(entry: &Entry, measured: &Measured) -> (Vec<PaperFigure>, LawCheck) {
    /// Sharing: neither is left with less than this part of what it has alone.
    const SHARE_MIN: f64 = 0.2;
    let mut rows = checker_rows(measured);
    let mut shares = Vec::new();
    for lab in [SHORT, LONG] {
        let of = |figure| estimate(measured, lab, figure);
        rows.push(row("bulk flow alone", lab, "35 Gbit/s", of(BULK), show_bit_rate));
        rows.push(row("bulk flow beside it", lab, "35 Gbit/s", of(BULK_BESIDE), show_bit_rate));
        rows.push(row("2 ranks beside bulk", lab, "-", of(STATES_BESIDE), show_states));
        let share = |beside, alone| Some(of(beside)?.median / of(alone)?.median);
        shares.push((share(BULK_BESIDE, BULK), share(STATES_BESIDE, STATES)));
        rows.extend(latency::rows(measured, lab));
    }
    let [(Some(bulk), Some(states)), (Some(long_bulk), Some(long_states))] = shares[..] else {
        return (rows, undecided(entry.law, "a run did not finish"));
    };
    let least = bulk.min(states).min(long_bulk).min(long_states);
    let percent = |share: f64| (share * 100.0).round();
    let times = |lab, beside| {
        let stretch = latency::stretch(measured, lab, beside);
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

/// The model, in a file that goes with the value: philosophers, each counting its meals up to three.
struct ScratchModel(PathBuf, #[expect(dead_code, reason = "goes with the value")] Scratch);

impl ScratchModel {
    fn new() -> Result<Self, VerbError> {
        let scratch = Scratch::new("divine").map_err(|error| VerbError::from_error(&error))?;
        let path = scratch.path().join("model.dve");
        fs::write(&path, model(PHILOSOPHERS))?;
        Ok(Self(path, scratch))
    }
}

fn model(philosophers: usize) -> String {
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
        let mut measured = Measured::new();
        for lab in [SHORT, LONG] {
            for (figure, value) in [(STATES, 1e6), (STATES_BESIDE, 5e5), (BULK, 2e10)] {
                note(&mut measured, lab, figure, value);
            }
        }
        assert_eq!(judge_mix(entry, &measured).1.holds, None, "nothing beside the checker yet");
        for lab in [SHORT, LONG] {
            note(&mut measured, lab, BULK_BESIDE, 1e10);
        }
        assert_eq!(judge_mix(entry, &measured).1.holds, Some(true));
        note(&mut measured, SHORT, PEAK, 4e8);
        note(&mut measured, LONG, PEAK, 3e8);
        let (_, law) = judge_alone(entry, &measured);
        assert_eq!(law.holds, Some(false), "{law:?}");
    }
}
