//! Event counters: how many sends and receives ended, whether told in a completion queue or not.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{check_wait, fid, hand_over, no_bind, no_control, operations};
use crate::abi::{self, CntrAttr, CntrOps, Fid, FidCntr, FidDomain, FidOps};
use crate::fence::{Number, Object, answer_int, keep};
use crate::queue::Counter;

static FID: FidOps = operations(close, no_bind, no_control);
static OPS: CntrOps =
    CntrOps { size: size_of::<CntrOps>(), read, readerr, add, set, wait, adderr, seterr };

type Cntr = *mut FidCntr;

pub(super) unsafe extern "C" fn open(
    domain: *mut FidDomain,
    attr: *mut CntrAttr,
    counter: *mut *mut FidCntr,
    context: *mut c_void,
) -> c_int {
    answer_int(|| {
        // SAFETY: C's structure, or null.
        unsafe { attr.as_ref() }.map_or(Ok(()), |attr| check_wait(attr.wait_obj))?;
        // SAFETY: a domain of this provider's.
        let shared = Arc::clone(&unsafe { Object::of(domain) }.shared);
        let index = keep(&mut shared.lock()?.counters, Counter::default());
        let new = FidCntr { fid: fid(abi::CLASS_CNTR, context, &FID), ops: &OPS };
        // SAFETY: C gives room for a pointer.
        unsafe { hand_over(counter, Object::give(new, shared, index)) };
        Ok(())
    })
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: an event counter that C closes, once.
    let object = unsafe { Object::<FidCntr>::take_back(fid.cast()) };
    if let Ok(mut state) = object.shared.lock() {
        state.counters[object.index] = None;
    }
    0
}

/// Calls something with a counter, after making progress if `progresses`.
///
/// # Safety
/// `counter` is an event counter of this provider's.
unsafe fn with<T>(
    counter: Cntr,
    progresses: bool,
    call: impl FnOnce(&mut Counter) -> T,
) -> Result<T, Number> {
    // SAFETY: the caller's promise.
    let object = unsafe { Object::of(counter) };
    let mut state = object.shared.lock()?;
    if progresses {
        state.progress();
    }
    Ok(call(state.counters[object.index].as_mut().ok_or(libc::EINVAL)?))
}

unsafe extern "C" fn read(counter: Cntr) -> u64 {
    // SAFETY: an event counter of this provider's, as below.
    unsafe { with(counter, true, |counter| counter.successes_count) }.unwrap_or(0)
}

unsafe extern "C" fn readerr(counter: Cntr) -> u64 {
    // SAFETY: as above.
    unsafe { with(counter, true, |counter| counter.errors_count) }.unwrap_or(0)
}

unsafe extern "C" fn add(counter: Cntr, value: u64) -> c_int {
    let call = |counter: &mut Counter| {
        counter.successes_count = counter.successes_count.wrapping_add(value);
    };
    // SAFETY: as above.
    answer_int(|| unsafe { with(counter, false, call) })
}

unsafe extern "C" fn set(counter: Cntr, value: u64) -> c_int {
    // SAFETY: as above.
    answer_int(|| unsafe { with(counter, false, |counter| counter.successes_count = value) })
}

unsafe extern "C" fn adderr(counter: Cntr, value: u64) -> c_int {
    let call = |counter: &mut Counter| {
        counter.errors_count = counter.errors_count.wrapping_add(value);
    };
    // SAFETY: as above.
    answer_int(|| unsafe { with(counter, false, call) })
}

unsafe extern "C" fn seterr(counter: Cntr, value: u64) -> c_int {
    // SAFETY: as above.
    answer_int(|| unsafe { with(counter, false, |counter| counter.errors_count = value) })
}

/// Waits until the counter has come to `threshold`, for `timeout_ms`; negative: for ever. An operation that
/// fails meanwhile ends the wait.
unsafe extern "C" fn wait(counter: Cntr, threshold: u64, timeout_ms: c_int) -> c_int {
    let limit = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
    let began = Instant::now();
    answer_int(|| {
        // SAFETY: as above.
        let errors_before = unsafe { with(counter, false, |counter| counter.errors_count) }?;
        loop {
            let counts = |counter: &mut Counter| (counter.successes_count, counter.errors_count);
            // SAFETY: as above.
            let (successes_count, errors_count) = unsafe { with(counter, true, counts) }?;
            if successes_count >= threshold {
                return Ok(());
            }
            if errors_count != errors_before {
                return Err(abi::EAVAIL);
            }
            if limit.is_some_and(|limit| began.elapsed() >= limit) {
                return Err(libc::ETIMEDOUT);
            }
            std::thread::yield_now();
        }
    })
}
