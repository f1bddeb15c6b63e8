//! From a stored verdict to the changes that carry it out.

use results::{End, Limit, Results, SettingChange};
use settings::{Change, InterfaceKey, Key, KeyError, Parameter};
use thiserror::Error;
use units::show_bit_rate;

use crate::plan::{Plan, PlannedChange, Risk};

/// Why a verdict cannot be carried out. One line that says what to do instead.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum VerdictError {
    /// The document has no verdict.
    #[error("it has no verdict; `clearstream path` measures and judges one")]
    Absent,
    /// The verdict names no limit.
    #[error("its verdict is that nothing measured binds the path, so there is nothing to change")]
    NothingBinds,
    /// A command makes the change, and no setting.
    #[error(
        "its verdict ({limit}) needs a change that cannot be reverted exactly and must be made by hand, \
         at the {end} end: {command}"
    )]
    ByHand {
        /// The binding limit.
        limit: &'static str,
        /// `near`, `far`.
        end: &'static str,
        /// The command.
        command: String,
    },
    /// The verdict names no setting: none lifts the limit, or an earlier version wrote it.
    #[error(
        "its verdict ({limit}) names no setting to change: none lifts it, or an earlier version wrote the \
         file; `clearstream tune plan --results FILE` plans from the same figures"
    )]
    NoSetting {
        /// The binding limit.
        limit: &'static str,
    },
    /// The verdict names something that this version does not change.
    #[error("its verdict asks for a change that this version does not make: {0}")]
    Unknown(#[from] KeyError),
}

/// The changes that the verdict of a document names, as a plan.
///
/// # Errors
/// [`VerdictError`]; nothing of the verdict is to be made then.
pub fn plan(results: &Results) -> Result<Plan, VerdictError> {
    let verdict = results.verdict.as_ref().ok_or(VerdictError::Absent)?;
    let limit = verdict.limit.name();
    if verdict.limit == Limit::NoneFound {
        return Err(VerdictError::NothingBinds);
    }
    if verdict.changes.is_empty() {
        return Err(match &verdict.host_change {
            Some(change) => VerdictError::ByHand {
                limit,
                end: end_name(change.end),
                command: units::printable(&change.command).into_owned(),
            },
            None => VerdictError::NoSetting { limit },
        });
    }
    let changes: Result<Vec<PlannedChange>, KeyError> =
        verdict.changes.iter().map(planned).collect();
    Ok(Plan { changes: changes?, ..Plan::default() })
}

/// The change that a results file stores, its key and values checked.
///
/// # Errors
/// [`KeyError`]: it is no setting that a results file may ask to change, or not a value of it.
pub fn change_of(stored: &SettingChange) -> Result<Change, KeyError> {
    let key: Key = stored.key.parse()?;
    if matches!(key, Key::File(_)) {
        return Err(KeyError::Unknown(key.to_string()));
    }
    let to = key.check(&stored.to)?;
    let from = stored.from.as_deref().map(|from| key.check(from)).transpose()?;
    let line = |text: &str| settings::text::one_line(text, 300);
    let (why, source) = (line(&stored.why), line(&stored.source));
    Ok(Change::new(key, to).from_value(from).because(why, source))
}

fn planned(stored: &SettingChange) -> Result<PlannedChange, KeyError> {
    let Change { key, from, to, why, source } = change_of(stored)?;
    let predicted = stored.predicted_bits_per_s.filter(|rate| rate.is_finite() && *rate > 0.0);
    let effect = match predicted {
        Some(rate) => {
            format!("throughput of up to {}, as the verdict predicts", show_bit_rate(rate))
        }
        None => "the verdict predicts a gain; measure it".to_owned(),
    };
    let (risk, danger) = risk_of(&key);
    let why = if why.is_empty() { "the verdict names it".to_owned() } else { why };
    Ok(PlannedChange {
        end: stored.end,
        key,
        from,
        to,
        why,
        source,
        effect,
        predicted_bits_per_s: predicted,
        risk,
        danger: danger.to_owned(),
    })
}

/// How careful to be with a setting of which nothing but its name is known.
fn risk_of(key: &Key) -> (Risk, &'static str) {
    use Parameter as P;
    const LINK: &str = "may take the link down for a moment";
    match key {
        Key::Interface { what: InterfaceKey::Mtu, .. } => {
            (Risk::High, "every hop and the other end must take packets of that size")
        }
        Key::Interface { what: InterfaceKey::Parameter(parameter), .. } => match parameter {
            P::RingReceive
            | P::RingTransmit
            | P::ChannelsReceive
            | P::ChannelsTransmit
            | P::ChannelsCombined => (Risk::High, LINK),
            _ => (Risk::Medium, "interrupts come at another rate"),
        },
        Key::Sysctl(_) => (Risk::Low, "it applies to every program on the host"),
        _ => (Risk::Medium, "other programs on the host may notice"),
    }
}

fn end_name(end: End) -> &'static str {
    match end {
        End::Near => "near",
        End::Far => "far",
    }
}

#[cfg(test)]
mod tests {
    use results::{HostChange, RunKind, Verdict};

    use super::*;

    fn change(key: &str, to: &str) -> SettingChange {
        SettingChange {
            end: End::Far,
            key: key.to_owned(),
            from: None,
            to: to.to_owned(),
            why: String::new(),
            source: String::new(),
            predicted_bits_per_s: None,
        }
    }

    fn document(limit: Limit, changes: Vec<SettingChange>) -> Results {
        let verdict = Verdict {
            limit,
            end: Some(End::Far),
            summary: String::new(),
            evidence: Vec::new(),
            confirmed: true,
            confirmation: None,
            host_change: None,
            changes,
            advice: Vec::new(),
            next: None,
            ruled_out: Vec::new(),
        };
        Results { verdict: Some(verdict), ..Results::begun(RunKind::Path, 0) }
    }

    #[test]
    fn a_verdict_is_planned_as_it_is_stored() {
        let stored = SettingChange {
            from: Some("4096\t131072\t262144".into()),
            why: "the window\nis small".into(),
            predicted_bits_per_s: Some(4e8),
            ..change("net.ipv4.tcp_rmem", "4096 131072 8388608")
        };
        let plan = plan(&document(Limit::ReceiveWindow, vec![stored])).expect("a plan");
        let [planned] = &plan.changes[..] else { panic!("{plan:?}") };
        assert_eq!((planned.end, planned.risk), (End::Far, Risk::Low));
        assert_eq!(planned.from.as_deref(), Some("4096 131072 262144"));
        assert_eq!(planned.predicted_bits_per_s, Some(4e8));
        assert_eq!(planned.why.lines().count(), 1);
    }

    #[test]
    fn what_interrupts_a_link_is_made_only_when_named() {
        let changes = vec![change("eth0/mtu", "9000"), change("eth0/ring-rx", "4096")];
        let plan = plan(&document(Limit::RingOverrun, changes)).expect("a plan");
        assert!(plan.changes.iter().all(|change| change.risk == Risk::High), "{plan:?}");
    }

    #[test]
    fn a_verdict_that_cannot_be_carried_out_gets_one_line() {
        let older = document(Limit::ReceiveWindow, Vec::new());
        let mut by_hand = document(Limit::Shaper, Vec::new());
        by_hand.verdict.as_mut().expect("one").host_change = Some(HostChange {
            end: End::Near,
            command: "tc qdisc del dev eth0 root".into(),
            undo: None,
            predicted_bits_per_s: 1e9,
            text: String::new(),
        });
        let unjudged = Results { verdict: None, ..older.clone() };
        let file = change("file:etc/sysctl.d/90-clearstream.conf", "+x");
        for (document, told) in [
            (older, "names no setting to change"),
            (by_hand, "at the near end: tc qdisc del dev eth0 root"),
            (unjudged, "has no verdict"),
            (document(Limit::NoneFound, Vec::new()), "nothing to change"),
            (document(Limit::Loss, vec![change("kernel.core_pattern", "x")]), "is not a setting"),
            (document(Limit::Loss, vec![change("net.ipv4.tcp_sack", "1; reboot")]), "is not"),
            (document(Limit::Loss, vec![file]), "is not a setting"),
        ] {
            let line = plan(&document).expect_err(told).to_string();
            assert!(line.contains(told) && line.lines().count() == 1, "{line}");
        }
    }
}
