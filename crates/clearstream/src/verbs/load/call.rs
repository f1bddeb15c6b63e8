//! Our own options of `io` and `meta`. They all have long names, so that they cannot be confused with
//! IOR's or mdtest's.

use std::path::PathBuf;
use std::time::Duration;

use super::Kind;
use super::apart;
use super::joined::GatewaysCall;
use super::seat::Seats;
use crate::gates::GateOptions;
use crate::typed;
use crate::verbs::options::duration;

/// Default of [`Call::stall`].
const STALL: Duration = Duration::from_secs(300);

/// The options beside IOR's and mdtest's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Call {
    /// Whether to print a results document instead of tables.
    pub(crate) is_json: bool,
    /// Whether to print help.
    pub(crate) is_help: bool,
    /// The results file to write, if any.
    pub(crate) output: Option<PathBuf>,
    /// Number of ranks that run as threads of this process.
    pub(crate) threads: usize,
    /// The MPI job to start, if any.
    pub(crate) launch: Option<Launch>,
    /// Time after which a call that has not returned counts as hanging.
    pub(crate) stall: Duration,
    /// Directory whose locks to test: its paths at the ranks, separated by `@`.
    pub(crate) locks: Option<String>,
    /// The hosts of a lab on which the ranks run.
    pub(crate) seats: Option<Seats>,
    /// The gateway plan whose hosts' counters to read.
    pub(crate) gateways: Option<GatewaysCall>,
    /// Number of concurrent transfers with `io_uring`; 0: one after the other.
    pub(crate) ring_depth: u32,
    /// Where this process tells its exit code, if another one waits for it: the number of a descriptor.
    pub(crate) outcome: Option<i32>,
    /// The command line that the user typed, if it is not that of this process.
    pub(crate) typed: Option<Vec<String>>,
    /// Gates of the run.
    pub(crate) gates: GateOptions,
    /// The remaining arguments: IOR's or mdtest's options.
    pub(crate) words: Vec<String>,
}

/// An MPI job to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Launch {
    /// Number of ranks; 0: one per host.
    pub(crate) ranks: usize,
    /// Hosts to run on; empty: this one.
    pub(crate) hosts: Vec<String>,
    /// The launcher program.
    pub(crate) mpirun: PathBuf,
}

impl Call {
    /// Without any option.
    fn new() -> Self {
        Self {
            is_json: false,
            is_help: false,
            output: None,
            threads: 1,
            launch: None,
            stall: STALL,
            locks: None,
            seats: None,
            gateways: None,
            ring_depth: 0,
            outcome: None,
            typed: None,
            gates: GateOptions::default(),
            words: Vec::new(),
        }
    }

    /// Extracts our own options from a command line. Everything after `--` is IOR's or mdtest's.
    pub(super) fn parse(words: &[String]) -> Result<Self, String> {
        let mut call = Self::new();
        let mut launch = Launch { ranks: 0, hosts: Vec::new(), mpirun: "mpirun".into() };
        let (mut lab, mut gateways) = (None, GatewaysCall::new());
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let (name, joined) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (word.as_str(), None),
            };
            let mut value = || {
                let missing = || format!("{name} needs a value");
                joined.clone().or_else(|| words.next().cloned()).ok_or_else(missing)
            };
            match name {
                "--" => break,
                "--json" => call.is_json = true,
                "-h" | "--help" => call.is_help = true,
                "--output" => call.output = Some(value()?.into()),
                "--threads" => call.threads = count(name, &value()?)?,
                "--locks" => call.locks = Some(value()?),
                "--uring" => call.ring_depth = depth(&value()?)?,
                "--fail-below" => call.gates.fail_below.push(value()?),
                "--fail-above" => call.gates.fail_above.push(value()?),
                "--require" => call.gates.require.push(value()?),
                "--lab" => lab = Some(value()?),
                "--lab-seats" => {
                    let seats = Seats::parse(&value()?);
                    call.seats = Some(seats.ok_or("--lab-seats is for internal use only")?);
                }
                apart::OPTION => {
                    let number = value()?.parse();
                    call.outcome =
                        Some(number.map_err(|_no| "--outcome-to is for internal use only")?);
                }
                typed::OPTION => call.typed = Some(typed::words(&value()?)?),
                "--gateways" => gateways.plan = value()?.into(),
                "--ssh" => gateways.ssh = value()?,
                "--there" => gateways.there = value()?,
                "--ranks" => launch.ranks = count(name, &value()?)?,
                "--hosts" => launch.hosts = value()?.split(',').map(str::to_owned).collect(),
                "--mpirun" => launch.mpirun = value()?.into(),
                "--stall-limit" => {
                    let given = value()?;
                    let limit =
                        duration(&given).map_err(|error| format!("{name} {given}: {error}"))?;
                    call.stall = limit;
                }
                _ => call.words.push(word.clone()),
            }
        }
        call.words.extend(words.cloned());
        call.gateways = (!gateways.plan.as_os_str().is_empty()).then_some(gateways);
        call.settle(launch, lab)?;
        Ok(call)
    }

    /// Decides between ranks of this process and a job: on this host, on others, or in a lab.
    fn settle(&mut self, mut launch: Launch, lab: Option<String>) -> Result<(), String> {
        let is_job = launch.ranks > 0 || lab.is_none() && !launch.hosts.is_empty();
        if is_job && self.threads > 1 {
            return Err(
                "give either --threads (ranks are threads of this process) or --ranks (ranks are \
                 an MPI job)"
                    .into(),
            );
        }
        if launch.ranks == 0 {
            launch.ranks = launch.hosts.len();
        }
        if let Some(lab) = lab {
            let hosts = std::mem::take(&mut launch.hosts);
            let is_job = launch.ranks > 1;
            if hosts.len() > launch.ranks.max(1) || is_job && self.threads > 1 {
                return Err(
                    "--lab: a single process runs on a single host; --ranks N starts more".into()
                );
            }
            let each = launch.ranks.div_ceil(hosts.len().max(1)).max(1);
            self.seats = Some(Seats { lab, hosts, each });
            self.launch = is_job.then_some(launch);
        } else if is_job {
            self.launch = Some(launch);
        }
        Ok(())
    }
}

fn count(name: &str, value: &str) -> Result<usize, String> {
    let wrong = || format!("{name} {value}: expected a number from 1 to 65536");
    let number: usize = value.parse().map_err(|_no_number| wrong())?;
    (1..=65_536).contains(&number).then_some(number).ok_or_else(wrong)
}

fn depth(value: &str) -> Result<u32, String> {
    let wrong =
        || format!("--uring {value}: expected a number from 1 to {}", sys::file_ring::DEPTH_MAX);
    let number: u32 = value.parse().map_err(|_no_number| wrong())?;
    (1..=sys::file_ring::DEPTH_MAX).contains(&number).then_some(number).ok_or_else(wrong)
}

/// Help on the options of `kind`, IOR's or mdtest's, and on our own.
pub(crate) fn help(kind: Kind) -> String {
    let (of_program, own) = match kind {
        Kind::Io => (IO_HELP, IO_OWN_HELP),
        Kind::Meta => (META_HELP, META_OWN_HELP),
    };
    format!("{of_program}{OWN_HELP}{own}")
}

const IO_HELP: &str = "\
Write and read files by many ranks at once, with IOR's command line

Usage: mpirun -n N clearstream io IOR-OPTIONS
       clearstream io --ranks N [--hosts A,B] -- IOR-OPTIONS
       clearstream io --threads N -- IOR-OPTIONS
       clearstream io --ranks 2 --hosts A,B --locks DIR
                      test whether file locks exclude other clients (works, refused, local only,
                      broken); DIR1@DIR2 if the ranks have the file system at different places

Examples:
  clearstream io --threads 4 -- -w -r -t 1m -b 64m -o /tmp/ior.data
  clearstream io --ranks 8 --hosts a,b --output io.json -- -F -e -t 1m -b 1g -o /pfs/test

IOR's options (sizes: 8, 4k, 2m, 1g, 1t):
  -w -r -W -R    write; read; verify after writing; verify when reading (without any: -w -r)
  -o FILE        test file; several with @ between them
  -F -u          one file per task; each in a directory of its own
  -b -t -s       block size, transfer size, segments
  -C -Q N        read what the task N hosts away wrote
  -Z -X SEED     read what a random task wrote; -Z -Z: a permutation
  -z             shuffled offsets; -z -z: random ones (--random-offset-seed, --randomPrefill)
  -e -Y          fsync before closing; after each write
  -g             barriers between opening, transfers and closing
  -D SECONDS     stonewall: stop writing or reading after this time (-O stoneWallingWearOut=1,
                 -O stoneWallingStatusFile=FILE); -c: rank 0 decides
  -G SEED -l T   seed and type of the data: t(imestamp), o(ffset), i(ncompressible), r(andom)
  -i -d -T -m    repetitions, seconds between them, time limit in minutes, one file per repetition
  -k -K -E       keep files; keep files with errors; write into existing files
  -j -v -A       list outliers, more output, reference number
  -M -N -x       memory to occupy on each host, number of tasks, one call per transfer
  -f FILE        script (IOR START ... RUN ... IOR STOP)
  -O NAME=VALUE  every setting by name: summaryFormat=default|JSON|CSV, summaryFile,
                 saveRankPerformanceDetailsCSV, savePerOpDataCSV, minTimeDuration, interIODelay, ...
  --posix.odirect --posix.rangelocks --dryRun --warningAsErrors
";

const META_HELP: &str = "\
Create, stat, read, rename and remove files and directories by many ranks, with mdtest's
command line

Usage: mpirun -n N clearstream meta MDTEST-OPTIONS
       clearstream meta --ranks N [--hosts A,B] -- MDTEST-OPTIONS
       clearstream meta --threads N -- MDTEST-OPTIONS

Examples:
  clearstream meta --threads 4 -- -n 1000 -d /tmp/mdtest
  clearstream meta --ranks 8 --hosts a,b --output meta.json -- -F -n 1000 -u -d /pfs/test

mdtest's options:
  -n N -I N      items per task; items per directory of the tree
  -d DIR         directory; several with @ between them (with -u)
  -C -T -E -r -U create, stat, read, remove, rename directories (without any: all)
  -F -D          files only, directories only
  -b -z -L       branching factor, depth; items only in the directories without subdirectories
  -u -t          one tree per task; the time to make it counts
  -w -e          bytes written to and read from each file
  -X --verify-write -G SEED --dataPacketType T   verify data when reading, writing; seed and type
  -N STRIDE      stat, read and remove what the task STRIDE ranks away created
  -R --random-seed N   in random order
  -W SECONDS -x FILE   stonewall: stop creating files after this time; FILE stores their number
  -i -f -l -s    iterations; first and last number of tasks, step
  -c -S -k       rank 0 creates for all; shared names; mknod
  -y -Y          fsync each file; sync after each phase
  -B 1 -p S      no barriers; delay before each iteration
  -P -Z -v -V N  rates and times; times only; more output
  --print-all-procs --showRankStatistics --saveRankPerformanceDetails FILE --savePerOpDataCSV FILE
  --run-cmd-before-phase CMD --run-cmd-after-phase CMD --warningAsErrors --posix.odirect
";

const OWN_HELP: &str = "
Options of ClearStream:
  --ranks N           start a job of N ranks with mpirun, on --hosts A,B; --mpirun PROGRAM
  --threads N         run N ranks as threads of this process, without MPI
  --json              print a results document on standard output instead of tables
  --output FILE       write a results document to FILE, for `clearstream report`
  --gateways PLAN     count what the gateways and servers of a plan carry in each phase (ranks run
                      on its hosts); --ssh COMMAND, --there PROGRAM: how to reach its machines
  --lab LAB           run the ranks on hosts of a lab (--hosts), which have its file system
  --stall-limit TIME  a call that takes longer counts as hung and ends the test (300s)
";

const IO_OWN_HELP: &str =
    "  --uring DEPTH       transfer by io_uring, DEPTH transfers at a time per rank
  --fail-below [FIGURE=]VALUE, --fail-above FIGURE=VALUE, --require NAME
                      gates: exit code 3 unless the median of the repetitions (--require: each)
                      holds, for each of write and read: throughput (500M: MiB/s), transfers,
                      latency_p50, latency_p99, latency_p99.9, cpu; verified.
                      PHASE:FIGURE=VALUE judges one: read:throughput=1G

Exit codes: 0 ok, 1 failed or incomplete, 2 usage, 3 data differed from what was written
or a gate was missed, 4 a privilege, a library or a launcher is missing, 128+n signal n.
";

const META_OWN_HELP: &str =
    "  --fail-below [FIGURE=]VALUE, --fail-above FIGURE=VALUE, --require NAME
                      gates: exit code 3 unless the median of the iterations (--require: each)
                      holds, for each phase: throughput (5k: 5000 items/s), latency_p50,
                      latency_p99, latency_p99.9, failed_calls; verified, no-failed-calls.
                      PHASE:FIGURE=VALUE judges one: file-creation:throughput=5k

Exit codes: 0 ok, 1 failed or incomplete, 2 usage, 3 data differed from what was written,
calls failed or a gate was missed, 4 a privilege, a library or a launcher is missing,
128+n signal n.
";

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Call, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Call::parse(&words)
    }

    #[test]
    fn our_options_are_taken_out_and_all_else_is_left() {
        let call = parse("--json -b 4m --stall-limit=5s --threads 2 -o /f").expect("a call");
        assert!(call.is_json && call.launch.is_none());
        assert_eq!((call.stall, call.threads), (Duration::from_secs(5), 2));
        assert_eq!(call.words, ["-b", "4m", "-o", "/f"]);
        let call = parse("--ranks 4 --hosts a,b -- -o --json").expect("a call");
        assert_eq!(call.words, ["-o", "--json"], "what follows -- is not ours");
        let launch = call.launch.expect("a job");
        assert_eq!((launch.ranks, launch.hosts.len()), (4, 2));
        let call = parse("--fail-below 1G --require=verified -w -- --fail-above").expect("a call");
        assert_eq!(
            call.gates.words().collect::<Vec<_>>(),
            ["--fail-below=1G", "--require=verified"]
        );
        assert_eq!(call.words, ["-w", "--fail-above"]);
        assert_eq!(parse("--hosts a,b").expect("a call").launch.map(|one| one.ranks), Some(2));
        for line in
            ["--ranks 0", "--ranks x", "--ranks", "--ranks 2 --threads 2", "--stall-limit q"]
        {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
