//! C-energy: joules per bit, by placement.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use results::{
    Estimate, Figure, LawCheck, PaperFigure, PointOutcome, Results, Summary, TestLimit, TestSpec,
    figure,
};
use sweep::{Plan, PlannedPoint, Setting};
use topology::{EnergyMeter, HostFiles};

use super::catalogue::Entry;
use super::{Ground, ReproduceArgs, conduct, publish};
use crate::VerbResult;
use crate::exit::VerbError;
use crate::progress::Progress;
use crate::runner::{self, Done, Driver};
use crate::signals;

const EXPERIMENT: &str = "C-energy";
const LAB: &str = "local40g";
const NEAR: &str = "near_core";
const FAR: &str = "far_core";
const ENERGY: &str = figure::JOULES_PER_GBIT;
const CORE_TIME: &str = figure::CPU_S_PER_GBIT;
const IDLE: &str = figure::IDLE_WATTS;
const LAW: &str = "the energy per bit falls with the core time that a bit takes";
const SEED: u64 = 0x2011;
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);
/// Factor by which the placement cheapest in joules may exceed the lowest core time.
const SAME: f64 = 1.10;

/// Runs the experiment: in a lab, whose two ends share this host's energy meter, or toward a host, where
/// only this end is measured.
pub(super) fn run(entry: &'static Entry, args: &ReproduceArgs, json: bool) -> VerbResult {
    let mut meter = EnergyMeter::find(HostFiles::default())
        .map_err(|error| VerbError::missing(format!("C-energy: {error}")))?;
    let usable = sys::thread::usable_cores().map_err(|error| VerbError::from_error(&error))?;
    let ground = match &args.host {
        Some(host) => Ground::host(args, host)?,
        None => Ground::lab(LAB)?,
    };
    let source = meter.source().to_owned();
    let mut metered = Metered { ground, meter: &mut meter, duration: args.duration };
    let mut progress = Progress::new(1);
    let document = metered.ground.document(&mut progress)?;
    let plan = plan(&usable, args);
    let mut conducted = conduct(entry, &plan, &mut metered, document, progress, args);
    drop(metered);
    conducted.results.findings.push(results::Finding {
        end: None,
        code: "energy-meter".to_owned(),
        text: format!("energy is that of {source}, idle subtracted"),
    });
    publish(entry, conducted, judge, args, json)
}

/// Runs tests one by one, each between two readings of the host's energy meter.
struct Metered<'a> {
    ground: Ground,
    meter: &'a mut EnergyMeter,
    duration: Duration,
}

impl Driver for Metered<'_> {
    fn run(
        &mut self,
        planned: &PlannedPoint,
        _what: &str,
        _progress: &mut Progress,
    ) -> Result<Done, VerbError> {
        let meter = &mut *self.meter;
        let idle_watts = idle_watts(meter, self.duration);
        let (before, began) = (meter.joules(), Instant::now());
        let mut sample = |_rate| meter.sample(began.elapsed());
        sample(0.0);
        let mut done = runner::test(planned, &mut *self.ground.tests, &mut sample);
        sample(0.0);
        let (joules, seconds) = (meter.joules() - before, began.elapsed().as_secs_f64());
        if let PointOutcome::Measured(outcome) = &mut done.point.outcome {
            let bytes = outcome.directions.first().map_or(0, |one| one.received_bytes);
            if let Some(cost) = per_gbit(joules, idle_watts, seconds, bytes) {
                let figures = [(ENERGY, cost), (IDLE, idle_watts)];
                outcome.figures.extend(figures.map(|(name, value)| Figure::new(name, value)));
            }
        }
        Ok(done)
    }
}

/// In a lab, the near end on one core and the far end on the same core, the next one, one in the middle of
/// the list and the last; toward a host, the near end on these cores.
fn plan(usable: &[u32], args: &ReproduceArgs) -> Plan {
    let first = usable.first().copied().unwrap_or(0);
    let mut cores: Vec<u32> = vec![first];
    cores.extend(usable.get(1));
    cores.extend(usable.get(usable.len() / 2));
    cores.extend(usable.last());
    cores.dedup();
    let is_lab = args.host.is_none();
    let settings = cores.into_iter().map(|core| {
        let near = if is_lab { first } else { core };
        let spec = TestSpec {
            limit: TestLimit::DurationS(args.duration.as_secs_f64()),
            // The meter's sampling interval.
            interval_s: SAMPLE_INTERVAL.as_secs_f64(),
            near_cores: vec![near],
            far_cores: if is_lab { vec![core] } else { Vec::new() },
            ..TestSpec::tcp()
        };
        let setting = Setting::new(EXPERIMENT, spec).varying(NEAR, f64::from(near));
        if is_lab { setting.varying(FAR, f64::from(core)) } else { setting }
    });
    Plan::new(settings.collect(), args.repeats, SEED)
}

/// Text of a placement: `near core 0, far core 1`.
fn shown(placement: &BTreeMap<String, f64>) -> String {
    let core = |(name, end)| Some(format!("{end} core {}", placement.get(name)?));
    let cores: Vec<String> = [(NEAR, "near"), (FAR, "far")].into_iter().filter_map(core).collect();
    cores.join(", ")
}

/// Power of the idle host, watts.
fn idle_watts(meter: &mut EnergyMeter, duration: Duration) -> f64 {
    let began = Instant::now();
    meter.sample(Duration::ZERO);
    let before = meter.joules();
    while began.elapsed() < duration && signals::caught().is_none() {
        std::thread::sleep(SAMPLE_INTERVAL);
        meter.sample(began.elapsed());
    }
    (meter.joules() - before) / began.elapsed().as_secs_f64().max(f64::MIN_POSITIVE)
}

/// Joules above idle per 10^9 bits of payload; `None` without payload.
fn per_gbit(joules: f64, idle_watts: f64, seconds: f64, bytes: u64) -> Option<f64> {
    let gbit = bytes as f64 * 8.0 / 1e9;
    (gbit > 0.0).then(|| (joules - idle_watts * seconds) / gbit)
}

fn judge(results: &Results) -> (Vec<PaperFigure>, LawCheck) {
    let of = |figure: &str| -> Vec<&Summary> {
        results.summaries.iter().filter(|summary| summary.figure == figure).collect()
    };
    let core_time = of(CORE_TIME);
    let mut figures = Vec::new();
    let mut costs = Vec::new();
    for energy in of(ENERGY) {
        let Estimate { median, low, high, count, .. } = energy.estimate;
        figures.push(PaperFigure {
            name: format!("joules per Gbit, {}", shown(&energy.varied)),
            paper: "named, not measured".to_owned(),
            here: Some(format!("{median:.3} J ({low:.3} .. {high:.3}, n={count})")),
        });
        let time = core_time.iter().find(|time| time.varied == energy.varied);
        costs.extend(time.map(|time| (median, time.estimate.median)));
    }
    if let Some(idle) = of(IDLE).first() {
        figures.push(PaperFigure {
            name: "idle power, subtracted".to_owned(),
            paper: "-".to_owned(),
            here: Some(format!("{:.1} W", idle.estimate.median)),
        });
    }
    let cheapest = costs.iter().min_by(|a, b| a.0.total_cmp(&b.0));
    let shortest = costs.iter().map(|cost| cost.1).min_by(f64::total_cmp);
    let (Some((joules, seconds)), Some(shortest), true) = (cheapest, shortest, costs.len() > 1)
    else {
        return (
            figures,
            super::recipes::undecided(LAW, "fewer than two placements were measured"),
        );
    };
    let judged = format!(
        "the cheapest placement takes {joules:.3} J and {:.1} ms of core time a Gbit; the shortest \
         core time is {:.1} ms (the same up to {SAME:.2} x)",
        seconds * 1e3,
        shortest * 1e3
    );
    let holds = Some(*seconds <= shortest * SAME);
    (figures, LawCheck { law: LAW.to_owned(), holds, judged })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_is_subtracted() {
        // 50 W over 4 s, 20 W of it idle, for 40 Gbit.
        assert_eq!(per_gbit(200.0, 20.0, 4.0, 5_000_000_000), Some(3.0));
        assert_eq!(per_gbit(200.0, 20.0, 4.0, 0), None);
    }

    #[test]
    fn placements_are_told_apart() {
        let mut results = Results::begun(results::RunKind::Reproduce, 0);
        for (repeat, (far_core, joules)) in [(1.0, 3.0), (0.0, 5.0), (1.0, 4.0)].iter().enumerate()
        {
            let setting = Setting::new(EXPERIMENT, TestSpec::tcp());
            let setting = setting.varying(NEAR, 0.0).varying(FAR, *far_core);
            let mut planned = Plan::new(vec![setting], 1, SEED).points().remove(0);
            planned.repeat = u32::try_from(repeat).expect("a few");
            let figures = vec![Figure::new(ENERGY, *joules), Figure::new(CORE_TIME, *joules / 1e3)];
            let outcome = results::TestOutcome { figures, ..Default::default() };
            results.points.push(Done::measured(&planned, 0, outcome).point);
        }
        results.summaries = sweep::summarise(&results.points);
        let energy: Vec<(f64, f64)> = results
            .summaries
            .iter()
            .filter(|summary| summary.figure == ENERGY)
            .map(|summary| (summary.varied[FAR], summary.estimate.median))
            .collect();
        assert_eq!(energy, [(1.0, 3.5), (0.0, 5.0)]);
        assert_eq!(shown(&results.points[0].varied), "near core 0, far core 1");
        let (figures, law) = judge(&results);
        assert_eq!((figures.len(), law.holds), (2, Some(true)), "{law:?}");
    }
}
