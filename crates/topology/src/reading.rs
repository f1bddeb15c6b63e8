//! The few counters of a host that another host asks for again and again, as one line of JSON.

use std::collections::HashMap;
use std::net::SocketAddr;

use netlink::{Connection, Family};
use results::{CoreUse, DeviceCounters};
use serde::{Deserialize, Serialize};
use sys::netlink_socket::NetlinkSocket;

use crate::counters::{gain, parse_devices};
use crate::{CoreTimes, HostFiles, InterfaceCounters};

/// Most connections of a reading: a line of JSON is then below 1 MiB.
const CONNECTIONS_COUNT_MAX: usize = 4096;

/// Counters of the calling thread's network namespace and of the host's cores at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HostReading {
    /// Its devices, counted since each was made.
    pub devices: Vec<DeviceCounters>,
    /// TCP segments retransmitted since the host started.
    pub retransmits_count: Option<u64>,
    /// The lines of `/proc/stat` that tell of one core each.
    pub cores: String,
    /// Established TCP connections to other hosts, those with most bytes first; at most 4096. None
    /// where the kernel does not list them (`CONFIG_INET_TCP_DIAG`).
    #[serde(default)]
    pub connections: Vec<ConnectionReading>,
    /// The machine's boot, which its containers and network namespaces have in common; empty where it is not known.
    #[serde(default)]
    pub boot_id: String,
}

/// One end of a TCP connection, counted since it was established.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionReading {
    /// This host's end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// Smoothed round-trip time at this end, microseconds; 0 if it was never measured.
    pub rtt_us: u32,
    /// Segments that this end retransmitted.
    pub retransmits_count: u64,
    /// Bytes that the other end acknowledged.
    pub sent_bytes: u64,
    /// Bytes received.
    pub received_bytes: u64,
}

impl ConnectionReading {
    /// What this end gained since an earlier reading of the same connection; the round-trip time is the later one.
    #[must_use]
    fn since(&self, earlier: &Self) -> Self {
        Self {
            retransmits_count: gain(self.retransmits_count, earlier.retransmits_count),
            sent_bytes: gain(self.sent_bytes, earlier.sent_bytes),
            received_bytes: gain(self.received_bytes, earlier.received_bytes),
            ..*self
        }
    }

    fn bytes(&self) -> u64 {
        self.sent_bytes.saturating_add(self.received_bytes)
    }
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
    /// Connections that moved bytes.
    pub connections: Vec<ConnectionReading>,
}

impl HostReading {
    /// Reads the counters of this host.
    #[must_use]
    pub fn read() -> Self {
        Self { connections: connections(), ..Self::read_from(&HostFiles::default()) }
    }

    /// Reads a recorded tree's, which has no connections.
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
            connections: Vec::new(),
            boot_id: files.proc("sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned(),
        }
    }

    /// Whether both were read on one machine, whose cores are then those of both hosts.
    #[must_use]
    pub fn is_of_machine_of(&self, other: &Self) -> bool {
        !self.boot_id.is_empty() && self.boot_id == other.boot_id
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
        let ends = |one: &ConnectionReading| (one.local, one.remote);
        let then: HashMap<_, _> = earlier.connections.iter().map(|one| (ends(one), one)).collect();
        let moved = self.connections.iter().map(|now| match then.get(&ends(now)) {
            Some(then) => now.since(then),
            None => *now,
        });
        ReadingGain {
            devices: self.devices.iter().filter_map(device).collect(),
            retransmits_count: retransmits.map(|(now, then)| gain(now, then)),
            connections: moved.filter(|one| one.bytes() > 0).collect(),
            busiest_core: cores.into_iter().min_by(|one, other| one.idle.total_cmp(&other.idle)),
        }
    }
}

fn connections() -> Vec<ConnectionReading> {
    let Ok(mut socket) = NetlinkSocket::open_sockets() else { return Vec::new() };
    let mut all: Vec<ConnectionReading> = Vec::new();
    for family in [Family::V4, Family::V6] {
        let listed = socket.list::<Connection>(&Connection::dump(family)).unwrap_or_default();
        let to_others = listed.iter().filter(|one| !one.remote.ip().is_loopback());
        all.extend(to_others.map(|one| ConnectionReading {
            local: one.local,
            remote: one.remote,
            rtt_us: one.rtt_us,
            retransmits_count: one.retransmits_count.into(),
            sent_bytes: one.sent_bytes,
            received_bytes: one.received_bytes,
        }));
    }
    all.sort_by_key(|one| std::cmp::Reverse(one.bytes()));
    all.truncate(CONNECTIONS_COUNT_MAX);
    all
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
        let end = |port| SocketAddr::from(([10, 0, 0, 1], port));
        let connection = |port, sent_bytes| ConnectionReading {
            local: end(port),
            remote: end(9),
            rtt_us: 100 + rx_bytes as u32,
            retransmits_count: retransmits,
            sent_bytes,
            received_bytes: 0,
        };
        HostReading {
            devices: vec![DeviceCounters { interface, rx_bytes, ..DeviceCounters::default() }],
            retransmits_count: Some(retransmits),
            cores,
            connections: vec![connection(1, rx_bytes * 10), connection(2, 50)],
            boot_id: String::new(),
        }
    }

    #[test]
    fn readings_of_one_boot_are_of_one_machine() {
        let of = |boot_id: &str| HostReading { boot_id: boot_id.to_owned(), ..reading(1, 2, 3) };
        assert!(of("a").is_of_machine_of(&of("a")));
        assert!(!of("a").is_of_machine_of(&of("b")));
        assert!(!of("").is_of_machine_of(&of("")));
        assert!(HostReading::read().is_of_machine_of(&HostReading::read()));
    }

    #[test]
    fn gains_are_of_devices_segments_and_the_busiest_core() {
        let gain = reading(500, 7, 90).since(&reading(200, 4, 0));
        assert_eq!((gain.devices[0].rx_bytes, gain.retransmits_count), (300, Some(3)));
        // The second connection moved nothing.
        let [moved] = gain.connections[..] else { panic!("{gain:?}") };
        assert_eq!((moved.sent_bytes, moved.retransmits_count, moved.rtt_us), (3000, 3, 600));
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
