//! What the provider offers, and whether that is what a program asks for. No socket is opened here:
//! every rank and every listing of providers asks, most for others.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::net::{IpAddr, ToSocketAddrs};

use crate::abi::{self, DomainAttr, EpAttr, FabricAttr, Info, RxAttr, TxAttr};
use crate::endpoint::INJECT_BYTES_MAX;
use crate::fence::{Number, answer_int};
use crate::interfaces;
use crate::name::NAME_BYTES;
use crate::remote::atomics::ATOMIC_BYTES_MAX;

/// Everything.
const CAPS: u64 = SEND_CAPS | RECEIVE_CAPS | abi::LOCAL_COMM | abi::REMOTE_COMM;
const SEND_CAPS: u64 =
    abi::MSG | abi::TAGGED | abi::SEND | abi::RMA | abi::ATOMIC | abi::READ | abi::WRITE;
const RECEIVE_CAPS: u64 = abi::MSG
    | abi::TAGGED
    | abi::RECV
    | abi::MULTI_RECV
    | abi::DIRECTED_RECV
    | abi::SOURCE
    | abi::RMA
    | abi::ATOMIC
    | abi::REMOTE_READ
    | abi::REMOTE_WRITE;
/// What costs nothing and is given unasked.
const FREE_CAPS: u64 = abi::SEND | abi::RECV | abi::LOCAL_COMM | abi::REMOTE_COMM;
/// The same to those who ask for access to memory.
const FREE_REMOTE_CAPS: u64 = abi::READ | abi::WRITE | abi::REMOTE_READ | abi::REMOTE_WRITE;

const MESSAGE_BYTES_MAX: usize = 1 << 48;
/// Operations under way.
const OPERATIONS_MAX: usize = 1 << 16;
/// Pieces of a buffer. From 256 on, fabtests' `fi_ubertest` reads past the end of its own table of counts.
const PIECES_MAX: usize = 128;
/// Later releases read fields beyond those of `abi`; they find zeros.
const SPARE_BYTES: usize = 512;
/// Orders that are kept: of messages, and of atomic operations.
const SEND_ORDER: u64 = abi::ORDER_SAS | abi::ORDER_ATOMIC;
/// Parts of a peer's memory that one operation names.
const REMOTE_PIECES_MAX: usize = 1;

/// Flags of calls without flags, as a program wants them.
const OPERATION_FLAGS: u64 = abi::COMPLETION
    | abi::INJECT
    | abi::INJECT_COMPLETE
    | abi::TRANSMIT_COMPLETE
    | abi::DELIVERY_COMPLETE
    | abi::MATCH_COMPLETE
    | abi::MULTI_RECV;

/// What counts of a program's wishes.
#[derive(Debug, Clone, Copy, Default)]
struct Wishes {
    caps: u64,
    send_flags: u64,
    receive_flags: u64,
    threading: u32,
    av_type: u32,
    progress: [u32; 2],
    mr_mode: c_int,
    /// Orders of sends, and of receives.
    orders: [u64; 2],
    send_count: usize,
    receive_count: usize,
}

/// libfabric's `fi_getinfo`, for this provider.
///
/// # Safety
/// `hints` is null or leads to a structure of libfabric's, `info` to room for a pointer.
pub(crate) unsafe extern "C" fn getinfo(
    _version: u32,
    node: *const c_char,
    _service: *const c_char,
    flags: u64,
    hints: *const Info,
    info: *mut *mut Info,
) -> c_int {
    answer_int(|| {
        // SAFETY: the caller's promise.
        let hints = unsafe { hints.as_ref() };
        let wishes = match hints {
            None => Wishes::default(),
            // SAFETY: a structure that leads to null or to structures, as libfabric documents.
            Some(hints) => unsafe { understand(hints) }.ok_or(libc::ENODATA)?,
        };
        // SAFETY: null, or text that ends in 0.
        if !node.is_null() && !is_host(unsafe { CStr::from_ptr(node) }, flags) {
            return Err(libc::ENODATA);
        }
        if flags & abi::SOURCE_ADDRESS != 0 && hints.is_some_and(|hints| !hints.src_addr.is_null())
        {
            return Err(libc::ENODATA);
        }
        let place = interfaces::choose().map_err(|line| {
            interfaces::complain(&line);
            libc::ENODATA
        })?;
        let offer = offer(&wishes, &place.interface)?;
        // SAFETY: room for a pointer.
        unsafe { info.write(offer) };
        Ok(())
    })
}

/// Whether there is such a host. Its address is of no use: peers are known by their endpoints' names. Blocks while the
/// name is resolved, unless the program says that it is an address.
fn is_host(node: &CStr, flags: u64) -> bool {
    let Ok(node) = node.to_str() else { return false };
    if flags & abi::NUMERIC_HOST != 0 {
        return node.parse::<IpAddr>().is_ok();
    }
    (node, 0).to_socket_addrs().is_ok()
}

/// A program's wishes; none if they cannot be met.
///
/// # Safety
/// The structures that `hints` leads to are null or valid.
unsafe fn understand(hints: &Info) -> Option<Wishes> {
    let mut wishes = Wishes { caps: hints.caps, ..Wishes::default() };
    let mut is_met = hints.caps & !CAPS == 0 && hints.addr_format == 0;
    // SAFETY: null or valid, as the next ones.
    if let Some(endpoint) = unsafe { hints.ep_attr.as_ref() } {
        is_met &= matches!(endpoint.kind, abi::EP_UNSPEC | abi::EP_RDM)
            && endpoint.protocol == 0
            && endpoint.max_msg_size <= MESSAGE_BYTES_MAX
            && endpoint.auth_key_size == 0
            && endpoint.max_order_raw_size <= ATOMIC_BYTES_MAX
            && endpoint.max_order_war_size <= ATOMIC_BYTES_MAX
            && endpoint.max_order_waw_size <= ATOMIC_BYTES_MAX
            && contexts_fit(endpoint.tx_ctx_cnt)
            && contexts_fit(endpoint.rx_ctx_cnt);
    }
    // SAFETY: as above.
    if let Some(send) = unsafe { hints.tx_attr.as_ref() } {
        is_met &= send.caps & !(CAPS) == 0
            && send.msg_order & !SEND_ORDER == 0
            && send.comp_order == 0
            && send.inject_size <= INJECT_BYTES_MAX as usize
            && send.size <= OPERATIONS_MAX
            && send.iov_limit <= PIECES_MAX
            && send.rma_iov_limit <= REMOTE_PIECES_MAX;
        (wishes.send_flags, wishes.send_count) = (send.op_flags & OPERATION_FLAGS, send.size);
        wishes.orders[0] = send.msg_order;
    }
    // SAFETY: as above.
    if let Some(receive) = unsafe { hints.rx_attr.as_ref() } {
        is_met &= receive.caps & !(CAPS) == 0
            && receive.msg_order & !SEND_ORDER == 0
            && receive.comp_order == 0
            && receive.size <= OPERATIONS_MAX
            && receive.iov_limit <= PIECES_MAX;
        wishes.receive_flags = receive.op_flags & OPERATION_FLAGS;
        wishes.receive_count = receive.size;
        wishes.orders[1] = receive.msg_order;
    }
    // SAFETY: as above.
    if let Some(domain) = unsafe { hints.domain_attr.as_ref() } {
        is_met &= domain.cq_data_size <= 8
            && domain.control_progress != abi::PROGRESS_AUTO
            && domain.data_progress != abi::PROGRESS_AUTO
            && domain.auth_key_size == 0
            // Programs from before release 1.5 that name memory by its address.
            && (domain.mr_mode != abi::MR_BASIC || hints.caps & (abi::RMA | abi::ATOMIC) == 0);
        wishes.mr_mode = domain.mr_mode;
        wishes.threading = domain.threading;
        wishes.av_type = domain.av_type;
        wishes.progress = [domain.control_progress, domain.data_progress];
    }
    is_met.then_some(wishes)
}

/// One context a direction, or as many as there are by themselves.
fn contexts_fit(count: usize) -> bool {
    count <= 1 || count == usize::MAX
}

/// Zeroed memory for a structure, as `fi_freeinfo` frees it.
fn zeroed<T>() -> Result<*mut T, Number> {
    // SAFETY: any two numbers will do.
    let memory = unsafe { libc::calloc(1, size_of::<T>() + SPARE_BYTES) };
    if memory.is_null() { Err(libc::ENOMEM) } else { Ok(memory.cast()) }
}

fn text(text: &str) -> Result<*mut c_char, Number> {
    let text = CString::new(text).map_err(|_zero| libc::EINVAL)?;
    // SAFETY: it ends in 0.
    let copy = unsafe { libc::strdup(text.as_ptr()) };
    if copy.is_null() { Err(libc::ENOMEM) } else { Ok(copy) }
}

/// The one offer: an endpoint at an interface.
fn offer(wishes: &Wishes, interface: &str) -> Result<*mut Info, Number> {
    let caps = offered_caps(wishes.caps);
    let info: *mut Info = zeroed()?;
    let (send, receive): (*mut TxAttr, *mut RxAttr) = (zeroed()?, zeroed()?);
    let (endpoint, domain): (*mut EpAttr, *mut DomainAttr) = (zeroed()?, zeroed()?);
    let fabric: *mut FabricAttr = zeroed()?;
    let (fabric_name, domain_name) = (text("messages over UDP")?, text(interface)?);
    // SAFETY: just allocated, zeroed, and of this size; all zeros is valid for it, as below.
    fill_send(unsafe { &mut *send }, caps, wishes);
    // SAFETY: as above.
    fill_receive(unsafe { &mut *receive }, caps, wishes);
    // SAFETY: as above.
    fill_endpoint(unsafe { &mut *endpoint }, caps);
    // SAFETY: as above.
    let domain_attr = unsafe { &mut *domain };
    fill_domain(domain_attr, wishes);
    domain_attr.name = domain_name;
    // SAFETY: as above. `prov_name` is the core's to fill.
    let fabric_attr = unsafe { &mut *fabric };
    fabric_attr.name = fabric_name;
    fabric_attr.prov_version = abi::version(0, 1);
    // SAFETY: as above.
    let offer = unsafe { &mut *info };
    offer.caps = caps;
    (offer.tx_attr, offer.rx_attr) = (send, receive);
    (offer.ep_attr, offer.domain_attr, offer.fabric_attr) = (endpoint, domain, fabric);
    Ok(info)
}

fn offered_caps(wished: u64) -> u64 {
    let has_remote = wished & (abi::RMA | abi::ATOMIC) != 0;
    // Without a word on directions all are wished.
    let is_any = wished & FREE_REMOTE_CAPS == 0;
    match wished {
        0 => CAPS,
        _ if has_remote && is_any => wished | FREE_CAPS | FREE_REMOTE_CAPS,
        _ => wished | FREE_CAPS,
    }
}

fn fill_send(send: &mut TxAttr, caps: u64, wishes: &Wishes) {
    send.caps = caps & SEND_CAPS;
    send.op_flags = wishes.send_flags;
    send.msg_order = order(caps) | wishes.orders[0];
    send.inject_size = INJECT_BYTES_MAX as usize;
    send.size = if wishes.send_count == 0 { OPERATIONS_MAX } else { wishes.send_count };
    send.iov_limit = PIECES_MAX;
    send.rma_iov_limit = if caps & (abi::RMA | abi::ATOMIC) != 0 { REMOTE_PIECES_MAX } else { 0 };
    send.tclass = abi::TC_BEST_EFFORT;
}

fn order(caps: u64) -> u64 {
    if caps & abi::ATOMIC != 0 { SEND_ORDER } else { abi::ORDER_SAS }
}

fn fill_receive(receive: &mut RxAttr, caps: u64, wishes: &Wishes) {
    receive.caps = caps & RECEIVE_CAPS;
    receive.op_flags = wishes.receive_flags;
    receive.msg_order = order(caps) | wishes.orders[1];
    receive.size = if wishes.receive_count == 0 { OPERATIONS_MAX } else { wishes.receive_count };
    receive.iov_limit = PIECES_MAX;
}

fn fill_endpoint(endpoint: &mut EpAttr, caps: u64) {
    endpoint.kind = abi::EP_RDM;
    endpoint.protocol_version = 1;
    endpoint.max_msg_size = MESSAGE_BYTES_MAX;
    // The program may use every bit.
    endpoint.mem_tag_format = u64::MAX;
    (endpoint.tx_ctx_cnt, endpoint.rx_ctx_cnt) = (1, 1);
    if caps & abi::ATOMIC != 0 {
        endpoint.max_order_raw_size = ATOMIC_BYTES_MAX;
        endpoint.max_order_war_size = ATOMIC_BYTES_MAX;
        endpoint.max_order_waw_size = ATOMIC_BYTES_MAX;
    }
}

fn fill_domain(domain: &mut DomainAttr, wishes: &Wishes) {
    let is_any = wishes.threading == abi::THREAD_UNSPEC;
    domain.threading = if is_any { abi::THREAD_SAFE } else { wishes.threading };
    domain.control_progress = abi::PROGRESS_MANUAL;
    domain.data_progress = abi::PROGRESS_MANUAL;
    domain.resource_mgmt = abi::RM_ENABLED;
    domain.av_type = wishes.av_type;
    // Programs choose keys, and name memory by its offset in its region: that is 0, or what it was called before 1.5.
    domain.mr_mode = if wishes.mr_mode == abi::MR_SCALABLE { abi::MR_SCALABLE } else { 0 };
    domain.mr_key_size = 8;
    (domain.mr_iov_limit, domain.mr_cnt) = (1, 1 << 16);
    domain.cq_data_size = 8;
    (domain.cq_cnt, domain.cntr_cnt, domain.ep_cnt) = (1024, 1024, 1024);
    (domain.tx_ctx_cnt, domain.rx_ctx_cnt) = (1024, 1024);
    (domain.max_ep_tx_ctx, domain.max_ep_rx_ctx) = (1, 1);
    domain.caps = abi::LOCAL_COMM | abi::REMOTE_COMM;
}

/// Flags that an endpoint's `fi_info` gives its calls without flags: of sends, of receives.
///
/// # Safety
/// `info` is null or leads to valid structures.
pub(crate) unsafe fn operation_flags(info: *const Info) -> (u64, u64) {
    // SAFETY: null or valid, as the next ones.
    let Some(info) = (unsafe { info.as_ref() }) else { return (0, 0) };
    // SAFETY: as above.
    let send = unsafe { info.tx_attr.as_ref() }.map_or(0, |send| send.op_flags);
    // SAFETY: as above.
    let receive = unsafe { info.rx_attr.as_ref() }.map_or(0, |receive| receive.op_flags);
    (send, receive)
}

/// An endpoint's capabilities.
///
/// # Safety
/// `info` is null or leads to a valid structure.
pub(crate) unsafe fn caps(info: *const Info) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { info.as_ref() }.map_or(0, |info| info.caps)
}

/// An endpoint's name, copied as `fi_getname` documents it.
///
/// # Safety
/// `length` leads to the room at `to`, in bytes.
pub(crate) unsafe fn copy_name(
    name: &[u8; NAME_BYTES],
    to: *mut c_void,
    length: *mut usize,
) -> Result<(), Number> {
    // SAFETY: the caller's promise.
    let room = unsafe { length.read() };
    // SAFETY: the same.
    unsafe { length.write(NAME_BYTES) };
    let count = room.min(NAME_BYTES);
    if count > 0 && !to.is_null() {
        // SAFETY: room for `count` bytes, and `name` has as many.
        unsafe { std::ptr::copy_nonoverlapping(name.as_ptr(), to.cast(), count) };
    }
    if room < NAME_BYTES { Err(abi::ETOOSMALL) } else { Ok(()) }
}
