//! What goes wrong: full disks, hangs, signals, killed ranks, clocks that differ.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use sys::private::Scratch;
use testkit::root::is_root;

use super::{Folder, job, mpirun, rates, rows, run, told, words};
use crate::PROGRAM;

#[test]
fn a_full_disk_ends_the_test_with_the_reason_and_no_summary() {
    let folder = Folder::new("full");
    let output = folder.at("results.json");
    let line = format!("io --threads 2 -w -k -E -b 1m -t 256k -o /dev/full --output {output}");
    let (code, out, err) = run(&line);
    assert_eq!(code, Some(1), "{out}{err}");
    assert!(err.contains("the test is incomplete: rank "), "{err}");
    assert!(err.contains("write /dev/full at byte ") && err.contains("No space left"), "{err}");
    assert!(err.ends_with("; test files may be left at /dev/full\n"), "{err}");
    let lines = err.lines().filter(|line| !line.starts_with("WARNING: ")).count();
    assert_eq!(lines, 1, "{err}");
    assert!(!out.contains("Summary of all tests"), "{out}");
    let results = results::read_results(&fs::read(output).expect("written")).expect("a document");
    assert!(results.partial.is_some_and(|why| why.contains("No space left")));
    assert!(results.points.is_empty());
}

#[test]
fn a_file_system_that_fills_up_ends_the_test_with_the_reason_and_no_summary_as_root() {
    if !is_root() {
        return;
    }
    let folder = Folder::new("fills");
    // Out of space in a write, and out of inodes in a create.
    let (files, directories) = ("/mnt/f.*", "/mnt/test-dir.*");
    for (size, line, operation, left) in [
        ("size=2m", "io --threads 2 -w -F -k -b 4m -t 256k -o /mnt/f", "write /mnt/f.00", files),
        ("size=2m", "meta --threads 2 -F -w 64k -n 100 -d /mnt", "write /mnt/test", directories),
        ("nr_inodes=50", "meta --threads 2 -F -n 100 -d /mnt", "create /mnt/test", directories),
    ] {
        let output = folder.at("results.json");
        let script = format!(
            "mount -t tmpfs -o {size} tmpfs /mnt && exec {PROGRAM} {line} --output {output}"
        );
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &script]).stdin(Stdio::null());
        let (code, out, err) = told(command.output().expect("util-linux"));
        assert_eq!(code, Some(1), "{line}: {out}{err}");
        assert!(err.contains("the test is incomplete: rank "), "{line}: {err}");
        assert!(err.contains(operation) && err.contains("No space left"), "{line}: {err}");
        assert!(err.ends_with(&format!("; test files may be left at {left}\n")), "{line}: {err}");
        assert!(!out.contains("Summary of all tests") && rates(&out).is_empty(), "{line}: {out}");
        let results = results::read_results(&fs::read(&output).expect("written"));
        let results = results.expect("a document");
        assert!(results.partial.is_some_and(|why| why.contains("No space left")), "{line}");
        assert!(results.points.is_empty(), "{line}");
        fs::remove_file(&output).expect("ours");
    }
}

#[test]
fn results_that_the_full_disk_does_not_take_do_not_hide_why_the_test_ended_as_root() {
    if !is_root() {
        return;
    }
    let line = "io --threads 2 -w -F -k -b 4m -t 4k -o /mnt/f --output /mnt/results.json";
    let script = format!("mount -t tmpfs -o size=2m tmpfs /mnt && exec {PROGRAM} {line}");
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script]).stdin(Stdio::null());
    let (code, out, err) = told(command.output().expect("util-linux"));
    assert_eq!(code, Some(1), "{out}{err}");
    let parts: Vec<&str> = err.lines().last().expect("an error").split("; ").collect();
    assert!(parts[0].contains("incomplete: rank ") && parts[0].contains("No space left"), "{err}");
    assert_eq!(parts[1], "test files may be left at /mnt/f.*", "{err}");
    assert!(parts[2].starts_with("then ") && parts[2].contains("/mnt/results.json"), "{err}");
}

#[test]
fn a_signal_ends_the_test_and_says_what_stays() {
    let folder = Folder::new("signal");
    let (file, output) = (folder.at("f"), folder.at("results.json"));
    let meta = format!("meta --threads 2 -i 100000 -n 10 -d {file}.d");
    let directory = format!("{file}.d");
    for (line, begun, kept) in [
        (
            format!("io -w -b 1g -t 4k -O interIODelay=1000 --output {output} -o {file}"),
            &file,
            file.clone(),
        ),
        (format!("{meta} --output {output}"), &directory, format!("{directory}/test-dir.*")),
    ] {
        let mut command = Command::new(PROGRAM);
        command.args(words(&line)).stdin(Stdio::null());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
        let start = Instant::now();
        while !Path::new(begun).exists() {
            assert!(start.elapsed() < Duration::from_secs(30), "{line}: it does not begin");
            thread::sleep(Duration::from_millis(20));
        }
        let process = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(process, rustix::process::Signal::INT).expect("told");
        let (code, _out, err) = told(child.wait_with_output().expect("its output"));
        assert_eq!(code, Some(130), "{err}");
        let said = format!(
            "clearstream: the test is incomplete: interrupted by signal 2 (SIGINT); {output} holds \
             the completed phases; test files stay at {kept}\n"
        );
        assert!(err.ends_with(&said), "{err}");
        let results = results::read_results(&fs::read(&output).expect("written"));
        let partial = results.expect("a document").partial;
        assert_eq!(partial.as_deref(), Some("interrupted by signal 2 (SIGINT)"));
        fs::remove_file(&output).expect("ours");
    }
}

#[test]
fn what_is_no_file_is_never_removed() {
    let folder = Folder::new("device");
    let fifo = folder.at("fifo");
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o600));
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, kind, mode, 0).expect("a FIFO");
    let (code, out, err) = run(&format!("io -w -o {fifo}"));
    assert_eq!(code, Some(2), "{out}{err}");
    assert!(err.contains("is neither a file nor a link to one"), "{err}");
    let found = fs::symlink_metadata(&fifo).expect("it is there");
    assert!(std::os::unix::fs::FileTypeExt::is_fifo(&found.file_type()));
}

#[test]
fn a_file_system_that_hangs_is_named_in_time() {
    let folder = Folder::new("hang");
    let fifo = folder.at("fifo");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, kind, mode, 0).expect("a FIFO");
    // Opening a FIFO to read waits for ever for somebody who writes.
    for line in ["--threads 2", "--ranks 2 --"] {
        let start = Instant::now();
        let line = format!("io --stall-limit 500ms {line} -r -k -o {fifo}");
        let (code, out, err) = run(&line);
        assert_eq!(code, Some(1), "{out}{err}");
        // How late that is noticed is a matter of the machine.
        let waited = err.split(&format!("open {fifo} has not returned for ")).nth(1);
        let waited_s = waited.and_then(|rest| rest.split(' ').next()?.parse::<f64>().ok());
        assert!(waited_s.is_some_and(|waited_s| waited_s >= 0.5), "{err}");
        assert!(err.contains("the file system hangs"), "{err}");
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
        assert!(!out.contains("Summary of all tests"), "{out}");
    }
}

#[test]
fn a_job_whose_options_make_no_test_ends_with_code_2() {
    let folder = Folder::new("usage");
    let file = folder.at("f");
    let second = folder.at("f.00000001");
    fs::write(&second, "mine").expect("a file");
    let lines = [
        // Refused before the ranks meet; by all; by rank 1, which alone finds a file.
        (format!("io -a MPIIO -o {file}"), "only the POSIX back end"),
        (format!("meta -n 2 -F -l 9 -d {file}"), "only 2 tasks"),
        (format!("io -w -F --warningAsErrors -b 64k -t 64k -o {file}"), "exists already"),
    ];
    for (line, reason) in lines {
        let (code, out, err) = job(PROGRAM, &line);
        assert!(code == Some(2) && err.contains(reason), "{line}: {code:?} {out}{err}");
        let said = err.lines().filter(|line| line.starts_with("clearstream: ")).count();
        assert_eq!(said, 1, "{line}: rank 0 says it once: {err}");
        assert_eq!(fs::read(&second).expect("a file"), b"mine", "{line}");
    }
    let (code, _, err) = run(&format!("meta --ranks 2 -- -n 2 -F -l 9 -d {file}"));
    assert!(code == Some(2), "started by clearstream: {err}");
}

#[test]
fn clocks_that_differ_by_a_planted_offset_are_brought_together_as_root() {
    let folder = Folder::new("clocks");
    let file = folder.at("f");
    // Rank 1 in a time namespace of its own: its monotonic clock is 1000 s ahead.
    let script = format!(
        "[ $OMPI_COMM_WORLD_RANK = 1 ] && ahead='unshare -T --monotonic 1000'; \
         exec $ahead {PROGRAM} io -w -F -i 2 -g -b 1m -t 64k -o {file}"
    );
    let scratch = Scratch::new("load-clocks").expect("a folder");
    let mut command = mpirun(&scratch);
    command.args(["sh", "-c", &script]).stdin(Stdio::null());
    let (code, out, err) = told(command.output().expect("Open MPI's launcher"));
    assert_eq!(code, Some(0), "{out}{err}");
    let rows = rows(&out);
    assert_eq!(rows.len(), 2, "{out}");
    for (_, columns) in &rows {
        // Opening, transfers, closing and all of it: from the first start to the last end.
        let slow = columns[5..9].iter().find(|seconds| !(0.0..100.0).contains(*seconds));
        assert_eq!(slow, None, "{columns:?}");
    }
    assert!(out.contains(" rank 0's host; times are corrected"), "{out}");
}

/// Processes whose command line holds a word.
fn ranks_of(word: &str) -> Vec<u32> {
    let is_one = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        line.starts_with(PROGRAM) && line.contains(word)
    };
    let entries = fs::read_dir("/proc").expect("processes");
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(is_one)
        .collect()
}

#[test]
fn a_killed_rank_ends_the_job_without_a_summary() {
    let folder = Folder::new("killed");
    let (file, directory) = (folder.at("f"), folder.at("d"));
    let io = format!("io -w -F -k -b 1g -t 4k -O interIODelay=1000 -o {file}");
    rank_is_killed(&io, &file, &format!("{file}.00000001"), &folder.at("io.json"));
    let meta = format!("meta -i 100000 -n 1000 -u -d {directory}");
    let begun = format!("{directory}/test-dir.0-0/mdtest_tree.1.0");
    rank_is_killed(&meta, &directory, &begun, &folder.at("meta.json"));
}

/// Kills rank 1 of a job once `begun` is there; `word` is of no other job's command line.
fn rank_is_killed(line: &str, word: &str, begun: &str, output: &str) {
    let scratch = Scratch::new("load-killed").expect("a folder");
    let mut command = mpirun(&scratch);
    command.arg(PROGRAM).args(words(line)).args(["--output", output]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("Open MPI's launcher");
    let start = Instant::now();
    while !Path::new(begun).exists() {
        assert!(start.elapsed() < Duration::from_secs(30), "rank 1 does not write");
        thread::sleep(Duration::from_millis(20));
    }
    let ranks = ranks_of(word);
    assert_eq!(ranks.len(), 2, "{ranks:?}");
    let victim = rustix::process::Pid::from_raw(ranks[1] as i32).expect("a process");
    rustix::process::kill_process(victim, rustix::process::Signal::KILL).expect("killed");
    let (code, out, _err) = told(child.wait_with_output().expect("its output"));
    assert_ne!(code, Some(0));
    assert!(start.elapsed() < Duration::from_secs(60));
    assert!(!out.contains("Summary of all tests") && rows(&out).is_empty(), "{out}");
    assert!(rates(&out).is_empty(), "{out}");
    // The launcher kills the other and may end before it.
    while !ranks_of(word).is_empty() {
        assert!(start.elapsed() < Duration::from_secs(60), "a rank is left");
        thread::sleep(Duration::from_millis(20));
    }
    // The launcher may have killed rank 0 before it wrote what there was.
    if let Ok(bytes) = fs::read(output) {
        let results = results::read_results(&bytes).expect("a document");
        assert!(results.partial.is_some(), "half a test is no whole one");
    }
}

/// Starts a load that writes until it is killed, and kills the process that writes, or a rank; how it ended.
fn killed(line: &str, begun: &str, word: &str) -> (Option<i32>, String, String) {
    let mut command = Command::new(PROGRAM);
    command.args(words(line)).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("starts");
    let start = Instant::now();
    while !Path::new(begun).exists() {
        assert!(start.elapsed() < Duration::from_secs(30), "{line}: it does not begin");
        thread::sleep(Duration::from_millis(20));
    }
    let inner = ranks_of(word).into_iter().filter(|pid| *pid != child.id()).max();
    let inner = inner.and_then(|pid| rustix::process::Pid::from_raw(pid as i32)).expect("a rank");
    rustix::process::kill_process(inner, rustix::process::Signal::KILL).expect("killed");
    let ended = told(child.wait_with_output().expect("its output"));
    assert!(start.elapsed() < Duration::from_secs(60), "{line}");
    ended
}

#[test]
fn a_killed_process_is_named_with_the_files_that_it_leaves() {
    let folder = Folder::new("left");
    let file = folder.at("f");
    let load = format!("-w -F -k -b 1g -t 4k -O interIODelay=1000 -o {file}");
    let begun = format!("{file}.00000001");
    let (code, out, err) = killed(&format!("io --threads 2 {load}"), &begun, &file);
    assert_eq!(code, Some(137), "{out}{err}");
    let left = format!("; test files may be left at {file}.*\n");
    assert!(err.contains("ended by signal 9") && err.ends_with(&left), "{err}");
    fs::remove_file(&begun).expect("it is left");
    let (code, out, err) = killed(&format!("io --ranks 2 -- {load}"), &begun, &file);
    assert_eq!(code, Some(1), "{out}{err}");
    assert!(err.contains("a rank or a host was lost)") && err.ends_with(&left), "{err}");
    assert!(!out.contains("Summary of all tests"), "{out}");
}
