//! From results to changes: what to set on either host, why, and what it should give.
//!
//! Pure: reads a results document and nothing else. Each rule starts from a figure that was measured
//! (a window that is full, a counter that moved, a core that never sleeps), sizes its change by the
//! bandwidth-delay product, the packet rate or the machine's own parts, and says what it expects. What
//! was not measured is not reasoned from; a host that told nothing of itself gets no changes.

mod cores;
mod packets;
mod probe;
mod protocol;
mod seen;
mod windows;

use results::{Direction, End, Limit, Results};
use serde::{Deserialize, Serialize};
use settings::{Change, Key};

use seen::Seen;

/// How careful to be with a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Risk {
    /// Allows more; nobody who does not need it notices.
    Low,
    /// Changes how traffic is treated; other programs on the host may notice.
    Medium,
    /// May interrupt the interface or depends on the rest of the network; made only when named.
    High,
}

/// A change and its reasons.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedChange {
    /// On which host.
    pub end: End,
    /// The setting.
    pub key: Key,
    /// Its value when it was measured, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The value to set.
    pub to: String,
    /// The figures that ask for it.
    pub why: String,
    /// Where the setting and its effect are documented.
    pub source: String,
    /// What it should give, in words.
    pub effect: String,
    /// Throughput it should allow, bit/s, where that can be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted_bits_per_s: Option<f64>,
    /// How careful to be.
    pub risk: Risk,
    /// What could go wrong.
    pub danger: String,
}

impl PlannedChange {
    /// For the step machine.
    #[must_use]
    pub fn change(&self) -> Change {
        Change {
            key: self.key.clone(),
            from: self.from.clone(),
            to: self.to.clone(),
            why: self.why.clone(),
            source: self.source.clone(),
        }
    }

    /// The command that makes it by hand.
    #[must_use]
    pub fn command(&self) -> String {
        settings::command(&self.key, &self.to)
    }
}

/// What to change, and what it was decided from.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Plan {
    /// Round-trip time of the idle path, seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_s: Option<f64>,
    /// Whether the figures are of the reverse direction, from the far host to the near one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_reverse: bool,
    /// One stream's throughput now, bit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_bits_per_s: Option<f64>,
    /// What the path should carry, bit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_bits_per_s: Option<f64>,
    /// How that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_source: Option<String>,
    /// Rate times round-trip time of the target, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth_delay_product_bytes: Option<u64>,
    /// The changes, the one for the binding limit first.
    pub changes: Vec<PlannedChange>,
    /// What binds and no setting of [`settings`] changes: what it is, and the commands that change it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_hand: Vec<String>,
    /// What was looked at and left, and why.
    #[serde(default)]
    pub remarks: Vec<String>,
}

/// Decides from a results document.
#[must_use]
pub fn plan(results: &Results) -> Plan {
    let diagnosis = explain::diagnose(results);
    let mut plan = Plan::default();
    // The judged direction first: the plan's head tells its figures.
    let is_reverse_judged =
        diagnosis.spec.as_ref().is_some_and(|spec| spec.direction == Direction::Reverse);
    for reverse in [is_reverse_judged, !is_reverse_judged] {
        let Some(seen) = Seen::of(results, &diagnosis, reverse) else { continue };
        if plan.measured_bits_per_s.is_none() {
            plan.is_reverse = reverse;
            plan.rtt_s = seen.rtt_s;
            plan.measured_bits_per_s = Some(seen.rate);
            plan.target_bits_per_s = Some(seen.target);
            plan.target_source = Some(seen.target_source.clone());
            plan.bandwidth_delay_product_bytes = seen.bdp_bytes();
        }
        let planned_count = plan.changes.len();
        for rule in [windows::rule, protocol::rule, packets::rule, cores::rule] {
            rule(&seen, &mut plan);
        }
        if reverse != plan.is_reverse {
            // The plan's head tells the figures of the other direction.
            for change in &mut plan.changes[planned_count..] {
                change.why = format!("{}: {}", way(reverse), change.why);
            }
        }
    }
    if plan.measured_bits_per_s.is_none() {
        plan.remarks
            .push("no TCP transfer was measured, so there is nothing to decide from".into());
    }
    if results.far().is_none() {
        plan.remarks.push(
            "the far host reported nothing about itself, so nothing is planned for it".into(),
        );
    }
    settle(&mut plan);
    let binds = diagnosis.best().filter(|best| best.is_suspected());
    if let Some(candidate) = binds.filter(|it| it.limit == Limit::Shaper) {
        plan.by_hand = candidate.advice.iter().map(|advice| advice.text.clone()).collect();
    }
    plan
}

/// A direction in words.
fn way(reverse: bool) -> &'static str {
    if reverse { "from the far end to the near one" } else { "from the near end to the far one" }
}

/// The window a further test should ask for itself, bytes, so that a plan can say what binds once the
/// kernel's bounds on the windows are lifted. `None` where no window binds or enough is known.
///
/// Such a test is a point of its own in the results; [`plan`] finds it by its window.
#[must_use]
pub fn next_window_bytes(results: &Results) -> Option<u64> {
    let diagnosis = explain::diagnose(results);
    probe::next_window_bytes(&Seen::of(results, &diagnosis, false)?)
}

/// One change a setting, the larger one where both directions ask; the binding limit's first.
fn settle(plan: &mut Plan) {
    let mut settled: Vec<PlannedChange> = Vec::new();
    for change in std::mem::take(&mut plan.changes) {
        let known = settled.iter_mut().find(|one| one.end == change.end && one.key == change.key);
        match known {
            Some(known) if last_number(&change.to) > last_number(&known.to) => {
                known.to.clone_from(&change.to);
            }
            Some(_) => {}
            None => settled.push(change),
        }
    }
    settled.retain(|change| change.from.as_deref() != Some(change.to.as_str()));
    plan.changes = settled;
}

fn last_number(value: &str) -> Option<u64> {
    value.split_ascii_whitespace().last()?.parse().ok()
}

#[cfg(test)]
mod tests;
