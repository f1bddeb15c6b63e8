//! Changes to a host that lift a limit: settings, or a command if no setting does.

use results::{End, HostChange, SettingChange};
use settings::{Change, Key};

/// A change to a host.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Remedy {
    /// The host to change.
    pub(crate) end: End,
    /// How the change is made.
    pub(crate) method: Method,
    /// Throughput that the same test should then reach, bit/s.
    pub(crate) predicted_bits_per_s: f64,
    /// Describes what would confirm the limit and what would refute it.
    pub(crate) text: String,
}

/// How a change to a host is made.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Method {
    /// By settings that `tune` changes and restores exactly.
    Settings(Vec<Change>),
    /// By a command only: the change has no setting's key, or could not be undone exactly.
    ByHand { command: String, undo: Option<String> },
}

impl Remedy {
    /// As the verdict shows it to users: the command that makes the change, and the one that undoes it.
    pub(crate) fn shown(self) -> HostChange {
        let (command, undo) = match self.method {
            Method::Settings(changes) => {
                let back: Option<Vec<Change>> = changes.iter().rev().map(Change::undone).collect();
                (settings::commands(&changes), back.map(|back| settings::commands(&back)))
            }
            Method::ByHand { command, undo } => (command, undo),
        };
        let Self { end, predicted_bits_per_s, text, .. } = self;
        HostChange { end, command, undo, predicted_bits_per_s, text }
    }

    /// As `tune apply --from` reads it; empty if the change needs a command.
    pub(crate) fn stored(self) -> Vec<SettingChange> {
        let Method::Settings(changes) = self.method else { return Vec::new() };
        let predicted = Some(self.predicted_bits_per_s);
        changes.into_iter().map(|change| stored(self.end, change, predicted)).collect()
    }
}

/// A change of a setting in the form that results files store; `predicted` in bit/s.
pub(crate) fn stored(end: End, change: Change, predicted: Option<f64>) -> SettingChange {
    let Change { key, from, to, why, source } = change;
    let key = key.to_string();
    let predicted_bits_per_s = predicted.filter(|predicted| predicted.is_finite());
    SettingChange { end, key, from, to, why, source, predicted_bits_per_s }
}

/// Changes the setting `key` to `to`, from its present value `from`, each in the setting's own form.
/// `None` if the name or the value is unknown or invalid (both may come from a results file), or if the
/// setting already has the value.
pub(crate) fn change(key: &str, from: Option<&str>, to: &str) -> Option<Change> {
    let key: Key = key.parse().ok()?;
    let to = key.check(to).ok()?;
    let from = from.and_then(|from| key.check(from).ok());
    (from.as_ref() != Some(&to)).then(|| Change::new(key, to).from_value(from))
}

impl Remedy {
    /// A remedy that changes a single setting.
    pub(crate) fn setting(
        end: End,
        change: Change,
        predicted_bits_per_s: f64,
        text: impl Into<String>,
    ) -> Self {
        let method = Method::Settings(vec![change]);
        Self { end, method, predicted_bits_per_s, text: text.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remedy_is_shown_as_the_commands_of_its_changes_and_back() {
        let changes = vec![
            change("eth0/feature-rx-gro", Some("off"), "on").expect("a change"),
            change("net.ipv4.tcp_ecn", Some("2"), "0").expect("a change"),
        ];
        let remedy = Remedy {
            end: End::Far,
            method: Method::Settings(changes),
            predicted_bits_per_s: 1e9,
            text: String::new(),
        };
        let shown = remedy.clone().shown();
        assert_eq!(shown.command, "ethtool -K eth0 rx-gro on; sysctl -w net.ipv4.tcp_ecn=0");
        let undo = "sysctl -w net.ipv4.tcp_ecn=2; ethtool -K eth0 rx-gro off";
        assert_eq!(shown.undo.as_deref(), Some(undo));
        let stored = remedy.stored();
        assert_eq!(stored.len(), 2);
        assert_eq!((stored[1].key.as_str(), stored[1].to.as_str()), ("net.ipv4.tcp_ecn", "0"));
        assert_eq!(stored[1].from.as_deref(), Some("2"));
    }

    #[test]
    fn what_is_no_setting_or_has_its_value_already_is_no_change() {
        assert_eq!(change("kernel.core_pattern", None, "x"), None);
        assert_eq!(change("eth0/mtu", None, "9000; reboot"), None);
        assert_eq!(change("eth0/mtu", Some("9000"), "9000"), None);
        assert_eq!(change("eth0/mtu", Some("?"), "9000").expect("a change").from, None);
    }
}
