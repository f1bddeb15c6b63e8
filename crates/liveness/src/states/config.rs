use thiserror::Error;

/// Rounds that a watcher remembers.
pub(super) const ROUNDS_COUNT_MAX: u32 = 64;

/// How gateways are watched. Times are nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchConfig {
    /// From round to round.
    pub interval_ns: u64,
    /// A probe that has not been answered for so long is missed; longer than the longest round trip.
    pub timeout_ns: u64,
    /// So many missed rounds in a row take a gateway down; 1 to 32.
    pub multiplier: u32,
    /// So many answered rounds in a row, after a failure, make it healthy; 1 to 64.
    pub up_after: u32,
    /// How long a gateway that failed stays out of use at least.
    pub hold_down_ns: u64,
    /// To what the hold-down grows at most, doubling with each failure.
    pub hold_down_max_ns: u64,
    /// A gateway that has been up for so long has its earlier failures forgotten.
    pub stable_ns: u64,
    /// Every so many rounds a full-size probe goes with the small one; 0: never.
    pub full_every: u32,
}

impl WatchConfig {
    /// The default with another interval: the timeout is three quarters of it.
    #[must_use]
    pub fn with_interval(interval_ns: u64) -> Self {
        Self { interval_ns, timeout_ns: interval_ns / 4 * 3, ..Self::default() }
    }

    pub(super) fn validate(&self) -> Result<(), WatchConfigError> {
        if self.interval_ns == 0 || self.timeout_ns == 0 {
            return Err(WatchConfigError::ZeroTime);
        }
        if !(1..=ROUNDS_COUNT_MAX / 2).contains(&self.multiplier) {
            return Err(WatchConfigError::Multiplier(self.multiplier));
        }
        if !(1..=ROUNDS_COUNT_MAX).contains(&self.up_after) {
            return Err(WatchConfigError::UpAfter(self.up_after));
        }
        // Rounds must be remembered until they are missed.
        let remembered_ns = self.interval_ns.saturating_mul(u64::from(ROUNDS_COUNT_MAX / 4));
        if self.timeout_ns > remembered_ns {
            return Err(WatchConfigError::Timeout);
        }
        Ok(())
    }
}

impl Default for WatchConfig {
    /// 50 ms three times: a failure is detected within 200 ms.
    fn default() -> Self {
        const MS: u64 = 1_000_000;
        Self {
            interval_ns: 50 * MS,
            timeout_ns: 37 * MS,
            multiplier: 3,
            up_after: 5,
            hold_down_ns: 2000 * MS,
            hold_down_max_ns: 64_000 * MS,
            stable_ns: 60_000 * MS,
            full_every: 20,
        }
    }
}

/// What is wrong with a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum WatchConfigError {
    /// An interval or timeout of 0.
    #[error("the probes' interval and timeout must be greater than 0")]
    ZeroTime,
    /// A multiplier out of range.
    #[error("the multiplier is {0}; it must be 1 to 32")]
    Multiplier(u32),
    /// `up_after` out of range.
    #[error("up_after is {0}; it must be 1 to 64")]
    UpAfter(u32),
    /// A timeout of more than 16 intervals.
    #[error("the probes' timeout must be at most 16 intervals")]
    Timeout,
    /// No gateway, or more than have an index.
    #[error("there are {0} gateways; there must be 1 to 65535")]
    Gateways(usize),
}

/// What a gateway is judged by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inputs {
    /// Reflected probes are sent through it.
    pub is_probed: bool,
    /// It was down when the watcher ended last: it has to prove itself before it is used.
    pub was_down: bool,
}

impl Default for Inputs {
    fn default() -> Self {
        Self { is_probed: true, was_down: false }
    }
}
