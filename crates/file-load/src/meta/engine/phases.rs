//! The phases, in their order.

use std::process::Command;

use super::calls::{Items, Operation};
use super::{Run, text};
use crate::clock;
use crate::error::LoadError;
use crate::meta::shape::{Item, Names, Shift};
use crate::meta::summary::{Phase, RankPhase, Stonewall};

impl Run<'_> {
    pub(super) fn test_directories(&mut self) -> Result<(), LoadError> {
        self.team.barrier()?;
        let options = self.options;
        if options.creates {
            self.phase(Phase::DirectoryCreation, |run| {
                let (phase, operation) = (Phase::DirectoryCreation, Operation::MakeDirectory);
                run.in_turn((phase, operation), (Item::Directory, Shift::Create))
            })?;
        }
        if options.stats {
            self.phase(Phase::DirectoryStat, |run| {
                let (phase, operation) = (Phase::DirectoryStat, Operation::Stat);
                run.by_number((phase, operation), (Item::Directory, Shift::Stat))
            })?;
        }
        if options.reads {
            // Directories are not read, but mdtest has the phase and its barriers.
            self.phase(Phase::DirectoryRead, |_run| Ok(0))?;
        }
        if options.renames && self.shape.all_items() > 1 {
            self.phase(Phase::DirectoryRename, Self::rename)?;
        }
        if options.removes {
            self.phase(Phase::DirectoryRemoval, |run| {
                let (phase, operation) = (Phase::DirectoryRemoval, Operation::RemoveDirectory);
                run.in_turn((phase, operation), (Item::Directory, Shift::Remove))
            })?;
        }
        Ok(())
    }

    pub(super) fn test_files(&mut self) -> Result<(), LoadError> {
        self.team.barrier()?;
        let options = self.options;
        if options.creates {
            self.phase(Phase::FileCreation, Self::create_files)?;
        } else if let Some(path) = options.status_file.clone() {
            self.take_status(&path)?;
        }
        if options.stats {
            self.phase(Phase::FileStat, |run| {
                run.by_number((Phase::FileStat, Operation::Stat), (Item::File, Shift::Stat))
            })?;
        }
        if options.reads {
            self.phase(Phase::FileRead, |run| {
                run.by_number((Phase::FileRead, Operation::ReadFile), (Item::File, Shift::Read))
            })?;
        }
        if options.removes {
            self.phase(Phase::FileRemoval, |run| {
                let (phase, operation) = (Phase::FileRemoval, Operation::RemoveFile);
                run.in_turn((phase, operation), (Item::File, Shift::Remove))
            })?;
        }
        Ok(())
    }

    /// A phase with its barriers and times; `work` gives the items done.
    fn phase(
        &mut self,
        phase: Phase,
        work: impl FnOnce(&mut Self) -> Result<u64, LoadError>,
    ) -> Result<(), LoadError> {
        let options = self.options;
        if let Some(command) = &options.command_before {
            self.shell(command)?;
        }
        if !options.has_no_barriers {
            self.team.barrier()?;
        }
        self.team.begin_phase(self.say)?;
        let mut start_s = self.team.now_s();
        let is_creation = matches!(phase, Phase::DirectoryCreation | Phase::FileCreation);
        if options.tree_per_task && is_creation {
            self.team.barrier()?;
            if !options.times_directories {
                start_s = self.team.now_s();
            }
        }
        let has_log = options.calls_file.is_some() && phase >= Phase::FileCreation;
        self.log = has_log.then(Vec::new);
        self.phase_began_ns = clock::now_ns();
        let items = work(self)?;
        let own_time_s = self.team.now_s() - start_s;
        if options.syncs_phases {
            self.team.activity.during("sync", &self.base, rustix::fs::sync);
        }
        if let Some(command) = &options.command_after {
            self.shell(command)?;
        }
        if !options.has_no_barriers {
            self.team.barrier()?;
        }
        let time_s = self.team.now_s() - start_s;
        self.team.end_phase(phase.name(), self.say);
        self.phases[phase.place()] = RankPhase { items, time_s, own_time_s };
        self.store_calls(phase)
    }

    /// Stores each call's time (`--savePerOpDataCSV`), a file a rank and phase of files.
    fn store_calls(&mut self, phase: Phase) -> Result<(), LoadError> {
        let (Some(log), Some(prefix)) = (self.log.take(), &self.options.calls_file) else {
            return Ok(());
        };
        let bytes = match phase {
            Phase::FileCreation | Phase::FileRemoval => self.options.write_bytes,
            Phase::FileRead => self.options.read_bytes,
            _ => 1,
        };
        let path = format!("{prefix}-{}-{:05}.csv", phase.name(), self.team.me());
        crate::io::engine::replace(&path, &crate::io::text::transfers(&log, bytes.max(1)))
    }

    fn shell(&self, command: &str) -> Result<(), LoadError> {
        self.team.activity.end();
        match Command::new("/bin/sh").args(["-c", command]).status() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => {
                let line =
                    format!("the command before or after a phase failed ({status}): {command}");
                Err(LoadError::Usage(line))
            }
            Err(source) => Err(LoadError::File { path: "/bin/sh".to_owned(), source }),
        }
    }

    fn names(&self, item: Item, shift: Shift, task: u64) -> Names {
        Names::of(self.options, (item, shift), task, (self.tasks, self.stride))
    }

    /// Whether this rank does nothing in a phase, because rank 0 does it for all.
    fn is_idle(&self, operation: Operation) -> bool {
        use Operation::{MakeDirectory, RemoveDirectory, RemoveFile};
        let is_removal = matches!(operation, RemoveFile | RemoveDirectory);
        let is_for_all = self.options.is_collective && (is_removal || operation == MakeDirectory)
            || self.options.is_shared && is_removal;
        is_for_all && !self.team.leads()
    }

    /// Creates or removes items directory by directory, for this task or with `-c` for all; gives the items
    /// of this task.
    fn in_turn(
        &mut self,
        (phase, operation): (Phase, Operation),
        (item, shift): (Item, Shift),
    ) -> Result<u64, LoadError> {
        if self.is_idle(operation) {
            return Ok(self.shape.all_items());
        }
        let me = self.team.me() as u64;
        let is_for_all = self.options.is_collective && operation != Operation::CreateFile;
        let tasks = if is_for_all { 0..self.tasks } else { me..me + 1 };
        for number in 0..self.shape.loops {
            for task in tasks.clone() {
                let names = self.names(item, shift, task);
                let directory = self.loop_directory(number);
                let mut items = Items::new(phase, operation, names.owner, String::new());
                for place in self.shape.depth_first() {
                    if self.shape.has_items(place) {
                        items.set_prefix(&self.prefix(&directory, &names, place));
                        let first = place * self.shape.items_per_directory;
                        let last = first + self.shape.items_per_directory;
                        self.range(&mut items, first..last, None)?;
                    }
                }
            }
        }
        Ok(self.shape.all_items())
    }

    /// The path of items of a directory, up to their number.
    fn prefix(&self, loop_directory: &str, names: &Names, place: u64) -> String {
        let Names { tree, item, .. } = names;
        format!("{loop_directory}/{tree}.0/{}{item}", self.shape.below(tree, place))
    }

    /// One call for each number; with a deadline (ns of the monotonic clock) no further ones after it.
    /// Gives the number of calls.
    fn range(
        &mut self,
        items: &mut Items,
        numbers: std::ops::Range<u64>,
        deadline_ns: Option<u64>,
    ) -> Result<u64, LoadError> {
        self.watch(items);
        let first = numbers.start;
        let mut now_ns = clock::now_ns();
        let deadline_ns = deadline_ns.unwrap_or(u64::MAX);
        for number in numbers.clone() {
            now_ns = self.one(items, number, now_ns)?;
            if now_ns > deadline_ns {
                self.team.activity.end();
                return Ok(number + 1 - first);
            }
        }
        self.team.activity.end();
        Ok(numbers.end - first)
    }

    /// Looks at or reads items in the order of their numbers, or a random one; gives the items.
    fn by_number(
        &mut self,
        (phase, operation): (Phase, Operation),
        (item, shift): (Item, Shift),
    ) -> Result<u64, LoadError> {
        let names = self.names(item, shift, self.team.me() as u64);
        let order = self.shape.order(self.random_seed);
        for number in 0..self.shape.loops {
            let directory = self.loop_directory(number);
            let mut items = Items::new(phase, operation, names.owner, String::new());
            let mut place = None;
            let mut now_ns = clock::now_ns();
            for &number in &order {
                let of_item = self.shape.directory_of(number);
                if place != Some(of_item) {
                    place = Some(of_item);
                    items.set_prefix(&self.prefix(&directory, &names, of_item));
                    self.watch(&items);
                }
                now_ns = self.one(&mut items, number, now_ns)?;
            }
            self.team.activity.end();
        }
        Ok(self.shape.all_items())
    }

    /// Renames each directory to its neighbour's name, in a ring.
    fn rename(&mut self) -> Result<u64, LoadError> {
        let phase = Phase::DirectoryRename;
        let names = self.names(Item::Directory, Shift::Stat, self.team.me() as u64);
        let order = self.shape.order(0);
        for number in 0..self.shape.loops {
            let directory = self.loop_directory(number);
            let path = |run: &Self, number: u64| {
                format!(
                    "{}{number}",
                    run.prefix(&directory, &names, run.shape.directory_of(number))
                )
            };
            let Some((&first, rest)) = order.split_first() else { continue };
            let Some((_, between)) = rest.split_last() else { continue };
            let aside = path(self, first) + "-aside";
            let mut to = aside.clone();
            let moves = [first].iter().chain(between).copied().collect::<Vec<u64>>();
            for number in moves {
                let from = path(self, number);
                self.move_to(phase, &from, &to);
                to = from;
            }
            self.move_to(phase, &aside, &to);
        }
        Ok(self.shape.all_items())
    }

    fn move_to(&mut self, phase: Phase, from: &str, to: &str) {
        let begin_ns = clock::now_ns();
        let done = self.team.activity.during("rename", from, || rustix::fs::rename(from, to));
        self.latencies[phase.place()].record_ns(clock::now_ns() - begin_ns);
        if let Err(error) = done {
            self.note_failure(phase, "rename", from, &error.into());
        }
    }

    /// Creates the files; with a stonewall as many as the fastest rank reached until then.
    fn create_files(&mut self) -> Result<u64, LoadError> {
        if self.options.is_collective {
            if self.team.leads() {
                let what = (Phase::FileCreation, Operation::CreateEmpty);
                self.in_turn(what, (Item::File, Shift::Create))?;
            }
            self.team.barrier()?;
        }
        if self.options.stonewall_s == 0 {
            let what = (Phase::FileCreation, Operation::CreateFile);
            return self.in_turn(what, (Item::File, Shift::Create));
        }
        let names = self.names(Item::File, Shift::Create, self.team.me() as u64);
        let prefix = self.prefix(&self.loop_directory(0), &names, 0);
        let (phase, operation) = (Phase::FileCreation, Operation::CreateFile);
        let mut items = Items::new(phase, operation, names.owner, prefix);
        let start_ns = clock::now_ns();
        let deadline_ns = start_ns + self.options.stonewall_s.saturating_mul(1_000_000_000);
        let asked = self.shape.items;
        let done = self.range(&mut items, 0..asked, Some(deadline_ns))?;
        let all = self.team.share_numbers(&[done as f64])?;
        let counts: Vec<u64> = all.iter().map(|row| row[0] as u64).collect();
        let stonewall = Stonewall {
            time_s: (clock::now_ns() - start_ns) as f64 * 1e-9,
            items_min: counts.iter().copied().min().unwrap_or(0),
            items_max: counts.iter().copied().max().unwrap_or(0),
            items_all: counts.iter().sum(),
        };
        self.stonewall = Some(stonewall);
        let Stonewall { items_min, items_max, items_all, .. } = stonewall;
        if asked != items_all / self.tasks {
            let mean = items_all as f64 / self.tasks as f64;
            self.text(&text::stonewall_line(items_min, items_max, mean));
            self.range(&mut items, done..items_max, None)?;
        }
        self.shape = self.shape.with_items(items_max);
        if let (true, Some(path)) = (self.team.leads(), &self.options.status_file) {
            crate::io::engine::replace(path, &items_max.to_string())?;
        }
        Ok(items_max)
    }

    /// Takes the number of files from the run that created them.
    fn take_status(&mut self, path: &str) -> Result<(), LoadError> {
        let mine = if self.team.leads() { crate::io::engine::status(path) } else { None };
        let mine = mine.map_or(-1, |count| i64::try_from(count).unwrap_or(i64::MAX));
        let told = self.team.broadcast_number(mine)?;
        let Ok(count) = u64::try_from(told) else {
            if self.shape.items == 0 {
                let line = format!("{path} holds no number of items, and -n gives none");
                return Err(LoadError::Usage(line));
            }
            return self.warn(&format!("{path} holds no number of items; that of -n is used"));
        };
        if self.shape.loops > 1 {
            self.shape.loops = count / self.shape.items_per_directory.max(1);
        } else {
            self.shape = self.shape.with_items(count);
        }
        Ok(())
    }
}
