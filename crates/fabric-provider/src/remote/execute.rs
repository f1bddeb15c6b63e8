//! What a request does to the target's memory. Everything in a request may be invented: each is checked here, against
//! the regions as they are when it is executed.

use super::atomics::{Atomic, Shape};
use super::regions::{Regions, Span};
use super::request::{Action, Refusal, Request};

/// What became of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Executed {
    /// It is done; `reply` is what was there before, for those who asked.
    Done { request: Request, reply: Vec<u8> },
    /// These bytes are to be sent.
    Read { request: Request, span: Span },
    /// The next message has the data, `Err` if they go nowhere.
    Apart { request: Request, outcome: Result<(), Refusal> },
    /// Nothing was done.
    Refused(Refusal),
}

/// Executes a request as far as its bytes suffice.
pub(crate) fn execute(bytes: &[u8], regions: &Regions) -> Executed {
    let Some((request, operands)) = Request::parse(bytes) else {
        return Executed::Refused(Refusal::Malformed);
    };
    let found = regions.find(request.key, request.offset, request.length_bytes, request.access());
    match (request.action, found) {
        (Action::WriteApart, found) => Executed::Apart { request, outcome: found.map(|_span| ()) },
        (_, Err(refusal)) => Executed::Refused(refusal),
        (Action::Read, Ok(span)) => Executed::Read { request, span },
        (Action::Write, Ok(span)) => {
            // SAFETY: the region was found just now, under the domain's lock.
            unsafe { span.write(operands) };
            Executed::Done { request, reply: Vec::new() }
        }
        (Action::Atomic(atomic), Ok(span)) => {
            Executed::Done { request, reply: update(atomic, span, operands) }
        }
    }
}

fn update(atomic: Atomic, span: Span, operands: &[u8]) -> Vec<u8> {
    let mut before = Vec::new();
    // SAFETY: the region was found just now, under the domain's lock, as below.
    unsafe { span.read(&mut before) };
    let mut after = before.clone();
    atomic.apply(&mut after, operands);
    if after != before {
        // SAFETY: as above.
        unsafe { span.write(&after) };
    }
    if atomic.shape == Shape::Update { Vec::new() } else { before }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi;
    use crate::remote::atomics::{Datatype, Op};

    const KEY: u64 = 3;
    const LENGTH: usize = 64;

    fn bytes_of(action: Action, key: u64, offset: u64, length: u64, operands: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        Request { action, key, offset, length_bytes: length, data: None }.encode(&mut bytes);
        bytes.extend_from_slice(operands);
        bytes
    }

    #[test]
    fn hostile_requests_are_refused_by_name_and_change_nothing() {
        let mut memory = vec![9_u8; LENGTH];
        let mut regions = Regions::default();
        let access = abi::REMOTE_READ | abi::REMOTE_WRITE;
        // SAFETY: it lives to the end of the test.
        unsafe { regions.register(KEY, memory.as_mut_ptr(), LENGTH, access) }.expect("free");
        // SAFETY: the same.
        unsafe { regions.register(4, memory.as_mut_ptr(), LENGTH, abi::REMOTE_READ) }
            .expect("free");
        let sum = Atomic::new(Shape::Fetch, Op::Sum as u32, Datatype::U64 as u32);
        let sum = Action::Atomic(sum.expect("served"));
        let eight = [1_u8; 8];
        for (request, refusal) in [
            (bytes_of(Action::Write, 77, 0, 8, &eight), Refusal::UnknownKey),
            (bytes_of(Action::Write, 4, 0, 8, &eight), Refusal::Access),
            (bytes_of(sum, 4, 0, 8, &eight), Refusal::Access),
            (bytes_of(Action::Write, KEY, 57, 8, &eight), Refusal::Bounds),
            (bytes_of(Action::Write, KEY, u64::MAX - 3, 8, &eight), Refusal::Bounds),
            (bytes_of(sum, KEY, 60, 8, &eight), Refusal::Bounds),
            (bytes_of(Action::Read, KEY, 1, u64::MAX, &[]), Refusal::Bounds),
            (bytes_of(Action::Read, KEY, 0, 65, &[]), Refusal::Bounds),
            (bytes_of(Action::Write, KEY, 0, 8, &eight[..7]), Refusal::Malformed),
            (bytes_of(Action::Write, KEY, 0, u64::MAX, &eight), Refusal::Malformed),
            (bytes_of(sum, KEY, 0, 8, &[1; 16]), Refusal::Malformed),
            (vec![0; 40], Refusal::Malformed),
            (Vec::new(), Refusal::Malformed),
        ] {
            assert_eq!(execute(&request, &regions), Executed::Refused(refusal));
        }
        let apart = execute(&bytes_of(Action::WriteApart, KEY, 1, 64, &[]), &regions);
        assert!(matches!(apart, Executed::Apart { outcome: Err(Refusal::Bounds), .. }));
        assert_eq!(memory, vec![9; LENGTH]);
        let whole = execute(&bytes_of(Action::Write, KEY, 56, 8, &eight), &regions);
        assert!(matches!(whole, Executed::Done { .. }));
        assert_eq!(memory[55..], [9, 1, 1, 1, 1, 1, 1, 1, 1]);
    }

    #[test]
    fn a_fetch_returns_what_was_there_before() {
        let mut memory = [5_u64, 7];
        let mut regions = Regions::default();
        let access = abi::REMOTE_READ | abi::REMOTE_WRITE;
        let start = memory.as_mut_ptr().cast();
        // SAFETY: it lives to the end of the test.
        unsafe { regions.register(KEY, start, 16, access) }.expect("free");
        let sum = Atomic::new(Shape::Fetch, Op::Sum as u32, Datatype::U64 as u32);
        let operands = [10_u64, 20].map(u64::to_ne_bytes).concat();
        let request = bytes_of(Action::Atomic(sum.expect("served")), KEY, 0, 16, &operands);
        let Executed::Done { reply, .. } = execute(&request, &regions) else { panic!("refused") };
        assert_eq!(reply, [5_u64, 7].map(u64::to_ne_bytes).concat());
        assert_eq!(memory, [15, 27]);
    }
}
