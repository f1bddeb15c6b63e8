//! Registered memory. Messages need none; programs may register their buffers all the same. Memory that peers may access
//! has a key that the program chooses, and is named by the offset from its beginning.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{fid, hand_over, no_bind, operations};
use crate::abi::{self, Buffer, Fid, FidDomain, FidMr, FidOps, MrAttr, MrOps, Vector};
use crate::fence::{Number, Object, Shared, answer_int};
use crate::interfaces::complain;

/// How long closing a region waits for what peers still do there.
const DRAIN: Duration = Duration::from_secs(5);
const LOCAL_ACCESS: u64 = abi::SEND | abi::RECV | abi::READ | abi::WRITE;
const REMOTE_ACCESS: u64 = abi::REMOTE_READ | abi::REMOTE_WRITE;
/// [`Object::index`] of memory that peers may access.
const IS_REMOTE: usize = 1;

static FID: FidOps = operations(close, no_bind, control);
pub(super) static OPS: MrOps = MrOps { size: size_of::<MrOps>(), reg, regv, regattr };

/// What a program registers.
#[derive(Debug, Clone, Copy)]
struct Wish {
    start: Buffer,
    length_bytes: usize,
    access: u64,
    key: u64,
    context: *mut c_void,
}

/// # Safety
/// `domain` is a domain of this provider's, `region` leads to room for a pointer.
unsafe fn register(domain: *mut Fid, wish: &Wish, region: *mut *mut FidMr) -> c_int {
    answer_int(|| {
        if wish.access & !(LOCAL_ACCESS | REMOTE_ACCESS) != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        // SAFETY: the caller's promise.
        let shared = Arc::clone(&unsafe { Object::<FidDomain>::of(domain.cast()) }.shared);
        let is_remote = wish.access & REMOTE_ACCESS != 0;
        if is_remote {
            let (start, length_bytes) = (wish.start.cast_mut().cast(), wish.length_bytes);
            let regions = &mut shared.lock()?.regions;
            // SAFETY: the program lets peers access its memory until it closes the registration.
            unsafe { regions.register(wish.key, start, length_bytes, wish.access) }?;
        }
        let fid = fid(abi::CLASS_MR, wish.context, &FID);
        let new = FidMr { fid, mem_desc: std::ptr::null_mut(), key: wish.key };
        let index = if is_remote { IS_REMOTE } else { 0 };
        // SAFETY: the caller's promise.
        unsafe { hand_over(region, Object::give(new, shared, index)) };
        Ok(())
    })
}

/// The one piece of memory that is registered.
///
/// # Errors
/// There are several, and peers are to access them.
///
/// # Safety
/// `vectors` leads to `count` pieces.
unsafe fn only(vectors: Vector, count: usize, access: u64) -> Result<(Buffer, usize), Number> {
    if count == 0 || vectors.is_null() || count > 1 && access & REMOTE_ACCESS == 0 {
        return Ok((std::ptr::null(), 0));
    }
    if count > 1 {
        return Err(libc::EINVAL);
    }
    // SAFETY: the caller's promise.
    let piece = unsafe { &*vectors };
    Ok((piece.iov_base, piece.iov_len))
}

unsafe extern "C" fn reg(
    domain: *mut Fid,
    start: Buffer,
    length: usize,
    access: u64,
    _offset: u64,
    key: u64,
    _flags: u64,
    region: *mut *mut FidMr,
    context: *mut c_void,
) -> c_int {
    let wish = Wish { start, length_bytes: length, access, key, context };
    // SAFETY: C's domain and room for a pointer, as below.
    unsafe { register(domain, &wish, region) }
}

unsafe extern "C" fn regv(
    domain: *mut Fid,
    vectors: Vector,
    count: usize,
    access: u64,
    _offset: u64,
    key: u64,
    _flags: u64,
    region: *mut *mut FidMr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: C's pieces.
    let (start, length_bytes) = match unsafe { only(vectors, count, access) } {
        Ok(only) => only,
        Err(number) => return -number,
    };
    let wish = Wish { start, length_bytes, access, key, context };
    // SAFETY: as above.
    unsafe { register(domain, &wish, region) }
}

unsafe extern "C" fn regattr(
    domain: *mut Fid,
    attr: *const MrAttr,
    _flags: u64,
    region: *mut *mut FidMr,
) -> c_int {
    // SAFETY: C's structure.
    let attr = unsafe { &*attr };
    // SAFETY: C's pieces.
    let (start, length_bytes) = match unsafe { only(attr.iov, attr.iov_count, attr.access) } {
        Ok(only) => only,
        Err(number) => return -number,
    };
    let (access, key, context) = (attr.access, attr.requested_key, attr.context);
    let wish = Wish { start, length_bytes, access, key, context };
    // SAFETY: as above.
    unsafe { register(domain, &wish, region) }
}

/// Memory may be accessed as soon as it is registered; programs may say so all the same.
unsafe extern "C" fn control(_fid: *mut Fid, command: c_int, _argument: *mut c_void) -> c_int {
    if command == abi::CONTROL_ENABLE { 0 } else { -libc::ENOSYS }
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: registered memory that C closes, once.
    let object = unsafe { Object::<FidMr>::take_back(fid.cast()) };
    if object.index == IS_REMOTE {
        revoke(&object.shared, object.fid.key);
    }
    0
}

/// No peer touches the memory from now on. What peers still read and write there is finished first, for a bounded time:
/// a peer that asks for what the program no longer offers may find zeros.
fn revoke(shared: &Shared, key: u64) {
    // In a forked child the parent's memory is left as it is.
    let Ok(mut state) = shared.lock() else { return };
    state.regions.forget(key);
    let began = Instant::now();
    while state.endpoints.iter().flatten().any(|endpoint| endpoint.buffers.uses(key)) {
        if began.elapsed() >= DRAIN {
            complain(
                "memory was closed while a peer read or wrote it: the rest was not transferred",
            );
            for endpoint in state.endpoints.iter_mut().flatten() {
                endpoint.buffers.revoke(key);
            }
            return;
        }
        state.progress();
        std::thread::yield_now();
    }
}
