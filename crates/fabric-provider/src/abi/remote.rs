//! Access to the memory of peers: reads, writes and atomic operations.

use std::ffi::{c_int, c_void};

use super::{Buffer, Descriptors, FidEp, Vector};

type Context = *mut c_void;
type Desc = *mut c_void;
type Ep = *mut FidEp;
/// A kind of number, by libfabric's `fi_datatype`.
type Datatype = u32;
/// An operation, by libfabric's `fi_op`.
type Op = u32;

#[repr(C)]
pub(crate) struct RmaIov {
    pub(crate) addr: u64,
    pub(crate) len: usize,
    pub(crate) key: u64,
}

/// Counted in elements, as the next one.
#[repr(C)]
pub(crate) struct RmaIoc {
    pub(crate) addr: u64,
    pub(crate) count: usize,
    pub(crate) key: u64,
}

#[repr(C)]
pub(crate) struct Ioc {
    pub(crate) addr: *mut c_void,
    pub(crate) count: usize,
}

pub(crate) type Counted = *const Ioc;

#[repr(C)]
pub(crate) struct MsgRma {
    pub(crate) iov: Vector,
    pub(crate) desc: Descriptors,
    pub(crate) iov_count: usize,
    pub(crate) addr: u64,
    pub(crate) rma_iov: *const RmaIov,
    pub(crate) rma_iov_count: usize,
    pub(crate) context: Context,
    pub(crate) data: u64,
}

#[repr(C)]
pub(crate) struct MsgAtomic {
    pub(crate) iov: Counted,
    pub(crate) desc: Descriptors,
    pub(crate) iov_count: usize,
    pub(crate) addr: u64,
    pub(crate) rma_iov: *const RmaIoc,
    pub(crate) rma_iov_count: usize,
    pub(crate) datatype: Datatype,
    pub(crate) op: Op,
    pub(crate) context: Context,
    pub(crate) data: u64,
}

#[repr(C)]
pub(crate) struct RmaOps {
    pub(crate) size: usize,
    pub(crate) read: unsafe extern "C" fn(Ep, Buffer, usize, Desc, u64, u64, u64, Context) -> isize,
    pub(crate) readv:
        unsafe extern "C" fn(Ep, Vector, Descriptors, usize, u64, u64, u64, Context) -> isize,
    pub(crate) readmsg: unsafe extern "C" fn(Ep, *const MsgRma, u64) -> isize,
    pub(crate) write:
        unsafe extern "C" fn(Ep, Buffer, usize, Desc, u64, u64, u64, Context) -> isize,
    pub(crate) writev:
        unsafe extern "C" fn(Ep, Vector, Descriptors, usize, u64, u64, u64, Context) -> isize,
    pub(crate) writemsg: unsafe extern "C" fn(Ep, *const MsgRma, u64) -> isize,
    pub(crate) inject: unsafe extern "C" fn(Ep, Buffer, usize, u64, u64, u64) -> isize,
    pub(crate) writedata:
        unsafe extern "C" fn(Ep, Buffer, usize, Desc, u64, u64, u64, u64, Context) -> isize,
    pub(crate) injectdata: unsafe extern "C" fn(Ep, Buffer, usize, u64, u64, u64, u64) -> isize,
}

type Valid = unsafe extern "C" fn(Ep, Datatype, Op, *mut usize) -> c_int;

#[repr(C)]
pub(crate) struct AtomicOps {
    pub(crate) size: usize,
    pub(crate) write: unsafe extern "C" fn(
        Ep,
        Buffer,
        usize,
        Desc,
        u64,
        u64,
        u64,
        Datatype,
        Op,
        Context,
    ) -> isize,
    pub(crate) writev: unsafe extern "C" fn(
        Ep,
        Counted,
        Descriptors,
        usize,
        u64,
        u64,
        u64,
        Datatype,
        Op,
        Context,
    ) -> isize,
    pub(crate) writemsg: unsafe extern "C" fn(Ep, *const MsgAtomic, u64) -> isize,
    pub(crate) inject:
        unsafe extern "C" fn(Ep, Buffer, usize, u64, u64, u64, Datatype, Op) -> isize,
    pub(crate) readwrite: unsafe extern "C" fn(
        Ep,
        Buffer,
        usize,
        Desc,
        Buffer,
        Desc,
        u64,
        u64,
        u64,
        Datatype,
        Op,
        Context,
    ) -> isize,
    pub(crate) readwritev: unsafe extern "C" fn(
        Ep,
        Counted,
        Descriptors,
        usize,
        Counted,
        Descriptors,
        usize,
        u64,
        u64,
        u64,
        Datatype,
        Op,
        Context,
    ) -> isize,
    pub(crate) readwritemsg:
        unsafe extern "C" fn(Ep, *const MsgAtomic, Counted, Descriptors, usize, u64) -> isize,
    pub(crate) compwrite: unsafe extern "C" fn(
        Ep,
        Buffer,
        usize,
        Desc,
        Buffer,
        Desc,
        Buffer,
        Desc,
        u64,
        u64,
        u64,
        Datatype,
        Op,
        Context,
    ) -> isize,
    pub(crate) compwritev: unsafe extern "C" fn(
        Ep,
        Counted,
        Descriptors,
        usize,
        Counted,
        Descriptors,
        usize,
        Counted,
        Descriptors,
        usize,
        u64,
        u64,
        u64,
        Datatype,
        Op,
        Context,
    ) -> isize,
    pub(crate) compwritemsg: unsafe extern "C" fn(
        Ep,
        *const MsgAtomic,
        Counted,
        Descriptors,
        usize,
        Counted,
        Descriptors,
        usize,
        u64,
    ) -> isize,
    pub(crate) writevalid: Valid,
    pub(crate) readwritevalid: Valid,
    pub(crate) compwritevalid: Valid,
}

/// What an atomic operation may be asked for.
#[repr(C)]
pub(crate) struct AtomicAttr {
    pub(crate) count: usize,
    pub(crate) size: usize,
}

const _: () = {
    assert!(size_of::<RmaIov>() == 24);
    assert!(size_of::<RmaIoc>() == 24);
    assert!(size_of::<Ioc>() == 16);
    assert!(size_of::<MsgRma>() == 64);
    assert!(size_of::<MsgAtomic>() == 72);
    assert!(size_of::<RmaOps>() == 80);
    assert!(size_of::<AtomicOps>() == 112);
    assert!(size_of::<AtomicAttr>() == 16);
};
