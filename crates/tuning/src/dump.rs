//! Every setting there is on a host, for a dump that shows whether anything differs.

use std::fs;

use settings::catalogue::SYSCTLS;
use settings::{FILES, InterfaceKey, Key, PARAMETERS};

use crate::host::read_text;

/// Features that bear on throughput, by the kernel's names.
const FEATURES: [&str; 14] = [
    "rx-checksum",
    "rx-gro",
    "rx-gro-hw",
    "rx-gro-list",
    "rx-lro",
    "rx-udp-gro-forwarding",
    "rx-ntuple-filter",
    "tx-checksum-ip-generic",
    "tx-checksum-ipv4",
    "tx-generic-segmentation",
    "tx-scatter-gather",
    "tx-tcp-segmentation",
    "tx-tcp6-segmentation",
    "tx-udp-segmentation",
];

/// Queues of an interface that are asked for.
const QUEUES_MAX: u32 = 256;

/// Every setting this program can change, of these interfaces and of the host. Which of them the host
/// has shows when they are read.
#[must_use]
pub fn every_key(interfaces: &[String]) -> Vec<Key> {
    let mut keys: Vec<Key> =
        SYSCTLS.iter().map(|known| Key::Sysctl(known.name.to_owned())).collect();
    for name in interfaces {
        let own = |what| Key::Interface { name: name.clone(), what };
        keys.extend(
            [
                InterfaceKey::Mtu,
                InterfaceKey::TxQueueLength,
                InterfaceKey::Qdisc,
                InterfaceKey::RssTable,
                InterfaceKey::ThreadedNapi,
            ]
            .map(own),
        );
        keys.extend(PARAMETERS.map(|(parameter, _)| own(InterfaceKey::Parameter(parameter))));
        keys.extend(FEATURES.map(|feature| own(InterfaceKey::Feature(feature.to_owned()))));
        for queue in 0..QUEUES_MAX {
            let folder = format!("/sys/class/net/{name}/queues");
            let has = |kind: &str| fs::metadata(format!("{folder}/{kind}-{queue}")).is_ok();
            let (receives, sends) = (has("rx"), has("tx"));
            if receives {
                keys.push(own(InterfaceKey::RpsCores(queue)));
                keys.push(own(InterfaceKey::RfsEntries(queue)));
            }
            if sends {
                keys.push(own(InterfaceKey::XpsCores(queue)));
            }
            if !receives && !sends {
                break;
            }
        }
    }
    keys.extend(napi_threads());
    keys.extend(numbers("/proc/irq").into_iter().map(Key::InterruptAffinity));
    let online = read_text(std::path::Path::new("/sys/devices/system/cpu/online"));
    if online.is_ok() {
        keys.extend((0..count_cores()).map(Key::Governor));
    }
    keys.extend(FILES.map(|(file, _)| Key::File(file)));
    keys
}

/// Threads of threaded NAPI, as far as they can be seen; each name once.
fn napi_threads() -> Vec<Key> {
    let machine = topology::machine();
    let threads = machine.nics.iter().flat_map(|nic| &nic.napi_threads);
    let mut keys: Vec<Key> =
        threads.filter_map(|thread| Key::of_packet_source(&thread.name)).collect();
    keys.sort();
    keys.dedup();
    keys
}

fn count_cores() -> u32 {
    let folders = fs::read_dir("/sys/devices/system/cpu").into_iter().flatten().flatten();
    let cores = folders.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        name.strip_prefix("cpu")?.parse::<u32>().ok()
    });
    cores.max().map_or(0, |most| most.saturating_add(1).min(1 << 16))
}

fn numbers(folder: &str) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut numbers: Vec<u32> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}
