//! The figures beside the paper's, the predictions, and whether the law holds.

use std::collections::BTreeMap;

use results::{Estimate, LawCheck, PaperFigure, Results};

use super::answers::{KERNEL_MISSES, Program, USER_MISSES};
use super::layout::Layout;
use super::paper;
use super::study::{Case, Distance, Load, MESSAGE, Receive, Study};
use crate::verbs::reproduce::ratios::{all, is_above, paired, shown};
use crate::verbs::reproduce::recipes::undecided;

/// Least ratio of the kernel's misses, scattered by bound, that counts as the paper's half.
const MISSES_RATIO_MIN: f64 = 1.5;

/// What was measured.
pub(super) struct Measured<'a> {
    pub(super) study: &'a Study,
    pub(super) cases: &'a [Case],
    pub(super) layout: &'a Layout,
    /// Why misses were not counted.
    pub(super) no_misses: Option<&'a str>,
    pub(super) results: &'a Results,
}

/// The table, and the judgement of `law`.
pub(super) fn judged(measured: &Measured<'_>, law: &str) -> (Vec<PaperFigure>, LawCheck) {
    let mut rows: Vec<PaperFigure> = Vec::new();
    for case in measured.cases {
        rows.extend(measured.rows(case));
    }
    rows.extend(measured.prediction_rows());
    rows.extend(paper::missing_here(measured.study, measured.layout));
    let check = match measured.decided() {
        Some((holds, judged)) => {
            LawCheck { law: law.to_owned(), holds, judged: measured.told(&judged) }
        }
        None => undecided(law, "not every job ended well"),
    };
    (rows, check)
}

impl Measured<'_> {
    /// A figure of each repeat.
    fn values(&self, case: &Case, figure: &str) -> BTreeMap<u32, f64> {
        let experiment = case.experiment(self.study.id);
        let size = case.bytes as f64;
        let is_it = |point: &&results::Point| {
            point.experiment == experiment
                && point.varied.get(MESSAGE).is_none_or(|bytes| *bytes == size)
        };
        let figure_of = |point: &results::Point| {
            point.figures().into_iter().find(|one| one.name == figure).map(|one| one.value)
        };
        let points = self.results.points.iter().filter(is_it);
        points.filter_map(|point| Some((point.repeat, figure_of(point)?))).collect()
    }

    fn estimate(&self, case: &Case, figure: &str) -> Option<Estimate> {
        let values: Vec<f64> = self.values(case, figure).into_values().collect();
        Estimate::of(&values)
    }

    /// The time of one way over that of another, repeat by repeat: above 1, the second is faster.
    fn ratio(&self, case: &Case, slower: Receive, faster: Receive) -> Option<Estimate> {
        let of = |receive| Case { receive, ..case.clone() };
        let figure = case.load.figure();
        paired(&self.values(&of(slower), figure), &self.values(&of(faster), figure))
    }

    /// What a setting gave beside what the paper has.
    fn rows(&self, case: &Case) -> Vec<PaperFigure> {
        let what = format!("{}, {}", described(case), case.receive.name());
        let time = self.estimate(case, case.load.figure());
        let mut rows = vec![PaperFigure {
            name: what.clone(),
            paper: paper::time(self.study.id, case).unwrap_or("-").to_owned(),
            here: time.map(|time| shown_time(case, &time)),
        }];
        if self.study.counts_misses {
            let of = |figure| self.estimate(case, figure);
            let share = |one: Estimate| one.text(|share| format!("{:.2}%", share * 100.0));
            let both = of(KERNEL_MISSES).zip(of(USER_MISSES));
            rows.push(PaperFigure {
                name: format!("{what}: misses, kernel + user"),
                paper: paper::misses(case).unwrap_or("-").to_owned(),
                here: both.map(|(kernel, user)| format!("{} + {}", share(kernel), share(user))),
            });
        }
        rows
    }

    /// Cases of one way, by which ratios are found: ours and those of other programs.
    fn loads(&self) -> impl Iterator<Item = &Case> {
        let first = self.cases.first().map(|case| case.receive);
        self.cases.iter().filter(move |case| Some(case.receive) == first)
    }

    fn prediction_rows(&self) -> Vec<PaperFigure> {
        let mut rows = Vec::new();
        for case in self.loads() {
            for one in self.study.predictions_for(case.bytes) {
                let ratio = self.ratio(case, one.slower, one.faster);
                rows.push(PaperFigure {
                    name: format!(
                        "{}, {} / {}",
                        described(case),
                        one.slower.name(),
                        one.faster.name()
                    ),
                    paper: format!("predicted at least {:.2} x", one.ratio),
                    here: ratio.as_ref().map(shown),
                });
            }
        }
        rows
    }

    /// `judged`, and how many predictions came true.
    fn told(&self, judged: &str) -> String {
        let (mut kept, mut count) = (0_u32, 0_u32);
        for case in self.loads() {
            for one in self.study.predictions_for(case.bytes) {
                let ratio = self.ratio(case, one.slower, one.faster);
                count += 1;
                kept += u32::from(ratio.is_some_and(|ratio| ratio.median >= one.ratio));
            }
        }
        format!("{judged}; {kept} of {count} predictions came true")
    }

    /// Our program's cases with each length.
    fn own(&self) -> impl Iterator<Item = &Case> {
        self.loads().filter(|case| case.program != Program::Imb)
    }

    /// Whether the law holds, if this machine and the spread let that be said, and why; `None` where points are
    /// missing.
    fn decided(&self) -> Option<(Option<bool>, String)> {
        match self.study.id {
            "M-tab1" => self.binding(),
            "M-tab2" => self.misses(),
            "M-fig5" => self.spreading(),
            _ => self.applications(),
        }
    }

    /// Bound beats scattered, and a shared cache beats the same core.
    fn binding(&self) -> Option<(Option<bool>, String)> {
        let has_shared = self.layout.distances.iter().any(|(one, _)| *one == Distance::SharedCache);
        let (shared, same) =
            (Receive::Single(Distance::SharedCache), Receive::Single(Distance::SameCore));
        let best = if has_shared { shared } else { same };
        let (mut answers, mut told) = (Vec::new(), Vec::new());
        for case in self.own() {
            let scattered = self.ratio(case, Receive::RoundRobin, best)?;
            answers.push(is_above(&scattered, 1.0));
            told.push(format!("{} scattered / bound {}", described(case), shown(&scattered)));
            if has_shared {
                let beside = self.ratio(case, same, shared)?;
                answers.push(is_above(&beside, 1.0));
                told.push(format!("same core / shared cache {}", shown(&beside)));
            }
        }
        let told = told.join(", ");
        if !self.layout.has_cores_enough() {
            let why = format!(
                "two hosts have {} here: the core that shares a cache with a rank's is that of the rank that sends, and what \
                 it delivers to its own core needs no interrupt. Seen: {told}",
                units::count_of(self.layout.usable.len() as u64, "core")
            );
            return Some((None, why));
        }
        Some((all(answers), told))
    }

    /// The kernel misses half as often where the receive work is bound.
    fn misses(&self) -> Option<(Option<bool>, String)> {
        // Times are there also where misses are not.
        for case in self.own() {
            self.estimate(case, case.load.figure())?;
        }
        if let Some(why) = self.no_misses {
            return Some((None, format!("cache misses were not counted: {why}")));
        }
        let case = self.own().next()?;
        let of = |receive| self.values(&Case { receive, ..case.clone() }, KERNEL_MISSES);
        let bound = of(Receive::Single(Distance::SameCore));
        let ratio = paired(&of(Receive::RoundRobin), &bound)?;
        let text = format!("the kernel's share of misses, scattered / bound: {}", shown(&ratio));
        Some((is_above(&ratio, MISSES_RATIO_MIN), text))
    }

    /// A queue a rank beats one queue on one core, and scattered work.
    fn spreading(&self) -> Option<(Option<bool>, String)> {
        let (mut answers, mut told) = (Vec::new(), Vec::new());
        for other in [Receive::FirstCore, Receive::RoundRobin] {
            let ratios: Option<Vec<Estimate>> =
                self.own().map(|case| self.ratio(case, other, Receive::Queues)).collect();
            let logs: Vec<f64> = ratios?.iter().map(|ratio| ratio.median.ln()).collect();
            let mean = (logs.iter().sum::<f64>() / logs.len().max(1) as f64).exp();
            answers.push(Some(mean > 1.0));
            told.push(format!("{} / a queue per rank {mean:.2} x on average", other.name()));
        }
        let told = told.join(", ");
        if !self.layout.has_a_core_a_rank() {
            return Some((None, format!("{}. Seen: {told}", self.shared_cores())));
        }
        Some((all(answers), told))
    }

    /// `is` gains more than the others do by a queue per rank.
    fn applications(&self) -> Option<(Option<bool>, String)> {
        let mut gains = Vec::new();
        for case in self.own() {
            let gain = self.ratio(case, Receive::RoundRobin, Receive::Queues)?;
            gains.push((case.load.name().to_owned(), gain));
        }
        let told: Vec<String> =
            gains.iter().map(|(name, gain)| format!("{name} {}", shown(gain))).collect();
        let told = format!("round-robin / a queue per rank: {}", told.join(", "));
        if !self.layout.has_a_core_a_rank() {
            return Some((None, format!("{}. Seen: {told}", self.shared_cores())));
        }
        let is_talker = |name: &str| name.starts_with("is.");
        let most = gains.iter().find(|(name, _)| is_talker(name)).map(|(_, gain)| gain.median);
        let Some(most) = most else {
            return Some((None, format!("`is` is missing. Seen: {told}")));
        };
        let others = gains.iter().filter(|(name, _)| !is_talker(name));
        let holds = most > 1.0 && others.into_iter().all(|(_, gain)| gain.median < most);
        Some((Some(holds), told))
    }

    fn shared_cores(&self) -> String {
        format!(
            "{} of two hosts share {} here: receive work that is moved away from a rank's core is taken from another \
             rank's time",
            units::count_of(self.layout.ranks_count() as u64, "rank"),
            units::count_of(self.layout.usable.len() as u64, "core"),
        )
    }
}

fn described(case: &Case) -> String {
    let program = if case.program == Program::Imb { " (IMB)" } else { "" };
    match &case.load {
        Load::Nas(name) => name.clone(),
        _ => format!("{}{program}", units::show_byte_size(case.bytes)),
    }
}

/// The time; for long messages of two ranks as the paper has it, as a rate.
fn shown_time(case: &Case, time: &Estimate) -> String {
    /// Shortest message that the paper tells a rate for, bytes.
    const RATE_BYTES_MIN: u64 = 1 << 20;
    let text = time.text(units::show_seconds);
    if case.load != Load::PingPong || case.bytes < RATE_BYTES_MIN {
        return text;
    }
    let mib = (case.bytes >> 20) as f64;
    format!("{:.0} MiB/s: {text}", mib / time.median)
}

#[cfg(test)]
mod tests {
    use results::{Core, Figure, Machine, RunKind, TestOutcome};
    use sweep::Plan;

    use super::*;
    use crate::runner::Done;

    fn machine(cores: u32) -> Machine {
        let core = |core| Core {
            core,
            package: Some(0),
            is_online: true,
            is_usable: true,
            ..Core::default()
        };
        let cache = results::Cache { level: 3, cores: (0..cores).collect(), ..Default::default() };
        Machine { cores: (0..cores).map(core).collect(), caches: vec![cache], ..Machine::default() }
    }

    /// The law's judgement where each way takes so long, on a machine of so many cores.
    fn judge(
        id: &str,
        cores: u32,
        no_misses: Option<&str>,
        figures: impl Fn(&Case) -> Vec<(&'static str, f64)>,
    ) -> (Vec<PaperFigure>, LawCheck) {
        let study = Study::find(id).expect("a study");
        let layout = Layout::of(&machine(cores), study.ranks_per_host).expect("cores");
        let distances: Vec<Distance> = layout.distances.iter().map(|(one, _)| *one).collect();
        let applications = ["cg.B", "is.B"].map(str::to_owned);
        let cases = study.cases(&distances, true, &applications);
        let mut results = Results::begun(RunKind::Reproduce, 0);
        for case in &cases {
            let plan = Plan::new(vec![case.setting(id, 2)], 3, 0);
            for planned in plan.points() {
                let figures =
                    figures(case).into_iter().map(|(name, value)| Figure::new(name, value));
                let outcome = TestOutcome { figures: figures.collect(), ..TestOutcome::default() };
                results.points.push(Done::measured(&planned, 0, outcome).point);
            }
        }
        let measured =
            Measured { study, cases: &cases, layout: &layout, no_misses, results: &results };
        judged(&measured, "law")
    }

    fn time_of(case: &Case) -> f64 {
        match case.receive {
            Receive::RoundRobin => 4.0,
            Receive::Single(Distance::SharedCache) | Receive::Queues => 2.0,
            _ => 3.0,
        }
    }

    fn times(case: &Case) -> Vec<(&'static str, f64)> {
        vec![(case.load.figure(), time_of(case))]
    }

    #[test]
    fn binding_is_judged_where_each_rank_and_its_interrupt_have_a_core() {
        let (rows, law) = judge("M-tab1", 4, None, times);
        assert_eq!(law.holds, Some(true), "{law:?}");
        assert!(law.judged.ends_with("6 of 6 predictions came true"), "{law:?}");
        assert!(rows.iter().any(|row| row.name.contains("(IMB)") && row.here.is_some()));
        let (_, law) = judge("M-tab1", 2, None, times);
        assert_eq!(law.holds, None);
        assert!(law.judged.contains("2 cores") && law.judged.contains("2.00 x"), "{law:?}");
        let upside_down = |case: &Case| vec![(case.load.figure(), 9.0 - time_of(case))];
        assert_eq!(judge("M-tab1", 4, None, upside_down).1.holds, Some(false));
    }

    #[test]
    fn misses_are_not_judged_without_a_pmu_and_the_reason_is_told() {
        let (rows, law) = judge("M-tab2", 4, Some("no PMU"), times);
        assert_eq!(law.holds, None);
        assert!(law.judged.contains("no PMU"), "{law:?}");
        let rows: Vec<_> = rows.iter().filter(|row| row.name.contains("misses")).collect();
        assert!(!rows.is_empty() && rows.iter().all(|row| row.here.is_none()));
        let counted = |factor: f64| {
            move |case: &Case| {
                let kernel = if case.receive == Receive::RoundRobin { factor * 0.1 } else { 0.1 };
                vec![(case.load.figure(), 1.0), (KERNEL_MISSES, kernel), (USER_MISSES, 0.01)]
            }
        };
        assert_eq!(judge("M-tab2", 4, None, counted(2.0)).1.holds, Some(true));
        assert_eq!(judge("M-tab2", 4, None, counted(1.2)).1.holds, Some(false));
    }

    #[test]
    fn spreading_is_judged_where_each_rank_has_a_core() {
        assert_eq!(judge("M-fig5", 4, None, times).1.holds, Some(true));
        let (_, law) = judge("M-fig5", 2, None, times);
        assert_eq!(law.holds, None);
        assert!(law.judged.contains("4 ranks of two hosts share 2 cores"), "{law:?}");
    }

    #[test]
    fn applications_obey_the_law_if_the_one_that_talks_most_gains_most() {
        let gain = |is: f64, others: f64| {
            move |case: &Case| {
                let talks = case.load.name().starts_with("is.");
                let factor = if talks { is } else { others };
                let time = if case.receive == Receive::Queues { 1.0 } else { factor };
                vec![(case.load.figure(), time)]
            }
        };
        assert_eq!(judge("M-tab3", 4, None, gain(8.0, 1.03)).1.holds, Some(true));
        assert_eq!(judge("M-tab3", 4, None, gain(1.01, 1.03)).1.holds, Some(false));
        assert_eq!(judge("M-tab3", 2, None, gain(8.0, 1.03)).1.holds, None);
    }

    #[test]
    fn nothing_is_judged_where_a_job_failed() {
        let partly = |case: &Case| {
            if case.receive == Receive::RoundRobin { Vec::new() } else { times(case) }
        };
        for id in ["M-tab1", "M-tab2", "M-fig5", "M-tab3"] {
            let law = judge(id, 4, None, partly).1;
            assert_eq!(
                (law.holds, law.judged.as_str()),
                (None, "not every job ended well"),
                "{id}"
            );
        }
    }
}
