//! The sections of a man page that clap does not generate.

use std::fmt::Write;

use crate::topics::{Block, SCHEMA, TOPICS, Topic, blocks, escaped};

/// Files of a verb, by the prefix of its page's name, with descriptions.
const FILES: [(&str, &[(&str, &str)]); 9] = [
    (
        "clearstream-path",
        &[
            ("results.json", "the results; see clearstream-results(5); -o names another"),
            (
                "results.json.journal",
                "the points of a run that was cut short; the same command resumes it",
            ),
            ("report.html", "the report; --report names another"),
        ],
    ),
    (
        "clearstream-test",
        &[("FILE.journal", "with -o FILE and --repeat: the runs of a test that was cut short")],
    ),
    (
        "clearstream-place",
        &[
            ("placement.json", "the results; -o names another"),
            (
                "placement.toml",
                "the placement, for `run --place` and `test --place`; --save names another",
            ),
        ],
    ),
    (
        "clearstream-tune",
        &[
            ("/var/lib/clearstream/tune", "the journal of changes, for root"),
            (
                "$XDG_STATE_HOME/clearstream/tune",
                "the same for other users (~/.local/state if unset)",
            ),
        ],
    ),
    (
        "clearstream-gateway",
        &[(
            "/var/lib/clearstream/gateway",
            "the journal of changes; in a lab, the lab's own folder",
        )],
    ),
    (
        "clearstream-lab",
        &[
            (
                "/run/clearstream/labs/NAME",
                "a lab that is up, for root: its plan, counters, logs and sockets",
            ),
            ("$XDG_RUNTIME_DIR/clearstream/labs/NAME", "the same for other users"),
            (
                "NAME/HOST.out",
                "in the lab's folder: output of programs started with `lab exec --detach`",
            ),
        ],
    ),
    ("clearstream-switch", SWITCH_FILES),
    ("clearstream-port", SWITCH_FILES),
    ("clearstream-link", SWITCH_FILES),
];

const SWITCH_FILES: &[(&str, &str)] = &[
    ("$CLEARSTREAM_SWITCH", "the switch's socket, if set"),
    ("$XDG_RUNTIME_DIR/clearstream-switch.sock", "the socket if $CLEARSTREAM_SWITCH is not set"),
    ("/run/clearstream-switch.sock", "the socket if neither variable is set"),
];

/// Environment variables of a verb, by the prefix of its page's name, with descriptions.
const ENVIRONMENT: [(&str, &[(&str, &str)]); 11] = [
    ("clearstream-switch", SWITCH_VARIABLES),
    ("clearstream-port", SWITCH_VARIABLES),
    ("clearstream-link", SWITCH_VARIABLES),
    ("clearstream-pkt", SWITCH_VARIABLES),
    ("clearstream-netmap", SWITCH_VARIABLES),
    (
        "clearstream-vm",
        &[
            ("CLEARSTREAM_GUEST", "folder of the guest image"),
            ("GUEST_KERNEL", "`vm image`: the kernel release to fetch"),
            ("CLEARSTREAM_SWITCH", "the switch's socket"),
            ("XDG_RUNTIME_DIR", "folder of the sockets of users other than root"),
            ("XDG_CACHE_HOME", "folder of the image if CLEARSTREAM_GUEST is not set"),
        ],
    ),
    (
        "clearstream-lab",
        &[
            ("XDG_RUNTIME_DIR", "folder of the state of labs of users other than root"),
            ("TMPDIR", "the same if XDG_RUNTIME_DIR is not usable"),
            (
                "CLEARSTREAM_LAB, CLEARSTREAM_LAB_DIR",
                "set for programs that run in a lab: its name and its folder",
            ),
        ],
    ),
    (
        "clearstream-tune",
        &[("XDG_STATE_HOME", "folder of the journal of users other than root [~/.local/state]")],
    ),
    (
        "clearstream-mpi",
        &[
            (
                "FI_CLEARSTREAM_STOPPED_S",
                "seconds after which a stopped rank counts as failed [60]; \
                 clearstream-mpi-jobs(7) describes the variables that this command sets",
            ),
            ("CLEARSTREAM_SWITCH", "with --port: the switch's socket"),
        ],
    ),
    (
        "clearstream-serve",
        &[("LISTEN_FDS, LISTEN_PID", "sockets passed by systemd; see sd_listen_fds(3)")],
    ),
    ("clearstream-live", &[("NO_COLOR", "with --tui: if set and not empty, no colours")]),
];

const SWITCH_VARIABLES: &[(&str, &str)] = &[
    ("CLEARSTREAM_SWITCH", "the switch's socket"),
    ("XDG_RUNTIME_DIR", "folder of the socket of users other than root"),
];

/// Pages that a verb's page refers to, by the prefix of its name.
const SEE_ALSO: [(&str, &str); 25] = [
    (
        "clearstream-path",
        "clearstream-explain(1) clearstream-compare(1) clearstream-report(1) clearstream-tune(1) \
         clearstream-results(5) clearstream-gates(7) clearstream-limits(7)",
    ),
    ("clearstream-place", "clearstream-run(1) clearstream-test(1) clearstream-topo(1) taskset(1)"),
    ("clearstream-run", "clearstream-place(1) taskset(1)"),
    (
        "clearstream-explain",
        "clearstream-path(1) clearstream-compare(1) clearstream-results(5) clearstream-limits(7) \
         clearstream-recordings(7) clearstream-symptoms(7)",
    ),
    (
        "clearstream-compare",
        "clearstream-path(1) clearstream-test(1) clearstream-results(5) clearstream-gates(7)",
    ),
    (
        "clearstream-test",
        "clearstream-serve(1) clearstream-place(1) clearstream-compare(1) iperf3(1) \
         clearstream-results(5) clearstream-gates(7)",
    ),
    (
        "clearstream-serve",
        "clearstream-path(1) clearstream-test(1) clearstream-tune(1) iperf3(1) systemd.socket(5)",
    ),
    ("clearstream-live", "clearstream-mpi(1) clearstream-serve(1) clearstream-topo(1) ss(8)"),
    ("clearstream-topo", "clearstream-live(1) clearstream-place(1) ethtool(8)"),
    (
        "clearstream-switch",
        "clearstream-link(1) clearstream-netmap(1) clearstream-pkt(1) clearstream-port(1) \
         clearstream-vm(1)",
    ),
    (
        "clearstream-port",
        "clearstream-link(1) clearstream-pkt(1) clearstream-switch(1) clearstream-vm(1)",
    ),
    ("clearstream-link", "clearstream-lab(1) clearstream-port(1) clearstream-switch(1)"),
    (
        "clearstream-vm",
        "clearstream-port(1) clearstream-switch(1) clearstream-lab-file(5) clearstream-guests(7)",
    ),
    ("clearstream-pkt", "clearstream-link(1) clearstream-port(1) clearstream-switch(1)"),
    (
        "clearstream-netmap",
        "clearstream-port(1) clearstream-switch(1) clearstream-netmap-programs(7)",
    ),
    (
        "clearstream-mpi",
        "clearstream-explain(1) clearstream-live(1) clearstream-tune(1) mpirun(1) \
         clearstream-mpi-jobs(7)",
    ),
    (
        "clearstream-lab",
        "clearstream-gateway(1) clearstream-vm(1) clearstream-lab-file(5) network_namespaces(7)",
    ),
    ("clearstream-reproduce", "clearstream-lab(1) clearstream-report(1) clearstream-results(5)"),
    (
        "clearstream-gateway",
        "clearstream-lab(1) clearstream-plan-file(5) clearstream-gateways(7) ip-nexthop(8) \
         ip-route(8)",
    ),
    (
        "clearstream-check",
        "clearstream-report(1) mpirun(1) clearstream-checking(7) clearstream-checking-tutorial(7) \
         clearstream-dve(7)",
    ),
    (
        "clearstream-io",
        "clearstream-compare(1) clearstream-meta(1) clearstream-report(1) mpirun(1) \
         clearstream-file-load(7) clearstream-gates(7)",
    ),
    (
        "clearstream-meta",
        "clearstream-compare(1) clearstream-io(1) clearstream-report(1) mpirun(1) \
         clearstream-file-load(7) clearstream-gates(7)",
    ),
    (
        "clearstream-report",
        "clearstream-compare(1) clearstream-path(1) clearstream-results(5) \
         clearstream-recordings(7)",
    ),
    (
        "clearstream-tune",
        "clearstream-path(1) clearstream-limits(7) clearstream-tuning(7) ethtool(8) sysctl(8) tc(8)",
    ),
    ("clearstream-iperf3", "clearstream-serve(1) clearstream-test(1) iperf3(1)"),
];

/// The section TOPICS of the program's own page and of `help`; empty for all others.
pub(super) fn topics(name: &str) -> String {
    if !["clearstream", "clearstream-help"].contains(&name) {
        return String::new();
    }
    let mut text = ".SH TOPICS\n`clearstream help TOPIC` prints one of these:\n".to_owned();
    for topic in &TOPICS {
        let about = escaped(&topic.about.replace('`', ""));
        writeln!(text, ".TP\n\\fB{}\\fR\n{about}", escaped(topic.name)).ok();
    }
    let schema = "JSON Schema of results files";
    writeln!(text, ".TP\n\\fB{SCHEMA}\\fR\n{schema}").ok();
    text
}

/// The section EXIT STATUS: the rows of the topic `exit-codes` that concern the command, one paragraph per code.
pub(super) fn exit_status(name: &str) -> String {
    let document = Topic::named("exit-codes").map(Topic::markdown).unwrap_or_default();
    let tables = blocks(&document).into_iter().filter_map(|block| match block {
        Block::Table(rows) => Some(rows),
        _ => None,
    });
    let rows = tables.flat_map(|rows| rows.into_iter().skip(1));
    let mut meanings: Vec<(String, String)> = Vec::new();
    for row in rows.filter(|row| row.len() == 3 && concerns(&row[1], name)) {
        let meaning = row[2].replace('`', "");
        match meanings.iter_mut().find(|(code, _)| *code == row[0]) {
            Some((_, text)) => {
                text.push(' ');
                text.push_str(&meaning);
            }
            None => meanings.push((row[0].clone(), meaning)),
        }
    }
    described("\"EXIT STATUS\"", "B", meanings.iter().map(|(code, text)| (&**code, &**text)))
}

/// A section of terms, in the given font, with descriptions; empty without any.
fn described<'a>(
    section: &str,
    font: &str,
    entries: impl Iterator<Item = (&'a str, &'a str)>,
) -> String {
    let mut text = String::new();
    for (term, what) in entries {
        // Writing to a String cannot fail.
        let (term, what) = (escaped(term), escaped(&what.replace('`', "")));
        writeln!(text, ".TP\n\\f{font}{term}\\fR\n{what}").ok();
    }
    if text.is_empty() { text } else { format!(".SH {section}\n{text}") }
}

/// Whether a row for the commands `` `lab exec`, `run` ``, or for all commands, belongs on the page `name`.
fn concerns(commands: &str, name: &str) -> bool {
    let mut named = commands.split(',').map(|one| one.trim().trim_matches('`').replace(' ', "-"));
    commands == "all" || named.any(|one| name == format!("clearstream-{one}"))
}

/// The section FILES, if the command has any.
pub(super) fn files(name: &str) -> String {
    described("FILES", "I", of_verb(&FILES, name))
}

/// The section ENVIRONMENT, if variables affect the command.
pub(super) fn environment(name: &str) -> String {
    described("ENVIRONMENT", "B", of_verb(&ENVIRONMENT, name))
}

/// The entries of a table for the verb whose page, or an action's page, is `name`.
fn of_verb(
    table: &[(&str, &'static [(&'static str, &'static str)])],
    name: &str,
) -> impl Iterator<Item = (&'static str, &'static str)> {
    let entries = table.iter().find(|(verb, _)| is_of(name, verb)).map(|(_, entries)| *entries);
    entries.unwrap_or_default().iter().copied()
}

/// The section SEE ALSO: the command above, its own actions, related pages, and the topics.
pub(super) fn see_also(name: &str, actions: &[String]) -> String {
    let above = name.rsplit_once('-').map(|(above, _)| format!("{above}(1)"));
    let mut pages: Vec<String> = above.into_iter().collect();
    if !pages.is_empty() && pages[0] != "clearstream(1)" {
        pages.push("clearstream(1)".to_owned());
    }
    pages.extend(actions.iter().map(|action| format!("{action}(1)")));
    if let Some((_, related)) = SEE_ALSO.iter().find(|(verb, _)| is_of(name, verb)) {
        pages.extend(related.split_whitespace().map(str::to_owned));
    }
    let all = TOPICS.iter().filter(|topic| name == "clearstream" || topic.name == "exit-codes");
    pages.extend(all.map(|topic| format!("{}({})", topic.page_name(), topic.section)));
    format!(".SH \"SEE ALSO\"\n{}\n", escaped(&pages.join(", ")))
}

/// The verbs whose pages refer to a topic's page.
pub(super) fn verbs_of(topic: &Topic) -> Vec<String> {
    let page = format!("{}({})", topic.page_name(), topic.section);
    let refers = |related: &str| related.split_whitespace().any(|one| one == page);
    SEE_ALSO
        .iter()
        .filter(|(_, related)| refers(related))
        .map(|(verb, _)| format!("{verb}(1)"))
        .collect()
}

/// Whether `name` is the page of a verb or of one of its actions.
fn is_of(name: &str, verb: &str) -> bool {
    name.strip_prefix(verb).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_the_exit_codes_of_its_command_alone() {
        assert!(exit_status("clearstream-check").contains("Undecided"));
        assert!(!exit_status("clearstream-test").contains("Undecided"));
        assert!(exit_status("clearstream-lab-exec").contains("as in shells"));
        assert!(exit_status("clearstream-serve").contains("without a limit of its own"));
        assert!(!exit_status("clearstream-test").contains("without a limit of its own"));
        assert!(exit_status("clearstream-test").contains("\\fB4\\fR\nA privilege"));
    }

    #[test]
    fn every_topic_that_a_page_refers_to_exists() {
        let known = |page: &str| {
            TOPICS.iter().any(|topic| page == format!("{}({})", topic.page_name(), topic.section))
        };
        for (verb, pages) in SEE_ALSO {
            let ours = pages.split_whitespace().filter(|page| page.starts_with("clearstream-"));
            for page in ours.filter(|page| !page.ends_with("(1)")) {
                assert!(known(page), "{verb}: {page}");
            }
        }
    }

    #[test]
    fn a_topics_page_refers_to_the_verbs_that_refer_to_it() {
        let dve = Topic::named("dve").expect("a topic");
        assert_eq!(verbs_of(dve), ["clearstream-check(1)"]);
        let see_also = see_also("clearstream-lab-exec", &[]);
        assert!(see_also.contains("clearstream\\-lab(1), clearstream(1)"), "{see_also}");
        assert!(environment("clearstream-port-add").contains("CLEARSTREAM_SWITCH"));
        assert_eq!(environment("clearstream-report"), "");
    }
}
