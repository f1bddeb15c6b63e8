//! Results in, one offline HTML page out.
//!
//! [`render`] is a pure function of the document: no clock, no files, the same bytes every time.
//! The page loads nothing, reads without JavaScript, and holds the results it was made from.
//! Every text of the document is untrusted (much of it came from the far host) and reaches the
//! page only through the `markup` module, which escapes it; figures that are no numbers become dashes.

mod chart;
mod comparison;
mod digest;
mod machine_drawing;
mod markup;
mod page;
mod scale;
mod section;
mod sequence;
mod show;
mod svg;
mod table;

use compare::Comparison;
use results::Results;

pub use machine_drawing::{machine_svg, machine_text};
pub use sequence::{Sequence, SequenceStep, sequence_svg};

/// Choices of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RenderOptions {
    /// Longest JSON put into the page, bytes. A longer document goes in without its samples over
    /// time, and not at all when that is still too long; the page says so. 0: never.
    pub embed_bytes_max: usize,
}

impl Default for RenderOptions {
    fn default() -> Self {
        Self { embed_bytes_max: 600 << 10 }
    }
}

/// The page of a results document: self-contained HTML.
///
/// Never panics, whatever the document holds, and its length is bounded: charts are thinned to
/// means with their extremes, tables cut with a count of what is missing.
#[must_use]
pub fn render(results: &Results, options: &RenderOptions) -> String {
    page::page(results, options.embed_bytes_max)
}

/// The page of a comparison: self-contained HTML, as that of a results document.
#[must_use]
pub fn render_comparison(comparison: &Comparison) -> String {
    comparison::page(comparison)
}
