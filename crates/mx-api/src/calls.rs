//! The functions of `myriexpress.h`, `mx_extensions.h` and `open-mx.h`, by what they are about. Pointers for results that are null are
//! passed over where MX has a result beside the returned code.

mod completion;
mod endpoints;
mod information;
mod messages;
mod open_mx;

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::abi::{ErrorHandler, MX_API};
use crate::endpoint::Endpoint;
use crate::failing::{self, Code, StatusCode, answer};
use crate::{boards, registry};

/// What `body` does with the endpoint of a handle, as the call of this name.
fn on(call: &CStr, handle: *mut c_void, body: impl FnOnce(&Endpoint) -> Result<(), Code>) -> c_int {
    let endpoint = registry::endpoint(handle);
    let handler = endpoint.as_ref().ok().and_then(|endpoint| endpoint.handler());
    answer(call, handler, || body(&*endpoint?))
}

/// The number of an endpoint's request.
fn number_of(endpoint: &Endpoint, request: *mut c_void) -> Result<u64, Code> {
    let (index, number) = registry::request(request)?;
    if index == endpoint.own.index { Ok(number) } else { Err(Code::BadRequest) }
}

/// Stores a result where C wants it.
///
/// # Safety
/// `place` is null or may be written.
unsafe fn store<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: the caller's promise.
        unsafe { place.write(value) };
    }
}

/// What C has at a place.
///
/// # Safety
/// `place` is null or may be read.
unsafe fn fetch<T: Copy>(place: *const T) -> Option<T> {
    // SAFETY: the caller's promise, where it is not null.
    (!place.is_null()).then(|| unsafe { place.read() })
}

/// `mx_init()` with the version of the interface that the program was compiled for.
#[unsafe(no_mangle)]
extern "C" fn mx__init_api(version: c_int) -> c_int {
    answer(c"mx_init", None, || {
        if version >> 8 != MX_API >> 8 {
            return Err(Code::BadLibraryVersion);
        }
        if boards::all().is_empty() {
            return Err(Code::NoDevice);
        }
        registry::initialize()
    })
}

/// Ends the use of the library; every endpoint is closed before.
#[unsafe(no_mangle)]
extern "C" fn mx_finalize() -> c_int {
    answer(c"mx_finalize", None, registry::finalize)
}

/// Sets the handler of errors of calls, for endpoints without one of their own; returns the one before.
#[unsafe(no_mangle)]
extern "C" fn mx_set_error_handler(handler: ErrorHandler) -> ErrorHandler {
    failing::set_handler(handler)
}

/// The text of a return code.
#[unsafe(no_mangle)]
extern "C" fn mx_strerror(code: c_int) -> *const c_char {
    Code::text(code).as_ptr()
}

/// The text of a status code.
#[unsafe(no_mangle)]
extern "C" fn mx_strstatus(code: c_int) -> *const c_char {
    StatusCode::text(code).as_ptr()
}
