//! Numbers, texts and addresses at the beginning of a byte slice; `None` where it is too short.

use core::net::IpAddr;

/// A number in the host's byte order.
#[must_use]
pub fn u16_of(bytes: &[u8]) -> Option<u16> {
    bytes.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
}

/// A number in the host's byte order.
#[must_use]
pub fn u32_of(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

/// A number in the host's byte order.
#[must_use]
pub fn u64_of(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))
}

/// A text up to its NUL or the end; `None` if it is empty or not UTF-8.
#[must_use]
pub fn text_of(value: &[u8]) -> Option<String> {
    let text = value.split(|&byte| byte == 0).next().unwrap_or(&[]);
    core::str::from_utf8(text).ok().filter(|text| !text.is_empty()).map(str::to_owned)
}

/// An IPv4 address of 4 bytes or an IPv6 address of 16.
#[must_use]
pub fn address_of(value: &[u8]) -> Option<IpAddr> {
    <[u8; 4]>::try_from(value)
        .map(IpAddr::from)
        .or_else(|_longer| <[u8; 16]>::try_from(value).map(IpAddr::from))
        .ok()
}
