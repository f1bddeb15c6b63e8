//! Registered memory. Messages need none; programs may register their buffers all the same. Access by others
//! is refused, because there are no one-sided operations.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use super::{fid, hand_over, no_bind, no_control, operations};
use crate::abi::{self, Buffer, Fid, FidDomain, FidMr, FidOps, MrAttr, MrOps, Vector};
use crate::fence::{Object, answer_int};

static FID: FidOps = operations(close, no_bind, no_control);
pub(super) static OPS: MrOps = MrOps { size: size_of::<MrOps>(), reg, regv, regattr };

/// # Safety
/// `domain` is a domain of this provider's, `region` leads to room for a pointer.
unsafe fn register(
    domain: *mut Fid,
    access: u64,
    key: u64,
    region: *mut *mut FidMr,
    context: *mut c_void,
) -> c_int {
    answer_int(|| {
        if access & !(abi::SEND | abi::RECV) != 0 {
            return Err(libc::ENOSYS);
        }
        // SAFETY: the caller's promise.
        let shared = Arc::clone(&unsafe { Object::<FidDomain>::of(domain.cast()) }.shared);
        let fid = fid(abi::CLASS_MR, context, &FID);
        let new = FidMr { fid, mem_desc: std::ptr::null_mut(), key };
        // SAFETY: the caller's promise.
        unsafe { hand_over(region, Object::give(new, shared, 0)) };
        Ok(())
    })
}

unsafe extern "C" fn reg(
    domain: *mut Fid,
    _start: Buffer,
    _length: usize,
    access: u64,
    _offset: u64,
    key: u64,
    _flags: u64,
    region: *mut *mut FidMr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: C's domain and room for a pointer, as below.
    unsafe { register(domain, access, key, region, context) }
}

unsafe extern "C" fn regv(
    domain: *mut Fid,
    _vectors: Vector,
    _count: usize,
    access: u64,
    _offset: u64,
    key: u64,
    _flags: u64,
    region: *mut *mut FidMr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: as above.
    unsafe { register(domain, access, key, region, context) }
}

unsafe extern "C" fn regattr(
    domain: *mut Fid,
    attr: *const MrAttr,
    _flags: u64,
    region: *mut *mut FidMr,
) -> c_int {
    // SAFETY: C's structure.
    let attr = unsafe { &*attr };
    // SAFETY: as above.
    unsafe { register(domain, attr.access, attr.requested_key, region, attr.context) }
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: registered memory that C closes, once.
    drop(unsafe { Object::<FidMr>::take_back(fid.cast()) });
    0
}
