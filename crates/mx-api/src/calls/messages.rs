//! Sends, receives, and what becomes of them before they end.

use std::ffi::{c_int, c_void};
use std::time::{Duration, Instant};

use clearstream_fi::engine::SendMode;

use super::{fetch, number_of, on, store};
use crate::abi::{EndpointAddress, SEGMENTS_MAX, Segment};
use crate::endpoint::{Endpoint, State};
use crate::failing::{Code, StatusCode, answer};
use crate::registry;
use crate::requests::{Kind, Request};

/// The pieces of a message, and its length in bytes.
///
/// # Safety
/// `segments` may be read for `count` segments.
unsafe fn pieces(segments: *const Segment, count: u32) -> Result<(Vec<libc::iovec>, u32), Code> {
    if count > SEGMENTS_MAX {
        return Err(Code::BadSegmentCount);
    }
    if count == 0 {
        return Ok((Vec::new(), 0));
    }
    if segments.is_null() {
        return Err(Code::BadSegmentList);
    }
    // SAFETY: the caller's promise.
    let segments = unsafe { std::slice::from_raw_parts(segments, count as usize) };
    let piece = |segment: &Segment| libc::iovec {
        iov_base: segment.segment_ptr,
        iov_len: segment.segment_length as usize,
    };
    let pieces: Vec<_> = segments.iter().map(piece).collect();
    let is_missing = |piece: &libc::iovec| piece.iov_base.is_null() && piece.iov_len > 0;
    let length_bytes: usize = pieces.iter().map(|piece| piece.iov_len).sum();
    match u32::try_from(length_bytes) {
        Ok(length_bytes) if !pieces.iter().any(is_missing) => Ok((pieces, length_bytes)),
        _ => Err(Code::BadSegmentMemory),
    }
}

/// A message to send.
struct Out {
    segments: *const Segment,
    count: u32,
    to: EndpointAddress,
    match_info: u64,
    context: *mut c_void,
    mode: SendMode,
}

/// Starts a send; stores its request.
///
/// # Safety
/// As MX has it: the segments may be read now, their memory until the request has ended.
unsafe fn send(endpoint: &Endpoint, out: &Out, request: *mut *mut c_void) -> Result<(), Code> {
    // SAFETY: the caller's promise.
    let (pieces, length_bytes) = unsafe { pieces(out.segments, out.count) }?;
    let context = out.context.expose_provenance();
    let mut new = Request::new(Kind::Send, out.match_info, context);
    (new.peer, new.length_bytes) = (out.to, length_bytes);
    let mut state = endpoint.lock()?;
    // SAFETY: the caller's promise.
    let number = unsafe { state.send(&pieces, out.mode, new) }?;
    // SAFETY: C's place for the request.
    unsafe { give(endpoint, &mut state, number, request) };
    Ok(())
}

/// Stores a request for C; without a place for it the request is forgotten.
///
/// # Safety
/// `place` is null or may be written.
unsafe fn give(endpoint: &Endpoint, state: &mut State, number: u64, place: *mut *mut c_void) {
    if place.is_null() {
        state.requests.forget(number);
    }
    // SAFETY: the caller's promise.
    unsafe { store(place, registry::request_handle(endpoint.own.index, number)) };
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn mx_isend(
    endpoint: *mut c_void,
    segments: *mut Segment,
    count: u32,
    to: EndpointAddress,
    match_info: u64,
    context: *mut c_void,
    request: *mut *mut c_void,
) -> c_int {
    let out = Out { segments, count, to, match_info, context, mode: SendMode::Standard };
    // SAFETY: C's arguments, as MX has them.
    on(c"mx_isend", endpoint, |endpoint| unsafe { send(endpoint, &out, request) })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn mx_issend(
    endpoint: *mut c_void,
    segments: *mut Segment,
    count: u32,
    to: EndpointAddress,
    match_info: u64,
    context: *mut c_void,
    request: *mut *mut c_void,
) -> c_int {
    let out = Out { segments, count, to, match_info, context, mode: SendMode::Synchronous };
    // SAFETY: C's arguments, as MX has them.
    on(c"mx_issend", endpoint, |endpoint| unsafe { send(endpoint, &out, request) })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn mx_irecv(
    endpoint: *mut c_void,
    segments: *mut Segment,
    count: u32,
    match_info: u64,
    match_mask: u64,
    context: *mut c_void,
    request: *mut *mut c_void,
) -> c_int {
    on(c"mx_irecv", endpoint, |endpoint| {
        if match_info & !match_mask != 0 {
            return Err(Code::BadMatchMask);
        }
        if endpoint.own.context_mask & !match_mask != 0 {
            return Err(Code::BadMatchingForContextId);
        }
        // SAFETY: C's arguments, as MX has them.
        let (pieces, _length_bytes) = unsafe { pieces(segments, count) }?;
        let new = Request::new(Kind::Receive, match_info, context.expose_provenance());
        let mut state = endpoint.lock()?;
        // SAFETY: the memory of the segments is the library's until the request has ended.
        let number = unsafe { state.receive(&pieces, match_mask, new) }?;
        // SAFETY: C's place for the request.
        unsafe { give(endpoint, &mut state, number, request) };
        Ok(())
    })
}

/// A cancelled request is gone.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn mx_cancel(
    endpoint: *mut c_void,
    request: *mut *mut c_void,
    result: *mut u32,
) -> c_int {
    on(c"mx_cancel", endpoint, |endpoint| {
        // SAFETY: C's place of a request.
        let handle = unsafe { fetch(request) }.ok_or(Code::BadRequest)?;
        let number = number_of(endpoint, handle)?;
        let mut state = endpoint.lock()?;
        let kind = state.requests.get(number).ok_or(Code::BadRequest)?.kind;
        if kind == Kind::Send {
            return Err(Code::CancelNotSupported);
        }
        let is_cancelled = state.cancel(number, StatusCode::Cancelled);
        if is_cancelled {
            state.requests.forget(number);
        }
        // SAFETY: C's place for the result.
        unsafe { store(result, is_cancelled.into()) };
        Ok(())
    })
}

/// The request is gone once it ends, and nobody is told how.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn mx_forget(
    endpoint: *mut c_void,
    request: *mut *mut c_void,
) -> c_int {
    on(c"mx_forget", endpoint, |endpoint| {
        // SAFETY: C's place of a request.
        let handle = unsafe { fetch(request) }.ok_or(Code::BadRequest)?;
        let number = number_of(endpoint, handle)?;
        if endpoint.lock()?.requests.forget(number) { Ok(()) } else { Err(Code::BadRequest) }
    })
}

/// Whether the memory of a request may be used again: with this library, once the request has ended. Sends of up to
/// 32 KiB end at once.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn mx_ibuffered(
    endpoint: *mut c_void,
    request: *mut *mut c_void,
    result: *mut u32,
) -> c_int {
    on(c"mx_ibuffered", endpoint, |endpoint| {
        // SAFETY: C's place of a request.
        let handle = unsafe { fetch(request) }.ok_or(Code::BadRequest)?;
        let number = number_of(endpoint, handle)?;
        let state = endpoint.lock()?;
        let is_ended = state.requests.get(number).ok_or(Code::BadRequest)?.is_ended();
        // SAFETY: C's place for the result.
        unsafe { store(result, is_ended.into()) };
        Ok(())
    })
}

/// The pointer that the program gave with a request.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn mx_context(
    request: *mut *mut c_void,
    context: *mut *mut c_void,
) -> c_int {
    answer(c"mx_context", None, || {
        // SAFETY: C's place of a request.
        let handle = unsafe { fetch(request) }.ok_or(Code::BadRequest)?;
        let (index, number) = registry::request(handle)?;
        let endpoint = registry::at(index).map_err(|_code| Code::BadRequest)?;
        let state = endpoint.lock()?;
        let known = state.requests.get(number).ok_or(Code::BadRequest)?.context;
        // SAFETY: C's place for the pointer.
        unsafe { store(context, std::ptr::with_exposed_provenance_mut(known)) };
        Ok(())
    })
}

/// A receive that no message has matched, or a connect that nobody has answered, ends after so many milliseconds with
/// `MX_STATUS_TIMEOUT`; 0: never. Sends end by themselves when their peer fails.
#[unsafe(no_mangle)]
pub(super) extern "C" fn mx_set_request_timeout(
    endpoint: *mut c_void,
    request: *mut c_void,
    milliseconds: u32,
) -> c_int {
    on(c"mx_set_request_timeout", endpoint, |endpoint| {
        let number = number_of(endpoint, request)?;
        let timeout = Duration::from_millis(milliseconds.into());
        let deadline = (milliseconds != 0).then(|| Instant::now() + timeout);
        let is_known = endpoint.lock()?.requests.set_deadline(number, deadline);
        if is_known { Ok(()) } else { Err(Code::BadRequest) }
    })
}
