//! Names close to a misspelt one, for error messages.

/// Most names that a message lists where none is close.
const LISTED_MAX: usize = 8;

/// `; did you mean `name`?` for the closest candidate, else nothing.
pub(crate) fn did_you_mean<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> String {
    closest(word, candidates).map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}

/// As [`did_you_mean`]; where no candidate is close and there are few, `; LABEL: a, b, c`.
pub(crate) fn did_you_mean_or_list<'a>(
    word: &str,
    label: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> String {
    let mut all: Vec<&str> = candidates.into_iter().collect();
    all.sort_unstable();
    all.dedup();
    if let Some(name) = closest(word, all.iter().copied()) {
        return format!("; did you mean `{name}`?");
    }
    if all.is_empty() || all.len() > LISTED_MAX {
        return String::new();
    }
    format!("; {label}: {}", all.join(", "))
}

/// The candidate with the smallest edit distance, if that is small for the word's length. Of several
/// the first in alphabetical order.
fn closest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // A name in a message is no essay, and the distance costs the product of the lengths.
    const LENGTH_MAX: usize = 64;
    let distance_max = match word.chars().count() {
        0 | LENGTH_MAX.. => return None,
        1 => 0,
        2..=4 => 1,
        5..=8 => 2,
        _ => 3,
    };
    candidates
        .into_iter()
        .filter(|name| name.len() <= LENGTH_MAX && *name != word)
        .map(|name| {
            let is_other_case = name.eq_ignore_ascii_case(word);
            (if is_other_case { 0 } else { edit_distance(word, name) }, name)
        })
        .filter(|(distance, name)| *distance <= distance_max && *distance < name.chars().count())
        .min()
        .map(|(_, name)| name)
}

/// Insertions, deletions, replacements and swaps of neighbours that turn one word into the other.
fn edit_distance(left: &str, right: &str) -> usize {
    let (left, right): (Vec<char>, Vec<char>) = (left.chars().collect(), right.chars().collect());
    let mut rows = vec![(0..=right.len()).collect::<Vec<usize>>()];
    for (i, &one) in left.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, &other) in right.iter().enumerate() {
            let replaced = rows[i][j] + usize::from(one != other);
            let mut best = replaced.min(rows[i][j + 1] + 1).min(row[j] + 1);
            let is_swap = i > 0 && j > 0 && one == right[j - 1] && left[i - 1] == other;
            if is_swap {
                best = best.min(rows[i - 1][j - 1] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[left.len()][right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_close_names_are_suggested() {
        let names = ["outside", "critical", "waiting"];
        assert_eq!(closest("critcal", names), Some("critical"));
        assert_eq!(closest("Critical", names), Some("critical"));
        assert_eq!(closest("watiing", names), Some("waiting"));
        assert_eq!(closest("idle", names), None);
        assert_eq!(closest("x", ["y"]), None);
        assert_eq!(closest("X", ["x"]), Some("x"));
        assert_eq!(
            did_you_mean_or_list("idle", "states", names),
            "; states: critical, outside, waiting"
        );
        assert_eq!(edit_distance("gaurd", "guard"), 1);
        assert_eq!(edit_distance("", "abc"), 3);
    }
}
