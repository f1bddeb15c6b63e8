//! The page of a comparison: what changed, by how much, how sure that is, and what else differs.

use compare::{ComparedFigure, Comparison, Counted, HostChange, OneSided, Outcome, Quantity};
use units::count_of;

use crate::chart::bars;
use crate::markup::{Element, el};
use crate::page;
use crate::section::Section;
use crate::show::{self, DASH};
use crate::table::{self, Table};

/// Rows with a drawing; the table of all figures has the rest.
const DRAWN_MAX: usize = 60;

/// Figures that the card at the top names.
const NAMED_MAX: usize = 3;

/// The whole document.
pub(crate) fn page(comparison: &Comparison) -> String {
    let sections: Vec<Section> = [
        changed(comparison),
        unlike(comparison),
        figures(comparison),
        one_sided(comparison),
        hosts(comparison),
        reading(),
    ]
    .into_iter()
    .flatten()
    .collect();
    let subject = format!("{} → {}", short(&comparison.a.name), short(&comparison.b.name));
    let about = [side("A", &comparison.a), side("B", &comparison.b)];
    let cut_short = comparison.a.partial.iter().chain(&comparison.b.partial);
    let left_open = comparison.a.not_recorded.iter().chain(&comparison.b.not_recorded);
    let tags: Vec<String> = cut_short
        .map(|why| format!("not complete: {}", show::clip(why, 160)))
        .chain(left_open.map(|what| show::clip(&format!("{what}: assumed equal"), 160)))
        .collect();
    let header = page::banner(&subject, &about, &tags, page::contents(&sections));
    let title = format!("{subject} – ClearStream comparison");
    page::framed(&title, header, card(comparison), sections, "two sets of results files")
}

/// The last part of a path.
fn short(name: &str) -> String {
    let last = name.trim_end_matches('/').rsplit('/').next().unwrap_or(name);
    show::clip(last, 60)
}

fn side(letter: &str, side: &compare::Side) -> String {
    let (first, last) = (show::moment(side.first_unix_ms), show::moment(side.last_unix_ms));
    match side.files.len() {
        1 => format!("{letter}: {}, {first}", short(&side.name)),
        many => format!("{letter}: {}, {many} runs, {first} to {last}", short(&side.name)),
    }
}

/// What the comparison comes to.
fn card(comparison: &Comparison) -> Element {
    let count = |outcome| comparison.with(outcome).count();
    let worse = count(Outcome::Worse);
    let told = [
        (worse, "worse"),
        (count(Outcome::Better), "better"),
        (count(Outcome::Different), "different"),
    ];
    let parts: Vec<String> = told
        .iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, word)| format!("{number} {word}"))
        .collect();
    let heading = match parts.is_empty() {
        true if comparison.alike().next().is_none() => {
            "No test has the same settings on both sides".to_owned()
        }
        true => comparison.without_difference(&comparison.alike().collect::<Vec<_>>()),
        false => format!("Beyond the noise: {}", parts.join(", ")),
    };
    let unlike = match comparison.unlike().count() {
        0 => String::new(),
        1 => " 1 figure of tests whose settings differ is listed separately.".to_owned(),
        many => format!(" {many} figures of tests whose settings differ are listed separately."),
    };
    let enough = match count(Outcome::TooFew) {
        0 => "all have enough repeats".to_owned(),
        1 => "1 has too few repeats to detect a difference".to_owned(),
        many => format!("{many} have too few repeats to detect a difference"),
    };
    let lead = format!(
        "{} of the same work with the same settings compared; {enough}.{unlike}",
        count_of(comparison.alike().count() as u64, "figure"),
    );
    let largest = comparison.with(Outcome::Worse).chain(comparison.with(Outcome::Better));
    let lines = largest.take(NAMED_MAX).map(|figure| show::sentence(&figure.line()));
    let named: Vec<String> = lines.collect();
    let more = (worse + count(Outcome::Better)).saturating_sub(named.len());
    let rest = (more > 0).then(|| format!("and {more} more"));
    let lines = named.into_iter().chain(rest).map(|line| el("li").text(line));
    el("section")
        .attr("id", "verdict")
        .class("verdict")
        .attr("aria-labelledby", "verdict-heading")
        .child(el("p").class("eyebrow").text("B compared with A"))
        .child(el("h2").attr("id", "verdict-heading").text(heading))
        .child(el("p").class("lead").text(lead))
        .child(el("ul").class("commands").children(lines))
}

/// The figures that differ, each drawn.
fn changed(comparison: &Comparison) -> Option<Section> {
    let outcomes = [
        (Outcome::Worse, "Worse", "reverse"),
        (Outcome::Better, "Better", "both"),
        (Outcome::Different, "Different; neither way is better", "forward"),
    ];
    let tables = outcomes.into_iter().filter_map(|(outcome, caption, class)| {
        let figures: Vec<&ComparedFigure> = comparison.with(outcome).take(DRAWN_MAX).collect();
        (!figures.is_empty()).then(|| drawn(caption, class, &figures))
    });
    Section::new("changed", "Beyond the noise", tables)
}

fn drawn(caption: &str, class: &str, figures: &[&ComparedFigure]) -> Element {
    let share = |figure: &ComparedFigure, shift: f64| shift / figure.a.median.abs();
    let relative = figures.iter().filter(|figure| figure.relative.is_some());
    let most = relative
        .flat_map(|figure| [share(figure, figure.shown_low()), share(figure, figure.high)])
        .map(|bound| show::finite(bound).abs())
        .fold(0.0, f64::max)
        .min(2.0);
    let rows =
        figures.iter().map(|figure| {
            let plot = figure.relative.map(|middle| {
                let ends = (share(figure, figure.shown_low()), middle, share(figure, figure.high));
                let bar = bars::difference(ends, most, class);
                el("svg")
                    .class("interval")
                    .attr("viewBox", format!("0 0 {} {}", bar.width, bar.height))
                    .attr("aria-hidden", "true")
                    .child(bar.art)
            });
            let quantity = Quantity::of_figure(&figure.figure);
            let label = format!("{}: {}", figure.setting, figure.words());
            el("tr")
                .child(el("th").attr("scope", "row").class("w").text(show::sentence(&label)))
                .child(el("td").class("f big").text(figure.shown_difference()))
                .child(el("td").class("f").text(shown(quantity, figure.a.median)))
                .child(el("td").class("f").text(shown(quantity, figure.b.median)))
                .child(el("td").class("plot").maybe(plot))
                .child(el("td").class("beside").text(figure.shown_interval()).text(" ").child(
                    el("small").text(format!("{} interval", show::share(figure.confidence))),
                ))
                .child(el("td").class("f").text(counts(figure)))
        });
    table::headline(caption, &["figure", "difference", "A", "B", "", "interval", "n"], rows)
}

/// Figures of tests whose settings differ, with the settings.
fn unlike(comparison: &Comparison) -> Option<Section> {
    let mut head = HEAD.to_vec();
    head.insert(1, "settings");
    let mut table = Table::new("Same kind of test, other settings", 4, &head);
    for figure in comparison.unlike() {
        let mut row = cells(figure).to_vec();
        row.insert(1, show::clip(&figure.differing_words(), 400));
        table.row(row);
    }
    if table.is_empty() {
        return None;
    }
    let why =
        "The settings alone may explain the difference here. A gate does not judge these figures.";
    Section::new("unlike", "Settings differ", [el("p").text(why), table.into_element()])
}

/// Every like-for-like figure that was compared, folded.
fn figures(comparison: &Comparison) -> Option<Section> {
    let mut table = Table::new("Every figure that both have", 3, &HEAD);
    for figure in comparison.alike() {
        table.row(cells(figure));
    }
    let line = format!("{} compared", count_of(comparison.alike().count() as u64, "figure"));
    (!table.is_empty())
        .then(|| Section::new("figures", "All figures", [table.into_details(&line)]))?
}

/// Columns of a table of figures.
const HEAD: [&str; 9] = ["test", "figure", "result", "A", "B", "difference", "interval", "p", "n"];

fn cells(figure: &ComparedFigure) -> [String; HEAD.len()] {
    let quantity = Quantity::of_figure(&figure.figure);
    [
        figure.setting.clone(),
        figure.words(),
        result(figure.outcome).to_owned(),
        shown(quantity, figure.a.median),
        shown(quantity, figure.b.median),
        figure.shown_difference(),
        figure.shown_interval(),
        figure.adjusted_chance.map_or_else(|| DASH.to_owned(), probability),
        counts(figure),
    ]
}

fn result(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Better => "better",
        Outcome::Worse => "worse",
        Outcome::Different => "different",
        Outcome::Indistinguishable => "within the noise",
        Outcome::TooFew => "too few repeats to tell",
    }
}

fn counts(figure: &ComparedFigure) -> String {
    let of = if figure.counted == Counted::Runs { " runs" } else { "" };
    format!("{}, {}{of}", figure.a.count, figure.b.count)
}

fn probability(chance: f64) -> String {
    if chance < 0.001 { "<0.001".to_owned() } else { show::number((chance * 1e3).round() / 1e3) }
}

fn shown(quantity: Quantity, value: f64) -> String {
    if value.is_finite() { quantity.show(value) } else { DASH.to_owned() }
}

fn one_sided(comparison: &Comparison) -> Option<Section> {
    let table = |letter: &str, other: &str, side: &[OneSided]| {
        let head = ["test", "figures", "why"];
        let mut table = Table::new(&format!("Only in {letter}"), 3, &head);
        for one in side {
            table.row([
                show::clip(&one.setting, 200),
                show::clip(&one.words().join("; "), 400),
                one.why.words(other),
            ]);
        }
        (!table.is_empty()).then(|| table.into_element())
    };
    let tables = [table("A", "B", &comparison.only_a), table("B", "A", &comparison.only_b)];
    Section::new("one-sided", "On one side only", tables.into_iter().flatten())
}

fn hosts(comparison: &Comparison) -> Option<Section> {
    let mut table = Table::new("What differs", 4, &["fact", "host", "A", "B"]);
    let values = |values: &[String]| match values {
        [] => DASH.to_owned(),
        some => show::clip(&some.join(" / "), 200),
    };
    for HostChange { host, fact, a, b } in &comparison.host_changes {
        table.row([show::clip(fact, 80), show::clip(host, 40), values(a), values(b)]);
    }
    let part = match table.is_empty() {
        true => {
            el("p").text("The known facts of the hosts and the path are the same on both sides.")
        }
        false => table.into_element(),
    };
    Section::new("hosts", "Hosts and path", [part])
}

fn reading() -> Option<Section> {
    let lines = [
        "Figures are compared if they come from the same work, with the same settings, on hosts \
         in the same roles. A difference is the median of all pairwise differences (Hodges and \
         Lehmann), as a share of A's median; its interval assumes no distribution.",
        "A difference is beyond the noise when the rank-sum test says so after allowing for the number of figures \
         compared (Benjamini and Hochberg): at most 5% of reported differences are expected to be false. p is that test's \
         adjusted probability.",
        "Tests of the same kind, protocol and direction whose settings differ are listed \
         separately, as the settings alone may explain the difference. They are paired by the \
         fewest settings that differ; where more than one test could be the counterpart, each is \
         listed on its side.",
        "Where a side holds many runs each run counts once, by the median of its repeats. Between single runs each \
         repeat counts, and what differs from one run to the next is not part of the noise.",
    ];
    let parts = lines.into_iter().map(|line| el("p").text(line));
    Section::new("reading", "How to read it", [el("div").class("reading").children(parts)])
}
