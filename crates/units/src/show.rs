//! Printing figures the way the field writes them.

/// `9.87 Gbit/s`: three significant digits, decimal prefix.
///
/// ```
/// assert_eq!(units::show_bit_rate(9.874e9), "9.87 Gbit/s");
/// assert_eq!(units::show_bit_rate(0.0), "0 bit/s");
/// ```
#[must_use]
pub fn show_bit_rate(bits_per_s: f64) -> String {
    scaled(bits_per_s, 1000.0, &["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"])
}

/// `4.00 MiB`: three significant digits, binary prefix.
///
/// ```
/// assert_eq!(units::show_byte_size(4 << 20), "4.00 MiB");
/// ```
#[must_use]
pub fn show_byte_size(bytes: u64) -> String {
    scaled(bytes as f64, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB"])
}

/// `1.93 M`: a count with a decimal prefix, for datagrams and transactions.
#[must_use]
pub fn show_count(count: f64) -> String {
    scaled(count, 1000.0, &["", "k", "M", "G"]).trim_end().to_owned()
}

/// A whole number of things whose plural ends in `s`, with the word in singular or plural.
///
/// ```
/// assert_eq!(units::count_of(1_u64, "stream"), "1 stream");
/// assert_eq!(units::count_of(4_u64, "stream"), "4 streams");
/// ```
#[must_use]
pub fn count_of(number: impl Into<u64>, thing: &str) -> String {
    let number = number.into();
    format!("{number} {}", noun(number, thing))
}

/// As [`count_of`], the number with a decimal prefix: `1.93 M packets`.
#[must_use]
pub fn show_count_of(number: u64, thing: &str) -> String {
    format!("{} {}", show_count(number as f64), noun(number, thing))
}

/// The word for `number` things, where the number is printed in another way; as [`count_of`].
#[must_use]
pub fn noun(number: u64, thing: &str) -> String {
    format!("{thing}{}", if number == 1 { "" } else { "s" })
}

/// `98.2%`, `0.021%`: a share of 0 to 1. What is not quite nothing or everything never reads so.
///
/// ```
/// assert_eq!(units::show_share(0.98187), "98.2%");
/// assert_eq!(units::show_share(0.99996), ">99.9%");
/// ```
#[must_use]
pub fn show_share(share: f64) -> String {
    let percent = share * 100.0;
    match percent.abs() {
        0.0 => "0%".to_owned(),
        p if p < 0.000_5 => "<0.001%".to_owned(),
        p if p < 0.099_95 => format!("{percent:.3}%"),
        p if p < 9.995 => format!("{percent:.2}%"),
        p if (99.95..100.0).contains(&p) => ">99.9%".to_owned(),
        _ => format!("{percent:.1}%"),
    }
}

/// `17.0 ms`: three significant digits, from nanoseconds to seconds.
///
/// ```
/// assert_eq!(units::show_seconds(0.017), "17.0 ms");
/// assert_eq!(units::show_seconds(65.0), "65.0 s");
/// ```
#[must_use]
pub fn show_seconds(seconds: f64) -> String {
    let magnitude = seconds.abs();
    let (scale, unit) = match magnitude {
        0.0 => return "0 s".to_owned(),
        m if m < 0.999_5e-6 => (1e9, "ns"),
        m if m < 0.999_5e-3 => (1e6, "us"),
        m if m < 0.999_5 => (1e3, "ms"),
        _ => (1.0, "s"),
    };
    format!("{} {unit}", three_digits(seconds * scale))
}

fn scaled(value: f64, base: f64, units: &[&str]) -> String {
    let mut value = value;
    let mut step = 0;
    // 999.5 would print as "1000"; move on to the next prefix before that happens.
    while value.abs() >= base * 0.999_5 && step + 1 < units.len() {
        value /= base;
        step += 1;
    }
    if step == 0 && value.fract() == 0.0 {
        return format!("{value} {}", units[0]);
    }
    format!("{} {}", three_digits(value), units[step])
}

fn three_digits(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude >= 99.95 {
        format!("{value:.0}")
    } else if magnitude >= 9.995 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_keep_apart_little_and_nothing_much_and_all() {
        let shown = [0.0, 1e-7, 0.000_21, 0.012_34, 0.5, 0.9946, 0.9999, 1.0].map(show_share);
        let wanted = ["0%", "<0.001%", "0.021%", "1.23%", "50.0%", "99.5%", ">99.9%", "100.0%"];
        assert_eq!(shown, wanted);
    }

    #[test]
    fn keeps_three_digits_across_prefixes() {
        assert_eq!(show_bit_rate(999_600_000.0), "1.00 Gbit/s");
        assert_eq!(show_bit_rate(12_345.0), "12.3 kbit/s");
        assert_eq!(show_bit_rate(512.0), "512 bit/s");
        assert_eq!(show_byte_size(1023), "1023 B");
        assert_eq!(show_byte_size(100), "100 B");
        assert_eq!(show_seconds(8.2e-6), "8.20 us");
        assert_eq!(show_count(1_930_000.0), "1.93 M");
    }
}
