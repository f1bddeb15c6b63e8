//! IOR's options: what each sets, what is refused and why, and which combinations make no test.

mod directive;
mod validity;

use crate::pattern::PatternKind;
use crate::size::parse_size;
use crate::words::{self, Given, OptionSpec, WordsError};

pub use validity::Warning;

/// What a test is to do, in IOR's words. Sizes are in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IoOptions {
    /// `-A`: a number that the summary repeats.
    pub reference_number: i64,
    /// `-b`: contiguous bytes of one task in one segment.
    pub block_bytes: u64,
    /// `-t`: bytes of one transfer.
    pub transfer_bytes: u64,
    /// `-s`.
    pub segment_count: u64,
    /// `-c`: rank 0 alone decides when a stonewall is hit.
    pub is_collective: bool,
    /// `-C`: a task reads what another wrote.
    pub reorders_tasks: bool,
    /// `-Z`: 1 a random task, 2 a permutation of the tasks.
    pub random_reorder: u32,
    /// `-X`: the seed of `-Z`; a negative one changes with each repetition.
    pub reorder_seed: i64,
    /// `-Q`: how many hosts away the other task is.
    pub task_offset: u64,
    /// `-d`: seconds before each write and read.
    pub delay_s: u64,
    /// `-D`: seconds after which writing and reading stop; 0: never.
    pub stonewall_s: u64,
    /// `-O stoneWallingWearOut`: all tasks go on to what the fastest reached.
    pub wears_out: bool,
    /// `-O stoneWallingWearOutIterations`: transfers after which a task stops; 0: no limit.
    pub wear_out_count: u64,
    /// `-O stoneWallingStatusFile`.
    pub status_file: Option<String>,
    /// `-O minTimeDuration`, seconds.
    pub time_min_s: u64,
    /// `-T`: minutes after which no further repetition begins; 0: no limit.
    pub time_max_min: u64,
    /// `-e`.
    pub fsyncs: bool,
    /// `-Y`.
    pub fsyncs_each_write: bool,
    /// `-E`.
    pub keeps_existing_file: bool,
    /// `-F`.
    pub file_per_task: bool,
    /// `-u`.
    pub directory_per_task: bool,
    /// `-m`.
    pub file_per_repetition: bool,
    /// `-g`.
    pub has_barriers: bool,
    /// `-G`: the seed of the data; none: the time of the run.
    pub seed: Option<i32>,
    /// `-l`.
    pub pattern: PatternKind,
    /// `-i`.
    pub repetitions: u32,
    /// `-j`: seconds from the mean beyond which a task is named; 0: none is.
    pub outlier_s: u64,
    /// `-k`.
    pub keeps_file: bool,
    /// `-K`.
    pub keeps_file_with_errors: bool,
    /// `-M`, `-O memoryPerNode`: bytes to occupy on each host.
    pub memory_per_node_bytes: Memory,
    /// `-O memoryPerTask`.
    pub memory_per_task_bytes: u64,
    /// `-N`: tasks that take part; none: all.
    pub tasks: Option<u64>,
    /// `-O numNodes`, where the user knows better than the host names say.
    pub nodes: Option<u64>,
    /// `-O numTasksOnNode0`.
    pub tasks_on_first_node: Option<u64>,
    /// `-o`: the file, or several with `@` between them.
    pub test_file: String,
    /// `-w`.
    pub writes: bool,
    /// `-r`.
    pub reads: bool,
    /// `-W`.
    pub checks_write: bool,
    /// `-R`.
    pub checks_read: bool,
    /// `-x`.
    pub single_attempt: bool,
    /// `-z`: 1 shuffled offsets, 2 random ones.
    pub random_offset: u32,
    /// `--random-offset-seed`.
    pub offset_seed: Option<i32>,
    /// `--randomPrefill`.
    pub prefill_bytes: u64,
    /// `-v`.
    pub verbosity: u32,
    /// `--posix.odirect`.
    pub is_direct: bool,
    /// `--posix.rangelocks`.
    pub locks_ranges: bool,
    /// `-O interIODelay`, microseconds.
    pub transfer_delay_us: u64,
    /// `--warningAsErrors`.
    pub warnings_are_errors: bool,
    /// `--dryRun`.
    pub is_dry: bool,
    /// `-O summaryAlways`.
    pub summary_always: bool,
    /// `-O platform`.
    pub platform: Option<String>,
    /// `-O debug`.
    pub debug: Option<String>,
    /// Our own `--uring`: transfers under way at once; 0: one after the other, without `io_uring`.
    pub ring_depth: u32,
}

/// Memory to be occupied on a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// So many bytes.
    Bytes(u64),
    /// So many hundredths of the host's memory.
    Percent(u64),
}

/// In which form results leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// Tables for people.
    #[default]
    Text,
    /// IOR's JSON.
    Json,
    /// IOR's CSV.
    Csv,
}

/// Where results go: the same for all tests of a command line.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Destinations {
    /// `-O summaryFormat`.
    pub format: Format,
    /// `-O summaryFile`.
    pub summary_file: Option<String>,
    /// `-O saveRankPerformanceDetailsCSV`.
    pub ranks_file: Option<String>,
    /// `-O savePerOpDataCSV`: the beginning of the files' names.
    pub transfers_file: Option<String>,
}

impl Default for IoOptions {
    fn default() -> Self {
        Self {
            reference_number: 0,
            block_bytes: 1 << 20,
            transfer_bytes: 256 << 10,
            segment_count: 1,
            is_collective: false,
            reorders_tasks: false,
            random_reorder: 0,
            reorder_seed: 0,
            task_offset: 1,
            delay_s: 0,
            stonewall_s: 0,
            wears_out: false,
            wear_out_count: 0,
            status_file: None,
            time_min_s: 0,
            time_max_min: 0,
            fsyncs: false,
            fsyncs_each_write: false,
            keeps_existing_file: false,
            file_per_task: false,
            directory_per_task: false,
            file_per_repetition: false,
            has_barriers: false,
            seed: None,
            pattern: PatternKind::default(),
            repetitions: 1,
            outlier_s: 0,
            keeps_file: false,
            keeps_file_with_errors: false,
            memory_per_node_bytes: Memory::Bytes(0),
            memory_per_task_bytes: 0,
            tasks: None,
            nodes: None,
            tasks_on_first_node: None,
            test_file: "testFile".to_owned(),
            writes: false,
            reads: false,
            checks_write: false,
            checks_read: false,
            single_attempt: false,
            random_offset: 0,
            offset_seed: None,
            prefill_bytes: 0,
            verbosity: 0,
            is_direct: false,
            locks_ranges: false,
            transfer_delay_us: 0,
            warnings_are_errors: false,
            is_dry: false,
            summary_always: false,
            platform: None,
            debug: None,
            ring_depth: 0,
        }
    }
}

/// Every option of IOR 4's command line that needs no other back end.
pub const SPECS: &[OptionSpec] = &[
    OptionSpec::value('a'),
    OptionSpec::value('A'),
    OptionSpec::value('b'),
    OptionSpec::flag('c').or("collective"),
    OptionSpec::flag('C'),
    OptionSpec::value('d'),
    OptionSpec::value('D'),
    OptionSpec::flag('e'),
    OptionSpec::flag('E'),
    OptionSpec::value('f'),
    OptionSpec::flag('F'),
    OptionSpec::flag('g'),
    OptionSpec::value('G'),
    OptionSpec::value('i'),
    OptionSpec::value('j'),
    OptionSpec::flag('k'),
    OptionSpec::flag('K'),
    OptionSpec::value('l').or("dataPacketType"),
    OptionSpec::flag('m'),
    OptionSpec::value('M'),
    OptionSpec::value('N'),
    OptionSpec::value('o'),
    OptionSpec::value('O'),
    OptionSpec::value('Q'),
    OptionSpec::flag('r'),
    OptionSpec::flag('R'),
    OptionSpec::value('s'),
    OptionSpec::value('t'),
    OptionSpec::value('T'),
    OptionSpec::flag('u'),
    OptionSpec::flag('v'),
    OptionSpec::flag('w'),
    OptionSpec::flag('W'),
    OptionSpec::flag('x'),
    OptionSpec::value('X'),
    OptionSpec::flag('y'),
    OptionSpec::flag('Y'),
    OptionSpec::flag('z'),
    OptionSpec::flag('Z'),
    OptionSpec::long_value("randomPrefill"),
    OptionSpec::long_value("random-offset-seed"),
    OptionSpec::long_flag("warningAsErrors"),
    OptionSpec::long_flag("dryRun"),
    OptionSpec::long_flag("posix.odirect"),
    OptionSpec::long_flag("posix.rangelocks"),
];

/// A command line or a script as tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLine {
    /// The tests, in order. Before a script is read there is one.
    pub tests: Vec<IoOptions>,
    /// Where results go.
    pub destinations: Destinations,
    /// `-f`: a script to be read ([`CommandLine::read_script`]).
    pub script: Option<String>,
}

impl CommandLine {
    /// Reads a command line, the program's name not included.
    ///
    /// # Errors
    /// One line: the option and what is wrong with it.
    pub fn parse(words: &[String]) -> Result<Self, String> {
        let mut line =
            Self { tests: Vec::new(), destinations: Destinations::default(), script: None };
        let mut test = IoOptions::default();
        if let Some(reason) = words.iter().find_map(|word| refusal(word)) {
            return Err(reason);
        }
        for given in words::read(words, SPECS).map_err(|error| unread(&error))? {
            line.set(&mut test, &given)?;
        }
        line.tests.push(test);
        Ok(line)
    }

    /// Replaces the one test by those of a script, which begin with the command line's settings.
    ///
    /// # Errors
    /// One line: the line of the script and what is wrong with it.
    pub fn read_script(&mut self, text: &str) -> Result<(), String> {
        let mut test = self.tests.first().cloned().unwrap_or_default();
        self.tests.clear();
        let is = |line: &str, words: &str| line.trim().eq_ignore_ascii_case(words);
        let mut lines = text.lines().enumerate();
        if !lines.any(|(_, line)| is(line, "ior start")) {
            return Err("the script has no line IOR START".to_owned());
        }
        let mut is_pending = true;
        for (number, line) in lines {
            let line = line.trim();
            if is(line, "ior stop") {
                break;
            }
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            is_pending = !is(line, "run");
            if is_pending {
                self.directives(&mut test, line)
                    .map_err(|error| format!("line {} of the script: {error}", number + 1))?;
            } else {
                self.tests.push(test.clone());
            }
        }
        if is_pending {
            // IOR runs what no RUN follows as well.
            self.tests.push(test);
        }
        Ok(())
    }

    /// Tests as they run: what IOR decides after reading.
    ///
    /// # Errors
    /// The first combination that makes no test.
    pub fn settle(&mut self) -> Result<Vec<Warning>, String> {
        let mut warnings = Vec::new();
        for test in &mut self.tests {
            warnings.extend(test.settle()?);
        }
        Ok(warnings)
    }

    fn set(&mut self, test: &mut IoOptions, given: &Given) -> Result<(), String> {
        let option = given.option.as_str();
        let Some(value) = given.value.as_deref() else {
            return set_flag(test, option, None);
        };
        let at = |what: &str| format!("{option} {value}: {what}");
        let size = || parse_size(value).ok_or_else(|| at("this is not a size (8, 4k, 2m, 1g)"));
        let integer = || integer(value).ok_or_else(|| at("this is not an integer"));
        let count = || size().map_err(|_no_size| at("this is not a number"));
        match option {
            "-a" => api(value)?,
            "-A" => test.reference_number = integer()?,
            "-b" => test.block_bytes = size()?,
            "-d" => test.delay_s = count()?,
            "-D" => test.stonewall_s = count()?,
            "-f" => self.script = Some(value.to_owned()),
            "-G" => test.seed = seed(value).ok_or_else(|| at("this is not a 32-bit number"))?,
            "-i" => {
                test.repetitions = repetitions(value).ok_or_else(|| at("this is out of range"))?
            }
            "-j" => test.outlier_s = count()?,
            "-l" => test.pattern = kind(value).ok_or_else(|| at("expected o, i, t or r"))?,
            "-M" => test.memory_per_node_bytes = memory(value).ok_or_else(|| at("no size"))?,
            "-N" => test.tasks = Some(count()?),
            "-o" => value.clone_into(&mut test.test_file),
            "-O" => self.directives(test, value)?,
            "-Q" => test.task_offset = count()?,
            "-s" => test.segment_count = count()?,
            "-t" => test.transfer_bytes = size()?,
            "-T" => test.time_max_min = count()?,
            "-X" => test.reorder_seed = integer()?,
            "--randomPrefill" => test.prefill_bytes = size()?,
            "--random-offset-seed" => {
                let number = i32::try_from(integer()?);
                test.offset_seed =
                    Some(number.map_err(|_large| at("this is not a 32-bit number"))?);
            }
            _ => set_flag(test, option, Some(integer()?))?,
        }
        Ok(())
    }
}

/// Sets or counts a flag; with a number behind `=` it is that number, 0 where it is negative.
fn set_flag(test: &mut IoOptions, option: &str, number: Option<i64>) -> Result<(), String> {
    let level = |before: u32| {
        number.map_or(before.saturating_add(1), |number| {
            u32::try_from(number.max(0)).unwrap_or(u32::MAX)
        })
    };
    let is_set = level(0) > 0;
    let counted = match option {
        "-v" => Some(&mut test.verbosity),
        "-z" => Some(&mut test.random_offset),
        "-Z" => Some(&mut test.random_reorder),
        _ => None,
    };
    if let Some(counted) = counted {
        *counted = level(*counted);
        return Ok(());
    }
    let flag = match option {
        "-c" => &mut test.is_collective,
        "-C" => &mut test.reorders_tasks,
        "-e" => &mut test.fsyncs,
        "-E" => &mut test.keeps_existing_file,
        "-F" => &mut test.file_per_task,
        "-g" => &mut test.has_barriers,
        "-k" => &mut test.keeps_file,
        "-K" => &mut test.keeps_file_with_errors,
        "-m" => &mut test.file_per_repetition,
        "-r" => &mut test.reads,
        "-R" => &mut test.checks_read,
        "-u" => &mut test.directory_per_task,
        "-w" => &mut test.writes,
        "-W" => &mut test.checks_write,
        "-x" => &mut test.single_attempt,
        "-Y" => &mut test.fsyncs_each_write,
        "--warningAsErrors" => &mut test.warnings_are_errors,
        "--dryRun" => &mut test.is_dry,
        "--posix.odirect" => &mut test.is_direct,
        "--posix.rangelocks" => &mut test.locks_ranges,
        "-y" => return if is_set { Err(DUAL_MOUNT.to_owned()) } else { Ok(()) },
        _ => return Err(format!("there is no option {option}")),
    };
    *flag = is_set;
    Ok(())
}

/// Why words cannot be read, with today's spelling of an option that older versions of IOR had.
fn unread(error: &WordsError) -> String {
    let now = match error {
        WordsError::Unknown { option } => match option.as_str() {
            "-B" => "direct I/O is --posix.odirect",
            "-H" | "-I" | "-J" | "-n" | "-p" | "-P" | "-S" | "-U" | "-V" => {
                "older versions of IOR have it for their MPIIO and HDF5 back ends"
            }
            _ => return error.to_string(),
        },
        _ => return error.to_string(),
    };
    format!("{error}; {now}")
}

const DUAL_MOUNT: &str = "-y (dual mount points) is not supported: the mount point would depend on the processor that \
     a task happens to run on; name the mount points with -o a@b";

/// Only POSIX is built in.
fn api(name: &str) -> Result<(), String> {
    if name.eq_ignore_ascii_case("posix") {
        return Ok(());
    }
    Err(format!("-a {name}: only the POSIX back end is built in (leave out -a, or write -a POSIX)"))
}

/// Why an option of IOR is not taken, if the word is one: those of other back ends and of GPUs.
pub(crate) fn refusal(word: &str) -> Option<String> {
    const LIBRARIES: [&str; 16] = [
        "mpiio", "hdf5", "ncmpi", "rados", "cephfs", "dfs", "daos", "hdfs", "S3", "s3", "libnfs",
        "gfarm", "chfs", "finchfs", "ime", "pmdk",
    ];
    let name = word.strip_prefix("--")?;
    let name = name.split('=').next().unwrap_or(name);
    let prefix = name.split('.').next().unwrap_or(name);
    if LIBRARIES.contains(&prefix) || ["mmap", "aio", "dummy"].contains(&prefix) {
        return Some(format!("--{name} is an option of another back end; only POSIX is supported"));
    }
    if let Some(system) = ["beegfs", "gpfs", "lustre"]
        .iter()
        .find(|system| name.strip_prefix("posix.").is_some_and(|rest| rest.starts_with(**system)))
    {
        return Some(format!(
            "--{name} is not supported: it needs the client library of {system}; set the layout \
             of the directory with that file system's own tool"
        ));
    }
    let is_gpu = ["allocateBufferOnGPU", "GPUid", "gpuDirect"].contains(&name);
    is_gpu.then(|| format!("--{name} is not supported: buffers are in main memory"))
}

fn integer(value: &str) -> Option<i64> {
    let value = value.trim();
    match value.strip_prefix('-') {
        Some(digits) => parse_size(digits).map(|size| -size.cast_signed()),
        None => parse_size(value.strip_prefix('+').unwrap_or(value)).map(u64::cast_signed),
    }
}

/// `-G`: 0 is no seed, as in IOR.
fn seed(value: &str) -> Option<Option<i32>> {
    let number = integer(value)?;
    // IOR takes the lower 32 bits of a larger number; a script may well hold an unsigned one.
    let seed = i32::try_from(number).or_else(|_| u32::try_from(number).map(u32::cast_signed));
    seed.ok().map(|seed| (seed != 0).then_some(seed))
}

fn repetitions(value: &str) -> Option<u32> {
    u32::try_from(integer(value)?.max(0)).ok()
}

fn kind(value: &str) -> Option<PatternKind> {
    PatternKind::of_letter(value.chars().next()?)
}

fn memory(value: &str) -> Option<Memory> {
    match value.trim().strip_suffix('%') {
        Some(percent) => {
            let percent: u64 = percent.trim().parse().ok()?;
            (percent <= 100).then_some(Memory::Percent(percent))
        }
        None => parse_size(value).map(Memory::Bytes),
    }
}

#[cfg(test)]
mod tests;
