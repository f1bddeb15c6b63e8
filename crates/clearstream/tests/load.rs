//! `clearstream io` and `clearstream meta`, as threads, as an MPI job, and held against IOR and mdtest.
//!
//! With IOR and mdtest on the machine (`CLEARSTREAM_IOR` names their directory, or they are in `PATH`) each
//! program verifies what the other wrote. Otherwise the tests use what IOR 4.1.0+dev left and printed, in
//! `crates/file-load/tests/data`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use sys::private::Scratch;
use testkit::root::is_root;

use crate::PROGRAM;

/// Open MPI with what it needs on a machine of few cores.
const MPIRUN: [&str; 6] =
    ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np"];

/// A directory of this test alone.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let path = base.join(format!("clearstream-load-{name}-{}", std::process::id()));
        fs::create_dir(&path).expect("a directory of our own");
        Self(path)
    }

    fn at(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// Names in it, sorted.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("readable");
        let mut names: Vec<String> =
            entries.flatten().map(|one| one.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

/// Exit code, standard output, standard error.
type Told = (Option<i32>, String, String);

fn told(done: Output) -> Told {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (done.status.code(), text(done.stdout), text(done.stderr))
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split_whitespace()
}

/// Runs `clearstream` with a verb and options.
fn run(line: &str) -> Told {
    told(Command::new(PROGRAM).args(words(line)).output().expect("the program"))
}

/// The launcher of two ranks. Jobs that begin and end in one folder meet in what Open MPI makes and removes there.
fn mpirun(scratch: &Scratch) -> Command {
    let mut command = Command::new(MPIRUN[0]);
    command.args(&MPIRUN[1..]).arg("2").env("TMPDIR", scratch.path());
    command
}

/// The same as two ranks of a job; `program` is ours, IOR or mdtest.
fn job(program: &str, line: &str) -> Told {
    let scratch = Scratch::new("load-job").expect("a folder");
    let mut command = mpirun(&scratch);
    command.arg(program).args(words(line));
    told(command.stdin(Stdio::null()).output().expect("Open MPI's launcher"))
}

/// IOR or mdtest, where the machine has it.
fn reference(name: &str) -> Option<String> {
    let named = std::env::var_os("CLEARSTREAM_IOR").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = named.into_iter().chain(std::env::split_paths(&path));
    let found = folders.map(|folder| folder.join(name)).find(|program| program.is_file());
    found.map(|program| program.display().to_string())
}

/// Rows of IOR's table: access, then numbers.
fn rows(text: &str) -> Vec<(String, Vec<f64>)> {
    let after = text.split("------    ---------").nth(1).unwrap_or_default();
    let table = after.split("Summary of all tests").next().unwrap_or_default();
    let row = |line: &str| {
        let mut words = line.split_whitespace();
        let access = words.next().filter(|word| ["write", "read"].contains(word))?;
        Some((access.to_owned(), words.map(|word| word.parse().expect("a number")).collect()))
    };
    table.lines().filter_map(row).collect()
}

/// Rates of mdtest's summary, by operation: the maximum.
fn rates(text: &str) -> Vec<(String, f64)> {
    let after = text.split("SUMMARY rate").nth(1).unwrap_or_default();
    let row = |line: &str| {
        let name = line.strip_prefix("   ")?.get(..18)?.trim();
        let max = line.get(21..)?.split_whitespace().next()?.parse().ok()?;
        Some((name.to_owned(), max))
    };
    after.lines().skip(3).map_while(row).collect()
}

#[test]
fn one_parser_reads_the_tables_of_both_programs() {
    let folder = Folder::new("tables");
    let line =
        format!("io --threads 2 -a POSIX -F -i 2 -b 4m -t 1m -C -g -e -o {}", folder.at("f"));
    let (code, ours, err) = run(&line);
    assert_eq!(code, Some(0), "{err}");
    let recorded = include_str!("../../file-load/tests/data/ior.txt");
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
    assert!(ours.contains("Latency of write iter 1: 8 transfers, min "), "{ours}");
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
    assert!(err.contains("2 transfers held other data than was written"), "{err}");
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
    let recorded = include_str!("../../file-load/tests/data/ior.csv");
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

#[test]
fn a_full_disk_ends_the_test_with_the_reason_and_no_summary() {
    let folder = Folder::new("full");
    let output = folder.at("results.json");
    let line = format!("io --threads 2 -w -k -E -b 1m -t 256k -o /dev/full --output {output}");
    let (code, out, err) = run(&line);
    assert_eq!(code, Some(1), "{out}{err}");
    assert!(err.contains("the test is incomplete: rank "), "{err}");
    assert!(err.contains("write /dev/full at byte ") && err.contains("No space left"), "{err}");
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
    for (size, line, operation) in [
        ("size=2m", "io --threads 2 -w -F -k -b 4m -t 256k -o /mnt/f", "write /mnt/f.0000000"),
        ("size=2m", "meta --threads 2 -F -w 64k -n 100 -d /mnt", "write /mnt/test-dir.0-0/"),
        ("nr_inodes=50", "meta --threads 2 -F -n 100 -d /mnt", "create /mnt/test-dir.0-0/"),
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
        assert!(!out.contains("Summary of all tests") && rates(&out).is_empty(), "{line}: {out}");
        let results = results::read_results(&fs::read(&output).expect("written"));
        let results = results.expect("a document");
        assert!(results.partial.is_some_and(|why| why.contains("No space left")), "{line}");
        assert!(results.points.is_empty(), "{line}");
        fs::remove_file(&output).expect("ours");
    }
}

#[test]
fn a_signal_ends_the_test_and_says_what_stays() {
    let folder = Folder::new("signal");
    let (file, output) = (folder.at("f"), folder.at("results.json"));
    let meta = format!("meta --threads 2 -i 100000 -n 10 -d {file}.d");
    for (line, kept) in [
        (format!("io -w -b 1g -t 4k -O interIODelay=1000 --output {output} -o {file}"), &*file),
        (format!("{meta} --output {output}"), &*format!("{file}.d")),
    ] {
        let mut command = Command::new(PROGRAM);
        command.args(words(&line)).stdin(Stdio::null());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
        let start = Instant::now();
        while !Path::new(kept).exists() {
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
    assert!(out.contains(" from rank 0's host; times are corrected"), "{out}");
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
        let recorded = rates(include_str!("../../file-load/tests/data/mdtest.txt"));
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
        ("io --ranks 2 --threads 2", "give one"),
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
