//! What a model checker found: the verdict, the run that shows a violation, the search.

use results::{Check, CheckRun, CheckVerdict, HostFacts, RankTraffic};

use super::Section;
use super::verdict::{badge, title};
use crate::chart::{FULL_PX, Figure, NARROW_PX, search};
use crate::markup::{Element, el};
use crate::sequence::{self, Sequence, SequenceStep};
use crate::show::{self, DASH};
use crate::table::Table;

/// Fewest states at which the memory of one is shown.
const MANY_STATES: u64 = 10_000;
/// Checks and lines shown; the results file has them all.
const CHECKS_MAX: usize = 40;
const LINES_MAX: usize = 300;
/// Longest text of a model that is shown in one place, characters.
const TEXT_MAX: usize = 400;

/// The verdict card.
pub(crate) fn card(run: &CheckRun) -> Element {
    let is = |wanted: CheckVerdict| run.checks.iter().find(|check| check.verdict == wanted);
    let leading = is(CheckVerdict::Violated).or_else(|| is(CheckVerdict::Undecided));
    let leading = leading.or_else(|| run.checks.first());
    let card = el("section")
        .attr("id", "verdict")
        .class("verdict")
        .attr("aria-labelledby", "verdict-heading")
        .child(el("p").class("eyebrow").text("Does the model satisfy its properties?"));
    let Some(check) = leading else {
        return card.child(title("Nothing was checked"));
    };
    let mut card = card
        .child(el("div").class("verdict-head").child(title(word(check.verdict))).child(sign(check)))
        .child(el("p").class("lead").text(told(check)));
    if run.checks.len() > 1 {
        let others = run.checks.iter().take(CHECKS_MAX).map(|check| {
            let text = format!("{}: {}", word(check.verdict), show::clip(&check.checked, TEXT_MAX));
            el("li").child(el("div")).child(el("div").text(text))
        });
        card = card.child(el("ul").class("evidence").children(others));
    }
    card
}

fn word(verdict: CheckVerdict) -> &'static str {
    match verdict {
        CheckVerdict::Holds => "Holds",
        CheckVerdict::Violated => "Violated",
        CheckVerdict::Undecided => "Undecided",
    }
}

fn sign(check: &Check) -> Element {
    match check.verdict {
        CheckVerdict::Holds => badge("badge yes", "✓", "every reachable state was explored"),
        CheckVerdict::Violated => {
            let steps = check.run.len().saturating_sub(1);
            badge("badge no", "✗", &format!("counterexample of {steps} steps"))
        }
        CheckVerdict::Undecided => badge("badge open", "?", "no error found so far"),
    }
}

fn told(check: &Check) -> String {
    let why = check.why.as_deref().unwrap_or_default();
    let checked = show::sentence(&show::clip(&check.checked, TEXT_MAX));
    if why.is_empty() {
        format!("{checked}.")
    } else {
        format!("{checked}. {}.", show::sentence(&show::clip(why, TEXT_MAX)))
    }
}

/// The sections, in their order.
pub(crate) fn sections(run: &CheckRun, host: &HostFacts) -> Vec<Section> {
    let checks = || run.checks.iter().take(CHECKS_MAX).enumerate();
    let runs = checks().filter_map(|(number, check)| violation(number, check));
    let times = checks().filter_map(|(number, check)| {
        search::figure(format!("search-{number}"), check).map(Figure::into_element)
    });
    [
        Section::new("run", "The counterexample", runs),
        Section::new("unreachable", "Unreachable code", checks().filter_map(|(_, one)| code(one))),
        Section::new("search", "The search", [figures(run, host)]),
        Section::new("time", "Over time", times),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn violation(number: usize, check: &Check) -> Option<Element> {
    if check.run.is_empty() {
        return None;
    }
    let sequence = Sequence {
        title: check.checked.clone(),
        steps: check
            .run
            .iter()
            .filter_map(|line| {
                let label = line.step.clone()?;
                Some(SequenceStep { movers: line.movers.clone(), label })
            })
            .collect(),
        repeats_from: check.cycle_begins_at.map(|turn| usize::try_from(turn).unwrap_or(usize::MAX)),
    };
    let mut caption =
        "A vertical line for each process that moves, a box for a step of one process, an arrow \
                       for a rendezvous of two."
            .to_owned();
    if check.cycle_begins_at.is_some() {
        caption += " The steps below the dashed line repeat forever.";
    }
    let mut table =
        Table::new("The counterexample, state by state", 3, &["state", "step to it", "values"]);
    for (number, line) in check.run.iter().enumerate() {
        let step = line.step.clone().unwrap_or_else(|| DASH.to_owned());
        table.row([
            number.to_string(),
            show::clip(&step, TEXT_MAX),
            show::clip(&line.state, 4 * TEXT_MAX),
        ]);
    }
    let figure = Figure {
        id: format!("run-{number}"),
        title: check.checked.clone(),
        caption,
        legend: Vec::new(),
        wide: sequence::on_page(&sequence, FULL_PX),
        narrow: sequence::on_page(&sequence, NARROW_PX),
        table,
    };
    Some(figure.into_element())
}

fn code(check: &Check) -> Option<Element> {
    let code = check.unreachable.as_ref()?;
    let lines = |name: &'static str, lines: &[String]| {
        let rest = lines.len().saturating_sub(LINES_MAX);
        let items =
            lines.iter().take(LINES_MAX).map(|line| el("li").text(show::clip(line, TEXT_MAX)));
        let rest =
            (rest > 0).then(|| el("li").text(format!("and {rest} more, in the results file")));
        (!lines.is_empty()).then(|| {
            el("div")
                .child(el("h3").text(name))
                .child(el("ul").class("unreached").children(items).maybe(rest))
        })
    };
    let states = lines("States of processes that are never reached", &code.never_reached);
    let transitions = lines("Transitions that are never taken", &code.never_taken);
    if states.is_none() && transitions.is_none() {
        return Some(
            el("p").text(
                "None: every transition is taken and every state of each process is reached.",
            ),
        );
    }
    Some(el("div").class("pairs").maybe(states).maybe(transitions))
}

/// What each check took: a column a check.
fn figures(run: &CheckRun, host: &HostFacts) -> Element {
    let checks: Vec<&Check> = run.checks.iter().take(CHECKS_MAX).collect();
    let mut table = Table::new("Resources used", 1, &["figure"]);
    for check in &checks {
        table.column(show::clip(&check.checked, 60));
    }
    let mut row = |name: &str, read: &dyn Fn(&Check) -> String| {
        table.row(std::iter::once(name.to_owned()).chain(checks.iter().map(|one| read(one))));
    };
    let per_second = |count: f64, check: &Check| count / check.duration_s.max(1e-9);
    row("verdict", &|one| word(one.verdict).to_owned());
    row("states", &|one| one.states_count.to_string());
    row("transitions", &|one| one.transitions_count.to_string());
    // A depth-first search has left its path when it ends.
    row("depth", &|one| match one.depth {
        0 => DASH.to_owned(),
        depth => depth.to_string(),
    });
    row("time", &|one| show::seconds(one.duration_s));
    row("states per second", &|one| show::count(per_second(one.states_count as f64, one)));
    row("memory", &|one| show::size(one.memory_bytes as f64));
    row("bytes per state (state vector)", &|one| {
        // With few states it would be what the empty tables take.
        let stored = match one.states_count {
            MANY_STATES.. => show::number(one.memory_bytes as f64 / one.states_count as f64),
            _ => DASH.to_owned(),
        };
        format!("{stored} ({})", one.state_bytes)
    });
    if checks.iter().any(|one| one.ranks.is_some()) {
        let ranked = |one: &Check, read: &dyn Fn(&RankTraffic) -> String| {
            one.ranks.as_ref().map_or_else(|| DASH.to_owned(), read)
        };
        row("ranks", &|one| ranked(one, &|ranks| ranks.ranks_count.to_string()));
        row("messages between them", &|one| ranked(one, &|ranks| ranks.messages_count.to_string()));
        row("sent between them", &|one| {
            ranked(one, &|ranks| show::rate(per_second(ranks.sent_bytes as f64 * 8.0, one)))
        });
        row("states explored again", &|one| {
            ranked(one, &|ranks| ranks.looked_at_again_count.to_string())
        });
    }
    let processor = host.processor.as_deref().unwrap_or(DASH);
    let cores = units::count_of(host.usable_cores.len() as u64, "usable core");
    let place = format!("{}: {}, {cores}", show::clip(&host.name, 60), show::clip(processor, 80));
    el("div").child(table.into_element()).child(el("p").class("note").text(place))
}
