//! Two sets of runs held against each other, figure by figure.

use std::collections::BTreeSet;

use results::{Estimate, Unit};
use serde::Serialize;

use crate::better::Better;
use crate::quantity::Quantity;
use crate::run::Run;
use crate::words;

mod enough;
mod judge;
mod pairs;

use enough::{is_told, repeats_to_tell};
use judge::{adjust, figure};

/// Share of the differences told that may be there by chance, and the most that one alone may be.
pub const FALSE_SHARE_MAX: f64 = 0.05;

/// Two sets of runs, and how the second differs from the first.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// The first set.
    pub a: Side,
    /// The second set.
    pub b: Side,
    /// Every figure that both sides have, in the order of the first; those of tests whose settings differ come last.
    pub figures: Vec<ComparedFigure>,
    /// Figures of the first side only.
    pub only_a: Vec<OneSided>,
    /// Figures of the second side only.
    pub only_b: Vec<OneSided>,
    /// What is known of the hosts and the path and is not the same on both sides.
    pub host_changes: Vec<HostChange>,
}

/// One set of runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Side {
    /// As the user named it.
    pub name: String,
    /// Its results files, oldest first.
    pub files: Vec<String>,
    /// When the first of its runs began, milliseconds since 1970 UTC.
    pub first_unix_ms: u64,
    /// When the last of them began.
    pub last_unix_ms: u64,
    /// Files whose run was cut short, with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub partial: Vec<String>,
    /// Files that do not hold every setting of their tests, with what they leave open: that is taken as equal.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_recorded: Vec<String>,
}

/// One figure of one setting, on both sides.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ComparedFigure {
    /// The experiment and what was varied, in words.
    pub setting: String,
    /// What was asked differently of the two sides; empty for a like-for-like comparison.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub differing_settings: Vec<SettingChange>,
    /// Name of the figure, as in the results.
    pub figure: String,
    /// Unit of the values.
    pub unit: Unit,
    /// Which way it gets better.
    pub better: Better,
    /// What counts as one value: a repeat, or a whole run.
    pub counted: Counted,
    /// The first side.
    pub a: Estimate,
    /// The second side.
    pub b: Estimate,
    /// The shift from the first side to the second: the median of all pairwise differences.
    pub difference: f64,
    /// Lower end of the shift's interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Probability that the interval holds the true shift.
    pub confidence: f64,
    /// The shift as a share of the first side's median; absent where that is 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relative: Option<f64>,
    /// Which test judges the difference; absent where the values are too few for any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub judged_by: Option<JudgedBy>,
    /// Two-sided probability of so different values if nothing had changed: by Student's test where that one judges,
    /// otherwise by the rank-sum test.
    pub chance: f64,
    /// The same, raised for the number of figures compared (Benjamini and Hochberg); absent where the
    /// values are too few for any difference to be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adjusted_chance: Option<f64>,
    /// What follows from it.
    pub outcome: Outcome,
    /// The work is on files: what is timed is a call, and no round trip.
    #[serde(skip)]
    pub(crate) is_of_files: bool,
    /// The values of both sides.
    #[serde(skip)]
    pub(crate) values: [Vec<f64>; 2],
}

/// The test that judges a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum JudgedBy {
    /// The rank-sum test, which assumes no distribution.
    Ranks,
    /// Student's test of the logarithms: the values are too few for ranks, and other tests tell how much such figures
    /// vary.
    Spread,
}

/// What counts as one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Counted {
    /// A repeat: what differs from run to run is not part of the noise.
    Repeats,
    /// The median of a run's repeats.
    Runs,
}

/// What a comparison of one figure says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Beyond the noise, for the better.
    Better,
    /// Beyond the noise, for the worse.
    Worse,
    /// Beyond the noise; neither way is better.
    Different,
    /// Within the noise.
    Indistinguishable,
    /// No difference could be told with so few values.
    TooFew,
}

/// A setting of a test that is not the same on both sides, in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SettingChange {
    /// What was set: `window`.
    pub setting: String,
    /// Its value at the first side: `128 KiB`, or `not set`.
    pub a: String,
    /// Its value at the second side.
    pub b: String,
}

/// Figures that one side alone has.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OneSided {
    /// The experiment, what was varied and the options of the test, in words.
    pub setting: String,
    /// Names of the figures.
    pub figures: Vec<String>,
    /// Why they are compared with nothing.
    pub why: WhyAlone,
    /// The work is on files.
    #[serde(skip)]
    pub(crate) is_of_files: bool,
}

/// Why figures are compared with nothing of the other side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhyAlone {
    /// The same test is on the other side and lacks these figures.
    FigureMissing,
    /// The other side has no test of this kind, protocol and direction.
    NoCounterpart,
    /// Each test of this kind on the other side is compared with one that is closer to it.
    CounterpartTaken,
    /// Several tests differ equally little, so that none of them is the counterpart.
    Ambiguous,
}

impl WhyAlone {
    /// In words, of the side that has no counterpart: `B` for figures of A.
    #[must_use]
    pub fn words(self, other_side: &str) -> String {
        match self {
            Self::FigureMissing => format!("not measured by the same test in {other_side}"),
            Self::NoCounterpart => format!("no such test in {other_side}"),
            Self::CounterpartTaken => {
                format!("each such test in {other_side} has a closer counterpart")
            }
            Self::Ambiguous => "ambiguous: more than one test could be its counterpart".to_owned(),
        }
    }
}

impl OneSided {
    /// The figures in words.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        let words = |name: &String| words::figure_words_of(name, self.is_of_files);
        self.figures.iter().map(words).collect()
    }
}

/// A fact that is not the same on both sides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HostChange {
    /// The host's name in the results (`near`, `far`), or `path`.
    pub host: String,
    /// What differs.
    pub fact: String,
    /// Values of the first side, each once, oldest first; empty where it is not known.
    pub a: Vec<String>,
    /// Values of the second side.
    pub b: Vec<String>,
}

impl HostChange {
    /// Both values in words: those of several runs with a slash between them, `not known` where there is none.
    #[must_use]
    pub fn shown(&self) -> [String; 2] {
        [&self.a, &self.b].map(|values| match values.as_slice() {
            [] => "not known".to_owned(),
            some => some.join(" / "),
        })
    }
}

/// Compares two named sets of runs, each oldest first.
#[must_use]
pub fn compare((a_name, a): (&str, &[Run]), (b_name, b): (&str, &[Run])) -> Comparison {
    let (a_settings, b_settings) = (pairs::merged(a), pairs::merged(b));
    let pairs = pairs::paired(&a_settings, &b_settings);
    let mut figures = Vec::new();
    for pair in &pairs {
        let label = pair.label(&pairs);
        figures.extend(pair.from.figures.iter().filter_map(|(name, values)| {
            let (_, others) = pair.to.figures.iter().find(|(other, _)| other == name)?;
            let figure = figure(&label, name, values, others)?;
            Some(ComparedFigure {
                differing_settings: pair.differing.clone(),
                is_of_files: pair.from.setting.is_of_files,
                ..figure
            })
        }));
    }
    // Apart: what other settings do must not make a like-for-like difference easier to tell.
    let (alike, unlike) = figures.iter_mut().partition(|figure| figure.is_alike());
    adjust(alike);
    adjust(unlike);
    Comparison {
        only_a: pairs::alone(&a_settings, &pairs, &b_settings, |pair| (pair.from, pair.to)),
        only_b: pairs::alone(&b_settings, &pairs, &a_settings, |pair| (pair.to, pair.from)),
        a: side(a_name, a),
        b: side(b_name, b),
        figures,
        host_changes: host_changes(a, b),
    }
}

impl Comparison {
    /// The figures with this outcome, of tests with the same settings on both sides.
    pub fn with(&self, outcome: Outcome) -> impl Iterator<Item = &ComparedFigure> {
        self.alike().filter(move |figure| figure.outcome == outcome)
    }

    /// The figures of tests with the same settings on both sides.
    pub fn alike(&self) -> impl Iterator<Item = &ComparedFigure> {
        self.figures.iter().filter(|figure| figure.is_alike())
    }

    /// The figures of tests whose settings differ between the sides.
    pub fn unlike(&self) -> impl Iterator<Item = &ComparedFigure> {
        self.figures.iter().filter(|figure| !figure.is_alike())
    }

    /// Repeats that both sides need for a figure that differs alone among all that are compared to be told; `None` where
    /// they have them.
    ///
    /// The more figures are compared, the less likely by chance a difference must be to count.
    #[must_use]
    pub fn repeats_wanted(&self) -> Option<usize> {
        let by = |test| self.alike().filter(move |one| one.judged_by == Some(test));
        let judged: Vec<_> = by(JudgedBy::Ranks).collect();
        let has = |one: &&ComparedFigure| (one.a.count as usize, one.b.count as usize);
        let is_shared = by(JudgedBy::Spread).next().is_some();
        if judged.iter().map(has).any(|counts| is_told(counts, judged.len(), is_shared)) {
            return None;
        }
        repeats_to_tell(judged.len())
    }

    /// One line for each figure that got worse beyond the noise by more than the share `tolerance` of the
    /// first side's median, for each test whose settings differ, and for a comparison that cannot tell
    /// anything. Empty: the gate is met.
    ///
    /// Tests whose settings differ miss the gate whatever their figures: a better setting would hide a loss,
    /// and a worse one would be taken for it.
    #[must_use]
    pub fn missed(&self, tolerance: f64) -> Vec<String> {
        let mut refused: Vec<String> = Vec::new();
        for figure in self.unlike() {
            let line = format!(
                "{}: not judged, {}; repeat it with the settings of A",
                figure.setting,
                figure.differing_words()
            );
            if refused.last() != Some(&line) {
                refused.push(line);
            }
        }
        // That a few values differ beyond their spread does not show that a smaller loss would have been detected.
        let can_tell = self.alike().any(|figure| {
            let is_sensitive = figure.judged_by != Some(JudgedBy::Spread);
            (is_sensitive || figure.outcome == Outcome::Worse)
                && figure.outcome != Outcome::TooFew
                && figure.better != Better::Unknown
        });
        let count = self.alike().count();
        if !can_tell && (count > 0 || refused.is_empty()) {
            refused.insert(
                0,
                match count {
                    0 => "no figure can be judged".to_owned(),
                    1 => "the only figure with equal settings does not have enough repeats".to_owned(),
                    _ => format!("none of the {count} figures with equal settings has enough repeats on both sides"),
                },
            );
        }
        let is_beyond =
            |figure: &&ComparedFigure| figure.relative.is_none_or(|share| share.abs() > tolerance);
        let worse = self.with(Outcome::Worse).filter(is_beyond).map(ComparedFigure::line);
        worse.chain(refused).collect()
    }
}

impl ComparedFigure {
    /// Whether both sides were asked for the same.
    #[must_use]
    pub fn is_alike(&self) -> bool {
        self.differing_settings.is_empty()
    }

    /// `settings differ: window 128 KiB -> 1.00 MiB, streams 1 -> 4`; empty where none does.
    #[must_use]
    pub fn differing_words(&self) -> String {
        let one =
            |change: &SettingChange| format!("{} {} -> {}", change.setting, change.a, change.b);
        let all: Vec<String> = self.differing_settings.iter().map(one).collect();
        if all.is_empty() { String::new() } else { format!("settings differ: {}", all.join(", ")) }
    }

    /// The figure in words: `throughput, forward`; of file-system load `call p99`.
    #[must_use]
    pub fn words(&self) -> String {
        words::figure_words_of(&self.figure, self.is_of_files)
    }

    /// Lower end of the shift's interval as it is shown. No figure is negative, so none falls by more than the
    /// whole, though a low value of B may lie below the highest of A by more than A's median.
    #[must_use]
    pub fn shown_low(&self) -> f64 {
        let is_share = self.a.median > 0.0;
        if is_share { self.low.max(-self.a.median).min(self.difference) } else { self.low }
    }

    /// `single stream: throughput, forward 9.41 Gbit/s -> 7.90 Gbit/s (-16%)`.
    #[must_use]
    pub fn line(&self) -> String {
        format!("{} ({})", self.shown_medians(), self.shown_difference())
    }

    /// `single stream: throughput, forward 9.41 Gbit/s -> 7.90 Gbit/s`.
    #[must_use]
    pub fn shown_medians(&self) -> String {
        let [a, b] =
            [self.a, self.b].map(|side| Quantity::of_figure(&self.figure).show(side.median));
        format!("{}: {} {a} -> {b}", self.setting, self.words())
    }

    /// The shift as a share of the first side's median, or in its own unit: `-16%`, `+12`. Of a share in percentage
    /// points, which a percentage of a percentage would be taken for: `-2.1 points`.
    #[must_use]
    pub fn shown_difference(&self) -> String {
        self.shown_shift(self.difference)
    }

    /// Both ends of the shift's interval: `-18% to -14%`.
    #[must_use]
    pub fn shown_interval(&self) -> String {
        format!("{} to {}", self.shown_shift(self.shown_low()), self.shown_shift(self.high))
    }

    fn shown_shift(&self, shift: f64) -> String {
        let sign = match shift {
            0.0 => "",
            down if down < 0.0 => "-",
            _ => "+",
        };
        let quantity = Quantity::of_figure(&self.figure);
        if quantity == Quantity::Share {
            let points = quantity.show(shift.abs());
            return format!("{sign}{} points", points.trim_end_matches('%'));
        }
        if self.a.median != 0.0 {
            let percent = shift.abs() / self.a.median.abs() * 100.0;
            let decimals = usize::from(percent < 9.95) + usize::from(percent < 0.995);
            return if shift == 0.0 {
                "0%".to_owned()
            } else {
                format!("{sign}{percent:.decimals$}%")
            };
        }
        format!("{sign}{}", quantity.show(shift.abs()))
    }
}

fn side(name: &str, runs: &[Run]) -> Side {
    let times = || runs.iter().map(|run| run.started_unix_ms);
    let partial = |run: &Run| Some(format!("{}: {}", run.name, run.partial.as_ref()?));
    let not_recorded = |run: &Run| Some(format!("{}: {}", run.name, run.not_recorded.as_ref()?));
    Side {
        name: name.to_owned(),
        files: runs.iter().map(|run| run.name.clone()).collect(),
        first_unix_ms: times().min().unwrap_or(0),
        last_unix_ms: times().max().unwrap_or(0),
        partial: runs.iter().filter_map(partial).collect(),
        not_recorded: runs.iter().filter_map(not_recorded).collect(),
    }
}

fn host_changes(a: &[Run], b: &[Run]) -> Vec<HostChange> {
    let keys = |runs: &[Run]| -> Vec<(String, String)> {
        let facts = runs.iter().flat_map(|run| &run.facts);
        facts.map(|(host, fact, _)| (host.clone(), fact.clone())).collect()
    };
    let values = |runs: &[Run], key: &(String, String)| {
        let mut distinct: Vec<String> = Vec::new();
        for (host, fact, value) in runs.iter().flat_map(|run| &run.facts) {
            if (host, fact) == (&key.0, &key.1) && !distinct.contains(value) {
                distinct.push(value.clone());
            }
        }
        distinct
    };
    let has_host = |runs: &[Run], wanted: &str| {
        runs.iter().flat_map(|run| &run.facts).any(|(host, _, _)| host == wanted)
    };
    let mut told = BTreeSet::new();
    let all = [keys(a), keys(b)].concat();
    let each = all.into_iter().filter(|key| told.insert(key.clone()));
    let change = |key: (String, String)| {
        let (from, to) = (values(a, &key), values(b, &key));
        let (host, fact) = key;
        // What a recording does not tell of a host has not changed.
        let is_untold = |runs: &[Run], values: &[String]| {
            values.is_empty() && runs.iter().all(|run| run.is_recording)
        };
        let is_told = !is_untold(a, &from) && !is_untold(b, &to);
        let is_known = has_host(a, &host) && has_host(b, &host) && is_told;
        let is_same = from.iter().collect::<BTreeSet<_>>() == to.iter().collect::<BTreeSet<_>>();
        (is_known && !is_same).then_some(HostChange { host, fact, a: from, b: to })
    };
    each.filter_map(change).collect()
}

#[cfg(test)]
mod tests;
