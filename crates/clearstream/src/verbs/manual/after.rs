//! The text below a command's options, taken apart for a man page.

use std::fmt::Write;

use crate::topics::escaped;

/// The paragraphs of that text, by the section of a man page that they belong to.
#[derive(Debug, Default)]
pub(super) struct AfterOptions<'a> {
    /// Forms of the command line, of commands that parse their own options.
    pub(super) usage: Vec<&'a str>,
    /// Options of such commands, and their headings.
    pub(super) options: Vec<&'a str>,
    /// Explanations.
    notes: Vec<&'a str>,
    /// Command lines, with remarks.
    examples: Vec<&'a str>,
}

impl<'a> AfterOptions<'a> {
    /// Takes `text` apart. Lists of exit codes and of topics are left out: other sections have them.
    pub(super) fn of(text: &'a str) -> Self {
        let mut found = Self::default();
        for paragraph in text.split("\n\n").map(|one| one.trim_matches('\n')) {
            let (first, rest) = paragraph.split_once('\n').unwrap_or((paragraph, ""));
            match first {
                "" => {}
                "Example:" | "Examples:" | "Start with:" => found.examples.push(rest),
                _ if first.starts_with("Usage: ") => {
                    // What precedes the usage is the command's own line of description.
                    found.notes.clear();
                    found.usage.push(paragraph);
                }
                _ if first.starts_with("Exit codes:") || first.starts_with("Topics (") => {}
                _ if first.ends_with(':') && !found.usage.is_empty() => {
                    found.options.push(paragraph);
                }
                _ => found.notes.push(paragraph),
            }
        }
        found
    }

    /// The notes, for the end of the section DESCRIPTION.
    pub(super) fn notes(&self) -> String {
        self.notes.iter().map(|one| paragraph(one)).collect()
    }

    /// The section OPTIONS of a command that parses its own options; empty for all others.
    pub(super) fn options(&self) -> String {
        let blocks: String = self.options.iter().map(|one| unfilled(one)).collect();
        if blocks.is_empty() { blocks } else { format!(".SH OPTIONS\n{blocks}") }
    }

    /// The section EXAMPLES, if there are any.
    pub(super) fn examples(&self) -> String {
        let blocks: String = self.examples.iter().map(|one| unfilled(one)).collect();
        if blocks.is_empty() { blocks } else { format!(".SH EXAMPLES\n{blocks}") }
    }

    /// The section SYNOPSIS of a command that parses its own options, or `usage` for all others.
    pub(super) fn synopsis(&self, usage: &str) -> String {
        let mut text = ".SH SYNOPSIS\n".to_owned();
        if self.usage.is_empty() {
            let forms = escaped(usage).replace(" or clearstream", "\n.br\nclearstream");
            writeln!(text, "{forms}").ok();
        }
        for forms in &self.usage {
            let forms = forms.replacen("Usage: ", "       ", 1);
            let lines: Vec<&str> = forms.lines().map(|line| line.get(7..).unwrap_or("")).collect();
            text.push_str(&unfilled(&lines.join("\n")));
        }
        text
    }
}

/// A paragraph: unfilled where its columns or line breaks have a meaning.
fn paragraph(text: &str) -> String {
    let has_columns = |line: &str| line.trim_end().contains("  ");
    if text.lines().any(has_columns) {
        return unfilled(text);
    }
    let lines: Vec<String> = text.lines().map(escaped).collect();
    format!(".PP\n{}\n", lines.join("\n"))
}

/// Lines that the formatter leaves as they are.
fn unfilled(text: &str) -> String {
    let indent = if text.lines().all(|line| line.starts_with("  ")) { 2 } else { 0 };
    let line = |line: &str| escaped(line.get(indent..).unwrap_or(line));
    let lines: Vec<String> = text.lines().map(line).collect();
    format!(".PP\n.nf\n{}\n.fi\n", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_notes_and_lists_go_to_their_sections() {
        let text = "Examples:\n  clearstream x a    one\n  clearstream x b\n\nA note\non two lines.\n\n\
                    kind: a\nk:    b\n\nExit codes: 0 ok.";
        let parts = AfterOptions::of(text);
        assert_eq!(
            parts.examples(),
            ".SH EXAMPLES\n.PP\n.nf\nclearstream x a    one\nclearstream x b\n.fi\n"
        );
        let notes = parts.notes();
        assert!(notes.starts_with(".PP\nA note\non two lines.\n.PP\n.nf\nkind: a"), "{notes}");
        assert!(!notes.contains("Exit codes"));
        assert_eq!(parts.synopsis("clearstream x"), ".SH SYNOPSIS\nclearstream x\n");
        assert_eq!(parts.options(), "");
    }

    #[test]
    fn a_command_with_a_help_of_its_own_has_its_options_from_there() {
        let text = "Does it.\n\nUsage: mpirun clearstream x\n       clearstream x -n N\n\nOptions of x:\n  -n N   number\n";
        let parts = AfterOptions::of(text);
        assert_eq!(
            parts.synopsis("unused"),
            ".SH SYNOPSIS\n.PP\n.nf\nmpirun clearstream x\nclearstream x \\-n N\n.fi\n"
        );
        assert_eq!(
            parts.options(),
            ".SH OPTIONS\n.PP\n.nf\nOptions of x:\n  \\-n N   number\n.fi\n"
        );
        assert_eq!(parts.notes(), "");
    }
}
