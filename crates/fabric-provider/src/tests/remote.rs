//! Access to the memory of a peer, which is this endpoint itself.

use super::*;
use crate::abi::{MsgRma, RmaIov};

const CAPS: u64 = abi::DIRECTED_RECV
    | abi::RMA
    | abi::ATOMIC
    | abi::READ
    | abi::WRITE
    | abi::REMOTE_READ
    | abi::REMOTE_WRITE;
const KEY: u64 = 0xc0de;
const SUM: u32 = 2;
const READ: u32 = 10;
const SWAP_IF_EQUAL: u32 = 12;
const U64: u32 = 7;

/// Registers memory for this access.
fn register(program: &Program, memory: &mut [u8], access: u64) -> *mut FidMr {
    let mut region = null_mut();
    let (start, length) = (memory.as_mut_ptr().cast::<c_void>(), memory.len());
    let code = call!(
        program.domain,
        mr.reg(start, length, access, 0, KEY, 0, &raw mut region, null_mut())
    );
    assert_eq!(code, 0);
    region
}

fn context(number: usize) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(number)
}

fn write(program: &Program, bytes: &[u8], offset: u64, key: u64, number: usize) {
    let start = bytes.as_ptr().cast();
    let (length, context) = (bytes.len(), context(number));
    let code =
        call!(program.endpoint, rma.write(start, length, null_mut(), 0, offset, key, context));
    assert_eq!(code, 0);
}

fn read(program: &Program, bytes: &mut [u8], offset: u64, key: u64, number: usize) {
    let start = bytes.as_mut_ptr().cast::<c_void>();
    let (length, context) = (bytes.len(), context(number));
    let code =
        call!(program.endpoint, rma.read(start, length, null_mut(), 0, offset, key, context));
    assert_eq!(code, 0);
}

#[test]
fn what_is_written_is_read_again_at_every_length() {
    let program = Program::with(0, CAPS);
    let mut memory = vec![0; 200_001];
    let region = register(&program, &mut memory, abi::REMOTE_READ | abi::REMOTE_WRITE);
    for length in [0, 1, 4095, 4096, 4097, 32_768, 32_769, 200_000] {
        let sent: Vec<u8> = (0..length).map(|index| (index * 7 + length) as u8).collect();
        write(&program, &sent, 1, KEY, 1);
        assert_eq!(program.ended(), Ok(1), "{length}");
        let mut received = vec![0; length];
        read(&program, &mut received, 1, KEY, 2);
        assert_eq!(program.ended(), Ok(2), "{length}");
        assert!(sent == received, "{length}");
    }
    assert!(program.nothing_ended());
    assert_eq!(call!(region, fid.ops.close()), 0);
    assert_eq!(memory[0], 0);
}

#[test]
fn what_a_region_does_not_permit_fails_by_its_name_and_changes_nothing() {
    let program = Program::with(0, CAPS);
    let mut memory = vec![5; 10_000];
    let region = register(&program, &mut memory, abi::REMOTE_READ);
    for (length, offset, key, number) in [
        (8, 0, KEY, libc::EACCES),
        (9_000, 0, KEY, libc::EACCES),
        (8, 0, 1, abi::ENOKEY),
        (9_000, 0, 1, abi::ENOKEY),
    ] {
        write(&program, &vec![9; length], offset, key, 1);
        assert_eq!(program.ended(), Err((1, number)), "{length} {key}");
    }
    for (length, offset) in [(8, 9_993), (8, u64::MAX - 3), (10_001, 0), (1, u64::MAX)] {
        let mut received = vec![7; length];
        read(&program, &mut received, offset, KEY, 2);
        assert_eq!(program.ended(), Err((2, libc::EINVAL)), "{length} {offset}");
        assert_eq!(received, vec![7; length]);
    }
    let mut result = [0_u8; 8];
    let fetched = result.as_mut_ptr().cast::<c_void>();
    let operand = [1_u8; 8];
    let code = call!(
        program.endpoint,
        atomic.readwrite(
            operand.as_ptr().cast(),
            1,
            null_mut(),
            fetched,
            null_mut(),
            0,
            0,
            KEY,
            U64,
            SUM,
            context(3)
        )
    );
    assert_eq!(code, 0);
    assert_eq!(program.ended(), Err((3, libc::EACCES)));
    assert_eq!(call!(region, fid.ops.close()), 0);
    read(&program, &mut [0; 8], 0, KEY, 4);
    assert_eq!(program.ended(), Err((4, abi::ENOKEY)), "a region that was closed");
    assert_eq!(memory, vec![5; 10_000]);
}

#[test]
fn atomic_operations_are_executed_in_order_and_return_what_was_there() {
    let program = Program::with(0, CAPS);
    let mut memory = [10_u64, 20].map(u64::to_ne_bytes).concat();
    let region = register(&program, &mut memory, abi::REMOTE_READ | abi::REMOTE_WRITE);
    let mut results = vec![[0_u64; 2]; 100];
    let one = [1_u64, 2];
    for (number, result) in results.iter_mut().enumerate() {
        let start = result.as_mut_ptr().cast::<c_void>();
        let operand = one.as_ptr().cast();
        let code = call!(
            program.endpoint,
            atomic.readwrite(
                operand,
                2,
                null_mut(),
                start,
                null_mut(),
                0,
                0,
                KEY,
                U64,
                SUM,
                context(number)
            )
        );
        assert_eq!(code, 0);
    }
    for number in 0..results.len() {
        assert_eq!(program.ended(), Ok(number));
    }
    for (number, result) in (0..).zip(&results) {
        assert_eq!(*result, [10 + number, 20 + 2 * number]);
    }
    // Only if the compared value is there.
    let (new, mut before) = (7_u64, 0_u64);
    for (compared, expected) in [(1_u64, 110), (110, 110), (110, 7)] {
        let at = (&raw mut before).cast::<c_void>();
        let [operand, compared] = [&raw const new, &raw const compared].map(<*const u64>::cast);
        let code = call!(
            program.endpoint,
            atomic.compwrite(
                operand,
                1,
                null_mut(),
                compared,
                null_mut(),
                at,
                null_mut(),
                0,
                0,
                KEY,
                U64,
                SWAP_IF_EQUAL,
                context(1)
            )
        );
        assert_eq!(code, 0);
        assert_eq!(program.ended(), Ok(1));
        assert_eq!(before, expected);
    }
    assert_eq!(call!(region, fid.ops.close()), 0);
    assert_eq!(memory, [7_u64, 220].map(u64::to_ne_bytes).concat());
}

#[test]
fn operations_that_are_not_served_are_refused_by_name() {
    let program = Program::with(0, CAPS);
    let unsupported = -libc::EOPNOTSUPP;
    let mut count = 0;
    let (complex, tables) = (10, program.endpoint);
    let at = &raw mut count;
    assert_eq!(call!(tables, atomic.writevalid(complex, SUM, at)), unsupported);
    assert_eq!(call!(tables, atomic.writevalid(U64, READ, at)), unsupported);
    assert_eq!(call!(tables, atomic.writevalid(U64, 1000, at)), unsupported);
    assert_eq!(call!(tables, atomic.readwritevalid(U64, READ, at)), 0);
    assert_eq!(count, 256);
    assert_eq!(call!(tables, atomic.compwritevalid(U64, SWAP_IF_EQUAL, at)), 0);
    let bytes = [0_u8; 8192];
    let start = bytes.as_ptr().cast::<c_void>();
    let update = |count, datatype| {
        call!(tables, atomic.write(start, count, null_mut(), 0, 0, KEY, datatype, SUM, null_mut()))
    };
    assert_eq!(update(1, complex), unsupported as isize);
    assert_eq!(update(257, U64), -(libc::EMSGSIZE as isize));
    assert_eq!(update(0, U64), -(libc::EINVAL as isize));
    assert_eq!(call!(tables, rma.inject(start, 8192, 0, 0, KEY)), -(libc::EMSGSIZE as isize));
    let vector = libc::iovec { iov_base: start.cast_mut(), iov_len: 8 };
    for (pieces, length, flags, code) in [
        (2, 8, 0, libc::EINVAL),
        (1, 9, 0, libc::EINVAL),
        (1, 8, abi::FENCE, libc::EOPNOTSUPP),
        (1, 8, abi::COMMIT_COMPLETE, libc::EOPNOTSUPP),
    ] {
        let parts =
            [RmaIov { addr: 0, len: length, key: KEY }, RmaIov { addr: 0, len: 0, key: KEY }];
        let message = MsgRma {
            iov: &raw const vector,
            desc: null_mut(),
            iov_count: 1,
            addr: 0,
            rma_iov: parts.as_ptr(),
            rma_iov_count: pieces,
            context: null_mut(),
            data: 0,
        };
        assert_eq!(call!(tables, rma.writemsg(&raw const message, flags)), -(code as isize));
    }
    assert!(program.nothing_ended());
    let plain = Program::new(0);
    let code = call!(plain.endpoint, rma.write(start, 8, null_mut(), 0, 0, KEY, null_mut()));
    assert_eq!(code, unsupported as isize, "an endpoint without the capability");
}

#[test]
fn counters_count_access_of_both_ends_and_data_reaches_the_targets_queue() {
    let program = Program::with(0, CAPS);
    let mut memory = vec![0; 64];
    let region = register(&program, &mut memory, abi::REMOTE_READ | abi::REMOTE_WRITE);
    let flags = [abi::READ, abi::WRITE, abi::REMOTE_READ, abi::REMOTE_WRITE];
    let counters = flags.map(|flags| {
        let counter = counter(program.domain);
        assert_eq!(call!(program.endpoint, fid.ops.bind(counter.cast(), flags)), 0);
        counter
    });
    let bytes = [3_u8; 32];
    let start = bytes.as_ptr().cast::<c_void>();
    assert_eq!(call!(program.endpoint, rma.inject(start, 32, 0, 0, KEY)), 0);
    assert_eq!(call!(program.endpoint, rma.injectdata(start, 32, 77, 0, 0, KEY)), 0);
    write(&program, &bytes, 60, KEY, 1);
    read(&program, &mut [0; 8], 0, KEY, 2);
    let [reads, writes, remote_reads, remote_writes] = counters;
    assert_eq!(call!(writes, ops.wait(2, PATIENCE_MS)), 0);
    assert_eq!(call!(reads, ops.wait(1, PATIENCE_MS)), 0);
    assert_eq!(call!(writes, ops.read()), 2);
    assert_eq!(call!(writes, ops.readerr()), 1);
    assert_eq!(call!(remote_writes, ops.read()), 2);
    assert_eq!(call!(remote_reads, ops.read()), 1);
    let mut entry = MaybeUninit::<CqEntry>::uninit();
    assert_eq!(call!(program.queue, ops.read(entry.as_mut_ptr().cast(), 1)), 1);
    // SAFETY: one entry was written.
    let entry = unsafe { entry.assume_init() };
    assert_eq!((entry.data, entry.len, entry.op_context), (77, 32, 0));
    assert_eq!(entry.flags, abi::RMA | abi::REMOTE_WRITE | abi::REMOTE_CQ_DATA);
    assert_eq!(program.ended(), Err((1, libc::EINVAL)));
    assert_eq!(program.ended(), Ok(2));
    assert!(program.nothing_ended());
    assert_eq!(call!(region, fid.ops.close()), 0);
    for counter in counters {
        assert_eq!(call!(counter, fid.ops.close()), 0);
    }
}
