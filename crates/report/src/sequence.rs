//! A run as a message sequence chart (ITU-T Z.120 in spirit): a line down for each process, a box for a
//! step of one, an arrow for a meeting of two.

use crate::markup::{Element, el};
use crate::svg::{fit, line, px, rect, text};

/// A run to be drawn.
#[derive(Debug, Clone, Default)]
pub struct Sequence {
    /// What it shows.
    pub title: String,
    /// Steps, the first first.
    pub steps: Vec<SequenceStep>,
    /// From this step on it repeats for ever.
    pub repeats_from: Option<usize>,
}

/// A step of a run.
#[derive(Debug, Clone, Default)]
pub struct SequenceStep {
    /// Who takes it: one, or a sender and its receiver; nobody where all stand still.
    pub movers: Vec<String>,
    /// What happens.
    pub label: String,
}

/// Steps and processes drawn; of a longer run the middle is left out.
const STEPS_MAX: usize = 400;
const LANES_MAX: usize = 24;

const MARGIN: f64 = 24.0;
const LANE_WIDTH: f64 = 110.0;
const LABEL_WIDTH: f64 = 520.0;
const STEP_HEIGHT: f64 = 26.0;
const HEAD_HEIGHT: f64 = 64.0;
const FONT: f64 = 12.0;

const STYLE: &str = "svg { --page: #fdfdfc; --ink: #1c1f23; --soft: #555c64; --line: #d3d5d4; --accent: #b8460a; }
@media (prefers-color-scheme: dark) { svg { --page: #14171a; --ink: #e8eaed; --soft: #b3bac2; --line: #343b43; --accent: #ff9e5e; } }
text { font: 12px system-ui, \"Segoe UI\", Roboto, \"Noto Sans\", \"DejaVu Sans\", sans-serif; fill: var(--ink); }
.head { font-size: 15px; font-weight: 600; } .name { font-weight: 600; text-anchor: middle; } .soft { fill: var(--soft); }
.page { fill: var(--page); } .life { stroke: var(--line); stroke-width: 2; } .step { fill: var(--page); stroke: var(--ink); }
.arrow { stroke: var(--accent); stroke-width: 2; } .tip { fill: var(--accent); }
.again { stroke: var(--accent); stroke-dasharray: 6 4; } .again-text { fill: var(--accent); }";

/// The run as an SVG file: light or dark as its reader prefers, with a title and each step in words.
#[must_use]
pub fn sequence_svg(sequence: &Sequence) -> String {
    let Sequence { title, steps, repeats_from } = sequence;
    let lanes = lanes(steps);
    let shown = shown(steps.len());
    let width = 2.0 * MARGIN + lanes.len() as f64 * LANE_WIDTH + LABEL_WIDTH;
    let height = HEAD_HEIGHT + (shown.len() as f64 + 2.0) * STEP_HEIGHT + MARGIN;
    let mut art =
        el("g").child(text("head", (MARGIN, MARGIN + 4.0), fit(title, width - 2.0 * MARGIN, 15.0)));
    for (lane, name) in lanes.iter().enumerate() {
        let x = centre(lane);
        art = art
            .child(text("name", (x, HEAD_HEIGHT - 8.0), fit(name, LANE_WIDTH - 8.0, FONT)))
            .child(line("life", (x, HEAD_HEIGHT), (x, height - MARGIN)));
    }
    let edge = MARGIN + lanes.len() as f64 * LANE_WIDTH;
    for (row, &step) in shown.iter().enumerate() {
        let y = HEAD_HEIGHT + (row as f64 + 1.0) * STEP_HEIGHT;
        let Some(step) = step else {
            art = art.child(text(
                "soft",
                (edge, y + 4.0),
                format!("… {} steps …", steps.len() + 1 - shown.len()),
            ));
            continue;
        };
        if *repeats_from == Some(step) {
            let above = y - STEP_HEIGHT / 2.0;
            art =
                art.child(line("again", (MARGIN, above), (edge + LABEL_WIDTH, above))).child(text(
                    "again-text",
                    (edge + LABEL_WIDTH - 180.0, above - 4.0),
                    "from here on it repeats",
                ));
        }
        art = art.child(drawn(&steps[step], &lanes, y)).child(text(
            "soft",
            (edge, y + 4.0),
            fit(&format!("{}  {}", step + 1, steps[step].label), LABEL_WIDTH, FONT),
        ));
    }
    el("svg")
        .attr("xmlns", "http://www.w3.org/2000/svg")
        .attr("viewBox", format!("0 0 {} {}", px(width), px(height)))
        .attr("width", px(width))
        .attr("height", px(height))
        .attr("role", "img")
        .attr("aria-labelledby", "run-title run-desc")
        .child(el("title").attr("id", "run-title").text(title))
        .child(el("desc").attr("id", "run-desc").text(describe(steps, &shown)))
        .child(el("style").own_source(STYLE))
        .child(rect("page", (0.0, 0.0), (width, height)))
        .child(art)
        .into_markup()
}

/// Who moves, in the order of their first step.
fn lanes(steps: &[SequenceStep]) -> Vec<&str> {
    let mut lanes: Vec<&str> = Vec::new();
    for name in steps.iter().flat_map(|step| &step.movers) {
        if lanes.len() < LANES_MAX && !lanes.contains(&name.as_str()) {
            lanes.push(name);
        }
    }
    lanes
}

/// Numbers of the steps to draw; `None` stands for those left out.
fn shown(count: usize) -> Vec<Option<usize>> {
    if count <= STEPS_MAX {
        return (0..count).map(Some).collect();
    }
    let half = STEPS_MAX / 2;
    let (first, last) = ((0..half).map(Some), (count - half..count).map(Some));
    first.chain([None]).chain(last).collect()
}

fn centre(lane: usize) -> f64 {
    MARGIN + (lane as f64 + 0.5) * LANE_WIDTH
}

fn drawn(step: &SequenceStep, lanes: &[&str], y: f64) -> Element {
    let place = |name: &String| lanes.iter().position(|lane| lane == name).map(centre);
    let mut group = el("g").child(el("title").text(&step.label));
    match step.movers.as_slice() {
        [from, to] => {
            let (Some(from), Some(to)) = (place(from), place(to)) else { return group };
            let back = if to > from { -8.0 } else { 8.0 };
            let tip = format!("M{} {}l{} -4v8z", px(to), px(y), px(back));
            group = group
                .child(line("arrow", (from, y), (to + back, y)))
                .child(el("path").class("tip").attr("d", tip));
        }
        movers => {
            for x in movers.iter().filter_map(place) {
                group = group.child(rect("step", (x - 8.0, y - 7.0), (16.0, 14.0)));
            }
        }
    }
    group
}

/// The run in words.
fn describe(steps: &[SequenceStep], shown: &[Option<usize>]) -> String {
    let words: Vec<&str> =
        shown.iter().map(|step| step.map_or("…", |step| steps[step].label.as_str())).collect();
    words.join(". ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(count: usize) -> Sequence {
        let step = |number: usize| SequenceStep {
            movers: match number % 3 {
                0 => vec!["A".to_owned()],
                1 => vec!["A".to_owned(), "B<script>".to_owned()],
                _ => Vec::new(),
            },
            label: format!("step & {number}"),
        };
        Sequence {
            title: "a \"run\"".to_owned(),
            steps: (0..count).map(step).collect(),
            repeats_from: Some(1),
        }
    }

    #[test]
    fn a_run_has_a_box_or_an_arrow_a_step() {
        let svg = sequence_svg(&run(6));
        assert_eq!(svg.matches("class=\"step\"").count(), 2);
        assert_eq!(svg.matches("class=\"arrow\"").count(), 2);
        assert_eq!(svg.matches("class=\"life\"").count(), 2);
        assert_eq!(svg.matches("from here on it repeats").count(), 1);
        assert!(!svg.contains("<script") && svg.contains("step &amp; 5"), "{svg}");
    }

    #[test]
    fn a_long_run_stays_a_drawing() {
        let svg = sequence_svg(&run(100_000));
        assert!(svg.len() < 200_000, "{}", svg.len());
        assert!(svg.contains("… 99600 steps …"));
        assert!(sequence_svg(&Sequence::default()).ends_with("</svg>"));
    }
}
