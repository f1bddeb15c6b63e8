//! What only the device itself tells: rings, channels, coalescing, receive hashing, offloads.

use results::{Absent, Channels, Coalescing, Nic, Offload, Rings};
use sys::ethtool::Device;

use super::note;

/// Asks the device and fills what it says.
pub(super) fn lay_over(nic: &mut Nic, absent: &mut Vec<Absent>) {
    let Ok(device) = Device::open(&nic.name) else { return };
    nic.channels = device.channels().ok().map(|told| Channels {
        receive_count: told.receive_count,
        transmit_count: told.transmit_count,
        combined_count: told.combined_count,
        receive_max_count: told.receive_max_count,
        transmit_max_count: told.transmit_max_count,
        combined_max_count: told.combined_max_count,
    });
    nic.rings = device.rings().ok().map(|told| Rings {
        receive_count: told.receive_count,
        transmit_count: told.transmit_count,
        receive_max_count: told.receive_max_count,
        transmit_max_count: told.transmit_max_count,
    });
    nic.coalescing = device.coalescing().ok().map(|told| Coalescing {
        is_receive_adaptive: told.is_receive_adaptive,
        is_transmit_adaptive: told.is_transmit_adaptive,
        receive_usecs: told.receive_usecs,
        receive_frames_count: told.receive_frames_count,
        transmit_usecs: told.transmit_usecs,
        transmit_frames_count: told.transmit_frames_count,
    });
    nic.rss_spread = spread(&device.indirection().unwrap_or_default());
    nic.offloads = device
        .features()
        .unwrap_or_default()
        .into_iter()
        .filter(|feature| feature.is_on || feature.may_change)
        .map(|feature| Offload {
            name: feature.name,
            is_on: feature.is_on,
            may_change: feature.may_change,
        })
        .collect();
    let lacks: Vec<&str> = [
        ("rings", nic.rings.is_none()),
        ("channels", nic.channels.is_none()),
        ("coalescing", nic.coalescing.is_none()),
        ("RSS table", nic.rss_spread.is_empty()),
    ]
    .into_iter()
    .filter_map(|(name, is_lacking)| is_lacking.then_some(name))
    .collect();
    if !lacks.is_empty() {
        let driver = nic.driver.as_deref().unwrap_or("its driver");
        let why = format!("not reported by {driver} (ethtool)");
        note(absent, format!("{} of {}", lacks.join(", "), nic.name), why);
    }
}

/// How often each queue stands in the table.
fn spread(table: &[u32]) -> Vec<u32> {
    /// A device with more queues is not believed.
    const QUEUES_MAX: u32 = 4096;
    let highest = table.iter().copied().filter(|&queue| queue < QUEUES_MAX).max();
    let Some(highest) = highest else { return Vec::new() };
    let mut times = vec![0; highest as usize + 1];
    for &queue in table {
        if let Some(count) = times.get_mut(queue as usize) {
            *count += 1;
        }
    }
    times
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_counted_by_queue() {
        assert_eq!(spread(&[0, 1, 3, 0]), [2, 1, 0, 1]);
        assert_eq!(spread(&[]), Vec::<u32>::new());
        assert_eq!(spread(&[0, u32::MAX]), [1]);
    }
}
