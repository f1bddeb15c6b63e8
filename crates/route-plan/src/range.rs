//! Ranges in names and addresses: `nid[0001-0112]`, `10.100.[64-103].[1-250]`, `fd00::[1-ff]`.

use thiserror::Error;

/// Most names or addresses that one range may stand for.
pub(crate) const ITEMS_COUNT_MAX: usize = 65_536;

/// In which numerals the bounds of a range are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Numerals {
    /// In names and IPv4 addresses.
    Decimal,
    /// Hexadecimal numbers, as in IPv6 addresses.
    Hexadecimal,
}

/// A range that cannot be expanded.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum RangeError {
    /// A bracket is opened and not closed, closed and not opened, or one stands within another.
    #[error("the brackets of '{0}' do not match")]
    Brackets(String),
    /// Something between brackets is neither a number nor two numbers with a hyphen.
    #[error("'[{0}]' is not a range; write for example [1-112] or [1-8,12]")]
    NotNumbers(String),
    /// The first number is greater than the last.
    #[error("the range {0} runs backwards")]
    Backwards(String),
    /// More than [`ITEMS_COUNT_MAX`].
    #[error("'{0}' expands to more than {ITEMS_COUNT_MAX} items")]
    TooMany(String),
}

/// Everything a text with ranges stands for, the last bracket counting fastest. Bounds written with
/// leading zeros keep their width.
///
/// # Errors
/// [`RangeError`].
pub(crate) fn expand(text: &str, numerals: Numerals) -> Result<Vec<String>, RangeError> {
    let brackets = || RangeError::Brackets(shorten(text));
    let too_many = || RangeError::TooMany(shorten(text));
    let mut expanded = vec![String::new()];
    let mut rest = text;
    loop {
        let (fixed, behind) = match rest.split_once('[') {
            Some((fixed, behind)) => (fixed, Some(behind)),
            None => (rest, None),
        };
        if fixed.contains(']') {
            return Err(brackets());
        }
        expanded.iter_mut().for_each(|one| one.push_str(fixed));
        let Some(behind) = behind else { return Ok(expanded) };
        let (inside, after) = behind.split_once(']').ok_or_else(brackets)?;
        if inside.contains('[') {
            return Err(brackets());
        }
        let numbers = numbers(inside, numerals)?;
        let product = expanded.len().checked_mul(numbers.len());
        if product.is_none_or(|count| count > ITEMS_COUNT_MAX) {
            return Err(too_many());
        }
        expanded = expanded
            .iter()
            .flat_map(|one| numbers.iter().map(move |number| format!("{one}{number}")))
            .collect();
        rest = after;
    }
}

/// The numbers between two brackets, as they are written.
fn numbers(inside: &str, numerals: Numerals) -> Result<Vec<String>, RangeError> {
    let mut found = Vec::new();
    for part in inside.split(',').map(str::trim) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |digits| {
            number(digits, numerals).ok_or_else(|| RangeError::NotNumbers(shorten(inside)))
        };
        let (from, to) = (number(first)?, number(last)?);
        if from > to {
            return Err(RangeError::Backwards(shorten(part)));
        }
        if (to - from) as usize >= ITEMS_COUNT_MAX - found.len() {
            return Err(RangeError::TooMany(shorten(inside)));
        }
        let width = if first.starts_with('0') { first.len() } else { 0 };
        found.extend((from..=to).map(|number| match numerals {
            Numerals::Decimal => format!("{number:0width$}"),
            Numerals::Hexadecimal => format!("{number:0width$x}"),
        }));
    }
    Ok(found)
}

fn number(digits: &str, numerals: Numerals) -> Option<u32> {
    let (radix, length_max) = match numerals {
        Numerals::Decimal => (10, 9),
        Numerals::Hexadecimal => (16, 4),
    };
    let is_number = !digits.is_empty()
        && digits.len() <= length_max
        && digits.chars().all(|digit| digit.is_digit(radix));
    is_number.then(|| u32::from_str_radix(digits, radix).ok()).flatten()
}

fn shorten(text: &str) -> String {
    settings::text::shorten(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(text: &str) -> Result<Vec<String>, RangeError> {
        expand(text, Numerals::Decimal)
    }

    #[test]
    fn ranges_expand_in_order_and_keep_their_width() {
        assert_eq!(decimal("sn1").unwrap(), ["sn1"]);
        assert_eq!(decimal("nid[0009-0011]").unwrap(), ["nid0009", "nid0010", "nid0011"]);
        assert_eq!(decimal("a[1-2,7]b").unwrap(), ["a1b", "a2b", "a7b"]);
        assert_eq!(decimal("[0-1].[8-9]").unwrap(), ["0.8", "0.9", "1.8", "1.9"]);
        let hexadecimal = expand("fd00::[9-b]", Numerals::Hexadecimal).unwrap();
        assert_eq!(hexadecimal, ["fd00::9", "fd00::a", "fd00::b"]);
    }

    #[test]
    fn malformed_ranges_are_refused_with_their_text() {
        for (text, part) in [
            ("a[1-2", "brackets"),
            ("a]1[", "brackets"),
            ("a[[1]]", "brackets"),
            ("a[x-2]", "[x-2]"),
            ("a[]", "[]"),
            ("a[1-2-3]", "[1-2-3]"),
            ("a[4-3]", "4-3 runs backwards"),
            ("a[0-999999999]", "more than 65536"),
            ("[0-999].[0-999]", "more than 65536"),
        ] {
            let error = decimal(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn any_text_expands_to_a_bounded_list_or_is_refused() {
        bolero::check!().with_type::<String>().for_each(|text| {
            if let Ok(items) = decimal(text) {
                assert!((1..=ITEMS_COUNT_MAX).contains(&items.len()));
            }
        });
    }
}
