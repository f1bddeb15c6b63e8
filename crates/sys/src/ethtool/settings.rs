//! What can be set on a device, as it stands: channels, rings, coalescing, receive hashing, features.

use ::settings::Parameter;

use super::{Device, FEATURES_COUNT_MAX, Place};
use crate::SyscallError;

const GRXFHINDIR: u32 = 0x38;
const GFEATURES: u32 = 0x3a;

/// Entries of an indirection table that are read; the largest known device has 4096.
const INDIRECTION_ENTRIES_MAX: usize = 1 << 16;

/// Queue counts (`ethtool -l`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Channels {
    /// Receive-only channels.
    pub receive_count: u32,
    /// Transmit-only channels.
    pub transmit_count: u32,
    /// Channels that do both.
    pub combined_count: u32,
    /// Receive-only channels, at most.
    pub receive_max_count: u32,
    /// Transmit-only channels, at most.
    pub transmit_max_count: u32,
    /// Channels that do both, at most.
    pub combined_max_count: u32,
}

/// Descriptor rings (`ethtool -g`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rings {
    /// Receive descriptors.
    pub receive_count: u32,
    /// Transmit descriptors.
    pub transmit_count: u32,
    /// Receive descriptors, at most.
    pub receive_max_count: u32,
    /// Transmit descriptors, at most.
    pub transmit_max_count: u32,
}

/// Interrupt coalescing (`ethtool -c`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Coalescing {
    /// The driver adapts the receive side by itself.
    pub is_receive_adaptive: bool,
    /// The driver adapts the transmit side by itself.
    pub is_transmit_adaptive: bool,
    /// Wait after a received packet, microseconds.
    pub receive_usecs: u32,
    /// Packets before an interrupt, receive.
    pub receive_frames_count: u32,
    /// Wait after a sent packet, microseconds.
    pub transmit_usecs: u32,
    /// Packets before an interrupt, transmit.
    pub transmit_frames_count: u32,
}

/// A feature and its state (`ethtool -k`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Feature {
    /// The kernel's name: `tx-tcp-segmentation`.
    pub name: String,
    /// Whether it is on.
    pub is_on: bool,
    /// Whether it can be switched.
    pub may_change: bool,
}

impl Device {
    /// Queues as configured, and at most.
    ///
    /// # Errors
    /// No such device, or its driver does not say.
    pub fn channels(&self) -> Result<Channels, SyscallError> {
        use Parameter::{ChannelsCombined, ChannelsReceive, ChannelsTransmit};
        let words = self.structure(&Place::of(ChannelsReceive))?;
        let (now, max) = readers(&words);
        Ok(Channels {
            receive_count: now(ChannelsReceive),
            transmit_count: now(ChannelsTransmit),
            combined_count: now(ChannelsCombined),
            receive_max_count: max(ChannelsReceive),
            transmit_max_count: max(ChannelsTransmit),
            combined_max_count: max(ChannelsCombined),
        })
    }

    /// Descriptor rings, now and at most.
    ///
    /// # Errors
    /// No such device, or its driver does not say.
    pub fn rings(&self) -> Result<Rings, SyscallError> {
        use Parameter::{RingReceive, RingTransmit};
        let words = self.structure(&Place::of(RingReceive))?;
        let (now, max) = readers(&words);
        Ok(Rings {
            receive_count: now(RingReceive),
            transmit_count: now(RingTransmit),
            receive_max_count: max(RingReceive),
            transmit_max_count: max(RingTransmit),
        })
    }

    /// Interrupt coalescing.
    ///
    /// # Errors
    /// No such device, or its driver does not coalesce.
    pub fn coalescing(&self) -> Result<Coalescing, SyscallError> {
        let words = self.structure(&Place::of(Parameter::CoalesceReceiveUsecs))?;
        let (now, _) = readers(&words);
        Ok(Coalescing {
            is_receive_adaptive: now(Parameter::CoalesceReceiveAdaptive) != 0,
            is_transmit_adaptive: now(Parameter::CoalesceTransmitAdaptive) != 0,
            receive_usecs: now(Parameter::CoalesceReceiveUsecs),
            receive_frames_count: now(Parameter::CoalesceReceiveFrames),
            transmit_usecs: now(Parameter::CoalesceTransmitUsecs),
            transmit_frames_count: now(Parameter::CoalesceTransmitFrames),
        })
    }

    /// The structure in which a parameter stands, as the kernel fills it.
    pub(crate) fn structure(&self, place: &Place) -> Result<Vec<u32>, SyscallError> {
        let mut words = vec![0; place.words];
        words[0] = place.get;
        self.ask("ETHTOOL_G", &mut words)?;
        Ok(words)
    }

    /// The receive queue of each entry of the RSS indirection table (`ethtool -x`).
    ///
    /// # Errors
    /// No such device, or it does not spread by a table.
    pub fn indirection(&self) -> Result<Vec<u32>, SyscallError> {
        // struct ethtool_rxfh_indir: cmd, size, entries. Asked with size 0, the kernel answers
        // with the size it wants; asked with any other than that, it refuses.
        let mut words = [GRXFHINDIR, 0];
        self.ask("ETHTOOL_GRXFHINDIR", &mut words)?;
        let count = words[1] as usize;
        if count > INDIRECTION_ENTRIES_MAX {
            let source = rustix::io::Errno::TOOBIG;
            return Err(SyscallError::new("ioctl(ETHTOOL_GRXFHINDIR)", &self.name, source));
        }
        let mut words = vec![0; 2 + count];
        words[0] = GRXFHINDIR;
        words[1] = u32::try_from(count).unwrap_or(0);
        self.ask("ETHTOOL_GRXFHINDIR", &mut words)?;
        Ok(words.split_off(2))
    }

    /// Every feature and its state.
    ///
    /// # Errors
    /// No such device, or a kernel without feature names.
    pub fn features(&self) -> Result<Vec<Feature>, SyscallError> {
        let names = self.feature_names()?;
        let mut words = [0; 2 + 4 * FEATURES_COUNT_MAX / 32];
        words[0] = GFEATURES;
        words[1] = u32::try_from(names.len().div_ceil(32)).unwrap_or(0);
        self.ask("ETHTOOL_GFEATURES", &mut words)?;
        // Blocks of available, requested, active, never-changed.
        let bit_of =
            |bit: usize, part: usize| words[2 + 4 * (bit / 32) + part] >> (bit % 32) & 1 == 1;
        let feature = |(bit, name): (usize, String)| Feature {
            name,
            is_on: bit_of(bit, 2),
            may_change: bit_of(bit, 0) && !bit_of(bit, 3),
        };
        let named = names.into_iter().enumerate().filter(|(_bit, name)| !name.is_empty());
        Ok(named.map(feature).collect())
    }
}

/// What tells a parameter of a structure, and the most it may be (0 where the structure does not say).
fn readers(words: &[u32]) -> (impl Fn(Parameter) -> u32, impl Fn(Parameter) -> u32) {
    (
        |parameter| Place::of(parameter).value(words),
        |parameter| Place::of(parameter).max(words).unwrap_or(0),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_device_has_features_and_neither_rings_nor_a_table() {
        let device = Device::open("lo").unwrap();
        let features = device.features().unwrap();
        let tso = features.iter().find(|feature| feature.name == "tx-tcp-segmentation").unwrap();
        assert!(tso.is_on && tso.may_change, "{tso:?}");
        let fixed = features.iter().find(|feature| feature.name == "loopback").unwrap();
        assert!(fixed.is_on && !fixed.may_change, "{fixed:?}");
        assert!(device.rings().is_err());
        assert!(device.coalescing().is_err());
        assert!(device.channels().is_err());
        assert!(device.indirection().is_err());
    }
}
