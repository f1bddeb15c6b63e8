//! Atomic operations on a peer's memory. Each function is the slot of its name in libfabric's table; C's promises are
//! those of its manual page: the endpoint is open, results are lent until the completion. Operands are copied at once.

use std::ffi::c_int;

use super::rma::Access;
use super::{Context, Desc, Ep, Many, data, with};
use crate::abi::{self, AtomicAttr, AtomicOps, Buffer, Counted, FidDomain, Ioc, MsgAtomic};
use crate::buffers::Lent;
use crate::endpoint::{Endpoint, Given, Order, Queues};
use crate::fence::{Number, answer, answer_int};
use crate::remote::atomics::{ATOMIC_BYTES_MAX, Atomic, Shape};
use crate::remote::request::Action;

pub(super) const OPS: AtomicOps = AtomicOps {
    size: size_of::<AtomicOps>(),
    write,
    writev,
    writemsg,
    inject,
    readwrite,
    readwritev,
    readwritemsg,
    compwrite,
    compwritev,
    compwritemsg,
    writevalid,
    readwritevalid,
    compwritevalid,
};

/// Arrays of elements, in C's memory.
#[derive(Debug, Clone, Copy)]
enum Elements {
    Nothing,
    Whole(Buffer, usize),
    Parts(Counted, usize),
}

impl Elements {
    /// The arrays as C counts them.
    ///
    /// # Errors
    /// `EFAULT`: a null pointer where there are elements. `EMSGSIZE`: too many.
    ///
    /// # Safety
    /// Each array has as many elements as C says.
    unsafe fn pieces(self, element_bytes: usize) -> Result<Vec<libc::iovec>, Number> {
        let whole;
        let parts: &[Ioc] = match self {
            Self::Nothing => &[],
            Self::Whole(start, count) => {
                whole = [Ioc { addr: start.cast_mut(), count }];
                &whole
            }
            Self::Parts(parts, _) if parts.is_null() => &[],
            // SAFETY: the caller's promise.
            Self::Parts(parts, count) => unsafe { std::slice::from_raw_parts(parts, count) },
        };
        let mut left_bytes = ATOMIC_BYTES_MAX;
        let mut pieces = Vec::with_capacity(parts.len());
        for part in parts {
            let bytes = part.count.checked_mul(element_bytes).ok_or(libc::EMSGSIZE)?;
            left_bytes = left_bytes.checked_sub(bytes).ok_or(libc::EMSGSIZE)?;
            if part.addr.is_null() && bytes > 0 {
                return Err(libc::EFAULT);
            }
            pieces.push(libc::iovec { iov_base: part.addr, iov_len: bytes });
        }
        Ok(pieces)
    }

    /// Appends the elements.
    ///
    /// # Safety
    /// As [`pieces`](Self::pieces); the elements may be read.
    unsafe fn copy(self, element_bytes: usize, into: &mut Vec<u8>) -> Result<(), Number> {
        // SAFETY: the caller's promise.
        for piece in unsafe { self.pieces(element_bytes) }? {
            if piece.iov_len > 0 {
                // SAFETY: the caller's promise; it is no null pointer.
                into.extend_from_slice(unsafe {
                    std::slice::from_raw_parts(piece.iov_base.cast(), piece.iov_len)
                });
            }
        }
        Ok(())
    }
}

/// What a call asks for.
#[derive(Debug, Clone, Copy)]
struct Call {
    access: Access,
    shape: Shape,
    op: u32,
    datatype: u32,
    /// Elements of the peer's memory; none: as many as there are operands.
    count: Option<usize>,
    operand: Elements,
    compared: Elements,
    result: Elements,
}

impl Call {
    /// Of as many elements as there are operands; `elements` are the operands, what is compared, and the result.
    fn new(
        shape: Shape,
        access: Access,
        (op, datatype): (u32, u32),
        elements: [Elements; 3],
    ) -> Self {
        let [operand, compared, result] = elements;
        Self { access, shape, op, datatype, count: None, operand, compared, result }
    }
}

/// Starts it.
///
/// # Safety
/// `ep` is an endpoint of this provider's, and the elements are C's as it promises.
unsafe fn start(ep: Ep, call: &Call) -> isize {
    answer(|| {
        let atomic = Atomic::new(call.shape, call.op, call.datatype).ok_or(libc::EOPNOTSUPP)?;
        let element_bytes = atomic.datatype.bytes();
        let mut operands = Vec::new();
        if atomic.operands_count() > 0 {
            // SAFETY: the caller's promise.
            unsafe { call.operand.copy(element_bytes, &mut operands) }?;
        }
        let operand_bytes = operands.len();
        if call.shape == Shape::Compare {
            // SAFETY: the caller's promise.
            unsafe { call.compared.copy(element_bytes, &mut operands) }?;
        }
        // SAFETY: the caller's promise.
        let result = unsafe { call.result.pieces(element_bytes) }?;
        let result_bytes: usize = result.iter().map(|piece| piece.iov_len).sum();
        let length = match (call.count, atomic.operands_count()) {
            (Some(count), _) => count.checked_mul(element_bytes).ok_or(libc::EMSGSIZE)?,
            (None, 0) => result_bytes,
            (None, _) => operand_bytes,
        };
        let is_odd = length == 0
            || operands.len() != atomic.operands_count() * length
            || call.shape != Shape::Update && result_bytes != length;
        if is_odd || length > ATOMIC_BYTES_MAX {
            return Err(libc::EINVAL);
        }
        let begin = |endpoint: &mut Endpoint, queues: &mut Queues<'_>| {
            let kind = if call.shape == Shape::Update { abi::WRITE } else { abi::READ };
            let what = (Action::Atomic(atomic), length as u64);
            let order = call.access.order(endpoint, what, Lent::NOTHING, abi::ATOMIC | kind)?;
            // SAFETY: C lends the result until the completion.
            let result = unsafe { endpoint.buffers.pieces(&result) }?;
            let order = Order { result, ..order };
            endpoint.start(&order, Given::Operands(&operands), queues)
        };
        // SAFETY: the caller's promise.
        unsafe { with(ep, begin) }.map(|()| 0)
    })
}

/// What the calls of messages give.
///
/// # Errors
/// `EINVAL`: several parts of the peer's memory.
///
/// # Safety
/// C's structure.
unsafe fn of_message(
    msg: &MsgAtomic,
    shape: Shape,
    (compared, result): (Elements, Elements),
    flags: u64,
) -> Result<Call, Number> {
    if msg.rma_iov_count != 1 || msg.rma_iov.is_null() {
        return Err(libc::EINVAL);
    }
    // SAFETY: C gives one.
    let part = unsafe { &*msg.rma_iov };
    let access = Access {
        data: data(flags, msg.data),
        flags: Some(flags),
        ..Access::new(msg.addr, part.addr, part.key, msg.context)
    };
    let (op, datatype, count) = (msg.op, msg.datatype, Some(part.count));
    let operand = Elements::Parts(msg.iov, msg.iov_count);
    Ok(Call { access, shape, op, datatype, count, operand, compared, result })
}

/// # Safety
/// As [`start`].
unsafe fn start_message(
    ep: Ep,
    msg: *const MsgAtomic,
    shape: Shape,
    elements: (Elements, Elements),
    flags: u64,
) -> isize {
    // SAFETY: C's structure.
    let msg = unsafe { &*msg };
    // SAFETY: the same.
    match unsafe { of_message(msg, shape, elements, flags) } {
        // SAFETY: the caller's promise.
        Ok(call) => unsafe { start(ep, &call) },
        Err(number) => -(number as isize),
    }
}

unsafe extern "C" fn write(
    ep: Ep,
    buffer: Buffer,
    count: usize,
    _desc: Desc,
    to: u64,
    addr: u64,
    key: u64,
    datatype: u32,
    op: u32,
    context: Context,
) -> isize {
    let access = Access::new(to, addr, key, context);
    let elements = [Elements::Whole(buffer, count), Elements::Nothing, Elements::Nothing];
    let call = Call::new(Shape::Update, access, (op, datatype), elements);
    // SAFETY: an endpoint of this provider's and C's elements, as below.
    unsafe { start(ep, &call) }
}

unsafe extern "C" fn writev(
    ep: Ep,
    parts: Counted,
    _desc: Many,
    count: usize,
    to: u64,
    addr: u64,
    key: u64,
    datatype: u32,
    op: u32,
    context: Context,
) -> isize {
    let access = Access::new(to, addr, key, context);
    let elements = [Elements::Parts(parts, count), Elements::Nothing, Elements::Nothing];
    let call = Call::new(Shape::Update, access, (op, datatype), elements);
    // SAFETY: as above.
    unsafe { start(ep, &call) }
}

unsafe extern "C" fn writemsg(ep: Ep, msg: *const MsgAtomic, flags: u64) -> isize {
    let elements = (Elements::Nothing, Elements::Nothing);
    // SAFETY: as above.
    unsafe { start_message(ep, msg, Shape::Update, elements, flags) }
}

unsafe extern "C" fn inject(
    ep: Ep,
    buffer: Buffer,
    count: usize,
    to: u64,
    addr: u64,
    key: u64,
    datatype: u32,
    op: u32,
) -> isize {
    let access = Access::inject(to, addr, key, None);
    let elements = [Elements::Whole(buffer, count), Elements::Nothing, Elements::Nothing];
    let call = Call::new(Shape::Update, access, (op, datatype), elements);
    // SAFETY: as above.
    unsafe { start(ep, &call) }
}

unsafe extern "C" fn readwrite(
    ep: Ep,
    buffer: Buffer,
    count: usize,
    _desc: Desc,
    result: Buffer,
    _result_desc: Desc,
    to: u64,
    addr: u64,
    key: u64,
    datatype: u32,
    op: u32,
    context: Context,
) -> isize {
    let access = Access::new(to, addr, key, context);
    let elements =
        [Elements::Whole(buffer, count), Elements::Nothing, Elements::Whole(result, count)];
    let call = Call::new(Shape::Fetch, access, (op, datatype), elements);
    // SAFETY: as above.
    unsafe { start(ep, &call) }
}

unsafe extern "C" fn readwritev(
    ep: Ep,
    parts: Counted,
    _desc: Many,
    count: usize,
    results: Counted,
    _result_desc: Many,
    results_count: usize,
    to: u64,
    addr: u64,
    key: u64,
    datatype: u32,
    op: u32,
    context: Context,
) -> isize {
    let access = Access::new(to, addr, key, context);
    let elements =
        [Elements::Parts(parts, count), Elements::Nothing, Elements::Parts(results, results_count)];
    let call = Call::new(Shape::Fetch, access, (op, datatype), elements);
    // SAFETY: as above.
    unsafe { start(ep, &call) }
}

unsafe extern "C" fn readwritemsg(
    ep: Ep,
    msg: *const MsgAtomic,
    results: Counted,
    _result_desc: Many,
    results_count: usize,
    flags: u64,
) -> isize {
    let elements = (Elements::Nothing, Elements::Parts(results, results_count));
    // SAFETY: as above.
    unsafe { start_message(ep, msg, Shape::Fetch, elements, flags) }
}

unsafe extern "C" fn compwrite(
    ep: Ep,
    buffer: Buffer,
    count: usize,
    _desc: Desc,
    compared: Buffer,
    _compared_desc: Desc,
    result: Buffer,
    _result_desc: Desc,
    to: u64,
    addr: u64,
    key: u64,
    datatype: u32,
    op: u32,
    context: Context,
) -> isize {
    let access = Access::new(to, addr, key, context);
    let elements = [buffer, compared, result].map(|start| Elements::Whole(start, count));
    let call = Call::new(Shape::Compare, access, (op, datatype), elements);
    // SAFETY: as above.
    unsafe { start(ep, &call) }
}

unsafe extern "C" fn compwritev(
    ep: Ep,
    parts: Counted,
    _desc: Many,
    count: usize,
    compared: Counted,
    _compared_desc: Many,
    compared_count: usize,
    results: Counted,
    _result_desc: Many,
    results_count: usize,
    to: u64,
    addr: u64,
    key: u64,
    datatype: u32,
    op: u32,
    context: Context,
) -> isize {
    let access = Access::new(to, addr, key, context);
    let elements = [
        Elements::Parts(parts, count),
        Elements::Parts(compared, compared_count),
        Elements::Parts(results, results_count),
    ];
    let call = Call::new(Shape::Compare, access, (op, datatype), elements);
    // SAFETY: as above.
    unsafe { start(ep, &call) }
}

unsafe extern "C" fn compwritemsg(
    ep: Ep,
    msg: *const MsgAtomic,
    compared: Counted,
    _compared_desc: Many,
    compared_count: usize,
    results: Counted,
    _result_desc: Many,
    results_count: usize,
    flags: u64,
) -> isize {
    let compared = Elements::Parts(compared, compared_count);
    let elements = (compared, Elements::Parts(results, results_count));
    // SAFETY: as above.
    unsafe { start_message(ep, msg, Shape::Compare, elements, flags) }
}

/// Whether there is such an operation, and how many elements it takes.
///
/// # Errors
/// `EOPNOTSUPP`: there is none.
fn elements_max(shape: Shape, op: u32, datatype: u32) -> Result<(usize, usize), Number> {
    let atomic = Atomic::new(shape, op, datatype).ok_or(libc::EOPNOTSUPP)?;
    let element_bytes = atomic.datatype.bytes();
    Ok((ATOMIC_BYTES_MAX / element_bytes, element_bytes))
}

unsafe fn valid(shape: Shape, datatype: u32, op: u32, count: *mut usize) -> c_int {
    answer_int(|| {
        let (elements_max, _) = elements_max(shape, op, datatype)?;
        if !count.is_null() {
            // SAFETY: C gives room for a number.
            unsafe { count.write(elements_max) };
        }
        Ok(())
    })
}

unsafe extern "C" fn writevalid(_ep: Ep, datatype: u32, op: u32, count: *mut usize) -> c_int {
    // SAFETY: C gives room for a number, as below.
    unsafe { valid(Shape::Update, datatype, op, count) }
}

unsafe extern "C" fn readwritevalid(_ep: Ep, datatype: u32, op: u32, count: *mut usize) -> c_int {
    // SAFETY: as above.
    unsafe { valid(Shape::Fetch, datatype, op, count) }
}

unsafe extern "C" fn compwritevalid(_ep: Ep, datatype: u32, op: u32, count: *mut usize) -> c_int {
    // SAFETY: as above.
    unsafe { valid(Shape::Compare, datatype, op, count) }
}

/// libfabric's `fi_query_atomic`.
///
/// # Safety
/// `attr` is null or leads to such a structure.
pub(crate) unsafe extern "C" fn query(
    _domain: *mut FidDomain,
    datatype: u32,
    op: u32,
    attr: *mut AtomicAttr,
    flags: u64,
) -> c_int {
    answer_int(|| {
        let shape = match flags {
            0 => Shape::Update,
            abi::FETCH_ATOMIC => Shape::Fetch,
            abi::COMPARE_ATOMIC => Shape::Compare,
            _ => return Err(libc::EOPNOTSUPP),
        };
        let (count, size) = elements_max(shape, op, datatype)?;
        if !attr.is_null() {
            // SAFETY: C's structure.
            unsafe { attr.write(AtomicAttr { count, size }) };
        }
        Ok(())
    })
}
