//! Compares the measurements with the paper's figures, and judges the paper's laws.

use results::{Estimate, LawCheck, PaperFigure, Results, Summary};

use super::super::catalogue::Entry;
use super::super::recipes::undecided;
use super::{AT_SERVERS, CLIENTS, Kind, Load, SIZE, TASKS, Way, model, paper};

/// Least ratio of native to other write throughput that counts as equally fast.
const EQUAL_MIN: f64 = 0.95;
/// Least factor by which native reads, and calls on files, must be faster.
const FASTER_MIN: f64 = 2.0;
/// Fewer repeats of a rate show no spread.
const REPEATS_MIN: u32 = 3;
/// If a smaller share of the bytes crossed to the servers, a cache answered.
const CROSSED_MIN: f64 = 0.9;
/// Why loads of more tasks or clients are not judged.
const SHARED: &str = "clients, gateways and servers share this machine's cores";

/// Kinds of access, with the names of their figures.
const ACCESSES: [(&str, &str); 2] = [("write", "write_bytes_per_s"), ("read", "read_bytes_per_s")];
const CALLS: [(&str, &str); 3] = [
    ("create", "file_creation_items_per_s"),
    ("stat", "file_stat_items_per_s"),
    ("remove", "file_removal_items_per_s"),
];
const LOCKS: [(&str, &str); 2] =
    [("flock", "flock_works_share"), ("byte ranges", "byte_ranges_works_share")];

/// The measurements, for look-ups.
struct Seen<'a> {
    id: &'a str,
    results: &'a Results,
}

impl Seen<'_> {
    fn of(&self, way: Way, load: &Load, figure: &str) -> Option<Estimate> {
        let experiment = way.experiment(self.id);
        let is = |summary: &Summary, name: &str, value: u64| {
            summary.varied.get(name) == Some(&(value as f64))
        };
        let is_it = |summary: &&Summary| {
            summary.experiment == experiment
                && summary.figure == figure
                && is(summary, TASKS, load.tasks)
                && is(summary, CLIENTS, load.clients)
                && is(summary, SIZE, load.file_bytes)
        };
        self.results.summaries.iter().find(is_it).map(|summary| summary.estimate)
    }

    /// By what factor the native way is faster than another.
    fn gain(&self, over: Way, load: &Load, figure: &str) -> Option<Gain> {
        let native = self.of(Way::Native, load, figure)?;
        let other = self.of(over, load, figure)?;
        let is_whole = other.low > 0.0 && native.low > 0.0;
        is_whole.then(|| Gain {
            repeats_count: native.count.min(other.count),
            median: native.median / other.median,
            low: native.low / other.high,
            high: native.high / other.low,
        })
    }
}

/// A speed-up factor: by the medians, and at the ends of both intervals.
#[derive(Debug, Clone, Copy)]
struct Gain {
    repeats_count: u32,
    median: f64,
    low: f64,
    high: f64,
}

impl Gain {
    /// Whether the factor is at least `least`; `None` if the repeats spread too widely to say.
    fn reaches(self, least: f64) -> Option<bool> {
        match (self.low >= least, self.high >= least) {
            (true, _) => Some(true),
            (false, false) => Some(false),
            (false, true) => None,
        }
    }

    fn text(self) -> String {
        format!("{:.2} ({:.2} .. {:.2})", self.median, self.low, self.high)
    }
}

/// A law on rates with fewer repeats than show a spread.
fn few_repeats(entry: &Entry, gains: impl IntoIterator<Item = Gain>) -> Option<LawCheck> {
    let least = gains.into_iter().map(|gain| gain.repeats_count).min()?;
    (least < REPEATS_MIN).then(|| {
        let why = format!(
            "only {least} repeats; {REPEATS_MIN} are needed to see how far rates spread on this \
             machine: --repeats {REPEATS_MIN}"
        );
        undecided(entry.law, &why)
    })
}

/// Whether all of them hold; `None` if none fails but one is undecided, or there are none.
fn all_hold(each: impl IntoIterator<Item = Option<bool>>) -> Option<bool> {
    let each: Vec<Option<bool>> = each.into_iter().collect();
    if each.contains(&Some(false)) {
        return Some(false);
    }
    (!each.is_empty() && !each.contains(&None)).then_some(true)
}

/// The table and the judged law of an entry.
pub(super) fn judged(
    entry: &Entry,
    (kind, loads): (Kind, &[Load]),
    results: &Results,
) -> (Vec<PaperFigure>, LawCheck) {
    let seen = Seen { id: entry.id, results };
    let mut rows: Vec<PaperFigure> = match kind {
        Kind::Streams => loads.iter().flat_map(|load| stream_rows(&seen, load)).collect(),
        Kind::Metadata => loads.iter().flat_map(|load| call_rows(&seen, load)).collect(),
        Kind::Locks => loads.iter().flat_map(|load| lock_rows(&seen, load)).collect(),
    };
    let law = match entry.id {
        "G-flock" => locks(entry, &seen, loads),
        "G-fig7-8" => {
            let (more, said) = model::rows(&model_rates(&seen, loads));
            rows.extend(more);
            let measured = many(&seen, loads, &ACCESSES);
            undecided(entry.law, &format!("{SHARED}: {measured}; by the model {said}"))
        }
        "G-tab6-7" => {
            let measured = many(&seen, loads, &CALLS);
            undecided(entry.law, &format!("{SHARED}, and the paper had 64 clients: {measured}"))
        }
        _ if kind == Kind::Streams => streams(entry, &seen),
        _ => metadata(entry, &seen, loads),
    };
    (rows, law)
}

pub(super) fn megabytes(bytes_per_s: f64) -> String {
    format!("{:.0} MB/s", bytes_per_s * 1e-6)
}

fn place(load: &Load) -> String {
    let tasks = if load.tasks == 1 { "1 task".to_owned() } else { format!("{} tasks", load.tasks) };
    if load.clients == 1 { tasks } else { format!("{tasks} on each of {} clients", load.clients) }
}

fn stream_rows(seen: &Seen<'_>, load: &Load) -> Vec<PaperFigure> {
    let mut rows = Vec::new();
    for (number, (name, figure)) in ACCESSES.into_iter().enumerate() {
        for way in Way::ALL {
            let paper = paper::streams(way == Way::Native, load.tasks, number);
            let paper = paper.filter(|_| load.clients == 1 && way != Way::Uncached);
            let crossed = seen.of(way, load, &format!("{name}_{AT_SERVERS}"));
            let cached = crossed.filter(|part| part.median < CROSSED_MIN);
            let cached = cached.map_or("", |_| ", cached at the gateway");
            let here = seen.of(way, load, figure);
            rows.push(PaperFigure {
                name: format!("{name}, {}, {}", place(load), way.name()),
                paper: paper.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0} MB/s")),
                here: here.map(|here| here.text(megabytes) + cached),
            });
        }
    }
    rows
}

fn call_rows(seen: &Seen<'_>, load: &Load) -> Vec<PaperFigure> {
    let mut rows = Vec::new();
    for (number, (name, figure)) in CALLS.into_iter().enumerate() {
        for way in Way::ALL {
            let is_native = way == Way::Native;
            let which = (is_native, load.clients == 1);
            let paper = paper::metadata(which, (load.tasks, load.file_bytes), number);
            let paper = paper.filter(|_| way != Way::Uncached);
            let of_many = if load.clients == 1 { "" } else { " (64 clients)" };
            let here = seen.of(way, load, figure);
            rows.push(PaperFigure {
                name: format!("{name}, {} B, {}, {}", load.file_bytes, place(load), way.name()),
                paper: paper.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0}/s{of_many}")),
                here: here.map(|here| here.text(|rate| format!("{rate:.0}/s"))),
            });
        }
    }
    rows
}

fn lock_rows(seen: &Seen<'_>, load: &Load) -> Vec<PaperFigure> {
    let mut rows = Vec::new();
    for (name, figure) in LOCKS {
        for way in Way::ALL {
            let here = seen.of(way, load, figure).map(|works| match works.median {
                1.0 => "works".to_owned(),
                _ => words(seen.results, &way.experiment(seen.id), name),
            });
            let paper = if way == Way::Native { "available" } else { "not available" };
            rows.push(PaperFigure {
                name: format!("{name}, {}", way.name()),
                paper: paper.to_owned(),
                here,
            });
        }
    }
    rows
}

/// The verdict on a kind of lock in the load's own document.
fn words(results: &Results, experiment: &str, lock: &str) -> String {
    let is_of = |point: &&results::Point| point.experiment.starts_with(&format!("{experiment}: "));
    let found = results.points.iter().filter(is_of).find_map(|point| match &point.work {
        results::Work::FileLocks(work) if work.lock == lock => Some(work.verdict.clone()),
        _other => None,
    });
    found.unwrap_or_else(|| "does not work".to_owned())
}

fn locks(entry: &Entry, seen: &Seen<'_>, loads: &[Load]) -> LawCheck {
    let Some(load) = loads.first() else { return undecided(entry.law, "nothing was measured") };
    let of = |way, figure| seen.of(way, load, figure).map(|works| works.median);
    let all = |way| LOCKS.map(|(_, figure)| of(way, figure));
    let (native, projected) =
        (all(Way::Native), [all(Way::Projected), all(Way::Uncached)].concat());
    if native.contains(&None) || projected.contains(&None) {
        return undecided(entry.law, "not every way was tried");
    }
    let works = native.iter().all(|works| *works == Some(1.0));
    let fails = projected.iter().all(|works| *works == Some(0.0));
    let judged = match (works, fails) {
        (true, true) => {
            "two clients exclude each other natively, and do not through the gateway; DVS refuses locks, and \
                         SFTP grants them to both without an error"
        }
        (false, _) => "locks do not work natively",
        (_, false) => "locks work through the gateway as well",
    };
    LawCheck { law: entry.law.to_owned(), holds: Some(works && fails), judged: judged.to_owned() }
}

/// What the model needs, by kind of access.
fn model_rates(seen: &Seen<'_>, loads: &[Load]) -> [(&'static str, Option<model::Measured>); 2] {
    ACCESSES.map(|(name, figure)| {
        let of = |way, load: &Load| seen.of(way, load, figure).map(|estimate| estimate.median);
        let one = loads.iter().find(|load| load.clients == 1);
        let rates = one.and_then(|one| {
            let passed = loads.iter().filter_map(|load| of(Way::Uncached, load));
            Some(model::Measured {
                native: of(Way::Native, one)?,
                projected: of(Way::Uncached, one)?,
                gateway: passed.fold(0.0, f64::max),
            })
        });
        (name, rates)
    })
}

/// Judges one task only: several share the machine's cores.
fn streams(entry: &Entry, seen: &Seen<'_>) -> LawCheck {
    let load = Load::of(1, 1, 0);
    let gain = |figure| seen.gain(Way::Uncached, &load, figure);
    let (Some(write), Some(read)) = (gain(ACCESSES[0].1), gain(ACCESSES[1].1)) else {
        return undecided(entry.law, "not every way was measured");
    };
    if let Some(undecided) = few_repeats(entry, [write, read]) {
        return undecided;
    }
    let judged = format!(
        "one task writes {} and reads {} times as fast natively as through a gateway that does not cache (the paper: 0.95 \
         and 2.01); more tasks are shown and not judged: {SHARED}",
        write.text(),
        read.text()
    );
    let holds = all_hold([write.reaches(EQUAL_MIN), read.reaches(FASTER_MIN)]);
    LawCheck { law: entry.law.to_owned(), holds, judged }
}

fn metadata(entry: &Entry, seen: &Seen<'_>, loads: &[Load]) -> LawCheck {
    let mut gains = Vec::new();
    for load in loads.iter().filter(|load| load.tasks == 1) {
        for (name, figure) in CALLS {
            match seen.gain(Way::Projected, load, figure) {
                Some(gain) => {
                    gains.push((gain, format!("{name} {} B {:.1}", load.file_bytes, gain.median)));
                }
                None => return undecided(entry.law, "not every way was measured"),
            }
        }
    }
    if let Some(undecided) = few_repeats(entry, gains.iter().map(|(gain, _)| *gain)) {
        return undecided;
    }
    let told: Vec<&str> = gains.iter().map(|(_, text)| text.as_str()).collect();
    let judged = format!(
        "times as many natively by one task: {}; more tasks are shown and not judged: {SHARED}",
        told.join(", ")
    );
    let holds = all_hold(gains.iter().map(|(gain, _)| gain.reaches(FASTER_MIN)));
    LawCheck { law: entry.law.to_owned(), holds, judged }
}

/// Compares the totals of many clients with those of one, native and through the gateway.
fn many(seen: &Seen<'_>, loads: &[Load], figures: &[(&str, &str)]) -> String {
    let is_plain = |load: &&Load| load.tasks == 1 && load.file_bytes == 0;
    let of =
        |is_one: bool| loads.iter().filter(is_plain).find(|load| (load.clients == 1) == is_one);
    let (Some(one), Some(more)) = (of(true), of(false)) else { return "not measured".to_owned() };
    let mut told = Vec::new();
    for way in [Way::Native, Way::Uncached] {
        for (name, figure) in figures {
            let of = |load| seen.of(way, load, figure).map(|estimate| estimate.median);
            if let (Some(one), Some(more)) = (of(one), of(more)) {
                told.push(format!("{name} {} {:.2}", way.name(), more / one));
            }
        }
    }
    format!("{} clients by one: {}", more.clients, told.join(", "))
}

#[cfg(test)]
mod tests {
    use results::RunKind;

    use super::*;
    use crate::verbs::reproduce::catalogue;

    fn results(id: &str, rates: &[(Way, &str, f64)]) -> Results {
        repeated(id, rates, 3)
    }

    fn repeated(id: &str, rates: &[(Way, &str, f64)], repeats_count: usize) -> Results {
        let mut results = Results::begun(RunKind::Reproduce, 0);
        for (way, figure, value) in rates {
            let varied = [(TASKS, 1.0), (CLIENTS, 1.0), (SIZE, 0.0)];
            results.summaries.push(Summary {
                experiment: way.experiment(id),
                varied: varied.map(|(name, value)| (name.to_owned(), value)).into(),
                figure: (*figure).to_owned(),
                estimate: Estimate::of(&vec![*value; repeats_count]).expect("finite"),
            });
        }
        results
    }

    #[test]
    fn laws_hold_where_the_native_way_is_faster_and_are_undecided_without_it() {
        let entry = catalogue::find("G-tab2").expect("an entry");
        let loads = [Load::of(1, 1, 0)];
        let judge = |rates: &[(Way, &str, f64)]| {
            judged(entry, (Kind::Streams, &loads), &results("G-tab2", rates)).1.holds
        };
        let (write, read) = (ACCESSES[0].1, ACCESSES[1].1);
        let native = [(Way::Native, write, 4e8), (Way::Native, read, 5e8)];
        assert_eq!(judge(&native), None);
        let slow = [(Way::Uncached, write, 4e8), (Way::Uncached, read, 2e8)];
        assert_eq!(judge(&[native, slow].concat()), Some(true));
        let fast = [(Way::Uncached, write, 4e8), (Way::Uncached, read, 5e8)];
        assert_eq!(judge(&[native, fast].concat()), Some(false));
    }

    #[test]
    fn a_single_repeat_of_rates_decides_nothing() {
        let entry = catalogue::find("G-tab2").expect("an entry");
        let rates = [Way::Native, Way::Uncached]
            .map(|way| ACCESSES.map(|(_, figure)| (way, figure, 4e8)))
            .concat();
        let judge = |repeats| {
            let loads = [Load::of(1, 1, 0)];
            judged(entry, (Kind::Streams, &loads), &repeated("G-tab2", &rates, repeats)).1
        };
        assert_eq!(judge(3).holds, Some(false));
        let one = judge(1);
        assert!(one.holds.is_none() && one.judged.contains("--repeats 3"), "{one:?}");
    }

    #[test]
    fn what_this_machine_cannot_judge_is_undecided_with_the_reason() {
        for (id, kind) in [("G-fig7-8", Kind::Streams), ("G-tab6-7", Kind::Metadata)] {
            let entry = catalogue::find(id).expect("an entry");
            let loads = [Load::of(1, 1, 0), Load::of(4, 1, 0)];
            let (rows, law) = judged(entry, (kind, &loads), &results(id, &[]));
            assert_eq!(law.holds, None);
            assert!(law.judged.contains(SHARED) && !rows.is_empty(), "{law:?}");
        }
    }
}
