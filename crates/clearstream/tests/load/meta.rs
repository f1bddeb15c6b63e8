//! Metadata: phases, numbers of tasks, times of calls, mdtest's own files.

use std::fs;

use super::{Folder, job, rates, reference, run};
use crate::PROGRAM;

#[test]
fn every_phase_of_mdtest_runs_and_leaves_nothing() {
    let folder = Folder::new("meta");
    let options = [
        "",
        "-F -w 100 -e 100 -X --verify-write -G 5 -N 1",
        "-u -N 1",
        "-b 2 -z 2 -L -u",
        "-I 5",
        "-c",
        "-c -u -N 1",
        "-R -F",
        "-S -F",
        "-D -U -C -r",
    ];
    for options in options {
        let line = format!("meta --threads 2 -n 20 -d {} {options}", folder.at("d"));
        let (code, out, err) = run(&line);
        assert_eq!(code, Some(0), "{options}: {out}{err}");
        let rates = rates(&out);
        assert!(
            rates.len() >= 6 && rates.iter().all(|(_, rate)| *rate > 0.0 || options.contains("-C")),
            "{out}"
        );
        assert_eq!(folder.names(), [""; 0], "{options}");
    }
    let (code, out, err) =
        run(&format!("meta --threads 2 --json -n 20 -i 2 -d {}", folder.at("d")));
    assert_eq!(code, Some(0), "{err}");
    let results = results::read_results(out.as_bytes()).expect("a results document");
    // Two iterations of 4 phases of directories, 4 of files, and the tree made and removed.
    assert_eq!(results.points.len(), 20);
}

#[test]
fn one_number_of_tasks_follows_another() {
    let folder = Folder::new("growing");
    let line = format!("meta --threads 3 -n 6 -F -f 1 -l 3 -s 1 -d {}", folder.at("d"));
    let (code, out, err) = run(&line);
    assert_eq!(code, Some(0), "{out}{err}");
    for amount in ["1 tasks, 6 files", "2 tasks, 12 files", "3 tasks, 18 files"] {
        assert!(out.contains(amount), "{out}");
    }
    assert_eq!(out.matches("SUMMARY rate").count(), 3, "{out}");
    assert_eq!(folder.names(), [""; 0]);
    let (script, file) = (folder.at("script"), folder.at("f"));
    let text = format!("IOR START\ntestFile={file}\nnumTasks=1\nRUN\nnumTasks=3\nRUN\nIOR STOP\n");
    fs::write(&script, text).expect("written");
    let (code, out, err) = run(&format!("io --threads 3 -F -b 64k -t 16k -f {script}"));
    assert_eq!(code, Some(0), "{out}{err}");
    // Each test has a row and a line of the summary.
    assert_eq!(out.matches("\nwrite ").count(), 4, "{out}");
}

#[test]
fn phases_of_mdtest_go_on_in_another_run() {
    let folder = Folder::new("split");
    let status = folder.at("status");
    let common =
        format!("--threads 2 -n 1000000 -u -L -F -P -G 271 -N 1 -d {} -x {status}", folder.at("d"));
    let (code, out, err) = run(&format!("meta {common} -C -Y -W 1"));
    assert_eq!(code, Some(0), "{out}{err}");
    let count: u64 = fs::read_to_string(&status).expect("a status").parse().expect("a number");
    assert!(count > 100 && count < 1_000_000, "{count}");
    let (code, out, err) =
        run(&format!("meta --output {} {common} -T -r", folder.at("results.json")));
    assert_eq!(code, Some(0), "{out}{err}");
    let text = fs::read(folder.at("results.json")).expect("written");
    let results = results::read_results(&text).expect("a document");
    let stat =
        results.points.iter().find(|point| point.experiment == "file-stat").expect("a phase");
    let done = |work: &results::Work| match work {
        results::Work::FileMetadata(meta) => meta.items_count,
        _ => 0,
    };
    assert_eq!(done(&stat.work), 2 * count);
    fs::remove_file(folder.at("results.json")).expect("removed");
    fs::remove_file(&status).expect("removed");
    assert!(fs::read_dir(folder.at("d")).expect("it stays: another run made it").next().is_none());
}

#[test]
fn each_calls_time_is_stored_on_demand() {
    let folder = Folder::new("calls");
    let (meta, io) = (folder.at("meta"), folder.at("io"));
    let line = format!("meta --threads 2 -n 7 -F -d {} --savePerOpDataCSV {meta}", folder.at("d"));
    assert_eq!(run(&line).0, Some(0));
    let line =
        format!("io --threads 2 -b 64k -t 16k -o {} -O savePerOpDataCSV={io}", folder.at("f"));
    assert_eq!(run(&line).0, Some(0));
    for (name, calls) in [("meta-File stat-00001.csv", 7), ("io-0-00001.csv", 4)] {
        let text = fs::read_to_string(folder.at(name)).expect(name);
        assert_eq!(text.lines().next(), Some("time,runtime,tp"));
        assert_eq!(text.lines().count(), calls + 1, "{name}: {text}");
    }
}

#[test]
fn calls_that_fail_are_counted_and_end_with_code_3() {
    let folder = Folder::new("failed");
    let common = format!("--threads 2 -n 10 -F -d {}", folder.at("d"));
    let (code, ..) = run(&format!("meta {common} -C"));
    assert_eq!(code, Some(0));
    fs::remove_file(folder.at("d/test-dir.0-0/mdtest_tree.0/file.mdtest.1.7")).expect("removed");
    let (code, out, err) = run(&format!("meta {common} -T"));
    assert_eq!(code, Some(3), "{out}{err}");
    assert!(err.contains("File stat: 1 calls failed; the first: rank 1 on "), "{err}");
    assert!(err.contains("file.mdtest.1.7: No such file"), "{err}");
}

#[test]
fn what_mdtest_created_is_read_and_removed_and_the_other_way_round() {
    let Some(mdtest) = reference("mdtest") else {
        // What mdtest 4.1.0+dev printed is read as ours is.
        let recorded = rates(include_str!("../../../file-load/tests/data/mdtest.txt"));
        assert!(
            recorded.len() == 10 && recorded.iter().all(|(_, rate)| *rate > 0.0),
            "{recorded:?}"
        );
        return;
    };
    let folder = Folder::new("mdtest");
    let shapes = ["", "-u -N 1", "-b 2 -z 2 -L", "-I 5", "-F -w 100 -e 100 -X"];
    for shape in shapes {
        let create = format!(
            "-n 20 -G 5 -d {} {} -C",
            folder.at("d"),
            shape.replace("-X", "").replace("-e 100", "")
        );
        let rest =
            format!("-n 20 -G 5 -d {} {} -T -E -r", folder.at("d"), shape.replace("-w 100", ""));
        let (ours, ours_rest) = (format!("meta {create}"), format!("meta {rest}"));
        let both = [(&*mdtest, &create, PROGRAM, &ours_rest), (PROGRAM, &ours, &*mdtest, &rest)];
        for (maker, made, reader, read) in both {
            let (code, out, err) = job(maker, made);
            assert_eq!(code, Some(0), "{shape}: {out}{err}");
            let (code, out, err) = job(reader, read);
            assert_eq!(code, Some(0), "{shape}: {out}{err}");
            assert!(!out.contains("unable") && !out.contains("ERROR"), "{shape}: {out}");
            let left = folder.0.join("d");
            let is_empty = fs::read_dir(&left).map_or(true, |mut entries| entries.next().is_none());
            assert!(is_empty, "{shape}: {maker} then {reader}");
            fs::remove_dir(&left).ok();
        }
    }
}
