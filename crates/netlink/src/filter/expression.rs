//! Expressions of a rule: what is loaded, compared and set. They hand values on in registers.

use crate::attribute::{RawAttribute, attribute, read};
use crate::bytes::u32_of;
use crate::encoder::Encoder;
use crate::object::MalformedError;

const NFTA_EXPR_NAME: u16 = 1;
const NFTA_EXPR_DATA: u16 = 2;
const NFTA_DATA_VALUE: u16 = 1;
const NFTA_META_DREG: u16 = 1;
const NFTA_META_KEY: u16 = 2;
const NFTA_META_SREG: u16 = 3;
const NFTA_PAYLOAD_DREG: u16 = 1;
const NFTA_PAYLOAD_BASE: u16 = 2;
const NFTA_PAYLOAD_OFFSET: u16 = 3;
const NFTA_PAYLOAD_LEN: u16 = 4;
const NFTA_CMP_SREG: u16 = 1;
const NFTA_CMP_OP: u16 = 2;
const NFTA_CMP_DATA: u16 = 3;
const NFTA_IMMEDIATE_DREG: u16 = 1;
const NFTA_IMMEDIATE_DATA: u16 = 2;
/// `NFT_REG_1`, the only one that is written here; what uses others is kept as it was read.
const REGISTER: u32 = 1;
const NAME: &str = "filter expression";

/// A step of a rule, over one register.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Expression {
    /// Loads something that the kernel knows of a packet.
    LoadMeta(MetaKey),
    /// Gives a packet the property in the register.
    SetMeta(MetaKey),
    /// Loads bytes of a packet.
    LoadPayload {
        /// Where the offset counts from.
        base: PayloadBase,
        /// First byte.
        offset_bytes: u32,
        /// Number of bytes.
        length_bytes: u32,
    },
    /// The rule goes on if the register compares so with these bytes.
    Compare(Comparison, Vec<u8>),
    /// Loads these bytes.
    Load(Vec<u8>),
    /// Anything else, as it was read.
    Other(Vec<RawAttribute>),
}

/// Properties of packets (`NFT_META_…`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MetaKey {
    /// The mark, 4 bytes in the host's order.
    Mark,
    /// Name of the interface that it came by, 16 bytes filled up with zeros.
    InputName,
    /// Type of that interface (`ARPHRD_…`), 2 bytes in the host's order.
    InputType,
}

/// Where offsets into a packet count from (`NFT_PAYLOAD_…`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PayloadBase {
    /// The header of the link layer.
    Link,
    /// The header of the network layer.
    Network,
}

/// How values are compared (`NFT_CMP_…`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Comparison {
    /// They are equal.
    Equal,
    /// They differ.
    Unequal,
}

const META_KEYS: [(MetaKey, u32); 3] =
    [(MetaKey::Mark, 3), (MetaKey::InputName, 6), (MetaKey::InputType, 8)];
const BASES: [(PayloadBase, u32); 2] = [(PayloadBase::Link, 0), (PayloadBase::Network, 1)];
const COMPARISONS: [(Comparison, u32); 2] = [(Comparison::Equal, 0), (Comparison::Unequal, 1)];

impl Expression {
    pub(super) fn parse(element: &[u8]) -> Result<Self, MalformedError> {
        let mut all = Vec::new();
        read(NAME, element, |attribute| {
            all.push(attribute.keep());
            Ok(())
        })?;
        let name = attribute(element, NFTA_EXPR_NAME).map(without_nul);
        let data = attribute(element, NFTA_EXPR_DATA).unwrap_or(&[]);
        let known = name.and_then(|name| Self::known(name, data));
        // What has more to it than is known here is another expression.
        let is_whole = |known: &Self| parts_count(data) == known.parts_count();
        Ok(known.filter(is_whole).unwrap_or(Self::Other(all)))
    }

    fn known(name: &[u8], data: &[u8]) -> Option<Self> {
        let number = |kind| attribute(data, kind).and_then(u32_of).map(u32::from_be);
        let is_register = |kind| number(kind) == Some(REGISTER);
        let value = |kind| attribute(attribute(data, kind)?, NFTA_DATA_VALUE).map(<[u8]>::to_vec);
        match name {
            b"meta" if is_register(NFTA_META_DREG) => {
                find(&META_KEYS, number(NFTA_META_KEY)?).map(Self::LoadMeta)
            }
            b"meta" if is_register(NFTA_META_SREG) => {
                find(&META_KEYS, number(NFTA_META_KEY)?).map(Self::SetMeta)
            }
            b"payload" if is_register(NFTA_PAYLOAD_DREG) => Some(Self::LoadPayload {
                base: find(&BASES, number(NFTA_PAYLOAD_BASE)?)?,
                offset_bytes: number(NFTA_PAYLOAD_OFFSET)?,
                length_bytes: number(NFTA_PAYLOAD_LEN)?,
            }),
            b"cmp" if is_register(NFTA_CMP_SREG) => {
                let how = find(&COMPARISONS, number(NFTA_CMP_OP)?)?;
                Some(Self::Compare(how, value(NFTA_CMP_DATA)?))
            }
            b"immediate" if is_register(NFTA_IMMEDIATE_DREG) => {
                value(NFTA_IMMEDIATE_DATA).map(Self::Load)
            }
            _other => None,
        }
    }

    /// Attributes of the data.
    fn parts_count(&self) -> usize {
        match self {
            Self::LoadMeta(_) | Self::SetMeta(_) | Self::Load(_) => 2,
            Self::Compare(..) => 3,
            Self::LoadPayload { .. } => 4,
            Self::Other(_) => 0,
        }
    }

    pub(super) fn encode(&self, to: &mut Encoder) {
        let (name, data) = match self {
            Self::Other(all) => return to.raw(all),
            Self::LoadMeta(key) => {
                ("meta", vec![(NFTA_META_DREG, REGISTER), (NFTA_META_KEY, number(&META_KEYS, key))])
            }
            Self::SetMeta(key) => {
                ("meta", vec![(NFTA_META_KEY, number(&META_KEYS, key)), (NFTA_META_SREG, REGISTER)])
            }
            Self::LoadPayload { base, offset_bytes, length_bytes } => (
                "payload",
                vec![
                    (NFTA_PAYLOAD_DREG, REGISTER),
                    (NFTA_PAYLOAD_BASE, number(&BASES, base)),
                    (NFTA_PAYLOAD_OFFSET, *offset_bytes),
                    (NFTA_PAYLOAD_LEN, *length_bytes),
                ],
            ),
            Self::Compare(how, _) => {
                ("cmp", vec![(NFTA_CMP_SREG, REGISTER), (NFTA_CMP_OP, number(&COMPARISONS, how))])
            }
            Self::Load(_) => ("immediate", vec![(NFTA_IMMEDIATE_DREG, REGISTER)]),
        };
        to.text(NFTA_EXPR_NAME, name);
        to.nested(NFTA_EXPR_DATA, |inner| {
            for (kind, number) in data {
                inner.attribute(kind, &number.to_be_bytes());
            }
            match self {
                Self::Compare(_, value) => {
                    inner.nested(NFTA_CMP_DATA, |one| one.attribute(NFTA_DATA_VALUE, value));
                }
                Self::Load(value) => {
                    inner.nested(NFTA_IMMEDIATE_DATA, |one| one.attribute(NFTA_DATA_VALUE, value));
                }
                _without_bytes => {}
            }
        });
    }
}

fn without_nul(name: &[u8]) -> &[u8] {
    name.strip_suffix(b"\0").unwrap_or(name)
}

fn parts_count(data: &[u8]) -> usize {
    crate::attribute::Attributes::new(data).count()
}

fn find<T: Copy>(known: &[(T, u32)], wanted: u32) -> Option<T> {
    known.iter().find(|(_, number)| *number == wanted).map(|(one, _)| *one)
}

/// Every value of the enumerations is in its table.
fn number<T: PartialEq>(known: &[(T, u32)], wanted: &T) -> u32 {
    known.iter().find(|(one, _)| one == wanted).map_or(0, |(_, number)| *number)
}
