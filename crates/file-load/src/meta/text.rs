//! mdtest's tables, column by column: people's scripts read them.

use crate::io::text::{call_times, exponent, scientific};
use crate::meta::options::MetaOptions;
use crate::meta::shape::Shape;
use crate::meta::summary::{Iteration, PHASES, Phase, summarise};

/// The first lines of the output.
#[must_use]
pub fn head(
    (started, version, command): (&str, &str, &str),
    (tasks, nodes): (u64, u64),
    node_map: &[bool],
) -> String {
    let map: String = node_map.iter().map(|is_first| if *is_first { '1' } else { '0' }).collect();
    format!(
        "-- started at {started} --\n\nmdtest-{version} was launched with {tasks} total task(s) on \
         {nodes} node(s)\nCommand line used: {command}\nNodemap: {map}\n"
    )
}

/// A command line as mdtest repeats it: each word in quotes.
#[must_use]
pub fn quoted(program: &str, words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|word| format!(" '{word}'")).collect();
    format!("{program}{}", words.concat())
}

/// How much there is to do: `2 tasks, 40 files/directories`.
#[must_use]
pub fn amount(options: &MetaOptions, shape: &Shape, tasks: u64) -> String {
    let items = shape.all_items().saturating_mul(tasks);
    match (options.files_only, options.directories_only) {
        (true, true) => format!("{tasks} tasks, {items} files/directories\n"),
        (true, false) if options.is_shared => format!("{tasks} tasks, 1 file\n"),
        (true, false) => format!("{tasks} tasks, {items} files\n"),
        (false, true) => format!("{tasks} tasks, {items} directories\n"),
        (false, false) => String::new(),
    }
}

/// The last lines of the output.
#[must_use]
pub fn end(finished: &str) -> String {
    format!("-- finished at {finished} --\n\n")
}

/// Said when the ranks go on to where the fastest was.
#[must_use]
pub fn stonewall_line(min: u64, max: u64, mean: f64) -> String {
    format!("Continue stonewall hit min: {min} max: {max} avg: {mean:.1} \n\n")
}

/// The summaries that the options ask for.
#[must_use]
pub fn summaries(options: &MetaOptions, iterations: &[Iteration]) -> String {
    if options.prints_both {
        return summary(options, iterations, false) + &summary(options, iterations, true);
    }
    summary(options, iterations, options.prints_times)
}

/// The phases of the table, without those of the tree: by what there is, files, directories or both.
fn shown(options: &MetaOptions) -> impl Iterator<Item = Phase> {
    let files = options.files_only;
    let directories = options.directories_only;
    PHASES.into_iter().filter(move |phase| {
        let is_of_files = *phase >= Phase::FileCreation;
        !phase.is_of_tree() && if is_of_files { files } else { directories }
    })
}

fn summary(options: &MetaOptions, iterations: &[Iteration], is_time: bool) -> String {
    let mut text = String::new();
    if options.prints_all_ranks {
        text += &all_ranks(options, iterations, is_time);
    }
    let what = if is_time { "time (in ms/op)" } else { "rate (in ops/sec)" };
    text += &format!("\nSUMMARY {what}: (of {} iterations)\n", iterations.len());
    let has_ranks = options.shows_rank_statistics;
    text += "   Operation     ";
    text += if has_ranks {
        "per Rank: Max            Min           Mean      per Iteration:"
    } else {
        "               "
    };
    text += " Max            Min           Mean        Std Dev\n   ---------      ";
    if has_ranks {
        text += "         ---            ---           ----       ";
    }
    text += "               ---            ---           ----        -------\n";
    for phase in shown(options).filter(|phase| *phase != Phase::DirectoryRead) {
        text += &row(iterations, phase, (is_time, has_ranks), 18, "    ");
    }
    for phase in [Phase::TreeCreation, Phase::TreeRemoval] {
        text += &row(iterations, phase, (is_time, has_ranks), 22, "");
    }
    text
}

fn row(
    iterations: &[Iteration],
    phase: Phase,
    (is_time, has_ranks): (bool, bool),
    width: usize,
    before: &str,
) -> String {
    let summary = summarise(iterations, phase, is_time);
    let mut text = format!("   {:<width$} ", phase.name());
    if has_ranks {
        for value in [summary.ranks.max, summary.ranks.min, summary.ranks.mean] {
            text += &format!("{value:14.3} ");
        }
        text += "    ";
    }
    text += before;
    let spread = summary.iterations;
    for value in [spread.max, spread.min, spread.mean] {
        text += &format!("{value:14.3} ");
    }
    text + &format!("{:14.3}\n", spread.deviation)
}

/// `--print-all-procs`
fn all_ranks(options: &MetaOptions, iterations: &[Iteration], is_time: bool) -> String {
    let mut text = format!("\nPer process result ({}):\n", if is_time { "time" } else { "rate" });
    for (number, iteration) in iterations.iter().enumerate() {
        text += &format!("iteration: {number}\n");
        for phase in shown(options).chain([Phase::TreeCreation, Phase::TreeRemoval]) {
            let value = |rank: &[crate::meta::summary::RankPhase; 11]| {
                let one = &rank[phase.place()];
                exponent(if is_time { one.own_time_s } else { one.own_rate() }, 6)
            };
            let values: Vec<String> = iteration.ranks.iter().map(value).collect();
            text += &format!("Test {} {}\n", phase.name(), values.join(","));
        }
    }
    text
}

/// The head of the file of ranks' rates (`--saveRankPerformanceDetails`).
#[must_use]
pub fn ranks_head() -> String {
    let names = PHASES.map(|phase| format!(",rate-{0},time-{0}", phase.name()));
    format!("rank,items{}\n", names.concat())
}

/// The rows of one run in the file of ranks' rates: all ranks together, then each rank in each iteration.
#[must_use]
pub fn rank_rows(iterations: &[Iteration], items: u64) -> String {
    let Some(first) = iterations.first() else { return String::new() };
    let pair = |items: u64, time_s: f64| match items {
        0 => ",,".to_owned(),
        _ => format!(",{},{}", scientific(items as f64 / time_s), scientific(time_s)),
    };
    let all = PHASES.map(|phase| pair(first.items(phase), first.time_s(phase)));
    let mut text = format!("all,{items}{}\n", all.concat());
    for iteration in iterations {
        for (rank, phases) in iteration.ranks.iter().enumerate() {
            let of = |phase: Phase| {
                let one = &phases[phase.place()];
                pair(one.items, one.own_time_s)
            };
            let columns = PHASES.into_iter().filter(|phase| !phase.is_of_tree()).map(of);
            text += &format!("{rank},{}\n", columns.collect::<String>());
        }
    }
    text
}

/// The distribution of a phase's calls, over all iterations.
#[must_use]
pub fn latency_line(phase: Phase, iterations: &[Iteration]) -> Option<String> {
    let mut all = stats::LatencyHistogram::default();
    for one in iterations {
        if let Some(histogram) = one.latencies.get(phase.place()) {
            all.merge(histogram);
        }
    }
    let times = [
        ("min", Some(all.min_s()?)),
        ("mean", all.mean_s()),
        ("p50", all.known_percentile_s(50.0)),
        ("p90", all.known_percentile_s(90.0)),
        ("p99", all.known_percentile_s(99.0)),
        ("p99.9", all.known_percentile_s(99.9)),
        ("max", all.max_s()),
    ];
    let times = call_times(&times);
    Some(format!("Latency of {}: {} calls{times}\n", phase.name(), all.count()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::summary::RankPhase;

    /// What mdtest 4.1.0+dev printed for two tasks on one host; rates differ from run to run.
    const REFERENCE: &str = include_str!("../../tests/data/mdtest.txt");

    fn options(line: &str) -> MetaOptions {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        MetaOptions::parse(&words).expect("options")
    }

    fn iteration(time_s: f64) -> Iteration {
        let one = RankPhase { items: 20, time_s, own_time_s: time_s };
        Iteration { ranks: vec![[one; 11]; 2], ..Iteration::default() }
    }

    /// Ends of the words of a line: numbers stand at the right of their columns.
    fn ends(line: &str) -> Vec<usize> {
        let bytes = line.as_bytes();
        let is_end =
            |&at: &usize| bytes[at] != b' ' && bytes.get(at + 1).is_none_or(|&next| next == b' ');
        (0..bytes.len()).filter(is_end).collect()
    }

    #[test]
    fn the_summary_has_the_lines_and_columns_of_the_reference() {
        let ours = summaries(&options("-n 20 -i 2"), &[iteration(0.001), iteration(0.002)]);
        let at = REFERENCE.find("SUMMARY").expect("a summary");
        let reference = REFERENCE[at..].lines().take_while(|line| !line.starts_with("--"));
        let reference: Vec<&str> = reference.collect();
        let ours: Vec<&str> = ours.trim_start_matches('\n').lines().collect();
        assert_eq!(ours.len(), reference.len(), "{ours:#?}");
        assert_eq!(ours[..3], reference[..3]);
        for (ours, reference) in ours.iter().zip(&reference).skip(3) {
            assert_eq!(ours[..22], reference[..22]);
            assert_eq!(ends(ours), ends(reference), "\n{ours}\n{reference}");
        }
        assert!(
            ours[3].starts_with(
                "   Directory creation          40000.000      20000.000      30000.000"
            )
        );
    }

    #[test]
    fn the_head_is_that_of_the_reference() {
        let words = ["-n", "20", "-i", "2", "-d", "/dev/shm/io-ref/md"].map(str::to_owned);
        let command = quoted("mdtest", &words);
        let head = head(("11/22/2026 20:35:50", "4.1.0+dev", &command), (2, 1), &[true, true]);
        let reference = REFERENCE.lines().filter(|line| !line.starts_with("WARNING"));
        let reference: Vec<&str> = reference.collect();
        assert_eq!(head.lines().collect::<Vec<_>>(), reference[..5]);
        let shape = Shape::of(&options("-n 20")).expect("a shape");
        assert_eq!(amount(&options("-n 20"), &shape, 2).trim_end(), reference[7]);
        assert!(REFERENCE.ends_with(&end("11/22/2026 20:35:51")));
    }

    #[test]
    fn only_what_was_run_is_shown() {
        let lines = |line: &str| summaries(&options(line), &[iteration(0.001)]).lines().count();
        assert_eq!((lines("-n 1"), lines("-n 1 -F"), lines("-n 1 -D")), (14, 10, 10));
        assert_eq!(lines("-n 1 -F -P"), 20);
        assert!(
            summaries(&options("-n 1 -Z"), &[iteration(0.001)]).contains("SUMMARY time (in ms/op)")
        );
        let all = summaries(&options("-n 1 -F --print-all-procs"), &[iteration(0.5)]);
        assert!(all.contains("Test File stat 4.000000e+01,4.000000e+01\n"), "{all}");
    }

    #[test]
    fn the_file_of_ranks_has_the_columns_of_the_reference() {
        assert_eq!(ranks_head(), include_str!("../../tests/data/mdtest-ranks.csv"));
        let rows = rank_rows(&[iteration(0.5)], 20);
        let mut lines = rows.lines();
        let all = lines.next().expect("all ranks");
        assert!(all.starts_with("all,20,8.0000000000e+01,5.0000000000e-01,"), "{all}");
        assert_eq!(all.split(',').count(), ranks_head().split(',').count());
        let first = lines.next().expect("rank 0");
        assert!(first.starts_with("0,,4.0000000000e+01,5.0000000000e-01,"), "{first}");
    }
}
