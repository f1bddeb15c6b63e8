//! Interrupts: which belong to an interface, which queue each serves, where it may and did run.

use std::collections::{BTreeMap, BTreeSet};

use results::Interrupt;

use crate::HostFiles;
use crate::files::parse_list;

/// `/proc/interrupts` of hundreds of cores: a column of 11 letters for each, a line an interrupt.
const TABLE_BYTES_MAX: u64 = 64 << 20;

/// `/proc/interrupts` (`proc_interrupts(5)`).
#[derive(Debug, Default)]
pub(super) struct Table {
    lines: BTreeMap<u32, Line>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Line {
    /// (core, count), cores with none left out.
    ran: Vec<(u32, u64)>,
    /// Who asked for it.
    names: Vec<String>,
}

impl Table {
    /// Reads this host's, or a recorded tree's.
    pub(super) fn read(files: &HostFiles) -> Self {
        Self::parse(&files.proc_head("interrupts", TABLE_BYTES_MAX).unwrap_or_default())
    }

    /// The first line names the online cores; each other line is a number, a count for each of
    /// them, the chip, and the names of those who asked for it.
    pub(super) fn parse(text: &str) -> Self {
        let mut lines = text.lines();
        let cores: Vec<u32> = lines
            .next()
            .unwrap_or_default()
            .split_ascii_whitespace()
            .filter_map(|word| word.strip_prefix("CPU")?.parse().ok())
            .collect();
        Self { lines: lines.filter_map(|line| parse_line(line, &cores)).collect() }
    }

    /// The interrupts of an interface: those its device asked the bus for, and those named after
    /// it or after its device.
    pub(super) fn of_device(
        &self,
        files: &HostFiles,
        message_interrupts: &BTreeSet<u32>,
        names: &[String],
    ) -> Vec<Interrupt> {
        let mut found = Vec::new();
        for (&irq, line) in &self.lines {
            let named = line.names.iter().find(|name| is_named_after(name, names));
            let name = match (named, message_interrupts.contains(&irq)) {
                (Some(name), _) => name,
                (None, true) => line.names.first().map_or("", String::as_str),
                (None, false) => continue,
            };
            let role = Role::of_name(name);
            found.push(Interrupt {
                irq,
                name: name.to_owned(),
                queue: role.queue,
                serves_receive: role.receives,
                serves_transmit: role.transmits,
                allowed_cores: cores_of(files, irq, "smp_affinity_list"),
                effective_cores: cores_of(files, irq, "effective_affinity_list"),
                ran: line.ran.clone(),
            });
        }
        found.sort_by_key(|interrupt| (interrupt.queue.is_none(), interrupt.queue, interrupt.irq));
        found
    }
}

fn cores_of(files: &HostFiles, irq: u32, file: &str) -> Vec<u32> {
    files.proc(&format!("irq/{irq}/{file}")).map(|text| parse_list(&text)).unwrap_or_default()
}

fn parse_line(line: &str, cores: &[u32]) -> Option<(u32, Line)> {
    let (number, rest) = line.split_once(':')?;
    // Numbered lines only: `NMI:` and its like belong to no device.
    let irq = number.trim().parse().ok()?;
    let mut rest = rest.trim_start();
    let mut ran = Vec::new();
    for &core in cores {
        let end = rest.find(|c: char| c.is_ascii_whitespace()).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let count: u64 = word.parse().ok()?;
        if count > 0 {
            ran.push((core, count));
        }
        rest = after.trim_start();
    }
    Some((irq, Line { ran, names: action_names(rest) }))
}

/// The last word, and those before it that end with a comma (a shared line).
fn action_names(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    for word in text.split_ascii_whitespace().rev() {
        if names.is_empty() || word.ends_with(',') {
            names.push(word.trim_end_matches(',').to_owned());
        } else {
            break;
        }
    }
    names.reverse();
    names
}

/// A driver names its interrupts after the interface (`eth0-TxRx-3`, `i40e-eth0-TxRx-3`), the bus
/// address (`mlx5_comp3@pci:0000:41:00.0`) or the virtio device (`virtio0-input.3`).
fn is_named_after(interrupt: &str, names: &[String]) -> bool {
    let is_end = |c: Option<char>| c.is_none_or(|c| !c.is_ascii_alphanumeric() && c != '_');
    names.iter().filter(|name| !name.is_empty()).any(|name| {
        interrupt.match_indices(name.as_str()).any(|(at, _)| {
            let before = interrupt[..at].chars().next_back();
            let after = interrupt[at + name.len()..].chars().next();
            is_end(before) && is_end(after)
        })
    })
}

/// What an interrupt's name says of its work.
#[derive(Debug, Default, PartialEq, Eq)]
struct Role {
    queue: Option<u32>,
    receives: bool,
    transmits: bool,
}

impl Role {
    /// The last number behind a word that drivers use for queues.
    fn of_name(name: &str) -> Self {
        /// Word, receives, transmits. Longer words first where one ends like another.
        const WORDS: &[(&str, bool, bool)] = &[
            ("txrx", true, true),
            ("tx-rx", true, true),
            ("rxtx", true, true),
            ("rx-tx", true, true),
            ("comp", true, true),
            ("fp", true, true),
            ("queue", true, true),
            ("block", true, true),
            ("input", true, false),
            ("output", false, true),
            ("rx", true, false),
            ("tx", false, true),
            ("q", true, true),
        ];
        let name = name.split('@').next().unwrap_or_default().to_ascii_lowercase();
        let digits_at = name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        let Ok(queue) = name[digits_at..].parse() else { return Self::default() };
        let before = name[..digits_at].trim_end_matches(['-', '_', '.', ':']);
        let found = WORDS.iter().find(|(word, _, _)| {
            let Some(front) = before.strip_suffix(word) else { return false };
            !front.ends_with(|c: char| c.is_ascii_alphabetic())
        });
        found.map_or_else(Self::default, |&(_, receives, transmits)| Self {
            queue: Some(queue),
            receives,
            transmits,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(queue: u32, receives: bool, transmits: bool) -> Role {
        Role { queue: Some(queue), receives, transmits }
    }

    #[test]
    fn names_of_many_drivers_say_their_queue() {
        for (name, expected) in [
            ("eth0-TxRx-3", role(3, true, true)),
            ("i40e-eth0-TxRx-12", role(12, true, true)),
            ("ens5-Tx-Rx-7", role(7, true, true)),
            ("mlx5_comp5@pci:0000:41:00.0", role(5, true, true)),
            ("bnxt_en-eth0-TxRx-2", role(2, true, true)),
            ("virtio0-input.1", role(1, true, false)),
            ("virtio0-output.1", role(1, false, true)),
            ("eth0-rx-0", role(0, true, false)),
            ("eth0-fp-4", role(4, true, true)),
            ("gve-ntfy-block.6@pci:0000:00:04.0", role(6, true, true)),
            ("mlx5_async0@pci:0000:41:00.0", Role::default()),
            ("virtio0-config", Role::default()),
            ("eth0", Role::default()),
            ("", Role::default()),
            ("eth0-rx-99999999999", Role::default()),
        ] {
            assert_eq!(Role::of_name(name), expected, "{name}");
        }
    }

    #[test]
    fn a_name_is_a_whole_word() {
        let names = ["eth1".to_owned(), "0000:41:00.0".to_owned(), String::new()];
        for (name, expected) in [
            ("eth1-TxRx-0", true),
            ("eth10-TxRx-0", false),
            ("i40e-eth1-TxRx-0", true),
            ("veth1", false),
            ("mlx5_comp0@pci:0000:41:00.0", true),
            ("mlx5_comp0@pci:0000:41:00.1", false),
        ] {
            assert_eq!(is_named_after(name, &names), expected, "{name}");
        }
    }

    #[test]
    fn counts_are_those_of_the_named_cores() {
        let table = Table::parse(
            "            CPU0       CPU2\n  24:          1          0  IO-APIC   5-edge   acpi\n \
             25:  0  7  GICv3  27 Level  uhci_hcd:usb1, eth0\nNMI:   0   0   Non-maskable\n 26: 1",
        );
        assert_eq!(table.lines.len(), 2);
        assert_eq!(table.lines[&24].ran, [(0, 1)]);
        let shared = &table.lines[&25];
        assert_eq!(
            (&shared.ran[..], &shared.names[..]),
            (&[(2, 7)][..], &["uhci_hcd:usb1".to_owned(), "eth0".to_owned()][..])
        );
    }

    #[test]
    fn any_text_is_a_table() {
        bolero::check!().with_type::<(String, String)>().for_each(|(header, line)| {
            let table = Table::parse(&format!("{header}\n{line}\n 7: {line}"));
            assert!(table.lines.len() <= line.lines().count() * 2 + 1);
        });
        bolero::check!().with_type::<String>().for_each(|name| {
            Role::of_name(name);
            is_named_after(name, std::slice::from_ref(name));
        });
    }
}
