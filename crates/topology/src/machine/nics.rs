//! Interfaces: their device, queues and interrupts.

use std::collections::BTreeSet;

use results::{Absent, Nic, ReceiveQueue, TransmitQueue};

use super::interrupts::Table;
use super::pcie;
use super::threads::KernelThreads;
use super::{core_list, note, number};
use crate::HostFiles;
use crate::device::{self, Interface};

/// `ARPHRD_LOOPBACK` (kernel `include/uapi/linux/if_arp.h`).
const LOOPBACK: u32 = 772;

/// Queues of one direction that are read; the kernel's own bound is 4096 (`dev.c`).
const QUEUES_MAX: u32 = 4096;

/// Where an interface's facts come from.
#[derive(Debug, Default)]
pub(super) struct Source {
    nic: Nic,
    /// `class/net/eth0`, when it speaks of this very interface.
    folder: Option<String>,
    /// Below `/sys`: the bus device that carries it.
    device: Option<String>,
    /// `0000:41:00.0`, where the driver says so.
    bus: Option<String>,
}

impl Source {
    /// An interface of the calling thread's namespace.
    pub(super) fn of_link(files: &HostFiles, link: &Interface) -> Self {
        let device = sys::ethtool::Device::open(&link.name).ok();
        let told = device::told(files, link, device.as_ref());
        let folder = device::sys_of(files, link);
        let device = folder.as_ref().map(|folder| format!("{folder}/device"));
        let nic = Nic {
            name: link.name.clone(),
            driver: told.driver,
            is_up: link.has_carrier,
            speed_bits_per_s: told.speed_bits_per_s,
            mtu_bytes: link.mtu_bytes,
            ..Nic::default()
        };
        let on_pci = told.bus.as_ref().map(|bus| format!("bus/pci/devices/{bus}"));
        Self { nic, folder, device: device.or(on_pci), bus: told.bus }
    }

    /// Every interface below `class/net`.
    pub(super) fn all_in(files: &HostFiles) -> Vec<Self> {
        let mut names = files.sys_names("class/net");
        names.sort();
        names.iter().filter_map(|name| Self::of_folder(files, name)).collect()
    }

    fn of_folder(files: &HostFiles, name: &str) -> Option<Self> {
        let folder = format!("class/net/{name}");
        let kind: Option<u32> = number(files, &format!("{folder}/type"));
        // `bonding_masters` lies there too, and is a file.
        if kind.is_none_or(|kind| kind == LOOPBACK) {
            return None;
        }
        let device = format!("{folder}/device");
        let driver = uevent(files, &device, "DRIVER").or_else(|| uevent(files, &folder, "DEVTYPE"));
        let speed: Option<u32> = number(files, &format!("{folder}/speed"));
        let speed = speed.filter(|&speed| {
            speed > 0 && speed != u32::MAX && device::is_believable(driver.as_deref(), speed, false)
        });
        let nic = Nic {
            name: name.to_owned(),
            is_up: number(files, &format!("{folder}/carrier")) == Some(1),
            speed_bits_per_s: speed.map(|mbit_per_s| f64::from(mbit_per_s) * 1e6),
            mtu_bytes: number(files, &format!("{folder}/mtu")).unwrap_or(0),
            driver,
            ..Nic::default()
        };
        Some(Self { nic, folder: Some(folder), device: Some(device), bus: None })
    }
}

/// Reads what the kernel's files say of an interface.
pub(super) fn read(
    files: &HostFiles,
    source: Source,
    interrupts: &Table,
    threads: &KernelThreads,
    absent: &mut Vec<Absent>,
) -> Nic {
    let Source { mut nic, folder, device, bus } = source;
    let device = Device::find(files, device.as_deref(), bus);
    nic.node = number(files, &format!("{}/numa_node", device.folder));
    nic.near_cores =
        core_list(files, &format!("{}/local_cpulist", device.folder)).unwrap_or_default();
    nic.pcie = pcie::read(files, &device.folder, device.address.as_deref(), &nic.name, absent);
    let names: Vec<String> =
        [Some(nic.name.clone()), device.address.clone(), device.virtio.clone()]
            .into_iter()
            .flatten()
            .collect();
    nic.interrupts = interrupts.of_device(files, &device.message_interrupts(files), &names);
    match &folder {
        Some(folder) => read_queues(files, folder, &mut nic),
        None => note(
            absent,
            format!("queues of {}", nic.name),
            "/sys shows another namespace's interfaces here, and mounting our own needs CAP_SYS_ADMIN",
        ),
    }
    read_threads(files, threads, &mut nic, absent);
    nic
}

/// The bus device that carries an interface.
#[derive(Debug, Default)]
struct Device {
    /// Below `/sys`; of a virtio interface, the device that carries the virtio device.
    folder: String,
    /// `0000:41:00.0`.
    address: Option<String>,
    /// `virtio0`.
    virtio: Option<String>,
}

impl Device {
    fn find(files: &HostFiles, folder: Option<&str>, bus: Option<String>) -> Self {
        let Some(folder) = folder else { return Self::default() };
        let here = uevent(files, folder, "PCI_SLOT_NAME");
        if here.is_some() || bus.as_deref().is_some_and(|bus| folder.ends_with(bus)) {
            return Self { folder: folder.to_owned(), address: here.or(bus), virtio: None };
        }
        // A virtio device sits on a PCI or a memory-mapped one.
        let is_virtio =
            uevent(files, folder, "MODALIAS").is_some_and(|to| to.starts_with("virtio:"));
        if !is_virtio {
            return Self { folder: folder.to_owned(), address: bus, virtio: None };
        }
        let parent = format!("{folder}/..");
        Self {
            address: uevent(files, &parent, "PCI_SLOT_NAME").or(bus),
            virtio: files.sys_link_name(folder),
            folder: parent,
        }
    }

    /// The interrupts the device asked the bus for (`msi_irqs`, or the one of its `irq` file).
    fn message_interrupts(&self, files: &HostFiles) -> BTreeSet<u32> {
        if self.folder.is_empty() {
            return BTreeSet::new();
        }
        let listed = files.sys_names(&format!("{}/msi_irqs", self.folder));
        let mut irqs: BTreeSet<u32> = listed.iter().filter_map(|name| name.parse().ok()).collect();
        if irqs.is_empty() {
            irqs.extend(
                number::<u32>(files, &format!("{}/irq", self.folder)).filter(|&irq| irq > 0),
            );
        }
        irqs
    }
}

fn read_queues(files: &HostFiles, folder: &str, nic: &mut Nic) {
    let names = files.sys_names(&format!("{folder}/queues"));
    let numbers = |prefix: &str| {
        let numbers = names.iter().filter_map(|name| name.strip_prefix(prefix)?.parse().ok());
        let mut numbers: Vec<u32> = numbers.filter(|&queue| queue < QUEUES_MAX).collect();
        numbers.sort_unstable();
        numbers
    };
    let mask = |path: String| files.sys_text(&path).map(|text| parse_mask(&text));
    nic.receive_queues = numbers("rx-")
        .into_iter()
        .map(|queue| ReceiveQueue {
            queue,
            rps_cores: mask(format!("{folder}/queues/rx-{queue}/rps_cpus")).unwrap_or_default(),
            rfs_entries_count: number(files, &format!("{folder}/queues/rx-{queue}/rps_flow_cnt"))
                .unwrap_or(0),
            napi_id: None,
        })
        .collect();
    nic.transmit_queues = numbers("tx-")
        .into_iter()
        .map(|queue| TransmitQueue {
            queue,
            xps_cores: mask(format!("{folder}/queues/tx-{queue}/xps_cpus")).unwrap_or_default(),
            napi_id: None,
        })
        .collect();
    nic.is_napi_threaded = number(files, &format!("{folder}/threaded")).map(|on: u32| on > 0);
    nic.defer_hard_irqs_count = number(files, &format!("{folder}/napi_defer_hard_irqs"));
    nic.gro_flush_timeout_ns = number(files, &format!("{folder}/gro_flush_timeout"));
}

fn read_threads(
    files: &HostFiles,
    threads: &KernelThreads,
    nic: &mut Nic,
    absent: &mut Vec<Absent>,
) {
    if nic.is_napi_threaded == Some(false) {
        return;
    }
    nic.napi_threads = threads.of_interface(files, &nic.name);
    if nic.is_napi_threaded == Some(true) && nic.napi_threads.is_empty() {
        let why = if threads.are_visible {
            "none is there yet: the kernel starts them with the interface"
        } else {
            "kernel threads cannot be seen from this process-id namespace"
        };
        note(absent, format!("NAPI threads of {}", nic.name), why);
    }
}

/// A value of a device's `uevent` file.
pub(super) fn uevent(files: &HostFiles, folder: &str, key: &str) -> Option<String> {
    let text = files.sys_text(&format!("{folder}/uevent"))?;
    text.lines().find_map(|line| {
        let (found, value) = line.split_once('=')?;
        (found == key && !value.is_empty()).then(|| value.to_owned())
    })
}

/// A mask of cores as the kernel writes it: hexadecimal words of 32 bits with commas between them,
/// the highest first. What is no mask is empty.
pub(super) fn parse_mask(text: &str) -> Vec<u32> {
    const WORDS_MAX: usize = 1 << 11;
    let mut cores = Vec::new();
    for (index, word) in text.trim().rsplit(',').take(WORDS_MAX).enumerate() {
        let Ok(bits) = u32::from_str_radix(word, 16) else { return Vec::new() };
        let first = u32::try_from(index * 32).unwrap_or(u32::MAX);
        cores.extend((0..32).filter(|bit| bits >> bit & 1 == 1).map(|bit| first + bit));
    }
    cores
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_words_of_32_cores() {
        assert_eq!(parse_mask("00000000,00000003\n"), [0, 1]);
        assert_eq!(parse_mask("80000001,00000000"), [32, 63]);
        assert_eq!(parse_mask("f"), [0, 1, 2, 3]);
        for broken in ["", "x", "1,,2", "123456789", "-1"] {
            assert!(parse_mask(broken).is_empty(), "{broken}");
        }
    }

    #[test]
    fn any_mask_is_bounded() {
        bolero::check!().with_type::<String>().for_each(|text| {
            assert!(parse_mask(text).len() <= text.len() * 4);
        });
    }
}
