//! Flags, numbers of kinds and error numbers.

use std::ffi::c_int;

pub(crate) const MSG: u64 = 1 << 1;
pub(crate) const RMA: u64 = 1 << 2;
pub(crate) const TAGGED: u64 = 1 << 3;
pub(crate) const ATOMIC: u64 = 1 << 4;
pub(crate) const READ: u64 = 1 << 8;
pub(crate) const WRITE: u64 = 1 << 9;
pub(crate) const RECV: u64 = 1 << 10;
pub(crate) const SEND: u64 = 1 << 11;
pub(crate) const REMOTE_READ: u64 = 1 << 12;
pub(crate) const REMOTE_WRITE: u64 = 1 << 13;
pub(crate) const MULTI_RECV: u64 = 1 << 16;
pub(crate) const REMOTE_CQ_DATA: u64 = 1 << 17;
pub(crate) const PEEK: u64 = 1 << 19;
pub(crate) const TRIGGER: u64 = 1 << 20;
pub(crate) const FENCE: u64 = 1 << 21;
pub(crate) const COMPLETION: u64 = 1 << 24;
pub(crate) const INJECT: u64 = 1 << 25;
pub(crate) const INJECT_COMPLETE: u64 = 1 << 26;
pub(crate) const TRANSMIT_COMPLETE: u64 = 1 << 27;
pub(crate) const DELIVERY_COMPLETE: u64 = 1 << 28;
pub(crate) const COMMIT_COMPLETE: u64 = 1 << 30;
pub(crate) const MATCH_COMPLETE: u64 = 1 << 31;
pub(crate) const LOCAL_COMM: u64 = 1 << 51;
pub(crate) const REMOTE_COMM: u64 = 1 << 52;
pub(crate) const SOURCE: u64 = 1 << 57;
pub(crate) const DIRECTED_RECV: u64 = 1 << 59;
/// Of receives with flags.
pub(crate) const DISCARD: u64 = 1 << 58;
/// Of receives with flags.
pub(crate) const CLAIM: u64 = 1 << 59;
/// Of binding a completion queue.
pub(crate) const SELECTIVE_COMPLETION: u64 = 1 << 59;
/// Of looking for providers: the host is given as an address.
pub(crate) const NUMERIC_HOST: u64 = 1 << 55;
/// Of looking for providers: the address is this end's.
pub(crate) const SOURCE_ADDRESS: u64 = 1 << 57;

/// Messages of a pair are matched in the order they were sent.
pub(crate) const ORDER_SAS: u64 = 1 << 8;

/// Atomic operations of a pair are executed in the order they were asked for: reads and writes in turn.
pub(crate) const ORDER_ATOMIC: u64 = 0xf << 36;

/// Of asking which atomic operations there are: those that fetch, those that compare.
pub(crate) const FETCH_ATOMIC: u64 = 1 << 58;
/// The same.
pub(crate) const COMPARE_ATOMIC: u64 = 1 << 59;

pub(crate) const ADDR_UNSPEC: u64 = u64::MAX;

pub(crate) const EP_UNSPEC: u32 = 0;
pub(crate) const EP_RDM: u32 = 3;

pub(crate) const THREAD_UNSPEC: u32 = 0;
pub(crate) const THREAD_SAFE: u32 = 1;

pub(crate) const PROGRESS_AUTO: u32 = 1;
pub(crate) const PROGRESS_MANUAL: u32 = 2;

/// How memory is registered, by names from before release 1.5.
pub(crate) const MR_BASIC: c_int = 1;
/// The same.
pub(crate) const MR_SCALABLE: c_int = 2;

pub(crate) const RM_ENABLED: u32 = 2;

/// Best effort.
pub(crate) const TC_BEST_EFFORT: u32 = 0x200;

pub(crate) const CLASS_FABRIC: usize = 1;
pub(crate) const CLASS_DOMAIN: usize = 2;
pub(crate) const CLASS_EP: usize = 3;
pub(crate) const CLASS_AV: usize = 11;
pub(crate) const CLASS_MR: usize = 12;
pub(crate) const CLASS_EQ: usize = 13;
pub(crate) const CLASS_CQ: usize = 14;
pub(crate) const CLASS_CNTR: usize = 15;

pub(crate) const CQ_FORMAT_UNSPEC: u32 = 0;
pub(crate) const CQ_FORMAT_CONTEXT: u32 = 1;
pub(crate) const CQ_FORMAT_TAGGED: u32 = 4;

pub(crate) const WAIT_NONE: u32 = 0;
pub(crate) const WAIT_UNSPEC: u32 = 1;
pub(crate) const WAIT_YIELD: u32 = 5;

/// `fi_control`: an endpoint begins to work.
pub(crate) const CONTROL_ENABLE: c_int = 6;

pub(crate) const OPT_ENDPOINT: c_int = 0;
pub(crate) const OPT_MIN_MULTI_RECV: c_int = 0;

// Error numbers beyond errno's.
pub(crate) const ETOOSMALL: c_int = 257;
pub(crate) const EOPBADSTATE: c_int = 258;
pub(crate) const EAVAIL: c_int = 259;
pub(crate) const ENOCQ: c_int = 263;
pub(crate) const ETRUNC: c_int = 265;
pub(crate) const ENOKEY: c_int = 266;
pub(crate) const ENOAV: c_int = 267;

/// Beyond this release structures have fields that 1.17's headers do not know.
pub(crate) const fn version(major: u32, minor: u32) -> u32 {
    major << 16 | minor
}
