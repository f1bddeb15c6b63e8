//! Writing a message's body: a fixed part, then attributes.

use core::net::IpAddr;

use thiserror::Error;

use crate::attribute::{HEADING_BYTES, NESTED, RawAttribute};
use crate::prefix::octets;

/// An attribute's value passes the 65 531 bytes that its heading can count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("netlink attribute {kind} is longer than 65531 bytes")]
pub struct TooLongError {
    /// The kind of the attribute.
    pub kind: u16,
}

/// A body under construction. Every part is padded to 4 bytes.
#[derive(Debug, Default)]
pub struct Encoder {
    bytes: Vec<u8>,
    too_long: Option<TooLongError>,
}

impl Encoder {
    /// Appends bytes that have no heading: the fixed part of a body.
    pub fn fixed(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// Appends an attribute.
    pub fn attribute(&mut self, kind: u16, value: &[u8]) {
        match u16::try_from(HEADING_BYTES + value.len()) {
            Ok(length) => {
                self.bytes.extend_from_slice(&length.to_ne_bytes());
                self.bytes.extend_from_slice(&kind.to_ne_bytes());
                self.fixed(value);
            }
            Err(_longer) => self.too_long = Some(TooLongError { kind }),
        }
    }

    /// Appends a number of one byte.
    pub fn u8(&mut self, kind: u16, value: u8) {
        self.attribute(kind, &[value]);
    }

    /// Appends a number in the host's byte order.
    pub fn u16(&mut self, kind: u16, value: u16) {
        self.attribute(kind, &value.to_ne_bytes());
    }

    /// Appends a number in the host's byte order.
    pub fn u32(&mut self, kind: u16, value: u32) {
        self.attribute(kind, &value.to_ne_bytes());
    }

    /// Appends a text and the NUL that ends it.
    pub fn text(&mut self, kind: u16, text: &str) {
        self.attribute(kind, &[text.as_bytes(), b"\0"].concat());
    }

    /// Appends an address of 4 or 16 bytes.
    pub fn address(&mut self, kind: u16, address: IpAddr) {
        self.attribute(kind, &octets(address));
    }

    /// Appends an attribute of attributes, marked as such (`NLA_F_NESTED`).
    pub fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) {
        self.container(kind | NESTED, fill);
    }

    /// Appends an attribute of attributes of those old kinds that the kernel does not mark.
    pub fn container(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        fill(&mut inner);
        self.too_long = self.too_long.or(inner.too_long);
        self.attribute(kind, &inner.bytes);
    }

    /// Appends attributes as they were read.
    pub fn raw(&mut self, attributes: &[RawAttribute]) {
        for attribute in attributes {
            self.attribute(attribute.flagged_kind, &attribute.value);
        }
    }

    /// Appends `struct rtnexthop`: length, two bytes, a number, attributes.
    pub(crate) fn headed(&mut self, bytes: [u8; 2], number: u32, inner: Self) {
        self.too_long = self.too_long.or(inner.too_long);
        match u16::try_from(2 * HEADING_BYTES + inner.bytes.len()) {
            Ok(length) => {
                self.fixed(&[&length.to_ne_bytes()[..], &bytes].concat());
                self.fixed(&number.to_ne_bytes());
                self.fixed(&inner.bytes);
            }
            Err(_longer) => self.too_long = Some(TooLongError { kind: 0 }),
        }
    }

    /// The body.
    ///
    /// # Errors
    /// An attribute does not fit.
    pub fn finish(self) -> Result<Vec<u8>, TooLongError> {
        self.too_long.map_or(Ok(self.bytes), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_and_nested() {
        let mut encoder = Encoder::default();
        encoder.nested(18, |info| info.text(1, "veth"));
        let bytes = encoder.finish().unwrap();
        assert_eq!(bytes.len(), 4 + 4 + 8);
        assert_eq!(&bytes[..2], &16_u16.to_ne_bytes());
        assert_eq!(&bytes[2..4], &(18 | NESTED).to_ne_bytes());
        assert_eq!(&bytes[4..6], &9_u16.to_ne_bytes());
        assert_eq!(&bytes[8..16], b"veth\0\0\0\0");
    }

    #[test]
    fn what_a_heading_cannot_count_is_refused() {
        let mut encoder = Encoder::default();
        encoder.attribute(7, &[0; 65_531]);
        assert_eq!(encoder.finish().map(|bytes| bytes.len()), Ok(65_536));
        let mut encoder = Encoder::default();
        encoder.container(9, |inner| inner.attribute(7, &[0; 65_532]));
        assert_eq!(encoder.finish(), Err(TooLongError { kind: 7 }));
    }
}
