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

`clearstream path` names one of these as the verdict (`.verdict.limit`), with the end it lies at, and
confirms it by an experiment that changes that one thing. Each limit scores the same figures against its
own mechanism, from 0 to 1. Those of 0.35 and more are candidates: the highest score is tested first, and a
refuted one is followed by the next, up to three. Without candidates, the highest score from 0.2 on is tested, and
named only if its experiment confirms it. Figures that were not measured are not used. This page is generated from
the table of limits, and a test compares them.

Three rules apply to all of them:

- *The stage that never sleeps is the slowest.* A thread that always runs, or waits for its core, finds
  its socket ready every time: everything else waits for it. A busy core alone proves nothing.
- *TCP accounts for its waiting.* The kernel accounts for the time a connection spent limited by the
  receiver's window and by the send buffer; what neither explains is the congestion window's, the
  path's or a core's.
- *A queue looks like a window.* Where a queue stands on the path, every window is full and
  window / RTT holds at any rate. So windows are judged by the round trip of the idle path.

An experiment says one of three words:

- *confirmed*: what came is what the limit predicts, and every rival predicts otherwise for it or for an earlier experiment
  that came as predicted;
- *refuted*: what came lies outside of what the limit predicts;
- *inconclusive*: the change was not made, the noise is larger than its effect, a rival predicts the
  same, or something else that the limit predicts failed: a smaller window that is not full, more
  retransmissions with less in flight, threads of a full core that sleep afterwards, a change that should have helped and did harm.

A rival is another limit with at least half of the first candidate's weight; where no limit reaches 0.35 and the likeliest
is only tried, any with a third of its weight. Of a limit's experiments, those that exclude most rivals run first. Where a
rival is left, the verdict names both. The prediction is stored with each point before it is measured
(`varied.predicted_…` of results), and the verdict holds its bounds, what came, and what the rival predicted.

A gain counts when it is larger than the spread of the repeats before and after, and than 4%.
";

const CODA: &str = "
## `none-found`: nothing measured explains the figure

No limit reaches a weight of 0.35, or experiments refuted all that did. The verdict lists each
limit with the reason it was ruled out. No limit is reported for an unexplained path.
";
