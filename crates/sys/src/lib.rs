//! The unsafe fence: the system calls that neither the standard library nor rustix offers, behind
//! safe functions.
//!
//! Rules of this room: one system call (or one kernel structure) per function; sizes and lifetimes
//! are facts of the types, not promises of the caller; every `unsafe` block lists its
//! preconditions; every failure names the call and the object it was for ([`SyscallError`]).
#![expect(unsafe_code, reason = "this crate is the fence: system calls live here and nowhere else")]

mod error;

pub mod binding;
pub mod bpf;
pub mod datagram;
pub mod descriptor;
pub mod durable;
pub mod ethtool;
pub mod ethtool_set;
pub mod eventfd;
pub mod file_lock;
pub mod file_ring;
pub mod flow_rules;
pub mod guard;
pub mod hop_limit;
pub mod interface;
pub mod local_time;
pub mod memory;
pub mod memory_policy;
pub mod namespace;
pub mod netlink_socket;
pub mod netmap;
pub mod own_address;
pub mod packet;
pub mod perf;
pub mod private;
pub mod process;
pub mod sandbox;
pub mod signal;
pub mod socket;
pub mod tap;
pub mod tcp_info;
pub mod thread;
pub mod tsc;
pub mod vectored;
pub mod xdp;
pub mod zerocopy;

pub use error::SyscallError;
