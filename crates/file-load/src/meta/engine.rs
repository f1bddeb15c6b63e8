//! A run of mdtest, by the ranks of a team.

mod calls;
mod phases;
mod tree;

use std::io;

use rustix::time::{ClockId, clock_gettime};
use stats::LatencyHistogram;

use crate::clock;
use crate::error::LoadError;
use crate::io::layout::Placement;
use crate::latency;
use crate::meta::options::MetaOptions;
use crate::meta::shape::Shape;
use crate::meta::summary::{Iteration, PHASES, Phase, RankPhase, Stonewall};
use crate::meta::text;
use crate::output::{Listener, Said};
use crate::pattern::Pattern;
use crate::posix::AlignedBuffer;
use crate::team::Team;

/// The iterations of one number of tasks.
#[derive(Debug, Clone, Default)]
pub struct TaskRun {
    /// Tasks that took part.
    pub tasks: u64,
    /// Items of each task, as it was asked for.
    pub items: u64,
    /// The iterations, at rank 0.
    pub iterations: Vec<Iteration>,
}

/// What became of a command line.
#[derive(Debug, Clone, Default)]
pub struct MetaOutcome {
    /// One for each number of tasks (`-f`, `-l`, `-s`).
    pub runs: Vec<TaskRun>,
    /// Calls that failed without ending the run, of all ranks.
    pub failed_calls_count: u64,
    /// Files that held other data than was written, of all ranks.
    pub bad_files_count: u64,
}

/// Runs a command line; every rank of the job calls it.
///
/// # Errors
/// A call failed, a rank is lost, or the options make no test on these ranks.
pub fn run(
    team: &mut Team,
    options: &MetaOptions,
    say: &mut Listener,
) -> Result<MetaOutcome, LoadError> {
    let hosts: Vec<String> = team.members().iter().map(|member| member.host.clone()).collect();
    let place = Placement::of(&hosts);
    let all = place.tasks;
    let (first, last) = match options.last_tasks {
        0 => (all, all),
        last => (options.first_tasks.max(1), last),
    };
    let directories = options.directories().len() as u64;
    if last > all || directories > all {
        let line = format!("-l, -d: there are only {all} tasks");
        return Err(LoadError::Usage(line));
    }
    let shape = Shape::of(options).filter(|shape| shape.all_items().checked_mul(all).is_some());
    let too_large = || LoadError::Usage("-b, -z, -n, -I: more items than 64 bits hold".to_owned());
    let shape = shape.ok_or_else(too_large)?;
    let mut outcome = MetaOutcome::default();
    let mut tasks = first;
    while tasks <= last {
        team.narrow(tasks as usize);
        if (team.me() as u64) < tasks {
            let run = Run::new(team, options, (place, tasks, shape), say)?;
            run.all(&mut outcome)?;
        }
        team.meet_all()?;
        tasks += options.task_step;
    }
    Ok(outcome)
}

/// One number of tasks under way at one rank.
struct Run<'a> {
    team: &'a mut Team,
    options: &'a MetaOptions,
    say: &'a mut Listener,
    tasks: u64,
    /// How many tasks further the names of the next phase are.
    stride: u64,
    /// As it was asked for.
    asked: Shape,
    /// As it is in this iteration: a stonewall changes it.
    shape: Shape,
    seed: i32,
    /// Seed of a random order; 0: none.
    random_seed: u32,
    /// The directory under test of this rank.
    base: String,
    has_made_base: bool,
    write_buffer: AlignedBuffer,
    read_buffer: AlignedBuffer,
    phases: [RankPhase; 11],
    latencies: Vec<LatencyHistogram>,
    failed_calls: [u64; 11],
    /// The first call that failed, for one line about it.
    first_failure: Option<String>,
    stonewall: Option<Stonewall>,
    bad_files: u64,
    /// Start and duration of each call of the phase under way, seconds, where they are to be stored.
    log: Option<Vec<(f64, f64)>>,
    /// When the phase under way began, ns of the monotonic clock.
    phase_began_ns: u64,
    /// The iteration under way.
    number: u32,
}

impl<'a> Run<'a> {
    fn new(
        team: &'a mut Team,
        options: &'a MetaOptions,
        (place, tasks, shape): (Placement, u64, Shape),
        say: &'a mut Listener,
    ) -> Result<Self, LoadError> {
        let directories = options.directories();
        let base = directories[team.me() % directories.len()].to_owned();
        let time = i64::from(clock::wall_s() as u32);
        let seed = match options.seed {
            Some(seed) => seed,
            None => team.broadcast_number(time)? as u32 as i32,
        };
        let mut random_seed = options.random_seed;
        if options.is_random {
            if random_seed == 0 {
                random_seed = team.broadcast_number(time)? as u32;
            }
            random_seed = random_seed.wrapping_add(team.me() as u32).max(1);
        }
        // On several hosts that a launcher fills one after the other, the next task is on the next host.
        let is_by_host = place.nodes > 1 && place.is_by_slot;
        let stride = options.stride * if is_by_host { place.tasks_on_first_node } else { 1 };
        let mut run = Self {
            options,
            say,
            tasks,
            stride: stride % tasks,
            asked: shape,
            shape,
            seed,
            random_seed,
            base,
            has_made_base: false,
            write_buffer: AlignedBuffer::new(options.write_bytes as usize),
            read_buffer: AlignedBuffer::new(options.read_bytes as usize),
            phases: [RankPhase::default(); 11],
            latencies: PHASES.map(|_| LatencyHistogram::default()).into(),
            failed_calls: [0; 11],
            first_failure: None,
            stonewall: None,
            bad_files: 0,
            log: None,
            phase_began_ns: 0,
            number: 0,
            team,
        };
        run.pattern(run.team.me() as u64).fill(run.write_buffer.get_mut());
        Ok(run)
    }

    fn pattern(&self, writer: u64) -> Pattern {
        Pattern { kind: self.options.pattern, seed: self.seed, writer }
    }

    fn all(mut self, outcome: &mut MetaOutcome) -> Result<(), LoadError> {
        self.make_base()?;
        if self.team.leads() {
            self.show_start();
        }
        let mut iterations = Vec::new();
        for number in 0..self.options.iterations {
            self.number = number;
            iterations.extend(self.iteration()?);
        }
        let bad = self.team.share_numbers(&[self.bad_files as f64])?;
        outcome.bad_files_count += bad.iter().map(|row| row[0] as u64).sum::<u64>();
        outcome.failed_calls_count +=
            iterations.iter().flat_map(|one| one.failed_calls).sum::<u64>();
        self.remove_base()?;
        let items = self.asked.all_items();
        if self.team.leads() {
            let summaries = text::summaries(self.options, &iterations);
            self.text(&summaries);
            if let Some(path) = &self.options.ranks_file {
                let rows = text::rank_rows(&iterations, items);
                crate::io::engine::append(path, &rows)?;
            }
        }
        outcome.runs.push(TaskRun { tasks: self.tasks, items, iterations });
        Ok(())
    }

    fn show_start(&mut self) {
        let base = &self.base;
        let activity = &self.team.activity;
        let capacity = activity.during("statvfs", base, || crate::io::engine::capacity(base));
        let mut lines = String::new();
        if let Some(capacity) = capacity {
            lines += &crate::io::text::line("Path", &self.base);
            lines += &capacity.line();
            lines.push('\n');
        }
        if self.options.stride > 0 {
            lines += &format!("Shifting ranks by {} for each phase.\n", self.stride);
        }
        if self.random_seed > 0 {
            lines += &format!("random seed: {}\n", self.random_seed);
        }
        lines += &text::amount(self.options, &self.asked, self.tasks);
        self.text(&lines);
    }

    /// One iteration; what all ranks measured, at rank 0.
    fn iteration(&mut self) -> Result<Option<Iteration>, LoadError> {
        self.shape = self.asked;
        self.phases = [RankPhase::default(); 11];
        self.latencies = PHASES.map(|_| LatencyHistogram::default()).into();
        self.failed_calls = [0; 11];
        self.stonewall = None;
        let cpu_before_s = cpu_s();
        if self.options.creates {
            self.create_tree()?;
        }
        if self.options.directories_only {
            self.delay();
            self.test_directories()?;
        }
        if self.options.files_only {
            self.delay();
            self.test_files()?;
        }
        self.team.barrier()?;
        if self.options.removes {
            self.remove_tree()?;
        }
        let cpu_s = cpu_s() - cpu_before_s;
        self.collect(cpu_s)
    }

    fn delay(&self) {
        if self.team.leads() && self.options.delay_s > 0 {
            std::thread::sleep(std::time::Duration::from_secs(self.options.delay_s));
        }
    }

    /// Brings the ranks' figures together at rank 0.
    fn collect(&mut self, cpu_s: f64) -> Result<Option<Iteration>, LoadError> {
        let mut numbers = vec![cpu_s];
        for (one, failed) in self.phases.iter().zip(self.failed_calls) {
            numbers.extend([one.items as f64, one.time_s, one.own_time_s, failed as f64]);
        }
        let rows = self.team.gather_numbers(&numbers)?;
        let failures = self.first_failure.take().unwrap_or_default();
        let failures = self.team.gather(failures.into_bytes())?;
        let mut latencies = Vec::new();
        for place in 0..PHASES.len() {
            let mut joined = LatencyHistogram::default();
            let mine = latency::to_bytes(&self.latencies[place]);
            self.team.gather(mine)?.iter().for_each(|bytes| latency::add(&mut joined, bytes));
            latencies.push(joined);
        }
        if !self.team.leads() {
            return Ok(None);
        }
        let mut iteration =
            Iteration { latencies, stonewall: self.stonewall, ..Iteration::default() };
        for (rank, row) in rows.iter().enumerate() {
            let [cpu_s, rest @ ..] = row.as_slice() else {
                return Err(LoadError::Malformed { rank });
            };
            iteration.cpu_s += cpu_s;
            let mut phases = [RankPhase::default(); 11];
            for (place, columns) in rest.chunks_exact(4).take(11).enumerate() {
                let (items, time_s, own_time_s) = (columns[0] as u64, columns[1], columns[2]);
                phases[place] = RankPhase { items, time_s, own_time_s };
                iteration.failed_calls[place] += columns[3] as u64;
            }
            iteration.ranks.push(phases);
        }
        self.warn_of_failures(&iteration, &failures)?;
        (self.say)(Said::Iterated(self.tasks, self.number, &iteration));
        Ok(Some(iteration))
    }

    fn warn_of_failures(
        &mut self,
        iteration: &Iteration,
        failures: &[Vec<u8>],
    ) -> Result<(), LoadError> {
        for phase in PHASES {
            let count = iteration.failed_calls[phase.place()];
            if count > 0 {
                let first = failures.iter().find(|text| !text.is_empty());
                let first = first.map_or(String::new(), |text| {
                    format!("; the first: {}", String::from_utf8_lossy(text))
                });
                self.warn(&format!("{}: {count} calls failed{first}", phase.name()))?;
            }
        }
        Ok(())
    }

    fn text(&mut self, text: &str) {
        if self.team.leads() {
            (self.say)(Said::Text(text));
        }
    }

    fn warn(&mut self, line: &str) -> Result<(), LoadError> {
        if self.options.warnings_are_errors {
            return Err(LoadError::Usage(format!("{line} (--warningAsErrors)")));
        }
        if self.team.leads() {
            (self.say)(Said::Warning(line));
        }
        Ok(())
    }

    /// Notes a call that failed without ending the run.
    fn note_failure(&mut self, phase: Phase, what: &str, path: &str, source: &io::Error) {
        self.failed_calls[phase.place()] += 1;
        let (rank, host) = (self.team.me(), self.team.host());
        let line = || format!("rank {rank} on {host}: {what} {path}: {source}");
        if self.first_failure.is_none() {
            self.first_failure = Some(line());
        }
    }

    fn call(&self, operation: &'static str, path: &str, source: io::Error) -> LoadError {
        let (rank, host) = (self.team.me(), self.team.host().to_owned());
        LoadError::Call {
            rank,
            host,
            operation,
            path: path.to_owned(),
            place: String::new(),
            source,
        }
    }
}

/// Processor seconds of this thread.
fn cpu_s() -> f64 {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 * 1e-9
}
