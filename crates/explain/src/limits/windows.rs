//! The settings that let windows and buffers grow: named by the verdict on either.

use results::{End, SettingChange};
use units::{saturating_u64, show_bit_rate, show_byte_size, show_seconds};

use super::{buffer_needed, hoped_for};
use crate::ceiling::{autotuning_max_bytes, window_ceiling};
use crate::observed::Observed;
use crate::remedy::{change, stored};

const SOURCE: &str = "kernel Documentation/networking/ip-sysctl.rst; RFC 7323";

/// What tuning may raise a buffer to, as a setting.
#[derive(Debug)]
pub(super) struct Autotuned {
    /// At this end.
    pub(super) end: End,
    /// `net.ipv4.tcp_rmem`, `net.ipv4.tcp_wmem`.
    pub(super) key: &'static str,
    /// Share of a buffer that holds payload.
    pub(super) share: f64,
}

impl Autotuned {
    /// The change that lets buffers grow to what the path needs; `None` where they may already, or where
    /// the setting's value is not known, of which two numbers of three stay.
    pub(super) fn larger(
        &self,
        seen: &Observed<'_>,
        headroom: Option<f64>,
    ) -> Option<SettingChange> {
        let from = seen.sysctl(self.end, self.key)?;
        let rtt_s = seen.base_rtt_s?;
        let most = autotuning_max_bytes(from)?;
        let hoped = hoped_for(seen).max(headroom.unwrap_or(0.0));
        let bytes = buffer_needed(seen, hoped)?;
        if bytes as f64 <= most {
            return None;
        }
        let mut words = from.split_ascii_whitespace();
        let to = format!("{} {} {bytes}", words.next()?, words.next()?);
        let allows = window_ceiling(most * self.share, rtt_s)?;
        let why = format!(
            "{} of {} usable over {} allow {}; {} is hoped for",
            show_byte_size(saturating_u64(most * self.share)),
            show_byte_size(saturating_u64(most)),
            show_seconds(rtt_s),
            show_bit_rate(allows),
            show_bit_rate(hoped)
        );
        let predicted = window_ceiling(bytes as f64 * self.share, rtt_s).map(|law| law.min(hoped));
        let change = change(self.key, Some(from), &to)?.because(why, SOURCE);
        Some(stored(self.end, change, predicted))
    }

    /// The command that lets buffers grow to so many bytes, where the least and the first size are
    /// `rest` unless they are known.
    pub(super) fn command(&self, seen: &Observed<'_>, rest: &str, bytes: u64) -> String {
        let known = seen.sysctl(self.end, self.key).and_then(|from| {
            let mut words = from.split_ascii_whitespace();
            Some(format!("{} {}", words.next()?, words.next()?))
        });
        let to = format!("{} {bytes}", known.as_deref().unwrap_or(rest));
        // Of a results file whose numbers are none, only the name is known.
        change(self.key, None, &to).map_or_else(
            || format!("raise {}", self.key),
            |change| settings::command(&change.key, &change.to),
        )
    }
}

/// A change of a kernel setting of one end, where it has another value now.
pub(super) fn sysctl(
    seen: &Observed<'_>,
    end: End,
    key: &str,
    to: &str,
    why: String,
) -> Option<SettingChange> {
    let from = seen.sysctl(end, key)?;
    let change = change(key, Some(from), to)?.because(why, SOURCE);
    Some(stored(end, change, None))
}
