//! The provider as a program of libfabric's calls it: through its tables, with one endpoint that sends to itself.

use std::ffi::{CString, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::time::Duration;

use crate::abi::{self, CqEntry, CqErrorEntry, FidAv, FidCntr, FidCq, FidDomain, FidEp, FidFabric};
use crate::abi::{FidMr, Info, TaggedMsg};
use crate::info::getinfo;
use crate::name::NAME_BYTES;
use crate::objects::open_fabric;

/// Longest wait for what must come.
const PATIENCE_MS: c_int = 60_000;
const EAGAIN: isize = -(libc::EAGAIN as isize);
const EAVAIL: isize = -(abi::EAVAIL as isize);

/// An endpoint, enabled, that knows itself by address 0, and what it is bound to.
struct Program {
    fabric: *mut FidFabric,
    domain: *mut FidDomain,
    vector: *mut FidAv,
    queue: *mut FidCq,
    sent: *mut FidCntr,
    received: *mut FidCntr,
    endpoint: *mut FidEp,
}

/// Calls a slot of an object's table.
macro_rules! call {
    ($object:expr, $($slot:ident).+ ( $($argument:expr),* )) => {{
        let object = $object;
        // SAFETY: an object that this provider gave and that is not closed; the arguments are of this test.
        unsafe { ((*object).$($slot).+)(object.cast(), $($argument),*) }
    }};
}

impl Program {
    /// With these flags of sends that have none of their own.
    fn new(send_flags: u64) -> Self {
        Self::with(send_flags, abi::DIRECTED_RECV)
    }

    /// With these capabilities besides those of messages.
    fn with(send_flags: u64, caps: u64) -> Self {
        let mut info: *mut Info = null_mut();
        // SAFETY: no hints, and room for a pointer.
        let code = unsafe { getinfo(0, null_mut(), null_mut(), 0, null_mut(), &raw mut info) };
        assert_eq!(code, 0);
        // SAFETY: what `getinfo` gave; it stays until the process ends.
        unsafe { (*info).caps = abi::MSG | abi::TAGGED | abi::SEND | abi::RECV | caps };
        // SAFETY: the same.
        let send = unsafe { (*info).tx_attr };
        // SAFETY: the same.
        unsafe { (*send).op_flags = send_flags };
        let mut fabric = null_mut();
        // SAFETY: room for a pointer.
        assert_eq!(unsafe { open_fabric(null_mut(), &raw mut fabric, null_mut()) }, 0);
        let mut domain = null_mut();
        assert_eq!(call!(fabric, ops.domain(info, &raw mut domain, null_mut())), 0);
        let (mut vector, mut queue, mut endpoint) = (null_mut(), null_mut(), null_mut());
        assert_eq!(call!(domain, ops.av_open(null_mut(), &raw mut vector, null_mut())), 0);
        assert_eq!(call!(domain, ops.cq_open(null_mut(), &raw mut queue, null_mut())), 0);
        assert_eq!(call!(domain, ops.endpoint(info, &raw mut endpoint, null_mut())), 0);
        let (sent, received) = (counter(domain), counter(domain));
        let all = abi::SEND | abi::RECV;
        for (object, flags) in [
            (vector.cast(), 0),
            (queue.cast(), all),
            (sent.cast(), abi::SEND),
            (received.cast(), abi::RECV),
        ] {
            assert_eq!(call!(endpoint, fid.ops.bind(object, flags)), 0);
        }
        assert_eq!(call!(endpoint, fid.ops.control(abi::CONTROL_ENABLE, null_mut())), 0);
        let (mut name, mut length) = ([0_u8; NAME_BYTES], NAME_BYTES);
        let name_at = name.as_mut_ptr().cast::<c_void>();
        assert_eq!(call!(endpoint, cm.getname(name_at, &raw mut length)), 0);
        assert_eq!(call!(vector, ops.insert(name_at, 1, null_mut(), 0, null_mut())), 1);
        Self { fabric, domain, vector, queue, sent, received, endpoint }
    }

    fn send(&self, bytes: &[u8], tag: u64, context: usize) {
        let start = bytes.as_ptr().cast();
        let context = std::ptr::with_exposed_provenance_mut(context);
        let code =
            call!(self.endpoint, tagged.send(start, bytes.len(), null_mut(), 0, tag, context));
        assert_eq!(code, 0);
    }

    /// A receive with flags, of nothing where `bytes` is empty.
    fn receive(&self, bytes: &mut [u8], tag: u64, context: usize, flags: u64) {
        let vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        let message = TaggedMsg {
            iov: &raw const vector,
            desc: null_mut(),
            iov_count: usize::from(!bytes.is_empty()),
            addr: abi::ADDR_UNSPEC,
            tag,
            ignore: 0,
            context: std::ptr::with_exposed_provenance_mut(context),
            data: 0,
        };
        assert_eq!(call!(self.endpoint, tagged.recvmsg(&raw const message, flags)), 0);
    }

    /// The next completion: context, or the context and number of an error.
    fn ended(&self) -> Result<usize, (usize, c_int)> {
        let mut entry = MaybeUninit::<CqEntry>::uninit();
        match call!(self.queue, ops.sread(entry.as_mut_ptr().cast(), 1, null_mut(), PATIENCE_MS)) {
            // SAFETY: one entry was written.
            1 => Ok(unsafe { entry.assume_init() }.op_context),
            EAVAIL => {
                let mut error = MaybeUninit::<CqErrorEntry>::uninit();
                assert_eq!(call!(self.queue, ops.readerr(error.as_mut_ptr(), 0)), 1);
                // SAFETY: one entry was written.
                let error = unsafe { error.assume_init() };
                Err((error.entry.op_context, error.err))
            }
            other => panic!("{other}"),
        }
    }

    /// No completion is there.
    fn nothing_ended(&self) -> bool {
        let mut entry = MaybeUninit::<CqEntry>::uninit();
        call!(self.queue, ops.read(entry.as_mut_ptr().cast(), 1)) == EAGAIN
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        assert_eq!(call!(self.endpoint, fid.ops.close()), 0);
        assert_eq!(call!(self.received, fid.ops.close()), 0);
        assert_eq!(call!(self.sent, fid.ops.close()), 0);
        assert_eq!(call!(self.queue, fid.ops.close()), 0);
        assert_eq!(call!(self.vector, fid.ops.close()), 0);
        assert_eq!(call!(self.domain, fid.ops.close()), 0);
        assert_eq!(call!(self.fabric, fid.ops.close()), 0);
    }
}

mod remote;

fn counter(domain: *mut FidDomain) -> *mut FidCntr {
    let mut counter = null_mut();
    assert_eq!(call!(domain, ops.cntr_open(null_mut(), &raw mut counter, null_mut())), 0);
    counter
}

#[test]
fn a_discarded_message_completes_once_and_without_an_error() {
    let program = Program::new(0);
    for length in [0, 1000, 100_000] {
        let bytes = vec![7; length];
        // Long messages complete when they are received: their sends may end after the receive.
        let is_long = length > 4096;
        let sends = |count: usize| (0..count).for_each(|_| assert_eq!(program.ended(), Ok(1)));
        program.send(&bytes, 5, 1);
        sends(usize::from(!is_long));
        program.receive(&mut [], 5, 2, abi::PEEK | abi::DISCARD);
        assert_eq!(program.ended(), Ok(2));
        sends(usize::from(is_long));
        assert!(program.nothing_ended());

        program.send(&bytes, 6, 1);
        sends(usize::from(!is_long));
        program.receive(&mut [], 6, 3, abi::PEEK | abi::CLAIM);
        assert_eq!(program.ended(), Ok(3));
        program.receive(&mut [], 6, 3, abi::CLAIM | abi::DISCARD);
        let mut contexts: Vec<_> =
            (0..=usize::from(is_long)).map(|_| program.ended().expect("no error")).collect();
        contexts.sort_unstable();
        assert_eq!(contexts, if is_long { vec![1, 3] } else { vec![3] });
        for tag in [5, 6] {
            program.receive(&mut [], tag, 4, abi::PEEK);
            assert_eq!(program.ended(), Err((4, libc::ENOMSG)));
        }
        assert!(program.nothing_ended());
    }
}

#[test]
fn an_endpoint_that_injects_by_itself_tells_each_send_and_keeps_no_buffer() {
    let program = Program::new(abi::INJECT);
    let mut sent = vec![1; 512];
    program.send(&sent, 1, 11);
    sent.fill(2);
    assert_eq!(program.ended(), Ok(11));
    let mut received = vec![0; 512];
    program.receive(&mut received, 1, 12, 0);
    assert_eq!(program.ended(), Ok(12));
    assert_eq!(received, vec![1; 512]);
}

#[test]
fn counters_count_what_ended_whether_told_or_not() {
    let program = Program::new(0);
    let bytes = [1; 64];
    for number in 0..3 {
        program.send(&bytes, number, 1);
    }
    let start = bytes.as_ptr().cast();
    assert_eq!(call!(program.endpoint, tagged.inject(start, 64, 0, 3)), 0);
    let mut received = [0; 64];
    for number in 0..4 {
        program.receive(&mut received, number, 2, 0);
    }
    assert_eq!(call!(program.sent, ops.wait(4, PATIENCE_MS)), 0);
    assert_eq!(call!(program.received, ops.wait(4, PATIENCE_MS)), 0);
    assert_eq!(call!(program.received, ops.wait(5, 1)), -libc::ETIMEDOUT);
    // A message too long for its buffer is a failure, and ends a wait.
    program.send(&bytes, 9, 1);
    program.receive(&mut received[..8], 9, 2, 0);
    assert_eq!(call!(program.sent, ops.wait(5, PATIENCE_MS)), 0);
    assert_eq!(call!(program.received, ops.readerr()), 1);
    assert_eq!(call!(program.received, ops.read()), 4);
    assert_eq!(call!(program.received, ops.set(10)), 0);
    assert_eq!(call!(program.received, ops.add(5)), 0);
    assert_eq!(call!(program.received, ops.read()), 15);
    assert_eq!(call!(program.received, ops.seterr(0)), 0);
    assert_eq!(call!(program.received, ops.adderr(2)), 0);
    assert_eq!(call!(program.received, ops.readerr()), 2);
}

#[test]
fn a_signal_ends_one_wait_for_completions() {
    let program = Program::new(0);
    let mut entry = MaybeUninit::<CqEntry>::uninit();
    let to = entry.as_mut_ptr().cast::<c_void>();
    assert_eq!(call!(program.queue, ops.signal()), 0);
    assert_eq!(call!(program.queue, ops.sread(to, 1, null_mut(), PATIENCE_MS)), EAGAIN);
    let (began, limit) = (std::time::Instant::now(), Duration::from_millis(20));
    assert_eq!(call!(program.queue, ops.sread(to, 1, null_mut(), 20)), EAGAIN);
    assert!(began.elapsed() >= limit);
}

#[test]
fn a_key_names_one_region_for_peers_and_any_number_of_local_buffers() {
    let program = Program::new(0);
    let bytes = [0_u8; 16];
    let register = |access: u64, region: *mut *mut FidMr| {
        let start = bytes.as_ptr().cast();
        call!(program.domain, mr.reg(start, 16, access, 0, 17, 0, region, null_mut()))
    };
    let mut regions = [null_mut::<FidMr>(); 4];
    for region in &mut regions[..2] {
        assert_eq!(register(abi::SEND | abi::RECV, region), 0);
        // SAFETY: it was just given.
        assert_eq!(unsafe { (**region).key }, 17);
    }
    assert_eq!(register(abi::REMOTE_READ, &raw mut regions[2]), 0);
    assert_eq!(register(abi::REMOTE_READ, &raw mut regions[3]), -abi::ENOKEY);
    assert_eq!(call!(regions[2], fid.ops.close()), 0);
    assert_eq!(register(abi::REMOTE_READ, &raw mut regions[2]), 0);
    for region in &regions[..3] {
        assert_eq!(call!(*region, fid.ops.close()), 0);
    }
    let unknown = 1 << 40;
    assert_eq!(register(abi::RECV | unknown, &raw mut regions[3]), -libc::EOPNOTSUPP);
}

#[test]
fn a_source_counts_only_where_receives_may_name_one() {
    for (caps, expected) in [(0, 0), (abi::DIRECTED_RECV, -(libc::EINVAL as isize))] {
        let program = Program::with(0, caps);
        let (sent, mut received) = ([5; 8], [0; 8]);
        let (to, nobody) = (received.as_mut_ptr().cast(), 77);
        let code =
            call!(program.endpoint, tagged.recv(to, 8, null_mut(), nobody, 1, 0, null_mut()));
        assert_eq!(code, expected);
        if code == 0 {
            program.send(&sent, 1, 0);
            assert_eq!(program.ended().and(program.ended()), Ok(0));
            assert_eq!(received, sent);
        }
    }
}

#[test]
fn a_wait_for_events_lasts_until_its_timeout() {
    let program = Program::new(0);
    let mut events = null_mut();
    assert_eq!(call!(program.fabric, ops.eq_open(null_mut(), &raw mut events, null_mut())), 0);
    let began = std::time::Instant::now();
    assert_eq!(call!(events, ops.sread(null_mut(), null_mut(), 0, 20, 0)), EAGAIN);
    assert!(began.elapsed() >= Duration::from_millis(20));
    assert_eq!(call!(events, fid.ops.close()), 0);
}

#[test]
fn an_unknown_host_is_no_data() {
    let long = CString::new([b'a'; 64]).expect("no 0 in it");
    for (node, flags, expected) in [
        (c"127.0.0.1", 0, 0),
        (c"127.0.0.1", abi::NUMERIC_HOST, 0),
        (c"::1", abi::NUMERIC_HOST, 0),
        (c"localhost", abi::NUMERIC_HOST, -libc::ENODATA),
        // Longer than a name may be: no server is asked.
        (&long, 0, -libc::ENODATA),
        (c"\xff", 0, -libc::ENODATA),
    ] {
        let mut info: *mut Info = null_mut();
        // SAFETY: text that ends in 0, no hints, and room for a pointer.
        let code =
            unsafe { getinfo(0, node.as_ptr(), null_mut(), flags, null_mut(), &raw mut info) };
        assert_eq!(code, expected, "{node:?} {flags:x}");
    }
}

#[test]
fn a_null_pointer_names_no_peer() {
    let program = Program::new(0);
    let nobody = call!(program.vector, ops.insert(null_mut(), 1, null_mut(), 0, null_mut()));
    assert_eq!(nobody, -libc::EINVAL);
}

#[test]
fn a_null_buffer_with_a_length_is_refused() {
    let program = Program::new(0);
    let fault = -(libc::EFAULT as isize);
    let nowhere = null_mut::<c_void>();
    let nobody = abi::ADDR_UNSPEC;
    let tables = program.endpoint;
    assert_eq!(call!(tables, tagged.send(nowhere, 8, null_mut(), 0, 1, null_mut())), fault);
    assert_eq!(call!(tables, tagged.inject(nowhere, 8, 0, 1)), fault);
    assert_eq!(call!(tables, msg.recv(nowhere, 8, null_mut(), nobody, null_mut())), fault);
    let mut bytes = [0_u8; 8];
    let piece = |start, iov_len| libc::iovec { iov_base: start, iov_len };
    let start = bytes.as_mut_ptr().cast();
    for vectors in [[piece(start, 8), piece(nowhere, 8)], [piece(nowhere, 1), piece(start, 8)]] {
        let at = vectors.as_ptr();
        let code = call!(tables, tagged.recvv(at, null_mut(), 2, nobody, 1, 0, null_mut()));
        assert_eq!(code, fault);
        assert_eq!(call!(tables, tagged.sendv(at, null_mut(), 2, 0, 1, null_mut())), fault);
    }
    assert!(program.nothing_ended());
    // Nothing at all may be anywhere.
    assert_eq!(call!(tables, tagged.send(nowhere, 0, null_mut(), 0, 1, null_mut())), 0);
    let vectors = [piece(nowhere, 0), piece(start, 8)];
    let code =
        call!(tables, tagged.recvv(vectors.as_ptr(), null_mut(), 2, nobody, 1, 0, null_mut()));
    assert_eq!(code, 0);
    assert_eq!(program.ended().and(program.ended()), Ok(0));
}
