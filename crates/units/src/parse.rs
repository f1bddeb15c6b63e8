//! Reading what people type.

use std::time::Duration;

use thiserror::Error;

/// What is wrong with a rate, size or duration somebody typed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UnitError {
    /// Nothing there, or no digits where a number must start.
    #[error("'{0}' is not a number; write for example {1}")]
    NotANumber(String, &'static str),
    /// A number below 0, which none of these can be.
    #[error("'{0}' is negative; write for example {1}")]
    Negative(String, &'static str),
    /// A unit nobody knows.
    #[error("'{0}' has an unknown unit '{1}'; known: {2}")]
    UnknownUnit(String, String, &'static str),
    /// A number the type cannot hold.
    #[error("'{0}' is out of range")]
    OutOfRange(String),
    /// No share: more than everything.
    #[error("'{0}' exceeds 100%; a share is 0% to 100%")]
    MoreThanAll(String),
    /// A share that could be meant as a percentage or as a fraction.
    #[error("'{0}' has no percent sign; write {1}")]
    NoPercentSign(String, String),
    /// A time that could be meant in seconds or milliseconds.
    #[error("'{0}' has no unit; write for example {0}ms")]
    NoUnit(String),
}

/// A rate in bit/s: `950M`, `40Gbit`, `1.5 Gbit/s`, `0`. Decimal prefixes k, M, G, T.
///
/// # Errors
/// [`UnitError`] names what could not be read.
///
/// ```
/// assert_eq!(units::parse_bit_rate("40Gbit").unwrap(), 40_000_000_000);
/// ```
pub fn parse_bit_rate(text: &str) -> Result<u64, UnitError> {
    const UNITS: &str = "k M G T, optionally with bit, bit/s, bps";
    let (number, unit) = split(text, "950M, 10G or 40Gbit/s")?;
    let prefix = unit
        .trim_end_matches("/s")
        .trim_end_matches("/sec")
        .trim_end_matches("bps")
        .trim_end_matches("bits")
        .trim_end_matches("bit");
    let scale = match prefix {
        "" => 1.0,
        "k" | "K" => 1e3,
        "m" | "M" => 1e6,
        "g" | "G" => 1e9,
        "t" | "T" => 1e12,
        _ => return Err(UnitError::UnknownUnit(text.into(), unit.into(), UNITS)),
    };
    whole(text, number * scale)
}

/// A size in bytes: `64`, `128K`, `4MiB`, `1.5G`. Binary prefixes; `kB`, `MB`, `GB` are decimal.
///
/// # Errors
/// [`UnitError`] names what could not be read.
///
/// ```
/// assert_eq!(units::parse_byte_size("128K").unwrap(), 131_072);
/// assert_eq!(units::parse_byte_size("40MB").unwrap(), 40_000_000);
/// ```
pub fn parse_byte_size(text: &str) -> Result<u64, UnitError> {
    const UNITS: &str = "K M G T, KiB MiB GiB TiB (binary), kB MB GB TB (decimal)";
    let (number, unit) = split(text, "64, 128K or 4MiB")?;
    let scale = match unit {
        "" | "B" => 1.0,
        "k" | "K" | "KiB" => 1024.0,
        "m" | "M" | "MiB" => 1024.0 * 1024.0,
        "g" | "G" | "GiB" => 1024.0 * 1024.0 * 1024.0,
        "t" | "T" | "TiB" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        "kB" | "KB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "TB" => 1e12,
        _ => return Err(UnitError::UnknownUnit(text.into(), unit.into(), UNITS)),
    };
    whole(text, number * scale)
}

/// A duration: `10` (seconds), `17ms`, `200us`, `5m`, `1.5s`.
///
/// # Errors
/// [`UnitError`] names what could not be read.
///
/// ```
/// assert_eq!(units::parse_duration("8.5ms").unwrap().as_micros(), 8500);
/// ```
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    const UNITS: &str = "ns us ms s m h";
    let (number, unit) = split(text, "10, 17ms or 200us")?;
    let scale = match unit {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(UnitError::UnknownUnit(text.into(), unit.into(), UNITS)),
    };
    Duration::try_from_secs_f64(number * scale)
        .map_err(|_beyond_range| UnitError::OutOfRange(text.into()))
}

/// A duration as files have it: with its unit, because a bare number is taken for milliseconds by some and for
/// seconds by others. Only 0 needs none.
///
/// # Errors
/// [`UnitError`] names what could not be read.
///
/// ```
/// assert_eq!(units::parse_duration_with_unit("50ms").unwrap().as_millis(), 50);
/// assert!(units::parse_duration_with_unit("50").is_err());
/// ```
pub fn parse_duration_with_unit(text: &str) -> Result<Duration, UnitError> {
    match split(text, "17ms, 200us or 2s")? {
        (number, "") if number != 0.0 => Err(UnitError::NoUnit(text.trim().into())),
        _ => parse_duration(text),
    }
}

/// A share in percent: `0.1%` is 0.001. Only 0 needs no sign: elsewhere 0.1 is taken for 10% by some and for 0.1% by
/// others.
///
/// # Errors
/// [`UnitError`] when it is no number, has no sign or is not between 0% and 100%.
///
/// ```
/// assert_eq!(units::parse_percent("0.1%").unwrap(), 0.001);
/// assert!(units::parse_percent("0.1").is_err());
/// ```
pub fn parse_percent(text: &str) -> Result<f64, UnitError> {
    let (number, unit) = split(text, "0.1%")?;
    match unit {
        "%" if number <= 100.0 => Ok(number / 100.0),
        "%" => Err(UnitError::MoreThanAll(text.into())),
        "" if number == 0.0 => Ok(0.0),
        "" => Err(UnitError::NoPercentSign(text.into(), either_share(text.trim(), number))),
        _ => Err(UnitError::UnknownUnit(text.into(), unit.into(), "%")),
    }
}

/// `10% or 0.1%` for a bare 0.1: what it may have meant.
fn either_share(text: &str, number: f64) -> String {
    if number > 1.0 {
        return format!("{text}%");
    }
    let percent = format!("{:.6}", number * 100.0);
    format!("{}% or {text}%", percent.trim_end_matches('0').trim_end_matches('.'))
}

fn split<'a>(text: &'a str, example: &'static str) -> Result<(f64, &'a str), UnitError> {
    let trimmed = text.trim();
    if trimmed
        .strip_prefix('-')
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit() || c == '.'))
    {
        return Err(UnitError::Negative(text.into(), example));
    }
    let end = trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(trimmed.len());
    let number = trimmed[..end]
        .parse::<f64>()
        .map_err(|_not_digits| UnitError::NotANumber(text.into(), example))?;
    Ok((number, trimmed[end..].trim()))
}

fn whole(text: &str, value: f64) -> Result<u64, UnitError> {
    if value.is_finite() && value < 9.0e18 {
        Ok(crate::saturating_u64(value.round()))
    } else {
        Err(UnitError::OutOfRange(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_units_people_type() {
        for (text, bits_per_s) in [
            ("10G", 10_000_000_000),
            ("1.5 Gbit/s", 1_500_000_000),
            ("950Mbps", 950_000_000),
            ("0", 0),
            ("64k", 64_000),
        ] {
            assert_eq!(parse_bit_rate(text), Ok(bits_per_s), "{text}");
        }
        for (text, bytes) in
            [("128K", 131_072), ("4MiB", 4 << 20), ("9000", 9000), ("1GB", 1_000_000_000)]
        {
            assert_eq!(parse_byte_size(text), Ok(bytes), "{text}");
        }
        assert_eq!(parse_duration("200us"), Ok(Duration::from_micros(200)));
        assert_eq!(parse_percent("0.1%"), Ok(0.001));
    }

    #[test]
    fn refuses_what_it_cannot_read() {
        for text in ["", "G", "ten", "-1", "1e9", "1 furlong", "99999999999999999999G"] {
            assert!(parse_bit_rate(text).is_err(), "{text}");
            assert!(parse_byte_size(text).is_err(), "{text}");
            assert!(parse_duration(text).is_err(), "{text}");
        }
        assert!(parse_percent("101%").is_err());
    }

    #[test]
    fn a_bare_number_that_has_two_meanings_is_refused_with_both() {
        for (text, reason) in [
            ("0.1", "'0.1' has no percent sign; write 10% or 0.1%"),
            ("0.07", "'0.07' has no percent sign; write 7% or 0.07%"),
            ("1", "'1' has no percent sign; write 100% or 1%"),
            ("5", "'5' has no percent sign; write 5%"),
            ("150%", "'150%' exceeds 100%; a share is 0% to 100%"),
        ] {
            assert_eq!(parse_percent(text).unwrap_err().to_string(), reason);
        }
        let error = parse_duration_with_unit("50").unwrap_err();
        assert_eq!(error.to_string(), "'50' has no unit; write for example 50ms");
        let error = parse_duration_with_unit("fast").unwrap_err();
        assert_eq!(
            error.to_string(),
            "'fast' is not a number; write for example 17ms, 200us or 2s"
        );
        let error = parse_duration("-5ms").unwrap_err();
        assert_eq!(error.to_string(), "'-5ms' is negative; write for example 10, 17ms or 200us");
        assert_eq!(parse_byte_size("-").unwrap_err().to_string().find("negative"), None);
        assert_eq!(
            (parse_percent("0"), parse_duration_with_unit("0")),
            (Ok(0.0), Ok(Duration::ZERO))
        );
    }
}
