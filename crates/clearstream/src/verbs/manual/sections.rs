//! The sections of a man page that clap does not generate.

use std::fmt::Write;

use crate::topics::{Block, TOPICS, Topic, blocks, escaped};

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

/// Foreign pages that a verb's page refers to, by the prefix of its name.
const SEE_ALSO: [(&str, &[&str]); 15] = [
    (
        "clearstream-path",
        &[
            "clearstream-explain(1)",
            "clearstream-report(1)",
            "clearstream-tune(1)",
            "clearstream-limits(7)",
            "clearstream-results(5)",
        ],
    ),
    (
        "clearstream-test",
        &["clearstream-serve(1)", "clearstream-place(1)", "clearstream-results(5)", "iperf3(1)"],
    ),
    ("clearstream-serve", &["clearstream-test(1)", "iperf3(1)", "systemd.socket(5)"]),
    ("clearstream-iperf3", &["clearstream-test(1)", "iperf3(1)"]),
    (
        "clearstream-explain",
        &["clearstream-path(1)", "clearstream-limits(7)", "clearstream-results(5)"],
    ),
    ("clearstream-report", &["clearstream-path(1)", "clearstream-results(5)"]),
    ("clearstream-reproduce", &["clearstream-report(1)", "clearstream-results(5)"]),
    ("clearstream-place", &["clearstream-run(1)", "clearstream-topo(1)", "taskset(1)"]),
    (
        "clearstream-tune",
        &["clearstream-path(1)", "clearstream-limits(7)", "sysctl(8)", "tc(8)", "ethtool(8)"],
    ),
    ("clearstream-gateway", &["clearstream-plan-file(5)", "ip-route(8)", "ip-nexthop(8)"]),
    ("clearstream-lab", &["clearstream-lab-file(5)", "network_namespaces(7)"]),
    ("clearstream-check", &["clearstream-dve(7)", "mpirun(1)"]),
    (
        "clearstream-switch",
        &[
            "clearstream-port(1)",
            "clearstream-link(1)",
            "clearstream-pkt(1)",
            "clearstream-netmap(1)",
        ],
    ),
    ("clearstream-port", &["clearstream-switch(1)", "clearstream-link(1)", "clearstream-pkt(1)"]),
    ("clearstream-live", &["clearstream-topo(1)", "ss(8)"]),
];

/// The section EXIT STATUS: the rows of the topic `exit-codes` that concern the command.
pub(super) fn exit_status(name: &str) -> String {
    let mut text = ".SH \"EXIT STATUS\"\n".to_owned();
    let document = Topic::named("exit-codes").map(Topic::markdown).unwrap_or_default();
    let tables = blocks(&document).into_iter().filter_map(|block| match block {
        Block::Table(rows) => Some(rows),
        _ => None,
    });
    let rows = tables.flat_map(|rows| rows.into_iter().skip(1));
    for row in rows.filter(|row| row.len() == 3 && concerns(&row[1], name)) {
        let meaning = row[2].replace('`', "");
        // Writing to a String cannot fail.
        writeln!(text, ".TP\n\\fB{}\\fR\n{}", escaped(&row[0]), escaped(&meaning)).ok();
    }
    text
}

/// Whether a row for the commands `` `lab exec`, `run` ``, or for all commands, belongs on the page `name`.
fn concerns(commands: &str, name: &str) -> bool {
    let mut named = commands.split(',').map(|one| one.trim().trim_matches('`').replace(' ', "-"));
    commands == "all" || named.any(|one| name == format!("clearstream-{one}"))
}

/// The section FILES, if the command has any.
pub(super) fn files(name: &str) -> String {
    let Some((_, files)) = FILES.iter().find(|(verb, _)| is_of(name, verb)) else {
        return String::new();
    };
    let mut text = ".SH FILES\n".to_owned();
    for (file, what) in *files {
        writeln!(text, ".TP\n\\fI{}\\fR\n{}", escaped(file), escaped(what)).ok();
    }
    text
}

/// The section SEE ALSO: the program, the command's own actions, related pages, and the topics.
pub(super) fn see_also(name: &str, actions: &[String]) -> String {
    let mut pages: Vec<String> = Vec::new();
    if name != "clearstream" {
        pages.push("clearstream(1)".to_owned());
    }
    pages.extend(actions.iter().map(|action| format!("{action}(1)")));
    if let Some((_, related)) = SEE_ALSO.iter().find(|(verb, _)| is_of(name, verb)) {
        pages.extend(related.iter().map(|page| (*page).to_owned()));
    }
    let all = TOPICS.iter().filter(|topic| name == "clearstream" || topic.name == "exit-codes");
    pages.extend(all.map(|topic| format!("{}({})", topic.page_name(), topic.section)));
    format!(".SH \"SEE ALSO\"\n{}\n", escaped(&pages.join(", ")))
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
        assert!(exit_status("clearstream-serve").contains("no end of its own"));
        assert!(!exit_status("clearstream-test").contains("no end of its own"));
        assert!(exit_status("clearstream-test").contains("\\fB4\\fR\nA privilege"));
    }

    #[test]
    fn every_topic_that_a_page_refers_to_exists() {
        let known = |page: &str| {
            TOPICS.iter().any(|topic| page == format!("{}({})", topic.page_name(), topic.section))
        };
        for (verb, pages) in SEE_ALSO {
            let ours = pages.iter().filter(|page| page.starts_with("clearstream-"));
            for page in ours.filter(|page| !page.ends_with("(1)")) {
                assert!(known(page), "{verb}: {page}");
            }
        }
    }
}
