//! Which task reads what another wrote, and what files are called.

use crate::c_random::CRandom;
use crate::io::options::IoOptions;

/// How the tasks of a job lie on its hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    /// Tasks that take part.
    pub tasks: u64,
    /// Hosts.
    pub nodes: u64,
    /// Tasks on the host of task 0.
    pub tasks_on_first_node: u64,
    /// Tasks 0 and 1 are on one host: the launcher fills a host before the next.
    pub is_by_slot: bool,
}

impl Placement {
    /// From the hosts' names in order of rank.
    ///
    /// # Panics
    /// Without a rank.
    #[must_use]
    pub fn of(hosts: &[String]) -> Self {
        let mut names: Vec<&String> = hosts.iter().collect();
        names.sort_unstable();
        names.dedup();
        let first = &hosts[0];
        Self {
            tasks: hosts.len() as u64,
            nodes: names.len() as u64,
            tasks_on_first_node: hosts.iter().filter(|host| *host == first).count() as u64,
            is_by_slot: hosts.get(1).is_none_or(|second| second == first),
        }
    }

    /// The same with what a command line says of it; more tasks than there are is all of them.
    #[must_use]
    pub fn with(self, options: &IoOptions) -> Self {
        Self {
            tasks: options.tasks.map_or(self.tasks, |tasks| tasks.min(self.tasks)),
            nodes: options.nodes.unwrap_or(self.nodes),
            tasks_on_first_node: options.tasks_on_first_node.unwrap_or(self.tasks_on_first_node),
            ..self
        }
    }

    /// Tasks between one and the one that a constant order (`-C`) takes so many hosts on.
    fn shift(&self, hosts: u64) -> u64 {
        let shift = if self.is_by_slot { self.tasks_on_first_node } else { 1 };
        hosts.saturating_mul(shift) % self.tasks
    }
}

/// The task whose data `rank` reads in a repetition: by `-C`, `-Z` or neither.
#[must_use]
pub fn read_task(options: &IoOptions, place: &Placement, rank: u64, repetition: u32) -> u64 {
    if options.reorders_tasks {
        return (rank + place.shift(options.task_offset)) % place.tasks;
    }
    // A negative seed changes with the repetition.
    let seed = match options.reorder_seed {
        seed if seed < 0 => (-seed).wrapping_add(i64::from(repetition)) as u32,
        seed => seed as u32,
    };
    match options.random_reorder {
        0 => rank,
        1 => {
            let hosts = options.task_offset.min(place.nodes.saturating_sub(1));
            let least = hosts * place.tasks_on_first_node;
            let mut random = CRandom::new(seed.wrapping_add(rank as u32));
            // Where no offset is far enough IOR draws for ever; any will do then.
            let mut offset = random.below(place.tasks);
            while offset < least && least < place.tasks {
                offset = random.below(place.tasks);
            }
            (rank + offset) % place.tasks
        }
        _ => {
            let mut random = CRandom::new(seed);
            let mut order: Vec<u64> = (0..place.tasks).collect();
            for from in 0..order.len() {
                let to = from + random.below((order.len() - from) as u64) as usize;
                order.swap(from, to);
            }
            order[rank as usize]
        }
    }
}

/// The task whose data `rank` verifies after writing (`-W`): one host further than reading goes.
#[must_use]
pub fn check_task(options: &IoOptions, place: &Placement, rank: u64) -> u64 {
    if !options.reorders_tasks {
        return rank;
    }
    (rank + place.shift(options.task_offset + 1)) % place.tasks
}

/// The file of a task. With `-u` it lies in a directory of the task ([`task_directory`]); with `-m`
/// the repetition stands at the end.
#[must_use]
pub fn file_name(options: &IoOptions, task: u64, repetition: u32) -> String {
    let names: Vec<&str> = options.test_file.split('@').filter(|name| !name.is_empty()).collect();
    let at = if options.file_per_task { task as usize % names.len().max(1) } else { 0 };
    let mut name = names.get(at).copied().unwrap_or_default().to_owned();
    if options.file_per_task {
        if options.directory_per_task {
            let (directory, file) = split(&name);
            name = format!("{directory}{task}/{file}");
        }
        name = format!("{name}.{task:08}");
    }
    if options.file_per_repetition {
        name = format!("{name}.{repetition}");
    }
    name
}

/// The files of all tasks and repetitions, as a shell's patterns.
#[must_use]
pub fn file_patterns(options: &IoOptions) -> Vec<String> {
    let names = options.test_file.split('@').filter(|name| !name.is_empty());
    let used_count = if options.file_per_task { usize::MAX } else { 1 };
    let is_numbered = options.file_per_task || options.file_per_repetition;
    let pattern = |name: &str| {
        let end = if is_numbered { ".*" } else { "" };
        let (directory, file) = split(name);
        let inner = if options.file_per_task && options.directory_per_task { "*/" } else { "" };
        format!("{directory}{inner}{file}{end}")
    };
    names.take(used_count).map(pattern).collect()
}

/// The directory that a task's file lies in with `-F -u`; none otherwise.
#[must_use]
pub fn task_directory(options: &IoOptions, task: u64) -> Option<String> {
    (options.file_per_task && options.directory_per_task)
        .then(|| format!("{}{task}", split(&options.test_file).0))
}

/// The directory with its slash, and the file.
fn split(path: &str) -> (&str, &str) {
    path.split_at(path.rfind('/').map_or(0, |slash| slash + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(words: &str) -> IoOptions {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let mut line = crate::io::options::CommandLine::parse(&words).expect("options");
        line.settle().expect("a test");
        line.tests.remove(0)
    }

    fn place(hosts: &str) -> Placement {
        Placement::of(&hosts.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    fn order(words: &str, hosts: &str) -> Vec<u64> {
        let (options, place) = (options(words), place(hosts));
        (0..place.tasks).map(|rank| read_task(&options, &place, rank, 0)).collect()
    }

    #[test]
    fn a_constant_order_reads_from_the_next_host() {
        // Two hosts, filled one after the other: the shift is a host's number of tasks.
        assert_eq!(order("-C", "a a b b"), [2, 3, 0, 1]);
        assert_eq!(order("-C -Q 2", "a a b b c c"), [4, 5, 0, 1, 2, 3]);
        // In turn: the next task is on the next host.
        assert_eq!(order("-C", "a b a b"), [1, 2, 3, 0]);
        // One host: nothing changes but the order.
        assert_eq!(order("-C", "a a"), [0, 1]);
        assert_eq!(order("", "a b"), [0, 1]);
        let (options, place) = (options("-C -W"), place("a a b b c c"));
        assert_eq!(check_task(&options, &place, 0), 4, "a check is one host further");
    }

    #[test]
    fn random_orders_are_far_enough_and_a_shuffle_is_a_permutation() {
        for task in order("-Z -X 3", "a a b b").iter().zip(0..) {
            let (&task, rank): (&u64, u64) = task;
            assert!((task + 4 - rank) % 4 >= 2, "{rank} reads {task}, on its own host");
        }
        let shuffled = order("-Z -Z -X 3", "a a b b c c");
        let mut sorted = shuffled.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 1, 2, 3, 4, 5]);
        assert_ne!(shuffled, sorted);
        // One host: IOR would draw for ever for tasks on the first host of one.
        assert_eq!(order("-Z", "a").len(), 1);
        let (options, place) = (options("-Z -Z -X -3"), place("a a b b c c"));
        let of = |repetition| -> Vec<u64> {
            (0..6).map(|rank| read_task(&options, &place, rank, repetition)).collect()
        };
        assert_ne!(of(0), of(1), "a negative seed");
    }

    #[test]
    fn files_are_named_as_ior_names_them() {
        let names = [
            ("-o /d/f", "/d/f"),
            ("-F -o /d/f", "/d/f.00000003"),
            ("-F -m -o /d/f", "/d/f.00000003.2"),
            ("-m -o /d/f", "/d/f.2"),
            ("-F -u -o /d/f", "/d/3/f.00000003"),
            ("-F -u -o f", "3/f.00000003"),
            ("-F -o /d/f@/e/g", "/e/g.00000003"),
            ("-o /d/f@/e/g", "/d/f"),
        ];
        for (words, name) in names {
            assert_eq!(file_name(&options(words), 3, 2), name, "{words}");
        }
        assert_eq!(task_directory(&options("-F -u -o /d/f"), 3).as_deref(), Some("/d/3"));
        assert_eq!(task_directory(&options("-u -o /d/f"), 3), None);
    }

    #[test]
    fn tasks_asked_for_are_at_most_those_there_are() {
        let at = place("a a b b").with(&options("-N 2"));
        assert_eq!((at.tasks, at.nodes, at.tasks_on_first_node), (2, 2, 2));
        assert_eq!(place("a").with(&options("-N 9")).tasks, 1);
    }
}
