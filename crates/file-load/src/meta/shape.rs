//! The tree of directories, which items lie where, and what they are called.

use crate::c_random::CRandom;
use crate::meta::options::MetaOptions;

/// Files or directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item {
    /// Files.
    File,
    /// Directories.
    Directory,
}

/// How many directories and items there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Directories of a tree, the first included.
    pub directories: u64,
    /// Items of each task in one tree.
    pub items: u64,
    /// Items of each task in one directory of the tree that has any.
    pub items_per_directory: u64,
    /// Trees one after the other (`-n` with `-I`).
    pub loops: u64,
    /// The first directory that has items: 0, or with `-L` the first without subdirectories.
    pub first_directory: u64,
    branches: u64,
    depth: u32,
}

impl Shape {
    /// From the options; the number of items is rounded down to a multiple of the directories, as mdtest
    /// does. None where 64 bits do not hold it.
    #[must_use]
    pub fn of(options: &MetaOptions) -> Option<Self> {
        let (branches, depth) = (options.branches.max(1), options.depth);
        let leaves = branches.checked_pow(depth)?;
        let mut directories: u64 = 0;
        for level in 0..=depth {
            directories = directories.checked_add(branches.checked_pow(level)?)?;
        }
        let with_items = if options.leaves_only { leaves } else { directories };
        let (given, per_directory) = (options.items, options.items_per_directory);
        let has_both = given > 0 && per_directory > 0;
        let items_per_directory =
            if per_directory > 0 { per_directory } else { given / with_items };
        Some(Self {
            directories,
            items: items_per_directory.checked_mul(with_items)?,
            items_per_directory,
            loops: if has_both { given / per_directory } else { 1 },
            first_directory: directories - with_items,
            branches,
            depth,
        })
    }

    /// Items of each task in all trees.
    #[must_use]
    pub fn all_items(&self) -> u64 {
        self.items.saturating_mul(self.loops)
    }

    /// The same with so many items of each task in one directory: after a stonewall.
    #[must_use]
    pub fn with_items(self, items: u64) -> Self {
        Self { items, items_per_directory: items, ..self }
    }

    /// The directories of a tree, a directory before its subdirectories, and these before the directory's
    /// next neighbour: the order in which mdtest creates.
    #[must_use]
    pub fn depth_first(&self) -> Vec<u64> {
        let mut order = Vec::new();
        let mut open = vec![(0, 0)];
        while let Some((directory, level)) = open.pop() {
            order.push(directory);
            if level < self.depth {
                let first = directory * self.branches + 1;
                open.extend((first..first + self.branches).rev().map(|one| (one, level + 1)));
            }
        }
        order
    }

    /// Whether items lie in a directory.
    #[must_use]
    pub fn has_items(&self, directory: u64) -> bool {
        directory >= self.first_directory
    }

    /// The path of a directory below the tree's first, with a slash at its end: `tree.1/tree.4/`.
    #[must_use]
    pub fn below(&self, tree: &str, mut directory: u64) -> String {
        let mut parts = Vec::new();
        while directory > 0 {
            parts.push(format!("{tree}.{directory}/"));
            directory = (directory - 1) / self.branches;
        }
        parts.reverse();
        parts.concat()
    }

    /// Numbers of the items, in the order of the directories; or in random order from a seed, as mdtest
    /// draws it. Not 0: a seed.
    #[must_use]
    pub fn order(&self, seed: u32) -> Vec<u64> {
        let first = self.first_directory * self.items_per_directory;
        let mut order: Vec<u64> = (first..first + self.items).collect();
        if seed > 0 {
            let mut random = CRandom::new(seed);
            for last in (1..order.len()).rev() {
                let share = f64::from(random.draw()) / 2_147_483_647.0;
                order.swap((share * last as f64) as usize, last);
            }
        }
        order
    }

    /// The directory that an item lies in.
    #[must_use]
    pub fn directory_of(&self, item: u64) -> u64 {
        item / self.items_per_directory.max(1)
    }
}

/// A phase's place in the shift of `-N`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shift {
    /// Creating: one's own names.
    Create,
    /// Looking at and renaming.
    Stat,
    /// Reading.
    Read,
    /// Removing.
    Remove,
}

/// The names that a task uses in a phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// The task whose items these are.
    pub owner: u64,
    /// The tree's name, without the number of a directory: `mdtest_tree.3`.
    pub tree: String,
    /// What stands before an item's number: `file.mdtest.3.`.
    pub item: String,
}

impl Names {
    /// The names of `task` of so many.
    #[must_use]
    pub fn of(
        options: &MetaOptions,
        (kind, shift): (Item, Shift),
        task: u64,
        (tasks, stride): (u64, u64),
    ) -> Self {
        let steps = match shift {
            Shift::Create => 0,
            Shift::Stat => 1,
            Shift::Read => 2,
            Shift::Remove => 3,
        };
        let owner = (task + steps * stride) % tasks;
        // A task's items lie in the tree of the task that looks at them next.
        let tree = if options.tree_per_task {
            format!("mdtest_tree.{}", (owner + stride) % tasks)
        } else {
            "mdtest_tree".to_owned()
        };
        let kind = if kind == Item::File { "file" } else { "dir" };
        let item = if options.is_shared {
            format!("{kind}.mdtest.shared.")
        } else {
            format!("{kind}.mdtest.{owner}.")
        };
        Self { owner, tree, item }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(line: &str) -> MetaOptions {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        MetaOptions::parse(&words).expect("options")
    }

    #[test]
    fn items_are_rounded_down_to_the_directories() {
        let table = [
            ("-n 20", (1, 20, 20, 1, 0)),
            ("-n 20 -b 2 -z 2", (7, 14, 2, 1, 0)),
            ("-n 22 -b 2 -z 2 -L", (7, 20, 5, 1, 3)),
            ("-n 20 -z 3", (4, 20, 5, 1, 0)),
            ("-I 3 -b 2 -z 2", (7, 21, 3, 1, 0)),
            ("-I 3 -b 2 -z 2 -L", (7, 12, 3, 1, 3)),
            ("-n 12 -I 3", (1, 3, 3, 4, 0)),
        ];
        for (line, expected) in table {
            let shape = Shape::of(&options(line)).expect("a shape");
            let Shape { directories, items, items_per_directory, loops, first_directory, .. } =
                shape;
            assert_eq!(
                (directories, items, items_per_directory, loops, first_directory),
                expected,
                "{line}"
            );
        }
        assert_eq!(Shape::of(&options("-n 1 -b 1000000 -z 40")), None);
    }

    #[test]
    fn directories_are_numbered_by_level_and_made_depth_first() {
        let shape = Shape::of(&options("-n 14 -b 2 -z 2")).expect("a shape");
        assert_eq!(shape.depth_first(), [0, 1, 3, 4, 2, 5, 6]);
        assert_eq!(shape.below("t", 0), "");
        assert_eq!(shape.below("t", 6), "t.2/t.6/");
        assert_eq!((shape.directory_of(13), shape.order(0).len()), (6, 14));
        let leaves = Shape::of(&options("-n 8 -b 2 -z 2 -L")).expect("a shape");
        assert_eq!(leaves.order(0), [6, 7, 8, 9, 10, 11, 12, 13]);
        assert!(!leaves.has_items(2) && leaves.has_items(3));
    }

    #[test]
    fn a_random_order_has_every_item_once() {
        let shape = Shape::of(&options("-n 100")).expect("a shape");
        let mut order = shape.order(7);
        assert_ne!(order, shape.order(0));
        assert_ne!(order, shape.order(8));
        order.sort_unstable();
        assert_eq!(order, shape.order(0));
    }

    #[test]
    fn each_phase_uses_the_names_of_the_next_task() {
        let owner = |shift, line: &str| {
            let options = options(line);
            let names = Names::of(&options, (Item::File, shift), 3, (4, options.stride));
            (names.tree, names.item)
        };
        let is = |pair: (&str, &str)| (pair.0.to_owned(), pair.1.to_owned());
        assert_eq!(owner(Shift::Create, "-n 1"), is(("mdtest_tree", "file.mdtest.3.")));
        assert_eq!(owner(Shift::Remove, "-n 1 -N 1"), is(("mdtest_tree", "file.mdtest.2.")));
        assert_eq!(owner(Shift::Stat, "-n 1 -N 1 -u"), is(("mdtest_tree.1", "file.mdtest.0.")));
        assert_eq!(owner(Shift::Create, "-n 1 -N 1 -u"), is(("mdtest_tree.0", "file.mdtest.3.")));
        assert_eq!(owner(Shift::Stat, "-n 1 -S"), is(("mdtest_tree", "file.mdtest.shared.")));
    }
}
