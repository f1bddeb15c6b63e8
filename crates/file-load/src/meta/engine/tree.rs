//! Directories that hold the items: the one under test, one a loop, and the trees in them.

use std::fs;
use std::io;

use super::Run;
use crate::error::LoadError;
use crate::meta::summary::{Phase, RankPhase};
use crate::posix;

impl Run<'_> {
    /// Whether this rank is responsible for a directory of `-d`.
    fn has_base(&self) -> bool {
        self.team.me() < self.options.directories().len()
    }

    fn make_directory(&self, path: &str) -> io::Result<()> {
        self.team.activity.during("mkdir", path, || fs::create_dir(path))
    }

    fn remove_directory(&self, path: &str) -> io::Result<()> {
        self.team.activity.during("rmdir", path, || fs::remove_dir(path))
    }

    fn exists(&self, path: &str) -> bool {
        self.team.activity.during("access", path, || posix::exists(path))
    }

    /// Makes the directory under test where it is missing.
    pub(super) fn make_base(&mut self) -> Result<(), LoadError> {
        if self.has_base() && !self.exists(&self.base) {
            self.make_directory(&self.base)
                .map_err(|source| self.call("mkdir", &self.base, source))?;
            self.has_made_base = true;
        }
        self.team.barrier()
    }

    /// Removes the directory under test where this run made it and removed all in it.
    pub(super) fn remove_base(&mut self) -> Result<(), LoadError> {
        if self.has_made_base && self.options.removes {
            self.remove_directory(&self.base)
                .map_err(|source| self.call("rmdir", &self.base, source))?;
        }
        Ok(())
    }

    /// The directory of a loop of this iteration.
    pub(super) fn loop_directory(&self, number: u64) -> String {
        let slash = if self.base.ends_with('/') { "" } else { "/" };
        format!("{}{slash}test-dir.{}-{number}", self.base, self.number)
    }

    /// The trees that this rank makes and removes.
    fn own_trees(&self) -> Vec<String> {
        let (me, tasks) = (self.team.me() as u64, self.tasks);
        let each = |task: u64| format!("mdtest_tree.{task}");
        match (self.options.tree_per_task, self.options.is_collective) {
            (true, false) => vec![each(me)],
            (true, true) if me == 0 => (0..tasks).map(each).collect(),
            (false, _) if me == 0 => vec!["mdtest_tree".to_owned()],
            _ => Vec::new(),
        }
    }

    pub(super) fn create_tree(&mut self) -> Result<(), LoadError> {
        for number in 0..self.shape.loops {
            let path = self.loop_directory(number);
            if self.has_base()
                && let Err(error) = self.make_directory(&path)
                && error.kind() != io::ErrorKind::AlreadyExists
            {
                return Err(self.call("mkdir", &path, error));
            }
        }
        self.team.barrier()?;
        let start_s = self.team.now_s();
        for number in 0..self.shape.loops {
            let path = self.loop_directory(number);
            for tree in self.own_trees() {
                for directory in self.shape.depth_first() {
                    let path = format!("{path}/{tree}.0/{}", self.shape.below(&tree, directory));
                    if let Err(error) = self.make_directory(&path) {
                        self.note_failure(Phase::TreeCreation, "mkdir", &path, &error);
                    }
                }
            }
        }
        self.team.barrier()?;
        self.note_tree(Phase::TreeCreation, start_s);
        Ok(())
    }

    pub(super) fn remove_tree(&mut self) -> Result<(), LoadError> {
        let start_s = self.team.now_s();
        for number in 0..self.shape.loops {
            let path = self.loop_directory(number);
            for tree in self.own_trees() {
                for directory in self.shape.depth_first().into_iter().rev() {
                    let path = format!("{path}/{tree}.0/{}", self.shape.below(&tree, directory));
                    if let Err(error) = self.remove_directory(&path) {
                        self.note_failure(Phase::TreeRemoval, "rmdir", &path, &error);
                    }
                }
            }
        }
        self.team.barrier()?;
        self.note_tree(Phase::TreeRemoval, start_s);
        for number in 0..self.shape.loops {
            let path = self.loop_directory(number);
            if self.has_base()
                && self.exists(&path)
                && let Err(error) = self.remove_directory(&path)
            {
                self.note_failure(Phase::TreeRemoval, "rmdir", &path, &error);
            }
        }
        Ok(())
    }

    fn note_tree(&mut self, phase: Phase, start_s: f64) {
        let time_s = self.team.now_s() - start_s;
        let items = self.shape.directories;
        self.phases[phase.place()] = RankPhase { items, time_s, own_time_s: time_s };
    }
}
