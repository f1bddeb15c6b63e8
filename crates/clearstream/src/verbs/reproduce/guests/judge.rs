//! The figures beside the paper's, the predictions, and whether the law holds.

use std::collections::BTreeMap;

use results::{Estimate, LawCheck, PaperFigure, Results};

use super::contender::Contender;
use super::study::{Load, Study};
use super::{QEMU_CORES, SWITCH_CORES};
use crate::verbs::reproduce::ratios::{all, is_above, paired, shown};
use crate::verbs::reproduce::recipes::undecided;

/// Least growth of a rate by which messages or batches are said to matter.
const GROWTH_MIN: f64 = 2.0;

/// The table, and the judgement of `law`.
pub(super) fn judged(study: &Study, law: &str, results: &Results) -> (Vec<PaperFigure>, LawCheck) {
    let measured = Measured { study, results };
    let mut figures = Vec::new();
    for load in study.loads {
        for value in study.values {
            figures.extend(measured.rows(*load, *value));
        }
    }
    let check = match decided(&measured) {
        Some((holds, judged)) => {
            LawCheck { law: law.to_owned(), holds, judged: measured.told(judged) }
        }
        None => undecided(law, "not every test was done in the guests of every contender"),
    };
    (figures, check)
}

/// The points of a study.
struct Measured<'a> {
    study: &'a Study,
    results: &'a Results,
}

impl Measured<'_> {
    /// A figure of each repeat.
    fn values(&self, load: Load, value: u32, who: Contender, figure: &str) -> BTreeMap<u32, f64> {
        let experiment = self.study.experiment(load, who);
        let points = self.results.points.iter().filter(|point| {
            point.experiment == experiment
                && point.varied.get(self.study.varied) == Some(&f64::from(value))
        });
        let figure_of = |point: &results::Point| {
            point.figures().into_iter().find(|one| one.name == figure).map(|one| one.value)
        };
        points.filter_map(|point| Some((point.repeat, figure_of(point)?))).collect()
    }

    fn estimate(&self, load: Load, value: u32, who: Contender, figure: &str) -> Option<Estimate> {
        let values: Vec<f64> = self.values(load, value, who, figure).into_values().collect();
        Estimate::of(&values)
    }

    /// ptnet's figure by a contender's of the same repeat.
    fn ratio(&self, load: Load, value: u32, to: Contender, figure: &str) -> Option<Estimate> {
        let other = self.values(load, value, to, figure);
        let own = self.values(load, value, Contender::Ptnet, figure);
        paired(&own, &other)
    }

    /// One row for each contender, and one for each ratio.
    fn rows(&self, load: Load, value: u32) -> Vec<PaperFigure> {
        let study = self.study;
        let what = format!("{} {}", load.name(), study.shown(value));
        let mut rows = Vec::new();
        for who in Contender::ALL {
            let of = |figure: &str| self.estimate(load, value, who, figure);
            let here = of(study.rate).map(|rate| {
                let mut text = rate.text(study.show);
                if let Some(per_cpu) = of(study.per_cpu) {
                    text += &format!("; {} per core used", (study.show)(per_cpu.median));
                }
                if let (Some(qemu), Some(switch)) = (of(QEMU_CORES), of(SWITCH_CORES)) {
                    text += &format!(" (cores: {:.2} + {:.2})", qemu.median, switch.median);
                }
                text
            });
            rows.push(PaperFigure { name: format!("{what}, {who}"), paper: "-".to_owned(), here });
        }
        for other in [Contender::Bridge, Contender::VhostUser] {
            let rate = self.ratio(load, value, other, study.rate);
            let per_cpu = self.ratio(load, value, other, study.per_cpu);
            let paper = if other == Contender::Bridge { study.paper } else { "-" };
            rows.push(PaperFigure {
                name: format!("{what}, ptnet / {other}"),
                paper: paper.to_owned(),
                here: rate.as_ref().map(shown),
            });
            let predicted = study.predicted(other, value);
            rows.push(PaperFigure {
                name: format!("{what}, the same per CPU second"),
                paper: predicted.map_or("-".to_owned(), |it| format!("predicted {it:.2} x")),
                here: per_cpu.as_ref().map(shown),
            });
        }
        rows
    }

    /// `judged`, and how many predictions came true.
    fn told(&self, judged: String) -> String {
        let (mut kept, mut all) = (0, 0);
        for load in self.study.loads {
            for value in self.study.values {
                for other in [Contender::Bridge, Contender::VhostUser] {
                    let Some(wanted) = self.study.predicted(other, *value) else { continue };
                    all += 1;
                    let found = self.ratio(*load, *value, other, self.study.per_cpu);
                    kept += u32::from(found.is_some_and(|found| found.median >= wanted));
                }
            }
        }
        format!("{judged}; {kept} of {all} predictions came true")
    }

    /// ptnet's rate by that of the bridge.
    fn by_bridge(&self, load: Load, value: u32) -> Option<Estimate> {
        self.ratio(load, value, Contender::Bridge, self.study.rate)
    }

    fn rate(&self, load: Load, value: u32, who: Contender) -> Option<Estimate> {
        self.estimate(load, value, who, self.study.rate)
    }
}

/// Whether the law holds, if the spread lets that be said, and why; `None` where points are missing.
fn decided(measured: &Measured<'_>) -> Option<(Option<bool>, String)> {
    match measured.study.id {
        "P-fig3" => latency(measured),
        "P-stream" => stream(measured),
        "P-fig4" => datagrams(measured),
        "P-netmap" => rings(measured),
        _ => batches(measured),
    }
}

/// Ahead at the smallest message, and no farther ahead at the largest.
fn latency(measured: &Measured<'_>) -> Option<(Option<bool>, String)> {
    let (first, last) = (*measured.study.values.first()?, *measured.study.values.last()?);
    let (mut answers, mut told) = (Vec::new(), Vec::new());
    for load in measured.study.loads {
        let small = measured.by_bridge(*load, first)?;
        let large = measured.by_bridge(*load, last)?;
        let ahead = is_above(&small, 1.0);
        let shrinks = large.median < small.median;
        answers.push(ahead.map(|ahead| ahead && shrinks));
        let (small, large) = (shown(&small), shown(&large));
        told.push(format!("{} {small} at {first} B, {large} at {last} B", load.name()));
    }
    Some((all(answers), format!("ptnet / tap+bridge: {}", told.join("; "))))
}

/// Behind, because it copies more often.
fn stream(measured: &Measured<'_>) -> Option<(Option<bool>, String)> {
    let (load, value) = (*measured.study.loads.first()?, *measured.study.values.first()?);
    let ratio = measured.by_bridge(load, value)?;
    let holds = is_above(&ratio, 1.0).map(|ahead| !ahead);
    Some((holds, format!("ptnet / tap+bridge: {}", shown(&ratio))))
}

/// Ahead at every size, and the rate grows with the message until copies dominate.
fn datagrams(measured: &Measured<'_>) -> Option<(Option<bool>, String)> {
    let load = *measured.study.loads.first()?;
    let (mut answers, mut told, mut rates) = (Vec::new(), Vec::new(), Vec::new());
    for value in measured.study.values {
        let ratio = measured.by_bridge(load, *value)?;
        answers.push(is_above(&ratio, 1.0));
        told.push(format!("{} at {value} B", shown(&ratio)));
        rates.push(measured.rate(load, *value, Contender::Ptnet)?.median);
    }
    let best = rates.iter().copied().fold(0.0, f64::max);
    let growth = best / *rates.first()?;
    answers.push(Some(growth > GROWTH_MIN));
    let told = told.join(", ");
    let text =
        format!("ptnet / tap+bridge: {told}; its best size carries {growth:.1} times the smallest");
    Some((all(answers), text))
}

/// Far ahead of both kinds of virtio-net with every batch but the smallest.
fn rings(measured: &Measured<'_>) -> Option<(Option<bool>, String)> {
    let load = *measured.study.loads.first()?;
    let (mut answers, mut told) = (Vec::new(), Vec::new());
    for value in measured.study.values.iter().skip(1) {
        for other in [Contender::Bridge, Contender::VhostUser] {
            let ratio = measured.ratio(load, *value, other, measured.study.rate)?;
            answers.push(is_above(&ratio, GROWTH_MIN));
            told.push(format!("{} of {other} at batch {value}", shown(&ratio)));
        }
    }
    Some((all(answers), format!("ring API: {}", told.join(", "))))
}

/// ptnet gains by batches, and more than virtio-net does.
fn batches(measured: &Measured<'_>) -> Option<(Option<bool>, String)> {
    let load = *measured.study.loads.first()?;
    let first = *measured.study.values.first()?;
    let best = |who: Contender| -> Option<(Estimate, u32)> {
        let rates = measured.study.values.iter();
        let rates: Option<Vec<(Estimate, u32)>> =
            rates.map(|value| Some((measured.rate(load, *value, who)?, *value))).collect();
        rates?.into_iter().max_by(|a, b| a.0.median.total_cmp(&b.0.median))
    };
    let gain = |who: Contender| Some(best(who)?.0.median / measured.rate(load, first, who)?.median);
    let own = gain(Contender::Ptnet)?;
    let (bridge, vhost) = (gain(Contender::Bridge)?, gain(Contender::VhostUser)?);
    let (top, at) = best(Contender::Ptnet)?;
    let single = measured.rate(load, first, Contender::Ptnet)?;
    let grows = match (top.interval(), single.interval()) {
        (Some((low, _)), Some((_, high))) if low > GROWTH_MIN * high => Some(true),
        (Some((_, high)), Some((low, _))) if high < GROWTH_MIN * low => Some(false),
        _ => None,
    };
    let text = format!(
        "by batches ptnet gains {own:.1} x (best at {at}), virtio-net {bridge:.1} x on tap+bridge and {vhost:.1} x \
         on vhost-user"
    );
    Some((all([grows, Some(own > bridge)]), text))
}

#[cfg(test)]
mod tests {
    use results::{Figure, RunKind, TestOutcome};
    use sweep::Plan;

    use super::*;
    use crate::runner::Done;

    /// A document in which every contender has a rate, by contender and value, and half of it per CPU second.
    fn document(study: &Study, rate: impl Fn(Contender, u32) -> f64) -> Results {
        let mut results = Results::begun(RunKind::Reproduce, 0);
        for planned in Plan::new(study.settings(1.0), 2, 0).points() {
            let who = Contender::of(&planned.experiment).unwrap();
            let value = units::saturating_u64(planned.varied[study.varied]);
            let rate = rate(who, u32::try_from(value).unwrap());
            let figures =
                vec![Figure::new(study.rate, rate), Figure::new(study.per_cpu, rate / 2.0)];
            let outcome = TestOutcome { figures, ..TestOutcome::default() };
            results.points.push(Done::measured(&planned, 0, outcome).point);
        }
        results
    }

    fn holds(id: &str, rate: impl Fn(Contender, u32) -> f64) -> (Option<bool>, String) {
        let study = Study::find(id).unwrap();
        let (rows, law) = judged(study, "law", &document(study, rate));
        assert_eq!(rows.len(), 7 * study.loads.len() * study.values.len());
        assert!(rows.iter().all(|row| row.here.is_some()), "{rows:?}");
        (law.holds, law.judged)
    }

    fn ptnet(who: Contender, its: f64) -> f64 {
        if who == Contender::Ptnet { its } else { 1.0 }
    }

    #[test]
    fn requests_obey_the_law_if_ptnet_is_ahead_until_messages_are_large() {
        let (as_paper, told) =
            holds("P-fig3", |who, size| ptnet(who, if size < 2000 { 1.4 } else { 1.0 }));
        assert_eq!(as_paper, Some(true), "{told}");
        // Ahead of vhost-user at three sizes of two protocols, and of the bridge nowhere.
        assert!(told.ends_with("6 of 12 predictions came true"), "{told}");
        assert_eq!(holds("P-fig3", |who, _| ptnet(who, 0.9)).0, Some(false));
        assert_eq!(holds("P-fig3", |who, size| ptnet(who, 1.4 + f64::from(size))).0, Some(false));
    }

    #[test]
    fn nothing_is_judged_where_repeats_agree_with_neither() {
        assert_eq!(holds("P-fig3", |_, _| 1.0).0, None);
    }

    #[test]
    fn a_stream_obeys_the_law_only_if_ptnet_is_behind() {
        assert_eq!(holds("P-stream", |who, _| ptnet(who, 0.77)).0, Some(true));
        assert_eq!(holds("P-stream", |who, _| ptnet(who, 1.2)).0, Some(false));
    }

    #[test]
    fn datagrams_and_batches_are_judged_by_growth_and_by_ratio() {
        let grows = |who, size| ptnet(who, 1.1) * f64::from(size);
        assert_eq!(holds("P-fig4", grows).0, Some(true));
        assert_eq!(holds("P-fig4", |who, _| ptnet(who, 1.1)).0, Some(false));
        let batches = |who, batch| if who == Contender::Ptnet { f64::from(batch) } else { 1.0 };
        assert_eq!(holds("P-fig5", batches).0, Some(true));
        assert_eq!(holds("P-fig5", |_, batch| f64::from(batch)).0, Some(false));
    }

    #[test]
    fn the_ring_api_must_be_ahead_by_more_than_a_little() {
        assert_eq!(holds("P-netmap", |who, _| ptnet(who, 20.0)).0, Some(true));
        assert_eq!(holds("P-netmap", |who, _| ptnet(who, 1.5)).0, Some(false));
        let (as_paper, told) =
            holds("P-netmap", |who, batch| ptnet(who, if batch == 512 { 1.5 } else { 20.0 }));
        assert_eq!(as_paper, Some(false), "{told}");
        assert!(told.ends_with("1 of 1 predictions came true"), "{told}");
    }

    #[test]
    fn nothing_is_judged_where_a_contender_is_missing() {
        let study = Study::find("P-stream").unwrap();
        let mut results = document(study, |_, _| 1.0);
        results.points.retain(|point| Contender::of(&point.experiment) != Some(Contender::Bridge));
        let (rows, law) = judged(study, "law", &results);
        assert_eq!(law.holds, None);
        assert_eq!(rows.iter().filter(|row| row.here.is_none()).count(), 3);
    }
}
