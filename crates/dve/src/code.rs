//! Expressions as bytecode: one accumulator, a stack for what must wait.
//!
//! Semantics are `DiVinE` 2.4's: 32-bit wrapping arithmetic, division truncates, shifts count modulo
//! 32, `and`/`or`/`imply` stop early, and what stands right of them is true when it is above 0.

use crate::model::Fault;
use crate::syntax::{BinaryOp, UnaryOp};

/// Where an expression's code begins.
pub(crate) type Entry = u32;

/// One instruction, eight bytes. `acc` is the accumulator; places are offsets into the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    /// acc = constant
    Const(i32),
    /// acc = byte
    Byte(u16),
    /// acc = int
    Int(u16),
    /// `acc = bytes[acc]`
    ByteAt { at: u16, length: u16 },
    /// `acc = ints[acc]`
    IntAt { at: u16, length: u16 },
    /// `acc = constant_array[acc]`
    TableAt { at: u16, length: u16 },
    /// acc = process is in that state
    InState { at: u16, state: u16 },
    /// The same where locations take two bytes.
    InStateWide { at: u16, state: u16 },
    /// acc onto the stack
    Push,
    /// acc = acc op constant
    WithConst(BinaryOp, i32),
    /// acc = acc op byte
    WithByte(BinaryOp, u16),
    /// acc = acc op int
    WithInt(BinaryOp, u16),
    /// acc = popped op acc
    WithPopped(BinaryOp),
    /// acc = op acc
    Unary(UnaryOp),
    /// acc = acc > 0
    Truth,
    /// `and`: done with 0 unless acc
    AndElse(u32),
    /// `or`: done with 1 if acc
    OrElse(u32),
    /// `imply`: done with 1 unless acc
    ImplyElse(u32),
    /// The value is acc.
    End,
}

/// Code and constant arrays of a model.
#[derive(Debug, Default)]
pub(crate) struct Code {
    pub(crate) ops: Vec<Op>,
    pub(crate) tables: Vec<i32>,
}

impl Code {
    /// The value of an expression in a state. `stack` is scratch space.
    #[inline]
    pub(crate) fn value(
        &self,
        entry: Entry,
        state: &[u8],
        stack: &mut Vec<i32>,
    ) -> Result<i32, Fault> {
        let mut at = entry as usize;
        let mut acc = 0i32;
        loop {
            match self.ops[at] {
                Op::Const(number) => acc = number,
                Op::Byte(place) => acc = byte(state, place),
                Op::Int(place) => acc = int(state, place),
                Op::ByteAt { at, length } => acc = byte(state, at + index(acc, length)?),
                Op::IntAt { at, length } => acc = int(state, at + 2 * index(acc, length)?),
                Op::TableAt { at, length } => {
                    acc = self.tables[usize::from(at) + usize::from(index(acc, length)?)];
                }
                Op::InState { at, state: wanted } => {
                    acc = i32::from(byte(state, at) == i32::from(wanted));
                }
                Op::InStateWide { at, state: wanted } => {
                    acc = i32::from(int(state, at) as u16 == wanted);
                }
                Op::Push => stack.push(acc),
                Op::WithConst(operator, right) => acc = binary(operator, acc, right)?,
                Op::WithByte(operator, place) => acc = binary(operator, acc, byte(state, place))?,
                Op::WithInt(operator, place) => acc = binary(operator, acc, int(state, place))?,
                Op::WithPopped(operator) => {
                    acc = binary(operator, stack.pop().unwrap_or(0), acc)?;
                }
                Op::Unary(operator) => acc = unary(operator, acc),
                Op::Truth => acc = i32::from(acc > 0),
                Op::AndElse(end) => {
                    if acc == 0 {
                        at = end as usize;
                        continue;
                    }
                }
                Op::OrElse(end) => {
                    if acc != 0 {
                        acc = 1;
                        at = end as usize;
                        continue;
                    }
                }
                Op::ImplyElse(end) => {
                    if acc == 0 {
                        acc = 1;
                        at = end as usize;
                        continue;
                    }
                }
                Op::End => return Ok(acc),
            }
            at += 1;
        }
    }
}

fn byte(state: &[u8], at: u16) -> i32 {
    i32::from(state[usize::from(at)])
}

fn int(state: &[u8], at: u16) -> i32 {
    let at = usize::from(at);
    i32::from(i16::from_le_bytes([state[at], state[at + 1]]))
}

fn index(value: i32, length: u16) -> Result<u16, Fault> {
    u16::try_from(value).ok().filter(|&value| value < length).ok_or(Fault::IndexOutOfRange)
}

pub(crate) fn unary(operator: UnaryOp, value: i32) -> i32 {
    match operator {
        UnaryOp::Negate => value.wrapping_neg(),
        UnaryOp::Complement => !value,
        UnaryOp::Not => i32::from(value == 0),
    }
}

/// A strict operator; the three that stop early are jumps in the code, and here for constants.
#[inline]
pub(crate) fn binary(operator: BinaryOp, left: i32, right: i32) -> Result<i32, Fault> {
    let truth = i32::from;
    Ok(match operator {
        BinaryOp::Imply => truth(left == 0 || right > 0),
        BinaryOp::And => truth(left != 0 && right > 0),
        BinaryOp::Or => truth(left != 0 || right > 0),
        BinaryOp::BitOr => left | right,
        BinaryOp::BitAnd => left & right,
        BinaryOp::BitXor => left ^ right,
        BinaryOp::Equal => truth(left == right),
        BinaryOp::NotEqual => truth(left != right),
        BinaryOp::Less => truth(left < right),
        BinaryOp::LessEqual => truth(left <= right),
        BinaryOp::Greater => truth(left > right),
        BinaryOp::GreaterEqual => truth(left >= right),
        // x86 counts modulo 32, and so does `wrapping_shl` of the count's low bits.
        BinaryOp::ShiftLeft => left.wrapping_shl(right as u32),
        BinaryOp::ShiftRight => left.wrapping_shr(right as u32),
        BinaryOp::Add => left.wrapping_add(right),
        BinaryOp::Subtract => left.wrapping_sub(right),
        BinaryOp::Multiply => left.wrapping_mul(right),
        BinaryOp::Divide if right == 0 => return Err(Fault::DivisionByZero),
        BinaryOp::Divide => left.wrapping_div(right),
        BinaryOp::Remainder if right == 0 => return Err(Fault::DivisionByZero),
        BinaryOp::Remainder => left.wrapping_rem(right),
    })
}
