//! Completion queues: reading them is what makes progress.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{entry_bytes, fid, hand_over, keep_queue, no_bind, no_control, operations};
use crate::abi::{self, CqAttr, CqErrorEntry, CqOps, Fid, FidCq, FidDomain, FidOps};
use crate::fence::{Number, Object, answer, answer_int};

static FID: FidOps = operations(close, no_bind, no_control);
static OPS: CqOps =
    CqOps { size: size_of::<CqOps>(), read, readfrom, readerr, sread, sreadfrom, signal, strerror };

pub(super) unsafe extern "C" fn open(
    domain: *mut FidDomain,
    attr: *mut CqAttr,
    queue: *mut *mut FidCq,
    context: *mut c_void,
) -> c_int {
    answer_int(|| {
        // SAFETY: a domain of this provider's.
        let shared = Arc::clone(&unsafe { Object::of(domain) }.shared);
        // SAFETY: C's structure, or null.
        let bytes = unsafe { entry_bytes(attr) }?;
        let index = keep_queue(&shared, bytes)?;
        let new = FidCq { fid: fid(abi::CLASS_CQ, context, &FID), ops: &OPS };
        // SAFETY: C gives room for a pointer.
        unsafe { hand_over(queue, Object::give(new, shared, index)) };
        Ok(())
    })
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: a completion queue that C closes, once.
    let object = unsafe { Object::<FidCq>::take_back(fid.cast()) };
    if let Ok(mut state) = object.shared.lock() {
        state.queues[object.index] = None;
    }
    0
}

/// Entries that have come, at most `count`; makes progress first where there are none.
///
/// # Safety
/// `to` has room for `count` entries, `sources` is null or has room for as many addresses.
unsafe fn take(
    object: &Object<FidCq>,
    to: *mut c_void,
    count: usize,
    sources: *mut u64,
) -> Result<isize, Number> {
    let mut state = object.shared.lock()?;
    if state.queues[object.index].as_ref().is_none_or(crate::queue::Queue::is_empty) {
        state.progress();
    } else {
        state.send_waiting();
    }
    let queue = state.queues[object.index].as_mut().ok_or(libc::EINVAL)?;
    let mut taken = 0;
    while taken < count
        && let Some(ended) = queue.pop()
    {
        let at = to.wrapping_byte_add(taken * queue.entry_bytes);
        let entry = (&raw const ended.entry).cast::<c_void>();
        // SAFETY: room for `count` entries of this length, each the beginning of ours.
        unsafe { std::ptr::copy_nonoverlapping(entry.cast::<u8>(), at.cast(), queue.entry_bytes) };
        if !sources.is_null() {
            let at = sources.wrapping_add(taken);
            // SAFETY: room for `count` addresses.
            unsafe { at.write(ended.source) };
        }
        taken += 1;
    }
    if taken > 0 {
        queue.note_poll(true);
        return Ok(taken as isize);
    }
    if queue.has_error() {
        return Err(abi::EAVAIL);
    }
    let should_yield = queue.note_poll(false);
    drop(state);
    if should_yield {
        let began = Instant::now();
        std::thread::yield_now();
        let took = began.elapsed();
        if let Some(queue) = object.shared.lock()?.queues[object.index].as_mut() {
            queue.note_yield(took);
        }
    }
    Err(libc::EAGAIN)
}

unsafe extern "C" fn read(queue: *mut FidCq, to: *mut c_void, count: usize) -> isize {
    // SAFETY: the same promises; addresses are not asked for.
    unsafe { readfrom(queue, to, count, std::ptr::null_mut()) }
}

unsafe extern "C" fn readfrom(
    queue: *mut FidCq,
    to: *mut c_void,
    count: usize,
    sources: *mut u64,
) -> isize {
    // SAFETY: a completion queue of this provider's.
    let object = unsafe { Object::of(queue) };
    // SAFETY: C's promises are those of `take`.
    answer(|| unsafe { take(object, to, count, sources) })
}

/// Whether somebody asked that waiting ends; asked once, it ends once.
unsafe fn take_signal(queue: *mut FidCq) -> bool {
    // SAFETY: a completion queue of this provider's.
    let object = unsafe { Object::of(queue) };
    object.shared.lock().is_ok_and(|mut state| {
        let queue = state.queues[object.index].as_mut();
        queue.is_some_and(|queue| std::mem::take(&mut queue.is_signalled))
    })
}

/// Waits for `timeout_ms`; negative: for ever.
unsafe extern "C" fn sreadfrom(
    queue: *mut FidCq,
    to: *mut c_void,
    count: usize,
    sources: *mut u64,
    _condition: *const c_void,
    timeout_ms: c_int,
) -> isize {
    let limit = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
    let began = Instant::now();
    loop {
        // SAFETY: as above.
        let outcome = unsafe { readfrom(queue, to, count, sources) };
        let is_late = limit.is_some_and(|limit| began.elapsed() >= limit);
        // SAFETY: as above.
        if outcome != -(libc::EAGAIN as isize) || is_late || unsafe { take_signal(queue) } {
            return outcome;
        }
    }
}

unsafe extern "C" fn sread(
    queue: *mut FidCq,
    to: *mut c_void,
    count: usize,
    condition: *const c_void,
    timeout_ms: c_int,
) -> isize {
    // SAFETY: as above.
    unsafe { sreadfrom(queue, to, count, std::ptr::null_mut(), condition, timeout_ms) }
}

unsafe extern "C" fn readerr(queue: *mut FidCq, to: *mut CqErrorEntry, _flags: u64) -> isize {
    answer(|| {
        // SAFETY: a completion queue of this provider's.
        let object = unsafe { Object::of(queue) };
        let mut state = object.shared.lock()?;
        let queue = state.queues[object.index].as_mut().ok_or(libc::EINVAL)?;
        let entry = queue.pop_error().ok_or(libc::EAGAIN)?;
        // SAFETY: C gives room for such an entry.
        unsafe { to.write(entry) };
        Ok(1)
    })
}

unsafe extern "C" fn signal(queue: *mut FidCq) -> c_int {
    answer_int(|| {
        // SAFETY: a completion queue of this provider's.
        let object = unsafe { Object::of(queue) };
        let mut state = object.shared.lock()?;
        state.queues[object.index].as_mut().ok_or(libc::EINVAL)?.is_signalled = true;
        Ok(())
    })
}

unsafe extern "C" fn strerror(
    _queue: *mut FidCq,
    number: c_int,
    _data: *const c_void,
    _to: *mut c_char,
    _length: usize,
) -> *const c_char {
    match number {
        libc::ENOMSG => c"no such message",
        libc::ECANCELED => c"cancelled",
        abi::ETRUNC => c"the message is longer than the buffer",
        libc::ETIMEDOUT => c"the peer does not answer",
        libc::ECONNREFUSED => c"the peer's process has ended",
        libc::ECONNRESET => c"the peer closed its endpoint",
        libc::ECONNABORTED => c"the peer restarted",
        _ => c"failed",
    }
    .as_ptr()
}
