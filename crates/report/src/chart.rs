//! Charts: drawn twice, for a screen and for a phone, and always with their figures as a table.

pub(crate) mod bars;
pub(crate) mod chain;
pub(crate) mod gateways;
pub(crate) mod heat_map;
pub(crate) mod percentile;
pub(crate) mod search;
pub(crate) mod sweep;
pub(crate) mod time;

use crate::markup::{Element, el};
use crate::scale::Scale;
use crate::svg::{self, Drawing};
use crate::table::Table;

/// Widths a chart is drawn at, pixels: over the whole page, in half of it, on a phone.
pub(crate) const FULL_PX: f64 = 1040.0;
/// In one of two columns.
pub(crate) const HALF_PX: f64 = 500.0;
/// On a phone.
pub(crate) const NARROW_PX: f64 = 340.0;

/// Font size of chart texts, pixels; the style sheet says the same.
pub(crate) const FONT_PX: f64 = 12.0;

/// A chart with everything around it.
#[derive(Debug)]
pub(crate) struct Figure {
    /// Unique on the page.
    pub(crate) id: String,
    pub(crate) title: String,
    /// What it shows, in one or two sentences: also its description to a screen reader.
    pub(crate) caption: String,
    pub(crate) legend: Vec<(Swatch, String)>,
    pub(crate) wide: Drawing,
    pub(crate) narrow: Drawing,
    pub(crate) table: Table,
}

/// What a legend shows before its word.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Swatch {
    /// A line of this style.
    Line(usize),
    /// A line with its symbol.
    Marked(usize),
    /// A filled area of this class.
    Fill(&'static str),
    /// A line of this class.
    Stroke(&'static str),
    /// A small circle of this class.
    Ring(&'static str),
}

impl Figure {
    pub(crate) fn into_element(self) -> Element {
        let id = self.id;
        let legend = (!self.legend.is_empty()).then(|| {
            el("ul").class("legend").children(self.legend.into_iter().map(|(swatch, label)| {
                el("li").child(swatch.into_element()).child(el("span").text(label))
            }))
        });
        let details =
            (!self.table.is_empty()).then(|| self.table.into_details("Figures as a table"));
        el("figure")
            .attr("id", &id)
            .child(
                el("figcaption")
                    .child(el("h3").attr("id", format!("{id}-title")).text(self.title))
                    .child(el("p").attr("id", format!("{id}-desc")).text(self.caption)),
            )
            .maybe(legend)
            .child(self.wide.into_svg(&id, "chart wide"))
            .child(self.narrow.into_svg(&id, "chart narrow"))
            .maybe(details)
    }
}

impl Swatch {
    fn into_element(self) -> Element {
        let svg =
            el("svg").class("swatch").attr("viewBox", "0 0 28 12").attr("aria-hidden", "true");
        match self {
            Self::Line(style) => {
                svg.child(svg::line(&format!("line s{}", style % 8), (1.0, 6.0), (27.0, 6.0)))
            }
            Self::Marked(style) => svg
                .child(svg::line(&format!("line s{}", style % 8), (1.0, 6.0), (27.0, 6.0)))
                .child(svg::symbol(style, (14.0, 6.0), 4.0)),
            Self::Fill(class) => svg.child(svg::rect(class, (6.0, 0.5), (16.0, 11.0))),
            Self::Ring(class) => svg.child(svg::circle(class, (14.0, 6.0), 3.5)),
            Self::Stroke(class) => svg.child(svg::line(class, (1.0, 6.0), (27.0, 6.0))),
        }
    }
}

/// The rectangle that data is drawn in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Area {
    pub(crate) left: f64,
    pub(crate) right: f64,
    pub(crate) top: f64,
    pub(crate) bottom: f64,
}

impl Area {
    /// Draws the vertical axis: a hairline and a number at each tick, the unit above them.
    pub(crate) fn y_axis(
        &self,
        drawing: &mut Drawing,
        scale: &Scale,
        ticks: &[(f64, String)],
        title: &str,
    ) {
        for (value, label) in ticks {
            let y = scale.at(*value);
            let class = if *value == scale.low() { "axis" } else { "grid" };
            drawing.draw(svg::line(class, (self.left, y), (self.right, y)));
            drawing.draw(svg::text("t end", (self.left - 7.0, y + 4.0), label));
        }
        drawing.draw(svg::text("t unit", (0.0, self.top - 12.0), title));
    }

    /// Draws the horizontal axis' numbers, and its title below, at the right.
    pub(crate) fn x_axis(
        &self,
        drawing: &mut Drawing,
        scale: &Scale,
        ticks: &[(f64, String)],
        title: &str,
    ) {
        for (value, label) in ticks {
            let x = scale.at(*value);
            drawing.draw(svg::line("tick", (x, self.bottom), (x, self.bottom + 4.0)));
            drawing.draw(svg::text("t mid", (x, self.bottom + 18.0), label));
        }
        drawing.draw(svg::text("t unit end", (self.right, self.bottom + 36.0), title));
    }
}
