//! M-tab1, M-tab2, M-fig5 and M-tab3: messages of stock Open MPI over the provider, between two hosts of a lab, with the
//! packets of each host processed on cores chosen as the paper has it.
//!
//! Programs of others judge too, where they are installed: the Intel MPI Benchmarks and the NAS Parallel Benchmarks.

mod answers;
mod hosts;
mod judge;
mod layout;
mod paper;
pub(super) mod searching;
pub(super) mod shared_core;
mod study;

use std::path::{Path, PathBuf};
use std::time::Duration;

use results::{Finding, TestOutcome, Worker};
use sweep::{Plan, PlannedPoint};
use sys::perf::CacheCounters;

use super::catalogue::Entry;
use super::{ReproduceArgs, conduct, finding, local, publish};
use crate::VerbResult;
use crate::exit::VerbError;
use crate::progress::Progress;
use crate::runner::{self, Done, Driver};
use crate::signals;
use answers::Program;
use hosts::{JobHosts, Tools};
use judge::Measured;
use layout::Layout;
use study::{Case, Distance, Load, MESSAGE, Study};

/// Options for jobs of MPI ranks.
#[derive(Debug, clap::Args)]
pub(super) struct JobOptions {
    /// The Intel MPI Benchmarks' program, for M-tab1, M-tab2 and M-fig5 [default: IMB-MPI1 on the path, if it is there].
    #[arg(long, value_name = "FILE")]
    imb: Option<PathBuf>,
    /// Folder with programs of the NAS Parallel Benchmarks (cg.B.x), for M-tab3 [default: that of cg.B.x, cg.A.x or is.A.x
    /// on the path].
    #[arg(long, value_name = "FOLDER")]
    nas: Option<PathBuf>,
    /// The libfabric provider, for M- experiments [default: as `clearstream mpi`].
    #[arg(long, value_name = "FILE")]
    pub(super) library: Option<PathBuf>,
}

/// Seed of the shuffled order of the settings.
const SEED: u64 = 0x2009;
/// Time a job may take besides what it measures.
const BESIDES: Duration = Duration::from_secs(60);
/// Longest time for an application.
const APPLICATION_MAX: Duration = Duration::from_secs(1800);

/// Whether an entry of the catalogue is one of these.
pub(super) fn is_one(id: &str) -> bool {
    Study::find(id).is_some()
}

/// Runs the experiment in a lab on this machine.
pub(super) fn run(entry: &'static Entry, args: &ReproduceArgs, json: bool) -> VerbResult {
    let id = entry.id;
    if args.host.is_some() {
        return Err(VerbError::usage(format!(
            "{id} chooses the cores that process packets at both ends, which is possible only in \
             a lab: leave out the host"
        )));
    }
    let study = Study::find(id)
        .ok_or_else(|| VerbError::failed(format!("{id} is not an experiment with messages")))?;
    signals::watch().map_err(|error| VerbError::from_error(&error))?;
    let tools =
        Tools { launcher: hosts::launcher()?, library: absolute(args.jobs.library.as_deref())? };
    let layout = Layout::of(&topology::machine(), study.ranks_per_host)
        .ok_or_else(|| VerbError::missing(format!("{id}: this program may use no core")))?;
    let judges = Judges::find(study, &args.jobs, layout.ranks_count())?;
    let distances: Vec<Distance> = layout.distances.iter().map(|(one, _)| *one).collect();
    let cases = study.cases(&distances, judges.imb.is_some(), &judges.names());
    let ranks_count = layout.ranks_count() as u64;
    let plan = Plan::new(
        cases.iter().map(|case| case.setting(id, ranks_count)).collect(),
        args.repeats,
        SEED,
    );
    let mut document = local::document();
    document.findings.extend(judges.findings(study));
    let no_misses = no_misses(study, &layout);
    let reason = no_misses.as_deref().map(|why| finding("no-cache-misses", why));
    document.findings.extend(reason);
    let mut progress = Progress::new(1);
    progress.begin("the lab comes up");
    let hosts = JobHosts::up(tools, layout.clone())?;
    let counts_misses = study.counts_misses && no_misses.is_none();
    let mut jobs = Jobs { hosts, study, cases, judges, duration: args.duration, counts_misses };
    let conducted = conduct(entry, &plan, &mut jobs, document, progress, args);
    let Jobs { cases, .. } = jobs;
    let judge = |results: &results::Results| {
        let no_misses = no_misses.as_deref();
        let measured = Measured { study, cases: &cases, layout: &layout, no_misses, results };
        judge::judged(&measured, entry.law)
    };
    publish(entry, conducted, judge, args, json)
}

fn absolute(path: Option<&Path>) -> Result<Option<PathBuf>, VerbError> {
    let whole =
        |path: &Path| path.canonicalize().map_err(|error| VerbError::unreadable(path, &error));
    path.map(whole).transpose()
}

/// Programs of others.
#[derive(Debug)]
struct Judges {
    imb: Option<PathBuf>,
    /// Applications, by name.
    nas: Vec<(String, PathBuf)>,
}

impl Judges {
    /// Those that the study needs and this machine has.
    fn find(study: &Study, options: &JobOptions, ranks_count: usize) -> Result<Self, VerbError> {
        let is_applications = study.sizes.is_empty();
        if !is_applications {
            let given = absolute(options.imb.as_deref())?;
            return Ok(Self {
                imb: given.or_else(|| answers::installed("IMB-MPI1")),
                nas: Vec::new(),
            });
        }
        let on_path = || {
            let program =
                ["cg.B.x", "cg.A.x", "is.A.x"].into_iter().find_map(answers::installed)?;
            program.parent().map(Path::to_owned)
        };
        let folder = absolute(options.nas.as_deref())?.or_else(on_path);
        let Some(folder) = folder else {
            return Err(VerbError::missing(format!(
                "{} runs the NAS Parallel Benchmarks, and cg.B.x is not on the path: --nas FOLDER",
                study.id
            )));
        };
        let entries =
            std::fs::read_dir(&folder).map_err(|error| VerbError::unreadable(&folder, &error))?;
        let files: Vec<String> = entries
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        let found = answers::applications(&files, ranks_count);
        if found.is_empty() {
            return Err(VerbError::missing(format!(
                "{} has no program cg, mg, ft or is of the NAS Parallel Benchmarks (cg.B.x, or cg.B.{ranks_count})",
                folder.display()
            )));
        }
        let whole = |(name, file): (String, String)| (name, folder.join(file));
        Ok(Self { imb: None, nas: found.into_iter().map(whole).collect() })
    }

    fn names(&self) -> Vec<String> {
        self.nas.iter().map(|(name, _)| name.clone()).collect()
    }

    /// What is skipped, by name.
    fn findings(&self, study: &Study) -> Vec<Finding> {
        if !study.sizes.is_empty() {
            let missing = "IMB-MPI1 is not on the path and --imb does not name it: only ClearStream's own ranks measured";
            return self.imb.is_none().then(|| finding("no-imb", missing)).into_iter().collect();
        }
        let is_missing = |kernel: &&str| !self.nas.iter().any(|(name, _)| name.starts_with(kernel));
        let missing: Vec<&str> = ["cg", "mg", "ft", "is"].into_iter().filter(is_missing).collect();
        let text =
            format!("NAS programs that are not in the folder were skipped: {}", missing.join(", "));
        (!missing.is_empty()).then(|| finding("no-nas", text)).into_iter().collect()
    }
}

/// Our own ranks.
fn own_rank(load: &Load, bytes: u64, duration: Duration) -> Result<Vec<String>, VerbError> {
    let own = std::env::current_exe()?.display().to_string();
    let (bytes, time) = (bytes.to_string(), format!("{}s", duration.as_secs_f64()));
    Ok([&own, "rank", load.name(), "--bytes", &bytes, "--time", &time].map(str::to_owned).into())
}

/// Why cache misses cannot be counted here, where the study counts them.
fn no_misses(study: &Study, layout: &Layout) -> Option<String> {
    let counted = study.counts_misses.then(|| CacheCounters::open(&layout.usable))?;
    counted.err().map(|error| crate::exit::chain(&error))
}

/// Runs every setting as a job.
struct Jobs {
    hosts: JobHosts,
    study: &'static Study,
    cases: Vec<Case>,
    judges: Judges,
    duration: Duration,
    counts_misses: bool,
}

impl Driver for Jobs {
    fn run(
        &mut self,
        planned: &PlannedPoint,
        _what: &str,
        _progress: &mut Progress,
    ) -> Result<Done, VerbError> {
        let started_unix_ms = runner::now_unix_ms();
        let bytes = planned.varied.get(MESSAGE).map_or(0, |bytes| units::saturating_u64(*bytes));
        let is_it = |case: &&Case| {
            case.experiment(self.study.id) == planned.experiment && case.bytes == bytes
        };
        let case = self.cases.iter().find(is_it).cloned();
        let case = case.ok_or_else(|| VerbError::failed("no job for this work"))?;
        let mut done = match self.measure(&case) {
            Err(error) => Done::failed(planned, started_unix_ms, error),
            Ok(outcome) => Done::measured(planned, started_unix_ms, outcome),
        };
        done.point.by = self.workers();
        Ok(done)
    }
}

impl Jobs {
    fn measure(&self, case: &Case) -> Result<TestOutcome, VerbError> {
        let program = self.command(case)?;
        let limit = match case.load {
            Load::Nas(_) => APPLICATION_MAX,
            _ => self.duration + BESIDES,
        };
        let text = self.hosts.run(case.receive, &program, limit)?;
        let answer = case.program.understand(&text, &case.load, case.bytes)?;
        let (duration_s, figures) = (answer.duration_s, answer.figures);
        Ok(TestOutcome { duration_s, figures, ..TestOutcome::default() })
    }

    /// What each rank runs.
    fn command(&self, case: &Case) -> Result<Vec<String>, VerbError> {
        let text = |path: &Path| path.display().to_string();
        let seconds = self.duration.as_secs_f64();
        let words: Vec<String> = match (case.program, &case.load) {
            (Program::Own, load) => {
                let mut words = own_rank(load, case.bytes, self.duration)?;
                if self.counts_misses {
                    let cores: Vec<String> =
                        self.hosts.layout().usable.iter().map(u32::to_string).collect();
                    words.extend(["--count-misses".to_owned(), cores.join(",")]);
                }
                words
            }
            (Program::Imb, load) => {
                let lengths = self.hosts.folder().join("lengths");
                std::fs::write(&lengths, format!("{}\n", case.bytes))?;
                let name = if *load == Load::PingPong { "PingPong" } else { "Alltoall" };
                let count = self.hosts.layout().ranks_count().to_string();
                let imb = self.judges.imb.as_deref().map(text).unwrap_or_default();
                let options =
                    ["-msglen", &text(&lengths), "-time", &format!("{seconds}"), "-npmin", &count];
                let mut words = vec![imb, name.to_owned()];
                words.extend(options.map(str::to_owned));
                words
            }
            (Program::Nas, load) => {
                let found = self.judges.nas.iter().find(|(name, _)| name == load.name());
                found.map(|(_, path)| text(path)).into_iter().collect()
            }
        };
        Ok(words)
    }

    /// The ranks, in their order. Both hosts of the lab are this machine.
    fn workers(&self) -> Vec<Worker> {
        let ranks = self.hosts.layout().ranks.iter().flatten();
        let worker = |core: &u32| Worker {
            host: results::NEAR.to_owned(),
            part: "rank".to_owned(),
            cores: vec![*core],
        };
        ranks.map(worker).collect()
    }
}
