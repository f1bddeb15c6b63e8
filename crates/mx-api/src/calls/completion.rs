//! How requests end, and what messages wait.

use std::ffi::{c_int, c_void};

use super::{fetch, number_of, on, store};
use crate::abi::Status;
use crate::endpoint::{Endpoint, State};
use crate::failing::{Code, StatusCode};
use crate::registry;
use crate::waiting::wait;

/// Stores what was found, and whether something was.
///
/// # Safety
/// The places are null or may be written.
unsafe fn tell<T>(found: Option<T>, place: *mut T, result: *mut u32) {
    // SAFETY: the caller's promise.
    unsafe { store(result, found.is_some().into()) };
    if let Some(found) = found {
        // SAFETY: the caller's promise.
        unsafe { store(place, found) };
    }
}

/// Looks once.
fn look<T>(
    endpoint: &Endpoint,
    look: impl FnOnce(&mut State) -> Result<Option<T>, Code>,
) -> Result<Option<T>, Code> {
    let mut state = endpoint.advance()?;
    state.end_overdue();
    look(&mut state)
}

/// The number of the request at a place.
///
/// # Safety
/// The place is null or may be read.
unsafe fn number_at(endpoint: &Endpoint, request: *mut *mut c_void) -> Result<u64, Code> {
    // SAFETY: the caller's promise.
    let handle = unsafe { fetch(request) }.ok_or(Code::BadRequest)?;
    number_of(endpoint, handle)
}

fn take(state: &mut State, number: u64) -> Result<Option<Status>, Code> {
    state.requests.get(number).ok_or(Code::BadRequest)?;
    Ok(state.requests.take(number))
}

/// Bits of a match outside its mask are an error.
fn check(match_info: u64, match_mask: u64) -> Result<(), Code> {
    if match_info & !match_mask == 0 { Ok(()) } else { Err(Code::BadMatchMask) }
}

/// The message that a receive would take now.
fn probe(state: &State, match_info: u64, match_mask: u64) -> Option<Status> {
    let arrived = state.engine.probe(match_info, !match_mask)?;
    let length_bytes = arrived.length_bytes.try_into().unwrap_or(u32::MAX);
    Some(Status {
        code: StatusCode::Success as c_int,
        source: state.address_of(arrived.source),
        match_info: arrived.match_bits,
        msg_length: length_bytes,
        xfer_length: length_bytes,
        context: std::ptr::null_mut(),
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn mx_test(
    endpoint: *mut c_void,
    request: *mut *mut c_void,
    status: *mut Status,
    result: *mut u32,
) -> c_int {
    on(c"mx_test", endpoint, |endpoint| {
        // SAFETY: C's place of a request.
        let number = unsafe { number_at(endpoint, request) }?;
        let found = look(endpoint, |state| take(state, number))?;
        // SAFETY: C's places.
        unsafe { tell(found, status, result) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn mx_wait(
    endpoint: *mut c_void,
    request: *mut *mut c_void,
    timeout_ms: u32,
    status: *mut Status,
    result: *mut u32,
) -> c_int {
    on(c"mx_wait", endpoint, |endpoint| {
        // SAFETY: C's place of a request.
        let number = unsafe { number_at(endpoint, request) }?;
        let found = wait(endpoint, timeout_ms, |state| take(state, number))?;
        // SAFETY: C's places.
        unsafe { tell(found, status, result) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn mx_test_any(
    endpoint: *mut c_void,
    match_info: u64,
    match_mask: u64,
    status: *mut Status,
    result: *mut u32,
) -> c_int {
    on(c"mx_test_any", endpoint, |endpoint| {
        check(match_info, match_mask)?;
        let found = look(endpoint, |state| Ok(state.requests.take_any(match_info, match_mask)))?;
        // SAFETY: C's places.
        unsafe { tell(found, status, result) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn mx_wait_any(
    endpoint: *mut c_void,
    timeout_ms: u32,
    match_info: u64,
    match_mask: u64,
    status: *mut Status,
    result: *mut u32,
) -> c_int {
    on(c"mx_wait_any", endpoint, |endpoint| {
        check(match_info, match_mask)?;
        let take = |state: &mut State| Ok(state.requests.take_any(match_info, match_mask));
        let found = wait(endpoint, timeout_ms, take)?;
        // SAFETY: C's places.
        unsafe { tell(found, status, result) };
        Ok(())
    })
}

/// The request that ended first of those whose end the program has not learned.
fn first(endpoint: &Endpoint, state: &mut State) -> Option<*mut c_void> {
    let number = state.requests.first_ended()?;
    Some(registry::request_handle(endpoint.own.index, number))
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn mx_ipeek(
    endpoint: *mut c_void,
    request: *mut *mut c_void,
    result: *mut u32,
) -> c_int {
    on(c"mx_ipeek", endpoint, |endpoint| {
        let found = look(endpoint, |state| Ok(first(endpoint, state)))?;
        // SAFETY: C's places.
        unsafe { tell(found, request, result) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn mx_peek(
    endpoint: *mut c_void,
    timeout_ms: u32,
    request: *mut *mut c_void,
    result: *mut u32,
) -> c_int {
    on(c"mx_peek", endpoint, |endpoint| {
        let found = wait(endpoint, timeout_ms, |state| Ok(first(endpoint, state)))?;
        // SAFETY: C's places.
        unsafe { tell(found, request, result) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn mx_iprobe(
    endpoint: *mut c_void,
    match_info: u64,
    match_mask: u64,
    status: *mut Status,
    result: *mut u32,
) -> c_int {
    on(c"mx_iprobe", endpoint, |endpoint| {
        check(match_info, match_mask)?;
        let found = look(endpoint, |state| Ok(probe(state, match_info, match_mask)))?;
        // SAFETY: C's places.
        unsafe { tell(found, status, result) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn mx_probe(
    endpoint: *mut c_void,
    timeout_ms: u32,
    match_info: u64,
    match_mask: u64,
    status: *mut Status,
    result: *mut u32,
) -> c_int {
    on(c"mx_probe", endpoint, |endpoint| {
        check(match_info, match_mask)?;
        let found = wait(endpoint, timeout_ms, |state| Ok(probe(state, match_info, match_mask)))?;
        // SAFETY: C's places.
        unsafe { tell(found, status, result) };
        Ok(())
    })
}

/// Takes in what came and sends what is due.
#[unsafe(no_mangle)]
pub(super) extern "C" fn mx_progress(endpoint: *mut c_void) -> c_int {
    on(c"mx_progress", endpoint, |endpoint| endpoint.advance().map(drop))
}
