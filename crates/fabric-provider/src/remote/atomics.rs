//! Atomic operations on numbers: which there are, and what each makes of an element.

/// Longest array of elements that one operation takes, in bytes: operand, compared values and result each.
pub(crate) const ATOMIC_BYTES_MAX: usize = 2048;

/// A kind of number, by libfabric's order. Complex numbers, long doubles and 128-bit integers are not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Datatype {
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    F32,
    F64,
}

impl Datatype {
    const ALL: [Self; 10] = [
        Self::I8,
        Self::U8,
        Self::I16,
        Self::U16,
        Self::I32,
        Self::U32,
        Self::I64,
        Self::U64,
        Self::F32,
        Self::F64,
    ];

    pub(crate) fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }

    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64)
    }
}

/// An operation, by libfabric's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Min,
    Max,
    Sum,
    Prod,
    LogicalOr,
    LogicalAnd,
    BitOr,
    BitAnd,
    LogicalXor,
    BitXor,
    Read,
    Write,
    SwapIfEqual,
    SwapIfNotEqual,
    SwapIfLessOrEqual,
    SwapIfLess,
    SwapIfGreaterOrEqual,
    SwapIfGreater,
    SwapMasked,
}

impl Op {
    const ALL: [Self; 19] = [
        Self::Min,
        Self::Max,
        Self::Sum,
        Self::Prod,
        Self::LogicalOr,
        Self::LogicalAnd,
        Self::BitOr,
        Self::BitAnd,
        Self::LogicalXor,
        Self::BitXor,
        Self::Read,
        Self::Write,
        Self::SwapIfEqual,
        Self::SwapIfNotEqual,
        Self::SwapIfLessOrEqual,
        Self::SwapIfLess,
        Self::SwapIfGreaterOrEqual,
        Self::SwapIfGreater,
        Self::SwapMasked,
    ];

    pub(crate) fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }

    fn compares(self) -> bool {
        self as u8 >= Self::SwapIfEqual as u8
    }
}

/// What an atomic call returns and is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// It changes the target.
    Update,
    /// It also returns what was there before.
    Fetch,
    /// It is also given values to compare with.
    Compare,
}

/// An operation on elements of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Atomic {
    pub(crate) shape: Shape,
    pub(crate) op: Op,
    pub(crate) datatype: Datatype,
}

impl Atomic {
    /// None: it is not served.
    pub(crate) fn new(shape: Shape, op: u32, datatype: u32) -> Option<Self> {
        let (op, datatype) = (Op::from_number(op)?, Datatype::from_number(datatype)?);
        let is_of_bits = matches!(op, Op::BitOr | Op::BitAnd | Op::BitXor | Op::SwapMasked);
        let is_of_shape = match shape {
            Shape::Update => !op.compares() && op != Op::Read,
            Shape::Fetch => !op.compares(),
            Shape::Compare => op.compares(),
        };
        let is_served = is_of_shape && !(is_of_bits && datatype.is_float());
        is_served.then_some(Self { shape, op, datatype })
    }

    /// Arrays of elements that a request brings along: operand and compared values.
    pub(crate) fn operands_count(self) -> usize {
        match self.shape {
            Shape::Fetch if self.op == Op::Read => 0,
            Shape::Update | Shape::Fetch => 1,
            Shape::Compare => 2,
        }
    }

    /// Replaces each element of `target` by what the operation makes of it. `operands` has as many arrays, of the
    /// target's length, as [`operands_count`](Self::operands_count) says.
    pub(crate) fn apply(self, target: &mut [u8], operands: &[u8]) {
        let length = target.len();
        let operand = operands.get(..length).unwrap_or_default();
        let compared = operands.get(length..2 * length).unwrap_or_default();
        match self.datatype {
            Datatype::I8 => each(target, operand, compared, |a, b, c| i8::of(self.op, a, b, c)),
            Datatype::U8 => each(target, operand, compared, |a, b, c| u8::of(self.op, a, b, c)),
            Datatype::I16 => each(target, operand, compared, |a, b, c| i16::of(self.op, a, b, c)),
            Datatype::U16 => each(target, operand, compared, |a, b, c| u16::of(self.op, a, b, c)),
            Datatype::I32 => each(target, operand, compared, |a, b, c| i32::of(self.op, a, b, c)),
            Datatype::U32 => each(target, operand, compared, |a, b, c| u32::of(self.op, a, b, c)),
            Datatype::I64 => each(target, operand, compared, |a, b, c| i64::of(self.op, a, b, c)),
            Datatype::U64 => each(target, operand, compared, |a, b, c| u64::of(self.op, a, b, c)),
            Datatype::F32 => each(target, operand, compared, |a, b, c| f32::of(self.op, a, b, c)),
            Datatype::F64 => each(target, operand, compared, |a, b, c| f64::of(self.op, a, b, c)),
        }
    }
}

/// A number in memory, in this host's byte order.
trait Element<const BYTES: usize> {
    fn of(op: Op, target: [u8; BYTES], operand: [u8; BYTES], compared: [u8; BYTES]) -> [u8; BYTES];
}

/// Where there is no operand its elements are 0.
fn each<const BYTES: usize>(
    target: &mut [u8],
    operand: &[u8],
    compared: &[u8],
    of: impl Fn([u8; BYTES], [u8; BYTES], [u8; BYTES]) -> [u8; BYTES],
) {
    let at = |bytes: &[u8], index: usize| {
        let element = bytes.get(BYTES * index..BYTES * (index + 1));
        element.and_then(|element| element.try_into().ok()).unwrap_or([0; BYTES])
    };
    for (index, element) in target.as_chunks_mut::<BYTES>().0.iter_mut().enumerate() {
        *element = of(*element, at(operand, index), at(compared, index));
    }
}

/// What all numbers have; the rest is given.
macro_rules! element {
    ($number:ty, $bytes:literal, $zero:literal, $one:literal, |$a:ident, $b:ident, $c:ident| {
        $($op:pat => $value:expr),* $(,)?
    }) => {
        impl Element<$bytes> for $number {
            fn of(op: Op, a: [u8; $bytes], b: [u8; $bytes], c: [u8; $bytes]) -> [u8; $bytes] {
                let [$a, $b, $c] = [a, b, c].map(<$number>::from_ne_bytes);
                let truth = |is_true: bool| if is_true { $one } else { $zero };
                let swap = |is_swapped: bool| if is_swapped { $b } else { $a };
                let new: $number = match op {
                    Op::Min => if $b < $a { $b } else { $a },
                    Op::Max => if $b > $a { $b } else { $a },
                    Op::LogicalOr => truth($a != $zero || $b != $zero),
                    Op::LogicalAnd => truth($a != $zero && $b != $zero),
                    Op::LogicalXor => truth(($a != $zero) != ($b != $zero)),
                    Op::Read => $a,
                    Op::Write => $b,
                    Op::SwapIfEqual => swap($c == $a),
                    Op::SwapIfNotEqual => swap($c != $a),
                    Op::SwapIfLessOrEqual => swap($c <= $a),
                    Op::SwapIfLess => swap($c < $a),
                    Op::SwapIfGreaterOrEqual => swap($c >= $a),
                    Op::SwapIfGreater => swap($c > $a),
                    $($op => $value,)*
                };
                new.to_ne_bytes()
            }
        }
    };
}

macro_rules! integer {
    ($number:ty, $bytes:literal) => {
        element!($number, $bytes, 0, 1, |a, b, c| {
            Op::Sum => a.wrapping_add(b),
            Op::Prod => a.wrapping_mul(b),
            Op::BitOr => a | b,
            Op::BitAnd => a & b,
            Op::BitXor => a ^ b,
            Op::SwapMasked => (b & c) | (a & !c),
        });
    };
}

/// Operations on bits are refused before.
macro_rules! float {
    ($number:ty, $bytes:literal) => {
        element!($number, $bytes, 0.0, 1.0, |a, b, c| {
            Op::Sum => a + b,
            Op::Prod => a * b,
            Op::BitOr | Op::BitAnd | Op::BitXor | Op::SwapMasked => a,
        });
    };
}

integer!(i8, 1);
integer!(u8, 1);
integer!(i16, 2);
integer!(u16, 2);
integer!(i32, 4);
integer!(u32, 4);
integer!(i64, 8);
integer!(u64, 8);
float!(f32, 4);
float!(f64, 8);

#[cfg(test)]
mod tests {
    use super::*;

    fn result(shape: Shape, op: Op, target: i32, operand: i32, compared: i32) -> i32 {
        let atomic = Atomic::new(shape, op as u32, Datatype::I32 as u32).expect("it is served");
        let mut bytes = target.to_ne_bytes();
        atomic.apply(&mut bytes, &[operand.to_ne_bytes(), compared.to_ne_bytes()].concat());
        i32::from_ne_bytes(bytes)
    }

    #[test]
    fn each_operation_makes_of_its_operands_what_libfabric_documents() {
        for (op, target, operand, expected) in [
            (Op::Min, 3, -5, -5),
            (Op::Max, 3, -5, 3),
            (Op::Sum, i32::MAX, 1, i32::MIN),
            (Op::Prod, 1 << 20, 1 << 20, 0),
            (Op::LogicalOr, 0, 7, 1),
            (Op::LogicalAnd, 4, 0, 0),
            (Op::LogicalXor, 4, 2, 0),
            (Op::BitOr, 6, 9, 15),
            (Op::BitAnd, 6, 3, 2),
            (Op::BitXor, 6, 3, 5),
            (Op::Write, 6, 3, 3),
        ] {
            assert_eq!(result(Shape::Update, op, target, operand, 0), expected, "{op:?}");
        }
        assert_eq!(result(Shape::Fetch, Op::Read, 6, 3, 0), 6);
        // The compared value is on the left.
        for (op, swaps) in [
            (Op::SwapIfEqual, [false, true, false]),
            (Op::SwapIfNotEqual, [true, false, true]),
            (Op::SwapIfLessOrEqual, [true, true, false]),
            (Op::SwapIfLess, [true, false, false]),
            (Op::SwapIfGreaterOrEqual, [false, true, true]),
            (Op::SwapIfGreater, [false, false, true]),
        ] {
            for (compared, swaps) in [4, 5, 6].into_iter().zip(swaps) {
                let expected = if swaps { 9 } else { 5 };
                assert_eq!(result(Shape::Compare, op, 5, 9, compared), expected, "{op:?}");
            }
        }
        assert_eq!(result(Shape::Compare, Op::SwapMasked, 0b1100, 0b0011, 0b0110), 0b1010);
    }

    #[test]
    fn floats_have_no_bits_and_calls_only_the_operations_of_their_shape() {
        let is_served = |shape, op: Op, datatype: Datatype| {
            Atomic::new(shape, op as u32, datatype as u32).is_some()
        };
        assert!(is_served(Shape::Update, Op::Sum, Datatype::F64));
        assert!(!is_served(Shape::Update, Op::BitOr, Datatype::F64));
        assert!(!is_served(Shape::Compare, Op::SwapMasked, Datatype::F32));
        assert!(!is_served(Shape::Update, Op::Read, Datatype::I8));
        assert!(!is_served(Shape::Fetch, Op::SwapIfEqual, Datatype::I8));
        assert!(!is_served(Shape::Compare, Op::Sum, Datatype::I8));
        assert_eq!(Atomic::new(Shape::Update, 2, 10), None, "complex numbers");
        assert_eq!(Atomic::new(Shape::Update, 19, 0), None);
        let mut bytes = [1.5_f64, 2.0].map(f64::to_ne_bytes).concat();
        let sum = Atomic::new(Shape::Update, Op::Sum as u32, Datatype::F64 as u32).expect("served");
        sum.apply(&mut bytes, &[0.25_f64, -2.0].map(f64::to_ne_bytes).concat());
        assert_eq!(bytes, [1.75_f64, 0.0].map(f64::to_ne_bytes).concat());
    }
}
