//! A host drawn: packages, memory nodes, caches and cores, with each interface next to its node.
//!
//! [`machine_text`] is for a terminal of 80 columns or more, [`machine_svg`] a file of its own in
//! light and dark. Both are pure, and both fold what repeats: a host of 256 cores takes a screen or
//! two, not ten.

mod layout;
mod queues;
mod svg;
mod text;

use results::{Machine, NicCeilings};

use crate::markup::{Element, el};

/// A host as text, at most `columns` (80 to 120) wide.
#[must_use]
pub fn machine_text(machine: &Machine, ceilings: &[NicCeilings], columns: usize) -> String {
    text::draw(machine, ceilings, columns.clamp(80, 120))
}

/// A host as an SVG file: light or dark as its reader prefers, with a title and a description.
#[must_use]
pub fn machine_svg(machine: &Machine, ceilings: &[NicCeilings]) -> String {
    svg::draw(machine, ceilings)
}

/// Longest drawing that a page takes in, bytes.
const ON_PAGE_BYTES_MAX: usize = 200_000;

/// A host as a picture within a page, folded away behind a line; `None` where there is little to see or far too
/// much. As an image its styles and ids are its own, and it still follows the reader's light or dark.
pub(crate) fn on_page(machine: &Machine, whose: &str) -> Option<Element> {
    let drawing = machine_svg(machine, &[]);
    if machine.cores.is_empty() || drawing.len() > ON_PAGE_BYTES_MAX {
        return None;
    }
    let line = format!("{whose}: {}", in_short(machine));
    let picture = el("img")
        .class("machine")
        .attr("src", format!("data:image/svg+xml,{}", percent_encoded(&drawing)))
        .attr("alt", svg::describe(machine, &[]));
    let frame = el("div").class("scroll").attr("tabindex", 0).attr("role", "region");
    let frame = frame.attr("aria-label", &line).child(picture);
    Some(el("details").class("data").child(el("summary").text(line)).child(frame))
}

/// As a URL's data (RFC 3986 section 2.1): what may not stand there, as `%` and two digits a byte.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len() * 5 / 4);
    for byte in text.bytes() {
        match byte {
            b' '
            | b'!'
            | b'('
            | b')'
            | b'*'
            | b'+'
            | b','
            | b'-'
            | b'.'
            | b'/'
            | b'0'..=b';'
            | b'='
            | b'@'
            | b'A'..=b'Z'
            | b'_'
            | b'a'..=b'z' => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// `0-3,8,10-11`: a list of cores as the kernel writes it.
fn list(cores: &[u32]) -> String {
    let mut sorted = cores.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let mut text = String::new();
    for run in sorted.chunk_by(|a, b| a.checked_add(1) == Some(*b)) {
        let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
        if !text.is_empty() {
            text.push(',');
        }
        match last - first {
            0 => text.push_str(&first.to_string()),
            1 => text.push_str(&format!("{first},{last}")),
            _ => text.push_str(&format!("{first}-{last}")),
        }
    }
    text
}

/// What a host is made of, in one line.
fn in_short(machine: &Machine) -> String {
    let many = |count: usize, one: &str| match count {
        1 => format!("1 {one}"),
        _ => format!("{count} {one}s"),
    };
    let mut packages: Vec<u32> = machine.cores.iter().filter_map(|core| core.package).collect();
    packages.sort_unstable();
    packages.dedup();
    let count = |is: fn(&results::Core) -> bool| machine.cores.iter().filter(|c| is(c)).count();
    let mut parts = Vec::new();
    if !packages.is_empty() {
        parts.push(many(packages.len(), "package"));
    }
    if !machine.nodes.is_empty() {
        parts.push(many(machine.nodes.len(), "memory node"));
    }
    parts.push(many(machine.cores.len(), "core"));
    let (offline, unusable, isolated) = (
        count(|core| !core.is_online),
        count(|core| core.is_online && !core.is_usable),
        count(|core| core.is_isolated),
    );
    for (number, word) in
        [(offline, "offline"), (unusable, "not usable by this process"), (isolated, "isolated")]
    {
        if number > 0 {
            parts.push(format!("{number} {word}"));
        }
    }
    parts.push(many(machine.nics.len(), "interface"));
    parts.join(", ")
}

#[cfg(test)]
mod tests;
