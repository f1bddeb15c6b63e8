//! The heat map of a sweep, as text.

use std::fmt::Write;

use results::{Estimate, PlacementFindings, Results};
use sweep::placement::{EXPERIMENT, FAR_CORE, FAR_INTERRUPT_CORE, NEAR_CORE, NEAR_INTERRUPT_CORE};

/// Most columns of a map.
const FAR_MAX: usize = 10;
/// Most rows of a map.
const NEAR_MAX: usize = 32;
/// Most lines of the list that replaces a map that does not fit.
const LIST_MAX: usize = 12;
/// Shades from low to high throughput.
const SHADES: [char; 5] = [' ', '░', '▒', '▓', '█'];

/// One measured pair.
struct Cell<'a> {
    near: u32,
    far: u32,
    estimate: &'a Estimate,
}

/// Medians of all measured pairs of cores: a map, or a list of the best if there are too many.
pub(super) fn map(
    out: &mut String,
    results: &Results,
    found: &PlacementFindings,
) -> std::fmt::Result {
    let mut cells = cells(results, found);
    let (near, far) = (axis(&cells, |cell| cell.near), axis(&cells, |cell| cell.far));
    let unit = Unit::of(found, &cells);
    writeln!(out, "\n{} by core, median, {}", what(found), unit.name)?;
    if near.len() <= NEAR_MAX && far.len() <= FAR_MAX && cells.len() * 2 >= near.len() * far.len() {
        let head: String = far.iter().map(|core| format!("{core:>9}")).collect();
        let mut table = format!("         near core \\ far core {head}\n");
        for row in &near {
            write!(table, "         {row:>9}            ")?;
            for column in &far {
                let cell = cells.iter().find(|cell| cell.near == *row && cell.far == *column);
                match cell {
                    Some(cell) => write!(table, " {}", unit.cell(cell, found))?,
                    None => write!(table, "         ")?,
                }
            }
            writeln!(table)?;
        }
        return write!(out, "{}", crate::tables::fit(&table));
    }
    cells.sort_by(|a, b| match found.more_is_better {
        true => b.estimate.median.total_cmp(&a.estimate.median),
        false => a.estimate.median.total_cmp(&b.estimate.median),
    });
    writeln!(out, "         near core  far core")?;
    for cell in cells.iter().take(LIST_MAX) {
        let Cell { near, far, .. } = cell;
        writeln!(out, "         {near:>9}  {far:>8}  {}", unit.cell(cell, found))?;
    }
    if cells.len() > LIST_MAX {
        writeln!(out, "         {} more in the results file", cells.len() - LIST_MAX)?;
    }
    Ok(())
}

fn cells<'a>(results: &'a Results, found: &PlacementFindings) -> Vec<Cell<'a>> {
    let of_sweep = results
        .summaries
        .iter()
        .filter(|summary| summary.experiment == EXPERIMENT && summary.figure == found.figure);
    let core = |value: &f64| u32::try_from(units::saturating_u64(*value)).ok();
    of_sweep
        .filter(|summary| {
            // If interrupts were moved, the map shows their best position.
            let at = |name: &str| summary.varied.get(name).and_then(core);
            at(NEAR_INTERRUPT_CORE) == found.best.near_interrupt_core
                && at(FAR_INTERRUPT_CORE) == found.best.far_interrupt_core
        })
        .filter_map(|summary| {
            Some(Cell {
                near: core(summary.varied.get(NEAR_CORE)?)?,
                far: core(summary.varied.get(FAR_CORE)?)?,
                estimate: &summary.estimate,
            })
        })
        .collect()
}

fn axis(cells: &[Cell<'_>], core: impl Fn(&Cell<'_>) -> u32) -> Vec<u32> {
    let mut cores: Vec<u32> = cells.iter().map(core).collect();
    cores.sort_unstable();
    cores.dedup();
    cores
}

fn what(found: &PlacementFindings) -> &'static str {
    if found.more_is_better { "Goodput" } else { "Round trip" }
}

struct Unit {
    name: &'static str,
    scale: f64,
    low: f64,
    high: f64,
}

impl Unit {
    fn of(found: &PlacementFindings, cells: &[Cell<'_>]) -> Self {
        let medians = || cells.iter().map(|cell| cell.estimate.median);
        let (low, high) = (medians().fold(f64::INFINITY, f64::min), medians().fold(0.0, f64::max));
        let (name, scale) = match found.more_is_better {
            true if high >= 1e9 => ("Gbit/s", 1e9),
            true => ("Mbit/s", 1e6),
            false => ("us", 1e-6),
        };
        Self { name, scale, low, high }
    }

    /// A cell of eight columns: shade, figure, and a mark for the best.
    fn cell(&self, cell: &Cell<'_>, found: &PlacementFindings) -> String {
        let median = cell.estimate.median;
        let warmth = (median - self.low) / (self.high - self.low).max(f64::MIN_POSITIVE);
        let warmth = if found.more_is_better { warmth } else { 1.0 - warmth };
        let step = units::saturating_u64((warmth * 4.99).max(0.0)) as usize;
        let shade = SHADES[step.min(SHADES.len() - 1)];
        let best = &found.best;
        let mark = if (cell.near, cell.far) == (best.near_core, best.far_core) { '*' } else { ' ' };
        format!("{shade}{:>6}{mark}", three_digits(median / self.scale))
    }
}

fn three_digits(value: f64) -> String {
    match value {
        value if value >= 99.95 => format!("{value:.0}"),
        value if value >= 9.995 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}
