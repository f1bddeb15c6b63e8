//! BTF, the kernel's description of its own types (kernel `Documentation/bpf/btf.rst`).
//!
//! Reads what finding a field needs: structures, their members, and what stands between a name and
//! a structure (typedefs, qualifiers, arrays). Everything is checked where it is used: a wrong
//! offset gives `None`, a circle of types ends.

use thiserror::Error;

use crate::bytes::{half, part, text, word};

const MAGIC: u16 = 0xeb9f;
/// A type's name, kind and size or reference.
const TYPE_BYTES: usize = 12;
/// More than any chain of typedefs and qualifiers has.
const CHAIN_MAX: usize = 64;

const INT: u8 = 1;
const ARRAY: u8 = 3;
const STRUCT: u8 = 4;
const UNION: u8 = 5;
const ENUM: u8 = 6;
const TYPEDEF: u8 = 8;
const RESTRICT: u8 = 11;
const FUNC_PROTO: u8 = 13;
const VAR: u8 = 14;
const DATASEC: u8 = 15;
const DECL_TAG: u8 = 17;
const TYPE_TAG: u8 = 18;
const ENUM64: u8 = 19;

/// Types of a kernel or of an object.
#[derive(Debug)]
pub struct Btf<'a> {
    types: &'a [u8],
    strings: &'a [u8],
    /// Where each type begins; number 0 is `void` and has none.
    offsets: Vec<u32>,
}

/// A member of a structure or union.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member<'a> {
    /// Name; empty for what has none.
    pub name: &'a str,
    /// Number of its type.
    pub type_id: u32,
    /// Where it begins, bits from the structure's beginning.
    pub offset_bits: u32,
    /// Width of a bit field; 0 for anything else.
    pub width_bits: u32,
}

/// Where a field lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Number of its type.
    pub type_id: u32,
    /// Bits from the outermost structure's beginning.
    pub offset_bits: u32,
    /// Width of a bit field; 0 for anything else.
    pub width_bits: u32,
}

/// Why bytes are no BTF.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("no type information of version 1: {0}")]
pub struct BtfError(&'static str);

impl<'a> Btf<'a> {
    /// Finds the types in `bytes`.
    ///
    /// # Errors
    /// The header or a type is not what version 1 has, or the bytes end too early.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, BtfError> {
        let header = |offset| word(bytes, offset).ok_or(BtfError("it is cut short"));
        if half(bytes, 0) != Some(MAGIC) || bytes.get(2) != Some(&1) {
            return Err(BtfError("it begins otherwise"));
        }
        let length = header(4)? as usize;
        let section =
            |offset, size| part(bytes, length.checked_add(offset as usize)?, size as usize);
        let types = section(header(8)?, header(12)?).ok_or(BtfError("its types are cut short"))?;
        let strings =
            section(header(16)?, header(20)?).ok_or(BtfError("its names are cut short"))?;
        let mut offsets = vec![0];
        let mut offset = 0;
        while offset < types.len() {
            let here = u32::try_from(offset).map_err(|_too_long| BtfError("it is too long"))?;
            offsets.push(here);
            let info = word(types, offset + 4).ok_or(BtfError("a type is cut short"))?;
            let more =
                more_bytes(kind_of(info), count_of(info)).ok_or(BtfError("an unknown type"))?;
            offset += TYPE_BYTES + more;
        }
        Ok(Self { types, strings, offsets })
    }

    /// The structure of this name: its number.
    #[must_use]
    pub fn structure(&self, name: &str) -> Option<u32> {
        self.numbers().find(|id| self.kind(*id) == Some(STRUCT) && self.name(*id) == Some(name))
    }

    /// A type's name; empty for what has none.
    #[must_use]
    pub fn name(&self, id: u32) -> Option<&'a str> {
        self.string(word(self.types, self.at(id)?)?)
    }

    /// A text by its place among the names.
    #[must_use]
    pub fn string(&self, offset: u32) -> Option<&'a str> {
        text(self.strings, offset as usize)
    }

    /// The members of a structure or union; `None` for any other type.
    #[must_use]
    pub fn members(&self, id: u32) -> Option<Vec<Member<'a>>> {
        let at = self.at(id)?;
        let info = word(self.types, at + 4)?;
        if !matches!(kind_of(info), STRUCT | UNION) {
            return None;
        }
        let packs_widths = info >> 31 == 1;
        (0..count_of(info))
            .map(|index| {
                let at = at + TYPE_BYTES + index * 12;
                let place = word(self.types, at + 8)?;
                let (offset_bits, width_bits) =
                    if packs_widths { (place & 0x00ff_ffff, place >> 24) } else { (place, 0) };
                let name = self.string(word(self.types, at)?)?;
                Some(Member { name, type_id: word(self.types, at + 4)?, offset_bits, width_bits })
            })
            .collect()
    }

    /// The field of this name in a structure, looking into members without a name.
    #[must_use]
    pub fn field(&self, structure: u32, name: &str) -> Option<Field> {
        self.field_within(structure, name, CHAIN_MAX)
    }

    fn field_within(&self, structure: u32, name: &str, depth: usize) -> Option<Field> {
        let depth = depth.checked_sub(1)?;
        self.members(self.plain(structure)?)?.into_iter().find_map(|member| {
            let Member { type_id, offset_bits, width_bits, .. } = member;
            if member.name == name {
                return Some(Field { type_id, offset_bits, width_bits });
            }
            if !member.name.is_empty() {
                return None;
            }
            let inner = self.field_within(type_id, name, depth)?;
            Some(Field { offset_bits: offset_bits.checked_add(inner.offset_bits)?, ..inner })
        })
    }

    /// The type behind typedefs and qualifiers.
    #[must_use]
    pub fn plain(&self, id: u32) -> Option<u32> {
        let mut id = id;
        for _ in 0..CHAIN_MAX {
            match self.kind(id)? {
                TYPEDEF..=RESTRICT | TYPE_TAG => id = word(self.types, self.at(id)? + 8)?,
                _ => return Some(id),
            }
        }
        None
    }

    /// An array's element type and count.
    #[must_use]
    pub fn array(&self, id: u32) -> Option<(u32, u32)> {
        let at = self.at(id).filter(|_| self.kind(id) == Some(ARRAY))?;
        Some((word(self.types, at + TYPE_BYTES)?, word(self.types, at + TYPE_BYTES + 8)?))
    }

    /// Bytes of a type.
    #[must_use]
    pub fn size_bytes(&self, id: u32) -> Option<u32> {
        let mut id = self.plain(id)?;
        let mut count = 1_u32;
        for _ in 0..CHAIN_MAX {
            match self.array(id) {
                Some((element, elements)) => {
                    count = count.checked_mul(elements)?;
                    id = self.plain(element)?;
                }
                None => break,
            }
        }
        let one = match self.kind(id)? {
            INT | STRUCT | UNION | ENUM | ENUM64 => word(self.types, self.at(id)? + 8)?,
            // A pointer.
            2 => u32::try_from(size_of::<u64>()).ok()?,
            _ => return None,
        };
        one.checked_mul(count)
    }

    fn numbers(&self) -> impl Iterator<Item = u32> {
        (1..self.offsets.len()).filter_map(|id| u32::try_from(id).ok())
    }

    fn at(&self, id: u32) -> Option<usize> {
        let at = *self.offsets.get(id as usize).filter(|_| id != 0)?;
        Some(at as usize)
    }

    fn kind(&self, id: u32) -> Option<u8> {
        word(self.types, self.at(id)? + 4).map(kind_of)
    }
}

fn kind_of(info: u32) -> u8 {
    ((info >> 24) & 0x1f) as u8
}

fn count_of(info: u32) -> usize {
    (info & 0xffff) as usize
}

/// What follows a type of this kind.
fn more_bytes(kind: u8, count: usize) -> Option<usize> {
    Some(match kind {
        INT | VAR | DECL_TAG => 4,
        ARRAY => 12,
        STRUCT | UNION | DATASEC | ENUM64 => 12 * count,
        ENUM | FUNC_PROTO => 8 * count,
        // Pointer, forward, typedef, qualifiers, function, float, tag.
        2 | 7..=12 | 16 | TYPE_TAG => 0,
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
