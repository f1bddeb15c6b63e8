//! What would lift a limit on a host: changes of settings, or a command where no setting does.

use results::{End, HostChange, SettingChange};
use settings::{Change, Key};

/// A change to a host.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Remedy {
    /// On which host.
    pub(crate) end: End,
    /// How it is made.
    pub(crate) method: Method,
    /// What the same test should give afterwards, bit/s.
    pub(crate) predicted_bits_per_s: f64,
    /// What would confirm it and what would refute it, in words.
    pub(crate) text: String,
}

/// How a change to a host is made.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Method {
    /// By settings that `tune` changes and takes back exactly.
    Settings(Vec<Change>),
    /// By a command only: what it changes has no key, or could not be put back as it was.
    ByHand { command: String, undo: Option<String> },
}

impl Remedy {
    /// As the verdict shows it to a person: the command that makes it, and the one that takes it back.
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

    /// As `tune apply --from` takes it; nothing where a command alone makes it.
    pub(crate) fn stored(self) -> Vec<SettingChange> {
        let Method::Settings(changes) = self.method else { return Vec::new() };
        let predicted = Some(self.predicted_bits_per_s);
        changes.into_iter().map(|change| stored(self.end, change, predicted)).collect()
    }
}

/// A change of a setting as results store it.
pub(crate) fn stored(end: End, change: Change, predicted: Option<f64>) -> SettingChange {
    let Change { key, from, to, why, source } = change;
    let key = key.to_string();
    let predicted_bits_per_s = predicted.filter(|predicted| predicted.is_finite());
    SettingChange { end, key, from, to, why, source, predicted_bits_per_s }
}

/// A change of the setting of this name to `to`, where it is `from` now, each in the setting's own form.
/// `None` where the name or the value (both may come from a results file) is none of the vocabulary, or
/// where the setting has the value already.
pub(crate) fn change(key: &str, from: Option<&str>, to: &str) -> Option<Change> {
    let key: Key = key.parse().ok()?;
    let to = key.check(to).ok()?;
    let from = from.and_then(|from| key.check(from).ok());
    (from.as_ref() != Some(&to)).then(|| Change::new(key, to).from_value(from))
}

impl Remedy {
    /// One setting.
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
