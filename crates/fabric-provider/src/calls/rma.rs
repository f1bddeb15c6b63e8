//! Reads and writes of a peer's memory. Each function is the slot of its name in libfabric's table; C's promises are those
//! of its manual page: the endpoint is open, buffers are lent until the completion.

use super::{Context, Desc, Ep, Many, data, pieces, whole, with};
use crate::abi::{self, Buffer, MsgRma, RmaOps, Vector};
use crate::buffers::{Buffers, Lent};
use crate::endpoint::{Endpoint, Given, INJECT_BYTES_MAX, Order, Queues};
use crate::fence::{Number, answer};
use crate::remote::request::{Action, OPERANDS_BYTES_MAX, Request};
use messaging::Memory;

pub(super) const OPS: RmaOps = RmaOps {
    size: size_of::<RmaOps>(),
    read,
    readv,
    readmsg,
    write,
    writev,
    writemsg,
    inject,
    writedata,
    injectdata,
};

/// What all calls have.
#[derive(Debug, Clone, Copy)]
pub(super) struct Access {
    pub(super) peer: u64,
    pub(super) addr: u64,
    pub(super) key: u64,
    pub(super) data: Option<u64>,
    pub(super) context: Context,
    /// None: those of the endpoint.
    pub(super) flags: Option<u64>,
    /// Only failures are told.
    pub(super) is_quiet: bool,
}

impl Access {
    pub(super) fn new(peer: u64, addr: u64, key: u64, context: Context) -> Self {
        Self { peer, addr, key, data: None, context, flags: None, is_quiet: false }
    }

    pub(super) fn inject(peer: u64, addr: u64, key: u64, data: Option<u64>) -> Self {
        let access = Self::new(peer, addr, key, std::ptr::null_mut());
        Self { data, is_quiet: true, flags: Some(abi::INJECT), ..access }
    }

    /// # Errors
    /// `EINVAL`: several parts of the peer's memory, or not of the buffer's length. `EOPNOTSUPP`: flags that are not
    /// served.
    unsafe fn of_message(msg: &MsgRma, flags: u64) -> Result<(Self, u64), Number> {
        if msg.rma_iov_count != 1 || msg.rma_iov.is_null() {
            return Err(libc::EINVAL);
        }
        // SAFETY: C gives one.
        let part = unsafe { &*msg.rma_iov };
        let access = Self {
            data: data(flags, msg.data),
            flags: Some(flags),
            ..Self::new(msg.addr, part.addr, part.key, msg.context)
        };
        Ok((access, part.len as u64))
    }

    /// The order, and whether the call may be made at all.
    pub(super) fn order(
        &self,
        endpoint: &Endpoint,
        (action, length_bytes): (Action, u64),
        result: Lent,
        flags_of_end: u64,
    ) -> Result<Order, Number> {
        let binding = &endpoint.binding;
        let flags = self.flags.unwrap_or(binding.send_flags);
        let needed = flags_of_end & (abi::RMA | abi::ATOMIC | abi::READ | abi::WRITE);
        let is_unserved = flags & (abi::FENCE | abi::TRIGGER | abi::COMMIT_COMPLETE) != 0;
        if binding.caps & needed != needed || is_unserved {
            return Err(libc::EOPNOTSUPP);
        }
        let request =
            Request { action, key: self.key, offset: self.addr, length_bytes, data: self.data };
        let is_told = !binding.is_send_selective || flags & abi::COMPLETION != 0;
        Ok(Order {
            to: self.peer,
            request,
            result,
            context: self.context.expose_provenance(),
            flags: flags_of_end,
            is_told: is_told && !self.is_quiet,
        })
    }

    fn is_inject(&self, endpoint: &Endpoint) -> bool {
        self.flags.unwrap_or(endpoint.binding.send_flags) & abi::INJECT != 0
    }
}

/// Reads, into the buffer that `lend` makes; `length`, where it is given, is its length.
///
/// # Safety
/// `ep` is an endpoint of this provider's.
unsafe fn get(
    ep: Ep,
    access: Access,
    length: Option<u64>,
    lend: impl FnOnce(&mut Buffers) -> Result<Lent, Number>,
) -> isize {
    answer(|| {
        let call = |endpoint: &mut Endpoint, queues: &mut Queues<'_>| {
            let lent = lend(&mut endpoint.buffers)?;
            let what = (Action::Read, lent.length_bytes);
            let order = access.order(endpoint, what, lent, abi::RMA | abi::READ);
            let order = order.and_then(|order| {
                let fits = length.is_none_or(|length| length == lent.length_bytes);
                fits.then_some(order).ok_or(libc::EINVAL)
            });
            match order {
                Ok(order) => endpoint.start(&order, Given::Operands(&[]), queues),
                Err(number) => {
                    endpoint.buffers.give_back(lent.buffer);
                    Err(number)
                }
            }
        };
        // SAFETY: the caller's promise.
        unsafe { with(ep, call) }.map(|()| 0)
    })
}

/// Writes the buffer that `lend` makes.
///
/// # Safety
/// As [`get`].
unsafe fn put(
    ep: Ep,
    access: Access,
    length: Option<u64>,
    lend: impl FnOnce(&mut Buffers) -> Result<Lent, Number>,
) -> isize {
    answer(|| {
        let call = |endpoint: &mut Endpoint, queues: &mut Queues<'_>| {
            let lent = lend(&mut endpoint.buffers)?;
            let is_apart = lent.length_bytes > OPERANDS_BYTES_MAX as u64;
            let action = if is_apart { Action::WriteApart } else { Action::Write };
            let what = (action, lent.length_bytes);
            let order = access.order(endpoint, what, Lent::NOTHING, abi::RMA | abi::WRITE);
            let is_too_long = access.is_inject(endpoint) && lent.length_bytes > INJECT_BYTES_MAX;
            let order = match order {
                Ok(_) if is_too_long => Err(libc::EMSGSIZE),
                Ok(_) if length.is_some_and(|length| length != lent.length_bytes) => {
                    Err(libc::EINVAL)
                }
                order => order,
            };
            let order = match order {
                Ok(order) => order,
                Err(number) => {
                    endpoint.buffers.give_back(lent.buffer);
                    return Err(number);
                }
            };
            if is_apart {
                return endpoint.start(&order, Given::Data(lent), queues);
            }
            let mut operands = Vec::with_capacity(lent.length_bytes as usize);
            endpoint.buffers.read(lent.buffer, 0, lent.length_bytes as usize, &mut operands);
            endpoint.buffers.give_back(lent.buffer);
            endpoint.start(&order, Given::Operands(&operands), queues)
        };
        // SAFETY: the caller's promise.
        unsafe { with(ep, call) }.map(|()| 0)
    })
}

unsafe extern "C" fn read(
    ep: Ep,
    buffer: Buffer,
    length: usize,
    _desc: Desc,
    from: u64,
    addr: u64,
    key: u64,
    context: Context,
) -> isize {
    let access = Access::new(from, addr, key, context);
    // SAFETY: an endpoint of this provider's, as below.
    unsafe { get(ep, access, None, whole(buffer, length)) }
}

unsafe extern "C" fn readv(
    ep: Ep,
    vectors: Vector,
    _desc: Many,
    count: usize,
    from: u64,
    addr: u64,
    key: u64,
    context: Context,
) -> isize {
    let access = Access::new(from, addr, key, context);
    // SAFETY: as above.
    unsafe { get(ep, access, None, pieces(vectors, count)) }
}

unsafe extern "C" fn readmsg(ep: Ep, msg: *const MsgRma, flags: u64) -> isize {
    // SAFETY: C's structure.
    let msg = unsafe { &*msg };
    // SAFETY: the same.
    match unsafe { Access::of_message(msg, flags & !abi::REMOTE_CQ_DATA) } {
        // SAFETY: as above.
        Ok((access, length)) => unsafe {
            get(ep, access, Some(length), pieces(msg.iov, msg.iov_count))
        },
        Err(number) => -(number as isize),
    }
}

unsafe extern "C" fn write(
    ep: Ep,
    buffer: Buffer,
    length: usize,
    _desc: Desc,
    to: u64,
    addr: u64,
    key: u64,
    context: Context,
) -> isize {
    let access = Access::new(to, addr, key, context);
    // SAFETY: as above.
    unsafe { put(ep, access, None, whole(buffer, length)) }
}

unsafe extern "C" fn writev(
    ep: Ep,
    vectors: Vector,
    _desc: Many,
    count: usize,
    to: u64,
    addr: u64,
    key: u64,
    context: Context,
) -> isize {
    let access = Access::new(to, addr, key, context);
    // SAFETY: as above.
    unsafe { put(ep, access, None, pieces(vectors, count)) }
}

unsafe extern "C" fn writemsg(ep: Ep, msg: *const MsgRma, flags: u64) -> isize {
    // SAFETY: C's structure.
    let msg = unsafe { &*msg };
    // SAFETY: the same.
    match unsafe { Access::of_message(msg, flags) } {
        // SAFETY: as above.
        Ok((access, length)) => unsafe {
            put(ep, access, Some(length), pieces(msg.iov, msg.iov_count))
        },
        Err(number) => -(number as isize),
    }
}

unsafe extern "C" fn inject(
    ep: Ep,
    buffer: Buffer,
    length: usize,
    to: u64,
    addr: u64,
    key: u64,
) -> isize {
    let access = Access::inject(to, addr, key, None);
    // SAFETY: as above.
    unsafe { put(ep, access, None, whole(buffer, length)) }
}

unsafe extern "C" fn writedata(
    ep: Ep,
    buffer: Buffer,
    length: usize,
    _desc: Desc,
    data: u64,
    to: u64,
    addr: u64,
    key: u64,
    context: Context,
) -> isize {
    let access = Access { data: Some(data), ..Access::new(to, addr, key, context) };
    // SAFETY: as above.
    unsafe { put(ep, access, None, whole(buffer, length)) }
}

unsafe extern "C" fn injectdata(
    ep: Ep,
    buffer: Buffer,
    length: usize,
    data: u64,
    to: u64,
    addr: u64,
    key: u64,
) -> isize {
    let access = Access::inject(to, addr, key, Some(data));
    // SAFETY: as above.
    unsafe { put(ep, access, None, whole(buffer, length)) }
}
