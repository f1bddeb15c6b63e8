//! The functions of `open-mx.h`: Open-MX's own interface, which has MX's semantics, other orders of arguments, and one set
//! of codes for calls and requests.

mod ends;

use std::ffi::{c_char, c_int, c_void};

use super::endpoints::{
    mx_close_endpoint, mx_connect, mx_decompose_endpoint_addr, mx_decompose_endpoint_addr2,
    mx_disable_progression, mx_disconnect, mx_get_endpoint_addr, mx_get_endpoint_addr_context,
    mx_iconnect, mx_open_endpoint, mx_reenable_progression, mx_register_unexp_handler,
    mx_set_endpoint_addr_context, mx_wakeup,
};
use super::information::{
    mx_board_number_to_nic_id, mx_hostname_to_nic_id, mx_nic_id_to_board_number,
    mx_nic_id_to_hostname,
};
use super::messages::{
    mx_cancel, mx_context, mx_forget, mx_ibuffered, mx_irecv, mx_isend, mx_issend,
    mx_set_request_timeout,
};
use super::{completion, fetch, information, number_of, on, store};
use crate::abi::{EndpointAddress, ErrorHandler, Parameter, Segment, Status, UnexpectedHandler};
use crate::failing::{self, Code, StatusCode, answer};
use crate::registry;

/// `OMX_TIMEOUT_INFINITE`; MX's is 0.
const INFINITE: u32 = u32::MAX;

/// `OMX_NOT_SUPPORTED_IN_HANDLER`.
const NOT_IN_HANDLER: c_int = 96;

/// Status codes as Open-MX has them, and MX's.
const STATUS_CODES: [(StatusCode, c_int); 7] = [
    (StatusCode::Timeout, 30),
    (StatusCode::EndpointClosed, 33),
    (StatusCode::BadKey, 34),
    (StatusCode::Cancelled, 90),
    (StatusCode::EndpointUnreachable, 92),
    (StatusCode::BadSession, 93),
    (StatusCode::Truncated, 95),
];

fn milliseconds(timeout_ms: u32) -> u32 {
    match timeout_ms {
        INFINITE => 0,
        // MX has no number for a time that is over at once.
        0 => 1,
        other => other,
    }
}

/// The only code of calls that differs from MX's.
fn returned(code: c_int) -> c_int {
    if code == Code::CloseInHandler as c_int { NOT_IN_HANDLER } else { code }
}

/// Gives a status that a call of MX has stored Open-MX's code.
///
/// # Safety
/// The places are null or may be read and written; a result of 1 comes with a status.
unsafe fn recode(code: c_int, status: *mut Status, result: *mut u32) -> c_int {
    // SAFETY: the caller's promise.
    if code == Code::Success as c_int && unsafe { fetch(result) } == Some(1) {
        // SAFETY: the caller's promise.
        if let Some(mut told) = unsafe { fetch(status) } {
            let known = STATUS_CODES.iter().find(|(code, _)| *code as c_int == told.code);
            told.code = known.map_or(told.code, |(_, code)| *code);
            // SAFETY: the caller's promise.
            unsafe { store(status, told) };
        }
    }
    returned(code)
}

#[unsafe(no_mangle)]
extern "C" fn omx__init_api(version: c_int) -> c_int {
    super::mx__init_api(version)
}

#[unsafe(no_mangle)]
extern "C" fn omx_finalize() -> c_int {
    super::mx_finalize()
}

/// Of an endpoint, or with a null pointer of the program. Returns the one before.
#[unsafe(no_mangle)]
extern "C" fn omx_set_error_handler(endpoint: *mut c_void, handler: ErrorHandler) -> ErrorHandler {
    match registry::endpoint(endpoint) {
        Ok(endpoint) => endpoint.set_handler(handler),
        Err(_none) => failing::set_handler(handler),
    }
}

/// The text of a code, of a call or of a status.
#[unsafe(no_mangle)]
extern "C" fn omx_strerror(code: c_int) -> *const c_char {
    if code == NOT_IN_HANDLER {
        return Code::text(Code::CloseInHandler as c_int).as_ptr();
    }
    let status = STATUS_CODES.iter().find(|(_, known)| *known == code);
    status.map_or(Code::text(code), |(code, _)| StatusCode::text(*code as c_int)).as_ptr()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omx_board_number_to_nic_id(board: u32, nic_id: *mut u64) -> c_int {
    // SAFETY: the same arguments.
    unsafe { mx_board_number_to_nic_id(board, nic_id) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omx_nic_id_to_board_number(nic_id: u64, board: *mut u32) -> c_int {
    // SAFETY: the same arguments.
    unsafe { mx_nic_id_to_board_number(nic_id, board) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omx_hostname_to_nic_id(hostname: *mut c_char, nic_id: *mut u64) -> c_int {
    // SAFETY: the same arguments.
    unsafe { mx_hostname_to_nic_id(hostname, nic_id) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omx_nic_id_to_hostname(nic_id: u64, hostname: *mut c_char) -> c_int {
    // SAFETY: the same arguments.
    unsafe { mx_nic_id_to_hostname(nic_id, hostname) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omx_open_endpoint(
    board: u32,
    endpoint_id: u32,
    filter: u32,
    parameters: *mut Parameter,
    count: u32,
    endpoint: *mut *mut c_void,
) -> c_int {
    // SAFETY: the same arguments.
    unsafe { mx_open_endpoint(board, endpoint_id, filter, parameters, count, endpoint) }
}

#[unsafe(no_mangle)]
extern "C" fn omx_close_endpoint(endpoint: *mut c_void) -> c_int {
    returned(mx_close_endpoint(endpoint))
}

#[unsafe(no_mangle)]
extern "C" fn omx_wakeup(endpoint: *mut c_void) -> c_int {
    mx_wakeup(endpoint)
}

#[unsafe(no_mangle)]
extern "C" fn omx_disable_progression(endpoint: *mut c_void) -> c_int {
    mx_disable_progression(endpoint)
}

#[unsafe(no_mangle)]
extern "C" fn omx_reenable_progression(endpoint: *mut c_void) -> c_int {
    mx_reenable_progression(endpoint)
}

#[unsafe(no_mangle)]
extern "C" fn omx_progress(endpoint: *mut c_void) -> c_int {
    returned(completion::mx_progress(endpoint))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omx_get_endpoint_addr(
    endpoint: *mut c_void,
    address: *mut EndpointAddress,
) -> c_int {
    // SAFETY: the same arguments.
    unsafe { mx_get_endpoint_addr(endpoint, address) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omx_connect(
    endpoint: *mut c_void,
    nic_id: u64,
    endpoint_id: u32,
    filter: u32,
    timeout_ms: u32,
    address: *mut EndpointAddress,
) -> c_int {
    let timeout_ms = milliseconds(timeout_ms);
    // SAFETY: the same arguments.
    let code = unsafe { mx_connect(endpoint, nic_id, endpoint_id, filter, timeout_ms, address) };
    returned(code)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omx_iconnect(
    endpoint: *mut c_void,
    nic_id: u64,
    endpoint_id: u32,
    filter: u32,
    match_info: u64,
    context: *mut c_void,
    request: *mut *mut c_void,
) -> c_int {
    // SAFETY: the same arguments.
    unsafe { mx_iconnect(endpoint, nic_id, endpoint_id, filter, match_info, context, request) }
}

#[unsafe(no_mangle)]
extern "C" fn omx_disconnect(endpoint: *mut c_void, address: EndpointAddress) -> c_int {
    mx_disconnect(endpoint, address)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omx_decompose_endpoint_addr(
    address: EndpointAddress,
    nic_id: *mut u64,
    endpoint_id: *mut u32,
) -> c_int {
    // SAFETY: the same arguments.
    unsafe { mx_decompose_endpoint_addr(address, nic_id, endpoint_id) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omx_decompose_endpoint_addr_with_session(
    address: EndpointAddress,
    nic_id: *mut u64,
    endpoint_id: *mut u32,
    session_id: *mut u32,
) -> c_int {
    // SAFETY: the same arguments.
    unsafe { mx_decompose_endpoint_addr2(address, nic_id, endpoint_id, session_id) }
}

#[unsafe(no_mangle)]
extern "C" fn omx_set_endpoint_addr_context(
    address: EndpointAddress,
    context: *mut c_void,
) -> c_int {
    mx_set_endpoint_addr_context(address, context)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omx_get_endpoint_addr_context(
    address: EndpointAddress,
    context: *mut *mut c_void,
) -> c_int {
    // SAFETY: the same arguments.
    unsafe { mx_get_endpoint_addr_context(address, context) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omx_register_unexp_handler(
    endpoint: *mut c_void,
    handler: Option<UnexpectedHandler>,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the same arguments.
    unsafe { mx_register_unexp_handler(endpoint, handler, context) }
}

/// One buffer as a segment; one of 4 GiB or more is no message's.
fn whole(buffer: *mut c_void, length_bytes: usize) -> Result<Segment, Code> {
    let segment_length = u32::try_from(length_bytes).map_err(|_error| Code::BadSegmentMemory)?;
    Ok(Segment { segment_ptr: buffer, segment_length })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omx_isend(
    endpoint: *mut c_void,
    buffer: *mut c_void,
    length_bytes: usize,
    to: EndpointAddress,
    match_info: u64,
    context: *mut c_void,
    request: *mut *mut c_void,
) -> c_int {
    match whole(buffer, length_bytes) {
        // SAFETY: the same arguments; the segment is read at once.
        Ok(mut segment) => unsafe {
            mx_isend(endpoint, &raw mut segment, 1, to, match_info, context, request)
        },
        Err(code) => on(c"omx_isend", endpoint, |_endpoint| Err(code)),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omx_issend(
    endpoint: *mut c_void,
    buffer: *mut c_void,
    length_bytes: usize,
    to: EndpointAddress,
    match_info: u64,
    context: *mut c_void,
    request: *mut *mut c_void,
) -> c_int {
    match whole(buffer, length_bytes) {
        // SAFETY: the same arguments; the segment is read at once.
        Ok(mut segment) => unsafe {
            mx_issend(endpoint, &raw mut segment, 1, to, match_info, context, request)
        },
        Err(code) => on(c"omx_issend", endpoint, |_endpoint| Err(code)),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omx_irecv(
    endpoint: *mut c_void,
    buffer: *mut c_void,
    length_bytes: usize,
    match_info: u64,
    match_mask: u64,
    context: *mut c_void,
    request: *mut *mut c_void,
) -> c_int {
    match whole(buffer, length_bytes) {
        // SAFETY: the same arguments; the segment is read at once.
        Ok(mut segment) => unsafe {
            mx_irecv(endpoint, &raw mut segment, 1, match_info, match_mask, context, request)
        },
        Err(code) => on(c"omx_irecv", endpoint, |_endpoint| Err(code)),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omx_isendv(
    endpoint: *mut c_void,
    segments: *mut Segment,
    count: u32,
    to: EndpointAddress,
    match_info: u64,
    context: *mut c_void,
    request: *mut *mut c_void,
) -> c_int {
    // SAFETY: the same arguments.
    unsafe { mx_isend(endpoint, segments, count, to, match_info, context, request) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omx_issendv(
    endpoint: *mut c_void,
    segments: *mut Segment,
    count: u32,
    to: EndpointAddress,
    match_info: u64,
    context: *mut c_void,
    request: *mut *mut c_void,
) -> c_int {
    // SAFETY: the same arguments.
    unsafe { mx_issend(endpoint, segments, count, to, match_info, context, request) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omx_irecvv(
    endpoint: *mut c_void,
    segments: *mut Segment,
    count: u32,
    match_info: u64,
    match_mask: u64,
    context: *mut c_void,
    request: *mut *mut c_void,
) -> c_int {
    // SAFETY: the same arguments.
    unsafe { mx_irecv(endpoint, segments, count, match_info, match_mask, context, request) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omx_context(request: *mut *mut c_void, context: *mut *mut c_void) -> c_int {
    // SAFETY: the same arguments.
    unsafe { mx_context(request, context) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omx_forget(endpoint: *mut c_void, request: *mut *mut c_void) -> c_int {
    // SAFETY: the same arguments.
    unsafe { mx_forget(endpoint, request) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omx_ibuffered(
    endpoint: *mut c_void,
    request: *mut *mut c_void,
    result: *mut u32,
) -> c_int {
    // SAFETY: the same arguments.
    unsafe { mx_ibuffered(endpoint, request, result) }
}

#[unsafe(no_mangle)]
extern "C" fn omx_set_request_timeout(
    endpoint: *mut c_void,
    request: *mut c_void,
    milliseconds: u32,
) -> c_int {
    mx_set_request_timeout(
        endpoint,
        request,
        if milliseconds == INFINITE { 0 } else { milliseconds },
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omx_cancel(
    endpoint: *mut c_void,
    request: *mut *mut c_void,
    result: *mut u32,
) -> c_int {
    // SAFETY: the same arguments.
    unsafe { mx_cancel(endpoint, request, result) }
}

/// As [`omx_cancel`], but a cancelled request ends with the status of one, which the program learns as of any other.
#[unsafe(no_mangle)]
unsafe extern "C" fn omx_cancel_notest(
    endpoint: *mut c_void,
    request: *mut *mut c_void,
    result: *mut u32,
) -> c_int {
    on(c"omx_cancel_notest", endpoint, |endpoint| {
        // SAFETY: C's place of a request.
        let handle = unsafe { fetch(request) }.ok_or(Code::BadRequest)?;
        let number = number_of(endpoint, handle)?;
        let mut state = endpoint.lock()?;
        state.requests.get(number).ok_or(Code::BadRequest)?;
        let is_cancelled = state.cancel(number, StatusCode::Cancelled);
        // SAFETY: C's place for the result.
        unsafe { store(result, is_cancelled.into()) };
        Ok(())
    })
}

/// Keys that are about a board, or a counter, take its number in `given`, a byte.
#[unsafe(no_mangle)]
unsafe extern "C" fn omx_get_info(
    endpoint: *mut c_void,
    key: c_int,
    given: *const c_void,
    given_bytes: u32,
    out: *mut c_void,
    out_bytes: u32,
) -> c_int {
    answer(c"omx_get_info", None, || {
        registry::check()?;
        // SAFETY: C's number, where it says that there is one.
        let given = unsafe { fetch(given.cast::<u8>()) }.filter(|_| given_bytes > 0);
        let bytes = information::of_open_mx(endpoint, key, given.map(u32::from))?;
        // SAFETY: C's room.
        unsafe { information::copy_out(&bytes, out, out_bytes) }
    })
}
