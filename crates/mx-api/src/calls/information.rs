//! Boards, names of hosts, and what the library tells of itself.

use std::ffi::{CStr, c_char, c_int, c_void};

use super::{fetch, store};
use crate::abi::{HOSTNAME_BYTES, TEXT_BYTES, info};
use crate::boards::{self, Board};
use crate::endpoint::COPY_BYTES_MAX;
use crate::failing::{Code, answer};
use crate::registry;

/// Names of an endpoint's counters.
const COUNTERS: [&str; 8] = [
    "packets sent",
    "packets received",
    "packets retransmitted",
    "fragments asked for again",
    "packets received twice",
    "packets with a wrong tag",
    "messages before their receive",
    "waits that expired",
];
/// Requests of an endpoint that may be under way.
const REQUESTS_MAX: u32 = 1 << 20;
const PRODUCT: &str = "ClearStream";

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn mx_board_number_to_nic_id(board: u32, nic_id: *mut u64) -> c_int {
    answer(c"mx_board_number_to_nic_id", None, || {
        registry::check()?;
        let board = boards::all().get(board as usize).ok_or(Code::BoardUnknown)?;
        // SAFETY: C's place for the NIC id.
        unsafe { store(nic_id, board.nic_id()) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn mx_nic_id_to_board_number(nic_id: u64, board: *mut u32) -> c_int {
    answer(c"mx_nic_id_to_board_number", None, || {
        registry::check()?;
        let found = boards::all().iter().position(|board| board.nic_id() == nic_id);
        let found = found.ok_or(Code::NicNotFound)?;
        // SAFETY: C's place for the board's number.
        unsafe { store(board, found as u32) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn mx_hostname_to_nic_id(
    hostname: *mut c_char,
    nic_id: *mut u64,
) -> c_int {
    answer(c"mx_hostname_to_nic_id", None, || {
        registry::check()?;
        if hostname.is_null() || nic_id.is_null() {
            return Err(Code::BadHostnameArguments);
        }
        // SAFETY: C's string.
        let hostname = unsafe { CStr::from_ptr(hostname) };
        let hostname = hostname.to_str().map_err(|_error| Code::HostNotFound)?;
        let found = boards::find(hostname).ok_or(Code::HostNotFound)?;
        // SAFETY: C's place for the NIC id.
        unsafe { store(nic_id, found) };
        Ok(())
    })
}

/// `hostname` has room for `MX_MAX_HOSTNAME_LEN` bytes.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn mx_nic_id_to_hostname(nic_id: u64, hostname: *mut c_char) -> c_int {
    answer(c"mx_nic_id_to_hostname", None, || {
        registry::check()?;
        if hostname.is_null() {
            return Err(Code::BadHostnameArguments);
        }
        let host = boards::host_of(nic_id).ok_or(Code::NicNotFound)?;
        let text = text::<HOSTNAME_BYTES>(&host);
        let length_bytes = host.len().min(HOSTNAME_BYTES - 1) + 1;
        // SAFETY: C's room for a name; no more of it than the name and its 0 need.
        unsafe { hostname.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), length_bytes) };
        Ok(())
    })
}

/// A text as C has it, cut off where it is too long.
fn text<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [0; N];
    let length_bytes = text.len().min(N - 1);
    bytes[..length_bytes].copy_from_slice(&text.as_bytes()[..length_bytes]);
    bytes
}

/// Keys that are about a board take its number in `given`. Without it they are about the endpoint's board, and without
/// an endpoint about board 0.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn mx_get_info(
    endpoint: *mut c_void,
    key: c_int,
    given: *mut c_void,
    given_bytes: u32,
    out: *mut c_void,
    out_bytes: u32,
) -> c_int {
    answer(c"mx_get_info", None, || {
        registry::check()?;
        let has_board = given_bytes as usize >= size_of::<u32>();
        // SAFETY: C's number, where it says that there is one.
        let board = unsafe { fetch(given.cast::<u32>()) }.filter(|_| has_board);
        let bytes = collect(endpoint, key, board)?;
        // SAFETY: C's room.
        unsafe { copy_out(&bytes, out, out_bytes) }
    })
}

/// Copies information to C.
///
/// # Safety
/// `out` is null or has room for `out_bytes`.
pub(super) unsafe fn copy_out(bytes: &[u8], out: *mut c_void, out_bytes: u32) -> Result<(), Code> {
    if out.is_null() {
        return Err(Code::BadInfoValue);
    }
    if bytes.len() > out_bytes as usize {
        return Err(Code::BadInfoLength);
    }
    // SAFETY: the caller's promise; the room is large enough.
    unsafe { out.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    Ok(())
}

/// The information of a key of Open-MX's `omx_get_info`, in the order of its numbers.
pub(super) fn of_open_mx(
    endpoint: *mut c_void,
    key: c_int,
    given: Option<u32>,
) -> Result<Vec<u8>, Code> {
    const KEYS: [c_int; 4] =
        [info::NIC_COUNT, info::MAX_NATIVE_ENDPOINTS, info::NIC_COUNT, info::NIC_IDS];
    match key {
        0..=3 => collect(endpoint, KEYS[key as usize], None),
        4 => {
            let own = registry::endpoint(endpoint).map_or(0, |endpoint| endpoint.board);
            let board =
                boards::all().get(given.unwrap_or(own) as usize).ok_or(Code::BoardUnknown)?;
            let host = boards::host_of(board.nic_id()).ok_or(Code::BoardUnknown)?;
            Ok(terminated(&host))
        }
        5 => {
            let own = registry::endpoint(endpoint).map_or(0, |endpoint| endpoint.board);
            let board =
                boards::all().get(given.unwrap_or(own) as usize).ok_or(Code::BoardUnknown)?;
            Ok(terminated(&board.interface))
        }
        6 => of_board(endpoint, info::NUMA_NODE, given),
        7 => collect(endpoint, info::COUNTERS_COUNT, None),
        8 => counters(endpoint),
        9 => {
            let label = COUNTERS.get(given.unwrap_or(0) as usize).ok_or(Code::BadInfoValue)?;
            Ok(terminated(label))
        }
        _ => Err(Code::BadInfoKey),
    }
}

/// A text with its final 0.
fn terminated(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0]].concat()
}

/// The information of a key.
fn collect(endpoint: *mut c_void, key: c_int, board: Option<u32>) -> Result<Vec<u8>, Code> {
    let number = |number: u32| Ok(number.to_ne_bytes().to_vec());
    let boards = boards::all();
    match key {
        info::NIC_COUNT => number(boards.len() as u32),
        // The list ends in 0.
        info::NIC_IDS => {
            let ids = boards.iter().map(Board::nic_id).chain([0]);
            Ok(ids.flat_map(u64::to_ne_bytes).collect())
        }
        info::MAX_NATIVE_ENDPOINTS => number(boards::ENDPOINTS_MAX),
        info::NATIVE_REQUESTS => number(REQUESTS_MAX),
        info::COUNTERS_COUNT => number(COUNTERS.len() as u32),
        info::COUNTERS_LABELS => {
            Ok(COUNTERS.iter().flat_map(|name| text::<TEXT_BYTES>(name)).collect())
        }
        info::COUNTERS_VALUES => counters(endpoint),
        info::PIO_SEND_MAX | info::COPY_SEND_MAX => number(COPY_BYTES_MAX),
        info::PRODUCT_CODE
        | info::PART_NUMBER
        | info::SERIAL_NUMBER
        | info::PORT_COUNT
        | info::NUMA_NODE
        | info::NET_TYPE
        | info::LINE_SPEED => of_board(endpoint, key, board),
        _ => Err(Code::BadInfoKey),
    }
}

fn of_board(endpoint: *mut c_void, key: c_int, board: Option<u32>) -> Result<Vec<u8>, Code> {
    let own = registry::endpoint(endpoint).map_or(0, |endpoint| endpoint.board);
    let board = boards::all().get(board.unwrap_or(own) as usize).ok_or(Code::BoardUnknown)?;
    let number = |number: u32| number.to_ne_bytes().to_vec();
    Ok(match key {
        info::PRODUCT_CODE => text::<TEXT_BYTES>(PRODUCT).to_vec(),
        info::PART_NUMBER => text::<TEXT_BYTES>(&board.interface).to_vec(),
        info::SERIAL_NUMBER => text::<TEXT_BYTES>(&board.ip.to_string()).to_vec(),
        info::PORT_COUNT => number(1),
        // Which node a device is next to is not asked for.
        info::NUMA_NODE => number(u32::MAX),
        info::NET_TYPE => number(info::ETHERNET),
        _ => number(info::ANY_SPEED),
    })
}

/// An endpoint's counters, each modulo 2³².
fn counters(endpoint: *mut c_void) -> Result<Vec<u8>, Code> {
    let endpoint = registry::endpoint(endpoint)?;
    let state = endpoint.lock()?;
    let counters = state.engine.counters();
    let values: [u64; COUNTERS.len()] = [
        counters.sent_pkts,
        counters.received_pkts,
        counters.resent_pkts,
        counters.reasked_pkts,
        counters.duplicate_pkts,
        counters.forged_pkts,
        counters.unexpected_messages,
        counters.timeouts,
    ];
    Ok(values.iter().flat_map(|value| (*value as u32).to_ne_bytes()).collect())
}
