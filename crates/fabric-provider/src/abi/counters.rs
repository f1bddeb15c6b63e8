//! Event counters.

use std::ffi::{c_int, c_void};

use super::Fid;

#[repr(C)]
pub(crate) struct CntrAttr {
    pub(crate) events: u32,
    pub(crate) wait_obj: u32,
    pub(crate) wait_set: *mut c_void,
    pub(crate) flags: u64,
}

#[repr(C)]
pub(crate) struct FidCntr {
    pub(crate) fid: Fid,
    pub(crate) ops: &'static CntrOps,
}

type Cntr = *mut FidCntr;

#[repr(C)]
pub(crate) struct CntrOps {
    pub(crate) size: usize,
    pub(crate) read: unsafe extern "C" fn(Cntr) -> u64,
    pub(crate) readerr: unsafe extern "C" fn(Cntr) -> u64,
    pub(crate) add: unsafe extern "C" fn(Cntr, u64) -> c_int,
    pub(crate) set: unsafe extern "C" fn(Cntr, u64) -> c_int,
    pub(crate) wait: unsafe extern "C" fn(Cntr, u64, c_int) -> c_int,
    pub(crate) adderr: unsafe extern "C" fn(Cntr, u64) -> c_int,
    pub(crate) seterr: unsafe extern "C" fn(Cntr, u64) -> c_int,
}

const _: () = {
    assert!(size_of::<CntrAttr>() == 24);
    assert!(size_of::<CntrOps>() == 64);
};
