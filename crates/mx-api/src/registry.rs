//! What C's handles name: endpoints by their place in a table, requests by endpoint and number. A handle is a number in
//! the shape of a pointer, so one that is no longer valid is told from a valid one.

use std::ffi::c_void;
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};

use crate::endpoint::Endpoint;
use crate::failing::Code;

/// Endpoints of a process; so many bits has an endpoint's place in an address.
const ENDPOINTS_MAX: usize = 4096;
/// Between the handles of two endpoints.
const HANDLE_STEP: usize = 0x1000;
/// Bits of a request's number; above them is its endpoint's place and 1.
const REQUEST_BITS: u32 = 44;

#[derive(Debug)]
struct Registry {
    is_initialized: bool,
    endpoints: Vec<Option<Arc<Endpoint>>>,
}

static REGISTRY: RwLock<Registry> =
    RwLock::new(Registry { is_initialized: false, endpoints: Vec::new() });

fn write() -> RwLockWriteGuard<'static, Registry> {
    REGISTRY.write().unwrap_or_else(PoisonError::into_inner)
}

/// Begins to be used.
pub(crate) fn initialize() -> Result<(), Code> {
    let mut registry = write();
    let was_initialized = std::mem::replace(&mut registry.is_initialized, true);
    if was_initialized { Err(Code::AlreadyInitialized) } else { Ok(()) }
}

/// Ends, if no endpoint is open.
pub(crate) fn finalize() -> Result<(), Code> {
    let mut registry = write();
    if !registry.is_initialized {
        return Err(Code::NotInitialized);
    }
    if registry.endpoints.iter().any(Option::is_some) {
        return Err(Code::Busy);
    }
    registry.is_initialized = false;
    Ok(())
}

/// # Errors
/// The library is not initialized.
pub(crate) fn check() -> Result<(), Code> {
    let registry = REGISTRY.read().unwrap_or_else(PoisonError::into_inner);
    if registry.is_initialized { Ok(()) } else { Err(Code::NotInitialized) }
}

/// Enters the endpoint that `open` returns for its place. Its handle.
pub(crate) fn enter(
    open: impl FnOnce(usize) -> Result<Endpoint, Code>,
) -> Result<*mut c_void, Code> {
    let mut registry = write();
    if !registry.is_initialized {
        return Err(Code::NotInitialized);
    }
    let free = registry.endpoints.iter().position(Option::is_none);
    let index = free.unwrap_or(registry.endpoints.len());
    if index >= ENDPOINTS_MAX {
        return Err(Code::NoResources);
    }
    let endpoint = Some(Arc::new(open(index)?));
    match free {
        Some(index) => registry.endpoints[index] = endpoint,
        None => registry.endpoints.push(endpoint),
    }
    Ok(std::ptr::without_provenance_mut((index + 1) * HANDLE_STEP))
}

/// The endpoint of a handle.
pub(crate) fn endpoint(handle: *mut c_void) -> Result<Arc<Endpoint>, Code> {
    let is_handle = handle.addr().is_multiple_of(HANDLE_STEP);
    let index = (handle.addr() / HANDLE_STEP).checked_sub(1).filter(|_| is_handle);
    index.ok_or(Code::BadEndpoint).and_then(at)
}

/// The endpoint at a place.
pub(crate) fn at(index: usize) -> Result<Arc<Endpoint>, Code> {
    let registry = REGISTRY.read().unwrap_or_else(PoisonError::into_inner);
    if !registry.is_initialized {
        return Err(Code::NotInitialized);
    }
    registry.endpoints.get(index).cloned().flatten().ok_or(Code::BadEndpoint)
}

/// Takes an endpoint out, so that nobody finds it.
pub(crate) fn remove(index: usize) {
    if let Some(place) = write().endpoints.get_mut(index) {
        *place = None;
    }
}

/// The handle of a request.
pub(crate) fn request_handle(index: usize, number: u64) -> *mut c_void {
    let word = (index as u64 + 1) << REQUEST_BITS | number;
    std::ptr::without_provenance_mut(word as usize)
}

/// The place of a request's endpoint, and its number.
pub(crate) fn request(handle: *mut c_void) -> Result<(usize, u64), Code> {
    let word = handle.addr() as u64;
    let index = ((word >> REQUEST_BITS) as usize).checked_sub(1).ok_or(Code::BadRequest)?;
    Ok((index, word & ((1 << REQUEST_BITS) - 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_name_what_they_were_made_for() {
        for (index, number) in [(0, 1), (4095, (1 << REQUEST_BITS) - 1)] {
            let handle = request_handle(index, number);
            assert!(!handle.is_null());
            assert_eq!(request(handle), Ok((index, number)));
        }
        assert_eq!(request(std::ptr::null_mut()), Err(Code::BadRequest));
        for handle in [0, 1, HANDLE_STEP + 8] {
            let handle = std::ptr::without_provenance_mut(handle);
            assert_eq!(endpoint(handle).err(), Some(Code::BadEndpoint));
        }
    }
}
