//! Files that make changes again at boot: `sysctl.d` for kernel settings, a systemd unit of ours for
//! the rest, a ban list for `irqbalance` where it would move interrupts back. They are changes like
//! any other: journalled before they are written, undone by a revert. Pure but for reading what is
//! there.

use std::collections::BTreeMap;

use settings::text::shorten;
use settings::{Change, FILES, Key, PersistedFile};

use crate::journal::Journal;
use crate::world::World;

/// Name of the unit.
const UNIT: &str = "clearstream-tune.service";

/// Most lines a settings file may have.
const LINES_MAX: usize = 4096;

/// The changes that write the files for everything of this host that the journal and `changes` have
/// in force.
pub(crate) fn changes(journal: &Journal, changes: &[Change], world: &mut dyn World) -> Vec<Change> {
    let mut settings: BTreeMap<Key, (String, String)> = BTreeMap::new();
    // What a remote client has changed is not made again at boot.
    let entries =
        journal.open().filter(|entry| !entry.intent.is_side_effect && entry.intent.owner.is_host());
    for entry in entries {
        let intent = &entry.intent;
        settings.insert(intent.key.clone(), (intent.to.clone(), intent.why.clone()));
    }
    for change in changes {
        settings.insert(change.key.clone(), (change.to.clone(), change.why.clone()));
    }
    settings.retain(|key, _| !matches!(key, Key::File(_)));
    files(&settings)
        .into_iter()
        .filter(|(file, _)| world.read(&Key::File(*file)).is_ok())
        .map(|(file, to)| Change {
            key: Key::File(file),
            from: None,
            to,
            why: "asked to survive a reboot".to_owned(),
            source: "sysctl.d(5), systemd.service(5)".to_owned(),
        })
        .collect()
}

/// Contents of the files; those with nothing in them are left out.
fn files(settings: &BTreeMap<Key, (String, String)>) -> Vec<(PersistedFile, String)> {
    let is_sysctl = |key: &Key| matches!(key, Key::Sysctl(_));
    let mut files = Vec::new();
    let sysctls: Vec<String> = settings
        .iter()
        .filter(|(key, _)| is_sysctl(key))
        .map(|(key, (to, why))| format!("# {}\n{key} = {to}\n", comment(why)))
        .collect();
    if !sysctls.is_empty() {
        files.push((PersistedFile::Sysctl, format!("+{HEAD}{}", sysctls.concat())));
    }
    let others: Vec<String> = settings
        .iter()
        .filter(|(key, _)| !is_sysctl(key))
        .map(|(key, (to, why))| format!("# {}\n{key} = {to}\n", comment(why)))
        .collect();
    if others.is_empty() {
        return files;
    }
    files.push((PersistedFile::Settings, format!("+{HEAD}{}", others.concat())));
    files.push((PersistedFile::Unit, format!("+{}", unit())));
    files.push((PersistedFile::UnitLink, format!(">../{UNIT}")));
    let banned: Vec<String> = settings
        .keys()
        .filter_map(|key| match key {
            Key::InterruptAffinity(irq) => Some(format!("--banirq={irq}")),
            _ => None,
        })
        .collect();
    if !banned.is_empty() {
        let line = banned.join(" ");
        let text = format!("+{HEAD}[Service]\nEnvironment=IRQBALANCE_ARGS=\"{line}\"\n");
        files.push((PersistedFile::IrqbalanceDropIn, text));
    }
    files
}

const HEAD: &str =
    "# Written by `clearstream tune apply --persist`; `clearstream tune revert` takes it away.\n";

/// One line, whatever the reason holds.
fn comment(why: &str) -> String {
    shorten(why).replace(['\n', '\r'], " ")
}

fn unit() -> String {
    let settings = PersistedFile::Settings.path();
    format!(
        "{HEAD}[Unit]\nDescription=Interface and processor settings chosen by clearstream tune\n\
         Documentation=man:clearstream-tune(1)\nAfter=network-pre.target sys-subsystem-net-devices.target\n\
         Wants=network-pre.target\nConditionPathExists=/{settings}\n\n\
         [Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/usr/bin/env clearstream tune boot\n\n\
         [Install]\nWantedBy=multi-user.target\n"
    )
}

/// The settings file's lines: `KEY = VALUE`, comments and blanks left out.
///
/// # Errors
/// The line that is none, by its number.
pub fn read_settings(text: &str) -> Result<Vec<(Key, String)>, String> {
    let mut settings = Vec::new();
    for (number, line) in text.lines().enumerate().take(LINES_MAX) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let at = |what: String| format!("line {}: {what}", number + 1);
        let (key, value) =
            line.split_once('=').ok_or_else(|| at("it is not KEY = VALUE".to_owned()))?;
        let key: Key = key.trim().parse().map_err(|error| at(format!("{error}")))?;
        let value = key.check(value.trim()).map_err(|error| at(error.to_string()))?;
        if matches!(key, Key::File(_)) {
            return Err(at("a file is not a setting".to_owned()));
        }
        settings.push((key, value));
    }
    Ok(settings)
}

/// Path of the settings file below the root.
#[must_use]
pub fn settings_path() -> &'static str {
    FILES.iter().find(|(file, _)| *file == PersistedFile::Settings).map_or("", |(_, path)| path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(lines: &[(&str, &str)]) -> BTreeMap<Key, (String, String)> {
        let parse = |key: &str| key.parse::<Key>().expect("known");
        lines
            .iter()
            .map(|(key, to)| (parse(key), ((*to).to_owned(), "why\nnot".to_owned())))
            .collect()
    }

    #[test]
    fn kernel_settings_need_no_unit() {
        let files = files(&settings(&[("net.ipv4.tcp_rmem", "1 2 3")]));
        assert_eq!(files.len(), 1);
        assert!(files[0].1.ends_with("\nnet.ipv4.tcp_rmem = 1 2 3\n"), "{}", files[0].1);
    }

    #[test]
    fn other_settings_come_with_a_unit_that_starts_at_boot() {
        let files = files(&settings(&[("eth0/ring-rx", "512"), ("irq:7/affinity", "1")]));
        let kinds: Vec<PersistedFile> = files.iter().map(|(file, _)| *file).collect();
        let expected = [
            PersistedFile::Settings,
            PersistedFile::Unit,
            PersistedFile::UnitLink,
            PersistedFile::IrqbalanceDropIn,
        ];
        assert_eq!(kinds, expected);
        let text = files[0].1.strip_prefix('+').expect("a file");
        let read = read_settings(text).expect("its own form");
        assert_eq!(read.len(), 2);
        assert!(files[3].1.contains("--banirq=7"));
    }

    #[test]
    fn any_settings_file_is_read_or_refused() {
        assert_eq!(read_settings("eth0/mtu 9000").unwrap_err(), "line 1: it is not KEY = VALUE");
        bolero::check!().with_type::<String>().for_each(|text| {
            if let Ok(settings) = read_settings(text) {
                assert!(settings.iter().all(|(key, value)| key.check(value).is_ok()));
            }
        });
    }
}
