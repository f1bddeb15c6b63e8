//! From the ranks' times to mdtest's rates.

use stats::LatencyHistogram;

use crate::io::summary::Spread;

/// A phase, in mdtest's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Directories are created.
    DirectoryCreation,
    /// Directories are looked at.
    DirectoryStat,
    /// Nothing: directories are not read.
    DirectoryRead,
    /// Directories are renamed.
    DirectoryRename,
    /// Directories are removed.
    DirectoryRemoval,
    /// Files are created, and written.
    FileCreation,
    /// Files are looked at.
    FileStat,
    /// Files are opened, read and closed.
    FileRead,
    /// Files are removed.
    FileRemoval,
    /// The tree of directories is created.
    TreeCreation,
    /// The tree of directories is removed.
    TreeRemoval,
}

/// All phases, in mdtest's order.
pub const PHASES: [Phase; 11] = [
    Phase::DirectoryCreation,
    Phase::DirectoryStat,
    Phase::DirectoryRead,
    Phase::DirectoryRename,
    Phase::DirectoryRemoval,
    Phase::FileCreation,
    Phase::FileStat,
    Phase::FileRead,
    Phase::FileRemoval,
    Phase::TreeCreation,
    Phase::TreeRemoval,
];

impl Phase {
    /// mdtest's name for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::DirectoryCreation => "Directory creation",
            Self::DirectoryStat => "Directory stat",
            Self::DirectoryRead => "Directory read",
            Self::DirectoryRename => "Directory rename",
            Self::DirectoryRemoval => "Directory removal",
            Self::FileCreation => "File creation",
            Self::FileStat => "File stat",
            Self::FileRead => "File read",
            Self::FileRemoval => "File removal",
            Self::TreeCreation => "Tree creation",
            Self::TreeRemoval => "Tree removal",
        }
    }

    /// Its place in mdtest's order.
    #[must_use]
    pub fn place(self) -> usize {
        self as usize
    }

    /// Whether only rank 0's time counts.
    #[must_use]
    pub fn is_of_tree(self) -> bool {
        self >= Self::TreeCreation
    }
}

/// What one rank measured in one phase of one iteration.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RankPhase {
    /// Items done.
    pub items: u64,
    /// Seconds with the barrier at the end.
    pub time_s: f64,
    /// Seconds until the barrier.
    pub own_time_s: f64,
}

impl RankPhase {
    /// Items a second, with the barrier; 0 without an item.
    #[must_use]
    pub fn rate(&self) -> f64 {
        rate(self.items, self.time_s)
    }

    /// Items a second, without the barrier; 0 without an item.
    #[must_use]
    pub fn own_rate(&self) -> f64 {
        rate(self.items, self.own_time_s)
    }
}

fn rate(items: u64, time_s: f64) -> f64 {
    if items == 0 { 0.0 } else { items as f64 / time_s }
}

/// Where the ranks stood when files were no longer created.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Stonewall {
    /// Seconds until then.
    pub time_s: f64,
    /// Files of the slowest rank.
    pub items_min: u64,
    /// Files of the fastest rank, which all ranks went on to.
    pub items_max: u64,
    /// Files of all ranks.
    pub items_all: u64,
}

/// One iteration of all ranks.
#[derive(Debug, Clone, Default)]
pub struct Iteration {
    /// By rank, then by phase.
    pub ranks: Vec<[RankPhase; 11]>,
    /// Where the ranks stood at the stonewall.
    pub stonewall: Option<Stonewall>,
    /// The times of single calls, by phase; of all ranks.
    pub latencies: Vec<LatencyHistogram>,
    /// Calls that failed, by phase; of all ranks.
    pub failed_calls: [u64; 11],
    /// Processor seconds of all ranks.
    pub cpu_s: f64,
}

impl Iteration {
    /// Items of all ranks in a phase.
    #[must_use]
    pub fn items(&self, phase: Phase) -> u64 {
        let of = |rank: &[RankPhase; 11]| rank[phase.place()].items;
        if phase.is_of_tree() {
            self.ranks.first().map_or(0, of)
        } else {
            self.ranks.iter().map(of).sum()
        }
    }

    /// The longest time of a rank, seconds.
    #[must_use]
    pub fn time_s(&self, phase: Phase) -> f64 {
        let of = |rank: &[RankPhase; 11]| rank[phase.place()].time_s;
        if phase.is_of_tree() {
            return self.ranks.first().map_or(0.0, of);
        }
        self.ranks.iter().map(of).fold(0.0, f64::max)
    }

    /// Items a second as mdtest prints it: the slowest rank's rate times the ranks. Of a tree, rank 0's.
    #[must_use]
    pub fn rate(&self, phase: Phase) -> f64 {
        let of = |rank: &[RankPhase; 11]| rank[phase.place()].rate();
        if phase.is_of_tree() {
            return self.ranks.first().map_or(0.0, of);
        }
        let slowest = self.ranks.iter().map(of).fold(f64::INFINITY, f64::min);
        slowest * self.ranks.len() as f64
    }

    /// Whether the phase was run.
    #[must_use]
    pub fn has(&self, phase: Phase) -> bool {
        self.items(phase) > 0 && phase != Phase::DirectoryRead
    }
}

/// What mdtest's summary says of a phase: highest, lowest and mean over the iterations.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PhaseSummary {
    /// Over iterations, with the deviation of a sample.
    pub iterations: Spread,
    /// Over ranks and iterations, without the barrier.
    pub ranks: Spread,
}

/// The summary of a phase: rates, or times in seconds.
#[must_use]
pub fn summarise(iterations: &[Iteration], phase: Phase, is_time: bool) -> PhaseSummary {
    let of_iteration = |one: &Iteration| if is_time { one.time_s(phase) } else { one.rate(phase) };
    let values: Vec<f64> = iterations.iter().map(of_iteration).collect();
    let of_rank = |rank: &[RankPhase; 11]| {
        let one = &rank[phase.place()];
        match (is_time, phase.is_of_tree()) {
            (true, true) => one.time_s,
            (true, false) => one.own_time_s,
            (false, true) => one.rate(),
            (false, false) => one.own_rate(),
        }
    };
    let count = if phase.is_of_tree() { 1 } else { usize::MAX };
    let ranks = iterations.iter().flat_map(|one| one.ranks.iter().take(count));
    let ranks: Vec<f64> = ranks.map(of_rank).collect();
    PhaseSummary { iterations: Spread::sample(&values), ranks: Spread::sample(&ranks) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn iteration(times: &[(f64, f64)]) -> Iteration {
        let rank = |&(time_s, own_time_s): &(f64, f64)| {
            let mut phases = [RankPhase::default(); 11];
            for place in [Phase::FileStat.place(), Phase::TreeCreation.place()] {
                phases[place] = RankPhase { items: 10, time_s, own_time_s };
            }
            phases
        };
        Iteration { ranks: times.iter().map(rank).collect(), ..Iteration::default() }
    }

    #[test]
    fn a_rate_is_all_items_over_the_longest_time() {
        let one = iteration(&[(1.0, 0.5), (2.0, 2.0)]);
        assert_eq!((one.rate(Phase::FileStat), one.items(Phase::FileStat)), (10.0, 20));
        assert_eq!((one.time_s(Phase::FileStat), one.rate(Phase::TreeCreation)), (2.0, 10.0));
        assert_eq!(one.rate(Phase::FileRead), 0.0);
        assert!(one.has(Phase::FileStat) && !one.has(Phase::FileRead));
    }

    #[test]
    fn deviations_over_iterations_are_those_of_a_sample() {
        let both = [iteration(&[(1.0, 0.5), (1.0, 1.0)]), iteration(&[(2.0, 2.0), (2.0, 2.0)])];
        let rates = summarise(&both, Phase::FileStat, false);
        assert_eq!(
            (rates.iterations.max, rates.iterations.min, rates.iterations.mean),
            (20.0, 10.0, 15.0)
        );
        assert!((rates.iterations.deviation - 50.0_f64.sqrt()).abs() < 1e-12);
        assert_eq!((rates.ranks.max, rates.ranks.min), (20.0, 5.0));
        let times = summarise(&both, Phase::FileStat, true);
        assert_eq!((times.iterations.max, times.ranks.min), (2.0, 0.5));
        assert_eq!(summarise(&both[..1], Phase::FileStat, false).iterations.deviation, 0.0);
    }

    #[test]
    fn phases_stand_in_their_order() {
        assert!(PHASES.iter().enumerate().all(|(place, phase)| phase.place() == place));
    }
}
