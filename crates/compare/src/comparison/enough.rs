//! How many repeats can tell a difference, and what is said where none is told.

use super::{ComparedFigure, FALSE_SHARE_MAX, Outcome};

/// What figures come to of which none differs beyond the noise: that none does, or how many have too few repeats for
/// any difference to be told and how many repeats would be enough. One sentence without its full stop.
#[must_use]
pub fn without_difference(figures: &[&ComparedFigure]) -> String {
    let few: Vec<_> = figures.iter().filter(|one| one.outcome == Outcome::TooFew).collect();
    if few.is_empty() {
        return "No figure differs beyond the noise".to_owned();
    }
    if few.len() < figures.len() {
        let (few, all) = (few.len(), figures.len());
        return format!(
            "No figure differs beyond the noise; {few} of {all} have too few repeats to tell"
        );
    }
    let most = |count: fn(&ComparedFigure) -> u32| {
        figures.iter().map(|one| count(one)).max().unwrap_or_default()
    };
    let has = format!("at most {} in A, {} in B", most(|one| one.a.count), most(|one| one.b.count));
    let wanted = match repeats_to_tell(figures.len()) {
        Some(count) => format!("{count} on both sides can tell one figure that differs alone"),
        None => "fewer figures or many more repeats are needed".to_owned(),
    };
    format!("No difference can be told: too few repeats ({has}); {wanted}")
}

/// Whether so many repeats on the two sides can tell one figure that differs alone among `compared`.
pub(super) fn is_told((a, b): (usize, usize), compared: usize) -> bool {
    stats::least_chance(a, b) * compared as f64 <= FALSE_SHARE_MAX
}

/// Repeats on both sides that can tell one figure that differs alone among `compared`; `None` where there is none.
pub(super) fn repeats_to_tell(compared: usize) -> Option<usize> {
    (compared > 0).then(|| (2..64).find(|&count| is_told((count, count), compared))).flatten()
}
