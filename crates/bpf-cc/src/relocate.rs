//! Fits a program to a kernel: every field it uses is looked up by name among the kernel's types,
//! and the instruction that holds its place or shape is rewritten ("compile once, run everywhere").

use thiserror::Error;

use crate::btf::{Btf, Field};
use crate::object::{Program, Relocation};

/// `enum bpf_core_relo_kind` (kernel `include/uapi/linux/bpf.h`).
const BYTE_OFFSET: u32 = 0;
const BYTE_SIZE: u32 = 1;
const EXISTS: u32 = 2;
const LEFT_SHIFT: u32 = 4;
const RIGHT_SHIFT: u32 = 5;

const INSTRUCTION_BYTES: usize = 8;

/// Why a program does not fit.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FitError {
    /// The kernel has no such field.
    #[error("this kernel's {structure} has no {field}")]
    NoField {
        /// The structure.
        structure: String,
        /// The field.
        field: String,
    },
    /// The kernel has the field with another size.
    #[error("this kernel's {structure}.{field} has {kernel} bytes, not {ours}")]
    OtherSize {
        /// The structure.
        structure: String,
        /// The field.
        field: String,
        /// The kernel's size.
        kernel: u32,
        /// The program's.
        ours: u32,
    },
    /// The compiler asks for what is not known here.
    #[error("the BPF object asks for relocation {kind} at byte {offset}, which is not known")]
    Unknown {
        /// `enum bpf_core_relo_kind`.
        kind: u32,
        /// The instruction's place.
        offset: usize,
    },
    /// The object contradicts itself.
    #[error("the BPF object is broken at byte {offset}")]
    Broken {
        /// The instruction's place.
        offset: usize,
    },
}

/// The program's instructions for the kernel described by `kernel`; `ours` are the types it was
/// compiled with.
///
/// # Errors
/// The kernel lacks a field or has it with another size, or the object is broken.
pub fn fit(program: &Program<'_>, ours: &Btf<'_>, kernel: &Btf<'_>) -> Result<Vec<u8>, FitError> {
    let mut instructions = program.instructions.to_vec();
    for relocation in &program.relocations {
        let offset = relocation.offset;
        let value = value(relocation, ours, kernel)?;
        let instruction = offset
            .checked_add(INSTRUCTION_BYTES)
            .filter(|_| offset.is_multiple_of(INSTRUCTION_BYTES))
            .and_then(|end| instructions.get_mut(offset..end))
            .ok_or(FitError::Broken { offset })?;
        write(instruction, value).ok_or(FitError::Broken { offset })?;
    }
    Ok(instructions)
}

/// What the instruction is to hold.
fn value(relocation: &Relocation<'_>, ours: &Btf<'_>, kernel: &Btf<'_>) -> Result<u32, FitError> {
    let broken = || FitError::Broken { offset: relocation.offset };
    let (structure, names) = path(relocation, ours).ok_or_else(broken)?;
    let here = follow(ours, relocation.type_id, &names).ok_or_else(broken)?;
    let there = kernel.structure(&structure).and_then(|id| follow(kernel, id, &names));
    if relocation.kind == EXISTS {
        return Ok(there.is_some().into());
    }
    let field = names.join(".");
    let Some(there) = there else { return Err(FitError::NoField { structure, field }) };
    if there.width_bits == 0 && here.width_bits == 0 {
        let (Some(ours), Some(kernel)) =
            (ours.size_bytes(here.type_id), kernel.size_bytes(there.type_id))
        else {
            return Err(broken());
        };
        // The room for private state is an array whose length grew over the years.
        let is_room = ours.min(kernel) > 8;
        if ours != kernel && !(is_room && kernel > ours) {
            return Err(FitError::OtherSize { structure, field, kernel, ours });
        }
    }
    let unknown = FitError::Unknown { kind: relocation.kind, offset: relocation.offset };
    shape(relocation.kind, there, kernel).ok_or(unknown)
}

/// The structure's name and the names of the members on the way to the field.
fn path<'a>(relocation: &Relocation<'a>, ours: &Btf<'a>) -> Option<(String, Vec<&'a str>)> {
    let mut id = ours.plain(relocation.type_id)?;
    let structure = ours.name(id)?.to_owned();
    let mut names = Vec::new();
    let mut steps = relocation.access.split(':').map(|step| step.parse::<usize>().ok());
    // The first step counts whole structures: always the one pointed to.
    steps.next()?.filter(|first| *first == 0)?;
    for step in steps {
        let step = step?;
        if let Some((_, _)) = ours.array(id) {
            // The first element lies where the array does.
            return (step == 0).then_some((structure, names));
        }
        let member = *ours.members(id)?.get(step)?;
        names.push(member.name);
        id = ours.plain(member.type_id)?;
    }
    Some((structure, names))
}

fn follow(btf: &Btf<'_>, structure: u32, names: &[&str]) -> Option<Field> {
    let start = Field { type_id: structure, offset_bits: 0, width_bits: 0 };
    names.iter().try_fold(start, |outer, name| {
        let inner = btf.field(outer.type_id, name)?;
        Some(Field { offset_bits: outer.offset_bits.checked_add(inner.offset_bits)?, ..inner })
    })
}

/// The asked property of a field. A bit field is read as the smallest aligned word of its type, or
/// twice that, that holds it whole.
fn shape(kind: u32, field: Field, kernel: &Btf<'_>) -> Option<u32> {
    let Field { type_id, offset_bits, width_bits } = field;
    let mut size = kernel.size_bytes(type_id)?;
    if width_bits == 0 {
        return match kind {
            BYTE_OFFSET => Some(offset_bits / 8),
            BYTE_SIZE => Some(size),
            LEFT_SHIFT => 64_u32.checked_sub(size * 8),
            RIGHT_SHIFT => 64_u32.checked_sub(size * 8),
            _ => None,
        };
    }
    let end = offset_bits.checked_add(width_bits)?;
    let start = loop {
        let start = (offset_bits / 8).checked_div(size)? * size;
        if end - start * 8 <= size * 8 {
            break start;
        }
        size = Some(size * 2).filter(|size| *size <= 8)?;
    };
    let first = offset_bits - start * 8;
    let shift = if cfg!(target_endian = "big") {
        64_u32.checked_sub(size * 8)?.checked_add(first)?
    } else {
        64 - (first + width_bits)
    };
    match kind {
        BYTE_OFFSET => Some(start),
        BYTE_SIZE => Some(size),
        LEFT_SHIFT => Some(shift),
        RIGHT_SHIFT => 64_u32.checked_sub(width_bits),
        _ => None,
    }
}

/// Puts the value where this class of instruction has its number.
fn write(instruction: &mut [u8], value: u32) -> Option<()> {
    let class = instruction.first()? & 7;
    match class {
        // Loads and stores: the offset from the register.
        1..=3 => {
            let offset = i16::try_from(value).ok()?;
            instruction.get_mut(2..4)?.copy_from_slice(&offset.to_ne_bytes());
        }
        // Arithmetic, and the first half of a 64-bit constant.
        0 | 4 | 7 => instruction.get_mut(4..8)?.copy_from_slice(&value.to_ne_bytes()),
        _ => return None,
    }
    Some(())
}
