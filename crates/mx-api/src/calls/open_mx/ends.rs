//! How requests end, and what messages wait, with Open-MX's codes and orders of arguments.

use std::ffi::{c_int, c_void};

use super::super::completion;
use super::{milliseconds, recode, returned};
use crate::abi::Status;

#[unsafe(no_mangle)]
unsafe extern "C" fn omx_test(
    endpoint: *mut c_void,
    request: *mut *mut c_void,
    status: *mut Status,
    result: *mut u32,
) -> c_int {
    // SAFETY: the same arguments.
    let code = unsafe { completion::mx_test(endpoint, request, status, result) };
    // SAFETY: C's places.
    unsafe { recode(code, status, result) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omx_wait(
    endpoint: *mut c_void,
    request: *mut *mut c_void,
    status: *mut Status,
    result: *mut u32,
    timeout_ms: u32,
) -> c_int {
    let timeout_ms = milliseconds(timeout_ms);
    // SAFETY: the same arguments.
    let code = unsafe { completion::mx_wait(endpoint, request, timeout_ms, status, result) };
    // SAFETY: C's places.
    unsafe { recode(code, status, result) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omx_test_any(
    endpoint: *mut c_void,
    match_info: u64,
    match_mask: u64,
    status: *mut Status,
    result: *mut u32,
) -> c_int {
    // SAFETY: the same arguments.
    let code = unsafe { completion::mx_test_any(endpoint, match_info, match_mask, status, result) };
    // SAFETY: C's places.
    unsafe { recode(code, status, result) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omx_wait_any(
    endpoint: *mut c_void,
    match_info: u64,
    match_mask: u64,
    status: *mut Status,
    result: *mut u32,
    timeout_ms: u32,
) -> c_int {
    let timeout_ms = milliseconds(timeout_ms);
    // SAFETY: the same arguments.
    let code = unsafe {
        completion::mx_wait_any(endpoint, timeout_ms, match_info, match_mask, status, result)
    };
    // SAFETY: C's places.
    unsafe { recode(code, status, result) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omx_ipeek(
    endpoint: *mut c_void,
    request: *mut *mut c_void,
    result: *mut u32,
) -> c_int {
    // SAFETY: the same arguments.
    returned(unsafe { completion::mx_ipeek(endpoint, request, result) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omx_peek(
    endpoint: *mut c_void,
    request: *mut *mut c_void,
    result: *mut u32,
    timeout_ms: u32,
) -> c_int {
    // SAFETY: the same arguments.
    returned(unsafe { completion::mx_peek(endpoint, milliseconds(timeout_ms), request, result) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omx_iprobe(
    endpoint: *mut c_void,
    match_info: u64,
    match_mask: u64,
    status: *mut Status,
    result: *mut u32,
) -> c_int {
    // SAFETY: the same arguments.
    unsafe { completion::mx_iprobe(endpoint, match_info, match_mask, status, result) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omx_probe(
    endpoint: *mut c_void,
    match_info: u64,
    match_mask: u64,
    status: *mut Status,
    result: *mut u32,
    timeout_ms: u32,
) -> c_int {
    let timeout_ms = milliseconds(timeout_ms);
    // SAFETY: the same arguments.
    unsafe { completion::mx_probe(endpoint, timeout_ms, match_info, match_mask, status, result) }
}
