//! What stands behind the network device of a virtual machine, which sees none of it.

use results::End;

use crate::observed::{Observed, end_name, opposite};

/// Drivers of devices whose other side is software on the machine's host.
const DRIVERS: [&str; 5] = ["ptnet", "virtio_net", "vmxnet3", "hv_netvsc", "vif"];

/// An end that is a guest with such a device: the end, its hypervisor, the device and its driver.
fn found<'a>(seen: &Observed<'a>) -> Option<(End, &'a str, &'a str, &'a str)> {
    [seen.sender.end, opposite(seen.sender.end)].into_iter().find_map(|end| {
        let host = seen.host(end)?;
        let interface = host.interface.as_ref()?;
        let driver = interface.driver.as_deref().filter(|driver| DRIVERS.contains(driver))?;
        Some((end, host.hypervisor.as_deref()?, interface.name.as_str(), driver))
    })
}

/// That the path's rate may be that of a guest's device, of its switch or of its host's cores.
pub(super) fn evidence(seen: &Observed<'_>) -> Option<String> {
    let (end, hypervisor, device, driver) = found(seen)?;
    Some(format!(
        "the {} end is a guest ({hypervisor}), which does not see what lies behind its device \
         {device} ({driver}): the switch and the cores of its host may set this rate",
        end_name(end)
    ))
}

/// How to see on the host which of them does.
pub(super) fn advice(seen: &Observed<'_>) -> Option<String> {
    let (_, _, device, driver) = found(seen)?;
    let drops = match driver {
        "ptnet" => "`clearstream port stats` what the switch dropped",
        _ => "the counters of its switch or bridge what that dropped",
    };
    Some(format!(
        "on the guest's host, `top -H` shows whether a thread of the hypervisor or of the switch behind {device} \
         uses a whole core, or waits for one, and {drops}"
    ))
}
