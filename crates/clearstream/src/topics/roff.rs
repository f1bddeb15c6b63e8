//! Renders documents as man pages.

use super::markdown::{Block, Style, spans};
use super::text::{bare, table};
use super::{TOPICS, Topic, blocks};

/// Columns of a table in a man page: 80 less the indentation.
const COLUMNS: usize = 72;

/// A topic's man page in roff. `verbs` are the pages of the commands that it belongs to.
pub(crate) fn page(topic: &Topic, version: &str, verbs: &[String]) -> String {
    let name = topic.page_name();
    let title = name.to_uppercase();
    let mut text = format!(
        ".TH {title} {} \"\" \"clearstream {version}\" \"ClearStream\"\n.SH NAME\n{} \\- {}\n\
         .SH DESCRIPTION\n",
        topic.section,
        escaped(&name),
        inline(topic.about)
    );
    let blocks = blocks(&topic.markdown());
    // The first block, the title, is already the page's name.
    for block in blocks.iter().skip(1) {
        set(block, &mut text);
    }
    let mut pages = vec!["clearstream(1)".to_owned()];
    pages.extend_from_slice(verbs);
    // A topic of no command in particular refers to all others.
    let others = TOPICS.iter().filter(|other| verbs.is_empty() && other.name != topic.name);
    pages.extend(others.map(|other| format!("{}({})", other.page_name(), other.section)));
    text.push_str(&format!(".SH SEE ALSO\n{}\n", escaped(&pages.join(", "))));
    text
}

fn set(block: &Block, out: &mut String) {
    let piece = match block {
        Block::Heading(1 | 2, words) => {
            format!(".SH {}\n", quoted(&escaped(&bare(words).to_uppercase())))
        }
        Block::Heading(_, words) => format!(".SS {}\n", quoted(&escaped(&bare(words)))),
        Block::Paragraph(words) => format!(".PP\n{}\n", inline(words)),
        Block::Item(mark, words) => {
            format!(".IP {} 4\n{}\n", quoted(&escaped(mark)), inline(words))
        }
        Block::Code(lines) => unfilled(lines),
        Block::Table(rows) => unfilled(&table(rows, COLUMNS)),
    };
    out.push_str(&piece);
}

fn unfilled(lines: &[String]) -> String {
    let lines: Vec<String> = lines.iter().map(|line| escaped(line)).collect();
    format!(".PP\n.RS 4\n.nf\n{}\n.fi\n.RE\n", lines.join("\n"))
}

/// Quotes an argument of a roff request.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\\(dq"))
}

/// Renders a text, with its styles as font changes.
fn inline(text: &str) -> String {
    let set = |(style, text): (Style, String)| match style {
        Style::Plain => escaped(&text),
        Style::Emphasis => format!("\\fI{}\\fR", escaped(&text)),
        Style::Strong | Style::Code => format!("\\fB{}\\fR", escaped(&text)),
    };
    spans(text).into_iter().map(set).collect()
}

/// Escapes text so that the formatter shows it literally.
pub(crate) fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    // These characters at the beginning of a line start a request.
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_looks_like_a_request_stays_text() {
        assert_eq!(escaped(".verdict \\n -x"), "\\&.verdict \\en \\-x");
        assert_eq!(quoted(&escaped("lab \"up\"")), "\"lab \\(dqup\\(dq\"");
    }
}
