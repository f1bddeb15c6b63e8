//! Changing what a device does through `SIOCETHTOOL` (kernel `include/uapi/linux/ethtool.h`): rings,
//! channels, coalescing, features, the RSS indirection table. Each is read, changed in one place and
//! written back, so that what is not named stays as it is. Needs `CAP_NET_ADMIN`.

use settings::Parameter;

use crate::SyscallError;
use crate::ethtool::{Device, FEATURES_COUNT_MAX, Feature, Place};

const SRXFHINDIR: u32 = 0x39;
const SFEATURES: u32 = 0x3b;

/// A number of a device and the most it may be, where the device says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParameterValue {
    /// Current value.
    pub value: u32,
    /// Largest value, where the device reports one.
    pub max: Option<u32>,
}

/// Reads a number of the device.
///
/// # Errors
/// No such device, or its driver does not say.
pub fn parameter(device: &Device, parameter: Parameter) -> Result<ParameterValue, SyscallError> {
    let place = Place::of(parameter);
    let words = device.structure(&place)?;
    Ok(ParameterValue { value: place.value(&words), max: place.max(&words) })
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
    let place = Place::of(parameter);
    let mut words = device.structure(&place)?;
    words[0] = place.set;
    words[place.word] = value;
    device.ask("ETHTOOL_S", &mut words)
}

/// The state of a feature, by the kernel's name of it: `rx-gro`, `tx-tcp-segmentation`.
///
/// # Errors
/// No such device, or a kernel without a feature of that name (`ENOENT`).
pub fn feature(device: &Device, name: &str) -> Result<Feature, SyscallError> {
    let known = device.features()?.into_iter().find(|feature| feature.name == name);
    known.ok_or_else(|| no_feature(name))
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
    Ok((bit.ok_or_else(|| no_feature(name))?, names.len()))
}

fn no_feature(name: &str) -> SyscallError {
    SyscallError::new("ETHTOOL_GFEATURES", name, rustix::io::Errno::NOENT)
}

/// Sets the RSS indirection table; its length must be the device's.
///
/// # Errors
/// No `CAP_NET_ADMIN`, another length, or a queue that does not exist.
pub fn set_rss_table(device: &Device, table: &[u32]) -> Result<(), SyscallError> {
    // The kernel compares the length with the device's before it reads the entries.
    let length = u32::try_from(table.len()).unwrap_or(u32::MAX);
    let mut words = vec![SRXFHINDIR, length];
    words.extend(table);
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
        let unknown = feature(&device, "no-such-feature").unwrap_err();
        assert_eq!(unknown.source.kind(), std::io::ErrorKind::NotFound);
    }
}
