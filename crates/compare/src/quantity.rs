//! What a value is a value of: its unit, as people type and read it.

use results::Unit;
use units::{parse_bit_rate, parse_byte_size, parse_duration_with_unit, parse_percent};

/// What a value is a value of: its units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// bit/s.
    BitRate,
    /// bytes/s.
    ByteRate,
    /// Events per second.
    PerSecond,
    /// Seconds.
    Time,
    /// Seconds per 10^9 bits.
    TimePerGbit,
    /// Joules per 10^9 bits.
    EnergyPerGbit,
    /// Watts.
    Power,
    /// Bytes.
    Size,
    /// 0 to 1.
    Share,
    /// A number.
    Count,
}

impl Quantity {
    /// Of a figure, by the unit that its name ends in.
    #[must_use]
    pub fn of_figure(name: &str) -> Self {
        match Unit::of_name(name) {
            Unit::BitsPerS => Self::BitRate,
            Unit::BytesPerS => Self::ByteRate,
            Unit::PktsPerS | Unit::PerS => Self::PerSecond,
            Unit::S => Self::Time,
            Unit::SPerGbit => Self::TimePerGbit,
            Unit::JoulesPerGbit => Self::EnergyPerGbit,
            Unit::Watts => Self::Power,
            Unit::Bytes => Self::Size,
            Unit::Share => Self::Share,
            _ => Self::Count,
        }
    }

    /// A value as people type it.
    pub(crate) fn parse(self, text: &str) -> Result<f64, String> {
        let told = |error: units::UnitError| error.to_string();
        match self {
            Self::BitRate => {
                with_unit(text, "bit/s", likely_prefix(text))?;
                parse_bit_rate(text).map(|rate| rate as f64).map_err(told)
            }
            Self::ByteRate | Self::Size => {
                with_unit(text, if self == Self::Size { "B" } else { "B/s" }, "M")?;
                let size = text.strip_suffix("/s").unwrap_or(text);
                parse_byte_size(size).map(|bytes| bytes as f64).map_err(told)
            }
            Self::Time | Self::TimePerGbit => {
                parse_duration_with_unit(text).map(|time| time.as_secs_f64()).map_err(told)
            }
            Self::Share => parse_percent(text).map_err(told),
            Self::PerSecond | Self::Count | Self::EnergyPerGbit | Self::Power => plain(text),
        }
    }

    /// A value with its unit.
    #[must_use]
    pub fn show(self, value: f64) -> String {
        let size = |value: f64| units::show_byte_size(units::saturating_u64(value));
        match self {
            Self::BitRate => units::show_bit_rate(value),
            Self::ByteRate => format!("{}/s", size(value)),
            Self::PerSecond => format!("{}/s", units::show_count(value)),
            Self::Time => units::show_seconds(value),
            Self::TimePerGbit => format!("{} per Gbit", units::show_seconds(value)),
            Self::EnergyPerGbit => format!("{} J per Gbit", significant(value)),
            Self::Power => format!("{} W", significant(value)),
            Self::Size => size(value),
            Self::Share => format!("{}%", significant(value * 100.0)),
            Self::Count => significant(value),
        }
    }
}

/// Refuses a bare number: a rate or size without prefix or unit is hardly ever meant. Only 0 needs none.
fn with_unit(text: &str, unit: &str, prefix: &str) -> Result<(), String> {
    let is_bare = text.trim().parse::<f64>().is_ok_and(|number| number > 0.0);
    let number = text.trim();
    let line = || {
        format!("'{number}' has no unit; write for example {number}{prefix}, or {number} {unit}")
    };
    if is_bare { Err(line()) } else { Ok(()) }
}

/// The prefix that a bare rate most likely lacks: paths have 1 to some hundred Gbit/s, or some hundred Mbit/s.
fn likely_prefix(text: &str) -> &'static str {
    const GIGA_MAX: f64 = 400.0;
    if text.trim().parse::<f64>().is_ok_and(|rate| rate > GIGA_MAX) { "M" } else { "G" }
}

/// A number with a decimal prefix.
fn plain(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix("/s").unwrap_or(text);
    let (digits, scale) = match number.strip_suffix(['k', 'K', 'M']) {
        Some(digits) if number.ends_with('M') => (digits, 1e6),
        Some(digits) => (digits, 1e3),
        None => (number, 1.0),
    };
    let wrong = |what| format!("'{text}' is {what}; write for example 5000 or 5k");
    match digits.trim().parse::<f64>() {
        Ok(value) if value < 0.0 => Err(wrong("negative")),
        Ok(value) if value.is_finite() => Ok(value * scale),
        _ => Err(wrong("not a number")),
    }
}

/// Four significant digits without trailing zeros; whole numbers below 10^9 in full.
fn significant(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e9 {
        return format!("{value}");
    }
    let whole_digits = value.abs().max(1e-4).log10().floor();
    let decimals = (3.0 - whole_digits).clamp(0.0, 9.0) as usize;
    let text = format!("{value:.decimals$}");
    if text.contains('.') {
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_sizes_and_times_need_their_unit() {
        for quantity in [Quantity::BitRate, Quantity::ByteRate, Quantity::Size, Quantity::Time] {
            let refused = quantity.parse("10").expect_err("a bare number");
            assert!(refused.contains("'10' has no unit; write for example"), "{refused}");
            assert_eq!(quantity.parse("0"), Ok(0.0));
        }
        for (bare, likely) in [("900", "900M,"), ("10", "10G,"), ("100", "100G,")] {
            let refused = Quantity::BitRate.parse(bare).expect_err("a bare number");
            assert!(refused.contains(likely), "{refused}");
        }
        assert_eq!(Quantity::BitRate.parse("10 bit/s"), Ok(10.0));
        assert_eq!(Quantity::ByteRate.parse("10 B/s"), Ok(10.0));
        assert_eq!(Quantity::PerSecond.parse("10"), Ok(10.0));
    }

    #[test]
    fn values_are_shown_with_their_units() {
        for (figure, value, text) in [
            ("forward_received_bits_per_s", 1.5e9, "1.50 Gbit/s"),
            ("moved_bytes_per_s", 1048576.0, "1.00 MiB/s"),
            ("items_per_s", 5000.0, "5.00 k/s"),
            ("rtt_p99_s", 0.005, "5.00 ms"),
            ("cpu_s_per_gbit", 0.25, "250 ms per Gbit"),
            ("forward_lost_share", 0.000_123_45, "0.01234%"),
            ("forward_lost_share", 0.25, "25%"),
            ("retransmits_count", 7.5, "7.5"),
            ("retransmits_count", 12345.0, "12345"),
            ("idle_watts", 5.25, "5.25 W"),
        ] {
            assert_eq!(Quantity::of_figure(figure).show(value), text, "{figure}");
        }
    }
}
