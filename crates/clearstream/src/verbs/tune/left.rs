//! Changes that are not tried: in force before the first trial, or of a setting that somebody else has changed.

use std::collections::BTreeMap;

use tuning::plan::PlannedChange;
use tuning::{Key, Standing, StatusLine};

/// Why a change is not tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Left {
    /// Its setting has the wanted value. Reverting it for a turn would undo the work of an earlier run.
    InForce {
        /// Whether the journal has it, so that `tune revert` restores the former value.
        is_journalled: bool,
    },
    /// Its setting has neither the value of the measurement nor the wanted one.
    Foreign {
        /// The value that it has.
        now: String,
    },
}

/// Values of a host's settings, and the changes of them in its journal.
#[derive(Debug, Default)]
pub(super) struct Present {
    pub(super) values: BTreeMap<Key, String>,
    pub(super) journal: Vec<StatusLine>,
}

impl Present {
    /// Whether the journal has this change, made or announced.
    pub(super) fn has_made(&self, change: &PlannedChange) -> bool {
        self.has(change, &[Standing::InForce, Standing::Unfinished])
    }

    /// Why a change that this run has not tried yet is to be left; `None` if it is to be tried.
    pub(super) fn leaves(&self, change: &PlannedChange) -> Option<Left> {
        let now = self.values.get(&change.key)?;
        let is = |value: &str| {
            change.key.check(value).is_ok_and(|value| value == *now) || value == now.as_str()
        };
        // The kernel may have rounded the value, and the journal knows what it made of it.
        if is(&change.to) || self.has(change, &[Standing::InForce]) {
            return Some(Left::InForce { is_journalled: self.has_made(change) });
        }
        let is_expected = change.from.as_deref().is_none_or(is);
        (!is_expected).then(|| Left::Foreign { now: now.clone() })
    }

    /// Whether the last change of the setting in the journal is this one, with one of these standings. The journal
    /// reports every earlier change of a setting as in force, whatever was set after it.
    fn has(&self, change: &PlannedChange, standings: &[Standing]) -> bool {
        let last = self.journal.iter().rev().find(|line| line.key == change.key);
        last.is_some_and(|line| line.to == change.to && standings.contains(&line.standing))
    }
}

#[cfg(test)]
mod tests {
    use results::End;
    use tuning::plan::Risk;

    use super::*;

    const KEY: &str = "net.ipv4.tcp_rmem";

    fn change(from: Option<&str>) -> PlannedChange {
        PlannedChange {
            end: End::Near,
            key: KEY.parse().expect("a key"),
            from: from.map(str::to_owned),
            to: "4096 131072 8388608".to_owned(),
            why: String::new(),
            source: String::new(),
            effect: String::new(),
            predicted_bits_per_s: None,
            risk: Risk::Low,
            danger: String::new(),
        }
    }

    fn present(now: &str, standing: Option<Standing>) -> Present {
        let PlannedChange { key, to, .. } = change(None);
        let line = |standing| StatusLine {
            key: key.clone(),
            from: String::new(),
            to: to.clone(),
            now: Some(now.to_owned()),
            standing,
            why: String::new(),
            owner: tuning::Owner::Host,
        };
        let journal = standing.into_iter().map(line).collect();
        Present { values: BTreeMap::from([(key.clone(), now.to_owned())]), journal }
    }

    #[test]
    fn a_change_is_tried_only_from_the_value_it_was_planned_for() {
        let (clamp, wanted, other) =
            ("4096 131072 262144", "4096 131072 8388608", "4096 131072 524288");
        let planned = change(Some("4096\t131072\t262144"));
        let of = |now, standing| present(now, standing).leaves(&planned);
        assert_eq!(of(clamp, None), None);
        let in_force = |is_journalled| Some(Left::InForce { is_journalled });
        assert_eq!(of(wanted, None), in_force(false), "whoever set it");
        assert_eq!(of(wanted, Some(Standing::InForce)), in_force(true));
        assert_eq!(of(wanted, Some(Standing::Unfinished)), in_force(true), "killed while made");
        assert_eq!(of(other, Some(Standing::InForce)), in_force(true), "the kernel rounds");
        let foreign = Some(Left::Foreign { now: other.to_owned() });
        assert_eq!(of(other, None), foreign);
        assert_eq!(of(other, Some(Standing::Foreign)), foreign);
        assert_eq!(present(other, None).leaves(&change(None)), None, "its former value is unknown");
        assert_eq!(present(wanted, None).leaves(&change(None)), in_force(false));
        assert_eq!(Present::default().leaves(&planned), None, "it cannot be read");
    }

    #[test]
    fn a_change_that_a_later_one_of_its_setting_replaced_is_not_in_force() {
        let other = "4096 131072 524288";
        let mut present = present(other, Some(Standing::InForce));
        let later = StatusLine { to: other.to_owned(), ..present.journal[0].clone() };
        present.journal.push(later);
        let planned = change(Some("4096 131072 262144"));
        assert!(!present.has_made(&planned));
        assert_eq!(present.leaves(&planned), Some(Left::Foreign { now: other.to_owned() }));
        present.journal.reverse();
        assert!(present.has_made(&planned), "the last one counts");
    }
}
