//! MX's types as C sees them, MX API 0x301. `include/myriexpress.h` is the same for C; a test compares the two.

use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;

/// The version of the interface; programs pass it to `mx__init_api`.
pub(crate) const MX_API: c_int = 0x301;
/// The first board, or any free endpoint number.
pub(crate) const ANY: u32 = u32::MAX;
/// Segments of a message.
pub(crate) const SEGMENTS_MAX: u32 = 256;
/// Bytes of a host's name, with the final 0.
pub(crate) const HOSTNAME_BYTES: usize = 80;
/// Bytes of a counter's label, with the final 0.
pub(crate) const TEXT_BYTES: usize = 128;
/// Bits of a context id.
pub(crate) const CONTEXT_ID_BITS_MAX: u8 = 16;

/// `mx_endpoint_addr_t`: the address's NIC id, then which peer of which endpoint of this process.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct EndpointAddress {
    pub(crate) stuff: [u64; 2],
}

/// `mx_segment_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Segment {
    pub(crate) segment_ptr: *mut c_void,
    pub(crate) segment_length: u32,
}

/// `mx_status_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Status {
    pub(crate) code: c_int,
    pub(crate) source: EndpointAddress,
    pub(crate) match_info: u64,
    pub(crate) msg_length: u32,
    pub(crate) xfer_length: u32,
    pub(crate) context: *mut c_void,
}

/// `mx_error_handler_t`.
pub(crate) type ErrorHandler = Option<unsafe extern "C" fn(*mut c_char, c_int) -> c_int>;

/// `mx_unexp_handler_t`.
pub(crate) type UnexpectedHandler =
    unsafe extern "C" fn(*mut c_void, EndpointAddress, u64, u32, *mut c_void) -> c_int;

/// `MX_RECV_FINISHED`: the unexpected handler has dealt with the message.
pub(crate) const RECV_FINISHED: c_int = 1;

/// `mx_param_key_t`.
pub(crate) const PARAM_ERROR_HANDLER: c_int = 0;
pub(crate) const PARAM_UNEXP_QUEUE_MAX: c_int = 1;
pub(crate) const PARAM_CONTEXT_ID: c_int = 2;

/// `mx_param_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Parameter {
    pub(crate) key: c_int,
    pub(crate) value: ParameterValue,
}

/// Which one is valid, the key says.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union ParameterValue {
    pub(crate) error_handler: ErrorHandler,
    pub(crate) unexp_queue_max: u32,
    pub(crate) context_id: ContextId,
}

/// Where the context id is in the match bits.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct ContextId {
    pub(crate) bits: u8,
    pub(crate) shift: u8,
}

/// Keys of `mx_get_info`.
pub(crate) mod info {
    use super::c_int;

    pub(crate) const NIC_COUNT: c_int = 1;
    pub(crate) const NIC_IDS: c_int = 2;
    pub(crate) const MAX_NATIVE_ENDPOINTS: c_int = 3;
    pub(crate) const NATIVE_REQUESTS: c_int = 4;
    pub(crate) const COUNTERS_COUNT: c_int = 5;
    pub(crate) const COUNTERS_LABELS: c_int = 6;
    pub(crate) const COUNTERS_VALUES: c_int = 7;
    pub(crate) const PRODUCT_CODE: c_int = 8;
    pub(crate) const PART_NUMBER: c_int = 9;
    pub(crate) const SERIAL_NUMBER: c_int = 10;
    pub(crate) const PORT_COUNT: c_int = 11;
    pub(crate) const PIO_SEND_MAX: c_int = 12;
    pub(crate) const COPY_SEND_MAX: c_int = 13;
    pub(crate) const NUMA_NODE: c_int = 14;
    pub(crate) const NET_TYPE: c_int = 15;
    pub(crate) const LINE_SPEED: c_int = 16;
    /// `MX_NET_ETHER`.
    pub(crate) const ETHERNET: u32 = 1;
    /// `MX_SPEED_OPEN_MX`: whatever the device has.
    pub(crate) const ANY_SPEED: u32 = 2;
}

/// Sizes and offsets, as C expressions over `include/myriexpress.h` and their values.
#[must_use]
pub fn layout() -> Vec<(&'static str, usize)> {
    vec![
        ("sizeof(mx_endpoint_addr_t)", size_of::<EndpointAddress>()),
        ("sizeof(mx_segment_t)", size_of::<Segment>()),
        ("offsetof(mx_segment_t, segment_length)", offset_of!(Segment, segment_length)),
        ("sizeof(mx_status_t)", size_of::<Status>()),
        ("offsetof(mx_status_t, source)", offset_of!(Status, source)),
        ("offsetof(mx_status_t, match_info)", offset_of!(Status, match_info)),
        ("offsetof(mx_status_t, msg_length)", offset_of!(Status, msg_length)),
        ("offsetof(mx_status_t, xfer_length)", offset_of!(Status, xfer_length)),
        ("offsetof(mx_status_t, context)", offset_of!(Status, context)),
        ("sizeof(mx_param_t)", size_of::<Parameter>()),
        ("offsetof(mx_param_t, val)", offset_of!(Parameter, value)),
        ("offsetof(mx_param_t, val.context_id.shift)", offset_of!(Parameter, value) + 1),
        ("MX_API", MX_API as usize),
        ("MX_ANY_ENDPOINT", ANY as usize),
        ("MX_MAX_SEGMENTS", SEGMENTS_MAX as usize),
        ("MX_MAX_HOSTNAME_LEN", HOSTNAME_BYTES),
        ("MX_MAX_STR_LEN", TEXT_BYTES),
        ("MX_CONTEXT_ID_BITS_MAX", usize::from(CONTEXT_ID_BITS_MAX)),
        ("MX_LINE_SPEED", info::LINE_SPEED as usize),
        ("MX_NET_ETHER", info::ETHERNET as usize),
        ("MX_SPEED_OPEN_MX", info::ANY_SPEED as usize),
        ("MX_PARAM_CONTEXT_ID", PARAM_CONTEXT_ID as usize),
        ("MX_RECV_FINISHED", RECV_FINISHED as usize),
    ]
}
