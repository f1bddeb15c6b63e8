//! The text of `clearstream help TOPIC` and of the man pages in sections 5 and 7: documents of this
//! repository, in which links to other topics name the command that prints them.

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
    /// The document's file name in `docs`.
    file: &'static str,
    document: &'static str,
    /// Headings of the document's parts that belong to the topic; empty: all parts.
    parts: &'static [&'static str],
}

macro_rules! topic {
    ($name:literal, $section:literal, $file:literal, $parts:expr, $about:literal) => {
        Topic {
            name: $name,
            section: $section,
            about: $about,
            file: $file,
            document: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/", $file)),
            parts: $parts,
        }
    };
}

/// All topics, in the order of the list.
pub(crate) const TOPICS: [Topic; 18] = [
    topic!("exit-codes", 7, "exit-codes.md", &[], "exit codes of every command"),
    topic!(
        "limits",
        7,
        "limits.md",
        &[],
        "the limits that a verdict names: mechanism, evidence, experiment, advice"
    ),
    topic!(
        "symptoms",
        7,
        "symptoms.md",
        &[],
        "what `explain --symptoms` prints: name, unit, source and meaning of each"
    ),
    topic!("glossary", 7, "GLOSSARY.md", &[], "terms used in the output and the documents"),
    topic!("gates", 7, "compare.md", &[], "required figures, and comparisons of results"),
    topic!(
        "results",
        5,
        "results.md",
        &[],
        "results files: every field (`help schema` prints the JSON Schema)"
    ),
    topic!(
        "recordings",
        7,
        "recordings.md",
        &[],
        "recordings of a connection that `explain` reads"
    ),
    topic!(
        "tuning",
        7,
        "tuning.md",
        &[],
        "which settings are changed, why, and how they are reverted"
    ),
    topic!("lab-file", 5, "lab.md", &[], "lab files: hosts, links and switches on one machine"),
    topic!("plan-file", 5, "gateways.md", &["The plan", "Modes"], "plan files of `gateway`"),
    topic!("gateways", 7, "gateways.md", &[], "routing over many gateways"),
    topic!("guests", 7, "guests.md", &[], "guests on the switch"),
    topic!(
        "netmap-programs",
        7,
        "netmap.md",
        &[],
        "netmap programs on the switch: what is supported"
    ),
    topic!("mpi-jobs", 7, "mpi.md", &[], "MPI programs over plain Ethernet"),
    topic!("file-load", 7, "file-load.md", &[], "file-system load with IOR's and mdtest's options"),
    topic!(
        "checking",
        7,
        "checking.md",
        &[],
        "checking models: verdicts, formulas, large models, many ranks"
    ),
    topic!(
        "checking-tutorial",
        7,
        "tutorial-checking.md",
        &[],
        "from a model to a counterexample and its repair"
    ),
    topic!("dve", 7, "dve.md", &[], "DVE, the modelling language of `check`"),
];

/// The topic whose text is the JSON Schema of results files.
pub(crate) const SCHEMA: &str = "schema";

impl Topic {
    /// The topic with this name.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        TOPICS.iter().find(|topic| topic.name == name)
    }

    /// The topic's document, in Markdown. Who reads a topic need not have the repository: links to other topics' files
    /// become commands.
    pub(crate) fn markdown(&self) -> String {
        let mut text = self.own_parts();
        // A file's whole document comes after the topic that is a part of it.
        for topic in TOPICS.iter().filter(|topic| topic.parts.is_empty()) {
            text = with_command(&text, topic.file, &format!("`clearstream help {}`", topic.name));
        }
        text
    }

    fn own_parts(&self) -> String {
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

/// `text` with `command` in place of links to `file` or a heading in it. A label other than the file's name stays.
fn with_command(text: &str, file: &str, command: &str) -> String {
    let target = format!("]({file}");
    let (mut replaced, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(&target) {
        let (before, after) = (&rest[..at], &rest[at + target.len()..]);
        let link = before.rfind('[').zip(after.find(')'));
        let is_link = after.starts_with([')', '#']);
        let Some((open, close)) = link.filter(|_| is_link) else {
            replaced.push_str(&rest[..at + target.len()]);
            rest = after;
            continue;
        };
        replaced.push_str(&before[..open]);
        let label = &before[open + 1..];
        if label != file {
            replaced.push_str(&format!("{label}, "));
        }
        replaced.push_str(command);
        rest = &after[close + 1..];
    }
    replaced + rest
}

/// The list of topics at the end of `clearstream help`.
pub(crate) fn list() -> String {
    let one = |name: &str, about: &str| format!("  {name:<17} {about}\n");
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
    fn links_to_topics_become_commands() {
        let text =
            "See [dve.md](dve.md), [the rules](dve.md#lexical-rules) and [dve.md.txt](dve.md.txt).";
        assert_eq!(
            with_command(text, "dve.md", "`x`"),
            "See `x`, the rules, `x` and [dve.md.txt](dve.md.txt)."
        );
        let dve = Topic::named("dve").map(Topic::markdown).unwrap_or_default();
        assert!(!dve.contains("checking.md"), "{dve}");
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
            let text = page(topic, "1", &[]);
            for line in text.lines().filter(|line| line.starts_with(['.', '\''])) {
                assert!(REQUESTS.iter().any(|known| line.starts_with(known)), "{line}");
            }
            assert!(text.contains(".SH NAME") && text.contains(".SH SEE ALSO"), "{}", topic.name);
        }
    }
}
