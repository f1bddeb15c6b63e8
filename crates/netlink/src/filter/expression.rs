//! Expressions of a rule: what is loaded, compared and set. They hand values on in registers.

use crate::attribute::{RawAttribute, attribute, read};
use crate::bytes::{text_of, u32_of};
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
const NFTA_DYNSET_SET_NAME: u16 = 1;
const NFTA_DYNSET_OP: u16 = 3;
const NFTA_DYNSET_SREG_KEY: u16 = 4;
const NFTA_DYNSET_SREG_DATA: u16 = 5;
const NFTA_DYNSET_TIMEOUT: u16 = 6;
const NFTA_DYNSET_PAD: u16 = 8;
const NFTA_DYNSET_FLAGS: u16 = 9;
const NFTA_LOOKUP_SET: u16 = 1;
const NFTA_LOOKUP_SREG: u16 = 2;
const NFTA_LOOKUP_DREG: u16 = 3;
const NFTA_LOOKUP_FLAGS: u16 = 5;
/// `NFT_DYNSET_OP_UPDATE` and `…_DELETE`.
const UPDATE: u32 = 1;
const DELETE: u32 = 2;
/// `NFT_REG_1`, which is meant where no register is named; steps of other kinds that use others are kept as they were read.
const REGISTER: u32 = 1;
const NAME: &str = "filter expression";

/// A step of a rule. Registers are numbered as in `NFT_REG_…`; without a number it is the first.
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
    /// [`LoadMeta`](Self::LoadMeta) into another register than the first.
    LoadMetaAt {
        /// The register.
        register: u32,
        /// What is loaded.
        key: MetaKey,
    },
    /// [`LoadPayload`](Self::LoadPayload) into another register than the first.
    LoadPayloadAt {
        /// The register.
        register: u32,
        /// Where the offset counts from.
        base: PayloadBase,
        /// First byte.
        offset_bytes: u32,
        /// Number of bytes.
        length_bytes: u32,
    },
    /// Makes an entry of a map, or renews one, which keeps its value: the key is in the first register and those behind it.
    /// The rule goes no further where the map is full.
    Remember {
        /// The map's name.
        map: String,
        /// Where the value is.
        register: u32,
    },
    /// Removes an entry of a map.
    Forget {
        /// The map's name.
        map: String,
        /// Where a value would be.
        register: u32,
    },
    /// Loads the value of the key in the first register and those behind it; the rule goes no further if there is none.
    LookUp {
        /// The map's name.
        map: String,
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
    /// Number of the protocol above IP, 1 byte.
    Protocol,
}

/// Where offsets into a packet count from (`NFT_PAYLOAD_…`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PayloadBase {
    /// The header of the link layer.
    Link,
    /// The header of the network layer.
    Network,
    /// The header of the transport layer.
    Transport,
}

/// How values are compared (`NFT_CMP_…`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Comparison {
    /// They are equal.
    Equal,
    /// They differ.
    Unequal,
}

const META_KEYS: [(MetaKey, u32); 4] =
    [(MetaKey::Mark, 3), (MetaKey::InputName, 6), (MetaKey::InputType, 8), (MetaKey::Protocol, 16)];
const BASES: [(PayloadBase, u32); 3] =
    [(PayloadBase::Link, 0), (PayloadBase::Network, 1), (PayloadBase::Transport, 2)];
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
        let added: &[u16] = match name {
            Some(b"dynset") => &[NFTA_DYNSET_TIMEOUT, NFTA_DYNSET_PAD, NFTA_DYNSET_FLAGS],
            Some(b"lookup") => &[NFTA_LOOKUP_FLAGS],
            _other => &[],
        };
        let is_whole = |known: &Self| parts_count(data, added) == known.parts_count();
        Ok(known.filter(is_whole).unwrap_or(Self::Other(all)))
    }

    fn known(name: &[u8], data: &[u8]) -> Option<Self> {
        let number = |kind| attribute(data, kind).and_then(u32_of).map(u32::from_be);
        let is_register = |kind| number(kind) == Some(REGISTER);
        let value = |kind| attribute(attribute(data, kind)?, NFTA_DATA_VALUE).map(<[u8]>::to_vec);
        let is_zero =
            |kind| attribute(data, kind).is_none_or(|value| value.iter().all(|&byte| byte == 0));
        match name {
            b"dynset"
                if is_register(NFTA_DYNSET_SREG_KEY)
                    && is_zero(NFTA_DYNSET_TIMEOUT)
                    && is_zero(NFTA_DYNSET_FLAGS) =>
            {
                let map = attribute(data, NFTA_DYNSET_SET_NAME).and_then(text_of)?;
                let register = number(NFTA_DYNSET_SREG_DATA)?;
                match number(NFTA_DYNSET_OP)? {
                    UPDATE => Some(Self::Remember { map, register }),
                    DELETE => Some(Self::Forget { map, register }),
                    _other => None,
                }
            }
            b"lookup"
                if is_register(NFTA_LOOKUP_SREG)
                    && is_register(NFTA_LOOKUP_DREG)
                    && is_zero(NFTA_LOOKUP_FLAGS) =>
            {
                let map = attribute(data, NFTA_LOOKUP_SET).and_then(text_of)?;
                Some(Self::LookUp { map })
            }
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
            b"meta" if number(NFTA_META_DREG).is_some() => Some(Self::LoadMetaAt {
                register: number(NFTA_META_DREG)?,
                key: find(&META_KEYS, number(NFTA_META_KEY)?)?,
            }),
            b"payload" => Some(Self::LoadPayloadAt {
                register: number(NFTA_PAYLOAD_DREG)?,
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
            Self::LoadMeta(_) | Self::LoadMetaAt { .. } | Self::SetMeta(_) | Self::Load(_) => 2,
            Self::Compare(..) | Self::LookUp { .. } => 3,
            Self::LoadPayload { .. } | Self::LoadPayloadAt { .. } => 4,
            Self::Remember { .. } | Self::Forget { .. } => 4,
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
            Self::LoadMetaAt { register, key } => (
                "meta",
                vec![(NFTA_META_DREG, *register), (NFTA_META_KEY, number(&META_KEYS, key))],
            ),
            Self::LoadPayload { base, offset_bytes, length_bytes } => {
                ("payload", payload(REGISTER, *base, *offset_bytes, *length_bytes))
            }
            Self::LoadPayloadAt { register, base, offset_bytes, length_bytes } => {
                ("payload", payload(*register, *base, *offset_bytes, *length_bytes))
            }
            Self::Remember { register, .. } => ("dynset", change(UPDATE, *register)),
            Self::Forget { register, .. } => ("dynset", change(DELETE, *register)),
            Self::LookUp { .. } => {
                ("lookup", vec![(NFTA_LOOKUP_SREG, REGISTER), (NFTA_LOOKUP_DREG, REGISTER)])
            }
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
                Self::Remember { map, .. } | Self::Forget { map, .. } => {
                    inner.text(NFTA_DYNSET_SET_NAME, map)
                }
                Self::LookUp { map } => inner.text(NFTA_LOOKUP_SET, map),
                _without_bytes => {}
            }
        });
    }
}

fn change(operation: u32, register: u32) -> Vec<(u16, u32)> {
    vec![
        (NFTA_DYNSET_OP, operation),
        (NFTA_DYNSET_SREG_KEY, REGISTER),
        (NFTA_DYNSET_SREG_DATA, register),
    ]
}

fn payload(
    register: u32,
    base: PayloadBase,
    offset_bytes: u32,
    length_bytes: u32,
) -> Vec<(u16, u32)> {
    vec![
        (NFTA_PAYLOAD_DREG, register),
        (NFTA_PAYLOAD_BASE, number(&BASES, &base)),
        (NFTA_PAYLOAD_OFFSET, offset_bytes),
        (NFTA_PAYLOAD_LEN, length_bytes),
    ]
}

fn without_nul(name: &[u8]) -> &[u8] {
    name.strip_suffix(b"\0").unwrap_or(name)
}

/// Attributes without those that the kernel adds when it lists a step, whose values say nothing then.
fn parts_count(data: &[u8], added: &[u16]) -> usize {
    crate::attribute::Attributes::new(data).filter(|(kind, _)| !added.contains(kind)).count()
}

fn find<T: Copy>(known: &[(T, u32)], wanted: u32) -> Option<T> {
    known.iter().find(|(_, number)| *number == wanted).map(|(one, _)| *one)
}

/// Every value of the enumerations is in its table.
fn number<T: PartialEq>(known: &[(T, u32)], wanted: &T) -> u32 {
    known.iter().find(|(one, _)| one == wanted).map_or(0, |(_, number)| *number)
}
