//! From the ranks' clocks to IOR's figures.

use stats::LatencyHistogram;

/// Writing or reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Writing.
    Write,
    /// Reading.
    Read,
}

impl Access {
    /// Its name in output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
        }
    }
}

/// What one rank measured in one access of one repetition. Times are seconds on a clock that all
/// ranks share.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RankTimes {
    /// Start and end of opening the file.
    pub open: (f64, f64),
    /// Start and end of the transfers, fsync included.
    pub transfer: (f64, f64),
    /// Start and end of closing the file.
    pub close: (f64, f64),
    /// Bytes written or read.
    pub moved_bytes: u64,
    /// Length of the file as `stat` gives it.
    pub file_bytes: u64,
    /// Transfers made. After wear-out: those of the fastest rank, as in IOR.
    pub transfers: u64,
}

impl RankTimes {
    /// As numbers, to be sent.
    #[must_use]
    pub fn to_numbers(self) -> Vec<f64> {
        let Self { open, transfer, close, moved_bytes, file_bytes, transfers } = self;
        let counts = [moved_bytes, file_bytes, transfers].map(|count| count as f64);
        [&[open.0, open.1, transfer.0, transfer.1, close.0, close.1][..], &counts].concat()
    }

    /// From the numbers of [`Self::to_numbers`].
    #[must_use]
    pub fn from_numbers(numbers: &[f64]) -> Option<Self> {
        let &[open, opened, transfer, transferred, close, closed, moved, file, transfers] = numbers
        else {
            return None;
        };
        Some(Self {
            open: (open, opened),
            transfer: (transfer, transferred),
            close: (close, closed),
            moved_bytes: moved as u64,
            file_bytes: file as u64,
            transfers: transfers as u64,
        })
    }

    /// From opening to having closed, seconds.
    #[must_use]
    pub fn total_s(&self) -> f64 {
        self.close.1 - self.open.0
    }

    /// The transfers, seconds.
    #[must_use]
    pub fn transfer_s(&self) -> f64 {
        self.transfer.1 - self.transfer.0
    }
}

/// One access of one repetition by all ranks.
#[derive(Debug, Clone)]
pub struct Measured {
    /// Writing or reading.
    pub access: Access,
    /// Its number, from 0.
    pub repetition: u32,
    /// Bytes moved by all ranks.
    pub moved_bytes: u64,
    /// Length of all files as `stat` gives it.
    pub file_bytes: u64,
    /// First start to last end of opening, seconds.
    pub open_s: f64,
    /// First start to last end of the transfers, seconds.
    pub transfer_s: f64,
    /// First start to last end of closing, seconds.
    pub close_s: f64,
    /// First start of opening to last end of closing, seconds.
    pub total_s: f64,
    /// Transfers a second, by the time of the transfers.
    pub iops: f64,
    /// The lowest of the ranks' mean times of a transfer, seconds: what IOR calls latency.
    pub best_mean_latency_s: f64,
    /// Where the ranks stood when the stonewall was hit, with wear-out.
    pub stonewall: Option<Stonewall>,
    /// Every transfer's time.
    pub latencies: LatencyHistogram,
    /// What each rank measured.
    pub ranks: Vec<RankTimes>,
    /// Processor seconds of all ranks' processes.
    pub cpu_s: f64,
}

/// Where the ranks stood when the stonewall was hit.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Stonewall {
    /// Seconds until then.
    pub time_s: f64,
    /// Transfers of the slowest rank.
    pub transfers_min: u64,
    /// Transfers of the fastest rank, which all ranks went on to.
    pub transfers_max: u64,
    /// Bytes of the slowest rank.
    pub bytes_min: u64,
    /// Mean bytes of a rank.
    pub bytes_mean: u64,
}

impl Measured {
    /// Reduces what the ranks measured, as IOR does: from the earliest start to the latest end.
    ///
    /// # Panics
    /// Without a rank.
    #[must_use]
    pub fn reduce(
        (access, repetition): (Access, u32),
        ranks: &[RankTimes],
        transfer_bytes: u64,
        is_file_per_task: bool,
    ) -> Self {
        let span = |stage: fn(&RankTimes) -> (f64, f64)| {
            let start = ranks.iter().map(|rank| stage(rank).0).fold(f64::INFINITY, f64::min);
            let end = ranks.iter().map(|rank| stage(rank).1).fold(f64::NEG_INFINITY, f64::max);
            end - start
        };
        let moved_bytes = ranks.iter().map(|rank| rank.moved_bytes).sum();
        let sizes = ranks.iter().map(|rank| rank.file_bytes);
        let file_bytes = if is_file_per_task { sizes.sum() } else { sizes.min().unwrap_or(0) };
        let transfer_s = span(|rank| rank.transfer);
        let mean = |rank: &RankTimes| rank.transfer_s() / rank.transfers as f64;
        Self {
            access,
            repetition,
            moved_bytes,
            file_bytes,
            open_s: span(|rank| rank.open),
            transfer_s,
            close_s: span(|rank| rank.close),
            total_s: span(|rank| (rank.open.0, rank.close.1)),
            iops: (moved_bytes / transfer_bytes) as f64 / transfer_s,
            best_mean_latency_s: ranks.iter().map(mean).fold(f64::INFINITY, f64::min),
            stonewall: None,
            latencies: LatencyHistogram::default(),
            ranks: ranks.to_vec(),
            cpu_s: 0.0,
        }
    }

    /// Bytes a second, by the whole time: the figure to quote.
    #[must_use]
    pub fn bytes_per_s(&self) -> f64 {
        self.moved_bytes as f64 / self.total_s
    }

    /// Ranks whose time lies more than `limit_s` from the mean: which time, rank, its value, the mean,
    /// the deviation.
    #[must_use]
    pub fn outliers(&self, limit_s: f64) -> Vec<(&'static str, usize, f64, f64, f64)> {
        let kinds: [(&str, TimeOf); 5] = [
            ("start time", |rank| rank.open.0),
            ("elapsed create time", |rank| rank.open.1 - rank.open.0),
            ("elapsed transfer time", RankTimes::transfer_s),
            ("elapsed close time", |rank| rank.close.1 - rank.close.0),
            ("end time", |rank| rank.close.1),
        ];
        let mut found = Vec::new();
        for (kind, time) in kinds {
            let times: Vec<f64> = self.ranks.iter().map(time).collect();
            let spread = Spread::population(&times);
            for (rank, &time) in times.iter().enumerate() {
                if (time - spread.mean).abs() > limit_s {
                    found.push((kind, rank, time, spread.mean, spread.deviation));
                }
            }
        }
        found
    }
}

/// One of a rank's times, seconds.
type TimeOf = fn(&RankTimes) -> f64;

/// Highest, lowest, mean and deviation of repetitions.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Spread {
    /// Highest.
    pub max: f64,
    /// Lowest.
    pub min: f64,
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub deviation: f64,
}

impl Spread {
    /// With the deviation of a population (divided by the count), as IOR has it. All 0 without a value.
    #[must_use]
    pub fn population(values: &[f64]) -> Self {
        Self::with_divisor(values, values.len())
    }

    /// With the deviation of a sample (divided by the count less one), as mdtest has it; 0 for one value.
    #[must_use]
    pub fn sample(values: &[f64]) -> Self {
        Self::with_divisor(values, values.len().saturating_sub(1))
    }

    fn with_divisor(values: &[f64], divisor: usize) -> Self {
        if values.is_empty() {
            return Self::default();
        }
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Self {
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            mean,
            deviation: if divisor == 0 { 0.0 } else { (squares / divisor as f64).sqrt() },
        }
    }
}

/// The repetitions of one access of a test.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Summary {
    /// Bytes a second.
    pub bytes_per_s: Spread,
    /// Transfers a second, by the whole time.
    pub transfers_per_s: Spread,
    /// Mean of the whole times, seconds.
    pub mean_s: f64,
    /// Mean time until the stonewall, seconds, and bytes a second until then; with wear-out.
    pub stonewall: Option<(f64, f64)>,
    /// Bytes moved in the first repetition.
    pub first_bytes: u64,
}

impl Summary {
    /// Of repetitions of one access; none without any.
    #[must_use]
    pub fn of(repetitions: &[&Measured], transfer_bytes: u64) -> Option<Self> {
        let first = repetitions.first()?;
        let each = |value: &dyn Fn(&Measured) -> f64| -> Vec<f64> {
            repetitions.iter().map(|one| value(one)).collect()
        };
        let rates = each(&Measured::bytes_per_s);
        let transfers: Vec<f64> = rates.iter().map(|rate| rate / transfer_bytes as f64).collect();
        let stonewalls: Vec<Stonewall> =
            repetitions.iter().filter_map(|one| one.stonewall).collect();
        let stonewall = (!stonewalls.is_empty()).then(|| {
            let time_s: f64 = stonewalls.iter().map(|one| one.time_s).sum();
            let bytes: f64 = stonewalls.iter().map(|one| one.bytes_mean as f64).sum();
            (time_s / stonewalls.len() as f64, bytes / time_s)
        });
        Some(Self {
            bytes_per_s: Spread::population(&rates),
            transfers_per_s: Spread::population(&transfers),
            mean_s: Spread::population(&each(&|one| one.total_s)).mean,
            stonewall,
            first_bytes: first.moved_bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(start: f64, transfers: u64) -> RankTimes {
        RankTimes {
            open: (start, start + 1.0),
            transfer: (start + 1.0, start + 5.0),
            close: (start + 5.0, start + 6.0),
            moved_bytes: transfers * 100,
            file_bytes: 1000,
            transfers,
        }
    }

    #[test]
    fn times_run_from_the_first_start_to_the_last_end() {
        let ranks = [rank(10.0, 4), rank(12.0, 8)];
        let one = Measured::reduce((Access::Write, 0), &ranks, 100, false);
        assert_eq!((one.open_s, one.transfer_s, one.close_s, one.total_s), (3.0, 6.0, 3.0, 8.0));
        assert_eq!((one.moved_bytes, one.file_bytes), (1200, 1000));
        assert_eq!((one.bytes_per_s(), one.iops), (150.0, 2.0));
        // The best rank's mean, not the mean of all.
        assert_eq!(one.best_mean_latency_s, 0.5);
        let own = Measured::reduce((Access::Write, 0), &ranks, 100, true);
        assert_eq!(own.file_bytes, 2000);
        let named: Vec<_> =
            one.outliers(0.9).into_iter().map(|(kind, rank, ..)| (kind, rank)).collect();
        assert_eq!(named, [("start time", 0), ("start time", 1), ("end time", 0), ("end time", 1)]);
    }

    #[test]
    fn deviations_are_of_a_population_or_of_a_sample() {
        let values = [1.0, 3.0];
        assert_eq!(Spread::population(&values).deviation, 1.0);
        assert_eq!(Spread::sample(&values).deviation, 2.0_f64.sqrt());
        assert_eq!(Spread::sample(&[4.0]).deviation, 0.0);
        let spread = Spread::population(&values);
        assert_eq!((spread.max, spread.min, spread.mean), (3.0, 1.0, 2.0));
        assert_eq!(Spread::population(&[]), Spread::default());
    }

    #[test]
    fn operations_of_the_summary_are_by_the_whole_time() {
        let ranks = [rank(0.0, 4)];
        let one = Measured::reduce((Access::Read, 0), &ranks, 100, true);
        let summary = Summary::of(&[&one, &one], 100).expect("two repetitions");
        assert_eq!(one.iops, 1.0);
        assert!((summary.transfers_per_s.mean - 4.0 / 6.0).abs() < 1e-12);
        assert_eq!((summary.mean_s, summary.first_bytes), (6.0, 400));
    }

    #[test]
    fn what_a_rank_measured_survives_being_sent() {
        let one = rank(1.5, 7);
        assert_eq!(RankTimes::from_numbers(&one.to_numbers()), Some(one));
        assert_eq!(RankTimes::from_numbers(&[1.0]), None);
    }
}
