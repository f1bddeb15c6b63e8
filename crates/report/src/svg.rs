//! SVG in few words: coordinates rounded, texts measured, drawings in two widths.

use std::fmt::Display;

use crate::markup::{Element, el};
use crate::show;

/// A drawing: what is only to be seen, and marks that a keyboard can reach.
#[derive(Debug)]
pub(crate) struct Drawing {
    pub(crate) width: f64,
    pub(crate) height: f64,
    /// Axes, lines, bars: one image to a screen reader.
    pub(crate) art: Element,
    /// Points that can be reached one by one; may be empty.
    pub(crate) marks: Element,
}

impl Drawing {
    /// An empty drawing.
    pub(crate) fn new(width: f64, height: f64) -> Self {
        Self { width, height, art: el("g"), marks: el("g") }
    }

    /// Adds to the image.
    pub(crate) fn draw(&mut self, element: Element) {
        self.art = std::mem::replace(&mut self.art, el("g")).child(element);
    }

    /// Adds a mark that can be reached, with what it says.
    pub(crate) fn mark(&mut self, says: &str, shapes: impl IntoIterator<Item = Element>) {
        let mark = el("g")
            .class("mark")
            .attr("tabindex", 0)
            .attr("role", "img")
            .attr("aria-label", says)
            .child(el("title").text(says))
            .children(shapes);
        self.marks = std::mem::replace(&mut self.marks, el("g")).child(mark);
    }

    /// The `svg` element; `id` leads to the title and description standing in the page.
    pub(crate) fn into_svg(self, id: &str, class: &str) -> Element {
        let art =
            self.art.attr("role", "img").attr("aria-labelledby", format!("{id}-title {id}-desc"));
        el("svg")
            .class(class)
            .attr("xmlns", "http://www.w3.org/2000/svg")
            .attr("viewBox", format!("0 0 {} {}", px(self.width), px(self.height)))
            .attr("width", px(self.width))
            .attr("height", px(self.height))
            .attr("focusable", "false")
            .child(art)
            .maybe((!self.marks.is_empty()).then_some(self.marks))
    }
}

/// A coordinate: one decimal, never anything but a number.
pub(crate) fn px(value: f64) -> String {
    // Adding zero turns -0 into 0.
    let tenths = (show::finite(value).clamp(-1e6, 1e6) * 10.0).round() + 0.0;
    show::trim_zeros(format!("{:.1}", tenths / 10.0))
}

pub(crate) fn line(class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) -> Element {
    el("line")
        .class(class)
        .attr("x1", px(x1))
        .attr("y1", px(y1))
        .attr("x2", px(x2))
        .attr("y2", px(y2))
}

pub(crate) fn rect(class: &str, (x, y): (f64, f64), (width, height): (f64, f64)) -> Element {
    el("rect")
        .class(class)
        .attr("x", px(x))
        .attr("y", px(y))
        .attr("width", px(width.max(0.0)))
        .attr("height", px(height.max(0.0)))
}

pub(crate) fn circle(class: &str, (x, y): (f64, f64), radius: f64) -> Element {
    el("circle").class(class).attr("cx", px(x)).attr("cy", px(y)).attr("r", px(radius))
}

pub(crate) fn path(class: &str, d: &str) -> Element {
    el("path").class(class).attr("d", d)
}

/// A text; `class` sets size and anchor.
pub(crate) fn text(class: &str, (x, y): (f64, f64), content: impl Display) -> Element {
    el("text").class(class).attr("x", px(x)).attr("y", px(y)).text(content)
}

/// Path data through points.
pub(crate) fn through(points: impl IntoIterator<Item = (f64, f64)>) -> String {
    let mut data = String::new();
    for (index, (x, y)) in points.into_iter().enumerate() {
        data.push(if index == 0 { 'M' } else { 'L' });
        data.push_str(&px(x));
        data.push(' ');
        data.push_str(&px(y));
    }
    data
}

/// A shape that tells series apart without colour, centred on a point.
pub(crate) fn symbol(style: usize, (x, y): (f64, f64), radius: f64) -> Element {
    let class = format!("symbol s{}", style % 8);
    let r = radius;
    let corners = |offsets: &[(f64, f64)]| {
        let mut data = through(offsets.iter().map(|(dx, dy)| (x + dx * r, y + dy * r)));
        data.push('Z');
        path(&class, &data)
    };
    match style % 4 {
        0 => circle(&class, (x, y), radius),
        1 => corners(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]),
        2 => corners(&[(0.0, -1.25), (1.15, 0.9), (-1.15, 0.9)]),
        _ => corners(&[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)]),
    }
}

/// About how wide a text is, pixels, at a font size.
pub(crate) fn text_width(text: &str, font_px: f64) -> f64 {
    let wide = |character: char| if character.is_ascii() { 0.56 } else { 0.8 };
    text.chars().map(wide).sum::<f64>() * font_px
}

/// The text cut to a width.
pub(crate) fn fit(text: &str, width: f64, font_px: f64) -> String {
    let room = (width / (font_px * 0.56)).max(1.0) as usize;
    show::clip(text, room)
}
