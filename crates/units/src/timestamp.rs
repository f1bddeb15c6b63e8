//! Wall-clock time in results: seconds since 1970, written as RFC 3339 in UTC.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A moment in UTC, to the millisecond. The clock is the caller's: this type never reads one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp {
    /// Milliseconds since 1970-01-01T00:00:00Z.
    pub unix_ms: u64,
}

impl Timestamp {
    /// From the duration since the epoch, as `SystemTime::duration_since(UNIX_EPOCH)` gives it.
    #[must_use]
    pub fn from_unix(since_epoch: Duration) -> Self {
        Self { unix_ms: u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX) }
    }

    fn civil(self) -> (u64, u64, u64, u64, u64, u64) {
        let seconds = self.unix_ms / 1000;
        let (days, rest) = (seconds / 86_400, seconds % 86_400);
        // Days to civil date in the proleptic Gregorian calendar, counted in 400-year eras that
        // begin on 1 March, so that the leap day is the last of its year.
        let shifted = days + 719_468;
        let era = shifted / 146_097;
        let day_of_era = shifted % 146_097;
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        let year = year_of_era + era * 400 + u64::from(month <= 2);
        (year, month, day, rest / 3600, rest % 3600 / 60, rest % 60)
    }
}

/// RFC 3339: `2010-10-18T12:00:00Z`.
impl fmt::Display for Timestamp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day, hour, minute, second) = self.civil();
        write!(out, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_rfc3339() {
        let at = |seconds| Timestamp::from_unix(Duration::from_secs(seconds)).to_string();
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_287_403_200), "2010-10-18T12:00:00Z");
        assert_eq!(at(1_795_132_799), "2026-11-19T23:59:59Z");
    }
}
