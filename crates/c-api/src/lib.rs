//! The C interface of the packet switch (`include/clearstream_user.h`): connecting, attaching and detaching.
//! What a program does with its rings is inline in that header.
//!
//! The library exports the `cs_*` functions that the header declares and nothing else. In particular it stands in
//! front of no call of the C library, unlike `netmap-preload`.
#![expect(
    unsafe_code,
    reason = "a fence: C programs pass pointers, and their rings are mapped for them"
)]

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::PathBuf;
use std::ptr;
use std::rc::{Rc, Weak as LocalWeak};
use std::sync::{Arc, Weak};

use packet_switch::attachment::{Ask, PipeEnd};
use packet_switch::client::{Attached, Connection, default_socket};
use ring::places::{CSB_ENTRY_BYTES, OWNER_CSB_OFFSET, RING_HEADER_BYTES, USER_CSB_OFFSET};
use ring::{Layout, Seat};
use shm::{Buffers, Region};

/// A side of a ring as C sees it, `struct cs_ring`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CRing {
    user: *mut c_void,
    owner: *mut c_void,
    slots: *mut c_void,
    buffers: *mut c_void,
    slots_count: u32,
    buffer_bytes: u32,
    buffers_count: u32,
    is_owner: u32,
    position: u32,
    available: u32,
    asked: u32,
    answered: u32,
    their_bell: i32,
    our_bell: i32,
}

/// A port, `struct cs_port`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CPort {
    tx: CRing,
    rx: CRing,
    header_bytes: u32,
    attachment: u32,
    held: *mut c_void,
}

/// A connection, `struct cs_switch`.
#[derive(Debug)]
pub struct CSwitch {
    connection: Connection,
    /// Mappings that C's rings point into.
    mappings: Vec<(Weak<Region>, LocalWeak<Mapping>)>,
}

/// A region mapped for C.
#[derive(Debug)]
struct Mapping {
    start: *mut c_void,
    length: usize,
}

/// What a port keeps in use: its bells and its memory.
struct Held {
    _attached: Attached,
    _mapping: Rc<Mapping>,
}

thread_local! {
    static ERROR: RefCell<CString> = RefCell::default();
}

fn fail(why: impl std::fmt::Display) {
    let text = why.to_string().replace('\0', " ");
    ERROR.with_borrow_mut(|error| *error = CString::new(text).unwrap_or_default());
}

impl Mapping {
    fn new(region: &Region) -> Result<Self, String> {
        let fd = region.fd().ok_or("the memory has no descriptor")?;
        let length = region.length_bytes();
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, wherever the kernel puts it, of a descriptor that is open.
        let start = unsafe {
            libc::mmap(ptr::null_mut(), length, protection, libc::MAP_SHARED, fd.as_raw_fd(), 0)
        };
        if start == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error().to_string());
        }
        Ok(Self { start, length })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and no port holds it any more.
        unsafe { libc::munmap(self.start, self.length) };
    }
}

impl CSwitch {
    fn mapping(&mut self, region: &Arc<Region>) -> Result<Rc<Mapping>, String> {
        self.mappings.retain(|(_, mapping)| mapping.strong_count() > 0);
        let known = self.mappings.iter().find(|(its, _)| its.as_ptr() == Arc::as_ptr(region));
        if let Some(mapping) = known.and_then(|(_, mapping)| mapping.upgrade()) {
            return Ok(mapping);
        }
        let mapping = Rc::new(Mapping::new(region)?);
        self.mappings.push((Arc::downgrade(region), Rc::downgrade(&mapping)));
        Ok(mapping)
    }

    fn port(&mut self, mut attached: Attached) -> Result<CPort, String> {
        let region = Arc::clone(attached.sender.buffers().region());
        let layout = Layout::read(&region).map_err(|error| error.to_string())?;
        let mapping = self.mapping(&region)?;
        let [tx_seat, rx_seat] = attached.seats;
        let place = |number: u32| {
            layout.rings().get(number as usize).copied().ok_or("a ring is missing".to_owned())
        };
        let ring = |number: u32, seat: Seat, position: u32, buffers: &Buffers| {
            let at = |offset: usize| mapping.start.wrapping_byte_add(offset);
            let entry = number as usize * CSB_ENTRY_BYTES;
            let place = place(number)?;
            Ok::<_, String>(CRing {
                user: at(USER_CSB_OFFSET + entry),
                owner: at(OWNER_CSB_OFFSET + entry),
                slots: at(place.offset as usize + RING_HEADER_BYTES),
                buffers: at(layout.buffers_offset() as usize),
                slots_count: place.slots,
                buffer_bytes: layout.buffer_bytes(),
                buffers_count: buffers.count(),
                is_owner: u32::from(seat != Seat::User),
                position,
                available: 0,
                asked: 0,
                answered: 0,
                their_bell: -1,
                our_bell: -1,
            })
        };
        let (tx_at, rx_at) = (attached.sender.end().position(), attached.receiver.end().position());
        let buffers = attached.sender.buffers();
        let mut tx = ring(tx_seat.ring, tx_seat.seat(), tx_at, buffers)?;
        let mut rx = ring(rx_seat.ring, rx_seat.seat(), rx_at, buffers)?;
        let bells = [attached.sender.bells(), attached.receiver.bells()];
        for (ring, bells) in [&mut tx, &mut rx].into_iter().zip(bells) {
            ring.their_bell = bells.theirs.as_fd().as_raw_fd();
            ring.our_bell = bells.ours.as_fd().as_raw_fd();
            // Another number than the last holder of the seat began with.
            ring.asked = attached.attachment.wrapping_mul(0x9e37_79b9) | 1 << 16;
        }
        let (header_bytes, attachment) = (attached.header_bytes.into(), attached.attachment);
        let held = Box::new(Held { _attached: attached, _mapping: mapping });
        Ok(CPort { tx, rx, header_bytes, attachment, held: Box::into_raw(held).cast() })
    }
}

/// A caller's text; none for a null pointer or what is not UTF-8.
unsafe fn text<'a>(text: *const c_char) -> Option<&'a str> {
    if text.is_null() {
        return None;
    }
    // SAFETY: not null, so by the header's contract a string that ends with a zero.
    unsafe { CStr::from_ptr(text) }.to_str().ok()
}

/// `cs_connect`.
///
/// # Safety
/// `socket` is null or a string that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cs_connect(socket: *const c_char) -> *mut CSwitch {
    // SAFETY: the caller's own argument.
    let socket = unsafe { text(socket) }.map_or_else(default_socket, PathBuf::from);
    match Connection::open(&socket) {
        Ok(connection) => Box::into_raw(Box::new(CSwitch { connection, mappings: Vec::new() })),
        Err(error) => {
            fail(error);
            ptr::null_mut()
        }
    }
}

/// `cs_disconnect`.
///
/// # Safety
/// `switch` is null or from [`cs_connect`], and not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cs_disconnect(switch: *mut CSwitch) {
    if !switch.is_null() {
        // SAFETY: from `cs_connect`, and the caller gives it back.
        drop(unsafe { Box::from_raw(switch) });
    }
}

/// Attaches, and writes what came of it to `out`.
unsafe fn attach(
    switch: *mut CSwitch,
    out: *mut CPort,
    with: impl FnOnce(&mut Connection) -> Result<Attached, String>,
) -> c_int {
    if switch.is_null() || out.is_null() {
        fail("no switch, or no place for the port");
        return -1;
    }
    // SAFETY: from `cs_connect`; one thread at a time uses it.
    let switch = unsafe { &mut *switch };
    match with(&mut switch.connection).and_then(|attached| switch.port(attached)) {
        Ok(port) => {
            // SAFETY: the caller's place for a port.
            unsafe { out.write(port) };
            0
        }
        Err(why) => {
            fail(why);
            -1
        }
    }
}

/// `cs_attach_port`.
///
/// # Safety
/// As the header says: a connection, a string, a place for a port.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cs_attach_port(
    switch: *mut CSwitch,
    port: *const c_char,
    out: *mut CPort,
) -> c_int {
    // SAFETY: the caller's own argument.
    let name = unsafe { text(port) }.unwrap_or_default();
    let ask = |connection: &mut Connection| {
        let port = name.parse().map_err(|error| format!("{error}"))?;
        connection.attach_port(&port).map_err(|error| error.to_string())
    };
    // SAFETY: the caller's own arguments.
    unsafe { attach(switch, out, ask) }
}

/// `cs_attach_pipe`.
///
/// # Safety
/// As the header says: a connection, a string, a place for a port.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cs_attach_pipe(
    switch: *mut CSwitch,
    group: *const c_char,
    pipe: u32,
    end: c_int,
    out: *mut CPort,
) -> c_int {
    // SAFETY: the caller's own argument.
    let name = unsafe { text(group) }.unwrap_or_default();
    let end = if end == 0 { PipeEnd::Master } else { PipeEnd::Slave };
    let ask = |connection: &mut Connection| {
        let group = name.parse().map_err(|error| format!("{error}"))?;
        connection.attach_pipe(&group, pipe, end).map_err(|error| error.to_string())
    };
    // SAFETY: the caller's own arguments.
    unsafe { attach(switch, out, ask) }
}

/// `cs_detach`.
///
/// # Safety
/// A connection, and a port of it that is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cs_detach(switch: *mut CSwitch, port: *mut CPort) {
    if switch.is_null() || port.is_null() {
        return;
    }
    // SAFETY: the caller's own argument, from this library.
    let switch = unsafe { &mut *switch };
    // SAFETY: as above.
    let port = unsafe { &mut *port };
    let held = std::mem::replace(&mut port.held, ptr::null_mut());
    if !held.is_null() {
        // A switch that has gone has let go already.
        switch.connection.ask(Ask::Detach { attachment: port.attachment }).ok();
        // SAFETY: from `CSwitch::port`, and taken out so that it comes here once.
        drop(unsafe { Box::from_raw(held.cast::<Held>()) });
    }
}

/// `cs_now_ns`.
#[unsafe(no_mangle)]
pub extern "C" fn cs_now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    // Neither is negative.
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// `cs_switch_fd`.
///
/// # Safety
/// A connection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cs_switch_fd(switch: *const CSwitch) -> c_int {
    // SAFETY: null, or from `cs_connect`.
    let switch = unsafe { switch.as_ref() };
    switch.map_or(-1, |switch| BorrowedFd::as_raw_fd(&switch.connection.as_fd()))
}

/// `cs_error`.
#[unsafe(no_mangle)]
pub extern "C" fn cs_error() -> *const c_char {
    ERROR.with_borrow(|error| error.as_ptr())
}

/// Where `struct cs_ring` and `struct cs_port` have their fields, for a test that compiles the header.
#[must_use]
pub fn layout_of_structs() -> Vec<(&'static str, usize)> {
    use std::mem::offset_of;
    vec![
        ("sizeof(struct cs_ring)", size_of::<CRing>()),
        ("sizeof(struct cs_port)", size_of::<CPort>()),
        ("offsetof(struct cs_ring, owner)", offset_of!(CRing, owner)),
        ("offsetof(struct cs_ring, slots)", offset_of!(CRing, slots)),
        ("offsetof(struct cs_ring, buffers)", offset_of!(CRing, buffers)),
        ("offsetof(struct cs_ring, slots_count)", offset_of!(CRing, slots_count)),
        ("offsetof(struct cs_ring, buffer_bytes)", offset_of!(CRing, buffer_bytes)),
        ("offsetof(struct cs_ring, buffers_count)", offset_of!(CRing, buffers_count)),
        ("offsetof(struct cs_ring, is_owner)", offset_of!(CRing, is_owner)),
        ("offsetof(struct cs_ring, position)", offset_of!(CRing, position)),
        ("offsetof(struct cs_ring, available)", offset_of!(CRing, available)),
        ("offsetof(struct cs_ring, asked)", offset_of!(CRing, asked)),
        ("offsetof(struct cs_ring, their_bell)", offset_of!(CRing, their_bell)),
        ("offsetof(struct cs_ring, our_bell)", offset_of!(CRing, our_bell)),
        ("offsetof(struct cs_port, rx)", offset_of!(CPort, rx)),
        ("offsetof(struct cs_port, header_bytes)", offset_of!(CPort, header_bytes)),
        ("offsetof(struct cs_port, attachment)", offset_of!(CPort, attachment)),
        ("offsetof(struct cs_port, held)", offset_of!(CPort, held)),
    ]
}
