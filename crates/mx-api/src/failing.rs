//! What calls and requests end with: return codes, status codes, their texts, and error handlers.

use std::ffi::{CStr, CString, c_char, c_int};
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use clearstream_fi::engine::{EndError, Failure};

use crate::abi::ErrorHandler;

/// What a call returns: `mx_return_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Code {
    Success = 0,
    BadBadBad = 1,
    AlreadyInitialized = 3,
    NotInitialized = 4,
    NoDevice = 5,
    BoardUnknown = 8,
    BadEndpoint = 9,
    BadSegmentList = 10,
    BadSegmentMemory = 11,
    BadSegmentCount = 12,
    BadRequest = 13,
    BadMatchMask = 14,
    NoResources = 15,
    Busy = 20,
    BadInfoKey = 21,
    BadInfoValue = 22,
    BadParameterList = 24,
    BadParameterName = 25,
    BadParameterValue = 26,
    BadHostnameArguments = 27,
    HostNotFound = 28,
    Timeout = 30,
    BadEndpointId = 32,
    ConnectionFailed = 33,
    BadConnectionKey = 34,
    BadInfoLength = 35,
    NicNotFound = 36,
    BadLibraryVersion = 38,
    CancelNotSupported = 40,
    CloseInHandler = 41,
    BadMatchingForContextId = 42,
}

/// The texts of return codes, by number; MX's own names for those that this library never returns.
const RETURN_TEXTS: [&CStr; 44] = [
    c"success",
    c"an internal error of the library",
    c"failure",
    c"the library is initialized already",
    c"the library is not initialized: call mx_init first",
    c"this host has no IPv4 address for endpoints",
    c"no driver",
    c"permission denied",
    c"there is no board of this number",
    c"the endpoint is not open, or the address is not one of this endpoint's",
    c"the list of segments is a null pointer",
    c"a segment is a null pointer with a length, or the message has 4 GiB or more",
    c"too many segments",
    c"there is no such request",
    c"the match information has bits that the mask leaves out",
    c"too many operations are under way",
    c"the list of addresses is a null pointer",
    c"the list of addresses is empty",
    c"the root is not in the list",
    c"operations are not completed",
    c"another endpoint has this number, or endpoints are still open",
    c"there is no information of this key",
    c"a pointer for the information, or what it points to, is invalid",
    c"the NIC id is invalid",
    c"the list of parameters is a null pointer",
    c"there is no parameter of this name",
    c"the value of a parameter is invalid",
    c"the host's name, or the pointer for the result, is invalid",
    c"no host of this name is known",
    c"the request is pending",
    c"no answer came in the given time",
    c"no message matches",
    c"the endpoint number is out of range",
    c"there is no answer from this address",
    c"the peer has another filter",
    c"the room for the information is too small",
    c"no NIC of this id is known",
    c"the kernel's version does not fit",
    c"the program was made for another version of the interface",
    c"the NIC has failed",
    c"requests of this kind cannot be cancelled",
    c"the call is not allowed inside the handler of unexpected messages",
    c"the match information or the mask does not respect the context id",
    c"not supported with context ids",
];

/// How a request ends: `mx_status_code_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum StatusCode {
    Success = 0,
    Timeout = 4,
    Truncated = 5,
    Cancelled = 6,
    EndpointClosed = 8,
    EndpointUnreachable = 9,
    BadSession = 10,
    BadKey = 11,
}

const STATUS_TEXTS: [&CStr; 17] = [
    c"success",
    c"pending",
    c"buffered",
    c"rejected",
    c"the time of the request is over",
    c"the message was longer than its buffer",
    c"cancelled",
    c"the endpoint is unknown",
    c"the peer has closed its endpoint, or nothing listens there any more",
    c"the peer does not answer",
    c"the peer was restarted, or violated the protocol: connect again",
    c"the peer has another filter",
    c"the peer has no such endpoint",
    c"bad RDMA window",
    c"aborted",
    c"the event queue is full",
    c"too many operations are under way",
];

const UNKNOWN: &CStr = c"unknown code";

impl Code {
    /// Its text.
    pub(crate) fn text(number: c_int) -> &'static CStr {
        text(&RETURN_TEXTS, number)
    }
}

impl StatusCode {
    /// Its text.
    pub(crate) fn text(number: c_int) -> &'static CStr {
        text(&STATUS_TEXTS, number)
    }

    pub(crate) fn of_end(error: Option<EndError>) -> Self {
        match error {
            None => Self::Success,
            Some(EndError::Truncated) => Self::Truncated,
            Some(EndError::Cancelled) => Self::Cancelled,
            Some(EndError::Closed) => Self::EndpointClosed,
            Some(EndError::Silent) => Self::EndpointUnreachable,
            Some(EndError::Lost) => Self::BadSession,
        }
    }

    pub(crate) fn of_failure(failure: Failure) -> Self {
        match failure {
            Failure::Closed | Failure::Refused => Self::EndpointClosed,
            Failure::Silent => Self::EndpointUnreachable,
            Failure::Restarted | Failure::Violation => Self::BadSession,
        }
    }

    /// What a blocking connect comes to, by the status of its request.
    pub(crate) fn connected(code: c_int) -> Result<(), Code> {
        const SUCCESS: c_int = StatusCode::Success as c_int;
        const BAD_KEY: c_int = StatusCode::BadKey as c_int;
        const UNREACHABLE: c_int = StatusCode::EndpointUnreachable as c_int;
        match code {
            SUCCESS => Ok(()),
            BAD_KEY => Err(Code::BadConnectionKey),
            UNREACHABLE => Err(Code::Timeout),
            _ => Err(Code::ConnectionFailed),
        }
    }
}

fn text(texts: &[&'static CStr], number: c_int) -> &'static CStr {
    usize::try_from(number).ok().and_then(|number| texts.get(number)).copied().unwrap_or(UNKNOWN)
}

/// `MX_ERRORS_ARE_FATAL`: errors are said, and end the program.
#[unsafe(no_mangle)]
static MX_ERRORS_ARE_FATAL: ErrorHandler = Some(fail);

/// `MX_ERRORS_RETURN`: calls return their errors.
#[unsafe(no_mangle)]
static MX_ERRORS_RETURN: ErrorHandler = Some(pass);

/// Open-MX's names for the same.
#[unsafe(no_mangle)]
static OMX_ERRORS_ARE_FATAL: ErrorHandler = Some(fail);

/// Open-MX's name for [`MX_ERRORS_RETURN`].
#[unsafe(no_mangle)]
static OMX_ERRORS_RETURN: ErrorHandler = Some(pass);

unsafe extern "C" fn fail(call: *mut c_char, code: c_int) -> c_int {
    // SAFETY: error handlers are given a string.
    let call = unsafe { CStr::from_ptr(call) }.to_string_lossy();
    let line = Code::text(code).to_string_lossy();
    complain(&format!("{call}: {line} (MX error {code})"));
    std::process::abort();
}

unsafe extern "C" fn pass(_call: *mut c_char, code: c_int) -> c_int {
    code
}

/// Says something to the user.
pub(crate) fn complain(line: &str) {
    // Where nobody listens nothing is said.
    writeln!(std::io::stderr(), "libmyriexpress: {line}").ok();
}

/// The program's; endpoints may have another.
static HANDLER: Mutex<ErrorHandler> = Mutex::new(Some(fail));

/// Sets the program's error handler; returns the one before.
pub(crate) fn set_handler(handler: ErrorHandler) -> ErrorHandler {
    let mut current = HANDLER.lock().unwrap_or_else(PoisonError::into_inner);
    std::mem::replace(&mut current, handler.or(MX_ERRORS_ARE_FATAL))
}

/// What the call of this name returns: errors go through the handler, of the endpoint or else of the program, and a
/// panic does not leave this library.
pub(crate) fn answer(
    call: &CStr,
    handler: ErrorHandler,
    body: impl FnOnce() -> Result<(), Code>,
) -> c_int {
    let code = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return Code::Success as c_int,
        Ok(Err(code)) => code,
        Err(_panic) => Code::BadBadBad,
    };
    let general = || *HANDLER.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(handler) = handler.or_else(general) else { return code as c_int };
    let name = CString::from(call).into_raw();
    // SAFETY: the program's handler, given a string that lives as long as the call.
    let returned = unsafe { handler(name, code as c_int) };
    // SAFETY: from `into_raw` above.
    drop(unsafe { CString::from_raw(name) });
    returned
}
