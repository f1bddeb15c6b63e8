//! Registered memory.

use std::ffi::{c_int, c_void};

use super::{Buffer, Fid, Vector};

#[repr(C)]
pub(crate) struct MrOps {
    pub(crate) size: usize,
    pub(crate) reg: unsafe extern "C" fn(
        *mut Fid,
        Buffer,
        usize,
        u64,
        u64,
        u64,
        u64,
        *mut *mut FidMr,
        *mut c_void,
    ) -> c_int,
    pub(crate) regv: unsafe extern "C" fn(
        *mut Fid,
        Vector,
        usize,
        u64,
        u64,
        u64,
        u64,
        *mut *mut FidMr,
        *mut c_void,
    ) -> c_int,
    pub(crate) regattr:
        unsafe extern "C" fn(*mut Fid, *const MrAttr, u64, *mut *mut FidMr) -> c_int,
}

/// As far as it is read.
#[repr(C)]
pub(crate) struct MrAttr {
    pub(crate) iov: Vector,
    pub(crate) iov_count: usize,
    pub(crate) access: u64,
    pub(crate) offset: u64,
    pub(crate) requested_key: u64,
    pub(crate) context: *mut c_void,
}

#[repr(C)]
pub(crate) struct FidMr {
    pub(crate) fid: Fid,
    pub(crate) mem_desc: *mut c_void,
    pub(crate) key: u64,
}

const _: () = {
    assert!(size_of::<MrOps>() == 32);
    assert!(size_of::<FidMr>() == 40);
};
