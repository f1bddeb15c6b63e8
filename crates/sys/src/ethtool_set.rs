//! Changing what a device does through `SIOCETHTOOL` (kernel `include/uapi/linux/ethtool.h`): rings,
//! channels, coalescing, features, the RSS indirection table. Each is read, changed in one place and
//! written back, so that what is not named stays as it is. Needs `CAP_NET_ADMIN`.

use crate::SyscallError;
use crate::ethtool::{Device, FEATURES_COUNT_MAX};

const GCOALESCE: u32 = 0x0e;
const SCOALESCE: u32 = 0x0f;
const GRINGPARAM: u32 = 0x10;
const SRINGPARAM: u32 = 0x11;
const GRXFHINDIR: u32 = 0x38;
const SRXFHINDIR: u32 = 0x39;
const GFEATURES: u32 = 0x3a;
const SFEATURES: u32 = 0x3b;
const GCHANNELS: u32 = 0x3c;
const SCHANNELS: u32 = 0x3d;

/// Longest of the structures here: `struct ethtool_coalesce`, 23 words.
const STRUCTURE_WORDS_MAX: usize = 23;
/// More entries than any device has; the bound on what we let the kernel write.
const INDIRECTION_COUNT_MAX: usize = 4096;

/// One number of a device, by its name in the kernel's structures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Parameter {
    /// Receive descriptors (`ethtool -g`, RX).
    RingReceive,
    /// Transmit descriptors (`ethtool -g`, TX).
    RingTransmit,
    /// Receive-only channels (`ethtool -l`, RX).
    ChannelsReceive,
    /// Transmit-only channels (`ethtool -l`, TX).
    ChannelsTransmit,
    /// Channels that do both (`ethtool -l`, Combined).
    ChannelsCombined,
    /// Wait after a received packet, microseconds (`ethtool -c`, rx-usecs).
    CoalesceReceiveUsecs,
    /// Packets before an interrupt, receive (`rx-frames`).
    CoalesceReceiveFrames,
    /// Wait after a sent packet, microseconds (`tx-usecs`).
    CoalesceTransmitUsecs,
    /// Packets before an interrupt, transmit (`tx-frames`).
    CoalesceTransmitFrames,
    /// The driver adapts the receive side, 0 or 1 (`Adaptive RX`).
    CoalesceReceiveAdaptive,
    /// The driver adapts the transmit side, 0 or 1 (`Adaptive TX`).
    CoalesceTransmitAdaptive,
}

/// A number of a device and the most it may be, where the device says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParameterValue {
    /// Now.
    pub value: u32,
    /// At most.
    pub max: Option<u32>,
}

/// Where a parameter stands.
struct Place {
    get: u32,
    set: u32,
    words: usize,
    word: usize,
    max_word: Option<usize>,
}

impl Parameter {
    fn place(self) -> Place {
        let ring = |word, max_word| Place {
            get: GRINGPARAM,
            set: SRINGPARAM,
            words: 9,
            word,
            max_word: Some(max_word),
        };
        let channels = |word, max_word| Place {
            get: GCHANNELS,
            set: SCHANNELS,
            words: 9,
            word,
            max_word: Some(max_word),
        };
        let coalesce =
            |word| Place { get: GCOALESCE, set: SCOALESCE, words: 23, word, max_word: None };
        match self {
            Self::RingReceive => ring(5, 1),
            Self::RingTransmit => ring(8, 4),
            Self::ChannelsReceive => channels(5, 1),
            Self::ChannelsTransmit => channels(6, 2),
            Self::ChannelsCombined => channels(8, 4),
            Self::CoalesceReceiveUsecs => coalesce(1),
            Self::CoalesceReceiveFrames => coalesce(2),
            Self::CoalesceTransmitUsecs => coalesce(5),
            Self::CoalesceTransmitFrames => coalesce(6),
            Self::CoalesceReceiveAdaptive => coalesce(10),
            Self::CoalesceTransmitAdaptive => coalesce(11),
        }
    }
}

/// A feature's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeatureState {
    /// On.
    pub is_on: bool,
    /// May be switched: the device offers it and never fixed it.
    pub may_change: bool,
}

/// Reads a number of the device.
///
/// # Errors
/// No such device, or its driver does not say.
pub fn parameter(device: &Device, parameter: Parameter) -> Result<ParameterValue, SyscallError> {
    let place = parameter.place();
    let words = structure(device, &place)?;
    let max = place.max_word.map(|word| words[word]);
    Ok(ParameterValue { value: words[place.word], max })
}

/// Sets one number of the device and leaves the others of its structure.
///
/// # Errors
/// No `CAP_NET_ADMIN`, a value the driver refuses, or a driver that lets nobody set it.
pub fn set_parameter(
    device: &Device,
    parameter: Parameter,
    value: u32,
) -> Result<(), SyscallError> {
    let place = parameter.place();
    let mut words = structure(device, &place)?;
    words[0] = place.set;
    words[place.word] = value;
    device.ask("ETHTOOL_S", &mut words)
}

fn structure(device: &Device, place: &Place) -> Result<Vec<u32>, SyscallError> {
    let mut words = vec![0; STRUCTURE_WORDS_MAX.max(place.words)];
    words[0] = place.get;
    device.ask("ETHTOOL_G", &mut words)?;
    Ok(words)
}

/// The state of a feature, by the kernel's name of it: `rx-gro`, `tx-tcp-segmentation`.
///
/// # Errors
/// No such device, or a kernel without a feature of that name (`ENOENT`).
pub fn feature(device: &Device, name: &str) -> Result<FeatureState, SyscallError> {
    let (bit, count) = feature_bit(device, name)?;
    let mut words = vec![0; 2 + 4 * FEATURES_COUNT_MAX / 32];
    words[0] = GFEATURES;
    words[1] = u32::try_from(count.div_ceil(32)).unwrap_or(0);
    device.ask("ETHTOOL_GFEATURES", &mut words)?;
    // Blocks of available, requested, active, never-changed.
    let is_set = |part: usize| words[2 + 4 * (bit / 32) + part] >> (bit % 32) & 1 == 1;
    Ok(FeatureState { is_on: is_set(2), may_change: is_set(0) && !is_set(3) })
}

/// Switches a feature.
///
/// # Errors
/// No `CAP_NET_ADMIN`, no such feature, or a device that fixed it (`EOPNOTSUPP`).
pub fn set_feature(device: &Device, name: &str, is_on: bool) -> Result<(), SyscallError> {
    let (bit, count) = feature_bit(device, name)?;
    let blocks = count.div_ceil(32);
    let mut words = vec![0; 2 + 2 * FEATURES_COUNT_MAX / 32];
    words[0] = SFEATURES;
    words[1] = u32::try_from(blocks).unwrap_or(0);
    // Blocks of valid, requested.
    words[2 + 2 * (bit / 32)] = 1 << (bit % 32);
    words[2 + 2 * (bit / 32) + 1] = u32::from(is_on) << (bit % 32);
    device.ask("ETHTOOL_SFEATURES", &mut words)
}

fn feature_bit(device: &Device, name: &str) -> Result<(usize, usize), SyscallError> {
    let names = device.feature_names()?;
    let bit = names.iter().position(|known| known == name);
    let missing = || SyscallError::new("ETHTOOL_GFEATURES", name, rustix::io::Errno::NOENT);
    Ok((bit.ok_or_else(missing)?, names.len()))
}

/// The RSS indirection table: for each slot of the hash, the receive queue.
///
/// # Errors
/// No such device, or one without a table.
pub fn rss_table(device: &Device) -> Result<Vec<u32>, SyscallError> {
    // Asked with length 0, the kernel answers with the length and nothing else.
    let mut head = [GRXFHINDIR, 0];
    device.ask("ETHTOOL_GRXFHINDIR", &mut head)?;
    let count = head[1] as usize;
    if count > INDIRECTION_COUNT_MAX {
        return Err(SyscallError::new("ETHTOOL_GRXFHINDIR", "table", rustix::io::Errno::TOOBIG));
    }
    let mut words = vec![0; 2 + INDIRECTION_COUNT_MAX];
    words[..2].copy_from_slice(&[GRXFHINDIR, head[1]]);
    device.ask("ETHTOOL_GRXFHINDIR", &mut words)?;
    Ok(words[2..2 + count].to_vec())
}

/// Sets the RSS indirection table; its length must be the device's.
///
/// # Errors
/// No `CAP_NET_ADMIN`, another length, or a queue that does not exist.
pub fn set_rss_table(device: &Device, table: &[u32]) -> Result<(), SyscallError> {
    let length = u32::try_from(table.len().min(INDIRECTION_COUNT_MAX)).unwrap_or(0);
    let mut words = vec![SRXFHINDIR, length];
    words.extend(table.iter().take(INDIRECTION_COUNT_MAX));
    device.ask("ETHTOOL_SRXFHINDIR", &mut words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_device_has_features_and_nothing_else() {
        let device = Device::open("lo").unwrap();
        let segmentation = feature(&device, "tx-tcp-segmentation").unwrap();
        assert!(segmentation.is_on);
        assert!(parameter(&device, Parameter::RingReceive).is_err());
        assert!(rss_table(&device).is_err());
        let unknown = feature(&device, "no-such-feature").unwrap_err();
        assert_eq!(unknown.source.kind(), std::io::ErrorKind::NotFound);
    }
}
