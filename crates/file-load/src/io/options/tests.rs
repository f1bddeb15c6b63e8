use super::*;

fn parse(line: &str) -> Result<CommandLine, String> {
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let mut line = CommandLine::parse(&words)?;
    line.settle()?;
    Ok(line)
}

fn one(line: &str) -> IoOptions {
    parse(line).unwrap_or_else(|error| panic!("{line}: {error}")).tests.remove(0)
}

#[test]
fn every_flag_sets_what_it_says() {
    let all = "-a posix -A 7 -b 2m -c -C -d 3 -D 4 -e -E -F -g -G 5 -i 6 -j 8 -k -K -l i -m -M 2g \
               -N 9 -o /d/f -Q 2 -r -R -s 3 -t 1m -T 11 -u -v -w -W -x -X -5 -Y \
               --posix.odirect --posix.rangelocks --dryRun --warningAsErrors";
    let set = one(all);
    let expected = IoOptions {
        reference_number: 7,
        block_bytes: 2 << 20,
        is_collective: true,
        reorders_tasks: true,
        delay_s: 3,
        stonewall_s: 4,
        fsyncs: true,
        keeps_existing_file: true,
        file_per_task: true,
        has_barriers: true,
        seed: Some(5),
        repetitions: 6,
        outlier_s: 8,
        keeps_file: true,
        keeps_file_with_errors: true,
        pattern: PatternKind::Incompressible,
        file_per_repetition: true,
        memory_per_node_bytes: Memory::Bytes(2 << 30),
        tasks: Some(9),
        test_file: "/d/f".to_owned(),
        task_offset: 2,
        reads: true,
        checks_read: true,
        segment_count: 3,
        transfer_bytes: 1 << 20,
        time_max_min: 11,
        directory_per_task: true,
        verbosity: 1,
        writes: true,
        checks_write: true,
        single_attempt: true,
        reorder_seed: -5,
        fsyncs_each_write: true,
        is_direct: true,
        locks_ranges: true,
        is_dry: true,
        warnings_are_errors: true,
        ..IoOptions::default()
    };
    assert_eq!(set, expected);
}

#[test]
fn settings_by_name_are_the_same_as_flags() {
    let pairs = [
        ("-O blockSize=4m,transferSize=1m,segmentCount=2", "-b 4m -t 1m -s 2"),
        ("-O filePerProc=1,fsync=1,keepFile=1", "-F -e -k"),
        ("-O reorderTasks=1,taskPerNodeOffset=3", "-C -Q 3"),
        ("-O reorderTasksRandom=2,reorderTasksRandomSeed=9", "-Z -Z -X 9"),
        ("-O useO_DIRECT=1", "--posix.odirect"),
        ("-O --posix.odirect=1", "--posix.odirect"),
        ("-O checkRead=1,writeFile=1,setTimeStampSignature=4", "-R -w -G=4"),
        ("-O verbose=2", "-vv"),
        ("-O api=POSIX,testFile=/d/f,repetitions=3", "-o /d/f -i 3"),
        ("-O deadlineForStonewalling=5 -O collective=1", "-D 5 -c"),
    ];
    for (named, flags) in pairs {
        assert_eq!(parse(named), parse(flags), "{named}");
    }
    let line = parse("-O summaryFormat=json,summaryFile=/s -O saveRankPerformanceDetailsCSV=/r");
    let to = line.expect("settings").destinations;
    assert_eq!((to.format, to.summary_file.as_deref()), (Format::Json, Some("/s")));
    assert_eq!(to.ranks_file.as_deref(), Some("/r"));
}

#[test]
fn lines_of_io500_are_taken_unchanged() {
    let easy =
        one("-C -Q 1 -g -G 271 -k -e -o /d/ior-easy/ior_file_easy -t 2m -b 9920000m -F -w -D 300 \
         -O stoneWallingWearOut=1 -O stoneWallingStatusFile=/d/ior-easy.stonewall");
    assert!(easy.wears_out && easy.reorders_tasks && easy.file_per_task && !easy.reads);
    assert_eq!((easy.block_bytes, easy.stonewall_s, easy.seed), (9_920_000 << 20, 300, Some(271)));
    let hard = one(
        "-C -Q 1 -g -G=27 -k -e -o /d/ior-hard/file -t 47008 -b 47008 -s 10000000 -w -D 300 \
         -O stoneWallingWearOut=1 -O stoneWallingStatusFile=/d/s -O saveRankPerformanceDetailsCSV=/r",
    );
    assert_eq!((hard.transfer_bytes, hard.segment_count), (47_008, 10_000_000));
    let read = one("-C -Q 1 -g -G=27 -k -e -o /f -t 47008 -b 47008 -s 10000000 -r -R");
    assert!(read.reads && read.checks_read && !read.writes);
    let random = one(
        "-Q=1 -g -G=271 -z --random-offset-seed=11 -e -o=/d/ior_rnd4K -O stoneWallingStatusFile=/s \
         -O stoneWallingWearOut=1 -k -t=4096 -b=1073741824 -s=10000000 -w -D 300 -F \
         --randomPrefill=0 -a POSIX",
    );
    assert_eq!((random.random_offset, random.offset_seed), (1, Some(11)));
}

#[test]
fn without_an_access_a_test_writes_and_reads() {
    let test = one("");
    assert!(test.writes && test.reads);
    assert_eq!((test.block_bytes, test.transfer_bytes), (1 << 20, 256 << 10));
    let test = one("-W");
    assert!(!test.writes && !test.reads && test.checks_write);
}

#[test]
fn what_is_not_taken_is_refused_by_name_with_its_reason() {
    let lines = [
        ("-a MPIIO", "only the POSIX back end"),
        ("-O api=HDF5", "only the POSIX back end"),
        ("--mpiio.hintsFileName=x", "another back end"),
        ("--posix.lustre.stripecount=4", "client library of lustre"),
        ("--posix.gpfs.hintaccess", "client library of gpfs"),
        ("--gpuDirect", "main memory"),
        ("-O allocateBufferOnGPU=1", "main memory"),
        ("-y", "dual mount points"),
        ("-O dualMount=1", "dual mount points"),
        ("-p", "there is no option -p; older versions of IOR have it"),
        ("-w -B", "there is no option -B; direct I/O is --posix.odirect"),
        ("-q", "there is no option -q"),
        ("-O nonsense=1", "there is no setting \"nonsense\""),
        ("-O nonsense", "not name=value"),
        ("-O testFile=a,b", "not name=value"),
        ("-O summaryFormat=xml", "default, JSON or CSV"),
        ("-b 4x", "not a size"),
        ("-i x", "-i x"),
        ("-l z", "expected o, i, t or r"),
        ("-G 99999999999", "32-bit"),
    ];
    for (line, reason) in lines {
        let error = parse(line).expect_err(line);
        assert!(error.contains(reason), "{line}: {error}");
    }
}

#[test]
fn combinations_that_make_no_test_are_refused() {
    let lines = [
        ("-b 1m -t 3m", "multiple of the transfer size"),
        ("-b 10m -t 4m", "multiple of the transfer size"),
        ("-t 12 -b 24", "multiple of 8"),
        ("-t 0", "-t 0"),
        ("-s 0", "-s 0"),
        ("-N 0", "-N 0"),
        ("-C -Z", "two task orders"),
        ("-z -C", "file per process"),
        ("-z -R -w -F", "--random-offset-seed"),
        ("-z -b 1m -t 1m", "shuffles"),
        ("-r -R", "-G"),
        ("-O stoneWallingWearOut=1", "-D"),
        ("-w -D 1 -k -O stoneWallingStatusFile=/s", "stoneWallingWearOut=1"),
        ("-w -D 1 -O stoneWallingStatusFile=/s,stoneWallingWearOut=1", "-k"),
        ("-u -F -o a@b", "-u"),
        ("--randomPrefill 1m", "-z"),
        ("-z --randomPrefill 1m -D 3", "forever"),
        ("-b 2000000g -s 1000", "1 EiB"),
    ];
    for (line, reason) in lines {
        let error = parse(line).expect_err(line);
        assert!(error.contains(reason), "{line}: {error}");
    }
}

#[test]
fn a_script_makes_a_test_for_each_run() {
    let mut line = parse("-b 8m -f script").expect("options");
    assert_eq!(line.script.as_deref(), Some("script"));
    let script = "\
        what stands before is no matter\n\
        IOR START\n  # a comment\n  testFile=/d/f, filePerProc=1 # another\n  RUN\n\
        transferSize=64k\n\nrun\n  RUN\n  keepFile=1\nIOR STOP\nnonsense\n";
    line.read_script(script).expect("a script");
    let shown: Vec<_> = line
        .tests
        .iter()
        .map(|test| (test.block_bytes >> 20, test.transfer_bytes >> 10, test.keeps_file))
        .collect();
    // What no RUN follows is run as well.
    assert_eq!(shown, [(8, 256, false), (8, 64, false), (8, 64, false), (8, 64, true)]);
    assert!(line.tests.iter().all(|test| test.test_file == "/d/f" && test.file_per_task));
    let wrong = line.read_script("IOR START\nfoo=1\nRUN\n").expect_err("no setting");
    assert!(wrong.starts_with("line 2 of the script"), "{wrong}");
}
