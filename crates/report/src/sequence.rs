//! A run as a message sequence chart (ITU-T Z.120 in spirit): a line down for each process, a box for a
//! step of one, an arrow for a meeting of two.

use crate::chart::NARROW_PX;
use crate::markup::{Element, el};
use crate::svg::{Drawing, fit, line, px, rect, text};

/// A run to be drawn.
#[derive(Debug, Clone, Default)]
pub struct Sequence {
    /// What it shows.
    pub title: String,
    /// Steps, the first first.
    pub steps: Vec<SequenceStep>,
    /// From this step on it repeats forever.
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

/// How a run is laid out.
#[derive(Debug, Clone, Copy)]
struct Layout {
    margin: f64,
    lane_width: f64,
    /// Room for each step's words: beside the lines, or below its mark where this is 0.
    label_width: f64,
    step_height: f64,
    head_height: f64,
}

/// A file of its own, with its title.
const ALONE: Layout = Layout {
    margin: 24.0,
    lane_width: 110.0,
    label_width: 520.0,
    step_height: 26.0,
    head_height: 64.0,
};

/// Lanes on a page are this wide at least and at most.
const LANE_WIDTHS: (f64, f64) = (34.0, 110.0);
const FONT: f64 = 12.0;

const STYLE: &str = "svg { --page: #fdfdfc; --ink: #1c1f23; --soft: #555c64; --line: #d3d5d4; --accent: #b8460a; }
@media (prefers-color-scheme: dark) { svg { --page: #14171a; --ink: #e8eaed; --soft: #b3bac2; --line: #343b43; --accent: #ff9e5e; } }
text { font: 12px system-ui, \"Segoe UI\", Roboto, \"Noto Sans\", \"DejaVu Sans\", sans-serif; fill: var(--ink); }
.head { font-size: 15px; font-weight: 600; } .msc-name { font-weight: 600; text-anchor: middle; } .msc-says { fill: var(--soft); paint-order: stroke; stroke: var(--page); stroke-width: 5px; stroke-linejoin: round; }
.page { fill: var(--page); } .msc-life { stroke: var(--line); stroke-width: 2; } .msc-step { fill: var(--page); stroke: var(--ink); }
.msc-arrow { stroke: var(--accent); stroke-width: 2; } .msc-tip { fill: var(--accent); }
.msc-again { stroke: var(--accent); stroke-dasharray: 6 4; } .msc-again-text { fill: var(--accent); text-anchor: end; }";

/// The run as an SVG file: light or dark as its reader prefers, with a title and each step in words.
#[must_use]
pub fn sequence_svg(sequence: &Sequence) -> String {
    let drawing = draw(sequence, ALONE);
    let (width, height) = (drawing.width, drawing.height);
    let head = fit(&sequence.title, width - 2.0 * ALONE.margin, 15.0);
    el("svg")
        .attr("xmlns", "http://www.w3.org/2000/svg")
        .attr("viewBox", format!("0 0 {} {}", px(width), px(height)))
        .attr("width", px(width))
        .attr("height", px(height))
        .attr("role", "img")
        .attr("aria-labelledby", "run-title run-desc")
        .child(el("title").attr("id", "run-title").text(&sequence.title))
        .child(el("desc").attr("id", "run-desc").text(describe(&sequence.steps)))
        .child(el("style").own_source(STYLE))
        .child(rect("page", (0.0, 0.0), (width, height)))
        .child(text("head", (ALONE.margin, ALONE.margin + 4.0), head))
        .child(drawing.art)
        .into_markup()
}

/// The run for a page so wide: its words beside the lines, or below each mark on a narrow one.
pub(crate) fn on_page(sequence: &Sequence, width: f64) -> Drawing {
    let lanes_count = lanes(&sequence.steps).len().max(1) as f64;
    let is_narrow = width < 600.0;
    let label_width = if is_narrow { 0.0 } else { (width - 8.0) * 0.45 };
    let room = (width - 8.0 - label_width) / lanes_count;
    let layout = Layout {
        margin: 4.0,
        lane_width: room.clamp(LANE_WIDTHS.0, LANE_WIDTHS.1),
        label_width,
        step_height: if is_narrow { 38.0 } else { 24.0 },
        head_height: 22.0,
    };
    // What is left of the page is for words.
    let used = 8.0 + lanes_count * layout.lane_width;
    let label_width = if is_narrow { 0.0 } else { (width - used).max(label_width) };
    let mut drawing = draw(sequence, Layout { label_width, ..layout });
    drawing.width = drawing.width.max(width);
    drawing
}

fn draw(sequence: &Sequence, layout: Layout) -> Drawing {
    let Sequence { steps, repeats_from, .. } = sequence;
    let (lanes, shown) = (lanes(steps), shown(steps.len()));
    let edge = layout.margin + lanes.len() as f64 * layout.lane_width;
    let width = edge + layout.label_width + layout.margin;
    let below = if layout.label_width == 0.0 { 0.5 } else { 0.0 };
    let rows = shown.len() as f64 + 1.0 + below;
    let mut drawing = Drawing::new(width, layout.head_height + rows * layout.step_height);
    for (lane, name) in lanes.iter().enumerate() {
        let (x, foot) = (layout.centre(lane), drawing.height);
        let name = fit(name, layout.lane_width - 8.0, FONT);
        drawing.draw(text("msc-name", (x, layout.head_height - 8.0), name));
        drawing.draw(line("msc-life", (x, layout.head_height), (x, foot)));
    }
    for (row, &step) in shown.iter().enumerate() {
        let y = layout.head_height + (row as f64 + 0.7) * layout.step_height;
        let at = if below > 0.0 { (layout.margin, y + 20.0) } else { (edge, y + 4.0) };
        let room = if below > 0.0 { edge.max(NARROW_PX) } else { layout.label_width };
        let Some(step) = step else {
            let words = format!("… {} steps …", steps.len() + 1 - shown.len());
            drawing.draw(text("msc-says", at, words));
            continue;
        };
        if *repeats_from == Some(step) {
            let above = y - layout.step_height * (0.5 - below / 4.0);
            let end = edge.max(NARROW_PX * 2.0 * below) + layout.label_width;
            drawing.draw(line("msc-again", (layout.margin, above), (end, above)));
            // Where words stand below their marks there is no room; the caption tells.
            if below == 0.0 {
                let words = "the cycle begins here";
                drawing.draw(text("msc-again-text", (end, above - 4.0), words));
            }
        }
        drawing.draw(drawn(&steps[step], &lanes, layout, y));
        let words = fit(&format!("{}  {}", step + 1, steps[step].label), room, FONT);
        drawing.draw(text("msc-says", at, words));
    }
    drawing
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

impl Layout {
    fn centre(self, lane: usize) -> f64 {
        self.margin + (lane as f64 + 0.5) * self.lane_width
    }
}

fn drawn(step: &SequenceStep, lanes: &[&str], layout: Layout, y: f64) -> Element {
    let place =
        |name: &String| lanes.iter().position(|lane| lane == name).map(|lane| layout.centre(lane));
    let mut group = el("g").child(el("title").text(&step.label));
    match step.movers.as_slice() {
        [from, to] => {
            let (Some(from), Some(to)) = (place(from), place(to)) else { return group };
            let back = if to > from { -8.0 } else { 8.0 };
            let tip = format!("M{} {}l{} -4v8z", px(to), px(y), px(back));
            group = group
                .child(line("msc-arrow", (from, y), (to + back, y)))
                .child(el("path").class("msc-tip").attr("d", tip));
        }
        movers => {
            for x in movers.iter().filter_map(place) {
                group = group.child(rect("msc-step", (x - 8.0, y - 7.0), (16.0, 14.0)));
            }
        }
    }
    group
}

/// The run in words.
pub(crate) fn describe(steps: &[SequenceStep]) -> String {
    let shown = shown(steps.len());
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
        assert_eq!(svg.matches("class=\"msc-step\"").count(), 2);
        assert_eq!(svg.matches("class=\"msc-arrow\"").count(), 2);
        assert_eq!(svg.matches("class=\"msc-life\"").count(), 2);
        assert_eq!(svg.matches("the cycle begins here").count(), 1);
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
