//! The PCI Express link of a device: what it runs at, what it could, and what is above it.

use results::{Absent, PcieLink};

use super::nics::uevent;
use super::{note, number};
use crate::HostFiles;

/// Bridges above a device that are looked at; real hosts have two or three.
const BRIDGES_MAX: usize = 16;

/// The link of the device in this folder below `/sys`; `None` for what is not on PCI Express.
pub(super) fn read(
    files: &HostFiles,
    folder: &str,
    address: Option<&str>,
    nic: &str,
    absent: &mut Vec<Absent>,
) -> Option<PcieLink> {
    let address = address?;
    let now = Speed::read(files, folder, "current");
    let could = Speed::read(files, folder, "max");
    let Some(now) = now else {
        note(absent, format!("PCI Express link of {nic}"), "the device has none, or hides it");
        return None;
    };
    let mut link = PcieLink {
        address: address.to_owned(),
        speed_gt_per_s: now.gt_per_s,
        lanes_count: now.lanes_count,
        speed_max_gt_per_s: could.map(|speed| speed.gt_per_s),
        lanes_max_count: could.map(|speed| speed.lanes_count),
        ..PcieLink::default()
    };
    let config = files.sys_bytes(&format!("{folder}/config")).unwrap_or_default();
    match device_control(&config) {
        Some(control) => {
            link.payload_max_bytes = size_of_field(control >> 5);
            link.read_request_max_bytes = size_of_field(control >> 12);
        }
        None => {
            let why = "only root may read the configuration space beyond its first 64 bytes";
            let why = if config.len() <= 64 { why } else { "no PCI Express capability in it" };
            note(absent, format!("MaxPayload of {nic}"), why);
        }
    }
    let above = bridges_above(files, folder);
    let narrowest = above
        .into_iter()
        .min_by(|(_, a), (_, b)| a.bits_per_s().total_cmp(&b.bits_per_s()))
        .filter(|(_, bridge)| bridge.bits_per_s() < now.bits_per_s());
    if let Some((bridge, speed)) = narrowest {
        link.narrowest_bridge = Some(bridge);
        link.bridge_speed_gt_per_s = Some(speed.gt_per_s);
        link.bridge_lanes_count = Some(speed.lanes_count);
    }
    Some(link)
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Speed {
    gt_per_s: f64,
    lanes_count: u32,
}

impl Speed {
    /// `current_link_speed` and `current_link_width`, or `max_…`.
    fn read(files: &HostFiles, folder: &str, which: &str) -> Option<Self> {
        let speed = files.sys_line(&format!("{folder}/{which}_link_speed"))?;
        let lanes_count = number(files, &format!("{folder}/{which}_link_width"))?;
        let gt_per_s = gt_per_s(&speed)?;
        (1..=32).contains(&lanes_count).then_some(Self { gt_per_s, lanes_count })
    }

    fn bits_per_s(self) -> f64 {
        results::pcie_bits_per_s(self.gt_per_s, self.lanes_count)
    }
}

/// `8.0 GT/s PCIe`, on older kernels `5 GT/s`; `Unknown` where there is no link.
fn gt_per_s(text: &str) -> Option<f64> {
    let (figure, rest) = text.split_once(' ')?;
    let figure: f64 = figure.parse().ok()?;
    (rest.starts_with("GT/s") && figure > 0.0 && figure <= 1024.0).then_some(figure)
}

/// The links of the bridges above a device, the nearest first, those inside the processor (that
/// have none) left out. A bridge's own link is the one toward the root.
fn bridges_above(files: &HostFiles, folder: &str) -> Vec<(String, Speed)> {
    let mut bridges = Vec::new();
    let mut parent = folder.to_owned();
    for _bridge in 0..BRIDGES_MAX {
        parent.push_str("/..");
        let Some(address) = uevent(files, &parent, "PCI_SLOT_NAME") else { break };
        bridges.extend(Speed::read(files, &parent, "current").map(|speed| (address, speed)));
    }
    bridges
}

/// The device control register of the PCI Express capability (PCI Express Base Specification 4.0,
/// 7.5.3.4): its bits 7:5 are MaxPayload, its bits 14:12 MaxReadRequest.
fn device_control(config: &[u8]) -> Option<u16> {
    const STATUS: usize = 0x06;
    const STATUS_HAS_CAPABILITIES: u8 = 1 << 4;
    const CAPABILITIES: usize = 0x34;
    const PCI_EXPRESS: u8 = 0x10;
    /// More capabilities than 256 bytes can hold: a list that runs in circles ends.
    const CAPABILITIES_MAX: usize = 48;
    if config.get(STATUS)? & STATUS_HAS_CAPABILITIES == 0 {
        return None;
    }
    let mut at = usize::from(*config.get(CAPABILITIES)? & 0xfc);
    for _capability in 0..CAPABILITIES_MAX {
        if at < 0x40 {
            return None;
        }
        if *config.get(at)? == PCI_EXPRESS {
            let control = config.get(at + 8..at + 10)?;
            return Some(u16::from_le_bytes([control[0], control[1]]));
        }
        at = usize::from(*config.get(at + 1)? & 0xfc);
    }
    None
}

/// 128 bytes shifted by a three-bit field; 6 and 7 are reserved.
fn size_of_field(field: u16) -> Option<u32> {
    let field = field & 7;
    (field <= 5).then(|| 128 << field)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_read_as_old_and_new_kernels_write_them() {
        assert_eq!(gt_per_s("8.0 GT/s PCIe"), Some(8.0));
        assert_eq!(gt_per_s("2.5 GT/s"), Some(2.5));
        for broken in ["Unknown", "Unknown speed", "", "-5 GT/s", "inf GT/s", "nan GT/s", "8.0"] {
            assert_eq!(gt_per_s(broken), None, "{broken}");
        }
    }

    #[test]
    fn the_capability_list_leads_to_the_control_register() {
        let mut config = vec![0; 256];
        config[6] = 0x10;
        config[0x34] = 0x40;
        config[0x40..0x42].copy_from_slice(&[0x01, 0x60]);
        config[0x60..0x62].copy_from_slice(&[0x10, 0x00]);
        config[0x68..0x6a].copy_from_slice(&0x2810u16.to_le_bytes());
        let control = device_control(&config).unwrap();
        assert_eq!(size_of_field(control >> 5), Some(128));
        assert_eq!(size_of_field(control >> 12), Some(512));
        assert_eq!(device_control(&config[..64]), None, "what others than root may read");
        config[0x41] = 0x40;
        assert_eq!(device_control(&config), None, "a list in a circle");
        assert_eq!(size_of_field(7), None);
    }

    #[test]
    fn any_configuration_space_is_read_or_refused() {
        bolero::check!().for_each(|bytes: &[u8]| {
            device_control(bytes);
        });
        bolero::check!().with_type::<String>().for_each(|text| {
            gt_per_s(text);
        });
    }
}
