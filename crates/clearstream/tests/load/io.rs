//! Data: the tables, what is verified, stonewalls, JSON, locks.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Folder, job, reference, rows, run};
use crate::PROGRAM;

#[test]
fn one_parser_reads_the_tables_of_both_programs() {
    let folder = Folder::new("tables");
    let line =
        format!("io --threads 2 -a POSIX -F -i 2 -b 4m -t 1m -C -g -e -o {}", folder.at("f"));
    let (code, ours, err) = run(&line);
    assert_eq!(code, Some(0), "{err}");
    let recorded = include_str!("../../../file-load/tests/data/ior.txt");
    for text in [ours.as_str(), recorded] {
        let rows = rows(text);
        let order: Vec<&str> = rows.iter().map(|(access, _)| access.as_str()).collect();
        assert_eq!(order, ["write", "read", "write", "read"], "{text}");
        for (_, columns) in &rows {
            let &[bandwidth, iops, latency, block, transfer, open, moved, close, total, _iter] =
                columns.as_slice()
            else {
                panic!("{columns:?}")
            };
            assert!((block, transfer) == (4096.0, 1024.0) && latency > 0.0 && iops > 0.0);
            assert!(open >= 0.0 && close >= 0.0 && moved > 0.0, "{columns:?}");
            assert!(
                (bandwidth * total / 8.0 - 1.0).abs() < 0.05,
                "8 MiB in the total time: {columns:?}"
            );
        }
    }
    let latency = ours.split("Latency of write iter 1: 8 transfers, min ").nth(1).expect("a line");
    let least: Vec<&str> = latency.split(", mean ").next().expect("min").split(' ').collect();
    assert!(
        least[0].parse::<f64>().is_ok() && ["ns", "us", "ms", "s"].contains(&least[1]),
        "{ours}"
    );
    assert!(ours.contains("Clock               : all ranks share one clock"), "{ours}");
    assert_eq!(folder.names(), [""; 0], "files are removed");
}

#[test]
fn data_that_differs_is_counted_and_ends_with_code_3() {
    let folder = Folder::new("damage");
    let options = format!("-F -b 64k -t 16k -G 7 -l o -o {}", folder.at("f"));
    let (code, ..) = run(&format!("io --threads 2 -w -W -k {options}"));
    assert_eq!(code, Some(0));
    let (code, ..) = run(&format!("io --threads 2 -r -R -k {options}"));
    assert_eq!(code, Some(0));
    let path = folder.at("f.00000001");
    let mut bytes = fs::read(&path).expect("task 1's file");
    bytes[40_000] ^= 1;
    fs::write(&path, bytes).expect("written");
    let (code, out, err) = run(&format!("io --threads 2 -r -R -k -i 2 {options}"));
    assert_eq!(code, Some(3), "{out}{err}");
    assert!(err.contains("Incorrect data on read (1 errors found)"), "{err}");
    assert!(err.contains("2 transfers read data that differed from what was written"), "{err}");
}

#[test]
fn many_transfers_under_way_move_the_same_data() {
    let folder = Folder::new("uring");
    let options = format!("-C -F -b 512k -t 16k -s 2 -G 7 -l o -k -o {}", folder.at("f"));
    let (code, out, err) = run(&format!("io --threads 2 --uring 8 -w -W {options}"));
    assert_eq!(code, Some(0), "{out}{err}");
    // What the ring wrote is read one after the other, and the other way round.
    let (code, _, err) = run(&format!("io --threads 2 -r -R {options}"));
    assert_eq!(code, Some(0), "{err}");
    let (code, out, err) = run(&format!("io --threads 2 --uring 3 --json -r -R {options}"));
    assert_eq!(code, Some(0), "{err}");
    let results = results::read_results(out.as_bytes()).expect("a results document");
    let point = &results.points[0];
    assert!(matches!(&point.work, results::Work::FileIo(io) if io.by == "io_uring, 3 under way"));
    assert_eq!(point.measured().and_then(|done| Some(done.round_trips.as_ref()?.count)), Some(128));
    let wall = "-O stoneWallingWearOut=1 -D 1";
    let (code, out, err) = run(&format!(
        "io --threads 2 --uring 4 -w -F -b 8 -t 8 -s 100000000 {wall} -o {}",
        folder.at("w")
    ));
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(out.contains("stonewalling pairs accessed min: "), "{out}");
    let (code, _, err) = run("io --uring 4 -Y");
    assert!(code == Some(2) && err.contains("--uring"), "{err}");
}

#[test]
fn a_file_that_ior_wrote_is_verified() {
    verify_recorded();
}

/// What IOR 4.1.0+dev left: two transfers of task 1, in each kind of data.
fn verify_recorded() {
    let folder = Folder::new("recorded");
    for kind in ["t", "o", "i", "r"] {
        let recorded = format!("crates/file-load/tests/data/ior-{kind}.bin");
        let bytes = fs::read(rules::root().join(recorded)).expect("recorded");
        for task in ["00000000", "00000001"] {
            fs::write(folder.at(&format!("{kind}.{task}")), &bytes).expect("written");
        }
        let options = format!("-F -C -b 8224 -t 4112 -G 7 -l {kind} -o {}", folder.at(kind));
        let (code, out, err) = run(&format!("io --threads 2 -r -R -k {options}"));
        // Both files are what task 1 wrote: for the rank that reads task 0's file two transfers differ.
        assert_eq!(code, Some(3), "{out}{err}");
        assert!(err.contains("(2 errors found)"), "{kind}: {err}");
    }
}

#[test]
fn each_program_verifies_what_the_other_wrote() {
    let Some(ior) = reference("ior") else { return verify_recorded() };
    let folder = Folder::new("interop");
    let shapes = ["-F", "-F -C", "-s 3", "-z --random-offset-seed 5"];
    for (shape, kind) in shapes.into_iter().zip(["t", "o", "i", "r"]) {
        let options = format!("-k -b 64k -t 16k -G 7 -l {kind} {shape} -o {}", folder.at("f"));
        let ours = format!("io {options}");
        let both = [(PROGRAM, &ours, ior.as_str(), &options), (&ior, &options, PROGRAM, &ours)];
        for (writer, written, reader, read) in both {
            let (code, out, err) = job(writer, &format!("{written} -w"));
            assert_eq!(code, Some(0), "{shape}: {out}{err}");
            let (code, out, err) = job(reader, &format!("{read} -r -R"));
            assert_eq!(code, Some(0), "{shape}: {out}{err}");
            assert!(!out.contains("ncorrect") && !err.contains("ncorrect"), "{shape}: {out}{err}");
            for name in folder.names() {
                fs::remove_file(folder.at(&name)).expect("removed");
            }
        }
    }
}

#[test]
fn iors_json_is_valid_and_ours_is_a_results_document() {
    let folder = Folder::new("json");
    let options = format!("-b 1m -t 256k -i 2 -v -o {}", folder.at("f"));
    let (code, out, err) = run(&format!("io --threads 2 {options} -O summaryFormat=JSON"));
    assert_eq!(code, Some(0), "{err}");
    let json: Value = serde_json::from_str(&out).expect("IOR's JSON and nothing else");
    assert_eq!(json["tests"][0]["Results"].as_array().map(Vec::len), Some(4));
    assert_eq!(json["summary"][0]["numTasks"], 2);
    assert!(json["tests"][0]["max"]["writeMiB"].as_f64().is_some_and(|rate| rate > 0.0));
    let (code, out, err) = run(&format!("io --threads 2 --json {options}"));
    assert_eq!(code, Some(0), "{err}");
    let results = results::read_results(out.as_bytes()).expect("a results document");
    assert_eq!((results.points.len(), results.partial), (4, None));
    let point = &results.points[0];
    assert!(matches!(&point.work, results::Work::FileIo(io) if io.ranks_count == 2), "{point:?}");
    let outcome = point.measured().expect("measured");
    let figure = |name: &str| {
        outcome.figures.iter().find(|figure| figure.name == name).map(|figure| figure.value)
    };
    assert_eq!(figure("moved_bytes"), Some(2.0 * 1_048_576.0));
    assert_eq!(outcome.round_trips.as_ref().map(|times| times.count), Some(8));
    let (code, out, _) = run(&format!("io --threads 2 {options} -O summaryFormat=CSV"));
    assert_eq!(code, Some(0));
    let recorded = include_str!("../../../file-load/tests/data/ior.csv");
    assert_eq!(out.lines().next(), recorded.lines().next());
    assert!(out.lines().skip(1).all(|line| line.split(',').count() == 12), "{out}");
}

#[test]
fn a_stonewall_wears_out_and_its_status_is_read_back() {
    let folder = Folder::new("stonewall");
    let (file, status) = (folder.at("f"), folder.at("status"));
    let both = format!(
        "-F -b 200m -t 1k -k -G 3 -O stoneWallingWearOut=1 -O stoneWallingStatusFile={status} -o {file}"
    );
    // Slow enough that the stonewall comes first, and unequal at the two ranks.
    let write = format!("io --threads 2 -w -D 1 -O interIODelay=50 {both}");
    let (code, out, err) = run(&write);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("stonewalling pairs accessed min: "), "{out}");
    let count: u64 = fs::read_to_string(&status).expect("a status").parse().expect("a number");
    for task in ["00000000", "00000001"] {
        let length = fs::metadata(format!("{file}.{task}")).expect("a file").len();
        assert_eq!(length, count * 1024, "all ranks go on to the same number");
    }
    assert!(err.contains("Maybe caused by deadlineForStonewalling"), "{err}");
    let (code, out, err) = run(&format!("io --threads 2 -r -R -D 60 {both}"));
    assert_eq!(code, Some(0), "{out}{err}");
    let read = format!("Latency of read  iter 0: {} transfers", 2 * count);
    assert!(out.contains(&read), "{out}");
}

/// What is stored repeats the run: no option that the program tells itself, none of ours lost.
#[test]
fn the_stored_command_is_what_was_typed() {
    let folder = Folder::new("typed");
    for ranks in ["--threads 2", "--ranks 2"] {
        let typed = format!("io {ranks} --json -- -w -b 64k -t 64k -o {}", folder.at("f"));
        let (code, out, err) = run(&typed);
        assert_eq!(code, Some(0), "{err}");
        let results = results::read_results(out.as_bytes()).expect("a results document");
        assert_eq!(results.command[1..].join(" "), typed);
    }
}

#[test]
fn locks_of_one_file_exclude_and_locks_of_two_are_found_out() {
    let folder = Folder::new("locks");
    let (code, out, err) = run(&format!("io --ranks 2 --locks {}", folder.0.display()));
    assert_eq!(code, Some(0), "{out}{err}");
    let kinds = ["flock        ranks 0 and 1: works", "byte ranges  ranks 0 and 1: works"];
    assert!(kinds.iter().all(|kind| out.contains(kind)), "{out}");
    assert!(out.matches("lock+unlock pairs/s").count() == 2, "{out}");
    // Two directories that show the same file, as two clients do that keep their locks to themselves.
    let (one, other) = (folder.0.join("one"), folder.0.join("other"));
    fs::create_dir(&one).expect("made");
    fs::create_dir(&other).expect("made");
    let mirror = {
        let (one, other) = (one.clone(), other.clone());
        thread::spawn(move || {
            let start = Instant::now();
            while start.elapsed() < Duration::from_secs(30) {
                for entry in fs::read_dir(&one).expect("readable").flatten() {
                    if fs::metadata(entry.path()).is_ok_and(|file| file.len() == 128) {
                        fs::copy(entry.path(), other.join(entry.file_name())).expect("copied");
                        return;
                    }
                }
                thread::sleep(Duration::from_millis(5));
            }
        })
    };
    let line = format!("io --ranks 2 --json --locks {}@{}", one.display(), other.display());
    let (code, out, err) = run(&line);
    mirror.join().expect("mirrored");
    assert_eq!(code, Some(3), "{out}{err}");
    let results = results::read_results(out.as_bytes()).expect("a results document");
    for point in &results.points {
        let results::Work::FileLocks(locks) = &point.work else { panic!("{point:?}") };
        assert_eq!(locks.verdict, "local only", "{locks:?}");
    }
    assert_eq!(results.points.len(), 2);
    let (code, _, err) = run(&format!("io --locks {}", one.display()));
    assert!(code == Some(2) && err.contains("two ranks"), "one client cannot tell: {err}");
}

#[test]
fn what_is_not_taken_is_refused_before_anything_is_written() {
    let lines = [
        ("io -a MPIIO", "only the POSIX back end"),
        ("io -b 3k -t 2k", "multiple of the transfer size"),
        ("io --ranks 2 --threads 2", "give either --threads"),
        ("meta -n 1 -a DFS", "only the POSIX back end"),
        ("meta", "how many items"),
    ];
    for (line, reason) in lines {
        let (code, out, err) = run(line);
        assert_eq!(code, Some(2), "{line}: {out}{err}");
        assert!(
            err.contains(reason) && err.lines().count() == 1 && out.is_empty(),
            "{line}: {err}"
        );
    }
    for verb in ["io", "meta"] {
        let (code, out, _) = run(&format!("{verb} --help"));
        assert!(code == Some(0) && out.contains("--stall-limit"), "{out}");
    }
}
