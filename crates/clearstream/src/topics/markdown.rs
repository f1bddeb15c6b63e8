//! Parses the subset of Markdown that the documents use into blocks.

/// A block of a document. Texts keep their inline markup, see [`spans`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Block {
    /// Level, from 1, and text.
    Heading(usize, String),
    Paragraph(String),
    /// An item of a list: its mark (`-`, `1.`) and its text.
    Item(String, String),
    /// Lines of code, verbatim.
    Code(Vec<String>),
    /// Rows of cells; the first row has the column names, which may be empty.
    Table(Vec<Vec<String>>),
}

/// Style of a piece of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Strong,
    Emphasis,
    Code,
}

/// Parses a document.
pub(crate) fn blocks(document: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = document.lines().peekable();
    // Whether the next line may continue the previous block.
    let mut is_open = false;
    while let Some(line) = lines.next() {
        let text = line.trim();
        if text.starts_with("```") {
            let code = lines.by_ref().take_while(|line| line.trim() != "```");
            blocks.push(Block::Code(code.map(str::to_owned).collect()));
        } else if text.starts_with('|') {
            let mut rows = vec![cells(text)];
            while let Some(row) = lines.next_if(|line| line.trim().starts_with('|')) {
                if !row.trim_matches([' ', '|', '-', ':']).is_empty() {
                    rows.push(cells(row.trim()));
                }
            }
            blocks.push(Block::Table(rows));
        } else if let Some((level, heading)) = heading(line) {
            blocks.push(Block::Heading(level, heading));
        } else if line.starts_with("    ") && !is_open {
            let mut code = vec![line[4..].to_owned()];
            while let Some(line) = lines.next_if(|line| line.starts_with("    ")) {
                code.push(line[4..].to_owned());
            }
            blocks.push(Block::Code(code));
        } else if let Some((mark, item)) = item(line) {
            blocks.push(Block::Item(mark, item));
            is_open = true;
            continue;
        } else if !text.is_empty() && !text.starts_with("<!--") {
            match blocks.last_mut().filter(|_| is_open) {
                Some(Block::Paragraph(before) | Block::Item(_, before)) => {
                    before.push(' ');
                    before.push_str(text);
                }
                _ => blocks.push(Block::Paragraph(text.to_owned())),
            }
            is_open = true;
            continue;
        }
        is_open = false;
    }
    blocks
}

fn heading(line: &str) -> Option<(usize, String)> {
    let level = line.bytes().take_while(|byte| *byte == b'#').count();
    let text = line.get(level..)?.strip_prefix(' ')?;
    (level > 0).then(|| (level, text.trim().to_owned()))
}

fn item(line: &str) -> Option<(String, String)> {
    let line = line.trim_start();
    let (mark, text) = line.split_once(' ')?;
    let is_number = mark.strip_suffix('.').is_some_and(|number| number.parse::<u32>().is_ok());
    let is_item = is_number || matches!(mark, "-" | "*");
    let mark = if is_number { mark } else { "-" };
    is_item.then(|| (mark.to_owned(), text.trim().to_owned()))
}

/// The cells of a row; a bar in code or after a backslash is part of its cell.
fn cells(row: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut in_code = false;
    let mut characters = row.chars().skip(1).peekable();
    while let Some(character) = characters.next() {
        let last = cells.len() - 1;
        match character {
            '\\' if characters.peek() == Some(&'|') => cells[last].extend(characters.next()),
            '|' if !in_code => cells.push(String::new()),
            other => {
                in_code ^= other == '`';
                cells[last].push(other);
            }
        }
    }
    // What follows the last bar.
    cells.pop_if(|cell| cell.trim().is_empty());
    cells.into_iter().map(|cell| cell.trim().to_owned()).collect()
}

/// Splits a text into pieces of one style each; of a link only the words stay.
pub(super) fn spans(text: &str) -> Vec<(Style, String)> {
    let mut spans = Vec::new();
    let mut plain = String::new();
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let found = [("`", Style::Code), ("**", Style::Strong), ("*", Style::Emphasis)]
            .into_iter()
            .find_map(|(mark, style)| {
                let inner = rest.strip_prefix(mark)?;
                let (inside, behind) = inner.split_once(mark)?;
                let is_set = style == Style::Code
                    || (!inside.is_empty() && !inside.starts_with(' ') && !inside.ends_with(' '));
                is_set.then_some((style, inside, behind))
            });
        if let Some((style, inside, behind)) = found {
            spans.push((Style::Plain, std::mem::take(&mut plain)));
            // Code within strong or emphasised text is not styled separately.
            let inside =
                if style == Style::Code { inside.to_owned() } else { inside.replace('`', "") };
            spans.push((style, inside));
            rest = behind;
        } else if let Some((words, behind)) = link(rest) {
            spans.push((Style::Plain, std::mem::take(&mut plain)));
            spans.extend(self::spans(words));
            rest = behind;
        } else {
            plain.push(character);
            rest = &rest[character.len_utf8()..];
        }
    }
    spans.push((Style::Plain, plain));
    spans.retain(|(_, text)| !text.is_empty());
    spans
}

/// Parses `[words](address)`: returns the words, and the text after the link.
fn link(text: &str) -> Option<(&str, &str)> {
    let (words, rest) = text.strip_prefix('[')?.split_once("](")?;
    let (_address, behind) = rest.split_once(')')?;
    (!words.contains(['[', ']'])).then_some((words, behind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_falls_into_its_blocks() {
        let text = "# A title\n\nOne line\nand the next.\n\n- an item\n  that goes on\n2. second\n\n\
            ```sh\nls | wc\n```\n\n    indented\n\n<!-- nothing -->\n| a | b |\n|---|---|\n| `x|y` | z \\| w |\n";
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let expected = [
            Block::Heading(1, "A title".to_owned()),
            Block::Paragraph("One line and the next.".to_owned()),
            Block::Item("-".to_owned(), "an item that goes on".to_owned()),
            Block::Item("2.".to_owned(), "second".to_owned()),
            Block::Code(vec!["ls | wc".to_owned()]),
            Block::Code(vec!["indented".to_owned()]),
            Block::Table(vec![row(["a", "b"]), row(["`x|y`", "z | w"])]),
        ];
        assert_eq!(blocks(text), expected);
    }

    #[test]
    fn inline_marks_become_styles_and_links_their_words() {
        let found = spans("2 * 3, **so `it` is**, *there*, `a*b` in [the `map`](x.md#y).");
        let expected = [
            (Style::Plain, "2 * 3, "),
            (Style::Strong, "so it is"),
            (Style::Plain, ", "),
            (Style::Emphasis, "there"),
            (Style::Plain, ", "),
            (Style::Code, "a*b"),
            (Style::Plain, " in "),
            (Style::Plain, "the "),
            (Style::Code, "map"),
            (Style::Plain, "."),
        ];
        assert_eq!(found, expected.map(|(style, text)| (style, text.to_owned())));
    }
}
