//! A test of IOR, run by the ranks of a team.

mod access;
mod files;
mod ring;

use std::thread;
use std::time::Duration;

use crate::clock;
use crate::error::LoadError;
use crate::io::layout::{Placement, file_name};
use crate::io::options::{CommandLine, Destinations, Format, IoOptions, Memory};
use crate::io::summary::{Access, Measured, Summary};
use crate::io::text;
use crate::output::{Listener, Said};
use crate::pattern::Pattern;
use crate::posix::AlignedBuffer;
use crate::team::Team;

pub use files::capacity;
pub(crate) use files::{append, replace, status};

/// What became of one test.
#[derive(Debug, Clone, Default)]
pub struct TestOutcome {
    /// When it began, seconds since 1970.
    pub started_s: i64,
    /// Its rows, at rank 0.
    pub results: Vec<Measured>,
    /// Transfers that held other data than was written, of all ranks.
    pub errors_count: u64,
    /// Remarks that would be errors with `--warningAsErrors`.
    pub warnings_count: u64,
}

impl TestOutcome {
    /// The summaries that IOR prints: of writing, and of reading.
    #[must_use]
    pub fn summaries(&self, options: &IoOptions) -> Vec<(&'static str, Summary)> {
        let of = |access: Access| {
            let rows: Vec<&Measured> =
                self.results.iter().filter(|row| row.access == access).collect();
            Summary::of(&rows, options.transfer_bytes).map(|summary| (access.name(), summary))
        };
        let write = options.writes.then(|| of(Access::Write)).flatten();
        let read = (options.reads || options.checks_read).then(|| of(Access::Read)).flatten();
        write.into_iter().chain(read).collect()
    }
}

/// Runs all tests of a command line; every rank of the job calls it.
///
/// # Errors
/// A call failed, a rank is lost, or the options make no test on these ranks.
pub fn run(
    team: &mut Team,
    line: &CommandLine,
    say: &mut Listener,
) -> Result<Vec<TestOutcome>, LoadError> {
    let hosts: Vec<String> = team.members().iter().map(|member| member.host.clone()).collect();
    let place = Placement::of(&hosts);
    let to = &line.destinations;
    if team.leads()
        && let Some(path) = &to.ranks_file
    {
        replace(path, text::RANKS_HEAD)?;
    }
    let mut outcomes = Vec::new();
    for (number, options) in line.tests.iter().enumerate() {
        let place = place.with(options);
        let shared = text::expected_bytes(options, &place);
        if !options.file_per_task && shared > i64::MAX as u64 {
            let line = format!("-b, -s: the file of {} tasks would be too large", place.tasks);
            return Err(LoadError::Usage(line));
        }
        team.narrow(place.tasks as usize);
        if (team.me() as u64) < place.tasks {
            outcomes.push(Run::new(team, (number, options, to), place, say).test()?);
        } else {
            outcomes.push(TestOutcome::default());
        }
        team.meet_all()?;
    }
    Ok(outcomes)
}

/// One test under way at one rank.
struct Run<'a> {
    team: &'a mut Team,
    number: usize,
    options: &'a IoOptions,
    to: &'a Destinations,
    place: Placement,
    say: &'a mut Listener,
    buffer: AlignedBuffer,
    /// The seed of the data of this repetition.
    seed: i32,
    /// The seed of random offsets, the same at all ranks.
    offset_seed: i32,
    /// Transfers after which a rank stops; 0: no limit.
    wear_out_count: u64,
    has_errors: bool,
    started_s: f64,
    outcome: TestOutcome,
}

impl<'a> Run<'a> {
    fn new(
        team: &'a mut Team,
        (number, options, to): (usize, &'a IoOptions, &'a Destinations),
        place: Placement,
        say: &'a mut Listener,
    ) -> Self {
        let buffer = AlignedBuffer::new(options.transfer_bytes as usize);
        let (seed, offset_seed) = (options.seed.unwrap_or(0), options.offset_seed.unwrap_or(0));
        let started_s = team.now_s();
        let outcome = TestOutcome { started_s: clock::wall_s() as i64, ..TestOutcome::default() };
        Self {
            team,
            number,
            options,
            to,
            place,
            say,
            buffer,
            seed,
            offset_seed,
            wear_out_count: 0,
            has_errors: false,
            started_s,
            outcome,
        }
    }

    fn rank(&self) -> u64 {
        self.team.me() as u64
    }

    fn test(mut self) -> Result<TestOutcome, LoadError> {
        if self.options.offset_seed.is_none() && self.options.random_offset > 0 {
            let time = i64::from(clock::wall_s() as u32);
            self.offset_seed = self.team.broadcast_number(time)? as i32;
        }
        self.show_start();
        let _hog = self.hog_memory();
        self.warn_of_existing_file()?;
        for repetition in 0..self.options.repetitions {
            self.repetition(repetition)?;
        }
        self.show_end()?;
        Ok(self.outcome)
    }

    fn repetition(&mut self, repetition: u32) -> Result<(), LoadError> {
        let options = self.options;
        if options.seed.is_none() {
            let time = i64::from(clock::wall_s() as u32);
            self.seed = self.team.broadcast_number(time)? as u32 as i32;
        }
        if repetition == 0 && self.to.format == Format::Text {
            self.text(text::TABLE_HEAD);
        }
        if repetition == 0 && self.to.format == Format::Csv {
            self.text(text::CSV_HEAD);
        }
        let pattern = self.pattern(self.rank());
        pattern.fill(self.buffer.get_mut());
        self.wear_out_count = options.wear_out_count;
        if options.writes && !self.is_over()? {
            self.write(repetition)?;
        }
        if options.checks_write && !self.is_over()? {
            self.check_write(repetition)?;
        }
        if (options.reads || options.checks_read) && !self.is_over()? {
            self.read(repetition)?;
        }
        self.team.barrier()?;
        let is_kept = options.keeps_file || self.has_errors && options.keeps_file_with_errors;
        if !is_kept {
            let start_s = self.team.now_s();
            self.remove(repetition)?;
            self.team.barrier()?;
            let seconds = self.team.now_s() - start_s;
            if options.verbosity > 0 && self.to.format == Format::Text {
                self.text(&text::removal_row(seconds, repetition));
            }
        }
        self.has_errors = false;
        Ok(())
    }

    fn pattern(&self, writer: u64) -> Pattern {
        Pattern { kind: self.options.pattern, seed: self.seed, writer }
    }

    /// Whether `-T` is over; rank 0's clock decides for all.
    fn is_over(&mut self) -> Result<bool, LoadError> {
        if self.options.time_max_min == 0 {
            return Ok(false);
        }
        let elapsed_s = self.team.now_s() - self.started_s;
        let is_over = elapsed_s >= self.options.time_max_min as f64 * 60.0;
        Ok(self.team.broadcast_number(i64::from(is_over))? != 0)
    }

    fn show_start(&mut self) {
        if !self.team.leads() || self.to.format != Format::Text {
            return;
        }
        let path = file_name(self.options, 0, 0);
        let capacity = self.team.activity.during("statvfs", &path, || capacity(&path));
        let started = crate::output::date(self.outcome.started_s);
        let start = text::test_start(self.number, &started, (&path, capacity.as_ref()));
        let setup = text::setup(self.options, &self.place);
        self.text(&(start + &setup));
    }

    fn show_end(&mut self) -> Result<(), LoadError> {
        if !self.team.leads() {
            return Ok(());
        }
        let summaries = self.outcome.summaries(self.options);
        let of = |wanted: Access| {
            let named = summaries.iter().find(|(name, _)| *name == wanted.name());
            named.map(|(_, summary)| summary)
        };
        if self.to.format == Format::Text && self.options.summary_always {
            let mut lines = text::summary_head();
            for (name, summary) in &summaries {
                let test = (self.number, self.options, &self.place);
                lines += &text::summary_row(name, test, summary);
            }
            self.text(&lines);
        } else if self.to.format == Format::Text && self.options.verbosity > 0 {
            let lines = text::maxima(self.options, of(Access::Write), of(Access::Read));
            self.text(&lines);
        }
        if self.options.wears_out
            && let Some(path) = &self.options.status_file
            && let Some(last) = self.outcome.results.iter().rfind(|row| row.stonewall.is_some())
            && self.options.writes
        {
            let count = last.stonewall.map_or(0, |stonewall| stonewall.transfers_max);
            replace(path, &count.to_string())?;
        }
        Ok(())
    }

    fn text(&mut self, text: &str) {
        if self.team.leads() {
            (self.say)(Said::Text(text));
        }
    }

    /// A remark of rank 0; an error with `--warningAsErrors`.
    fn warn(&mut self, line: &str) -> Result<(), LoadError> {
        self.outcome.warnings_count += 1;
        if self.options.warnings_are_errors {
            return Err(LoadError::Usage(format!("{line} (--warningAsErrors)")));
        }
        if self.team.leads() {
            (self.say)(Said::Warning(line));
        }
        Ok(())
    }

    /// Waits before a phase (`-d`): rank 0 alone, as in IOR; the others wait for it.
    fn delay(&mut self) {
        if self.team.leads() && self.options.delay_s > 0 {
            thread::sleep(Duration::from_secs(self.options.delay_s));
        }
    }

    /// Memory that an application would need, each page of it touched.
    fn hog_memory(&self) -> Vec<u8> {
        let on_node = match self.options.memory_per_node_bytes {
            Memory::Bytes(bytes) => bytes,
            Memory::Percent(percent) => files::memory_bytes() / 100 * percent,
        };
        let bytes = match self.options.memory_per_task_bytes {
            0 => on_node / self.place.tasks_on_first_node.max(1),
            bytes => bytes,
        };
        vec![1; bytes as usize]
    }
}
