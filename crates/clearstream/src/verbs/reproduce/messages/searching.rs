//! M-divine: the model checker between two hosts, by messages over the provider and by Open MPI's own TCP, beside one host.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use results::{
    Estimate, Figure, LawCheck, PaperFigure, Results, SearchWork, TestOutcome, Work, Worker, figure,
};
use serde_json::Value;
use sweep::{Plan, PlannedPoint, Setting};

use super::hosts::{self, JobHosts, Tools};
use super::layout::Layout;
use super::study::Receive;
use super::{SEED, absolute};
use crate::VerbResult;
use crate::catalogue::Entry;
use crate::exit::VerbError;
use crate::progress::Progress;
use crate::runner::{self, Done, Driver};
use crate::signals;
use crate::verbs::reproduce::ratios::{is_above, paired, shown};
use crate::verbs::reproduce::recipes::undecided;
use crate::verbs::reproduce::{ReproduceArgs, conduct, divine, local, publish};

/// Philosophers of the model: 6 million states; and of a try, which judges nothing: 100 thousand.
const PHILOSOPHERS: usize = 8;
const PHILOSOPHERS_OF_TRY: usize = 6;
/// A shorter `--duration` asks for a try. A search takes what it takes.
const MEASURED_FROM: Duration = Duration::from_secs(1);
/// Longest time for a search.
const SEARCH_MAX: Duration = Duration::from_secs(300);
/// Least speed of two hosts compared with one, all with one core, that was aimed at.
const SPEED_MIN: f64 = 1.6;

/// Who searches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    OneHost,
    Messages,
    Tcp,
}

impl Way {
    const ALL: [Self; 3] = [Self::OneHost, Self::Messages, Self::Tcp];

    fn name(self) -> &'static str {
        match self {
            Self::OneHost => "one host",
            Self::Messages => "two hosts, messages",
            Self::Tcp => "two hosts, Open MPI's TCP",
        }
    }

    fn experiment(self) -> String {
        format!("M-divine {}", self.name())
    }

    fn setting(self, philosophers: usize) -> Setting {
        let ranks_count = if self == Self::OneHost { 1 } else { 2 };
        let model = format!("{philosophers} philosophers");
        let work = SearchWork { model, checked: None, ranks_count, threads_count: Some(1) };
        Setting::new(self.experiment(), Work::Search(work))
    }
}

/// Runs the experiment in a lab on this machine.
pub(in crate::verbs::reproduce) fn run(
    entry: &'static Entry,
    args: &ReproduceArgs,
    json: bool,
) -> VerbResult {
    if args.host.is_some() {
        return Err(VerbError::usage(format!(
            "{} starts its ranks in a lab; between hosts run `clearstream mpi -- mpirun … clearstream check`",
            entry.id
        )));
    }
    signals::watch().map_err(|error| VerbError::from_error(&error))?;
    let library = absolute(args.jobs.library.as_deref())?;
    let tools = Tools { launcher: hosts::launcher()?, library };
    let layout = Layout::of(&topology::machine(), 1)
        .ok_or_else(|| VerbError::missing(format!("{}: this program may use no core", entry.id)))?;
    let is_try = args.duration < MEASURED_FROM;
    let philosophers = if is_try { PHILOSOPHERS_OF_TRY } else { PHILOSOPHERS };
    let settings = Way::ALL.map(|way| way.setting(philosophers)).to_vec();
    let plan = Plan::new(settings, args.repeats, SEED);
    let mut progress = Progress::new(1);
    progress.begin("the lab comes up");
    let hosts = JobHosts::up(tools, layout.clone())?;
    let model = hosts.folder().join("model.dve");
    std::fs::write(&model, divine::model(philosophers))?;
    let mut searches = Searches { hosts, model };
    let conducted = conduct(entry, &plan, &mut searches, local::document(), progress, args);
    let judge = |results: &Results| {
        let (rows, law) = judge(entry.law, &layout, results);
        let reason = "so small a model decides nothing: use --duration 1s or more";
        (rows, if is_try { undecided(entry.law, reason) } else { law })
    };
    publish(entry, conducted, judge, args, json)
}

/// Runs every setting as a search.
struct Searches {
    hosts: JobHosts,
    model: PathBuf,
}

impl Driver for Searches {
    fn run(
        &mut self,
        planned: &PlannedPoint,
        _what: &str,
        _progress: &mut Progress,
    ) -> Result<Done, VerbError> {
        let started_unix_ms = runner::now_unix_ms();
        let way = Way::ALL.into_iter().find(|way| way.experiment() == planned.experiment);
        let way = way.ok_or_else(|| VerbError::failed("no search for this work"))?;
        let mut done = match self.search(way) {
            Err(error) => Done::failed(planned, started_unix_ms, error),
            Ok(outcome) => Done::measured(planned, started_unix_ms, outcome),
        };
        let hosts = if way == Way::OneHost { 1 } else { 2 };
        let cores = self.hosts.layout().ranks.iter().take(hosts);
        let worker = |cores: &Vec<u32>| Worker {
            host: results::NEAR.to_owned(),
            part: "search".to_owned(),
            cores: cores.clone(),
        };
        done.point.by = cores.map(worker).collect();
        Ok(done)
    }
}

impl Searches {
    fn search(&self, way: Way) -> Result<TestOutcome, VerbError> {
        let program = std::env::current_exe()?.display().to_string();
        let model = self.model.display().to_string();
        let words = [program.as_str(), "check", "--json", "--full", &model].map(str::to_owned);
        let text = match way {
            Way::OneHost => self.hosts.run_alone(&words, SEARCH_MAX)?,
            // As TCP's, its packets are taken in where the kernel takes them in by itself.
            Way::Messages => {
                self.hosts.run_steered(Receive::Queues, Receive::Tcp, &words, SEARCH_MAX)?
            }
            Way::Tcp => self.hosts.run(Receive::Tcp, &words, SEARCH_MAX)?,
        };
        let (states_count, duration_s) =
            told(&text).ok_or_else(|| VerbError::failed("the search reported no result"))?;
        let figures = vec![Figure::new(figure::STATES_PER_S, states_count / duration_s)];
        Ok(TestOutcome { duration_s, figures, ..TestOutcome::default() })
    }
}

/// States and seconds of a report; the launcher may have said something before it.
fn told(text: &str) -> Option<(f64, f64)> {
    let json: Value = serde_json::from_str(text.get(text.find('{')?..)?).ok()?;
    let check = &json["checks"][0];
    (check["verdict"] == "holds").then_some(())?;
    Some((check["states_count"].as_f64()?, check["duration_s"].as_f64()?))
}

/// States per second of each repeat.
fn rates(results: &Results, way: Way) -> BTreeMap<u32, f64> {
    let points = results.points.iter().filter(|point| point.experiment == way.experiment());
    let value = |point: &results::Point| {
        let figure = point.figures().into_iter().find(|one| one.name == figure::STATES_PER_S);
        figure.map(|one| one.value)
    };
    points.filter_map(|point| Some((point.repeat, value(point)?))).collect()
}

fn judge(law: &str, layout: &Layout, results: &Results) -> (Vec<PaperFigure>, LawCheck) {
    let mut rows = Vec::new();
    for way in Way::ALL {
        let all: Vec<f64> = rates(results, way).into_values().collect();
        let states = |one: f64| format!("{} states/s", units::show_count(one));
        let here = Estimate::of(&all).map(|one| one.text(states));
        rows.push(PaperFigure { name: way.name().to_owned(), paper: "-".to_owned(), here });
    }
    let ratio = |over, under| paired(&rates(results, over), &rates(results, under));
    let (speed, beside_tcp) = (ratio(Way::Messages, Way::OneHost), ratio(Way::Messages, Way::Tcp));
    for (name, expected, ratio) in [
        ("two hosts, messages / one host", "aim: at least 1.60 x", &speed),
        ("two hosts, messages / Open MPI's TCP", "predicted at least 1.00 x", &beside_tcp),
    ] {
        let here = ratio.as_ref().map(shown);
        rows.push(PaperFigure { name: name.to_owned(), paper: expected.to_owned(), here });
    }
    let (Some(speed), Some(beside_tcp)) = (speed, beside_tcp) else {
        return (rows, undecided(law, "not every search ended well"));
    };
    let told = format!(
        "two hosts search {} as fast as one, each with one core, and {} as fast as over Open MPI's TCP",
        shown(&speed),
        shown(&beside_tcp)
    );
    let (holds, judged) = if layout.has_a_core_a_rank() {
        (is_above(&speed, SPEED_MIN), told)
    } else {
        (None, format!("both hosts share a core here; {told}"))
    };
    (rows, LawCheck { law: law.to_owned(), holds, judged })
}

#[cfg(test)]
mod tests {
    use results::{Core, Machine, RunKind};

    use super::*;

    #[test]
    fn only_a_search_that_holds_is_measured() {
        let text = |verdict: &str| {
            format!(
                "a line of the launcher\n{{\"checks\":[{{\"verdict\":\"{verdict}\",\"states_count\":600,\"duration_s\":2.0}}]}}\n"
            )
        };
        assert_eq!(told(&text("holds")), Some((600.0, 2.0)));
        assert_eq!(told(&text("undecided")), None);
        assert_eq!(told("nothing"), None);
    }

    #[test]
    fn the_aim_is_judged_by_the_ratio_of_each_repeat() {
        let core = |core| Core { core, is_online: true, is_usable: true, ..Core::default() };
        let machine =
            |count| Machine { cores: (0..count).map(core).collect(), ..Machine::default() };
        let results = |speeds: [f64; 3]| {
            let mut results = Results::begun(RunKind::Reproduce, 0);
            for (repeat, speed) in speeds.into_iter().enumerate() {
                for (way, rate) in
                    [(Way::OneHost, 1e6), (Way::Messages, speed * 1e6), (Way::Tcp, 1e6)]
                {
                    let planned = PlannedPoint {
                        experiment: way.experiment(),
                        varied: Default::default(),
                        repeat: repeat as u32,
                        work: Work::Search(SearchWork {
                            model: String::new(),
                            checked: None,
                            ranks_count: 2,
                            threads_count: None,
                        }),
                    };
                    let figures = vec![Figure::new(figure::STATES_PER_S, rate)];
                    let outcome = TestOutcome { figures, ..TestOutcome::default() };
                    results.points.push(Done::measured(&planned, 0, outcome).point);
                }
            }
            results
        };
        let holds = |cores, speeds| {
            let layout = Layout::of(&machine(cores), 1).expect("cores");
            judge("law", &layout, &results(speeds)).1.holds
        };
        assert_eq!(holds(2, [1.7, 1.8, 1.9]), Some(true));
        assert_eq!(holds(2, [1.2, 1.3, 1.4]), Some(false));
        assert_eq!(holds(2, [1.2, 1.7, 1.8]), None, "repeats disagree");
        assert_eq!(holds(1, [1.7, 1.8, 1.9]), None, "one core for both");
        let none = Results::begun(RunKind::Reproduce, 0);
        let layout = Layout::of(&machine(2), 1).expect("cores");
        let (rows, law) = judge("law", &layout, &none);
        assert!(rows.iter().all(|row| row.here.is_none()), "{rows:?}");
        assert_eq!((law.holds, law.judged.contains("not every search")), (None, true));
    }
}
