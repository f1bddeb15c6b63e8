//! Messages of a job in words: a line for each rank, and what holds the job up.

use std::fmt::Write;

use crew::{MessagesLimit, RankMessages};
use units::{count_of, printable, show_count, show_seconds, show_share};

use crate::verdict_text::wrapped;

/// Ranks that the table lists; the others are summed up.
const SHOWN_MAX: usize = 32;

/// `4 ranks on 2 hosts, 1.20 s`: how many, and the time that the reports are about.
pub(crate) fn heading(ranks: &[RankMessages]) -> String {
    let mut hosts: Vec<&str> = ranks.iter().map(|rank| rank.host.as_str()).collect();
    hosts.sort_unstable();
    hosts.dedup();
    let longest_ns = ranks.iter().map(|rank| rank.ran_ns).max().unwrap_or(0);
    format!(
        "{} on {}, {}",
        count_of(ranks.len() as u64, "rank"),
        count_of(hosts.len() as u64, "host"),
        show_seconds(longest_ns as f64 / 1e9),
    )
}

/// A line for each rank, below the names of the columns.
pub(crate) fn table(out: &mut String, ranks: &[RankMessages]) -> std::fmt::Result {
    let mut table = String::new();
    writeln!(
        table,
        "{:<12} {:<12} {:>7} {:>7}  {:<18} {:>8} {:>8} {:>9} {:>10}",
        "",
        "host",
        "no core",
        "waited",
        "longest for",
        "packets",
        "resent",
        "in memory",
        "unexpected"
    )?;
    for rank in ranks.iter().take(SHOWN_MAX) {
        let memory = rank.memory_pkts as f64 / rank.sent_pkts.max(1) as f64;
        writeln!(
            table,
            "{:<12} {:<12} {:>7} {:>7}  {:<18} {:>8} {:>8} {:>9} {:>10}",
            name(rank),
            printable(&rank.host),
            show_share(rank.queued_share()),
            show_share(rank.waited_share()),
            longest_for(rank, ranks),
            show_count(rank.sent_pkts as f64),
            show_share(rank.repeated_share()),
            show_share(memory.min(1.0)),
            show_count(rank.unexpected_messages as f64),
        )?;
    }
    *out += &crate::tables::fit(&table);
    if ranks.len() > SHOWN_MAX {
        writeln!(out, "and {} more: --json", ranks.len() - SHOWN_MAX)?;
    }
    let sum = |of: fn(&RankMessages) -> u64| ranks.iter().map(of).fold(0, u64::saturating_add);
    let by_card = sum(|rank| rank.xdp_pkts);
    if by_card > 0 {
        let share = by_card as f64 / sum(|rank| rank.sent_pkts).max(1) as f64;
        writeln!(out, "{} of the packets were sent by AF_XDP", show_share(share.min(1.0)))?;
    }
    Ok(())
}

/// What holds the job up, and what to look at next.
pub(crate) fn verdict(
    out: &mut String,
    limit: MessagesLimit,
    ranks: &[RankMessages],
) -> std::fmt::Result {
    let (verdict, next) = words(limit, ranks);
    wrapped(out, "Verdict  ", &verdict)?;
    wrapped(out, "Next     ", &next)
}

/// `rank 3`, or its address where no launcher gave it a number.
pub(crate) fn name(rank: &RankMessages) -> String {
    match rank.rank {
        Some(number) => format!("rank {number}"),
        None => printable(&rank.address).into_owned(),
    }
}

fn longest_for(rank: &RankMessages, ranks: &[RankMessages]) -> String {
    let Some(longest) = rank.waited.iter().max_by_key(|one| one.ns) else { return "-".to_owned() };
    let peer = ranks.iter().find(|one| one.address == longest.peer);
    let peer = peer.map_or_else(|| printable(&longest.peer).into_owned(), name);
    let share = longest.ns as f64 / rank.ran_ns.max(1) as f64;
    format!("{peer}, {}", show_share(share.min(1.0)))
}

fn words(limit: MessagesLimit, ranks: &[RankMessages]) -> (String, String) {
    match limit {
        MessagesLimit::TooShort { longest_ns } => (
            format!(
                "too short to tell: the ranks ran for only {}, much of it startup and shutdown",
                show_seconds(longest_ns as f64 / 1e9)
            ),
            "run longer: shares of the time are meaningful from about one second on".to_owned(),
        ),
        MessagesLimit::Cores { queued_share } => (
            format!(
                "too few cores: the ranks were ready to run and had no core for {} of their time (median)",
                show_share(queued_share)
            ),
            "use fewer ranks than cores (a rank polls while it waits), or stop other programs; \
             `clearstream mpi plan -- LAUNCHER` shows where each rank runs"
                .to_owned(),
        ),
        MessagesLimit::Loss { repeated_share } => (
            format!(
                "packet loss: {} of the packets were retransmitted",
                show_share(repeated_share)
            ),
            "`clearstream path HOST` between two of the hosts shows where packets are lost"
                .to_owned(),
        ),
        MessagesLimit::SlowRank { index, waited_share, own_share, queued_share } => {
            let slow = ranks.get(index).map_or_else(String::new, name);
            let text = format!(
                "{slow} holds the others up: at least half of them waited {} of their time or more for it, or for ranks that \
                 waited for it; it waited {} itself, and had no core for {}",
                show_share(waited_share),
                show_share(own_share),
                show_share(queued_share),
            );
            let next = "compare its core and its share of the work with the others'; \
                        `clearstream mpi plan -- LAUNCHER` shows where each rank runs";
            (text, next.to_owned())
        }
        MessagesLimit::Messages { waited_share, memory_share } => {
            let text = format!(
                "the ranks wait for messages {} of their time (median), and not for one rank in \
                 particular; {} of the packets went through shared memory",
                show_share(waited_share),
                show_share(memory_share),
            );
            let next = "send fewer and larger messages, or overlap communication with computation";
            (text, next.to_owned())
        }
        MessagesLimit::Computing { waited_share } => {
            let text = format!(
                "the ranks compute: they waited for messages {} of their time (median)",
                show_share(waited_share),
            );
            let next = "faster messages could save at most that share";
            (text, next.to_owned())
        }
    }
}
