//! The object clang leaves: programs by section, and what in them depends on the kernel.

use thiserror::Error;

use crate::btf::{Btf, BtfError};
use crate::bytes::{half, long, part, text, word};

/// Sections of programs, as libbpf's conventions name them.
const PREFIX: &str = "struct_ops/";
const HEADER_BYTES: usize = 64;
/// Machine number of BPF (`EM_BPF`).
const MACHINE: u16 = 247;
/// Bytes of a relocation record that are read here; a longer record is a newer compiler's.
const RECORD_BYTES: usize = 16;

/// An object's programs and types.
#[derive(Debug)]
pub struct Object<'a> {
    /// Programs, in the object's order.
    pub programs: Vec<Program<'a>>,
    /// Types the programs were compiled with.
    pub btf: Btf<'a>,
}

/// One program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program<'a> {
    /// The member of the structure it stands for.
    pub member: &'a str,
    /// Instructions as compiled, 8 bytes each.
    pub instructions: &'a [u8],
    /// What depends on where the kernel has its fields.
    pub relocations: Vec<Relocation<'a>>,
}

/// One instruction that holds something about a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Relocation<'a> {
    /// Where the instruction begins, bytes.
    pub offset: usize,
    /// Number of the structure among the object's types.
    pub type_id: u32,
    /// Which field: `0:2:1` is the second member of the third member.
    pub access: &'a str,
    /// What about it (`enum bpf_core_relo_kind`).
    pub kind: u32,
}

/// Why bytes are no such object.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// Not a 64-bit ELF file for BPF in this machine's byte order.
    #[error("not a BPF object of this machine's byte order")]
    NotBpf,
    /// It ends too early, or refers to what is not there.
    #[error("the BPF object is cut short or broken")]
    Broken,
    /// Without types nothing can be fitted to a kernel.
    #[error("the BPF object's types: {0}")]
    Types(#[from] BtfError),
}

/// A section's name and bytes.
type Section<'a> = (&'a str, &'a [u8]);

impl<'a> Object<'a> {
    /// Reads an object.
    ///
    /// # Errors
    /// [`ObjectError`]; nothing is assumed of the bytes.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ObjectError> {
        let sections = sections(bytes)?;
        let named = |wanted: &str| {
            let found = sections.iter().find(|(name, _)| *name == wanted);
            found.map(|(_, bytes)| *bytes).ok_or(ObjectError::Broken)
        };
        let btf = Btf::parse(named(".BTF")?)?;
        let mut programs: Vec<Program<'a>> = sections
            .iter()
            .filter_map(|(name, bytes)| {
                let member = name.strip_prefix(PREFIX)?;
                Some(Program { member, instructions: bytes, relocations: Vec::new() })
            })
            .collect();
        let records = relocations(named(".BTF.ext")?, &btf).ok_or(ObjectError::Broken)?;
        for (section, relocation) in records {
            let program = programs
                .iter_mut()
                .find(|program| section.strip_prefix(PREFIX) == Some(program.member))
                .ok_or(ObjectError::Broken)?;
            program.relocations.push(relocation);
        }
        Ok(Self { programs, btf })
    }
}

fn sections(bytes: &[u8]) -> Result<Vec<Section<'_>>, ObjectError> {
    let order = if cfg!(target_endian = "big") { 2 } else { 1 };
    let is_ours = bytes.starts_with(b"\x7fELF\x02")
        && bytes.get(5) == Some(&order)
        && half(bytes, 18) == Some(MACHINE);
    if !is_ours {
        return Err(ObjectError::NotBpf);
    }
    sections_of(bytes).ok_or(ObjectError::Broken)
}

fn sections_of(bytes: &[u8]) -> Option<Vec<Section<'_>>> {
    let table = long(bytes, 40)?;
    let count = usize::from(half(bytes, 60)?);
    let header = |index: usize| part(bytes, table.checked_add(index * HEADER_BYTES)?, HEADER_BYTES);
    let content = |header: &[u8]| part(bytes, long(header, 24)?, long(header, 32)?);
    let names = content(header(usize::from(half(bytes, 62)?))?)?;
    (0..count)
        .map(|index| {
            let header = header(index)?;
            let name = text(names, word(header, 0)? as usize)?;
            // Types 0 and 8 have no content.
            let is_empty = matches!(word(header, 4)?, 0 | 8);
            Some((name, if is_empty { &[] } else { content(header)? }))
        })
        .collect()
}

/// The field relocations of `.BTF.ext`, each with its section's name.
fn relocations<'a>(bytes: &[u8], btf: &Btf<'a>) -> Option<Vec<(&'a str, Relocation<'a>)>> {
    let header = word(bytes, 4)? as usize;
    let offset = header.checked_add(word(bytes, 24)? as usize)?;
    let block = part(bytes, offset, word(bytes, 28)? as usize)?;
    let mut found = Vec::new();
    if block.is_empty() {
        return Some(found);
    }
    let record_bytes = word(block, 0)? as usize;
    if record_bytes < RECORD_BYTES {
        return None;
    }
    let mut at = 4;
    while at < block.len() {
        let section = btf.string(word(block, at)?)?;
        let count = word(block, at + 4)? as usize;
        let records = part(block, at + 8, count.checked_mul(record_bytes)?)?;
        for record in records.chunks_exact(record_bytes) {
            let relocation = Relocation {
                offset: word(record, 0)? as usize,
                type_id: word(record, 4)?,
                access: btf.string(word(record, 8)?)?,
                kind: word(record, 12)?,
            };
            found.push((section, relocation));
        }
        at += 8 + records.len();
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_of_h_tcp() {
        let Some(bytes) = crate::htcp_object() else { return };
        let object = Object::parse(bytes).unwrap();
        let mut members: Vec<&str> = object.programs.iter().map(|program| program.member).collect();
        members.sort_unstable();
        let wanted = ["cong_avoid", "init", "pkts_acked", "set_state", "ssthresh", "undo_cwnd"];
        assert_eq!(members, wanted);
        assert!(object.programs.iter().all(|program| !program.relocations.is_empty()));
        assert!(object.btf.structure("tcp_sock").is_some());
    }

    #[test]
    fn any_bytes_are_an_object_or_an_error() {
        let whole = crate::htcp_object().unwrap_or_default();
        bolero::check!().with_type::<(Vec<u8>, u16, u16)>().for_each(|(noise, at, cut)| {
            let _answer = Object::parse(noise).map(|object| object.programs.len());
            let mut bent = whole.to_vec();
            bent.truncate(bent.len().saturating_sub(usize::from(*cut)));
            for (offset, byte) in noise.iter().enumerate() {
                if let Some(place) = bent.get_mut(usize::from(*at) + offset) {
                    *place ^= byte;
                }
            }
            if let Ok(object) = Object::parse(&bent) {
                for program in &object.programs {
                    let _answer = crate::relocate::fit(program, &object.btf, &object.btf);
                }
            }
        });
    }
}
