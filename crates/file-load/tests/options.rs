//! Command lines of IOR and mdtest, fuzzed: any words are read or refused, and what is read is printed back
//! as words with the same meaning.

use file_load::io::options::{CommandLine, Destinations, Format, IoOptions, Memory};
use file_load::meta::options::MetaOptions;
use file_load::pattern::PatternKind;

/// Words as a fuzzer chooses them: from a list, or its own.
type Material = Vec<(u8, bool, String)>;

/// Lines of IO500, and what is at the edges.
const IO: &str = "-C -Q 1 -g -G 271 -k -e -o /d/f -t 2m -b 16m -F -w -D 300 -O stoneWallingWearOut=1 \
    -O stoneWallingStatusFile=/d/s -G=27 -t 47008 -b 47008 -s 1000 -r -R -z --random-offset-seed=11 \
    --randomPrefill=0 -a POSIX -Q=1 -O saveRankPerformanceDetailsCSV=/r -v -v=4294967295 -vvv -Z -Z=2 \
    -X -9 -A=-8p -i 0 -i=9999999999 -M 50% -M=2g -N 3 -o=a@b -o= -T 1 -j 2 -d 3 -l r -c -E -K -m -u -W -x \
    -Y -y=0 -f s --dryRun --warningAsErrors --posix.odirect --posix.rangelocks=0 -O summaryFormat=JSON \
    -O summaryFile=/s,verbose=2#x -O savePerOpDataCSV=/o,numNodes=1,numTasksOnNode0=2,interIODelay=7 \
    -O platform=p=q,debug=d,memoryPerTask=1k,summaryAlways=1,minTimeDuration=3 -O= -O , - -- --x \
    -O stoneWallingWearOutIterations=4 -O repetitions=-1 --dataPacketType=o -b=8191p -G=4294967295";

const META: &str = "-n 1000 -u -L -F -P -G 271 -N 1 -d /d -x /d/s -C -Y -W 300 -a POSIX -t -w 3901 -e 3901 \
    -G=27 -T -X -E -r -D -S -c -B 1 -B=0 -b 2 -z 3 -I 10 -i 2 -f 1 -l 4 -s 2 -k -p 1 -R -U -v -v=9999999999 \
    -V 3 -y -Z --print-all-procs --random-seed=5 --verify-write --dataPacketType=i -d=a@b -d= \
    --saveRankPerformanceDetails=/r --savePerOpDataCSV=/o --warningAsErrors --show-perrank-statistics \
    --showRankStatistics --run-cmd-before-phase=a=b --run-cmd-after-phase true --posix.odirect -g -q \
    --verify-read -z=4294967295 -b=8191p -n=8191p -vvv -G=-1";

/// The words: those of the list, singly or with the value that follows there, or the fuzzer's own.
fn words(list: &str, material: &Material) -> Vec<String> {
    let list: Vec<&str> = list.split_whitespace().collect();
    let mut words = Vec::new();
    for (place, is_own, own) in material {
        let place = usize::from(*place) % list.len();
        if *is_own {
            words.push(own.clone());
            continue;
        }
        words.push(list[place].to_owned());
        let next = list.get(place + 1).filter(|next| !next.starts_with('-') || **next == "-9");
        words.extend(next.map(|next| (*next).to_owned()));
    }
    words
}

/// Words that say what they are given.
#[derive(Default)]
struct Printed(Vec<String>);

impl Printed {
    fn flags(&mut self, flags: &[(&str, bool)]) {
        self.0
            .extend(flags.iter().filter(|(_, is_set)| *is_set).map(|(name, _)| (*name).to_owned()));
    }

    fn numbers(&mut self, numbers: &[(&str, u64)]) {
        self.0.extend(numbers.iter().map(|(name, number)| format!("{name}={number}")));
    }

    fn texts(&mut self, texts: &[(&str, Option<&String>)]) {
        for (name, text) in texts {
            match text.map(String::as_str) {
                None => {}
                // Nothing behind an equals sign is no value.
                Some("") => self.0.extend([(*name).to_owned(), String::new()]),
                Some(text) => self.0.push(format!("{name}={text}")),
            }
        }
    }
}

fn letter(kind: PatternKind) -> String {
    let letters = ["t", "o", "i", "r"];
    letters[usize::try_from(kind.number()).expect("a kind")].to_owned()
}

fn io_words(line: &CommandLine) -> Vec<String> {
    let CommandLine { tests, destinations, script } = line;
    let [test] = tests.as_slice() else { panic!("a command line is one test") };
    let mut printed = Printed::default();
    let Destinations { format, summary_file, ranks_file, transfers_file } = destinations;
    let format = match format {
        Format::Text => "-O=summaryFormat=default",
        Format::Json => "-O=summaryFormat=JSON",
        Format::Csv => "-O=summaryFormat=CSV",
    };
    printed.0.push(format.to_owned());
    printed.texts(&[
        ("-f", script.as_ref()),
        ("-O=summaryFile", summary_file.as_ref()),
        ("-O=saveRankPerformanceDetailsCSV", ranks_file.as_ref()),
        ("-O=savePerOpDataCSV", transfers_file.as_ref()),
    ]);
    let IoOptions {
        reference_number,
        block_bytes,
        transfer_bytes,
        segment_count,
        is_collective,
        reorders_tasks,
        random_reorder,
        reorder_seed,
        task_offset,
        delay_s,
        stonewall_s,
        wears_out,
        wear_out_count,
        status_file,
        time_min_s,
        time_max_min,
        fsyncs,
        fsyncs_each_write,
        keeps_existing_file,
        file_per_task,
        directory_per_task,
        file_per_repetition,
        has_barriers,
        seed,
        pattern,
        repetitions,
        outlier_s,
        keeps_file,
        keeps_file_with_errors,
        memory_per_node_bytes,
        memory_per_task_bytes,
        tasks,
        nodes,
        tasks_on_first_node,
        test_file,
        writes,
        reads,
        checks_write,
        checks_read,
        single_attempt,
        random_offset,
        offset_seed,
        prefill_bytes,
        verbosity,
        is_direct,
        locks_ranges,
        transfer_delay_us,
        warnings_are_errors,
        is_dry,
        summary_always,
        platform,
        debug,
        ring_depth,
    } = test;
    assert_eq!(*ring_depth, 0, "no option of IOR");
    printed.flags(&[
        ("-c", *is_collective),
        ("-C", *reorders_tasks),
        ("-e", *fsyncs),
        ("-Y", *fsyncs_each_write),
        ("-E", *keeps_existing_file),
        ("-F", *file_per_task),
        ("-u", *directory_per_task),
        ("-m", *file_per_repetition),
        ("-g", *has_barriers),
        ("-k", *keeps_file),
        ("-K", *keeps_file_with_errors),
        ("-w", *writes),
        ("-r", *reads),
        ("-W", *checks_write),
        ("-R", *checks_read),
        ("-x", *single_attempt),
        ("--posix.odirect", *is_direct),
        ("--posix.rangelocks", *locks_ranges),
        ("--warningAsErrors", *warnings_are_errors),
        ("--dryRun", *is_dry),
        ("-O=summaryAlways=1", *summary_always),
        ("-O=stoneWallingWearOut=1", *wears_out),
    ]);
    printed.numbers(&[
        ("-b", *block_bytes),
        ("-t", *transfer_bytes),
        ("-s", *segment_count),
        ("-Q", *task_offset),
        ("-d", *delay_s),
        ("-D", *stonewall_s),
        ("-O=stoneWallingWearOutIterations", *wear_out_count),
        ("-O=minTimeDuration", *time_min_s),
        ("-T", *time_max_min),
        ("-j", *outlier_s),
        ("-O=memoryPerTask", *memory_per_task_bytes),
        ("--randomPrefill", *prefill_bytes),
        ("-O=interIODelay", *transfer_delay_us),
        ("-Z", u64::from(*random_reorder)),
        ("-z", u64::from(*random_offset)),
        ("-v", u64::from(*verbosity)),
        ("-i", u64::from(*repetitions)),
    ]);
    let number = |number: &Option<u64>| number.map(|number| number.to_string());
    let small = |number: &Option<i32>| number.map(|number| number.to_string());
    let memory = match memory_per_node_bytes {
        Memory::Bytes(bytes) => bytes.to_string(),
        Memory::Percent(percent) => format!("{percent}%"),
    };
    printed.texts(&[
        ("-A", Some(&reference_number.to_string())),
        ("-X", Some(&reorder_seed.to_string())),
        ("-G", small(seed).as_ref()),
        ("--random-offset-seed", small(offset_seed).as_ref()),
        ("-l", Some(&letter(*pattern))),
        ("-M", Some(&memory)),
        ("-N", number(tasks).as_ref()),
        ("-O=numNodes", number(nodes).as_ref()),
        ("-O=numTasksOnNode0", number(tasks_on_first_node).as_ref()),
        ("-o", Some(test_file)),
        ("-O=stoneWallingStatusFile", status_file.as_ref()),
        ("-O=platform", platform.as_ref()),
        ("-O=debug", debug.as_ref()),
    ]);
    printed.0
}

fn meta_words(options: &MetaOptions) -> Vec<String> {
    let MetaOptions {
        branches,
        has_no_barriers,
        is_collective,
        creates,
        directory,
        directories_only,
        read_bytes,
        reads,
        first_tasks,
        files_only,
        seed,
        iterations,
        items_per_directory,
        makes_nodes,
        last_tasks,
        leaves_only,
        items,
        stride,
        delay_s,
        prints_both,
        prints_all_ranks,
        shows_rank_statistics,
        removes,
        is_random,
        random_seed,
        task_step,
        is_shared,
        times_directories,
        stats,
        tree_per_task,
        renames,
        verbosity,
        write_bytes,
        stonewall_s,
        status_file,
        verifies_reads,
        verifies_writes,
        fsyncs,
        syncs_phases,
        depth,
        prints_times,
        pattern,
        command_before,
        command_after,
        ranks_file,
        calls_file,
        warnings_are_errors,
        is_direct,
    } = options;
    let mut printed = Printed::default();
    printed.flags(&[
        ("-c", *is_collective),
        ("-C", *creates),
        ("-D", *directories_only),
        ("-E", *reads),
        ("-F", *files_only),
        ("-k", *makes_nodes),
        ("-L", *leaves_only),
        ("-P", *prints_both),
        ("--print-all-procs", *prints_all_ranks),
        ("--showRankStatistics", *shows_rank_statistics),
        ("-r", *removes),
        ("-R", *is_random),
        ("-S", *is_shared),
        ("-t", *times_directories),
        ("-T", *stats),
        ("-u", *tree_per_task),
        ("-U", *renames),
        ("-X", *verifies_reads),
        ("--verify-write", *verifies_writes),
        ("-y", *fsyncs),
        ("-Y", *syncs_phases),
        ("-Z", *prints_times),
        ("--warningAsErrors", *warnings_are_errors),
        ("--posix.odirect", *is_direct),
    ]);
    printed.numbers(&[
        ("-b", *branches),
        ("-B", u64::from(*has_no_barriers)),
        ("-e", *read_bytes),
        ("-f", *first_tasks),
        ("-i", u64::from(*iterations)),
        ("-I", *items_per_directory),
        ("-l", *last_tasks),
        ("-n", *items),
        ("-N", *stride),
        ("-p", *delay_s),
        ("--random-seed", u64::from(*random_seed)),
        ("-s", *task_step),
        ("-V", u64::from(*verbosity)),
        ("-w", *write_bytes),
        ("-W", *stonewall_s),
        ("-z", u64::from(*depth)),
    ]);
    printed.texts(&[
        ("-d", Some(directory)),
        ("-G", seed.map(|seed| seed.to_string()).as_ref()),
        ("-x", status_file.as_ref()),
        ("--dataPacketType", Some(&letter(*pattern))),
        ("--run-cmd-before-phase", command_before.as_ref()),
        ("--run-cmd-after-phase", command_after.as_ref()),
        ("--saveRankPerformanceDetails", ranks_file.as_ref()),
        ("--savePerOpDataCSV", calls_file.as_ref()),
    ]);
    printed.0
}

#[test]
fn any_words_for_ior_are_refused_or_printed_back_with_the_same_meaning() {
    bolero::check!().with_type::<Material>().for_each(|material| {
        let Ok(mut line) = CommandLine::parse(&words(IO, material)) else { return };
        let printed = io_words(&line);
        assert_eq!(CommandLine::parse(&printed).as_ref(), Ok(&line), "{printed:?}");
        if line.settle().is_ok() {
            let mut again = CommandLine::parse(&io_words(&line)).expect("what was read");
            assert!(again.settle().is_ok_and(|warnings| warnings.is_empty()) && again == line);
        }
    });
}

#[test]
fn any_words_for_mdtest_are_refused_or_printed_back_with_the_same_meaning() {
    bolero::check!().with_type::<Material>().for_each(|material| {
        let Ok(options) = MetaOptions::parse(&words(META, material)) else { return };
        let printed = meta_words(&options);
        assert_eq!(MetaOptions::parse(&printed).as_ref(), Ok(&options), "{printed:?}");
    });
}

#[test]
fn any_script_of_ior_is_read_or_refused() {
    bolero::check!().with_type::<(Material, String)>().for_each(|(material, text)| {
        let mut line = CommandLine::parse(&[]).expect("no options");
        line.read_script(text).ok();
        let directives = words(IO, material).join("\n");
        let mut line = CommandLine::parse(&[]).expect("no options");
        if line.read_script(&format!("IOR START\n{directives}\nRUN\n{text}")).is_ok() {
            line.settle().ok();
        }
    });
}

/// Lines of IO500, as pairs of option and value.
const LINES: [&str; 4] = [
    "-C|-Q 1|-g|-G 271|-k|-e|-o /d/f|-t 2m|-b 9920000m|-F|-w|-D 300|-O stoneWallingWearOut=1\
     |-O stoneWallingStatusFile=/d/s",
    "-C|-Q 1|-g|-G 27|-k|-e|-o /d/f|-t 47008|-b 47008|-s 10000000|-r|-R|-a POSIX",
    "-Q 1|-g|-G 271|-z|--random-offset-seed 11|-e|-o /d/f|-k|-t 4096|-b 1073741824|-s 10|-r|-R|-F",
    "-C|-Q 1|-g|-G 27|-k|-e|-o /d/f|-t 47008|-b 47008|-s 10|-w|-O saveRankPerformanceDetailsCSV=/r",
];

#[test]
fn lines_of_io500_mean_the_same_in_any_order_and_spelling() {
    bolero::check!().with_type::<(u8, Vec<(u8, u8)>)>().for_each(|(which, changes)| {
        let line = LINES[usize::from(*which) % LINES.len()];
        let mut options: Vec<&str> = line.split('|').collect();
        let plain: Vec<String> = options.join(" ").split(' ').map(str::to_owned).collect();
        for (place, (other, _)) in changes.iter().enumerate() {
            let count = options.len();
            options.swap(place % count, usize::from(*other) % count);
        }
        let mut words = Vec::new();
        for (place, option) in options.iter().enumerate() {
            let spelling = changes.get(place).map_or(0, |(_, spelling)| spelling % 3);
            match (option.split_once(' '), spelling) {
                (Some((name, value)), 1) => words.push(format!("{name}={value}")),
                (Some((name, value)), 2) if name.len() == 2 => words.push(format!("{name}{value}")),
                (Some((name, value)), _) => words.extend([name.to_owned(), value.to_owned()]),
                (None, _) => words.push((*option).to_owned()),
            }
        }
        let settled = |words: &[String]| {
            let mut line = CommandLine::parse(words)?;
            line.settle().map(|_warnings| line)
        };
        let expected = settled(&plain).expect("a line of IO500");
        assert_eq!(settled(&words), Ok(expected), "{words:?}");
    });
}

#[test]
fn a_counted_flag_stops_at_its_limit_and_a_line_that_makes_nothing_is_refused() {
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let line = CommandLine::parse(&words("-v=9999999999 -v")).expect("a line");
    assert_eq!(line.tests[0].verbosity, u32::MAX);
    let line = MetaOptions::parse(&words("-n 1 -v=9999999999 -v")).expect("a line");
    assert_eq!(line.verbosity, u32::MAX);
    let error = MetaOptions::parse(&words("-n 1 -D -S")).expect_err("nothing is made");
    assert!(error.contains("-D is not compatible with -S"), "{error}");
}
