//! `NIOCCTRL`'s argument: a header, the body it points to, and a list of options.
//!
//! All three lie in the program's memory, and any pointer in them may be wrong, so each is read once,
//! bounded, and written back field by field.

use rustix::io::Errno;

use crate::abi;
use crate::user::{Fields, UserMemory};

const HEADER_BYTES: usize = 88;
const NAME_BYTES: usize = 64;
const OPTION_BYTES: usize = 24;
/// netmap keeps where each option came from, and counts that too.
const POINTER_BYTES: usize = 8;
/// `NETMAP_REQ_OPT_SYNC_KLOOP_EVENTFDS`.
pub const KLOOP_EVENTFDS: u32 = 2;
/// `NETMAP_REQ_OPT_CSB`.
pub const CSB: u32 = 3;
/// `NETMAP_REQ_OPT_SYNC_KLOOP_MODE`.
pub const KLOOP_MODE: u32 = 4;

/// Bytes of the body of an option that has one here; the first says itself how long it is.
fn option_body_bytes(kind: u32, said: u64) -> usize {
    match kind {
        KLOOP_EVENTFDS => usize::try_from(said).unwrap_or(usize::MAX).saturating_sub(OPTION_BYTES),
        CSB => 16,
        KLOOP_MODE => 8,
        _ => 0,
    }
}

/// The options that a request may have.
fn supported(kind: u16) -> &'static [u32] {
    match kind {
        abi::REGISTER | abi::CSB_ENABLE => &[CSB],
        abi::SYNC_KLOOP_START => &[KLOOP_EVENTFDS, KLOOP_MODE],
        _ => &[],
    }
}
/// `NETMAP_REQ_MAXSIZE`: header, body and options together.
const REQUEST_BYTES_MAX: usize = 4096;

/// What a program asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// `NETMAP_REQ_*`.
    pub kind: u16,
    /// The port's name, without terminator.
    pub name: String,
    /// The body; changes go back with [`Request::answer`].
    pub body: Fields,
    body_address: u64,
    options: Vec<RequestOption>,
}

/// An option of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RequestOption {
    address: u64,
    kind: u32,
    /// What follows its head.
    body: Fields,
}

/// `NETMAP_REQ_OPT_*` are 1 to 5.
const OPTION_KINDS: std::ops::RangeInclusive<u32> = 1..=5;

impl Request {
    /// Reads a request.
    ///
    /// # Errors
    /// `EFAULT` for a pointer to nowhere, `EINVAL` for a version, kind or name that does not exist or an
    /// option that is there twice, `EMSGSIZE` for more options than 4096 bytes hold, `EOPNOTSUPP` for an
    /// option that this request cannot have. What is wrong with an option is written to its status.
    pub fn read(memory: &dyn UserMemory, address: u64) -> Result<Self, Errno> {
        let mut header = Fields(vec![0; HEADER_BYTES]);
        memory.read(address, &mut header.0)?;
        if !abi::API_RANGE.contains(&header.u16(0)) {
            return Err(Errno::INVAL);
        }
        let kind = header.u16(2);
        let body_bytes = abi::body_bytes(kind).ok_or(Errno::INVAL)?;
        let name = terminated(&header.0[8..8 + NAME_BYTES]).ok_or(Errno::INVAL)?;
        let body_address = header.u64(80);
        if body_bytes > 0 && body_address == 0 {
            return Err(Errno::INVAL);
        }
        let mut body = Fields(vec![0; body_bytes]);
        if body_bytes > 0 {
            memory.read(body_address, &mut body.0)?;
        }
        let room = REQUEST_BYTES_MAX - HEADER_BYTES - body_bytes;
        let options = read_options(memory, header.u64(72), room)?;
        let request = Self { kind, name, body, body_address, options };
        request.check_options(memory)?;
        Ok(request)
    }

    /// Writes the body back.
    ///
    /// # Errors
    /// `EFAULT`: it is not there any more.
    pub fn answer(&self, memory: &dyn UserMemory) -> Result<(), Errno> {
        if self.body.0.is_empty() { Ok(()) } else { memory.write(self.body_address, &self.body.0) }
    }

    /// The body of an option, if it is there.
    #[must_use]
    pub fn option(&self, kind: u32) -> Option<&Fields> {
        self.options.iter().find(|option| option.kind == kind).map(|option| &option.body)
    }

    fn check_options(&self, memory: &dyn UserMemory) -> Result<(), Errno> {
        let known = |option: &&RequestOption| supported(self.kind).contains(&option.kind);
        for option in &self.options {
            option.say(memory, if known(&option) { 0 } else { Errno::OPNOTSUPP.raw_os_error() })?;
        }
        if self.options.iter().all(|option| known(&option)) {
            Ok(())
        } else {
            Err(Errno::OPNOTSUPP)
        }
    }
}

impl RequestOption {
    /// Writes its status.
    fn say(&self, memory: &dyn UserMemory, status: i32) -> Result<(), Errno> {
        memory.write(self.address + 12, &status.to_le_bytes())
    }
}

fn read_options(
    memory: &dyn UserMemory,
    first: u64,
    mut room: usize,
) -> Result<Vec<RequestOption>, Errno> {
    let mut options = Vec::new();
    let mut address = first;
    while address != 0 {
        let mut fields = Fields(vec![0; OPTION_BYTES]);
        memory.read(address, &mut fields.0)?;
        let kind = fields.u32(8);
        let body_bytes = option_body_bytes(kind, fields.u64(16));
        let bytes = (OPTION_BYTES + POINTER_BYTES).saturating_add(body_bytes);
        room = room.checked_sub(bytes).ok_or(Errno::MSGSIZE)?;
        if address > u64::MAX - OPTION_BYTES as u64 {
            return Err(Errno::FAULT);
        }
        let mut body = Fields(vec![0; body_bytes]);
        memory.read(address + OPTION_BYTES as u64, &mut body.0)?;
        let option = RequestOption { address, kind, body };
        let twin = options.iter().find(|other: &&RequestOption| other.kind == kind);
        if let Some(twin) = twin.filter(|_| OPTION_KINDS.contains(&kind)) {
            twin.say(memory, Errno::INVAL.raw_os_error())?;
            option.say(memory, Errno::INVAL.raw_os_error())?;
            return Err(Errno::INVAL);
        }
        options.push(option);
        address = fields.u64(0);
    }
    Ok(options)
}

/// Text that ends within its field.
pub(crate) fn terminated(field: &[u8]) -> Option<String> {
    let length = field.iter().position(|&byte| byte == 0)?;
    String::from_utf8(field[..length].to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Memory from address 4096 on.
    pub(crate) struct Sparse(pub(crate) RefCell<Vec<u8>>);

    const BASE: u64 = 4096;

    impl Sparse {
        fn range(&self, address: u64, length: usize) -> Result<std::ops::Range<usize>, Errno> {
            let start = address.checked_sub(BASE).ok_or(Errno::FAULT)? as usize;
            let end = start.checked_add(length).ok_or(Errno::FAULT)?;
            if end > self.0.borrow().len() { Err(Errno::FAULT) } else { Ok(start..end) }
        }
    }

    impl UserMemory for Sparse {
        fn read(&self, address: u64, out: &mut [u8]) -> Result<(), Errno> {
            let range = self.range(address, out.len())?;
            out.copy_from_slice(&self.0.borrow()[range]);
            Ok(())
        }

        fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Errno> {
            let range = self.range(address, bytes.len())?;
            self.0.borrow_mut()[range].copy_from_slice(bytes);
            Ok(())
        }
    }

    /// A header at 4096, its body at 4352, options from 4608 on.
    fn memory(kind: u16, name: &str, options: &[(u64, u32)]) -> Sparse {
        let mut bytes = Fields(vec![0; 1024]);
        bytes.set_u16(0, abi::API);
        bytes.set_u16(2, kind);
        bytes.0[8..8 + name.len()].copy_from_slice(name.as_bytes());
        bytes.set_u64(80, BASE + 256);
        for (index, (next, kind)) in options.iter().enumerate() {
            bytes.set_u64(72, BASE + 512);
            bytes.set_u64(512 + 24 * index, *next);
            bytes.set_u32(512 + 24 * index + 8, *kind);
        }
        Sparse(RefCell::new(bytes.0))
    }

    fn status(memory: &Sparse, index: usize) -> u32 {
        Fields(memory.0.borrow().clone()).u32(512 + 24 * index + 12)
    }

    #[test]
    fn body_goes_there_and_back() {
        let memory = memory(abi::REGISTER, "vale0:a", &[]);
        memory.0.borrow_mut()[256 + abi::register::MODE] = 1;
        let mut request = Request::read(&memory, BASE).unwrap();
        assert_eq!((request.name.as_str(), request.body.u32(abi::register::MODE)), ("vale0:a", 1));
        request.body.set_u64(abi::register::OFFSET, 7);
        request.answer(&memory).unwrap();
        assert_eq!(memory.0.borrow()[256], 7);
    }

    #[test]
    fn options_are_refused_by_name() {
        let next = BASE + 512 + 24;
        let unknown = memory(abi::REGISTER, "a", &[(0, 1234)]);
        assert_eq!(Request::read(&unknown, BASE), Err(Errno::OPNOTSUPP));
        assert_eq!(status(&unknown, 0), 95);
        let twice = memory(abi::REGISTER, "a", &[(next, 1), (0, 1)]);
        assert_eq!(Request::read(&twice, BASE), Err(Errno::INVAL));
        assert_eq!((status(&twice, 0), status(&twice, 1)), (22, 22));
        let circle = memory(abi::REGISTER, "a", &[(BASE + 512, 99)]);
        assert_eq!(Request::read(&circle, BASE), Err(Errno::MSGSIZE));
        let known_circle = memory(abi::REGISTER, "a", &[(BASE + 512, 1)]);
        assert_eq!(Request::read(&known_circle, BASE), Err(Errno::INVAL));
        let nowhere = memory(abi::REGISTER, "a", &[(1, 1)]);
        assert_eq!(Request::read(&nowhere, BASE), Err(Errno::FAULT));
    }

    #[test]
    fn nonsense_is_refused() {
        for kind in [0, 16, 99] {
            assert_eq!(Request::read(&memory(kind, "a", &[]), BASE), Err(Errno::INVAL));
        }
        assert_eq!(Request::read(&memory(1, "a", &[]), 8), Err(Errno::FAULT));
        assert_eq!(Request::read(&memory(1, &"x".repeat(64), &[]), BASE), Err(Errno::INVAL));
        let old = memory(1, "a", &[]);
        old.0.borrow_mut()[0] = 13;
        assert_eq!(Request::read(&old, BASE), Err(Errno::INVAL));
    }

    #[test]
    fn any_memory_is_read_without_harm() {
        bolero::check!().with_type::<(u64, Vec<u8>)>().for_each(|(address, bytes)| {
            let memory = Sparse(RefCell::new(bytes.clone()));
            let address = BASE + address % 512;
            if let Ok(request) = Request::read(&memory, address) {
                request.answer(&memory).unwrap();
            }
        });
    }
}
