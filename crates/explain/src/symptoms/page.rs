//! Generates the documentation of the symptoms from the tables that compute them.

use std::fmt::Write;

use super::definition::Definition;
use super::{connection, datagrams, hosts, path, round_trips};

/// The text of `docs/symptoms.md`, in Markdown: every symptom with its unit, source and meaning.
#[must_use]
pub fn symptoms_page() -> String {
    let mut page = String::from(PREFACE);
    for (title, about, definitions) in sections() {
        write!(page, "\n## {title}\n\n{about}\n\n").ok();
        page.push_str("| symptom | unit | meaning, and where it comes from |\n|---|---|---|\n");
        for one in definitions {
            let Definition { name, unit, source, about } = one;
            writeln!(page, "| `{name}` | {} | {about}. From {source} |", unit.name()).ok();
        }
    }
    page
}

/// Every section of the page: its heading, what it is read from, its symptoms.
pub(super) fn sections() -> Vec<(&'static str, &'static str, Vec<Definition>)> {
    let rows = |rows: &[super::definition::Row]| -> Vec<Definition> {
        rows.iter().map(|row| row.definition).collect()
    };
    let mut of_path = rows(path::EACH);
    of_path.extend(path::WHOLE);
    of_path.extend(path::UDP.iter().map(|row| row.definition));
    let mut of_host: Vec<Definition> = hosts::ROWS.iter().map(|row| row.definition).collect();
    of_host.extend(hosts::CORES.iter().map(|row| row.definition));
    let of_trips = round_trips::ROWS.iter().map(|row| row.definition).collect();
    let of_datagrams = datagrams::ROWS.iter().map(|row| row.definition).collect();
    vec![
        (
            "Connection, at the end that sends",
            "Of the TCP test on which the verdict is based, without its first fifth.",
            rows(connection::SENDER),
        ),
        ("Connection, at the end that receives", "Of the same test.", rows(connection::RECEIVER)),
        ("Path", "Of the same test and of others in the same document.", of_path),
        (
            "Near host and far host",
            "The same symptoms for each host, in the TCP test, otherwise in the first test of datagrams or requests. \
             The thread is that of the busiest stream. Of the cores that were busy for a tenth of the time or more, \
             the busiest four are listed, at least one. If both ends run on one machine, cores and softnet counters are \
             those of both.",
            of_host,
        ),
        ("Requests and responses", "Of the first such test in the document.", of_trips),
        ("Datagrams", "For each offered rate, at most the highest eight.", of_datagrams),
        (
            "Datagrams, all rates",
            "Comparisons of the lowest and the highest offered rate of one direction.",
            datagrams::LADDER.to_vec(),
        ),
    ]
}

const PREFACE: &str = "\
# Symptoms

A symptom is a figure of a test by which limits ([limits.md](limits.md)) are distinguished. `clearstream explain FILE --symptoms`
prints the symptoms of a file without a verdict. Each has a name, the median over the repeats of the test, their spread, their number
and the counter from which it is computed. A symptom that cannot be computed from the file is absent, never 0; absent symptoms are listed
below the table, by name if they are few. This page is generated from the table that computes the symptoms, and a
test compares them.

- *spread* is the lowest and the highest repeat; `--json` has the standard deviation too.
- *+-* instead of a spread: there was one repeat, and this is the standard error of its interval samples (their standard
  deviation over the square root of their number). Successive samples of TCP are correlated, which is ignored, so the
  true error is larger. It does not say how much repeats would differ.
- `littles-law-ratio` checks the measurement itself: throughput times round-trip time must equal the data in flight. If the ratio
  deviates from 1 by more than a quarter and by more than 3 times its uncertainty, a line says so, and windows and fill ratios of
  that file are unreliable. In files of iperf3 this symptom is absent, because they do not record the data in flight.

Units: `share` is 0 to 1 and printed in percent, `ratio` is a quotient, `count` is packets or events over the measured
time, `per_s` is events per second, `cores` is processor time over elapsed time. Bytes are printed with binary prefixes,
rates with decimal ones.

With `--json`, `.symptoms[]` has the known ones (`name`, `section`, `end`, `offered_bits_per_s`, `unit`, `median`,
`repeats_count`, `spread` or `sampling`, `source`) and `.absent[]` the names of the others by `section` and `end`.
`.contradiction` is there where Little's law fails. `.schema_version` is that of results files.

Recordings of other programs give fewer symptoms; the source then names the program. Their symptoms are computed from the same figures
([recordings.md](recordings.md)).
";
