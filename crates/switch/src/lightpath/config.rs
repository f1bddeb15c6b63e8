//! What one direction of a link is, and which links make no sense.

use thiserror::Error;

/// One direction of a link.
#[derive(Debug, Clone, PartialEq)]
pub struct LightpathConfig {
    /// Every random draw comes from this: the same seed and frames give the same losses and delays.
    pub seed: u64,
    /// Time on the fibre, one way, nanoseconds.
    pub delay_ns: u64,
    /// Variation of the delay to either side, nanoseconds.
    pub jitter_ns: u64,
    /// How the wandering is distributed.
    pub jitter_shape: JitterShape,
    /// Line rate, bit/s, Ethernet's own overhead counted; `None` for an unlimited rate.
    pub rate_bits_per_s: Option<u64>,
    /// Bytes that may wait for the line, wire bytes; `None` for no limit.
    pub queue_bytes: Option<u64>,
    /// Marks frames that find more than this waiting, wire bytes; `None` never marks.
    pub mark_above_bytes: Option<u64>,
    /// A slower place on the way.
    pub shaper: Option<Shaper>,
    /// Share of wire packets lost, each on its own, 0 to 1.
    pub loss: f64,
    /// Losses that come together.
    pub burst_loss: Option<BurstLoss>,
    /// Share of frames that come late and are overtaken, 0 to 1.
    pub reorder: f64,
    /// How much later those come, nanoseconds.
    pub reorder_by_ns: u64,
}

/// How jitter is distributed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum JitterShape {
    /// Anywhere within the jitter to either side, evenly.
    #[default]
    Uniform,
    /// The jitter is the standard deviation; cut off at three of them.
    Normal,
}

/// A token bucket before the line: it lets `burst_bytes` through at line rate and the rest at its
/// own; what waits for it waits in the link's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shaper {
    /// Rate in the long run, bit/s of wire bytes.
    pub rate_bits_per_s: u64,
    /// Depth of the bucket, wire bytes.
    pub burst_bytes: u64,
}

/// Gilbert's and Elliott's two-state model, stepped once a wire packet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BurstLoss {
    /// Probability of a burst beginning.
    pub enter: f64,
    /// Probability of it ending; its mean length is `1 / leave` packets.
    pub leave: f64,
    /// Share of packets lost within it.
    pub loss: f64,
}

impl BurstLoss {
    /// Probability of being in the other state so many packets later.
    pub(crate) fn change(&self, in_burst: bool, packets: u32) -> f64 {
        let step = if in_burst { self.leave } else { self.enter };
        if packets == 1 || step == 0.0 {
            return step;
        }
        // Of a two-state chain, what is left of where it was shrinks by this factor a step.
        let left = (1.0 - self.enter - self.leave).powi(i32::try_from(packets).unwrap_or(i32::MAX));
        step / (self.enter + self.leave) * (1.0 - left)
    }
}

/// Why a configuration describes no link.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum LightpathConfigError {
    /// A probability outside 0 to 1.
    #[error("{name} is {value}, not a share between 0 and 1")]
    NotAShare {
        /// Name of the setting.
        name: &'static str,
        /// Its value.
        value: f64,
    },
    /// A rate or size of zero where nothing could ever pass.
    #[error("{name} must be more than 0")]
    Zero {
        /// Name of the setting.
        name: &'static str,
    },
    /// More than a minute of delay, or a rate beyond 100 Tbit/s: out of what the arithmetic holds.
    #[error("{name} is {value}, beyond {most}")]
    TooMuch {
        /// Name of the setting.
        name: &'static str,
        /// Its value.
        value: u64,
        /// The most there can be.
        most: u64,
    },
    /// Frames that come late by nothing are not reordered.
    #[error("reorder needs reorder_by, the time by which such frames come late")]
    NoReorderTime,
}

const TIME_NS_MAX: u64 = 60_000_000_000;
const RATE_BITS_PER_S_MAX: u64 = 100_000_000_000_000;

impl Default for LightpathConfig {
    /// A plain wire: no delay, no limit, no loss.
    fn default() -> Self {
        Self {
            seed: 1,
            delay_ns: 0,
            jitter_ns: 0,
            jitter_shape: JitterShape::Uniform,
            rate_bits_per_s: None,
            queue_bytes: None,
            mark_above_bytes: None,
            shaper: None,
            loss: 0.0,
            burst_loss: None,
            reorder: 0.0,
            reorder_by_ns: 0,
        }
    }
}

impl LightpathConfig {
    /// Checks every field.
    ///
    /// # Errors
    /// The first field that makes no sense.
    pub fn validate(&self) -> Result<(), LightpathConfigError> {
        let burst = self.burst_loss.unwrap_or(BurstLoss { enter: 0.0, leave: 1.0, loss: 0.0 });
        for (name, value) in [
            ("loss", self.loss),
            ("reorder", self.reorder),
            ("burst_loss.enter", burst.enter),
            ("burst_loss.leave", burst.leave),
            ("burst_loss.loss", burst.loss),
        ] {
            if !(0.0..=1.0).contains(&value) {
                return Err(LightpathConfigError::NotAShare { name, value });
            }
        }
        let shaper_rate = self.shaper.map(|shaper| shaper.rate_bits_per_s);
        for (name, value) in [
            ("rate", self.rate_bits_per_s),
            ("queue", self.queue_bytes),
            ("shaper.rate", shaper_rate),
            ("shaper.burst", self.shaper.map(|shaper| shaper.burst_bytes)),
        ] {
            if value == Some(0) {
                return Err(LightpathConfigError::Zero { name });
            }
        }
        for (name, value, most) in [
            ("delay", self.delay_ns, TIME_NS_MAX),
            ("jitter", self.jitter_ns, TIME_NS_MAX),
            ("reorder_by", self.reorder_by_ns, TIME_NS_MAX),
            ("rate", self.rate_bits_per_s.unwrap_or(1), RATE_BITS_PER_S_MAX),
            ("shaper.rate", shaper_rate.unwrap_or(1), RATE_BITS_PER_S_MAX),
        ] {
            if value > most {
                return Err(LightpathConfigError::TooMuch { name, value, most });
            }
        }
        if self.reorder > 0.0 && self.reorder_by_ns == 0 {
            return Err(LightpathConfigError::NoReorderTime);
        }
        Ok(())
    }
}
