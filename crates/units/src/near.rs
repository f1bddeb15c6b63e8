//! The known word that a misspelt one was probably meant to be.

/// The candidate closest to `word`, if it is close: at most a third of the letters differ, and one is the same.
///
/// ```
/// assert_eq!(units::closest("dealy", ["delay", "rate"]), Some("delay"));
/// assert_eq!(units::closest("tbf", ["tso", "rate"]), None);
/// ```
#[must_use]
pub fn closest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let length = word.chars().count();
    let most = (length / 3).max(1).min(length.saturating_sub(1));
    let measured = known.into_iter().map(|name| (edit_distance(word, name), name));
    let best = measured.min_by_key(|(distance, _)| *distance)?;
    (best.0 <= most).then_some(best.1)
}

/// Insertions, deletions, replacements and exchanges of neighbours that turn one word into the other.
fn edit_distance(left: &str, right: &str) -> usize {
    let (left, right): (Vec<char>, Vec<char>) = (left.chars().collect(), right.chars().collect());
    let mut before: Vec<usize> = vec![0; right.len() + 1];
    let mut last: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in right.iter().enumerate() {
            let mut least = (last[j] + usize::from(a != b)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == right[j - 1] && left[i - 1] == *b {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_misspelt_word_has_a_closest_one() {
        for (word, known, expected) in [
            ("hots", &["name", "host"][..], Some("host")),
            ("vet", &["veth"], Some("veth")),
            ("tbf", &["tso"], None),
            ("c", &["a", "b"], None),
            ("", &["a"], None),
            ("tcp_rmen", &["tcp_wmem", "tcp_rmem"], Some("tcp_rmem")),
        ] {
            assert_eq!(closest(word, known.iter().copied()), expected, "{word}");
        }
        assert_eq!(edit_distance("abc", ""), 3);
    }
}
