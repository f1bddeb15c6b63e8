//! Tables that scroll inside their own frame.

use crate::markup::{Element, el};
use crate::show;

/// Rows a table may have; what is beyond is counted, and stands in the results file.
const ROWS_MAX: usize = 600;

/// Heads of columns of such a table that hold figures.
const FIGURE_HEADS: [&str; 10] =
    ["median", "p50", "p99", "p99.9", "highest", "round trips", "A", "B", "difference", "n"];

/// A table whose rows hold drawings and large figures beside plain cells.
pub(crate) fn headline(
    caption: &str,
    head: &[&str],
    rows: impl IntoIterator<Item = Element>,
) -> Element {
    let head = head.iter().map(|name| {
        let is_figure = FIGURE_HEADS.contains(name);
        el("th").attr("scope", "col").class(if is_figure { "f" } else { "w" }).text(name)
    });
    el("div")
        .class("scroll")
        .attr("tabindex", 0)
        .attr("role", "region")
        .attr("aria-label", caption)
        .child(
            el("table")
                .class("headline")
                .child(el("caption").text(caption))
                .child(el("thead").child(el("tr").children(head)))
                .child(el("tbody").children(rows)),
        )
}

/// A table being filled.
#[derive(Debug)]
pub(crate) struct Table {
    caption: String,
    head: Vec<String>,
    words: usize,
    rows: Vec<Vec<String>>,
    left_out_count: usize,
}

impl Table {
    /// A table with its column heads. The first `words` columns hold words, the rest figures.
    pub(crate) fn new(caption: &str, words: usize, head: &[&str]) -> Self {
        let head = head.iter().map(|&name| name.to_owned()).collect();
        Self { caption: caption.to_owned(), head, words, rows: Vec::new(), left_out_count: 0 }
    }

    /// Adds a column head.
    pub(crate) fn column(&mut self, name: String) {
        self.head.push(name);
    }

    /// Adds a row; the first cell is its head.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        if self.rows.len() < ROWS_MAX {
            self.rows.push(cells.into_iter().collect());
        } else {
            self.left_out_count += 1;
        }
    }

    /// Whether it has no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table in its frame.
    pub(crate) fn into_element(self) -> Element {
        let class = |index: usize| if index < self.words { "w" } else { "f" };
        let head = self
            .head
            .iter()
            .enumerate()
            .map(|(index, name)| el("th").attr("scope", "col").class(class(index)).text(name));
        let rows = self.rows.iter().map(|cells| {
            el("tr").children(cells.iter().enumerate().map(|(index, cell)| {
                let kind = if index == 0 { el("th").attr("scope", "row") } else { el("td") };
                kind.class(class(index)).text(cell)
            }))
        });
        let table = el("table")
            .child(el("caption").text(&self.caption))
            .child(el("thead").child(el("tr").children(head)))
            .child(el("tbody").children(rows));
        let rest = (self.left_out_count > 0).then(|| {
            let rest = show::count(self.left_out_count as f64);
            el("p").class("note").text(format!("and {rest} more rows, in the results file"))
        });
        el("div")
            .class("scroll")
            .attr("tabindex", 0)
            .attr("role", "region")
            .attr("aria-label", &self.caption)
            .child(table)
            .maybe(rest)
    }

    /// The table folded away behind a line.
    pub(crate) fn into_details(self, line: &str) -> Element {
        el("details").class("data").child(el("summary").text(line)).child(self.into_element())
    }
}
