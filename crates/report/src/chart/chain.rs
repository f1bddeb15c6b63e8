//! The chain of places, across on a screen, downwards on a phone.

use results::{End, Limit};

use super::{FULL_PX, Figure, NARROW_PX};
use crate::digest::Digest;
use crate::digest::chain::{Chain, Link};
use crate::markup::{Element, el};
use crate::show::{self, DASH};
use crate::svg::{self, Drawing};
use crate::table::Table;

/// Small print inside a link, pixels.
const NOTE_PX: f64 = 11.0;

/// The figure of the chain.
pub(crate) fn figure(digest: &Digest<'_>, chain: &Chain) -> Figure {
    Figure {
        id: "chain".to_owned(),
        title: digest.way(chain.direction),
        caption: caption(digest, chain),
        legend: Vec::new(),
        wide: draw_wide(digest, chain),
        narrow: draw_narrow(digest, chain),
        table: table(digest, chain),
    }
}

fn caption(digest: &Digest<'_>, chain: &Chain) -> String {
    let mut caption = match chain.measured_bits_per_s {
        Some(rate) => format!("{} was measured from end to end. ", show::rate(rate)),
        None => String::new(),
    };
    let binding = chain.links.iter().find(|link| link.binding);
    let named = digest.results.verdict.as_ref().map(|verdict| verdict.limit);
    caption.push_str(&match (binding, named.filter(|limit| *limit != Limit::NoneFound)) {
        (Some(link), _) => format!("The binding link is the {}", link.place.name()),
        (None, Some(limit)) => {
            format!("The bottleneck, {}, is none of these links", show::limit(limit))
        }
        (None, None) => "No bottleneck identified".to_owned(),
    });
    if let Some(end) = binding.and_then(|link| link.end) {
        caption.push_str(&format!(" of {}", host_name(digest, end)));
    }
    caption.push('.');
    let unseen = chain.links.iter().find_map(|link| Some((link.end?, link.unseen.as_ref()?)));
    if let Some((end, why)) = unseen {
        caption.push_str(&format!(
            " Hatched links of {} were not observed: {}.",
            host_name(digest, end),
            show::clip(why.trim_end_matches('.'), 160)
        ));
    }
    if chain.links.iter().any(|link| link.used.is_some()) {
        caption.push_str(" Bars show the share of a link in use; ≤ marks what it could carry, according to these measurements.");
    }
    caption
}

fn host_name<'a>(digest: &'a Digest<'_>, end: End) -> &'a str {
    match end {
        End::Near => &digest.near_name,
        End::Far => &digest.far_name,
    }
}

/// Runs of links of one host, or the path: whose they are, first index, how many.
fn runs(chain: &Chain) -> Vec<(Option<End>, usize, usize)> {
    let mut runs: Vec<(Option<End>, usize, usize)> = Vec::new();
    for (index, link) in chain.links.iter().enumerate() {
        match runs.last_mut() {
            Some((end, _, count)) if *end == link.end => *count += 1,
            _ => runs.push((link.end, index, 1)),
        }
    }
    runs
}

fn draw_wide(digest: &Digest<'_>, chain: &Chain) -> Drawing {
    const GAP: f64 = 12.0;
    const TOP: f64 = 62.0;
    const HEIGHT: f64 = 132.0;
    let count = chain.links.len().max(1) as f64;
    let card = ((FULL_PX - 4.0 - GAP * (count - 1.0)) / count).min(150.0);
    let used = card * count + GAP * (count - 1.0);
    let start = (FULL_PX - used) / 2.0;
    let left = |index: usize| start + index as f64 * (card + GAP);
    let mut drawing = Drawing::new(FULL_PX, TOP + HEIGHT + 6.0);
    for (end, first, run_count) in runs(chain) {
        let (from, to) = (left(first), left(first + run_count - 1) + card);
        if let Some(end) = end {
            let name = svg::fit(host_name(digest, end), to - from, 14.0);
            drawing.draw(svg::text("t host mid", (f64::midpoint(from, to), 14.0), name));
            drawing.draw(svg::path(
                "bracket",
                &format!("M{} 32V24H{}V32", svg::px(from), svg::px(to)),
            ));
        }
    }
    for (index, link) in chain.links.iter().enumerate() {
        let x = left(index);
        if index > 0 {
            arrow_right(&mut drawing, (x - GAP, TOP + 38.0), GAP);
        }
        drawing.draw(card_shape(link, (x, TOP), (card, HEIGHT)));
        wide_texts(&mut drawing, link, (x, TOP), (card, HEIGHT));
        if link.binding {
            let middle = x + card / 2.0;
            drawing.draw(svg::text("t flag mid", (middle, TOP - 13.0), "bottleneck"));
            drawing.draw(svg::path(
                "flag",
                &format!("M{0} {1}l5 -7h-10z", svg::px(middle), svg::px(TOP - 2.0)),
            ));
        }
    }
    drawing
}

fn wide_texts(drawing: &mut Drawing, link: &Link, (x, y): (f64, f64), (width, height): (f64, f64)) {
    let pad = 7.0;
    let room = width - 2.0 * pad;
    let at = |line: f64| (x + pad, y + line);
    drawing.draw(svg::text("t note", at(18.0), svg::fit(short_name(link), room, NOTE_PX)));
    drawing.draw(svg::text("t figure", at(40.0), svg::fit(&figure_text(link), room, 14.0)));
    for (index, note) in link.notes.iter().take(3).enumerate() {
        let line = 58.0 + 15.0 * index as f64;
        drawing.draw(svg::text("t note", at(line), svg::fit(note, room, NOTE_PX)));
    }
    if let Some(ceiling) = link.ceiling_bits_per_s {
        let text = format!("≤ {}", show::rate(ceiling));
        drawing.draw(svg::text(
            "t note strong",
            at(height - 24.0),
            svg::fit(&text, room + 4.0, NOTE_PX),
        ));
    }
    gauge(drawing, link, at(height - 15.0), room);
}

fn draw_narrow(digest: &Digest<'_>, chain: &Chain) -> Drawing {
    const HEIGHT: f64 = 60.0;
    const GAP: f64 = 14.0;
    const HEAD: f64 = 26.0;
    let runs = runs(chain);
    let heads = runs.iter().filter(|(end, _, _)| end.is_some()).count() as f64;
    let height = chain.links.len() as f64 * (HEIGHT + GAP) + heads * HEAD;
    let mut drawing = Drawing::new(NARROW_PX, height);
    let mut y = 0.0;
    for (end, first, count) in runs {
        if let Some(end) = end {
            let name = svg::fit(host_name(digest, end), NARROW_PX - 40.0, 14.0);
            drawing.draw(svg::text("t host", (2.0, y + 16.0), name));
            y += HEAD;
        }
        for link in chain.links.iter().skip(first).take(count) {
            drawing.draw(card_shape(link, (2.0, y), (NARROW_PX - 4.0, HEIGHT)));
            narrow_texts(&mut drawing, link, (2.0, y), NARROW_PX - 4.0);
            y += HEIGHT + GAP;
            if y + 1.0 < height {
                arrow_down(&mut drawing, (NARROW_PX / 2.0, y - GAP), GAP);
            }
        }
    }
    drawing
}

fn narrow_texts(drawing: &mut Drawing, link: &Link, (x, y): (f64, f64), width: f64) {
    let pad = 12.0;
    let (start, end) = (x + pad, x + width - pad);
    let name = if link.binding {
        format!("{} ◀ bottleneck", short_name(link))
    } else {
        short_name(link).to_owned()
    };
    let class = if link.binding { "t flag" } else { "t note" };
    drawing.draw(svg::text(class, (start, y + 18.0), name));
    drawing.draw(svg::text(
        "t figure end",
        (end, y + 19.0),
        svg::fit(&figure_text(link), 170.0, 14.0),
    ));
    let ceiling = link.ceiling_bits_per_s.map(|ceiling| format!("≤ {}", show::rate(ceiling)));
    let room =
        end - start - ceiling.as_ref().map_or(0.0, |text| svg::text_width(text, NOTE_PX) + 12.0);
    drawing.draw(svg::text(
        "t note",
        (start, y + 38.0),
        svg::fit(&link.notes.join(" · "), room, NOTE_PX),
    ));
    if let Some(ceiling) = ceiling {
        drawing.draw(svg::text("t note strong end", (end, y + 38.0), ceiling));
    }
    gauge(drawing, link, (start, y + 46.0), end - start);
}

fn short_name(link: &Link) -> &'static str {
    use crate::digest::chain::Place;
    match link.place {
        Place::Application => "application",
        Place::Interrupts => "interrupts",
        place => place.name(),
    }
}

fn figure_text(link: &Link) -> String {
    if link.figure.is_empty() {
        let missing = if link.unseen.is_some() { "not observed" } else { DASH };
        return missing.to_owned();
    }
    link.figure.clone()
}

fn card_shape(link: &Link, at: (f64, f64), size: (f64, f64)) -> Element {
    let class = match (link.binding, link.unseen.is_some()) {
        (true, true) => "card unseen binding",
        (true, false) => "card binding",
        (false, true) => "card unseen",
        (false, false) => "card",
    };
    let shape = svg::rect(class, at, size).attr("rx", 6);
    match &link.unseen {
        Some(why) => shape.child(el("title").text(show::clip(why, 200))),
        None => shape,
    }
}

/// A bar with the share in use; the frame is the whole.
fn gauge(drawing: &mut Drawing, link: &Link, (x, y): (f64, f64), width: f64) {
    let Some(used) = link.used else { return };
    let share = show::finite(used).clamp(0.0, 1.0);
    let class = if link.binding { "gauge-fill binding" } else { "gauge-fill" };
    drawing.draw(svg::rect("gauge", (x, y), (width, 6.0)).attr("rx", 3));
    drawing.draw(svg::rect(class, (x, y), ((width * share).max(1.0), 6.0)).attr("rx", 3));
}

fn arrow_right(drawing: &mut Drawing, (x, y): (f64, f64), length: f64) {
    drawing.draw(svg::line("arrow", (x + 1.0, y), (x + length - 5.0, y)));
    drawing.draw(svg::path(
        "arrow-head",
        &format!("M{} {}l-6 -4v8z", svg::px(x + length - 1.0), svg::px(y)),
    ));
}

fn arrow_down(drawing: &mut Drawing, (x, y): (f64, f64), length: f64) {
    drawing.draw(svg::line("arrow", (x, y + 1.0), (x, y + length - 5.0)));
    drawing.draw(svg::path(
        "arrow-head",
        &format!("M{} {}l-4 -6h8z", svg::px(x), svg::px(y + length - 1.0)),
    ));
}

fn table(digest: &Digest<'_>, chain: &Chain) -> Table {
    let head = ["where", "link", "figure", "observed", "in use", "could carry", "bottleneck"];
    let mut table = Table::new("The chain, link by link", 4, &head);
    for link in &chain.links {
        let host = link.end.map_or("path", |end| host_name(digest, end));
        let known = link.unseen.clone().unwrap_or_else(|| link.notes.join(", "));
        let or_dash = |value: Option<String>| value.unwrap_or_else(|| DASH.to_owned());
        table.row([
            host.to_owned(),
            link.place.name().to_owned(),
            figure_text(link),
            known,
            or_dash(link.used.map(show::share)),
            or_dash(link.ceiling_bits_per_s.map(show::rate)),
            if link.binding { "yes".to_owned() } else { String::new() },
        ]);
    }
    table
}
