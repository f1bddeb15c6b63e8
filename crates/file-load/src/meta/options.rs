//! mdtest's options: what each sets, and which combinations make no test.

use crate::pattern::PatternKind;
use crate::size::parse_size;
use crate::words::{self, Given, OptionSpec};

/// What a run is to do, in mdtest's words. Sizes are in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetaOptions {
    /// `-b`: subdirectories of each directory of the tree.
    pub branches: u64,
    /// `-B`: no barriers between phases.
    pub has_no_barriers: bool,
    /// `-c`: rank 0 creates and removes for all.
    pub is_collective: bool,
    /// `-C`.
    pub creates: bool,
    /// `-d`: the directory, or several with `@` between them.
    pub directory: String,
    /// `-D`.
    pub directories_only: bool,
    /// `-e`: bytes read from each file.
    pub read_bytes: u64,
    /// `-E`.
    pub reads: bool,
    /// `-f`: tasks of the first run; 0: all.
    pub first_tasks: u64,
    /// `-F`.
    pub files_only: bool,
    /// `-G`: the seed of the data; none: the time of the run.
    pub seed: Option<i32>,
    /// `-i`.
    pub iterations: u32,
    /// `-I`: items in each directory of the tree; 0: by `-n`.
    pub items_per_directory: u64,
    /// `-k`: files are made by mknod.
    pub makes_nodes: bool,
    /// `-l`: tasks of the last run; 0: all.
    pub last_tasks: u64,
    /// `-L`: items only in the directories without subdirectories.
    pub leaves_only: bool,
    /// `-n`: items of each task.
    pub items: u64,
    /// `-N`: how many tasks further the names are that are looked at, read and removed.
    pub stride: u64,
    /// `-p`: seconds before each iteration.
    pub delay_s: u64,
    /// `-P`: rates and times.
    pub prints_both: bool,
    /// `--print-all-procs`.
    pub prints_all_ranks: bool,
    /// `--show-perrank-statistics`.
    pub shows_rank_statistics: bool,
    /// `-r`.
    pub removes: bool,
    /// `-R`: in random order.
    pub is_random: bool,
    /// `--random-seed`.
    pub random_seed: u32,
    /// `-s`: tasks between two runs.
    pub task_step: u64,
    /// `-S`: all tasks use the same names.
    pub is_shared: bool,
    /// `-t`: the time to reach a directory of one's own counts.
    pub times_directories: bool,
    /// `-T`.
    pub stats: bool,
    /// `-u`: a tree for each task.
    pub tree_per_task: bool,
    /// `-U`.
    pub renames: bool,
    /// `-v`, `-V`.
    pub verbosity: u32,
    /// `-w`: bytes written to each file.
    pub write_bytes: u64,
    /// `-W`: seconds after which files are no longer created; 0: no limit.
    pub stonewall_s: u64,
    /// `-x`.
    pub status_file: Option<String>,
    /// `-X`.
    pub verifies_reads: bool,
    /// `--verify-write`.
    pub verifies_writes: bool,
    /// `-y`.
    pub fsyncs: bool,
    /// `-Y`.
    pub syncs_phases: bool,
    /// `-z`: levels of directories below the first.
    pub depth: u32,
    /// `-Z`: times instead of rates.
    pub prints_times: bool,
    /// `--dataPacketType`.
    pub pattern: PatternKind,
    /// `--run-cmd-before-phase`.
    pub command_before: Option<String>,
    /// `--run-cmd-after-phase`.
    pub command_after: Option<String>,
    /// `--saveRankPerformanceDetails`.
    pub ranks_file: Option<String>,
    /// `--savePerOpDataCSV`: the beginning of the files' names.
    pub calls_file: Option<String>,
    /// `--warningAsErrors`.
    pub warnings_are_errors: bool,
    /// `--posix.odirect`.
    pub is_direct: bool,
}

impl Default for MetaOptions {
    fn default() -> Self {
        Self {
            branches: 1,
            has_no_barriers: false,
            is_collective: false,
            creates: false,
            directory: "./out".to_owned(),
            directories_only: false,
            read_bytes: 0,
            reads: false,
            first_tasks: 0,
            files_only: false,
            seed: None,
            iterations: 1,
            items_per_directory: 0,
            makes_nodes: false,
            last_tasks: 0,
            leaves_only: false,
            items: 0,
            stride: 0,
            delay_s: 0,
            prints_both: false,
            prints_all_ranks: false,
            shows_rank_statistics: false,
            removes: false,
            is_random: false,
            random_seed: 0,
            task_step: 1,
            is_shared: false,
            times_directories: false,
            stats: false,
            tree_per_task: false,
            renames: false,
            verbosity: 0,
            write_bytes: 0,
            stonewall_s: 0,
            status_file: None,
            verifies_reads: false,
            verifies_writes: false,
            fsyncs: false,
            syncs_phases: false,
            depth: 0,
            prints_times: false,
            pattern: PatternKind::Timestamp,
            command_before: None,
            command_after: None,
            ranks_file: None,
            calls_file: None,
            warnings_are_errors: false,
            is_direct: false,
        }
    }
}

/// Every option of mdtest's command line that needs no other back end.
pub const SPECS: &[OptionSpec] = &[
    OptionSpec::value('a'),
    OptionSpec::value('b'),
    OptionSpec::value('B'),
    OptionSpec::flag('c'),
    OptionSpec::flag('C'),
    OptionSpec::value('d'),
    OptionSpec::flag('D'),
    OptionSpec::value('e'),
    OptionSpec::flag('E'),
    OptionSpec::value('f'),
    OptionSpec::flag('F'),
    OptionSpec::flag('g'),
    OptionSpec::value('G'),
    OptionSpec::value('i'),
    OptionSpec::value('I'),
    OptionSpec::flag('k'),
    OptionSpec::value('l'),
    OptionSpec::flag('L'),
    OptionSpec::value('n'),
    OptionSpec::value('N'),
    OptionSpec::value('p'),
    OptionSpec::flag('P'),
    OptionSpec::flag('r'),
    OptionSpec::flag('R'),
    OptionSpec::value('s'),
    OptionSpec::flag('S'),
    OptionSpec::flag('t'),
    OptionSpec::flag('T'),
    OptionSpec::flag('u'),
    OptionSpec::flag('U'),
    OptionSpec::flag('v'),
    OptionSpec::value('V'),
    OptionSpec::value('w'),
    OptionSpec::value('W'),
    OptionSpec::value('x'),
    OptionSpec::flag('X').or("verify-read"),
    OptionSpec::flag('y'),
    OptionSpec::flag('Y'),
    OptionSpec::value('z'),
    OptionSpec::flag('Z'),
    OptionSpec::long_flag("print-all-procs"),
    OptionSpec::long_value("random-seed"),
    OptionSpec::long_flag("verify-write"),
    OptionSpec::long_value("dataPacketType"),
    OptionSpec::long_value("run-cmd-before-phase"),
    OptionSpec::long_value("run-cmd-after-phase"),
    OptionSpec::long_flag("warningAsErrors"),
    OptionSpec::long_value("saveRankPerformanceDetails"),
    OptionSpec::long_value("savePerOpDataCSV"),
    OptionSpec::long_flag("showRankStatistics"),
    OptionSpec::long_flag("show-perrank-statistics"),
    OptionSpec::long_flag("posix.odirect"),
];

impl MetaOptions {
    /// Reads a command line, the program's name not included, and settles what it leaves open: without
    /// -C, -T, -E, -r and -U all phases run, without -D and -F both files and directories are made.
    ///
    /// # Errors
    /// One line: the option and what is wrong with it.
    pub fn parse(words: &[String]) -> Result<Self, String> {
        if let Some(reason) = words.iter().find_map(|word| crate::io::options::refusal(word)) {
            return Err(reason);
        }
        let mut options = Self::default();
        for given in words::read(words, SPECS).map_err(|error| error.to_string())? {
            match &given.value {
                Some(value) if !options.set(&given, value)? => {
                    let number = parse_size(value);
                    let is_set = number
                        .ok_or_else(|| format!("{} {value}: this is not a number", given.option))?;
                    options.set_flag(&given.option, Some(is_set))?;
                }
                Some(_) => {}
                None => options.set_flag(&given.option, None)?,
            }
        }
        options.settle();
        match options.contradiction() {
            Some(line) => Err(line.to_owned()),
            None => Ok(options),
        }
    }

    /// Sets an option with a value; whether it is one.
    fn set(&mut self, given: &Given, value: &str) -> Result<bool, String> {
        let option = given.option.as_str();
        let at = |what: &str| format!("{option} {value}: {what}");
        let size = || parse_size(value).ok_or_else(|| at("this is not a number or a size"));
        let small = || u32::try_from(size()?).map_err(|_large| at("this number is too large"));
        match option {
            "-a" if value.eq_ignore_ascii_case("posix") => {}
            "-a" => {
                return Err(at(
                    "only the POSIX back end is supported; others need libraries of their own",
                ));
            }
            "-b" => self.branches = size()?,
            "-B" => self.has_no_barriers = size()? > 0,
            "-d" => value.clone_into(&mut self.directory),
            "-e" => self.read_bytes = size()?,
            "-f" => self.first_tasks = size()?,
            "-G" => self.seed = Some(seed(value).ok_or_else(|| at("this is not a 32-bit number"))?),
            "-i" => self.iterations = small()?,
            "-I" => self.items_per_directory = size()?,
            "-l" => self.last_tasks = size()?,
            "-n" => self.items = size()?,
            "-N" => self.stride = size()?,
            "-p" => self.delay_s = size()?,
            "-s" => self.task_step = size()?,
            "-V" => self.verbosity = small()?,
            "-w" => self.write_bytes = size()?,
            "-W" => self.stonewall_s = size()?,
            "-x" => self.status_file = Some(value.to_owned()),
            "-z" => self.depth = small()?,
            "--random-seed" => self.random_seed = small()?,
            "--dataPacketType" => {
                let kind = value.chars().next().and_then(PatternKind::of_letter);
                self.pattern = kind.ok_or_else(|| at("expected o, i, t or r"))?;
            }
            "--run-cmd-before-phase" => self.command_before = Some(value.to_owned()),
            "--run-cmd-after-phase" => self.command_after = Some(value.to_owned()),
            "--saveRankPerformanceDetails" => self.ranks_file = Some(value.to_owned()),
            "--savePerOpDataCSV" => self.calls_file = Some(value.to_owned()),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn set_flag(&mut self, option: &str, number: Option<u64>) -> Result<(), String> {
        let is_set = number != Some(0);
        let flag = match option {
            "-c" => &mut self.is_collective,
            "-C" => &mut self.creates,
            "-D" => &mut self.directories_only,
            "-E" => &mut self.reads,
            "-F" => &mut self.files_only,
            "-k" => &mut self.makes_nodes,
            "-L" => &mut self.leaves_only,
            "-P" => &mut self.prints_both,
            "-r" => &mut self.removes,
            "-R" => &mut self.is_random,
            "-S" => &mut self.is_shared,
            "-t" => &mut self.times_directories,
            "-T" => &mut self.stats,
            "-u" => &mut self.tree_per_task,
            "-U" => &mut self.renames,
            "-X" => &mut self.verifies_reads,
            "-y" => &mut self.fsyncs,
            "-Y" => &mut self.syncs_phases,
            "-Z" => &mut self.prints_times,
            "--print-all-procs" => &mut self.prints_all_ranks,
            "--verify-write" => &mut self.verifies_writes,
            "--warningAsErrors" => &mut self.warnings_are_errors,
            "--showRankStatistics" | "--show-perrank-statistics" => &mut self.shows_rank_statistics,
            "--posix.odirect" => &mut self.is_direct,
            "-v" => {
                let level = number.map_or(self.verbosity.saturating_add(1), |number| {
                    u32::try_from(number).unwrap_or(u32::MAX)
                });
                self.verbosity = level;
                return Ok(());
            }
            "-g" => {
                return Err(
                    "-g is not supported: it needs the client library of lustre; set the layout \
                     of the directory with lfs"
                        .to_owned(),
                );
            }
            _ => return Err(format!("there is no option {option}")),
        };
        *flag = is_set;
        Ok(())
    }

    fn settle(&mut self) {
        if !(self.creates || self.stats || self.reads || self.removes || self.renames) {
            self.creates = true;
            self.stats = true;
            self.reads = true;
            self.removes = true;
            self.renames = true;
        }
        if !self.directories_only && !self.files_only {
            self.directories_only = true;
            self.files_only = true;
        }
        if self.is_shared {
            self.directories_only = false;
        }
    }

    /// The directories of `-d`.
    #[must_use]
    pub fn directories(&self) -> Vec<&str> {
        self.directory.split('@').filter(|name| !name.is_empty()).collect()
    }

    fn contradiction(&self) -> Option<&'static str> {
        let directories = self.directories().len();
        let has_both = self.items > 0 && self.items_per_directory > 0;
        let rules = [
            (directories == 0, "-d needs a directory"),
            (
                self.stonewall_s > 0 && self.depth > 0,
                "-W needs one directory: -z 0 (ranks stop at the same number of files, not at the same \
                 directory)",
            ),
            (
                self.stonewall_s > 0 && has_both,
                "-W with both -n and -I is not supported: give -n alone",
            ),
            (
                self.stonewall_s > 0 && self.has_no_barriers,
                "-W needs barriers between phases: no -B",
            ),
            (
                self.has_no_barriers && self.stride > 0,
                "-B with -N: files would be examined before they are created",
            ),
            (
                self.is_shared && !self.files_only,
                "-D is not compatible with -S: no directory is shared, and no file would be made",
            ),
            (self.is_shared && self.is_collective, "-c is not compatible with -S"),
            (directories > 1 && self.is_collective, "-c takes one directory, -d has several"),
            (self.is_collective && self.has_no_barriers, "-c is not compatible with -B"),
            (self.tree_per_task && self.is_shared, "-u is not compatible with -S"),
            (directories > 1 && self.stride > 0, "-N takes one directory, -d has several"),
            (directories > 1 && !self.tree_per_task, "several directories (-d) need -u"),
            (self.branches < 1 && self.depth > 0, "-z needs a branching factor: -b of at least 1"),
            (
                has_both && self.tree_per_task,
                "give either the number of items (-n) or the number of items per directory (-I)",
            ),
            (
                has_both && !self.items.is_multiple_of(self.items_per_directory.max(1)),
                "-n must be a multiple of the items per directory (-I)",
            ),
            (
                self.items == 0 && self.items_per_directory == 0 && self.status_file.is_none(),
                "how many items? -n ITEMS for each rank, or -I ITEMS per directory",
            ),
            (self.write_bytes > 0 && self.makes_nodes, "-k is not compatible with -w"),
            (self.verifies_reads && !self.reads, "-X needs the read phase: -E"),
            (self.verifies_reads && self.read_bytes == 0, "-X needs bytes to read: -e"),
            (
                self.creates && self.reads && self.read_bytes > self.write_bytes,
                "-e must not be more than -w when files are written and read",
            ),
            (self.task_step == 0, "-s 0: the step between numbers of tasks must be at least 1"),
            (self.iterations == 0, "-i 0: a test needs an iteration"),
            (
                self.last_tasks > 0 && self.first_tasks > self.last_tasks,
                "-f must not be more than -l",
            ),
        ];
        rules.into_iter().find(|(is_broken, _)| *is_broken).map(|(_, line)| line)
    }
}

fn seed(value: &str) -> Option<i32> {
    let number: i64 = value.parse().ok()?;
    i32::try_from(number).or_else(|_| u32::try_from(number).map(u32::cast_signed)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<MetaOptions, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        MetaOptions::parse(&words)
    }

    #[test]
    fn every_flag_sets_what_it_says() {
        let set = parse(
            "-a POSIX -b 2 -B 0 -C -d /d -D -e 5 -E -f 1 -F -G=-3 -i 4 -L -l 2 -n 8 -N 1 -p 6 -P -r -R \
             -s 1 -t -T -u -U -vv -w 9 -x /s -X -y -Y -z 3 -Z --print-all-procs --random-seed 5 \
             --verify-write --dataPacketType=o --saveRankPerformanceDetails=/r --warningAsErrors \
             --show-perrank-statistics --savePerOpDataCSV /o --run-cmd-before-phase true",
        );
        let expected = MetaOptions {
            branches: 2,
            creates: true,
            directory: "/d".to_owned(),
            directories_only: true,
            read_bytes: 5,
            reads: true,
            first_tasks: 1,
            files_only: true,
            seed: Some(-3),
            iterations: 4,
            leaves_only: true,
            last_tasks: 2,
            items: 8,
            stride: 1,
            delay_s: 6,
            prints_both: true,
            removes: true,
            is_random: true,
            times_directories: true,
            stats: true,
            tree_per_task: true,
            renames: true,
            verbosity: 2,
            write_bytes: 9,
            status_file: Some("/s".to_owned()),
            verifies_reads: true,
            fsyncs: true,
            syncs_phases: true,
            depth: 3,
            prints_times: true,
            prints_all_ranks: true,
            random_seed: 5,
            verifies_writes: true,
            pattern: PatternKind::Offset,
            ranks_file: Some("/r".to_owned()),
            warnings_are_errors: true,
            shows_rank_statistics: true,
            calls_file: Some("/o".to_owned()),
            command_before: Some("true".to_owned()),
            ..MetaOptions::default()
        };
        assert_eq!(set, Ok(expected));
    }

    #[test]
    fn lines_of_io500_are_taken_unchanged() {
        let easy =
            "-n 1000000 -u -L -F -P -G 271 -N 1 -d /d/mdtest-easy -x /d/s -C -Y -W 300 -a POSIX";
        let easy = parse(easy).expect("a test");
        assert!(easy.creates && !easy.stats && easy.files_only && !easy.directories_only);
        let hard = "-t -w 3901 -e 3901 -P -G=27 -N 1 -F -C -Y -W 300 -x /d/s -n 1000000 -d /d \
                    --dataPacketType=timestamp --saveRankPerformanceDetails=/r -a POSIX";
        assert_eq!(parse(hard).map(|test| test.write_bytes), Ok(3901));
        let read = "-t -w 3901 -e 3901 -X -P -G=27 -N 1 -F -E -x /d/s -n 1000000 -d /d";
        assert!(parse(read).is_ok_and(|test| test.reads && !test.creates && test.verifies_reads));
    }

    #[test]
    fn without_a_phase_all_run() {
        let test = parse("-n 3").expect("a test");
        assert!(test.creates && test.stats && test.reads && test.removes && test.renames);
        assert!(test.directories_only && test.files_only);
        assert!(!parse("-n 3 -S").expect("a test").directories_only);
    }

    #[test]
    fn combinations_that_make_no_test_are_refused() {
        let lines = [
            ("-a MPIIO -n 1", "only the POSIX"),
            ("-g -n 1", "lfs"),
            ("-q -n 1", "there is no option -q"),
            ("-n 1 -W 3 -z 1", "-z 0"),
            ("-n 4 -I 2 -W 3", "-n alone"),
            ("-n 4 -I 2 -u", "or the number of items per directory"),
            ("-n 5 -I 2", "multiple"),
            ("-n 1 -B 1 -N 1", "before they are created"),
            ("-n 1 -c -S", "-S"),
            ("-n 1 -u -S", "-S"),
            ("-n 1 -d a@b", "-u"),
            ("-n 1 -k -w 3", "-k"),
            ("-n 1 -X -C", "-E"),
            ("-n 1 -e 5", "-e must not"),
            ("-F", "how many"),
            ("-n 1 -i 0", "-i 0"),
            ("-n 1 -f 3 -l 2", "-f"),
            ("-n x", "not a number"),
        ];
        for (line, reason) in lines {
            let error = parse(line).expect_err(line);
            assert!(error.contains(reason), "{line}: {error}");
        }
    }
}
