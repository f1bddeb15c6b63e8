//! Congestion controls as BPF programs: built in, fitted to the running kernel, registered with
//! its TCP and taken back.
//!
//! ```text
//! bpf/htcp.bpf.c --clang, at build--> object --[object]--> programs and their relocations
//!                         running kernel's BTF --[btf]--> field offsets --[relocate]--^
//!                                       programs + [layout] --[registry]--> struct_ops map
//! ```
//!
//! A registered congestion control belongs to the kernel: it serves every network namespace of the
//! host and stays until it is taken back or the host restarts. [`law`] has H-TCP's formulas.
#![forbid(unsafe_code)]

pub mod btf;
mod bytes;
pub mod law;
mod layout;
pub mod object;
mod registry;
pub mod relocate;

pub use registry::{CcError, Registered, Scope, name_for, register, registered, unregister};

/// The H-TCP program as clang left it; `None` when there was no clang at build time.
#[must_use]
pub fn htcp_object() -> Option<&'static [u8]> {
    #[cfg(has_bpf)]
    return Some(include_bytes!(concat!(env!("OUT_DIR"), "/htcp.bpf.o")));
    #[cfg(not(has_bpf))]
    return None;
}
