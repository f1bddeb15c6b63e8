//! Fabric, domain, address vector, completion queue, event counter, event queue, registered memory and endpoint
//! as C opens, binds and closes them.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;
use std::time::Duration;

use crate::abi::{
    self, AvAttr, CqAttr, DomainOps, EqOps, FabricAttr, FabricOps, Fid, FidAv, FidCntr, FidCq,
    FidDomain, FidEp, FidEq, FidFabric, FidOps, Info, unserved,
};
use crate::backstop::Backstop;
use crate::calls;
use crate::endpoint::{Binding, Endpoint};
use crate::fence::{Number, Object, Shared, State, answer_int, keep};
use crate::info::{caps, operation_flags};
use crate::queue::Queue;

mod counters;
mod memory;
mod queues;
mod vectors;

/// Operations of all objects with this way to close and to bind.
const fn operations(
    close: unsafe extern "C" fn(*mut Fid) -> c_int,
    bind: unsafe extern "C" fn(*mut Fid, *mut Fid, u64) -> c_int,
    control: unsafe extern "C" fn(*mut Fid, c_int, *mut c_void) -> c_int,
) -> FidOps {
    FidOps {
        size: size_of::<FidOps>(),
        close,
        bind,
        control,
        ops_open: unserved,
        tostr: unserved,
        ops_set: unserved,
    }
}

/// Nothing can be bound to it.
unsafe extern "C" fn no_bind(_fid: *mut Fid, _other: *mut Fid, _flags: u64) -> c_int {
    -libc::ENOSYS
}

/// It takes no commands.
unsafe extern "C" fn no_control(_fid: *mut Fid, _command: c_int, _argument: *mut c_void) -> c_int {
    -libc::ENOSYS
}

static FABRIC_FID: FidOps = operations(close_fabric, no_bind, no_control);
static FABRIC: FabricOps = FabricOps {
    size: size_of::<FabricOps>(),
    domain: open_domain,
    passive_ep: unserved,
    eq_open: open_events,
    wait_open: unserved,
    trywait,
    domain2: unserved,
};
static DOMAIN_FID: FidOps = operations(close_domain, bind_nothing, no_control);
static DOMAIN: DomainOps = DomainOps {
    size: size_of::<DomainOps>(),
    av_open: vectors::open,
    cq_open: queues::open,
    endpoint: open_endpoint,
    scalable_ep: unserved,
    cntr_open: counters::open,
    poll_open: unserved,
    stx_ctx: unserved,
    srx_ctx: unserved,
    query_atomic: calls::atomic::query,
    query_collective: unserved,
    endpoint2: unserved,
};
static EVENTS_FID: FidOps = operations(close_events, no_bind, no_control);
static EVENTS: EqOps = EqOps {
    size: size_of::<EqOps>(),
    read: no_event,
    readerr: no_event,
    write: unserved,
    sread: wait_for_event,
    strerror: no_text,
};
static ENDPOINT_FID: FidOps = operations(close_endpoint, bind_endpoint, control_endpoint);

extern "C" fn no_event() -> isize {
    -(libc::EAGAIN as isize)
}

/// Waits for `timeout_ms`, because no event ever comes; negative: for ever.
unsafe extern "C" fn wait_for_event(
    _events: *mut FidEq,
    _event: *mut u32,
    _to: *mut c_void,
    _length: usize,
    timeout_ms: c_int,
    _flags: u64,
) -> isize {
    let limit = u64::try_from(timeout_ms).map_or(Duration::MAX, Duration::from_millis);
    std::thread::sleep(limit);
    no_event()
}

extern "C" fn no_text() -> *const c_char {
    c"no event".as_ptr()
}

/// Event queues stay empty: there are no connections and no late answers.
unsafe extern "C" fn bind_nothing(_fid: *mut Fid, _other: *mut Fid, _flags: u64) -> c_int {
    0
}

unsafe extern "C" fn trywait(
    _fabric: *mut FidFabric,
    _fids: *mut *mut Fid,
    _count: c_int,
) -> c_int {
    -libc::EAGAIN
}

fn fid(class: usize, context: *mut c_void, ops: &'static FidOps) -> Fid {
    Fid { class, context, ops }
}

/// Hands an object to C.
///
/// # Safety
/// `to` leads to room for a pointer.
unsafe fn hand_over<T>(to: *mut *mut T, object: *mut T) {
    // SAFETY: the caller's promise.
    unsafe { to.write(object) };
}

/// libfabric's `fi_fabric`.
///
/// # Safety
/// `fabric` leads to room for a pointer.
pub(crate) unsafe extern "C" fn open_fabric(
    _attr: *mut FabricAttr,
    fabric: *mut *mut FidFabric,
    context: *mut c_void,
) -> c_int {
    let fid = fid(abi::CLASS_FABRIC, context, &FABRIC_FID);
    let new = FidFabric { fid, ops: &FABRIC, api_version: abi::version(1, 5) };
    // SAFETY: the caller's promise. A fabric shares nothing; the state is for the type's sake.
    unsafe { hand_over(fabric, Object::give(new, Shared::new(), 0)) };
    0
}

unsafe extern "C" fn close_fabric(fid: *mut Fid) -> c_int {
    // SAFETY: a fabric that C closes, once.
    drop(unsafe { Object::<FidFabric>::take_back(fid.cast()) });
    0
}

unsafe extern "C" fn open_events(
    _fabric: *mut FidFabric,
    _attr: *mut c_void,
    events: *mut *mut FidEq,
    context: *mut c_void,
) -> c_int {
    let new = FidEq { fid: fid(abi::CLASS_EQ, context, &EVENTS_FID), ops: &EVENTS };
    // SAFETY: C gives room for a pointer.
    unsafe { hand_over(events, Object::give(new, Shared::new(), 0)) };
    0
}

unsafe extern "C" fn close_events(fid: *mut Fid) -> c_int {
    // SAFETY: an event queue that C closes, once.
    drop(unsafe { Object::<FidEq>::take_back(fid.cast()) });
    0
}

unsafe extern "C" fn open_domain(
    _fabric: *mut FidFabric,
    _info: *mut Info,
    domain: *mut *mut FidDomain,
    context: *mut c_void,
) -> c_int {
    let fid = fid(abi::CLASS_DOMAIN, context, &DOMAIN_FID);
    let new = FidDomain { fid, ops: &DOMAIN, mr: &memory::OPS };
    // SAFETY: C gives room for a pointer.
    unsafe { hand_over(domain, Object::give(new, Shared::new(), 0)) };
    0
}

unsafe extern "C" fn close_domain(fid: *mut Fid) -> c_int {
    // SAFETY: a domain that C closes, once; what was opened in it has its own hold on the state.
    drop(unsafe { Object::<FidDomain>::take_back(fid.cast()) });
    0
}

/// An endpoint before it is enabled: only what it is bound to is known.
unsafe extern "C" fn open_endpoint(
    domain: *mut FidDomain,
    info: *mut Info,
    endpoint: *mut *mut FidEp,
    context: *mut c_void,
) -> c_int {
    answer_int(|| {
        // SAFETY: a domain of this provider's.
        let shared = Arc::clone(&unsafe { Object::of(domain) }.shared);
        // SAFETY: C's structure, or null.
        let (send_flags, receive_flags) = unsafe { operation_flags(info) };
        // SAFETY: the same.
        let caps = unsafe { caps(info) };
        let binding = Binding { send_flags, receive_flags, caps, ..Binding::default() };
        let mut state = shared.lock()?;
        let count = state.vectors.iter().flatten().map(Vec::len).sum();
        let new = Endpoint::open(binding, count)?;
        let index = keep(&mut state.endpoints, new);
        if let Some(endpoint) = &mut state.endpoints[index] {
            endpoint.backstop = Some(Backstop::new(&shared, index));
        }
        drop(state);
        let new = calls::endpoint(fid(abi::CLASS_EP, context, &ENDPOINT_FID));
        // SAFETY: C gives room for a pointer.
        unsafe { hand_over(endpoint, Object::give(new, shared, index)) };
        Ok(())
    })
}

unsafe extern "C" fn close_endpoint(fid: *mut Fid) -> c_int {
    // SAFETY: an endpoint that C closes, once.
    let object = unsafe { Object::<FidEp>::take_back(fid.cast()) };
    answer_int(|| {
        // In a forked child the parent's endpoint is left as it is.
        let Ok(mut state) = object.shared.lock() else { return Ok(()) };
        let (endpoints, mut queues) = state.endpoints_and_queues();
        if let Some(mut endpoint) = endpoints[object.index].take() {
            endpoint.close(&mut queues);
        }
        Ok(())
    })
}

/// The object that C binds: its kind, and its number where it is of the same domain.
unsafe fn bound(other: *mut Fid, shared: &Arc<Shared>) -> Result<(usize, usize), Number> {
    // SAFETY: every object of libfabric's begins with this structure.
    let class = unsafe { (*other).class };
    let (its, index) = match class {
        abi::CLASS_AV => {
            // SAFETY: an address vector, of this provider's: objects of two are not bound together.
            let vector = unsafe { Object::<FidAv>::of(other.cast()) };
            (&vector.shared, vector.index)
        }
        abi::CLASS_CQ => {
            // SAFETY: the same for a completion queue.
            let queue = unsafe { Object::<FidCq>::of(other.cast()) };
            (&queue.shared, queue.index)
        }
        abi::CLASS_CNTR => {
            // SAFETY: the same for an event counter.
            let counter = unsafe { Object::<FidCntr>::of(other.cast()) };
            (&counter.shared, counter.index)
        }
        abi::CLASS_EQ => return Ok((class, 0)),
        _ => return Err(libc::ENOSYS),
    };
    if Arc::ptr_eq(its, shared) { Ok((class, index)) } else { Err(libc::EINVAL) }
}

unsafe extern "C" fn bind_endpoint(fid: *mut Fid, other: *mut Fid, flags: u64) -> c_int {
    answer_int(|| {
        // SAFETY: an endpoint of this provider's.
        let object = unsafe { Object::<FidEp>::of(fid.cast()) };
        // SAFETY: an object of libfabric's.
        let (class, index) = unsafe { bound(other, &object.shared) }?;
        let mut state = object.shared.lock()?;
        let endpoint = state.endpoints[object.index].as_mut().ok_or(libc::EINVAL)?;
        let binding = &mut endpoint.binding;
        let is_selective = flags & abi::SELECTIVE_COMPLETION != 0;
        match class {
            abi::CLASS_AV => binding.vector = Some(index),
            abi::CLASS_CQ => {
                if flags & abi::SEND != 0 {
                    binding.send_queue = Some(index);
                    binding.is_send_selective = is_selective;
                }
                if flags & abi::RECV != 0 {
                    binding.receive_queue = Some(index);
                    binding.is_receive_selective = is_selective;
                }
            }
            abi::CLASS_CNTR => {
                // Without flags it counts whatever there is.
                let is = |flag: u64| flags == 0 || flags & flag != 0;
                for (flag, counter) in [
                    (abi::SEND, &mut binding.send_counter),
                    (abi::RECV, &mut binding.receive_counter),
                    (abi::READ, &mut binding.read_counter),
                    (abi::WRITE, &mut binding.write_counter),
                    (abi::REMOTE_READ, &mut binding.remote_read_counter),
                    (abi::REMOTE_WRITE, &mut binding.remote_write_counter),
                ] {
                    if is(flag) {
                        *counter = Some(index);
                    }
                }
            }
            _ => {}
        }
        Ok(())
    })
}

unsafe extern "C" fn control_endpoint(fid: *mut Fid, command: c_int, _data: *mut c_void) -> c_int {
    answer_int(|| {
        if command != abi::CONTROL_ENABLE {
            return Err(libc::ENOSYS);
        }
        // SAFETY: an endpoint of this provider's.
        let object = unsafe { Object::<FidEp>::of(fid.cast()) };
        let mut state = object.shared.lock()?;
        let State { endpoints, vectors, .. } = &mut *state;
        let endpoint = endpoints[object.index].as_mut().ok_or(libc::EINVAL)?;
        let vector = endpoint.binding.vector.ok_or(abi::ENOAV)?;
        let binding = &endpoint.binding;
        let queue = binding.send_queue.or(binding.receive_queue);
        let counters = [
            binding.send_counter,
            binding.receive_counter,
            binding.read_counter,
            binding.write_counter,
        ];
        if queue.is_none() && counters.iter().all(Option::is_none) {
            return Err(abi::ENOCQ);
        }
        endpoint.is_enabled = true;
        for (at, name) in vectors[vector].iter().flatten().enumerate() {
            if let Some(name) = name {
                endpoint.introduce(at as u64, name)?;
            }
        }
        Ok(())
    })
}

/// Whether waiting is polling, as it is here: there is nothing that the program could wait for by itself.
fn check_wait(wait_obj: u32) -> Result<(), Number> {
    match wait_obj {
        abi::WAIT_NONE | abi::WAIT_UNSPEC | abi::WAIT_YIELD => Ok(()),
        _ => Err(libc::ENOSYS),
    }
}

/// The attributes that C gives for a queue or a vector.
unsafe fn entry_bytes(attr: *const CqAttr) -> Result<usize, Number> {
    // SAFETY: C's structure, or null.
    let attr = unsafe { attr.as_ref() };
    attr.map_or(Ok(()), |attr| check_wait(attr.wait_obj))?;
    match attr.map_or(abi::CQ_FORMAT_UNSPEC, |attr| attr.format) {
        abi::CQ_FORMAT_UNSPEC => Ok(48),
        format @ abi::CQ_FORMAT_CONTEXT..=abi::CQ_FORMAT_TAGGED => {
            Ok([8, 24, 40, 48][format as usize - 1])
        }
        _ => Err(libc::EINVAL),
    }
}

/// How many addresses C expects.
unsafe fn expected_count(attr: *const AvAttr) -> usize {
    // SAFETY: C's structure, or null.
    unsafe { attr.as_ref() }.map_or(0, |attr| attr.count)
}

/// A new queue's number.
fn keep_queue(shared: &Shared, entry_bytes: usize) -> Result<usize, Number> {
    Ok(keep(&mut shared.lock()?.queues, Queue::new(entry_bytes)))
}
