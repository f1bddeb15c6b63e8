//! Attributes: length, kind, value, each padded to 4 bytes. A value may hold attributes again.

use core::net::IpAddr;

use crate::bytes::{address_of, text_of, u16_of, u32_of, u64_of};
use crate::object::MalformedError;

/// `NLA_F_NESTED`: the value holds attributes.
pub(crate) const NESTED: u16 = 1 << 15;
/// Without `NLA_F_NESTED` and `NLA_F_NET_BYTEORDER`.
const KIND_MASK: u16 = 0x3fff;
/// Length of `struct nlattr`.
pub(crate) const HEADING_BYTES: usize = 4;

/// One attribute of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attribute<'a> {
    /// The kind with its flag bits, as it stands in the message.
    pub flagged_kind: u16,
    /// What follows the heading, without padding.
    pub value: &'a [u8],
}

/// An attribute kept as it was read, to be written again unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RawAttribute {
    /// The kind with its flag bits.
    pub flagged_kind: u16,
    /// The value without padding.
    pub value: Vec<u8>,
}

impl<'a> Attribute<'a> {
    /// The kind without its flag bits.
    #[must_use]
    pub fn kind(&self) -> u16 {
        self.flagged_kind & KIND_MASK
    }

    pub(crate) fn keep(&self) -> RawAttribute {
        RawAttribute { flagged_kind: self.flagged_kind, value: self.value.to_vec() }
    }

    pub(crate) fn u8(&self, object: &'static str) -> Result<u8, MalformedError> {
        self.exactly(object, 1, |value| value.first().copied())
    }

    pub(crate) fn u16(&self, object: &'static str) -> Result<u16, MalformedError> {
        self.exactly(object, 2, u16_of)
    }

    pub(crate) fn u32(&self, object: &'static str) -> Result<u32, MalformedError> {
        self.exactly(object, 4, u32_of)
    }

    pub(crate) fn u64(&self, object: &'static str) -> Result<u64, MalformedError> {
        self.exactly(object, 8, u64_of)
    }

    pub(crate) fn address(&self, object: &'static str) -> Result<IpAddr, MalformedError> {
        address_of(self.value).ok_or_else(|| self.malformed(object))
    }

    pub(crate) fn text(&self, object: &'static str) -> Result<String, MalformedError> {
        text_of(self.value).ok_or_else(|| self.malformed(object))
    }

    /// A text, or the attribute as it is where it is not UTF-8: names of interfaces need not be.
    pub(crate) fn text_or_keep(&self, field: &mut Option<String>, other: &mut Vec<RawAttribute>) {
        match text_of(self.value) {
            Some(text) => *field = Some(text),
            None => other.push(self.keep()),
        }
    }

    fn exactly<T>(
        &self,
        object: &'static str,
        bytes_count: usize,
        read: impl Fn(&'a [u8]) -> Option<T>,
    ) -> Result<T, MalformedError> {
        (self.value.len() == bytes_count)
            .then(|| read(self.value))
            .flatten()
            .ok_or_else(|| self.malformed(object))
    }

    pub(crate) fn malformed(&self, object: &'static str) -> MalformedError {
        MalformedError::Attribute { object, kind: self.kind(), bytes_count: self.value.len() }
    }
}

/// The attributes of a byte slice: kind without flag bits, and value. Ends at the first that is cut
/// off; parsers of objects report the cut instead.
#[derive(Debug, Clone)]
pub struct Attributes<'a> {
    rest: &'a [u8],
}

impl<'a> Attributes<'a> {
    /// The attributes that begin at the first byte.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    fn advance(&mut self) -> Option<Attribute<'a>> {
        let length = usize::from(u16_of(self.rest)?);
        let flagged_kind = u16_of(self.rest.get(2..)?)?;
        let value = self.rest.get(HEADING_BYTES..length)?;
        self.rest = self.rest.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some(Attribute { flagged_kind, value })
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        self.advance().map(|attribute| (attribute.kind(), attribute.value))
    }
}

/// The first attribute of a kind.
#[must_use]
pub fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    Attributes::new(bytes).find(|&(found, _value)| found == kind).map(|(_kind, value)| value)
}

/// Hands every attribute to `each`; an attribute that is cut off is an error.
pub(crate) fn read<'a>(
    object: &'static str,
    bytes: &'a [u8],
    mut each: impl FnMut(Attribute<'a>) -> Result<(), MalformedError>,
) -> Result<(), MalformedError> {
    let mut attributes = Attributes::new(bytes);
    while let Some(attribute) = attributes.advance() {
        each(attribute)?;
    }
    if attributes.rest.is_empty() { Ok(()) } else { Err(MalformedError::Cut { object }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_shorter_than_its_own_heading_ends_the_walk() {
        assert_eq!(Attributes::new(&[3, 0, 1, 0, 9, 9, 9, 9]).count(), 0);
        assert_eq!(Attributes::new(&[4, 0, 1, 0, 5, 0, 2, 0, 7]).count(), 2);
    }

    #[test]
    fn a_cut_is_reported_where_an_object_is_parsed() {
        let whole = [5, 0, 1, 0, 9, 0, 0, 0];
        assert_eq!(read("test", &whole, |_| Ok(())), Ok(()));
        assert_eq!(read("test", &whole[..5], |_| Ok(())), Ok(()));
        let cut = Err(MalformedError::Cut { object: "test" });
        assert_eq!(read("test", &whole[..4], |_| Ok(())), cut);
        assert_eq!(read("test", &[8, 0, 1], |_| Ok(())), cut);
    }

    #[test]
    fn any_bytes_end() {
        bolero::check!().for_each(|bytes: &[u8]| {
            assert!(Attributes::new(bytes).count() <= bytes.len() / HEADING_BYTES);
            let kept: usize = Attributes::new(bytes).map(|(_kind, value)| value.len()).sum();
            assert!(kept <= bytes.len());
        });
    }
}
