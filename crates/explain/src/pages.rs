//! Generates the documentation of the limits from the table that the diagnosis uses.

use std::fmt::Write;

use crate::mechanism::TABLE;

/// The text of `docs/limits.md`, in Markdown: every limit with its mechanism, evidence, experiment and advice.
#[must_use]
pub fn limits_page() -> String {
    let mut page = String::from(PREFACE);
    for mechanism in TABLE {
        let (name, about) = (mechanism.limit().name(), mechanism.page());
        let rows = [
            ("Mechanism", about.mechanism),
            ("Evidence", about.evidence),
            ("Against it", about.against),
            ("Experiment", about.experiment),
            ("Ceiling", about.ceiling),
            ("Advice", about.advice),
        ];
        write!(page, "\n## `{name}`: {}\n\n| | |\n|---|---|\n", about.title).ok();
        for (row, text) in rows {
            writeln!(page, "| {row} | {text} |").ok();
        }
    }
    page + CODA
        + crate::datagrams::PAGE
        + crate::round_trips::PAGE
        + crate::stuck::PAGE
        + &crate::files::pages()
        + &crate::thresholds::page()
}

const PREFACE: &str = "\
# The limits

The verdict of `clearstream path` (`.verdict.limit`) is one of the limits on this page, with the end at which it lies. An
experiment that changes only this limit then tries to refute the verdict. Every limit is scored from 0 to 1 by how well the
measured figures fit its mechanism. Limits with a score of at least 0.35 are candidates: the one with the highest score is tested first; if it is
refuted, the next one is tested, up to three. Without candidates, the limit with the highest score is tested if that is at least 0.2, and
named only if its experiment confirms it. Figures that were not measured are not used. This page is generated from
the program's table of limits, and a test compares the two.

Three rules apply to all limits:

- *The stage that never sleeps is the slowest.* A thread that always runs, or waits for its core, finds
  its socket ready every time, so everything else waits for that thread. A busy core alone proves nothing.
- *TCP records why it waits.* The kernel counts the time during which a connection was limited by the
  receiver's window and by the send buffer. The rest of the time, the congestion window, the path or a core was the
  limit.
- *A queue looks like a window.* If packets wait in a queue on the path, every window is full and
  throughput equals window / RTT at any rate. Windows are therefore judged by the round-trip time of the idle path.

An experiment has one of three outcomes:

- *confirmed*: the measurement is what the limit predicts, and every rival predicted something else, for this experiment or
  for an earlier one whose outcome was as predicted;
- *refuted*: the measurement lies outside the range that the limit predicts;
- *inconclusive*: the change was not made, the noise is larger than its effect, a rival predicts the same, or something else
  that the limit predicts was not observed: a smaller window is not full, less data in flight gives more retransmissions, marks
  go away with a congestion control that ignores them, the receiving host drops the datagrams that a rate should drop, the
  threads of a full core sleep afterwards, or a change that should have helped did harm. The outcome is also inconclusive if
  throughput is lower with a larger buffer because another window, which had room before, is full.

A rival is another limit whose score is at least half of the first candidate's (a third, if no limit reaches 0.35 and the most
likely one is tested nevertheless). Of a limit's experiments, those that exclude the most rivals run first. If a rival remains,
the verdict names both. A limit that could not be seen is a rival, too: a policer of a rate limiter where packets were lost and
neither end tells round trips under load, the send buffer of the congestion window where the sender tells nothing. The
prediction is stored with each point before it is measured (`varied.predicted_…` in the results), and the verdict holds its
bounds, the measurement, and what the rival predicted.

A gain counts if it is larger than 4% and larger than the spread of the repeats before and after.
";

const CODA: &str = "
## `none-found`: nothing measured explains the figure

No limit reaches a score of 0.35, or experiments refuted all limits that did. The verdict then lists each
limit with the reason why it was ruled out, and names none.
";
