//! libfabric's binary interface, as its manual pages and headers of releases 1.17 to 2.6 document it:
//! the structures that a program and a provider share. Names, orders and values are libfabric's.
//!
//! Structures grow at their end from release to release. What a caller hands in is read only as far as
//! release 1.5 had it; what is handed out is allocated with room for later fields, see `info`.

use std::ffi::{c_char, c_int, c_void};

pub(crate) use self::counters::*;
pub(crate) use self::memory::*;
pub(crate) use self::remote::*;
pub(crate) use self::values::*;

mod counters;
mod memory;
mod remote;
mod values;

/// A slot of a table of operations that this provider does not serve. C callers pass arguments, which
/// the calling conventions of x86-64 and AArch64 let a callee ignore.
pub(crate) type Unserved = extern "C" fn() -> isize;

/// Answers such a call.
pub(crate) extern "C" fn unserved() -> isize {
    -(libc::ENOSYS as isize)
}

#[repr(C)]
pub(crate) struct Provider {
    pub(crate) version: u32,
    pub(crate) fi_version: u32,
    /// The core's own.
    pub(crate) context: [*mut c_void; 4],
    pub(crate) name: *const c_char,
    pub(crate) getinfo: GetInfo,
    pub(crate) fabric: OpenFabric,
    pub(crate) cleanup: extern "C" fn(),
}

pub(crate) type GetInfo = unsafe extern "C" fn(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const Info,
    info: *mut *mut Info,
) -> c_int;

pub(crate) type OpenFabric = unsafe extern "C" fn(
    attr: *mut FabricAttr,
    fabric: *mut *mut FidFabric,
    context: *mut c_void,
) -> c_int;

#[repr(C)]
pub(crate) struct TxAttr {
    pub(crate) caps: u64,
    pub(crate) mode: u64,
    pub(crate) op_flags: u64,
    pub(crate) msg_order: u64,
    pub(crate) comp_order: u64,
    pub(crate) inject_size: usize,
    pub(crate) size: usize,
    pub(crate) iov_limit: usize,
    pub(crate) rma_iov_limit: usize,
    pub(crate) tclass: u32,
}

#[repr(C)]
pub(crate) struct RxAttr {
    pub(crate) caps: u64,
    pub(crate) mode: u64,
    pub(crate) op_flags: u64,
    pub(crate) msg_order: u64,
    pub(crate) comp_order: u64,
    pub(crate) total_buffered_recv: usize,
    pub(crate) size: usize,
    pub(crate) iov_limit: usize,
}

#[repr(C)]
pub(crate) struct EpAttr {
    pub(crate) kind: u32,
    pub(crate) protocol: u32,
    pub(crate) protocol_version: u32,
    pub(crate) max_msg_size: usize,
    pub(crate) msg_prefix_size: usize,
    pub(crate) max_order_raw_size: usize,
    pub(crate) max_order_war_size: usize,
    pub(crate) max_order_waw_size: usize,
    pub(crate) mem_tag_format: u64,
    pub(crate) tx_ctx_cnt: usize,
    pub(crate) rx_ctx_cnt: usize,
    pub(crate) auth_key_size: usize,
    pub(crate) auth_key: *mut u8,
}

#[repr(C)]
pub(crate) struct DomainAttr {
    pub(crate) domain: *mut c_void,
    pub(crate) name: *mut c_char,
    pub(crate) threading: u32,
    pub(crate) control_progress: u32,
    pub(crate) data_progress: u32,
    pub(crate) resource_mgmt: u32,
    pub(crate) av_type: u32,
    pub(crate) mr_mode: c_int,
    pub(crate) mr_key_size: usize,
    pub(crate) cq_data_size: usize,
    pub(crate) cq_cnt: usize,
    pub(crate) ep_cnt: usize,
    pub(crate) tx_ctx_cnt: usize,
    pub(crate) rx_ctx_cnt: usize,
    pub(crate) max_ep_tx_ctx: usize,
    pub(crate) max_ep_rx_ctx: usize,
    pub(crate) max_ep_stx_ctx: usize,
    pub(crate) max_ep_srx_ctx: usize,
    pub(crate) cntr_cnt: usize,
    pub(crate) mr_iov_limit: usize,
    pub(crate) caps: u64,
    pub(crate) mode: u64,
    pub(crate) auth_key: *mut u8,
    pub(crate) auth_key_size: usize,
    pub(crate) max_err_data: usize,
    pub(crate) mr_cnt: usize,
}

#[repr(C)]
pub(crate) struct FabricAttr {
    pub(crate) fabric: *mut c_void,
    pub(crate) name: *mut c_char,
    pub(crate) prov_name: *mut c_char,
    pub(crate) prov_version: u32,
    pub(crate) api_version: u32,
}

#[repr(C)]
pub(crate) struct Info {
    pub(crate) next: *mut Info,
    pub(crate) caps: u64,
    pub(crate) mode: u64,
    pub(crate) addr_format: u32,
    pub(crate) src_addrlen: usize,
    pub(crate) dest_addrlen: usize,
    pub(crate) src_addr: *mut c_void,
    pub(crate) dest_addr: *mut c_void,
    pub(crate) handle: *mut c_void,
    pub(crate) tx_attr: *mut TxAttr,
    pub(crate) rx_attr: *mut RxAttr,
    pub(crate) ep_attr: *mut EpAttr,
    pub(crate) domain_attr: *mut DomainAttr,
    pub(crate) fabric_attr: *mut FabricAttr,
    pub(crate) nic: *mut c_void,
}

/// What every object begins with.
#[repr(C)]
pub(crate) struct Fid {
    pub(crate) class: usize,
    pub(crate) context: *mut c_void,
    pub(crate) ops: &'static FidOps,
}

#[repr(C)]
pub(crate) struct FidOps {
    pub(crate) size: usize,
    pub(crate) close: unsafe extern "C" fn(*mut Fid) -> c_int,
    pub(crate) bind: unsafe extern "C" fn(*mut Fid, *mut Fid, u64) -> c_int,
    pub(crate) control: unsafe extern "C" fn(*mut Fid, c_int, *mut c_void) -> c_int,
    pub(crate) ops_open: Unserved,
    pub(crate) tostr: Unserved,
    pub(crate) ops_set: Unserved,
}

#[repr(C)]
pub(crate) struct FidFabric {
    pub(crate) fid: Fid,
    pub(crate) ops: &'static FabricOps,
    pub(crate) api_version: u32,
}

#[repr(C)]
pub(crate) struct FabricOps {
    pub(crate) size: usize,
    pub(crate) domain:
        unsafe extern "C" fn(*mut FidFabric, *mut Info, *mut *mut FidDomain, *mut c_void) -> c_int,
    pub(crate) passive_ep: Unserved,
    pub(crate) eq_open:
        unsafe extern "C" fn(*mut FidFabric, *mut c_void, *mut *mut FidEq, *mut c_void) -> c_int,
    pub(crate) wait_open: Unserved,
    pub(crate) trywait: unsafe extern "C" fn(*mut FidFabric, *mut *mut Fid, c_int) -> c_int,
    pub(crate) domain2: Unserved,
}

#[repr(C)]
pub(crate) struct FidEq {
    pub(crate) fid: Fid,
    pub(crate) ops: &'static EqOps,
}

#[repr(C)]
pub(crate) struct EqOps {
    pub(crate) size: usize,
    pub(crate) read: extern "C" fn() -> isize,
    pub(crate) readerr: extern "C" fn() -> isize,
    pub(crate) write: Unserved,
    pub(crate) sread:
        unsafe extern "C" fn(*mut FidEq, *mut u32, *mut c_void, usize, c_int, u64) -> isize,
    pub(crate) strerror: extern "C" fn() -> *const c_char,
}

#[repr(C)]
pub(crate) struct FidDomain {
    pub(crate) fid: Fid,
    pub(crate) ops: &'static DomainOps,
    pub(crate) mr: &'static MrOps,
}

#[repr(C)]
pub(crate) struct DomainOps {
    pub(crate) size: usize,
    pub(crate) av_open:
        unsafe extern "C" fn(*mut FidDomain, *mut AvAttr, *mut *mut FidAv, *mut c_void) -> c_int,
    pub(crate) cq_open:
        unsafe extern "C" fn(*mut FidDomain, *mut CqAttr, *mut *mut FidCq, *mut c_void) -> c_int,
    pub(crate) endpoint:
        unsafe extern "C" fn(*mut FidDomain, *mut Info, *mut *mut FidEp, *mut c_void) -> c_int,
    pub(crate) scalable_ep: Unserved,
    pub(crate) cntr_open: unsafe extern "C" fn(
        *mut FidDomain,
        *mut CntrAttr,
        *mut *mut FidCntr,
        *mut c_void,
    ) -> c_int,
    pub(crate) poll_open: Unserved,
    pub(crate) stx_ctx: Unserved,
    pub(crate) srx_ctx: Unserved,
    pub(crate) query_atomic:
        unsafe extern "C" fn(*mut FidDomain, u32, u32, *mut AtomicAttr, u64) -> c_int,
    pub(crate) query_collective: Unserved,
    pub(crate) endpoint2: Unserved,
}

#[repr(C)]
pub(crate) struct AvAttr {
    pub(crate) kind: u32,
    pub(crate) rx_ctx_bits: c_int,
    pub(crate) count: usize,
    pub(crate) ep_per_node: usize,
    pub(crate) name: *const c_char,
    pub(crate) map_addr: *mut c_void,
    pub(crate) flags: u64,
}

#[repr(C)]
pub(crate) struct FidAv {
    pub(crate) fid: Fid,
    pub(crate) ops: &'static AvOps,
}

#[repr(C)]
pub(crate) struct AvOps {
    pub(crate) size: usize,
    pub(crate) insert:
        unsafe extern "C" fn(*mut FidAv, *const c_void, usize, *mut u64, u64, *mut c_void) -> c_int,
    pub(crate) insertsvc: Unserved,
    pub(crate) insertsym: Unserved,
    pub(crate) remove: unsafe extern "C" fn(*mut FidAv, *mut u64, usize, u64) -> c_int,
    pub(crate) lookup: unsafe extern "C" fn(*mut FidAv, u64, *mut c_void, *mut usize) -> c_int,
    pub(crate) straddr:
        unsafe extern "C" fn(*mut FidAv, *const c_void, *mut c_char, *mut usize) -> *const c_char,
    pub(crate) av_set: Unserved,
}

#[repr(C)]
pub(crate) struct CqAttr {
    pub(crate) size: usize,
    pub(crate) flags: u64,
    pub(crate) format: u32,
    pub(crate) wait_obj: u32,
    pub(crate) signaling_vector: c_int,
    pub(crate) wait_cond: u32,
    pub(crate) wait_set: *mut c_void,
}

#[repr(C)]
pub(crate) struct FidCq {
    pub(crate) fid: Fid,
    pub(crate) ops: &'static CqOps,
}

#[repr(C)]
pub(crate) struct CqOps {
    pub(crate) size: usize,
    pub(crate) read: unsafe extern "C" fn(*mut FidCq, *mut c_void, usize) -> isize,
    pub(crate) readfrom: unsafe extern "C" fn(*mut FidCq, *mut c_void, usize, *mut u64) -> isize,
    pub(crate) readerr: unsafe extern "C" fn(*mut FidCq, *mut CqErrorEntry, u64) -> isize,
    pub(crate) sread:
        unsafe extern "C" fn(*mut FidCq, *mut c_void, usize, *const c_void, c_int) -> isize,
    pub(crate) sreadfrom: unsafe extern "C" fn(
        *mut FidCq,
        *mut c_void,
        usize,
        *mut u64,
        *const c_void,
        c_int,
    ) -> isize,
    pub(crate) signal: unsafe extern "C" fn(*mut FidCq) -> c_int,
    pub(crate) strerror:
        unsafe extern "C" fn(*mut FidCq, c_int, *const c_void, *mut c_char, usize) -> *const c_char,
}

/// An entry of a completion queue in its longest format; the shorter ones are its beginnings.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct CqEntry {
    pub(crate) op_context: usize,
    pub(crate) flags: u64,
    pub(crate) len: usize,
    pub(crate) buf: usize,
    pub(crate) data: u64,
    pub(crate) tag: u64,
}

/// As release 1.5 and later have it.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct CqErrorEntry {
    pub(crate) entry: CqEntry,
    pub(crate) olen: usize,
    pub(crate) err: c_int,
    pub(crate) prov_errno: c_int,
    pub(crate) err_data: usize,
    pub(crate) err_data_size: usize,
}

#[repr(C)]
pub(crate) struct FidEp {
    pub(crate) fid: Fid,
    pub(crate) ops: &'static EpOps,
    pub(crate) cm: &'static CmOps,
    pub(crate) msg: &'static MsgOps,
    pub(crate) rma: &'static RmaOps,
    pub(crate) tagged: &'static TaggedOps,
    pub(crate) atomic: &'static AtomicOps,
    pub(crate) collective: *const c_void,
}

#[repr(C)]
pub(crate) struct EpOps {
    pub(crate) size: usize,
    pub(crate) cancel: unsafe extern "C" fn(*mut Fid, *mut c_void) -> isize,
    pub(crate) getopt:
        unsafe extern "C" fn(*mut Fid, c_int, c_int, *mut c_void, *mut usize) -> c_int,
    pub(crate) setopt: unsafe extern "C" fn(*mut Fid, c_int, c_int, *const c_void, usize) -> c_int,
    pub(crate) tx_ctx: Unserved,
    pub(crate) rx_ctx: Unserved,
    pub(crate) rx_size_left: Unserved,
    pub(crate) tx_size_left: Unserved,
}

#[repr(C)]
pub(crate) struct CmOps {
    pub(crate) size: usize,
    pub(crate) setname: Unserved,
    pub(crate) getname: unsafe extern "C" fn(*mut Fid, *mut c_void, *mut usize) -> c_int,
    pub(crate) getpeer: Unserved,
    pub(crate) connect: Unserved,
    pub(crate) listen: Unserved,
    pub(crate) accept: Unserved,
    pub(crate) reject: Unserved,
    pub(crate) shutdown: Unserved,
    pub(crate) join: Unserved,
}

pub(crate) type Buffer = *const c_void;
pub(crate) type Vector = *const libc::iovec;
pub(crate) type Descriptors = *const *mut c_void;

#[repr(C)]
pub(crate) struct Msg {
    pub(crate) iov: Vector,
    pub(crate) desc: Descriptors,
    pub(crate) iov_count: usize,
    pub(crate) addr: u64,
    pub(crate) context: *mut c_void,
    pub(crate) data: u64,
}

#[repr(C)]
pub(crate) struct TaggedMsg {
    pub(crate) iov: Vector,
    pub(crate) desc: Descriptors,
    pub(crate) iov_count: usize,
    pub(crate) addr: u64,
    pub(crate) tag: u64,
    pub(crate) ignore: u64,
    pub(crate) context: *mut c_void,
    pub(crate) data: u64,
}

type Context = *mut c_void;
type Desc = *mut c_void;
type Ep = *mut FidEp;

#[repr(C)]
pub(crate) struct MsgOps {
    pub(crate) size: usize,
    pub(crate) recv: unsafe extern "C" fn(Ep, Buffer, usize, Desc, u64, Context) -> isize,
    pub(crate) recvv: unsafe extern "C" fn(Ep, Vector, Descriptors, usize, u64, Context) -> isize,
    pub(crate) recvmsg: unsafe extern "C" fn(Ep, *const Msg, u64) -> isize,
    pub(crate) send: unsafe extern "C" fn(Ep, Buffer, usize, Desc, u64, Context) -> isize,
    pub(crate) sendv: unsafe extern "C" fn(Ep, Vector, Descriptors, usize, u64, Context) -> isize,
    pub(crate) sendmsg: unsafe extern "C" fn(Ep, *const Msg, u64) -> isize,
    pub(crate) inject: unsafe extern "C" fn(Ep, Buffer, usize, u64) -> isize,
    pub(crate) senddata: unsafe extern "C" fn(Ep, Buffer, usize, Desc, u64, u64, Context) -> isize,
    pub(crate) injectdata: unsafe extern "C" fn(Ep, Buffer, usize, u64, u64) -> isize,
}

#[repr(C)]
pub(crate) struct TaggedOps {
    pub(crate) size: usize,
    pub(crate) recv: unsafe extern "C" fn(Ep, Buffer, usize, Desc, u64, u64, u64, Context) -> isize,
    pub(crate) recvv:
        unsafe extern "C" fn(Ep, Vector, Descriptors, usize, u64, u64, u64, Context) -> isize,
    pub(crate) recvmsg: unsafe extern "C" fn(Ep, *const TaggedMsg, u64) -> isize,
    pub(crate) send: unsafe extern "C" fn(Ep, Buffer, usize, Desc, u64, u64, Context) -> isize,
    pub(crate) sendv:
        unsafe extern "C" fn(Ep, Vector, Descriptors, usize, u64, u64, Context) -> isize,
    pub(crate) sendmsg: unsafe extern "C" fn(Ep, *const TaggedMsg, u64) -> isize,
    pub(crate) inject: unsafe extern "C" fn(Ep, Buffer, usize, u64, u64) -> isize,
    pub(crate) senddata:
        unsafe extern "C" fn(Ep, Buffer, usize, Desc, u64, u64, u64, Context) -> isize,
    pub(crate) injectdata: unsafe extern "C" fn(Ep, Buffer, usize, u64, u64, u64) -> isize,
}

// Sizes of release 1.17, from its headers on 64-bit machines.
const _: () = {
    assert!(size_of::<Provider>() == 72);
    assert!(size_of::<Info>() == 120);
    assert!(size_of::<EpAttr>() == 96);
    assert!(size_of::<TxAttr>() == 80);
    assert!(size_of::<RxAttr>() == 64);
    assert!(size_of::<FabricAttr>() == 32);
    assert!(size_of::<Fid>() == 24);
    assert!(size_of::<FidEp>() == 80);
    assert!(size_of::<CqEntry>() == 48);
    assert!(size_of::<CqErrorEntry>() == 80);
    assert!(size_of::<TaggedMsg>() == 64);
    assert!(size_of::<Msg>() == 48);
    assert!(size_of::<CqAttr>() == 40);
    assert!(size_of::<AvAttr>() == 48);
};
