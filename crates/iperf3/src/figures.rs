//! How iperf3 writes figures: four characters and a unit, and C's `%g`.

/// An amount of bytes (`format` upper case) or of bits (lower case) with its unit: `1.25 GByte`,
/// `943 Mbit`. `A` and `a` choose the prefix; bytes count in 1024s, bits in 1000s. The caller adds
/// the plural and `/sec`.
///
/// ```
/// use iperf3::figures::amount;
/// assert_eq!(amount(131_072.0, 'A'), " 128 KByte");
/// assert_eq!(amount(1.25e8, 'a'), "1.00 Gbit");
/// assert_eq!(amount(1.25e8, 'm'), "1000 Mbit");
/// ```
#[must_use]
pub fn amount(bytes: f64, format: char) -> String {
    const BYTES: [&str; 5] = ["Byte", "KByte", "MByte", "GByte", "TByte"];
    const BITS: [&str; 5] = ["bit", "Kbit", "Mbit", "Gbit", "Tbit"];
    let in_bytes = format.is_ascii_uppercase();
    let (value, base, units) =
        if in_bytes { (bytes, 1024.0, BYTES) } else { (bytes * 8.0, 1000.0, BITS) };
    let step = match format.to_ascii_lowercase() {
        'b' => 0,
        'k' => 1,
        'm' => 2,
        'g' => 3,
        't' => 4,
        _ => (0..4).take_while(|&step| value / f64::powi(base, step) >= base).count(),
    };
    let scaled = value / (0..step).fold(1.0, |scale, _| scale * base);
    let places = if scaled < 9.995 {
        2
    } else if scaled < 99.95 {
        1
    } else {
        0
    };
    format!("{scaled:4.places$} {}", units[step])
}

/// C's `%.<digits>g`.
///
/// ```
/// use iperf3::figures::general;
/// assert_eq!(general(0.0, 2), "0");
/// assert_eq!(general(3.14159, 2), "3.1");
/// assert_eq!(general(100.0, 2), "1e+02");
/// assert_eq!(general(0.00001234, 2), "1.2e-05");
/// ```
#[must_use]
pub fn general(value: f64, digits: usize) -> String {
    if value == 0.0 || !value.is_finite() {
        return if value.is_finite() { "0".to_owned() } else { value.to_string() };
    }
    let digits = digits.max(1);
    let scientific = format!("{value:.*e}", digits - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let limit = i32::try_from(digits).unwrap_or(i32::MAX);
    if exponent < -4 || exponent >= limit {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trim_zeros(mantissa), exponent.unsigned_abs());
    }
    let places = usize::try_from(limit - 1 - exponent).unwrap_or(0);
    trim_zeros(&format!("{value:.places$}")).to_owned()
}

/// A number as iperf3's JSON has it: whole when it is whole, else the fewest of 15 or 17 digits
/// that give the same number back.
#[must_use]
pub fn json_number(value: f64) -> String {
    // 2^53: beyond it every float is whole, and the integer form would pretend to precision.
    const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;
    if !value.is_finite() {
        return "null".to_owned();
    }
    if value.fract() == 0.0 && value.abs() <= WHOLE_MAX {
        return format!("{}", value as i64);
    }
    let short = general(value, 15);
    if short.parse() == Ok(value) { short } else { general(value, 17) }
}

fn trim_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn always_four_characters_wide() {
        for (bytes, format, text) in [
            (0.0, 'A', "0.00 Byte"),
            (1023.0 * 1024.0, 'A', "1023 KByte"),
            (1024.0 * 1024.0, 'A', "1.00 MByte"),
            (9.996 * 1024.0, 'A', "10.0 KByte"),
            (99.96 * 1024.0, 'A', " 100 KByte"),
            (5.4e9 / 8.0, 'a', "5.40 Gbit"),
            (41.24e9 / 8.0, 'a', "41.2 Gbit"),
            (131_072.0, 'a', "1.05 Mbit"),
            (1e9, 'K', "976562 KByte"),
            (2f64.powi(60), 'A', "1048576 TByte"),
        ] {
            assert_eq!(amount(bytes, format), text);
        }
    }

    #[test]
    fn json_numbers_come_back() {
        assert_eq!(json_number(15_831_787_709.674_34), "15831787709.674339");
        assert_eq!(json_number(1.000_108), "1.000108");
        assert_eq!(json_number(0.1), "0.1");
        assert_eq!(json_number(-0.0), "0");
        assert_eq!(json_number(f64::NAN), "null");
        bolero::check!().with_type::<f64>().for_each(|value| {
            let text = json_number(*value);
            if value.is_finite() {
                assert_eq!(text.parse::<f64>().unwrap(), *value, "{text}");
            }
        });
    }
}
