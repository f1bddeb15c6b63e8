use super::*;
use crate::io::options::CommandLine;
use crate::io::summary::{Access, RankTimes};

/// What IOR 4.1.0+dev printed for two tasks on one host; times differ from run to run.
const REFERENCE: &str = include_str!("../../../tests/data/ior.txt");

fn case() -> (IoOptions, Placement) {
    let words = "-a POSIX -F -i 2 -b 4m -t 1m -C -g -e -o /dev/shm/io-ref/f";
    let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
    let mut line = CommandLine::parse(&words).expect("options");
    line.settle().expect("a test");
    let place = Placement { tasks: 2, nodes: 1, tasks_on_first_node: 2, is_by_slot: true };
    (line.tests.remove(0), place)
}

fn measured() -> Measured {
    let rank = RankTimes {
        open: (0.0, 0.006_820),
        transfer: (0.006_82, 0.017_928),
        close: (0.017_944, 0.023_199),
        moved_bytes: 8 << 20,
        file_bytes: 8 << 20,
        transfers: 8,
    };
    Measured::reduce((Access::Write, 0), &[rank], 1 << 20, true)
}

#[test]
fn options_and_head_are_those_of_the_reference() {
    let (options, place) = case();
    let head = head(
        &Head {
            began: "Sun Nov 22 20:35:47 2026".to_owned(),
            command: "ior -a POSIX -F -i 2 -b 4m -t 1m -C -g -e -o /dev/shm/io-ref/f".to_owned(),
            machine: "Linux node1".to_owned(),
        },
        "4.1.0+dev",
    );
    let capacity = Capacity {
        bytes: 23.5 * (1_u64 << 30) as f64,
        free_bytes: 23.5 * (1_u64 << 30) as f64,
        inodes: 2.9 * MIB,
        free_inodes: 2.9 * MIB,
    };
    let started = "Sun Nov 22 20:35:47 2026";
    let start = test_start(0, started, ("/dev/shm/io-ref/f.00000000", Some(&capacity)));
    let ours = head + &start + &setup(&options, &place) + TABLE_HEAD;
    assert!(REFERENCE.starts_with(&ours), "{ours}\n--- reference:\n{REFERENCE}");
}

#[test]
fn rows_have_the_columns_of_the_reference() {
    let (options, _) = case();
    let row = row(&options, &measured());
    let reference = REFERENCE.lines().find(|line| line.starts_with("write")).expect("a row");
    assert_eq!(row.trim_end_matches('\n').len(), reference.len());
    let columns = |line: &str| -> Vec<usize> {
        let bytes = line.as_bytes();
        let begins = |&at: &usize| bytes[at] != b' ' && (at == 0 || bytes[at - 1] == b' ');
        (0..bytes.len()).filter(begins).collect()
    };
    assert_eq!(columns(row.trim_end()), columns(reference));
    assert!(row.starts_with("write     344.84     720.20"), "{row}");
    assert!(
        row.contains("4096       1024.00    0.006820   0.011108   0.005255   0.023199"),
        "{row}"
    );
}

#[test]
fn summary_lines_have_the_columns_of_the_reference() {
    let (options, place) = case();
    let one = measured();
    let summary = Summary::of(&[&one, &one], 1 << 20).expect("repetitions");
    let ours = summary_row("write", (0, &options, &place), &summary);
    let at = REFERENCE.find("Summary of all tests:").expect("a summary");
    let mut reference = REFERENCE[at..].lines().skip(1);
    assert_eq!(Some(summary_head().trim_matches('\n')), reference.next());
    let reference = reference.next().expect("a line");
    let ends = |line: &str| -> Vec<usize> {
        let bytes = line.as_bytes();
        let is_end =
            |&at: &usize| bytes[at] != b' ' && bytes.get(at + 1).is_none_or(|&b| b == b' ');
        (0..bytes.len()).filter(is_end).collect()
    };
    assert_eq!(ends(ours.trim_end()), ends(reference), "\n{ours}{reference}");
}

#[test]
fn numbers_are_those_of_c() {
    let shown = [
        (0.319_612_979_89, "3.1961297989e-01"),
        (131_230_715.39, "1.3123071539e+08"),
        (0.0, "0.0000000000e+00"),
        (1e100, "1.0000000000e+100"),
    ];
    for (value, text) in shown {
        assert_eq!(scientific(value), text);
    }
    assert_eq!(number(256_333.4, "|"), "256333    |");
    assert_eq!(number(-1.0, "|"), "   -      |");
    let removal = removal_row(0.5, 3);
    assert_eq!(removal.len(), row(&case().0, &measured()).len());
    assert!(removal.ends_with("-          0.500000   3   \n"), "{removal}");
}

#[test]
fn a_file_system_without_room_is_not_used_by_a_share_that_is_no_number() {
    let line = Capacity::default().line();
    assert!(line.ends_with("Used FS: 0.0%   Inodes: 0.0 Mi   Used Inodes: 0.0%"), "{line}");
    let half = Capacity { bytes: 8.0, free_bytes: 4.0, inodes: 2.0, free_inodes: 2.0 };
    assert!(half.line().contains("Used FS: 50.0% "), "{}", half.line());
}

#[test]
fn times_of_calls_have_units_and_unknown_percentiles_are_left_out() {
    let points = [("min", Some(4.56e-7)), ("p50", Some(12e-6)), ("p99", None), ("max", Some(1.5))];
    assert_eq!(call_times(&points), ", min 456 ns, p50 12.0 us, max 1.50 s");
}
