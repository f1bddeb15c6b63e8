//! Which tests of two sides are compared: those that ask the same, then those that differ in settings alone.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{OneSided, SettingChange, WhyAlone};
use crate::run::{NOT_RECORDED, OPTIONS, Run, Setting};
use crate::{facts, words};

/// Tests of one kind on one side, above which none is paired with one of other settings: it bounds the search.
const UNLIKE_MAX: usize = 256;

/// A setting of one side over all its runs.
pub(super) struct Pooled<'a> {
    /// As its first run has it.
    pub(super) setting: &'a Setting,
    /// Each figure with the values of each run that has it.
    pub(super) figures: Vec<(&'a str, Vec<&'a [f64]>)>,
}

/// A test of both sides.
pub(super) struct Pair<'a, 'r> {
    pub(super) from: &'a Pooled<'r>,
    pub(super) to: &'a Pooled<'r>,
    /// What was asked differently; empty where both asked the same.
    pub(super) differing: Vec<SettingChange>,
}

/// Which tests of other settings are looked at together, the likeliest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Those of one experiment, at the same place of what it varied.
    Experiment,
    /// Those of any experiment, at the same place.
    AnyExperiment,
    /// Those of one experiment, at any place, where neither side has another: then it is no sweep.
    OnlyOne,
}

impl Step {
    fn key<'s>(self, one: &Pooled<'s>) -> [&'s str; 3] {
        let Setting { experiment, nature, asked, .. } = one.setting;
        match self {
            Self::Experiment => [nature, &asked.varied, experiment],
            Self::AnyExperiment => [nature, &asked.varied, ""],
            Self::OnlyOne => [nature, "", experiment],
        }
    }
}

/// The settings of all runs of a side.
pub(super) fn merged(runs: &[Run]) -> Vec<Pooled<'_>> {
    let mut merged: Vec<Pooled<'_>> = Vec::new();
    for setting in runs.iter().flat_map(|run| &run.settings) {
        let is_same = |known: &&mut Pooled<'_>| {
            known.setting.experiment == setting.experiment && known.setting.asked == setting.asked
        };
        let pooled = match merged.iter_mut().find(is_same) {
            Some(pooled) => pooled,
            None => {
                merged.push(Pooled { setting, figures: Vec::new() });
                merged.last_mut().expect("just pushed")
            }
        };
        for (name, values) in &setting.figures {
            match pooled.figures.iter_mut().find(|(known, _)| known == name) {
                Some((_, runs)) => runs.push(values),
                None => pooled.figures.push((name, vec![values])),
            }
        }
    }
    in_order(merged)
}

/// Tests of both sides that belong together. Those that ask the same come first, in the order of the first
/// side; the rest are paired by what differs least, of the same experiment before any other.
pub(super) fn paired<'a, 'r>(a: &'a [Pooled<'r>], b: &'a [Pooled<'r>]) -> Vec<Pair<'a, 'r>> {
    let mut pairs = alike(a, b);
    let mut unlike: Vec<Pair<'a, 'r>> = Vec::new();
    for step in [Step::Experiment, Step::AnyExperiment, Step::OnlyOne] {
        let mut kinds: BTreeMap<[&str; 3], [Vec<&'a Pooled<'r>>; 2]> = BTreeMap::new();
        for (side, all) in [a, b].into_iter().enumerate() {
            let known = |one: &Pooled<'_>| is_paired(one, &pairs) || is_paired(one, &unlike);
            for one in all.iter().filter(|one| !known(one)) {
                kinds.entry(step.key(one)).or_default()[side].push(one);
            }
        }
        let is_only = |key: &[&str; 3]| {
            [a, b].iter().all(|all| all.iter().filter(|one| step.key(one) == *key).count() == 1)
        };
        kinds.retain(|key, _| step != Step::OnlyOne || is_only(key));
        let found = kinds.into_values().flat_map(|[a, b]| closest(a, b));
        unlike.extend(found.collect::<Vec<_>>());
    }
    let place = |pair: &Pair<'_, '_>| a.iter().position(|one| std::ptr::eq(one, pair.from));
    unlike.sort_by_key(place);
    pairs.extend(unlike);
    pairs
}

/// What of a side is in no pair, or lacks a figure there, and why. `oriented` gives the test of this side first.
pub(super) fn alone<'a, 'r>(
    own: &'a [Pooled<'r>],
    pairs: &[Pair<'a, 'r>],
    others: &'a [Pooled<'r>],
    oriented: fn(&Pair<'a, 'r>) -> (&'a Pooled<'r>, &'a Pooled<'r>),
) -> Vec<OneSided> {
    let of = |one: &Pooled<'r>| {
        let found = pairs.iter().map(oriented).find(|(this, _)| std::ptr::eq(*this, one));
        let key = Step::AnyExperiment.key(one);
        let of_kind = || others.iter().filter(move |other| Step::AnyExperiment.key(other) == key);
        let why = match found {
            Some(_) => WhyAlone::FigureMissing,
            None if of_kind().next().is_none() => WhyAlone::NoCounterpart,
            None if of_kind().all(|other| is_paired(other, pairs)) => WhyAlone::CounterpartTaken,
            None => WhyAlone::Ambiguous,
        };
        one.without(found.map(|(_, other)| other), why)
    };
    own.iter().filter_map(of).collect()
}

impl Pooled<'_> {
    /// The figures that the partner lacks.
    fn without(&self, partner: Option<&Pooled<'_>>, why: WhyAlone) -> Option<OneSided> {
        let is_alone = |name: &str| {
            partner.is_none_or(|partner| partner.figures.iter().all(|(other, _)| *other != name))
        };
        let own = self.figures.iter().map(|(name, _)| *name).filter(|name| is_alone(name));
        let figures: Vec<String> = own.map(str::to_owned).collect();
        let (setting, is_of_files) = (self.setting.long_label(), self.setting.is_of_files);
        (!figures.is_empty()).then_some(OneSided { setting, figures, why, is_of_files })
    }
}

impl Pair<'_, '_> {
    /// In words; with its own options where another test is called the same.
    pub(super) fn label(&self, pairs: &[Self]) -> String {
        if !self.differing.is_empty() {
            return self.from.setting.label_shared(self.to.setting);
        }
        let all = pairs.iter().filter(|pair| pair.differing.is_empty());
        let all = all.map(|pair| pair.from.setting);
        let own = self.from.setting;
        own.label_among(all.filter(|other| other.label == own.label))
    }
}

/// Experiments as they first came, each with its settings in ascending order: they were measured shuffled.
fn in_order(mut settings: Vec<Pooled<'_>>) -> Vec<Pooled<'_>> {
    let names: Vec<&str> = settings.iter().map(|one| one.setting.experiment.as_str()).collect();
    let place = |one: &Pooled<'_>| names.iter().position(|name| *name == one.setting.experiment);
    settings.sort_by(|one, other| {
        place(one).cmp(&place(other)).then_with(|| one.setting.order(other.setting))
    });
    settings
}

/// Tests of both sides that ask the same: of the same experiment, or else the only ones that do.
fn alike<'a, 'r>(a: &'a [Pooled<'r>], b: &'a [Pooled<'r>]) -> Vec<Pair<'a, 'r>> {
    let is_same = |one: &Pooled<'_>, other: &Pooled<'_>| {
        one.setting.experiment == other.setting.experiment
            && one.setting.asked == other.setting.asked
    };
    let only_one = |setting: &Pooled<'_>, own: &[Pooled<'r>], others: &'a [Pooled<'r>]| {
        let alone = |side: &[Pooled<'_>]| {
            side.iter().filter(|one| one.setting.asked == setting.setting.asked).count() == 1
        };
        let other = others.iter().find(|other| other.setting.asked == setting.setting.asked)?;
        (alone(own) && alone(others)).then_some(other)
    };
    let pair = |from: &'a Pooled<'r>| {
        let exact = b.iter().find(|other| is_same(from, other));
        let to = exact.or_else(|| only_one(from, a, b))?;
        Some(Pair { from, to, differing: Vec::new() })
    };
    a.iter().filter_map(pair).collect()
}

fn is_paired(one: &Pooled<'_>, pairs: &[Pair<'_, '_>]) -> bool {
    pairs.iter().any(|pair| std::ptr::eq(pair.from, one) || std::ptr::eq(pair.to, one))
}

/// Pairs of tests of one kind that differ least from each other, and from no other as little: where the same
/// option was added to each of several tests, each is paired with what it was without it.
fn closest<'a, 'r>(mut a: Vec<&'a Pooled<'r>>, mut b: Vec<&'a Pooled<'r>>) -> Vec<Pair<'a, 'r>> {
    let mut pairs = Vec::new();
    if a.len().max(b.len()) > UNLIKE_MAX {
        return pairs;
    }
    loop {
        let back: Vec<Option<usize>> = b.iter().map(|one| nearest(one, &a)).collect();
        let there = a.iter().enumerate().map(|(at, one)| (at, nearest(one, &b)));
        let mutual =
            there.filter_map(|(at, to)| to.filter(|to| back[*to] == Some(at)).map(|to| (at, to)));
        let found: Vec<(usize, usize)> = mutual.collect();
        if found.is_empty() {
            return pairs;
        }
        pairs.extend(found.iter().map(|&(from, to)| {
            let (from, to) = (a[from], b[to]);
            Pair { from, to, differing: changes(from.setting, to.setting) }
        }));
        let rest = |side: Vec<&'a Pooled<'r>>, taken: BTreeSet<usize>| {
            let left = side.into_iter().enumerate().filter(|(at, _)| !taken.contains(at));
            left.map(|(_, one)| one).collect::<Vec<_>>()
        };
        a = rest(a, found.iter().map(|(from, _)| *from).collect());
        b = rest(b, found.iter().map(|(_, to)| *to).collect());
    }
}

/// The one of `others` that differs in the fewest settings; `None` where several do.
fn nearest(one: &Pooled<'_>, others: &[&Pooled<'_>]) -> Option<usize> {
    let distance = |other: &&Pooled<'_>| differing(one.setting, other.setting).count();
    let distances: Vec<usize> = others.iter().map(distance).collect();
    let least = distances.iter().min()?;
    let mut at_least = (0..distances.len()).filter(|at| distances[*at] == *least);
    let first = at_least.next();
    if at_least.next().is_some() { None } else { first }
}

/// Names of the settings that are not the same. Where one side did not record its options, they differ as a whole.
fn differing<'a>(one: &'a Setting, other: &'a Setting) -> impl Iterator<Item = &'a String> {
    let is_known = !one.fields.contains_key(OPTIONS) && !other.fields.contains_key(OPTIONS);
    let is_told = move |name: &&String| is_known || !is_option(name);
    let of_one = one.fields.iter().filter(|(name, value)| other.fields.get(*name) != Some(value));
    let of_other = other.fields.keys().filter(|name| !one.fields.contains_key(*name));
    of_one.map(|(name, _)| name).chain(of_other).filter(is_told)
}

/// Whether a field is one of the options of a load.
fn is_option(name: &str) -> bool {
    name.strip_prefix(OPTIONS).is_some_and(|rest| rest.starts_with('.'))
}

/// The options of a load, in words: `fsync yes`, or `none`.
fn options_words(setting: &Setting) -> String {
    if setting.fields.contains_key(OPTIONS) {
        return NOT_RECORDED.to_owned();
    }
    let options = setting.fields.iter().filter(|(name, _)| is_option(name));
    let words = options.map(|(name, value)| {
        let short = name.rsplit('.').next().unwrap_or(name);
        format!("{} {}", words::field(short, &Value::Null).0, words_of(short, Some(value)))
    });
    let words: Vec<String> = words.collect();
    if words.is_empty() { "none".to_owned() } else { words.join(" and ") }
}

fn changes(from: &Setting, to: &Setting) -> Vec<SettingChange> {
    let change = |name: &String| {
        if name == OPTIONS {
            let [a, b] = [from, to].map(options_words);
            return SettingChange { setting: OPTIONS.to_owned(), a, b };
        }
        // The group of a field is clear from its own name.
        let short = name.rsplit('.').next().unwrap_or(name);
        let values = [from.fields.get(name), to.fields.get(name)];
        let [a, b] = values.map(|value| words_of(short, value));
        let setting = words::field(short, &Value::Null).0;
        if a != b {
            return SettingChange { setting, a, b };
        }
        // Shortened for reading they look the same.
        let unit = words::unit_of(short);
        let [a, b] =
            values.map(|value| value.map_or_else(String::new, |value| format!("{value}{unit}")));
        SettingChange { setting, a, b }
    };
    let names = [from, to].map(|one| words::experiment_words(&one.experiment));
    let [a, b] = names;
    // Called otherwise and asked otherwise: that both are meant to be the same is the reader's to judge.
    let experiment = (a != b).then(|| SettingChange { setting: "experiment".to_owned(), a, b });
    differing(from, to).map(change).chain(experiment).collect()
}

fn words_of(name: &str, value: Option<&Value>) -> String {
    let shown = value.map(|value| facts::clipped(&words::field(name, value).1));
    shown.filter(|shown| !shown.is_empty()).unwrap_or_else(|| "not set".to_owned())
}
