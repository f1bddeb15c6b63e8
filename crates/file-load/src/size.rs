//! Sizes as IOR and mdtest read and print them: binary multiples, one letter.

/// Bytes of `64`, `8m`, `128k`, `4g`, `1t`, `1p`: an integer and a letter for a power of 1024. `None`
/// for anything else, negative numbers included.
///
/// IOR ignores what follows the letter, and an unknown letter; both are refused here.
#[must_use]
pub fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let number: u64 = digits.trim_end().parse().ok()?;
    let shift = match &text[digits.len()..] {
        "" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        "t" | "T" => 40,
        "p" | "P" => 50,
        _ => return None,
    };
    let bytes = number.checked_mul(1 << shift)?;
    (bytes <= i64::MAX as u64).then_some(bytes)
}

/// A size in MiB, GiB or TiB, with two decimals where it is no whole number of them; below 1 MiB in
/// bytes.
#[must_use]
pub fn binary_size(bytes: u64) -> String {
    for (unit, shift) in [("TiB", 40), ("GiB", 30), ("MiB", 20)] {
        let one = 1_u64 << shift;
        if bytes >= one {
            return if bytes.is_multiple_of(one) {
                format!("{} {unit}", bytes / one)
            } else {
                format!("{:.2} {unit}", bytes as f64 / one as f64)
            };
        }
    }
    format!("{bytes} bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_binary_and_nothing_else_is_a_size() {
        let sizes = [
            ("64", 64),
            ("4k", 4096),
            ("2M", 2 << 20),
            ("1g", 1 << 30),
            ("3t", 3 << 40),
            ("1p", 1 << 50),
            (" 8 ", 8),
            ("47008", 47_008),
        ];
        for (text, bytes) in sizes {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
        }
        for text in ["", "k", "-1", "4x", "4kb", "1.5g", "9999999999999999999", "9000000t"] {
            assert_eq!(parse_size(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_are_shown_with_decimals_only_where_they_are_needed() {
        let shown = [
            (0, "0 bytes"),
            (47_008, "47008 bytes"),
            (1 << 20, "1 MiB"),
            (3 << 19, "1.50 MiB"),
            (16 << 20, "16 MiB"),
            (1 << 30, "1 GiB"),
            (5 << 40, "5 TiB"),
        ];
        for (bytes, text) in shown {
            assert_eq!(binary_size(bytes), text);
        }
    }
}
