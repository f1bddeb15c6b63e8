//! What a network device says of itself through `SIOCETHTOOL` (kernel `include/uapi/linux/ethtool.h`).
//!
//! Reading only; no privilege needed. Every request is an array of 32-bit words, command first, as
//! long as the longest answer the kernel can write for that command. Callers (`topology`) treat a
//! refused request as "the device does not say".

mod place;
mod settings;

use std::ffi::CStr;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::SyscallError;

pub(crate) use place::Place;
pub use settings::{Channels, Coalescing, Feature, Rings};

const GDRVINFO: u32 = 0x03;
const GSTRINGS: u32 = 0x1b;
const GSSET_INFO: u32 = 0x37;
const GLINKSETTINGS: u32 = 0x4c;

/// `ETH_SS_FEATURES`, the set of feature names.
const SET_FEATURES: u32 = 4;
/// `ETH_GSTRING_LEN`.
const NAME_BYTES: usize = 32;
/// More feature bits than any kernel has (64 in Linux 6.18); the bound on what we let it write.
pub(crate) const FEATURES_COUNT_MAX: usize = 1024;
/// `link_mode_masks_nwords` is a signed byte, and there are three masks.
const LINK_MODE_WORDS_MAX: usize = 3 * 127;

/// Driver and bus address of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriverInfo {
    /// Kernel driver: `mlx5_core`, `tun`, `veth`.
    pub driver: String,
    /// Where the device sits, `0000:41:00.0` for PCI; empty when it sits nowhere.
    pub bus: String,
}

/// One device of the calling thread's network namespace.
#[derive(Debug)]
pub struct Device {
    socket: OwnedFd,
    name: String,
    request_name: [libc::c_char; libc::IFNAMSIZ],
}

/// What a device says of its link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkSettings {
    /// Speed in Mbit/s; `None` when the device does not know it (`SPEED_UNKNOWN`).
    pub speed_mbit_per_s: Option<u32>,
    /// Whether the connector is `PORT_FIBRE`.
    pub is_fibre: bool,
}

/// `PORT_FIBRE` (kernel `include/uapi/linux/ethtool.h`).
pub(crate) const PORT_FIBRE: u8 = 3;

impl Device {
    /// The device of this name; whether it exists shows with the first question.
    ///
    /// # Errors
    /// The name is too long or holds a NUL, or no socket is to be had.
    pub fn open(name: &str) -> Result<Self, SyscallError> {
        let mut request_name: [libc::c_char; libc::IFNAMSIZ] = [0; libc::IFNAMSIZ];
        if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.bytes().any(|byte| byte == 0) {
            let source = rustix::io::Errno::NODEV;
            return Err(SyscallError::new("ioctl(SIOCETHTOOL)", name, source));
        }
        for (to, from) in request_name.iter_mut().zip(name.bytes()) {
            *to = libc::c_char::from_ne_bytes([from]);
        }
        let socket = rustix::net::socket_with(
            AddressFamily::INET,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(|error| SyscallError::new("socket", "AF_INET", error))?;
        Ok(Self { socket, name: name.to_owned(), request_name })
    }

    /// Driver and bus address.
    ///
    /// # Errors
    /// No such device, or it has no driver information (loopback).
    pub fn driver(&self) -> Result<DriverInfo, SyscallError> {
        // cmd, then driver, version, firmware and bus of 32 bytes each, then more we do not read.
        let mut words = [0; 49];
        words[0] = GDRVINFO;
        self.ask("ETHTOOL_GDRVINFO", &mut words)?;
        Ok(DriverInfo { driver: text_at(&words, 1), bus: text_at(&words, 25) })
    }

    /// The device's link.
    ///
    /// # Errors
    /// No such device, or it has no link settings.
    pub fn link(&self) -> Result<LinkSettings, SyscallError> {
        let mut words = [0; 12 + LINK_MODE_WORDS_MAX];
        words[0] = GLINKSETTINGS;
        // Two steps by design of the interface: asked with no mask words, the kernel answers with
        // the negated number it wants and nothing else.
        self.ask("ETHTOOL_GLINKSETTINGS", &mut words)?;
        let wanted = words[3].to_ne_bytes()[3].cast_signed();
        if wanted < 0 {
            words.fill(0);
            words[0] = GLINKSETTINGS;
            words[3] = u32::from_ne_bytes([0, 0, 0, wanted.wrapping_neg().cast_unsigned()]);
            self.ask("ETHTOOL_GLINKSETTINGS", &mut words)?;
        }
        Ok(LinkSettings {
            speed_mbit_per_s: Some(words[1]).filter(|&speed| speed != 0 && speed != u32::MAX),
            is_fibre: words[2].to_ne_bytes()[1] == PORT_FIBRE,
        })
    }

    /// Kernel names of the features that are on: `tx-tcp-segmentation`, `rx-gro`.
    ///
    /// # Errors
    /// No such device, or a kernel without feature names.
    pub fn active_features(&self) -> Result<Vec<String>, SyscallError> {
        let features = self.features()?;
        let active = features.into_iter().filter(|feature| feature.is_on);
        Ok(active.map(|feature| feature.name).collect())
    }

    pub(crate) fn feature_names(&self) -> Result<Vec<String>, SyscallError> {
        // cmd, reserved, 64-bit mask of wanted sets, then a length for each set found.
        let mut info = [0; 5];
        info[0] = GSSET_INFO;
        let mask = (1u64 << SET_FEATURES).to_ne_bytes();
        for (word, bytes) in info[2..4].iter_mut().zip(mask.chunks_exact(4)) {
            *word = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        self.ask("ETHTOOL_GSSET_INFO", &mut info)?;
        let count = info[4] as usize;
        if count > FEATURES_COUNT_MAX {
            let source = rustix::io::Errno::TOOBIG;
            return Err(SyscallError::new("ioctl(ETHTOOL_GSSET_INFO)", &self.name, source));
        }
        // The number of feature names is a constant of the running kernel, so what GSTRINGS writes
        // cannot outgrow what GSSET_INFO has just said.
        let mut words = vec![0; 3 + FEATURES_COUNT_MAX * NAME_BYTES / 4];
        words[0] = GSTRINGS;
        words[1] = SET_FEATURES;
        words[2] = info[4];
        self.ask("ETHTOOL_GSTRINGS", &mut words)?;
        Ok((0..count).map(|index| text_at(&words, 3 + index * NAME_BYTES / 4)).collect())
    }

    /// One request; `words` starts with the command and is as long as its longest answer.
    pub(crate) fn ask(&self, call: &'static str, words: &mut [u32]) -> Result<(), SyscallError> {
        let mut request = libc::ifreq {
            ifr_name: self.request_name,
            ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_data: words.as_mut_ptr().cast() },
        };
        // SAFETY: the descriptor is open; `request` is an `ifreq` with a NUL-terminated name; its
        // data pointer is valid for reads and writes for as many bytes as the kernel touches,
        // because every caller in this module passes the longest answer of its command.
        let answer = unsafe {
            libc::ioctl(self.socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request)
        };
        if answer < 0 { Err(SyscallError::last(call, &self.name)) } else { Ok(()) }
    }
}

/// The NUL-terminated text of at most 32 bytes that starts at a word; bytes that are not UTF-8
/// become replacement characters.
fn text_at(words: &[u32], index: usize) -> String {
    let mut bytes = [0; NAME_BYTES + 1];
    let words = words.get(index..).unwrap_or(&[]);
    for (to, word) in bytes[..NAME_BYTES].chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    CStr::from_bytes_until_nul(&bytes)
        .map_or_else(|_no_nul| String::new(), |text| text.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_device_offloads_and_has_no_speed() {
        let device = Device::open("lo").unwrap();
        let features = device.active_features().unwrap();
        assert!(features.iter().any(|name| name == "tx-tcp-segmentation"), "{features:?}");
        assert!(device.link().is_err());
    }

    #[test]
    fn names_no_device_can_have_are_refused() {
        for name in ["", "a-name-of-16-byt", "nul\0", "no-such-dev0"] {
            assert!(Device::open(name).and_then(|device| device.driver()).is_err(), "{name:?}");
        }
    }

    #[test]
    fn text_ends_at_its_nul_or_its_field() {
        let word = |text: &[u8; 4]| u32::from_ne_bytes(*text);
        assert_eq!(text_at(&[0, word(b"veth"), word(b"\0\0\0x")], 1), "veth");
        assert_eq!(text_at(&[word(b"aaaa"); 20], 0).len(), 32);
        assert_eq!(text_at(&[], 4), "");
    }
}
