//! A provider for libfabric: programs that use libfabric, Open MPI and MPICH among them, exchange
//! messages over ClearStream's protocol (`docs/messages.md`) without being changed. libfabric loads the
//! library when `FI_PROVIDER_PATH` names its folder, and calls [`fi_prov_ini`]; nothing else is
//! exported, and libfabric is not linked.
//!
//! * `abi`: libfabric's structures, from its documentation; `info`: what the provider offers;
//! * `objects`: fabric, domain, address vector, completion queue and event counter as C sees them;
//!   `calls`: the calls that send, receive, and access the memory of peers;
//! * `remote`: what such access asks for and what it does; `endpoint`'s `initiate` and `target` carry it;
//! * `endpoint`: a `messaging::Machine` with its socket, its operations and its peers; progress is
//!   made only inside calls;
//! * `backstop`: short messages of a burst wait for further ones, but not for long;
//! * [`engine`]: the same endpoint for libraries with another interface than libfabric's;
//! * `buffers`: the program's memory, which the machine reaches by number;
//! * `presence`: whether a silent peer's process is there;
//! * `local`: ranks of the same host, through shared memory;
//! * `port`, `card`: a port of a packet switch, and a queue of the network card; `held`: peers that wait for room there;
//! * `transport`, `interfaces`: UDP datagrams; `name`: an endpoint's address with its key.
#![expect(
    unsafe_code,
    reason = "a fence: C programs pass pointers to objects, buffers and structures"
)]

mod abi;
mod backstop;
mod buffers;
mod calls;
mod card;
mod endpoint;
pub mod engine;
mod fence;
mod held;
mod info;
mod interfaces;
mod local;
pub mod name;
mod objects;
mod operations;
mod planned;
mod port;
mod presence;
mod queue;
mod remote;
#[cfg(test)]
mod tests;
mod transport;

use std::ffi::CStr;
use std::sync::atomic::{AtomicU32, Ordering};

/// The provider's name: what `FI_PROVIDER` and `mtl_ofi_provider_include` are told.
pub const NAME: &CStr = c"clearstream";

/// How often this process is the child of a `fork`: endpoints of a parent are dead in its children.
static GENERATION: AtomicU32 = AtomicU32::new(0);

extern "C" fn forked() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// From now on [`GENERATION`] tells children from parents.
fn count_forks() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler only counts, which is allowed in a forked child.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    });
}

/// The release of libfabric that called, or the oldest that this provider is made for.
fn libfabric_version() -> u32 {
    // SAFETY: a name that ends in 0; looking it up has no other effect.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"fi_version".as_ptr()) };
    if found.is_null() {
        return abi::version(1, 18);
    }
    // SAFETY: libfabric documents `uint32_t fi_version(void)`, in all its releases.
    let version =
        unsafe { std::mem::transmute::<*mut std::ffi::c_void, extern "C" fn() -> u32>(found) };
    version()
}

extern "C" fn cleanup() {}

/// What libfabric calls after loading the library; it may be called more than once.
#[unsafe(no_mangle)]
pub extern "C" fn fi_prov_ini() -> *mut std::ffi::c_void {
    count_forks();
    let provider = Box::new(abi::Provider {
        version: abi::version(0, 1),
        fi_version: libfabric_version(),
        context: [std::ptr::null_mut(); 4],
        name: NAME.as_ptr(),
        getinfo: info::getinfo,
        fabric: objects::open_fabric,
        cleanup,
    });
    // libfabric keeps it until the process ends.
    Box::into_raw(provider).cast()
}
