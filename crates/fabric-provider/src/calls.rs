//! Sending and receiving as C calls it: each call becomes an [`Outgoing`] or an [`Incoming`].

use std::ffi::{c_int, c_void};

use messaging::{Channel, SendMode};

use crate::abi::{
    self, AtomicOps, Buffer, CmOps, Descriptors, EpOps, Fid, FidEp, MsgOps, RmaOps, TaggedOps,
    Vector, unserved,
};
use crate::buffers::{Buffers, Lent};
use crate::endpoint::{Endpoint, Incoming, Outgoing, Queues};
use crate::fence::{Number, Object, answer, answer_int};
use crate::info::copy_name;

pub(crate) mod atomic;
mod plain;
mod rma;
mod tagged;

static OPS: EpOps = EpOps {
    size: size_of::<EpOps>(),
    cancel,
    getopt,
    setopt,
    tx_ctx: unserved,
    rx_ctx: unserved,
    rx_size_left: unserved,
    tx_size_left: unserved,
};
static CONNECTIONS: CmOps = CmOps {
    size: size_of::<CmOps>(),
    setname: unserved,
    getname,
    getpeer: unserved,
    connect: unserved,
    listen: unserved,
    accept: unserved,
    reject: unserved,
    shutdown: unserved,
    join: unserved,
};
static MSG: MsgOps = plain::OPS;
static TAGGED: TaggedOps = tagged::OPS;
static RMA: RmaOps = rma::OPS;
static ATOMIC: AtomicOps = atomic::OPS;
/// A table of what is not served: all its slots are `unserved`.
#[repr(C)]
struct Nothing {
    size: usize,
    slots: [abi::Unserved; 16],
}
static NOTHING: Nothing = Nothing { size: size_of::<Nothing>(), slots: [unserved; 16] };

/// An endpoint's tables.
pub(crate) fn endpoint(fid: Fid) -> FidEp {
    let nothing = (&raw const NOTHING).cast::<c_void>();
    FidEp {
        fid,
        ops: &OPS,
        cm: &CONNECTIONS,
        msg: &MSG,
        rma: &RMA,
        tagged: &TAGGED,
        atomic: &ATOMIC,
        collective: nothing,
    }
}

/// Calls something with an endpoint and its domain's queues.
///
/// # Safety
/// `ep` is an endpoint of this provider's.
unsafe fn with<T>(
    ep: *mut FidEp,
    call: impl FnOnce(&mut Endpoint, &mut Queues<'_>) -> Result<T, Number>,
) -> Result<T, Number> {
    // SAFETY: the caller's promise.
    let object = unsafe { Object::of(ep) };
    let mut state = object.shared.lock()?;
    let (endpoints, mut queues) = state.endpoints_and_queues();
    let endpoint = endpoints[object.index].as_mut().ok_or(libc::EINVAL)?;
    if !endpoint.is_enabled {
        return Err(abi::EOPBADSTATE);
    }
    call(endpoint, &mut queues)
}

/// Whom, what and with which word: what all sends have.
#[derive(Debug, Clone, Copy)]
struct Sending {
    to: u64,
    channel: Channel,
    tag: u64,
    data: Option<u64>,
    context: *mut c_void,
    /// None: those of the endpoint.
    flags: Option<u64>,
}

/// From whom, what and with which word: what all receives have.
#[derive(Debug, Clone, Copy)]
struct Receiving {
    from: u64,
    channel: Channel,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
    flags: Option<u64>,
}

/// Sends. `lend` makes the buffer.
///
/// # Safety
/// `ep` is an endpoint of this provider's.
unsafe fn send(
    ep: *mut FidEp,
    sending: Sending,
    lend: impl FnOnce(&mut Buffers) -> Result<Lent, Number>,
) -> isize {
    answer(|| {
        let call = |endpoint: &mut Endpoint, queues: &mut Queues<'_>| {
            let flags = sending.flags.unwrap_or(endpoint.binding.send_flags);
            let mode = if flags & abi::INJECT != 0 {
                SendMode::Inject
            } else if flags & (abi::DELIVERY_COMPLETE | abi::MATCH_COMPLETE) != 0 {
                SendMode::Synchronous
            } else {
                SendMode::Standard
            };
            let lent = lend(&mut endpoint.buffers)?;
            let is_told = !endpoint.binding.is_send_selective || flags & abi::COMPLETION != 0;
            let outgoing = Outgoing {
                to: sending.to,
                channel: sending.channel,
                tag: sending.tag,
                data: sending.data,
                lent,
                mode,
                context: sending.context.expose_provenance(),
                is_told,
            };
            endpoint.send(&outgoing, queues)
        };
        // SAFETY: the caller's promise.
        unsafe { with(ep, call) }.map(|()| 0)
    })
}

/// Sends a copy, without a completion.
///
/// # Safety
/// As [`send`].
unsafe fn inject(
    ep: *mut FidEp,
    sending: Sending,
    lend: impl FnOnce(&mut Buffers) -> Result<Lent, Number>,
) -> isize {
    answer(|| {
        let call = |endpoint: &mut Endpoint, queues: &mut Queues<'_>| {
            let lent = lend(&mut endpoint.buffers)?;
            let outgoing = Outgoing {
                to: sending.to,
                channel: sending.channel,
                tag: sending.tag,
                data: sending.data,
                lent,
                mode: SendMode::Inject,
                context: 0,
                is_told: false,
            };
            endpoint.send(&outgoing, queues)
        };
        // SAFETY: the caller's promise.
        unsafe { with(ep, call) }.map(|()| 0)
    })
}

/// Receives, looks or claims, as the flags say.
///
/// # Safety
/// `ep` is an endpoint of this provider's.
unsafe fn receive(
    ep: *mut FidEp,
    receiving: Receiving,
    lend: impl FnOnce(&mut Buffers) -> Result<Lent, Number>,
) -> isize {
    answer(|| {
        let call = |endpoint: &mut Endpoint, queues: &mut Queues<'_>| {
            let flags = receiving.flags.unwrap_or(endpoint.binding.receive_flags);
            let is = |flag: u64| flags & flag != 0;
            let is_tagged = receiving.channel == Channel::Tagged;
            let incoming = Incoming {
                from: if endpoint.binding.caps & abi::DIRECTED_RECV != 0 {
                    receiving.from
                } else {
                    abi::ADDR_UNSPEC
                },
                channel: receiving.channel,
                tag: receiving.tag,
                ignore: receiving.ignore,
                lent: Lent::NOTHING,
                is_multi: is(abi::MULTI_RECV) && !is_tagged,
                context: receiving.context.expose_provenance(),
                is_told: !endpoint.binding.is_receive_selective || is(abi::COMPLETION),
                is_discarded: is_tagged && is(abi::DISCARD),
            };
            if is_tagged && is(abi::PEEK) {
                return endpoint.peek(&incoming, is(abi::CLAIM), queues);
            }
            let incoming = if incoming.is_discarded {
                incoming
            } else {
                Incoming { lent: lend(&mut endpoint.buffers)?, ..incoming }
            };
            if is_tagged && is(abi::CLAIM) {
                return endpoint.receive_claimed(&incoming, queues);
            }
            endpoint.receive(&incoming, queues)
        };
        // SAFETY: the caller's promise.
        unsafe { with(ep, call) }.map(|()| 0)
    })
}

/// Lends a buffer in one piece.
fn whole(start: Buffer, length: usize) -> impl FnOnce(&mut Buffers) -> Result<Lent, Number> {
    // SAFETY: C lends its buffer until the operation's completion.
    move |_buffers| unsafe { Lent::whole(start.cast(), length) }
}

/// Lends a buffer of pieces.
fn pieces(vectors: Vector, count: usize) -> impl FnOnce(&mut Buffers) -> Result<Lent, Number> {
    move |buffers| {
        if count == 0 || vectors.is_null() {
            return Ok(Lent::NOTHING);
        }
        // SAFETY: C gives `count` pieces.
        let vectors = unsafe { std::slice::from_raw_parts(vectors, count) };
        // SAFETY: C lends them until the operation's completion.
        unsafe { buffers.pieces(vectors) }
    }
}

unsafe extern "C" fn cancel(fid: *mut Fid, context: *mut c_void) -> isize {
    let call = |endpoint: &mut Endpoint, queues: &mut Queues<'_>| {
        endpoint.cancel(context.expose_provenance(), queues);
        Ok(0)
    };
    // SAFETY: an endpoint of this provider's.
    answer(|| unsafe { with(fid.cast(), call) })
}

unsafe extern "C" fn getname(fid: *mut Fid, to: *mut c_void, length: *mut usize) -> c_int {
    answer_int(|| {
        // SAFETY: an endpoint of this provider's.
        let object = unsafe { Object::<FidEp>::of(fid.cast()) };
        let state = object.shared.lock()?;
        let endpoint = state.endpoints[object.index].as_ref().ok_or(libc::EINVAL)?;
        // SAFETY: C gives the room and its length.
        unsafe { copy_name(&endpoint.name.to_bytes(), to, length) }
    })
}

unsafe extern "C" fn getopt(
    fid: *mut Fid,
    level: c_int,
    option: c_int,
    value: *mut c_void,
    length: *mut usize,
) -> c_int {
    answer_int(|| {
        if (level, option) != (abi::OPT_ENDPOINT, abi::OPT_MIN_MULTI_RECV) {
            return Err(libc::ENOPROTOOPT);
        }
        // SAFETY: an endpoint of this provider's.
        let object = unsafe { Object::<FidEp>::of(fid.cast()) };
        let state = object.shared.lock()?;
        let endpoint = state.endpoints[object.index].as_ref().ok_or(libc::EINVAL)?;
        // SAFETY: C's own number.
        if unsafe { length.read() } < size_of::<usize>() {
            return Err(abi::ETOOSMALL);
        }
        // SAFETY: room for a `size_t`, as was just seen.
        unsafe { value.cast::<usize>().write_unaligned(endpoint.min_multi_bytes as usize) };
        // SAFETY: C's own number.
        unsafe { length.write(size_of::<usize>()) };
        Ok(())
    })
}

unsafe extern "C" fn setopt(
    fid: *mut Fid,
    level: c_int,
    option: c_int,
    value: *const c_void,
    length: usize,
) -> c_int {
    answer_int(|| {
        if (level, option) != (abi::OPT_ENDPOINT, abi::OPT_MIN_MULTI_RECV) {
            return Err(libc::ENOPROTOOPT);
        }
        if length < size_of::<usize>() {
            return Err(libc::EINVAL);
        }
        // SAFETY: C gives a `size_t`, as its length says.
        let bytes = unsafe { value.cast::<usize>().read_unaligned() };
        // SAFETY: an endpoint of this provider's.
        let object = unsafe { Object::<FidEp>::of(fid.cast()) };
        let mut state = object.shared.lock()?;
        let endpoint = state.endpoints[object.index].as_mut().ok_or(libc::EINVAL)?;
        endpoint.min_multi_bytes = bytes as u64;
        Ok(())
    })
}

/// Data that a call gives, where its flags say that there is any.
fn data(flags: u64, data: u64) -> Option<u64> {
    (flags & abi::REMOTE_CQ_DATA != 0).then_some(data)
}

type Desc = *mut c_void;
type Context = *mut c_void;
type Ep = *mut FidEp;
type Many = Descriptors;
