//! How many repeats can tell a difference, and what is said where none is told.

use super::judge::RANKS_SHARE;
use super::{ComparedFigure, Comparison, FALSE_SHARE_MAX, Outcome};

impl Comparison {
    /// What figures of this comparison come to of which none differs beyond the noise: that none does, or how many have
    /// too few repeats for any difference to be told and how many repeats would be enough. Where the comparison has
    /// figures of other settings beside those with equal settings, it says that it speaks of the latter alone. One
    /// sentence without its full stop.
    #[must_use]
    pub fn without_difference(&self, figures: &[&ComparedFigure]) -> String {
        let is_part = figures.iter().all(|one| one.is_alike()) && self.unlike().next().is_some();
        let which = if is_part { " with equal settings" } else { "" };
        let few: Vec<_> = figures.iter().filter(|one| one.outcome == Outcome::TooFew).collect();
        if few.is_empty() {
            return format!("No figure{which} differs beyond the noise");
        }
        if few.len() < figures.len() {
            let (few, all) = (few.len(), figures.len());
            let have = if few == 1 { "has" } else { "have" };
            return format!(
                "No figure{which} differs beyond the noise; {few} of {all} {have} too few repeats to tell"
            );
        }
        let most = |count: fn(&ComparedFigure) -> u32| {
            figures.iter().map(|one| count(one)).max().unwrap_or_default()
        };
        let has =
            format!("at most {} in A, {} in B", most(|one| one.a.count), most(|one| one.b.count));
        let wanted = match repeats_to_tell(figures.len()) {
            Some(count) => {
                format!("with {count} repeats on each side a single differing figure is detectable")
            }
            None => "fewer figures or many more repeats are needed".to_owned(),
        };
        format!("No difference{which} can be told: too few repeats ({has}); {wanted}")
    }
}

/// Whether so many repeats on the two sides can tell one figure that differs alone among `compared`, which share the
/// permitted false ones with figures that are judged by their spread, or do not.
pub(super) fn is_told((a, b): (usize, usize), compared: usize, is_shared: bool) -> bool {
    let share = if is_shared { RANKS_SHARE } else { 1.0 };
    stats::least_chance(a, b) * compared as f64 <= FALSE_SHARE_MAX * share
}

/// Repeats on both sides that can tell one figure that differs alone among `compared`; `None` where there is none.
pub(super) fn repeats_to_tell(compared: usize) -> Option<usize> {
    (compared > 0)
        .then(|| (2..64).find(|&count| is_told((count, count), compared, false)))
        .flatten()
}
