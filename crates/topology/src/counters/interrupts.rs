//! Interrupts, hard and soft: which core handled how many.

use std::collections::BTreeMap;

use results::{InterruptCounters, SoftirqCounters};

use super::gain;

/// Most columns (cores) and rows (interrupts) of either file that are read.
const COLUMNS_MAX: usize = 4096;
const ROWS_MAX: usize = 16_384;

/// `/proc/softirqs`: `NET_RX` and `NET_TX` of each core.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Softirqs {
    cores: BTreeMap<u32, (u64, u64)>,
}

impl Softirqs {
    /// A heading of `CPU0 CPU1 …`, then `NAME: count …`.
    pub(super) fn parse(text: &str) -> Self {
        let mut lines = text.lines();
        let columns = heading(lines.next().unwrap_or_default());
        let mut cores: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for line in lines.take(ROWS_MAX) {
            let Some((name, figures)) = line.split_once(':') else { continue };
            let is_receive = match name.trim() {
                "NET_RX" => true,
                "NET_TX" => false,
                _other => continue,
            };
            for (&core, figure) in columns.iter().zip(figures.split_ascii_whitespace()) {
                let Ok(count) = figure.parse() else { break };
                let entry = cores.entry(core).or_default();
                *(if is_receive { &mut entry.0 } else { &mut entry.1 }) = count;
            }
        }
        Self { cores }
    }

    /// Cores that handled any since an earlier reading.
    pub(super) fn since(&self, earlier: &Self) -> Vec<SoftirqCounters> {
        let row = |(&core, now): (&u32, &(u64, u64))| {
            let then = earlier.cores.get(&core)?;
            let gained = SoftirqCounters {
                core,
                net_rx_count: gain(now.0, then.0),
                net_tx_count: gain(now.1, then.1),
            };
            (gained.net_rx_count + gained.net_tx_count > 0).then_some(gained)
        };
        self.cores.iter().filter_map(row).collect()
    }
}

/// `/proc/interrupts`: the numbered ones, which are devices'.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Interrupts {
    rows: BTreeMap<u32, Row>,
}

/// One interrupt: its name and how often it fired on each core.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Row {
    name: String,
    counts: Vec<(u32, u64)>,
}

impl Interrupts {
    /// A heading of `CPU0 CPU1 …`, then `number: count … chip hwirq-type name`.
    pub(super) fn parse(text: &str) -> Self {
        let mut lines = text.lines();
        let columns = heading(lines.next().unwrap_or_default());
        let row = |line: &str| {
            let (number, rest) = line.split_once(':')?;
            let irq: u32 = number.trim().parse().ok()?;
            let mut words = rest.split_ascii_whitespace();
            let mut counts = Vec::with_capacity(columns.len());
            for &core in &columns {
                counts.push((core, words.next()?.parse().ok()?));
            }
            // Chip, hardware number with type, then the names of those who asked for it.
            let name = words.skip(2).collect::<Vec<_>>().join(" ");
            Some((irq, Row { name, counts }))
        };
        Self { rows: lines.take(ROWS_MAX).filter_map(row).collect() }
    }

    /// Interrupts that fired since an earlier reading.
    pub(super) fn since(&self, earlier: &Self) -> Vec<InterruptCounters> {
        let row = |(&irq, now): (&u32, &Row)| {
            let then = earlier.rows.get(&irq)?;
            let before: BTreeMap<u32, u64> = then.counts.iter().copied().collect();
            let ran: Vec<(u32, u64)> = now
                .counts
                .iter()
                .map(|&(core, count)| (core, gain(count, before.get(&core).copied().unwrap_or(0))))
                .filter(|&(_, count)| count > 0)
                .collect();
            (!ran.is_empty()).then(|| InterruptCounters { irq, name: now.name.clone(), ran })
        };
        self.rows.iter().filter_map(row).collect()
    }
}

/// The cores of `CPU0 CPU1 …`: offline ones have no column.
fn heading(line: &str) -> Vec<u32> {
    let core = |word: &str| word.strip_prefix("CPU")?.parse().ok();
    line.split_ascii_whitespace().take(COLUMNS_MAX).map_while(core).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOFTIRQS: &str = "                    CPU0       CPU2       \n\
        \x20         HI:          0          0\n\
        \x20     NET_TX:         41         19\n\
        \x20     NET_RX:    1004483    1082346\n";

    const INTERRUPTS: &str = "           CPU0       CPU2       \n\
        \x2024:          1          0  IO-APIC   5-edge      ACPI:Ged\n\
        \x2039:       6067          3 PCI-MSIX-0000:00:03.0   2-edge      virtio2-output.0, eth0\n\
        NMI:          0          0   Non-maskable interrupts\n\
        ERR:          0\n";

    #[test]
    fn softirqs_of_the_cores_that_have_a_column() {
        let before = Softirqs::parse(SOFTIRQS);
        let after = Softirqs::parse(&SOFTIRQS.replace("1082346", "1082350").replace("41", "42"));
        let gained = after.since(&before);
        assert_eq!(
            gained,
            [
                SoftirqCounters { core: 0, net_rx_count: 0, net_tx_count: 1 },
                SoftirqCounters { core: 2, net_rx_count: 4, net_tx_count: 0 },
            ]
        );
        assert_eq!(before.since(&before), []);
    }

    #[test]
    fn only_device_interrupts_that_fired_are_told() {
        let before = Interrupts::parse(INTERRUPTS);
        let after = Interrupts::parse(&INTERRUPTS.replace("6067          3", "6067          9"));
        let gained = after.since(&before);
        assert_eq!(gained.len(), 1);
        assert_eq!((gained[0].irq, gained[0].ran.as_slice()), (39, [(2, 6)].as_slice()));
        assert_eq!(gained[0].name, "virtio2-output.0, eth0");
    }

    #[test]
    fn any_text_is_read_or_left() {
        bolero::check!().with_type::<(String, String)>().for_each(|(before, after)| {
            let (soft, hard) = (Softirqs::parse(before), Interrupts::parse(before));
            Softirqs::parse(after).since(&soft);
            Interrupts::parse(after).since(&hard);
        });
    }
}
