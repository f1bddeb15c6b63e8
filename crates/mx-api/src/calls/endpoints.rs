//! Endpoints: opened, closed, connected; their addresses.

use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;

use super::{on, store};
use crate::abi::{self, EndpointAddress, ErrorHandler, Parameter, UnexpectedHandler};
use crate::endpoint::{self, Endpoint, Handler, Own};
use crate::failing::{Code, StatusCode, answer};
use crate::requests::{Kind, Request};
use crate::waiting::wait;
use crate::{boards, registry};

/// What parameters say.
///
/// # Safety
/// `parameters` may be read for `count` parameters, and each has the value that its key says.
unsafe fn read_parameters(
    parameters: *const Parameter,
    count: u32,
) -> Result<(ErrorHandler, u64), Code> {
    let (mut handler, mut context_mask) = (None, 0);
    if count > 0 && parameters.is_null() {
        return Err(Code::BadParameterList);
    }
    for index in 0..count as usize {
        // SAFETY: within the list.
        let place = unsafe { parameters.add(index) };
        // SAFETY: the caller's promise.
        let parameter = unsafe { place.read() };
        match parameter.key {
            abi::PARAM_ERROR_HANDLER => {
                // SAFETY: the key says so.
                handler = unsafe { parameter.value.error_handler };
            }
            // The machine bounds what it keeps of each peer by itself.
            abi::PARAM_UNEXP_QUEUE_MAX => {}
            abi::PARAM_CONTEXT_ID => {
                // SAFETY: the key says so.
                let id = unsafe { parameter.value.context_id };
                let is_good = id.bits <= abi::CONTEXT_ID_BITS_MAX
                    && u32::from(id.bits) + u32::from(id.shift) <= u64::BITS;
                if !is_good {
                    return Err(Code::BadParameterValue);
                }
                let bits = (1_u64 << id.bits) - 1;
                context_mask = bits.checked_shl(id.shift.into()).unwrap_or(0);
            }
            _ => return Err(Code::BadParameterName),
        }
    }
    Ok((handler, context_mask))
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn mx_open_endpoint(
    board: u32,
    endpoint_id: u32,
    filter: u32,
    parameters: *mut Parameter,
    count: u32,
    endpoint: *mut *mut c_void,
) -> c_int {
    answer(c"mx_open_endpoint", None, || {
        registry::check()?;
        // SAFETY: C's list.
        let (handler, context_mask) = unsafe { read_parameters(parameters, count) }?;
        if endpoint_id != abi::ANY && endpoint_id >= boards::ENDPOINTS_MAX {
            return Err(Code::BadEndpointId);
        }
        let number = if board == abi::ANY { 0 } else { board };
        let board = boards::all().get(number as usize).ok_or(Code::BoardUnknown)?;
        let handle = registry::enter(|index| {
            let own = Own { index, filter, context_mask };
            Endpoint::open(own, handler, number, board, endpoint_id)
        })?;
        // SAFETY: C's place for the endpoint.
        unsafe { store(endpoint, handle) };
        Ok(())
    })
}

/// What was sent is delivered first, as far as the peers answer within 5 s.
#[unsafe(no_mangle)]
pub(super) extern "C" fn mx_close_endpoint(endpoint: *mut c_void) -> c_int {
    on(c"mx_close_endpoint", endpoint, |endpoint| {
        let closed = endpoint.close();
        if closed != Err(Code::CloseInHandler) {
            registry::remove(endpoint.own.index);
        }
        closed
    })
}

/// Whoever waits at the endpoint returns without a result.
#[unsafe(no_mangle)]
pub(super) extern "C" fn mx_wakeup(endpoint: *mut c_void) -> c_int {
    on(c"mx_wakeup", endpoint, |endpoint| {
        endpoint.wakeups_count.fetch_add(1, Ordering::Release);
        Ok(())
    })
}

/// From now on calls make no progress.
#[unsafe(no_mangle)]
pub(super) extern "C" fn mx_disable_progression(endpoint: *mut c_void) -> c_int {
    on(c"mx_disable_progression", endpoint, |endpoint| {
        endpoint.lock()?.is_stopped = true;
        Ok(())
    })
}

/// Ends [`mx_disable_progression`].
#[unsafe(no_mangle)]
pub(super) extern "C" fn mx_reenable_progression(endpoint: *mut c_void) -> c_int {
    on(c"mx_reenable_progression", endpoint, |endpoint| {
        endpoint.lock()?.is_stopped = false;
        Ok(())
    })
}

/// `handler` is shown each message that no receive has matched when it comes, once; a null pointer ends that.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn mx_register_unexp_handler(
    endpoint: *mut c_void,
    handler: Option<UnexpectedHandler>,
    context: *mut c_void,
) -> c_int {
    on(c"mx_register_unexp_handler", endpoint, |endpoint| {
        let context = context.expose_provenance();
        endpoint.lock()?.handler = handler.map(|function| Handler { function, context });
        Ok(())
    })
}

/// Begins to connect. The request's number.
fn begin(
    endpoint: &Endpoint,
    nic_id: u64,
    endpoint_id: u32,
    filter: u32,
    mut request: Request,
) -> Result<u64, Code> {
    if endpoint_id >= boards::ENDPOINTS_MAX {
        return Err(Code::BadEndpointId);
    }
    let name = boards::name(nic_id, endpoint_id).ok_or(Code::NicNotFound)?;
    let mut state = endpoint.lock()?;
    let peer = state.engine.peer(&name).map_err(|_error| Code::NoResources)?;
    state.know(peer)?;
    request.peer = state.address_of(peer);
    let number = state.requests.insert(request);
    let asked = state.ask(number, peer, filter);
    if asked.is_err() {
        state.requests.remove(number);
    }
    asked.map(|()| number)
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn mx_connect(
    endpoint: *mut c_void,
    nic_id: u64,
    endpoint_id: u32,
    filter: u32,
    timeout_ms: u32,
    address: *mut EndpointAddress,
) -> c_int {
    on(c"mx_connect", endpoint, |endpoint| {
        let request = Request::new(Kind::Connect, 0, 0);
        let number = begin(endpoint, nic_id, endpoint_id, filter, request)?;
        let ended = wait(endpoint, timeout_ms, |state| Ok(state.requests.take(number)))?;
        let Some(status) = ended else {
            let mut state = endpoint.lock()?;
            state.cancel(number, StatusCode::Timeout);
            state.requests.forget(number);
            return Err(Code::Timeout);
        };
        StatusCode::connected(status.code)?;
        // SAFETY: C's place for the address.
        unsafe { store(address, status.source) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn mx_iconnect(
    endpoint: *mut c_void,
    nic_id: u64,
    endpoint_id: u32,
    filter: u32,
    match_info: u64,
    context: *mut c_void,
    request: *mut *mut c_void,
) -> c_int {
    on(c"mx_iconnect", endpoint, |endpoint| {
        let new = Request::new(Kind::Connect, match_info, context.expose_provenance());
        let number = begin(endpoint, nic_id, endpoint_id, filter, new)?;
        // SAFETY: C's place for the request.
        unsafe { store(request, registry::request_handle(endpoint.own.index, number)) };
        Ok(())
    })
}

/// Sessions end when an endpoint closes, or by silence: nothing is left to do.
#[unsafe(no_mangle)]
pub(super) extern "C" fn mx_disconnect(endpoint: *mut c_void, address: EndpointAddress) -> c_int {
    on(c"mx_disconnect", endpoint, |endpoint| endpoint.lock()?.peer_at(&address).map(drop))
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn mx_get_endpoint_addr(
    endpoint: *mut c_void,
    address: *mut EndpointAddress,
) -> c_int {
    on(c"mx_get_endpoint_addr", endpoint, |endpoint| {
        let mut state = endpoint.lock()?;
        let name = *state.engine.name();
        let own = state.engine.peer(&name).map_err(|_error| Code::NoResources)?;
        state.know(own)?;
        // SAFETY: C's place for the address.
        unsafe { store(address, state.address_of(own)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn mx_decompose_endpoint_addr(
    address: EndpointAddress,
    nic_id: *mut u64,
    endpoint_id: *mut u32,
) -> c_int {
    // SAFETY: C's places for NIC id and number.
    unsafe { store(nic_id, address.stuff[0]) };
    // SAFETY: as above.
    unsafe { store(endpoint_id, endpoint::endpoint_id(&address)) };
    Code::Success as c_int
}

/// As [`mx_decompose_endpoint_addr`], with a number that two addresses of one peer share.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn mx_decompose_endpoint_addr2(
    address: EndpointAddress,
    nic_id: *mut u64,
    endpoint_id: *mut u32,
    session_id: *mut u32,
) -> c_int {
    // SAFETY: C's place for the number.
    unsafe { store(session_id, address.stuff[1] as u32) };
    // SAFETY: C's places.
    unsafe { mx_decompose_endpoint_addr(address, nic_id, endpoint_id) }
}

/// What `body` does with the program's pointer for a peer.
fn on_context(address: EndpointAddress, body: impl FnOnce(&mut usize)) -> Result<(), Code> {
    let index = endpoint::endpoint_index(&address).ok_or(Code::BadEndpoint)?;
    let endpoint = registry::at(index)?;
    let mut state = endpoint.lock()?;
    let peer = state.peer_at(&address)?;
    body(state.context(peer));
    Ok(())
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn mx_set_endpoint_addr_context(
    address: EndpointAddress,
    context: *mut c_void,
) -> c_int {
    answer(c"mx_set_endpoint_addr_context", None, || {
        on_context(address, |known| *known = context.expose_provenance())
    })
}

/// A null pointer where none was set.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn mx_get_endpoint_addr_context(
    address: EndpointAddress,
    context: *mut *mut c_void,
) -> c_int {
    answer(c"mx_get_endpoint_addr_context", None, || {
        let mut found = 0;
        on_context(address, |known| found = *known)?;
        // SAFETY: C's place for the pointer.
        unsafe { store(context, std::ptr::with_exposed_provenance_mut(found)) };
        Ok(())
    })
}
