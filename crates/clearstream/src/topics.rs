//! The text of `clearstream help TOPIC` and of the man pages in sections 5 and 7: documents of this
//! repository, unchanged.

mod markdown;
mod roff;
mod text;

pub(crate) use markdown::{Block, blocks};
pub(crate) use roff::{escaped, page};
pub(crate) use text::plain;

/// A document that is part of the program.
pub(crate) struct Topic {
    /// Name in `clearstream help NAME` and in the man page's name.
    pub(crate) name: &'static str,
    /// Section of the manual: 5 or 7.
    pub(crate) section: u8,
    /// One line that says what it describes.
    pub(crate) about: &'static str,
    document: &'static str,
    /// Headings of the document's parts that belong to the topic; empty: all parts.
    parts: &'static [&'static str],
}

macro_rules! document {
    ($name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/", $name))
    };
}

/// All topics, in the order of the list.
pub(crate) const TOPICS: [Topic; 8] = [
    Topic {
        name: "exit-codes",
        section: 7,
        about: "exit codes of every command",
        document: document!("exit-codes.md"),
        parts: &[],
    },
    Topic {
        name: "limits",
        section: 7,
        about: "the limits that a verdict names: mechanism, evidence, experiment, advice",
        document: document!("limits.md"),
        parts: &[],
    },
    Topic {
        name: "symptoms",
        section: 7,
        about: "what `explain --symptoms` prints: name, unit, source and meaning of each",
        document: document!("symptoms.md"),
        parts: &[],
    },
    Topic {
        name: "glossary",
        section: 7,
        about: "terms used in the output and the documents",
        document: document!("GLOSSARY.md"),
        parts: &[],
    },
    Topic {
        name: "results",
        section: 5,
        about: "results files: every field (`help schema` prints the JSON Schema)",
        document: document!("results.md"),
        parts: &[],
    },
    Topic {
        name: "lab-file",
        section: 5,
        about: "lab files: hosts, links and switches on one machine",
        document: document!("lab.md"),
        parts: &[],
    },
    Topic {
        name: "plan-file",
        section: 5,
        about: "plan files of `gateway`",
        document: document!("gateways.md"),
        parts: &["The plan", "Modes"],
    },
    Topic {
        name: "dve",
        section: 7,
        about: "DVE, the modelling language of `check`",
        document: document!("dve.md"),
        parts: &[],
    },
];

/// The topic whose text is the JSON Schema of results files.
pub(crate) const SCHEMA: &str = "schema";

impl Topic {
    /// The topic with this name.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        TOPICS.iter().find(|topic| topic.name == name)
    }

    /// The topic's document, in Markdown.
    pub(crate) fn markdown(&self) -> String {
        if self.parts.is_empty() {
            return self.document.to_owned();
        }
        let title = self.document.lines().next().unwrap_or_default();
        let mut text = format!("{title}\n");
        let mut is_part = false;
        for line in self.document.lines().skip(1) {
            if let Some(heading) = line.strip_prefix("## ") {
                is_part = self.parts.contains(&heading);
            }
            if is_part {
                text.push_str(line);
                text.push('\n');
            }
        }
        text
    }

    /// Name of the topic's man page: `clearstream-limits`.
    pub(crate) fn page_name(&self) -> String {
        format!("clearstream-{}", self.name)
    }
}

/// The list of topics at the end of `clearstream help`.
pub(crate) fn list() -> String {
    let one = |name: &str, about: &str| format!("  {name:<11} {about}\n");
    let mut text = "Topics (clearstream help TOPIC):\n".to_owned();
    for topic in &TOPICS {
        text.push_str(&one(topic.name, topic.about));
    }
    text.push_str(&one(SCHEMA, "JSON Schema of results files"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_a_topic_is_in_its_document() {
        for topic in &TOPICS {
            for part in topic.parts {
                let heading = format!("\n## {part}\n");
                assert!(topic.document.contains(&heading), "{}: no part '{part}'", topic.name);
            }
            assert!(blocks(&topic.markdown()).len() > 3, "{}", topic.name);
        }
    }

    #[test]
    fn no_line_of_a_topic_is_wider_than_a_terminal_of_100_columns() {
        for topic in &TOPICS {
            let in_code = |line: &&str| line.starts_with("    ");
            for line in plain(&blocks(&topic.markdown())).lines().filter(|line| !in_code(line)) {
                assert!(line.chars().count() <= 100, "{}: {line}", topic.name);
                assert!(!line.contains("](") && !line.contains("**"), "{}: {line}", topic.name);
            }
        }
    }

    #[test]
    fn a_man_page_has_no_line_that_the_formatter_would_take_for_a_request() {
        const REQUESTS: [&str; 10] =
            [".TH ", ".SH ", ".SS ", ".PP", ".nf", ".fi", ".IP ", ".RS", ".RE", ".TP"];
        for topic in &TOPICS {
            let text = page(topic, "1");
            for line in text.lines().filter(|line| line.starts_with(['.', '\''])) {
                assert!(REQUESTS.iter().any(|known| line.starts_with(known)), "{line}");
            }
            assert!(text.contains(".SH NAME") && text.contains(".SH SEE ALSO"), "{}", topic.name);
        }
    }
}
