//! Counters of devices, of the softirq layer and of the protocols, and what they gained.
//!
//! A counter below its earlier value belongs to something that began again (a device made anew
//! under the same name): its gain is its present value. The 32-bit counters of the softirq layer
//! go round through zero instead.

mod interrupts;
mod power;
mod quota;
mod rings;
mod threads;

use results::{DeviceCounters, EndCounters, SoftnetCounters};

use crate::HostFiles;
use crate::protocols::ProtocolCounters;
use crate::qdisc::QdiscReadings;

use interrupts::{Interrupts, Softirqs};
use power::Power;
use quota::Quotas;
use threads::KernelThreads;

/// All counters of the calling thread's network namespace at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CounterSnapshot {
    devices: Vec<DeviceCounters>,
    softnet: Vec<SoftnetCounters>,
    protocols: ProtocolCounters,
    softirqs: Softirqs,
    interrupts: Interrupts,
    threads: KernelThreads,
    qdiscs: QdiscReadings,
    quotas: Quotas,
    power: Power,
}

impl CounterSnapshot {
    /// Reads this host's. Counters of devices, of protocols and of queueing disciplines are the
    /// namespace's, the quota is this process's, all others are the whole host's.
    #[must_use]
    pub fn read() -> Self {
        let files = Self::read_from(&HostFiles::default());
        let devices = rings::join(files.devices, &rings::read());
        Self { devices, qdiscs: QdiscReadings::read(), ..files }
    }

    /// Reads a recorded tree's.
    #[must_use]
    pub fn read_from(files: &HostFiles) -> Self {
        let text = |name| files.proc_net(name).unwrap_or_default();
        let mut protocols = ProtocolCounters::default();
        protocols.add_tables(&text("snmp"));
        protocols.add_tables(&text("netstat"));
        protocols.add_list(&text("snmp6"));
        Self {
            devices: parse_devices(&text("dev")),
            softnet: parse_softnet(&text("softnet_stat")),
            protocols,
            softirqs: Softirqs::parse(&files.proc("softirqs").unwrap_or_default()),
            interrupts: Interrupts::parse(&files.proc("interrupts").unwrap_or_default()),
            threads: KernelThreads::read_from(files),
            qdiscs: QdiscReadings::default(),
            quotas: Quotas::read_from(files),
            power: Power::read_from(files),
        }
    }

    /// What was gained since an earlier reading; what did not move is left out.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> EndCounters {
        let devices = self.devices.iter().filter_map(|now| {
            let then = earlier.devices.iter().find(|then| then.interface == now.interface);
            let gain = then.map_or_else(|| now.clone(), |then| device_gain(now, then));
            moved(&gain).then_some(gain)
        });
        let softnet = self.softnet.iter().filter_map(|now| {
            let then = earlier.softnet.iter().find(|then| then.core == now.core)?;
            let gain = softnet_gain(*now, *then);
            (gain != SoftnetCounters { core: now.core, ..SoftnetCounters::default() })
                .then_some(gain)
        });
        EndCounters {
            devices: devices.collect(),
            softnet: softnet.collect(),
            protocols: self.protocols.since(&earlier.protocols),
            softirqs: self.softirqs.since(&earlier.softirqs),
            interrupts: self.interrupts.since(&earlier.interrupts),
            kernel_threads: self.threads.since(&earlier.threads),
            qdiscs: self.qdiscs.since(&earlier.qdiscs),
            quota: self.quotas.since(&earlier.quotas),
            clocks: self.power.clocks_since(&earlier.power),
            idle_states: self.power.idle_since(&earlier.power),
            memory_traffic: self.power.memory_since(&earlier.power),
        }
    }
}

/// The devices' own counters, for a display that reads them every second.
#[derive(Debug, Clone, Copy)]
pub struct InterfaceCounters;

impl InterfaceCounters {
    /// The devices of the calling thread's network namespace, counted since each was made, in the
    /// kernel's order.
    #[must_use]
    pub fn read() -> Vec<DeviceCounters> {
        Self::read_from(&HostFiles::default())
    }

    /// Reads a recorded tree's.
    #[must_use]
    pub fn read_from(files: &HostFiles) -> Vec<DeviceCounters> {
        Self::parse(&files.proc_net("dev").unwrap_or_default())
    }

    /// The devices in the text of a `/proc/net/dev`, as of another network namespace.
    #[must_use]
    pub fn parse(text: &str) -> Vec<DeviceCounters> {
        parse_devices(text)
    }

    /// What a device gained between two readings.
    #[must_use]
    pub fn gain(now: &DeviceCounters, earlier: &DeviceCounters) -> DeviceCounters {
        device_gain(now, earlier)
    }
}

/// What a counter gained, see the module's text.
pub(crate) fn gain(now: u64, earlier: u64) -> u64 {
    now.checked_sub(earlier).unwrap_or(now)
}

/// `/proc/net/dev` (kernel `net/core/net-procfs.c`): two lines of heading, then
/// `name: bytes packets errs drop fifo frame compressed multicast | bytes packets errs drop …`.
pub(crate) fn parse_devices(text: &str) -> Vec<DeviceCounters> {
    text.lines().filter_map(parse_device).collect()
}

fn parse_device(line: &str) -> Option<DeviceCounters> {
    // A name may hold a colon (old alias style); the figures never do.
    let (name, figures) = line.rsplit_once(':')?;
    let figures = figures
        .split_ascii_whitespace()
        .map(|word| word.parse::<u64>().ok())
        .collect::<Option<Vec<_>>>()?;
    let name = name.trim();
    if name.is_empty() || figures.len() < 12 {
        return None;
    }
    Some(DeviceCounters {
        interface: name.to_owned(),
        rx_bytes: figures[0],
        rx_pkts: figures[1],
        rx_errors_count: figures[2],
        // The file adds `rx_missed_errors`, frames the device had no buffer for, to the drops.
        rx_drops_count: figures[3],
        tx_bytes: figures[8],
        tx_pkts: figures[9],
        tx_errors_count: figures[10],
        tx_drops_count: figures[11],
        rx_ring_overruns_count: None,
    })
}

fn device_gain(now: &DeviceCounters, earlier: &DeviceCounters) -> DeviceCounters {
    // A device made anew has lost all its counters, not only those that happen to be lower.
    if now.rx_bytes < earlier.rx_bytes || now.tx_bytes < earlier.tx_bytes {
        return now.clone();
    }
    DeviceCounters {
        interface: now.interface.clone(),
        rx_bytes: gain(now.rx_bytes, earlier.rx_bytes),
        rx_pkts: gain(now.rx_pkts, earlier.rx_pkts),
        rx_drops_count: gain(now.rx_drops_count, earlier.rx_drops_count),
        rx_errors_count: gain(now.rx_errors_count, earlier.rx_errors_count),
        tx_bytes: gain(now.tx_bytes, earlier.tx_bytes),
        tx_pkts: gain(now.tx_pkts, earlier.tx_pkts),
        tx_drops_count: gain(now.tx_drops_count, earlier.tx_drops_count),
        tx_errors_count: gain(now.tx_errors_count, earlier.tx_errors_count),
        rx_ring_overruns_count: now
            .rx_ring_overruns_count
            .zip(earlier.rx_ring_overruns_count)
            .map(|(now, earlier)| gain(now, earlier)),
    }
}

fn moved(gain: &DeviceCounters) -> bool {
    let still = DeviceCounters { interface: gain.interface.clone(), ..DeviceCounters::default() };
    *gain != still
}

/// `/proc/net/softnet_stat`: a line an online core, hexadecimal words: processed, dropped,
/// squeezed, … , RPS in the tenth, and since Linux 5.10 the core's number in the thirteenth
/// (before, the line's number is the best guess).
fn parse_softnet(text: &str) -> Vec<SoftnetCounters> {
    let row = |(index, line): (usize, &str)| {
        let words = line
            .split_ascii_whitespace()
            .map(|word| u32::from_str_radix(word, 16).ok())
            .collect::<Option<Vec<_>>>()?;
        let word = |column: usize| words.get(column).copied();
        Some(SoftnetCounters {
            core: word(12).or_else(|| u32::try_from(index).ok())?,
            processed_pkts: word(0)?.into(),
            dropped_pkts: word(1)?.into(),
            squeezed_count: word(2)?.into(),
            steered_pkts: word(9).unwrap_or(0).into(),
            flow_limited_pkts: word(10).unwrap_or(0).into(),
        })
    };
    let mut rows: Vec<SoftnetCounters> = Vec::new();
    for row in text.lines().enumerate().filter_map(row) {
        // A damaged recording may have a core twice; it would then gain twice.
        if rows.iter().all(|known| known.core != row.core) {
            rows.push(row);
        }
    }
    rows
}

fn softnet_gain(now: SoftnetCounters, earlier: SoftnetCounters) -> SoftnetCounters {
    let gain = |now: u64, earlier: u64| now.wrapping_sub(earlier) & u64::from(u32::MAX);
    SoftnetCounters {
        core: now.core,
        processed_pkts: gain(now.processed_pkts, earlier.processed_pkts),
        dropped_pkts: gain(now.dropped_pkts, earlier.dropped_pkts),
        squeezed_count: gain(now.squeezed_count, earlier.squeezed_count),
        steered_pkts: gain(now.steered_pkts, earlier.steered_pkts),
        flow_limited_pkts: gain(now.flow_limited_pkts, earlier.flow_limited_pkts),
    }
}

#[cfg(test)]
mod tests;
