//! Bars: the confirming experiment, intervals in a table, cores, lost datagrams.

use results::{Confirmation, CoreUse, Estimate, UdpOutcome};

use super::{FONT_PX, Figure, HALF_PX, NARROW_PX, Swatch};
use crate::digest::chain::busy_share;
use crate::markup::Element;
use crate::show::{self, Quantity};
use crate::svg::{self, Drawing};
use crate::table::Table;

/// Cores drawn of each end, busiest first; the table lists them all.
const CORES_DRAWN_MAX: usize = 12;

/// What a core was busy with: class of its bar, name, and how to read it.
const WORK: [Work; 5] = [
    Work { class: "fill user", name: "user", read: |usage| usage.user },
    Work { class: "fill system", name: "system", read: |usage| usage.system },
    Work { class: "fill softirq", name: "softirq", read: |usage| usage.softirq },
    Work { class: "fill irq", name: "irq", read: |usage| usage.irq },
    Work { class: "fill steal", name: "steal", read: |usage| usage.steal },
];

/// One kind of work a core does.
struct Work {
    class: &'static str,
    name: &'static str,
    read: fn(&CoreUse) -> f64,
}

/// Before, predicted, after.
pub(crate) fn experiment(confirmation: &Confirmation) -> Drawing {
    const ROW: f64 = 46.0;
    let rows = [
        ("before", confirmation.before_bits_per_s, "fill before"),
        ("predicted", confirmation.predicted_bits_per_s, "fill predicted"),
        ("after", confirmation.after_bits_per_s, "fill after"),
    ];
    // Beyond these the scale would be of a bound that nobody expects to reach.
    let bounds = [confirmation.predicted_low_bits_per_s, confirmation.predicted_high_bits_per_s];
    let most = rows.iter().map(|row| show::finite(row.1)).fold(1.0, f64::max);
    let mut drawing = Drawing::new(NARROW_PX, ROW * 3.0 - 8.0);
    for (index, (name, rate, class)) in rows.into_iter().enumerate() {
        let y = ROW * index as f64;
        let width = (show::finite(rate).max(0.0) / most * (NARROW_PX - 2.0)).max(1.0);
        drawing.draw(svg::text("t", (0.0, y + 12.0), name));
        drawing.draw(svg::text("t strong end", (NARROW_PX, y + 12.0), show::rate(rate)));
        drawing.draw(svg::rect(class, (1.0, y + 19.0), (width, 14.0)).attr("rx", 2));
    }
    // The bounds of the prediction stand over the bars of what was predicted and what came.
    for bound in bounds.into_iter().flatten().filter(|bound| *bound <= most) {
        let x = 1.0 + show::finite(bound).max(0.0) / most * (NARROW_PX - 2.0);
        drawing.draw(svg::line("whisker", (x, ROW + 15.0), (x, 2.0 * ROW + 37.0)));
    }
    drawing
}

/// A median with its interval on a scale from 0 to `high`, for a table's row.
pub(crate) fn interval(estimate: &Estimate, high: f64, class: &str) -> Drawing {
    const WIDTH: f64 = 220.0;
    const MIDDLE: f64 = 11.0;
    let high = if show::finite(high) > 0.0 { show::finite(high) } else { 1.0 };
    let at = |value: f64| 5.0 + (show::finite(value) / high).clamp(0.0, 1.0) * (WIDTH - 10.0);
    let mut drawing = Drawing::new(WIDTH, 2.0 * MIDDLE);
    drawing.draw(svg::line("rail", (at(estimate.median), MIDDLE), (WIDTH - 5.0, MIDDLE)));
    drawing.draw(svg::rect(
        &format!("bar {class}"),
        (5.0, MIDDLE - 4.0),
        (at(estimate.median) - 5.0, 8.0),
    ));
    let (low, top) = (at(estimate.low), at(estimate.high));
    drawing.draw(svg::line("whisker", (low, MIDDLE), (top, MIDDLE)));
    for end in [low, top] {
        drawing.draw(svg::line("whisker", (end, MIDDLE - 6.0), (end, MIDDLE + 6.0)));
    }
    drawing
}

/// A difference with its interval around 0, both as far as `most` to either side, for a table's row.
pub(crate) fn difference((low, middle, high): (f64, f64, f64), most: f64, class: &str) -> Drawing {
    const WIDTH: f64 = 220.0;
    const MIDDLE: f64 = 11.0;
    let most = if show::finite(most) > 0.0 { show::finite(most) } else { 1.0 };
    let at = |value: f64| {
        WIDTH / 2.0 + (show::finite(value) / most).clamp(-1.0, 1.0) * (WIDTH / 2.0 - 5.0)
    };
    let mut drawing = Drawing::new(WIDTH, 2.0 * MIDDLE);
    drawing.draw(svg::line("rail", (5.0, MIDDLE), (WIDTH - 5.0, MIDDLE)));
    let (from, to) = (at(0.0).min(at(middle)), at(0.0).max(at(middle)));
    drawing.draw(svg::rect(
        &format!("bar {class}"),
        (from, MIDDLE - 4.0),
        ((to - from).max(1.0), 8.0),
    ));
    drawing.draw(svg::line("whisker", (at(0.0), 0.0), (at(0.0), 2.0 * MIDDLE)));
    let (low, high) = (at(low), at(high));
    drawing.draw(svg::line("whisker", (low, MIDDLE), (high, MIDDLE)));
    for end in [low, high] {
        drawing.draw(svg::line("whisker", (end, MIDDLE - 6.0), (end, MIDDLE + 6.0)));
    }
    drawing
}

/// How busy the cores of both ends were in one test.
pub(crate) fn cores(id: String, title: String, ends: &[(&str, &[CoreUse])]) -> Option<Figure> {
    if ends.iter().all(|(_, cores)| cores.is_empty()) {
        return None;
    }
    let seen = |read: fn(&CoreUse) -> f64| {
        ends.iter().flat_map(|(_, cores)| *cores).any(|usage| show::finite(read(usage)) > 0.0005)
    };
    let legend = WORK
        .iter()
        .filter(|work| seen(work.read))
        .map(|work| (Swatch::Fill(work.class), work.name.to_owned()))
        .collect();
    Some(Figure {
        id,
        title,
        caption: cores_caption(ends),
        legend,
        wide: draw_cores(ends, HALF_PX),
        narrow: draw_cores(ends, NARROW_PX),
        table: cores_table(ends),
    })
}

fn cores_caption(ends: &[(&str, &[CoreUse])]) -> String {
    let busiest = ends.iter().filter_map(|(name, cores)| {
        let most =
            cores.iter().max_by(|one, other| busy_share(one).total_cmp(&busy_share(other)))?;
        Some(format!("{name}: core {} busiest, {}", most.core, show::share(busy_share(most))))
    });
    let mut caption = busiest.collect::<Vec<_>>().join("; ");
    if ends.iter().any(|(_, cores)| cores.len() > CORES_DRAWN_MAX) {
        caption.push_str(&format!("; the {CORES_DRAWN_MAX} busiest of each end are drawn"));
    }
    caption.push('.');
    caption
}

fn draw_cores(ends: &[(&str, &[CoreUse])], width: f64) -> Drawing {
    const ROW: f64 = 24.0;
    const HEAD: f64 = 26.0;
    let drawn: Vec<(&str, Vec<&CoreUse>)> = ends
        .iter()
        .map(|(name, cores)| (*name, busiest(cores)))
        .filter(|(_, cores)| !cores.is_empty())
        .collect();
    let rows_count: usize = drawn.iter().map(|(_, cores)| cores.len()).sum();
    let height = HEAD * drawn.len() as f64 + ROW * rows_count as f64 + 26.0;
    let mut drawing = Drawing::new(width, height);
    let (left, right) = (58.0, width - 44.0);
    let bottom = height - 24.0;
    let marks =
        [0.0, 50.0, 100.0].map(|percent| (percent, left + percent / 100.0 * (right - left)));
    for (percent, x) in marks {
        drawing.draw(svg::text("t mid", (x, bottom + 16.0), format!("{percent}%")));
    }
    let mut y = 0.0;
    for (name, cores) in drawn {
        drawing.draw(svg::text("t strong", (0.0, y + 18.0), svg::fit(name, width, FONT_PX)));
        y += HEAD;
        for (percent, x) in marks {
            let class = if percent == 0.0 { "axis" } else { "grid" };
            drawing.draw(svg::line(class, (x, y), (x, y + ROW * cores.len() as f64 - 4.0)));
        }
        for usage in cores {
            draw_core(&mut drawing, usage, y, (left, right));
            y += ROW;
        }
    }
    drawing
}

fn draw_core(drawing: &mut Drawing, usage: &CoreUse, y: f64, (left, right): (f64, f64)) {
    drawing.draw(svg::text("t end", (left - 8.0, y + 14.0), format!("core {}", usage.core)));
    let mut x = left;
    for Work { class, read, .. } in WORK {
        let share = show::finite(read(usage)).clamp(0.0, 1.0);
        let width = (share * (right - left)).min(right - x);
        if width >= 0.3 {
            drawing.draw(svg::rect(class, (x, y + 2.0), (width, 16.0)));
            x += width;
        }
    }
    drawing.draw(svg::text("t end", (right + 42.0, y + 14.0), show::share(busy_share(usage))));
}

/// The busiest cores, in the order of their numbers.
fn busiest(cores: &[CoreUse]) -> Vec<&CoreUse> {
    let mut chosen: Vec<&CoreUse> = cores.iter().collect();
    chosen.sort_by(|one, other| busy_share(other).total_cmp(&busy_share(one)));
    chosen.truncate(CORES_DRAWN_MAX);
    chosen.sort_by_key(|usage| usage.core);
    chosen
}

fn cores_table(ends: &[(&str, &[CoreUse])]) -> Table {
    let mut table = Table::new("Use of each core", 1, &["host", "core"]);
    for work in WORK {
        table.column(work.name.to_owned());
    }
    table.column("idle".to_owned());
    for (name, cores) in ends {
        for usage in *cores {
            let shares = WORK.iter().map(|work| show::share((work.read)(usage)));
            let row = [(*name).to_owned(), usage.core.to_string()].into_iter().chain(shares);
            table.row(row.chain([show::share(usage.idle)]));
        }
    }
    table
}

/// Where the lost datagrams of one test went.
pub(crate) fn loss(id: String, title: String, udp: &UdpOutcome) -> Figure {
    let places = loss_places(udp);
    let known: u64 = places.iter().filter_map(|(_, _, count)| *count).fold(0, u64::saturating_add);
    let unknown = udp.lost_count.saturating_sub(known);
    let mut caption = format!(
        "{} datagrams were sent, {} received and {} lost ({})",
        show::count(udp.sent_count as f64),
        show::count(udp.received_count as f64),
        show::count(udp.lost_count as f64),
        udp.lost_share().map_or_else(|| show::DASH.to_owned(), units::show_share),
    );
    let worst = places
        .iter()
        .filter_map(|(_, name, count)| Some((name, (*count)?)))
        .max_by_key(|(_, count)| *count);
    if let Some((name, _)) = worst.filter(|(_, count)| *count > 0) {
        let at = if *name == "path" { "on" } else { "at" };
        caption.push_str(&format!(", most of them {at} the {name}"));
    }
    if udp.unaccounted_count() > 0 {
        let count = show::count(udp.unaccounted_count() as f64);
        caption.push_str(&format!("; {count} had not arrived by the end"));
    }
    caption.push_str(&format!(
        "; {} came out of order, {} twice.",
        show::count(udp.reordered_count as f64),
        show::count(udp.duplicate_count as f64)
    ));
    if let Some(jitter_s) = udp.jitter_s {
        caption.push_str(&format!(" Jitter {}.", Quantity::Time.show(jitter_s)));
    }
    let mut table = Table::new(
        "Lost datagrams by place",
        1,
        &["place", "datagrams", "share of those lost or received"],
    );
    let told = |count: Option<u64>| {
        count.map_or_else(|| "not known".to_owned(), |count| count.to_string())
    };
    let part = |count: Option<u64>| {
        count
            .and_then(|count| Some(udp.lost_share()? * share_of(count, udp.lost_count)?))
            .map_or_else(|| show::DASH.to_owned(), units::show_share)
    };
    for (_, name, count) in &places {
        table.row([(*name).to_owned(), told(*count), part(*count)]);
    }
    table.row(["not placed".to_owned(), told(Some(unknown)), part(Some(unknown))]);
    Figure {
        id,
        title,
        caption,
        legend: Vec::new(),
        wide: draw_loss(udp, unknown, HALF_PX),
        narrow: draw_loss(udp, unknown, NARROW_PX),
        table,
    }
}

fn loss_places(udp: &UdpOutcome) -> [(&'static str, &'static str, Option<u64>); 4] {
    [
        ("fill user", "socket buffer", udp.loss.socket_buffer_count),
        ("fill softirq", "softnet backlog", udp.loss.softnet_count),
        ("fill irq", "device queue", udp.loss.device_count),
        ("fill system", "path", udp.loss.path_count),
    ]
}

fn share_of(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

fn draw_loss(udp: &UdpOutcome, unknown: u64, width: f64) -> Drawing {
    const ROW: f64 = 28.0;
    let mut rows: Vec<(&str, &str, Option<u64>)> = loss_places(udp).to_vec();
    if unknown > 0 {
        rows.push(("fill steal", "not placed", Some(unknown)));
    }
    let most = rows.iter().filter_map(|(_, _, count)| *count).max().unwrap_or(0).max(1);
    let (left, right) = (112.0, width - 74.0);
    let mut drawing = Drawing::new(width, ROW * rows.len() as f64 + 4.0);
    drawing.draw(svg::line("axis", (left, 0.0), (left, ROW * rows.len() as f64)));
    for (index, (class, name, count)) in rows.into_iter().enumerate() {
        let y = ROW * index as f64;
        drawing.draw(svg::text("t end", (left - 10.0, y + 18.0), name));
        let length = count.map_or(0.0, |count| count as f64 / most as f64 * (right - left));
        if length > 0.0 {
            drawing.draw(svg::rect(class, (left, y + 5.0), (length.max(1.0), 18.0)));
        }
        let told = count.map_or_else(|| "not known".to_owned(), |count| show::count(count as f64));
        drawing.draw(svg::text("t", (left + length + 8.0, y + 18.0), told));
    }
    drawing
}

/// A share as a short bar: the weight of a line of evidence.
pub(crate) fn weight(share: f64) -> Element {
    let share = show::finite(share).clamp(0.0, 1.0);
    let mut drawing = Drawing::new(64.0, 10.0);
    drawing.draw(svg::rect("gauge", (0.0, 2.0), (64.0, 6.0)).attr("rx", 3));
    if share > 0.0 {
        let fill = svg::rect("gauge-fill", (0.0, 2.0), ((share * 64.0).max(1.0), 6.0));
        drawing.draw(fill.attr("rx", 3));
    }
    let svg = crate::markup::el("svg")
        .class("weight")
        .attr("viewBox", "0 0 64 10")
        .attr("role", "img")
        .attr("aria-label", format!("score {}", show::score(share)));
    svg.child(drawing.art)
}
