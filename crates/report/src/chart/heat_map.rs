//! The heat map of a placement sweep, and what each core gave, as bars.

use std::collections::BTreeMap;

use results::Estimate;

use super::{Figure, HALF_PX, NARROW_PX, Swatch};
use crate::digest::placement::{Place, Placement};
use crate::show::{self, AxisUnit, Quantity};
use crate::svg::{self, Drawing};
use crate::table::Table;

/// Cores drawn on either axis; the table lists more.
const AXIS_MAX: usize = 64;
/// Cores drawn as bars of each end.
const BARS_MAX: usize = 128;
/// Shades from cold to hot; the style sheet has as many.
const SHADES: [&str; 5] = ["heat h0", "heat h1", "heat h2", "heat h3", "heat h4"];

/// What the drawings of one sweep share.
struct Frame<'a> {
    placement: &'a Placement,
    near: Vec<u32>,
    far: Vec<u32>,
    low: f64,
    high: f64,
    unit: AxisUnit,
}

impl<'a> Frame<'a> {
    fn of(placement: &'a Placement) -> Self {
        let axis = |core: fn(&Place) -> Option<u32>| {
            let mut cores: Vec<u32> = placement.places.iter().filter_map(core).collect();
            cores.sort_unstable();
            cores.dedup();
            cores
        };
        let medians = || placement.places.iter().map(|place| show::finite(place.estimate.median));
        let (low, high) = (medians().fold(f64::INFINITY, f64::min), medians().fold(0.0, f64::max));
        let unit = AxisUnit::of(placement.quantity, high);
        Self {
            placement,
            near: axis(|place| place.near),
            far: axis(|place| place.far),
            low,
            high,
            unit,
        }
    }

    /// 0 is the worst, 1 the best of those measured.
    fn warmth(&self, value: f64) -> f64 {
        let span = self.high - self.low;
        let share = if span > 0.0 { (show::finite(value) - self.low) / span } else { 1.0 };
        if self.placement.more_is_better() { share } else { 1.0 - share }
    }

    fn best(&self) -> Option<&Place> {
        let placement = self.placement;
        placement.places.iter().reduce(|best, one| {
            match placement.is_better(one.estimate.median, best.estimate.median) {
                true => one,
                false => best,
            }
        })
    }
}

/// The map of both cores; `None` when only one end was pinned, or nothing can be compared.
pub(crate) fn map(id: String, placement: &Placement) -> Option<Figure> {
    let frame = Frame::of(placement);
    let fits = frame.near.len() <= AXIS_MAX && frame.far.len() <= AXIS_MAX;
    (placement.is_map() && fits).then(|| Figure {
        id,
        title: format!("{} by both cores", what(placement)),
        caption: map_caption(&frame),
        legend: vec![
            (Swatch::Fill(SHADES[0]), "worst".to_owned()),
            (Swatch::Fill(SHADES[2]), "between".to_owned()),
            (Swatch::Fill(SHADES[4]), "best".to_owned()),
            (Swatch::Fill("heat-best"), "the best median".to_owned()),
        ],
        wide: draw_map(&frame, HALF_PX),
        narrow: draw_map(&frame, NARROW_PX),
        table: table(placement),
    })
}

fn map_caption(frame: &Frame<'_>) -> String {
    let show = |value| frame.placement.quantity.show(value);
    let best = frame.best().map_or_else(String::new, |best| {
        let (near, far) = (core_name(best.near), core_name(best.far));
        format!("Best: near {near}, far {far}, {}. ", show(best.estimate.median))
    });
    let unpinned = frame.placement.unpinned.map_or_else(String::new, |unpinned| {
        format!(" Not pinned: {} (n {}).", show(unpinned.median), unpinned.count)
    });
    let pairs = frame.placement.places.len();
    let unit =
        if frame.unit.name.is_empty() { String::new() } else { format!(", {}", frame.unit.name) };
    format!("{best}Medians of {pairs} placements{unit}.{unpinned}")
}

fn draw_map(frame: &Frame<'_>, width: f64) -> Drawing {
    const LEFT: f64 = 64.0;
    const TOP: f64 = 44.0;
    let columns = frame.far.len().max(1) as f64;
    let step = ((width - LEFT - 4.0) / columns).min(90.0);
    let row = step.clamp(8.0, 30.0);
    let mut drawing = Drawing::new(width, TOP + row * frame.near.len() as f64 + 8.0);
    drawing.draw(svg::text("t unit", (LEFT, 12.0), "far core"));
    drawing.draw(svg::text("t unit", (0.0, TOP - 8.0), "near core"));
    let every = |room: f64, step: f64| (room / step).ceil().max(1.0) as usize;
    for (index, core) in frame.far.iter().enumerate().step_by(every(26.0, step)) {
        let x = LEFT + step * (index as f64 + 0.5);
        drawing.draw(svg::text("t mid", (x, TOP - 8.0), core));
    }
    for (index, core) in frame.near.iter().enumerate().step_by(every(14.0, row)) {
        let y = TOP + row * (index as f64 + 0.5) + 4.0;
        drawing.draw(svg::text("t end", (LEFT - 8.0, y), core));
    }
    let best = frame.best().map(|best| (best.near, best.far));
    for place in &frame.placement.places {
        let (Some(near), Some(far)) = (place.near, place.far) else { continue };
        let at = |cores: &[u32], core: u32| cores.binary_search(&core).unwrap_or(0) as f64;
        let corner = (LEFT + step * at(&frame.far, far), TOP + row * at(&frame.near, near));
        draw_cell(&mut drawing, frame, place, corner, (step, row));
        if best == Some((place.near, place.far)) {
            let (x, y) = corner;
            drawing.draw(svg::rect("heat-best", (x + 1.5, y + 1.5), (step - 3.0, row - 3.0)));
        }
    }
    drawing
}

fn draw_cell(
    drawing: &mut Drawing,
    frame: &Frame<'_>,
    place: &Place,
    (x, y): (f64, f64),
    (width, height): (f64, f64),
) {
    let median = place.estimate.median;
    let shade = (frame.warmth(median) * 4.99).clamp(0.0, 4.0) as usize;
    drawing.draw(svg::rect(SHADES[shade], (x, y), (width - 1.0, height - 1.0)));
    let text = frame.unit.tick(median);
    if svg::text_width(&text, super::FONT_PX) < width - 4.0 && height > 14.0 {
        let middle = (x + width / 2.0, y + height / 2.0 + 4.0);
        drawing.draw(svg::text("t mid strong", middle, text));
    }
}

/// What each core gave, of each end that was pinned.
pub(crate) fn bars(id: String, placement: &Placement, names: [&str; 2]) -> Option<Figure> {
    let near = placement.best_by_core(|place| place.near);
    let far = placement.best_by_core(|place| place.far);
    let ends: Vec<(&str, BTreeMap<u32, Estimate>)> =
        names.into_iter().zip([near, far]).filter(|(_, cores)| cores.len() > 1).collect();
    if ends.is_empty() {
        return None;
    }
    let mut legend = vec![(Swatch::Fill("bar forward"), "median, with its interval".to_owned())];
    if placement.unpinned.is_some() {
        legend.push((Swatch::Stroke("mark-line"), "not pinned".to_owned()));
    }
    let both = placement.is_map();
    Some(Figure {
        id,
        title: format!("{} by core", what(placement)),
        caption: if both {
            "Each core, with the best core of the other end.".to_owned()
        } else {
            format!("Each core; {} placements.", placement.places.len())
        },
        legend,
        wide: draw_bars(placement, &ends, HALF_PX),
        narrow: draw_bars(placement, &ends, NARROW_PX),
        // The map beside it has the figures.
        table: if both { Table::new("", 0, &[]) } else { table(placement) },
    })
}

fn draw_bars(
    placement: &Placement,
    ends: &[(&str, BTreeMap<u32, Estimate>)],
    width: f64,
) -> Drawing {
    const HEAD: f64 = 26.0;
    let rows_count: usize = ends.iter().map(|(_, cores)| cores.len().min(BARS_MAX)).sum();
    let row = if rows_count > 32 { 12.0 } else { 22.0 };
    let height = HEAD * ends.len() as f64 + row * rows_count as f64 + 8.0;
    let mut drawing = Drawing::new(width, height);
    let highs = ends.iter().flat_map(|(_, cores)| cores.values()).chain(&placement.unpinned);
    let most = highs.map(|estimate| show::finite(estimate.high)).fold(0.0, f64::max);
    let most = if most > 0.0 { most } else { 1.0 };
    let (left, right) = (58.0, width - 92.0);
    let at = |value: f64| left + (show::finite(value) / most).clamp(0.0, 1.0) * (right - left);
    let mut y = 0.0;
    for (name, cores) in ends {
        drawing.draw(svg::text("t strong", (0.0, y + 18.0), svg::fit(name, width, super::FONT_PX)));
        y += HEAD;
        let bottom = y + row * cores.len().min(BARS_MAX) as f64 - 4.0;
        drawing.draw(svg::line("axis", (left, y), (left, bottom)));
        if let Some(unpinned) = &placement.unpinned {
            let x = at(unpinned.median);
            drawing.draw(svg::line("mark-line", (x, y), (x, bottom)));
        }
        for (core, estimate) in cores.iter().take(BARS_MAX) {
            let middle = y + row / 2.0 - 1.0;
            drawing.draw(svg::text("t end", (left - 8.0, middle + 4.0), format!("core {core}")));
            let size = (at(estimate.median) - left, (row - 6.0).max(4.0));
            drawing.draw(svg::rect("bar forward", (left, middle - size.1 / 2.0), size));
            let (low, high) = (at(estimate.low), at(estimate.high));
            drawing.draw(svg::line("whisker", (low, middle), (high, middle)));
            let figure = placement.quantity.show(estimate.median);
            drawing.draw(svg::text("t end", (width - 2.0, middle + 4.0), figure));
            y += row;
        }
    }
    drawing
}

fn what(placement: &Placement) -> &'static str {
    if placement.quantity == Quantity::Rate { "Goodput" } else { "Round trip" }
}

fn core_name(core: Option<u32>) -> String {
    core.map_or_else(|| "not pinned".to_owned(), |core| format!("core {core}"))
}

fn table(placement: &Placement) -> Table {
    let head = ["near", "far", "median", "interval", "kind of interval", "n"];
    let mut table = Table::new(&format!("{} by core", what(placement)), 2, &head);
    let mut add = |near: Option<u32>, far: Option<u32>, estimate: &Estimate| {
        table.row([
            core_name(near),
            core_name(far),
            placement.quantity.show(estimate.median),
            show::interval(estimate, placement.quantity),
            show::interval_kind(estimate),
            estimate.count.to_string(),
        ]);
    };
    placement.unpinned.iter().for_each(|estimate| add(None, None, estimate));
    for place in &placement.places {
        add(place.near, place.far, &place.estimate);
    }
    table
}
