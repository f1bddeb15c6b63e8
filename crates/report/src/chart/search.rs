//! How far a search was as time went by: states found and waiting, and what they take.

use results::{Check, CheckProgress};

use super::{Area, FULL_PX, Figure, NARROW_PX, Swatch};
use crate::scale::{Scale, Spread, ticks_from_zero, ticks_within};
use crate::show::{self, AxisUnit, Quantity};
use crate::svg::{self, Drawing};
use crate::table::Table;

/// Samples drawn and listed.
const SAMPLES_MAX: usize = 400;

/// Above this, states are counted in millions or thousands.
const COUNT_UNITS: [(f64, &str); 2] = [(1e6, "million states"), (1e3, "thousand states")];

/// Reads one figure of a sample.
type Read = fn(&CheckProgress) -> f64;

/// The figure of one check; `None` where nothing was noted on the way.
pub(crate) fn figure(id: String, check: &Check) -> Option<Figure> {
    let samples: Vec<CheckProgress> = check.progress.iter().copied().take(SAMPLES_MAX).collect();
    if samples.len() < 3 {
        return None;
    }
    let end = samples.last()?;
    let caption = format!(
        "{} states found in {}, {} of them unexplored at the end; they take {}.",
        show::count(end.states_count as f64),
        show::seconds(end.at_s),
        show::count(end.queued_count as f64),
        show::size(end.memory_bytes as f64),
    );
    Some(Figure {
        id,
        title: check.checked.clone(),
        caption,
        legend: vec![
            (Swatch::Line(0), "states found".to_owned()),
            (Swatch::Line(1), "waiting to be explored".to_owned()),
        ],
        wide: draw(&samples, FULL_PX),
        narrow: draw(&samples, NARROW_PX),
        table: table(&samples),
    })
}

fn draw(samples: &[CheckProgress], width: f64) -> Drawing {
    let end_s = samples.iter().map(|one| show::finite(one.at_s)).fold(0.0, f64::max);
    let mut drawing = Drawing::new(width, 380.0);
    let (left, right) = (46.0, width - 8.0);
    let time = Scale::new(Spread::Linear, (0.0, end_s.max(1e-9)), (left, right));
    let most = samples.iter().map(|one| one.states_count as f64).fold(0.0, f64::max);
    let (divisor, unit) =
        COUNT_UNITS.into_iter().find(|(step, _)| most >= *step).unwrap_or((1.0, "states"));
    let area = Area { left, right, top: 26.0, bottom: 206.0 };
    let states: [(usize, Read); 2] =
        [(0, |one| one.states_count as f64), (1, |one| one.queued_count as f64)];
    panel(&mut drawing, area, &time, samples, (divisor, unit), &states);
    let memory: [(usize, Read); 1] = [(2, |one| one.memory_bytes as f64)];
    let most = samples.iter().map(|one| one.memory_bytes as f64).fold(0.0, f64::max);
    let unit = AxisUnit::of(Quantity::Size, most);
    let name = format!("{}, memory", unit.name);
    let area = Area { left, right, top: 256.0, bottom: 326.0 };
    panel(&mut drawing, area, &time, samples, (unit.to_base(1.0), &name), &memory);
    let wanted = if width > 600.0 { 10 } else { 5 };
    let ticks: Vec<(f64, String)> = ticks_within(0.0, end_s, wanted)
        .into_iter()
        .map(|tick| (tick, show::number(tick)))
        .collect();
    area.x_axis(&mut drawing, &time, &ticks, "seconds since the search began");
    drawing
}

fn panel(
    drawing: &mut Drawing,
    area: Area,
    time: &Scale,
    samples: &[CheckProgress],
    (divisor, name): (f64, &str),
    lines: &[(usize, Read)],
) {
    let values =
        |read: Read| samples.iter().map(move |one| (one.at_s, show::finite(read(one)) / divisor));
    let high = lines.iter().flat_map(|(_, read)| values(*read)).map(|(_, value)| value);
    let wanted = if area.bottom - area.top > 100.0 { 5 } else { 2 };
    let ticks = ticks_from_zero(high.fold(0.0, f64::max), wanted);
    let top = ticks.last().copied().unwrap_or(1.0);
    let scale = Scale::new(Spread::Linear, (0.0, top), (area.bottom, area.top));
    let labels: Vec<(f64, String)> =
        ticks.iter().map(|tick| (*tick, show::number(*tick))).collect();
    area.y_axis(drawing, &scale, &labels, name);
    for (style, read) in lines {
        let points = values(*read).map(|(at_s, value)| (time.at(at_s), scale.at(value)));
        drawing.draw(svg::path(&format!("line s{style}"), &svg::through(points)));
    }
}

fn table(samples: &[CheckProgress]) -> Table {
    let mut table =
        Table::new("The search over time", 0, &["seconds", "states", "waiting", "memory"]);
    for one in samples {
        table.row([
            show::number(one.at_s),
            one.states_count.to_string(),
            one.queued_count.to_string(),
            show::size(one.memory_bytes as f64),
        ]);
    }
    table
}
