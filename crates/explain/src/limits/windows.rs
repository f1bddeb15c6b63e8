//! The settings that let windows and buffers grow, which verdicts on either of them recommend.

use results::{End, SettingChange};
use units::{saturating_u64, show_bit_rate, show_byte_size, show_seconds};

use crate::buffers::Buffer;
use crate::ceiling::{autotuning_max_bytes, window_ceiling};
use crate::numbers::share;
use crate::observed::{Observed, end_name};
use crate::remedy::{change, stored};
use crate::symptoms::names;
use crate::wanted::Wanted;

const SOURCE: &str = "kernel Documentation/networking/ip-sysctl.rst; RFC 7323";

/// The autotuning bound of a buffer, as a setting.
#[derive(Debug)]
pub(super) struct Autotuned {
    /// The end that has it.
    pub(super) end: End,
    pub(super) buffer: Buffer,
    /// The window in effect that the buffer holds, bytes per stream.
    pub(super) window_bytes: Option<f64>,
}

impl Autotuned {
    /// The largest size that autotuning allows now, bytes.
    pub(super) fn most_bytes(&self, seen: &Observed<'_>) -> Option<f64> {
        autotuning_max_bytes(seen.sysctl(self.end, self.buffer.key())?)
    }

    /// The size that autotuning must allow, bytes; `None` if it already does. A bound that is not known is taken as the
    /// usual one: less than that would shrink it.
    pub(super) fn needed_bytes(&self, seen: &Observed<'_>) -> Option<u64> {
        let Wanted { bits_per_s, .. } = seen.wanted.as_ref()?;
        let bytes =
            self.buffer.needed_bytes(*bits_per_s, seen.sizing_rtt_s()?, seen.host(self.end))?;
        let most = self.most_bytes(seen).unwrap_or(self.buffer.usual_max_bytes());
        (bytes as f64 > most).then_some(bytes)
    }

    /// What to look at where it is not known how far autotuning may go, and nobody asked for a size.
    pub(super) fn unknown_bound(&self, seen: &Observed<'_>) -> Option<String> {
        let is_unknown = self.most_bytes(seen).is_none() && seen.spec.window_bytes.is_none();
        let Wanted { bits_per_s, .. } = seen.wanted.as_ref().filter(|_| is_unknown)?;
        let rtt_s = seen.sizing_rtt_s()?;
        let bytes = self.buffer.needed_bytes(*bits_per_s, rtt_s, seen.host(self.end))?;
        Some(format!(
            "at the {} end find what keeps it small: a size that the program sets ({}), or the third value of {}, \
             which should be at least {}",
            end_name(self.end),
            self.buffer.option(),
            self.buffer.key(),
            show_byte_size(bytes)
        ))
    }

    /// The window that a buffer of this size holds, bytes.
    pub(super) fn window_of(&self, seen: &Observed<'_>, bytes: u64) -> u64 {
        saturating_u64(bytes as f64 * self.buffer.window_share(seen.host(self.end)))
    }

    /// Rate that a fully grown window allows over the round-trip time, bit/s.
    pub(super) fn ceiling(&self, seen: &Observed<'_>) -> Option<f64> {
        let most = self.most_bytes(seen)? * seen.streams();
        let usual = self.buffer.window_share(seen.host(self.end));
        // Since Linux 6.6 the share follows the segments that arrive: what the connection had tells more.
        let had = match self.buffer {
            Buffer::Receive => seen.shown().receiver(names::WINDOW_OF_BUFFER),
            Buffer::Send => None,
        };
        window_ceiling(most * had.map_or(usual, |had| had.max(usual)), seen.window_rtt_s()?)
    }

    /// The change that lets buffers grow to what the path needs; `None` if they already may, or if the
    /// present value is unknown, because its first two figures are kept.
    pub(super) fn larger(&self, seen: &Observed<'_>) -> Option<SettingChange> {
        let key = self.buffer.key();
        let from = seen.sysctl(self.end, key)?;
        let most = self.most_bytes(seen)?;
        let rtt_s = seen.window_rtt_s()?;
        let bytes = self.needed_bytes(seen)?;
        let wanted = seen.wanted.as_ref()?;
        let mut words = from.split_ascii_whitespace();
        let to = format!("{} {} {bytes}", words.next()?, words.next()?);
        let window = self
            .window_bytes
            .unwrap_or_else(|| most * self.buffer.window_share(seen.host(self.end)));
        let why = format!(
            "a buffer of {} holds a window of {}: {} over {}; {} is needed ({})",
            show_byte_size(saturating_u64(most)),
            show_byte_size(saturating_u64(window)),
            show_bit_rate(window_ceiling(window, rtt_s)?),
            show_seconds(rtt_s),
            show_bit_rate(wanted.bits_per_s),
            wanted.source
        );
        let law = self.buffer.allows_bits_per_s(bytes as f64, rtt_s, seen.host(self.end));
        let predicted = law.map(|law| law.min(wanted.bits_per_s));
        let change = change(key, Some(from), &to)?.because(why, SOURCE);
        Some(stored(self.end, change, predicted))
    }

    /// The command that lets buffers grow to `bytes`; `rest` replaces the setting's first two figures (minimum
    /// and default) if they are unknown.
    pub(super) fn command(&self, seen: &Observed<'_>, rest: &str, bytes: u64) -> String {
        let key = self.buffer.key();
        let known = seen.sysctl(self.end, key).and_then(|from| {
            let mut words = from.split_ascii_whitespace();
            Some(format!("{} {}", words.next()?, words.next()?))
        });
        let to = format!("{} {bytes}", known.as_deref().unwrap_or(rest));
        // If the setting's values are not numbers, only its name can be given.
        change(key, None, &to).map_or_else(
            || format!("raise {key}"),
            |change| settings::command(&change.key, &change.to),
        )
    }
}

/// A change of a kernel setting at one end, if its present value differs.
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

/// Data in flight over the congestion window, 0 to 1; where nobody recorded that, what throughput takes over a round
/// trip.
pub(crate) fn congestion_window_use(seen: &Observed<'_>) -> Option<f64> {
    let of_sender = |name: &str| seen.shown().sender(name);
    of_sender(names::CWND_FILL)
        .or_else(|| share(seen.rate() * of_sender(names::RTT)? / 8.0, of_sender(names::CWND)?))
}

/// Rate that the window in effect allows over the round-trip time, bit/s.
pub(super) fn window_law(seen: &Observed<'_>) -> Option<f64> {
    window_ceiling(seen.receive_window_bytes()?, seen.window_rtt_s()?)
}

/// How far throughput is from what the window allows: ln of their quotient, its absolute value.
pub(crate) fn window_law_off(seen: &Observed<'_>) -> Option<f64> {
    Some((window_law(seen)? / seen.rate()).ln().abs())
}
