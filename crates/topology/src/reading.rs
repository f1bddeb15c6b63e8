//! The few counters of a host that another host asks for again and again, as one line of JSON.

use results::{CoreUse, DeviceCounters};
use serde::{Deserialize, Serialize};

use crate::counters::parse_devices;
use crate::{CoreTimes, HostFiles, InterfaceCounters};

/// Counters of the calling thread's network namespace and of the host's cores at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HostReading {
    /// Its devices, counted since each was made.
    pub devices: Vec<DeviceCounters>,
    /// TCP segments retransmitted since the host started.
    pub retransmits_count: Option<u64>,
    /// The lines of `/proc/stat` that tell of one core each.
    pub cores: String,
}

/// What was gained between two readings.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReadingGain {
    /// Devices that both readings have.
    pub devices: Vec<DeviceCounters>,
    /// TCP segments retransmitted.
    pub retransmits_count: Option<u64>,
    /// The core with the least idle time.
    pub busiest_core: Option<CoreUse>,
}

impl HostReading {
    /// Reads the counters of this host.
    #[must_use]
    pub fn read() -> Self {
        Self::read_from(&HostFiles::default())
    }

    /// Reads a recorded tree's.
    #[must_use]
    pub fn read_from(files: &HostFiles) -> Self {
        let stat = files.proc("stat").unwrap_or_default();
        let is_core = |line: &&str| {
            line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_numeric()))
        };
        let cores: Vec<&str> = stat.lines().filter(is_core).collect();
        Self {
            devices: parse_devices(&files.proc_net("dev").unwrap_or_default()),
            retransmits_count: retransmits(&files.proc_net("snmp").unwrap_or_default()),
            cores: cores.join("\n"),
        }
    }

    /// What was gained since an earlier reading.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> ReadingGain {
        let device = |now: &DeviceCounters| {
            let then = earlier.devices.iter().find(|then| then.interface == now.interface)?;
            Some(InterfaceCounters::gain(now, then))
        };
        let cores = CoreTimes::parse(&self.cores).since(&CoreTimes::parse(&earlier.cores));
        let retransmits = self.retransmits_count.zip(earlier.retransmits_count);
        ReadingGain {
            devices: self.devices.iter().filter_map(device).collect(),
            retransmits_count: retransmits.map(|(now, then)| crate::counters::gain(now, then)),
            busiest_core: cores.into_iter().min_by(|one, other| one.idle.total_cmp(&other.idle)),
        }
    }
}

/// `Tcp: … RetransSegs …` and the line of values under it.
fn retransmits(snmp: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter(|line| line.starts_with("Tcp:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let mut columns = names.split(' ').zip(values.split(' '));
    columns.find(|(name, _)| *name == "RetransSegs")?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(rx_bytes: u64, retransmits: u64, busy: u64) -> HostReading {
        let interface = "eth0".to_owned();
        let cores = format!("cpu0 {busy} 0 0 1000 0 0 0 0\ncpu1 0 0 0 {} 0 0 0 0", 1000 + busy);
        HostReading {
            devices: vec![DeviceCounters { interface, rx_bytes, ..DeviceCounters::default() }],
            retransmits_count: Some(retransmits),
            cores,
        }
    }

    #[test]
    fn gains_are_of_devices_segments_and_the_busiest_core() {
        let gain = reading(500, 7, 90).since(&reading(200, 4, 0));
        assert_eq!((gain.devices[0].rx_bytes, gain.retransmits_count), (300, Some(3)));
        let core = gain.busiest_core.expect("two cores moved");
        assert_eq!((core.core, core.user), (0, 1.0));
        let other = HostReading::default();
        assert_eq!(reading(500, 7, 90).since(&other).devices, []);
    }

    #[test]
    fn this_host_has_a_reading_that_survives_json() {
        let read = HostReading::read();
        assert!(read.retransmits_count.is_some() && read.cores.starts_with("cpu"), "{read:?}");
        let line = serde_json::to_string(&read).expect("JSON");
        assert_eq!(serde_json::from_str::<HostReading>(&line).expect("read back"), read);
        assert!(!line.contains('\n'), "one line");
    }

    #[test]
    fn any_text_gives_a_gain() {
        bolero::check!().for_each(|bytes| {
            let text = String::from_utf8_lossy(bytes).into_owned();
            let one = HostReading { cores: text.clone(), ..reading(1, 2, 3) };
            assert_eq!(one.since(&reading(4, 5, 6)).devices.len(), 1);
            assert_eq!(reading(4, 5, 6).since(&one).devices.len(), 1);
            let retransmits_count = retransmits(&text);
            if let Ok(read) = serde_json::from_slice::<HostReading>(bytes) {
                let read = HostReading { retransmits_count, ..read };
                assert!(read.since(&one).devices.len() <= read.devices.len());
            }
        });
    }
}
