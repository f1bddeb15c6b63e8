//! Renders documents for a terminal.

use super::markdown::{Block, spans};
use crate::out::columns;

/// Narrowest column of a table, in characters.
const COLUMN_MIN: usize = 10;
/// Space between two columns of a table.
const GAP: &str = "  ";

/// Renders blocks as plain text.
pub(crate) fn plain(blocks: &[Block]) -> String {
    let mut text = String::new();
    let mut was_item = false;
    for block in blocks {
        let is_item = matches!(block, Block::Item(..));
        let continues_list = is_item && was_item;
        if !(text.is_empty() || continues_list) {
            text.push('\n');
        }
        was_item = is_item;
        let lines = match block {
            Block::Heading(1, words) => vec![bare(words).to_uppercase()],
            Block::Heading(_, words) => vec![bare(words)],
            Block::Paragraph(words) => indented("  ", "  ", words),
            Block::Item(mark, words) => {
                indented(&format!("  {mark} "), &" ".repeat(mark.len() + 3), words)
            }
            Block::Code(lines) => lines.iter().map(|line| format!("    {line}")).collect(),
            Block::Table(rows) => {
                table(rows, columns() - 2).into_iter().map(|line| format!("  {line}")).collect()
            }
        };
        for line in lines {
            text.push_str(line.trim_end());
            text.push('\n');
        }
    }
    text
}

fn indented(first: &str, others: &str, words: &str) -> Vec<String> {
    let lines = wrapped(&bare(words), columns() - others.chars().count());
    let indent = |(number, line): (usize, String)| {
        format!("{}{line}", if number == 0 { first } else { others })
    };
    lines.into_iter().enumerate().map(indent).collect()
}

/// A text without inline markup.
pub(super) fn bare(text: &str) -> String {
    spans(text).into_iter().map(|(_style, text)| text).collect()
}

/// Wraps words into lines of at most `columns` columns.
fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is always a line");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() > columns {
            lines.push(word.to_owned());
        } else {
            line.push(' ');
            line.push_str(word);
        }
    }
    lines
}

/// Renders a table; its cells are wrapped if it would be wider than `columns`.
pub(super) fn table(rows: &[Vec<String>], columns: usize) -> Vec<String> {
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| bare(cell)).collect()).collect();
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widest = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let mut widths: Vec<usize> = (0..count).map(widest).collect();
    let room = columns.saturating_sub(GAP.len() * count.saturating_sub(1));
    while widths.iter().sum::<usize>() > room {
        let Some(width) = widths.iter_mut().max().filter(|width| **width > COLUMN_MIN) else {
            break;
        };
        *width -= 1;
    }
    let (header, body) = rows.split_at(usize::from(!rows.is_empty()));
    let named = header.iter().filter(|row| row.iter().any(|name| !name.is_empty()));
    let mut lines = Vec::new();
    for row in named {
        lines.extend(set_row(row, &widths));
        let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
        lines.push(rule.join(GAP));
    }
    lines.extend(body.iter().flat_map(|row| set_row(row, &widths)));
    lines
}

fn set_row(row: &[String], widths: &[usize]) -> Vec<String> {
    let cells: Vec<Vec<String>> = widths
        .iter()
        .enumerate()
        .map(|(column, width)| wrapped(row.get(column).map_or("", String::as_str), *width))
        .collect();
    let height = cells.iter().map(Vec::len).max().unwrap_or(0);
    let line = |number: usize| {
        let parts = cells.iter().zip(widths).map(|(cell, width)| {
            let text = cell.get(number).map_or("", String::as_str);
            format!("{text:<width$}")
        });
        parts.collect::<Vec<_>>().join(GAP).trim_end().to_owned()
    };
    (0..height).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_wraps_its_widest_column_and_keeps_the_others() {
        let rows = [["key", "what"], ["`rate`", "one two three four five six seven"]];
        let rows = rows.map(|row| row.map(str::to_owned).to_vec());
        let lines = table(&rows, 26);
        assert_eq!(
            lines,
            [
                "key   what",
                "----  --------------------",
                "rate  one two three four",
                "      five six seven"
            ]
        );
    }

    #[test]
    fn a_document_is_set_in_lines_that_fit() {
        let text =
            plain(&super::super::blocks("# The *end*\n\nA **short** text.\n\n- one\n- two\n"));
        assert_eq!(text, "THE END\n\n  A short text.\n\n  - one\n  - two\n");
    }
}
