//! Programs and maps of the kernel's BPF (`bpf(2)`), as far as a struct_ops map needs them.
//!
//! Called by `bpf-cc` ([`xdp`] and [`steering`]: by `ports`). A struct_ops map holds one value: a kernel structure whose function
//! pointers are loaded programs. Writing the value registers the structure with its subsystem,
//! deleting it takes it back; while it is registered the kernel itself keeps the map, so it
//! outlives the process without being pinned anywhere (kernel `kernel/bpf/bpf_struct_ops.c`).

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use crate::SyscallError;

mod code;
pub mod steering;
pub mod xdp;

const MAP_CREATE: libc::c_int = 0;
const MAP_LOOKUP_ELEM: libc::c_int = 1;
const MAP_UPDATE_ELEM: libc::c_int = 2;
const MAP_DELETE_ELEM: libc::c_int = 3;
const PROG_LOAD: libc::c_int = 5;
const MAP_GET_NEXT_ID: libc::c_int = 12;
const MAP_GET_FD_BY_ID: libc::c_int = 14;
const OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const BTF_LOAD: libc::c_int = 18;
const LINK_CREATE: libc::c_int = 28;

const MAP_TYPE_STRUCT_OPS: u32 = 26;
const PROG_TYPE_STRUCT_OPS: u32 = 27;

/// `BPF_OBJ_NAME_LEN`, with its NUL.
const NAME_BYTES: usize = 16;
/// `union bpf_attr` as far as it is used here; the kernel takes the rest as zero.
const ATTR_BYTES: usize = 128;
/// `struct bpf_map_info` as far as it is read here.
const MAP_INFO_BYTES: usize = 48;
/// What the verifier may say about a refused program; longer, and it answers `ENOSPC`.
const LOG_BYTES: usize = 1 << 20;
/// Bytes of an instruction.
pub const INSTRUCTION_BYTES: usize = 8;
/// Largest value of a map read or written here; `bpf_struct_ops_tcp_congestion_ops` has about 256.
const VALUE_BYTES_MAX: usize = 64 << 10;

/// One program of a structure.
#[derive(Debug, Clone, Copy)]
pub struct StructOpsProgram<'a> {
    /// Name shown by tools; cut to 15 bytes.
    pub name: &'a str,
    /// Instructions, 8 bytes each, in the machine's byte order.
    pub instructions: &'a [u8],
    /// License, which must be compatible with the GPL.
    pub license: &'a str,
    /// Kernel type number of the structure.
    pub structure_type: u32,
    /// Which member of the structure it is, counted from 0.
    pub member: u32,
}

/// What the kernel says of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapInfo {
    /// The kernel's id of the map.
    pub id: u32,
    /// Whether it is a struct_ops map.
    pub is_struct_ops: bool,
    /// Bytes of its value.
    pub value_bytes: u32,
    /// Its name, up to 15 bytes.
    pub name: String,
    /// Kernel type number of its value; 0 for none.
    pub value_type: u32,
}

/// The kernel's argument, filled field by field at the offsets of `include/uapi/linux/bpf.h`.
#[repr(C, align(8))]
struct Attr([u8; ATTR_BYTES]);

impl Attr {
    fn new() -> Self {
        Self([0; ATTR_BYTES])
    }

    fn word(mut self, offset: usize, value: u32) -> Self {
        self.0[offset..offset + 4].copy_from_slice(&value.to_ne_bytes());
        self
    }

    fn pointer(mut self, offset: usize, address: usize) -> Self {
        self.0[offset..offset + 8].copy_from_slice(&(address as u64).to_ne_bytes());
        self
    }

    fn fd(self, offset: usize, fd: RawFd) -> Self {
        self.word(offset, fd.cast_unsigned())
    }

    fn name(mut self, offset: usize, name: &str) -> Self {
        let plain = name.bytes().take(NAME_BYTES - 1).enumerate();
        for (at, byte) in plain {
            // The kernel takes letters, digits, `_` and `.` only.
            let is_plain = byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.';
            self.0[offset + at] = if is_plain { byte } else { b'_' };
        }
        self
    }
}

/// Loads type information of our own. The kernel wants some beside every struct_ops map, though
/// the map's value is described by the kernel's own.
///
/// # Errors
/// No privilege (`CAP_BPF`), or the kernel does not take it.
pub fn load_type_information(bytes: &[u8]) -> Result<OwnedFd, SyscallError> {
    let size = bounded(bytes.len(), "bpf(BPF_BTF_LOAD)")?;
    let mut attr = Attr::new().pointer(0, bytes.as_ptr().addr()).word(16, size);
    // SAFETY: `btf` and `btf_size` describe `bytes`, which outlives the call and is only read.
    let fd = unsafe { bpf(BTF_LOAD, &mut attr) };
    owned(fd, "bpf(BPF_BTF_LOAD)", "type information")
}

/// Loads one program of a kernel structure. On refusal the verifier's last words are in the error.
///
/// # Errors
/// No privilege (`CAP_BPF` and `CAP_NET_ADMIN`), no struct_ops in this kernel, or the verifier
/// refuses the program.
pub fn load_program(program: &StructOpsProgram<'_>) -> Result<OwnedFd, SyscallError> {
    const CALL: &str = "bpf(BPF_PROG_LOAD)";
    let invalid = |_| SyscallError::new(CALL, program.name, io::ErrorKind::InvalidInput);
    let license = CString::new(program.license).map_err(invalid)?;
    let count = bounded(program.instructions.len() / INSTRUCTION_BYTES, CALL)?;
    let attr = || {
        Attr::new()
            .word(0, PROG_TYPE_STRUCT_OPS)
            .word(4, count)
            .pointer(8, program.instructions.as_ptr().addr())
            .pointer(16, license.as_ptr().addr())
            .name(48, program.name)
            .word(68, program.member)
            .word(108, program.structure_type)
    };
    // SAFETY: `insns` and `insn_cnt` describe `instructions`, `license` ends with a NUL; both
    // outlive the call and are only read; no log is asked for.
    let fd = unsafe { bpf(PROG_LOAD, &mut attr()) };
    let refused = match owned(fd, CALL, program.name) {
        Err(error) if !error.is_privilege() => error,
        answer => return answer,
    };
    let mut log = vec![0_u8; LOG_BYTES];
    let mut attr =
        attr().word(24, 1).word(28, bounded(log.len(), CALL)?).pointer(32, log.as_mut_ptr().addr());
    // SAFETY: as above; `log_buf` and `log_size` describe `log`, which nothing else refers to.
    let fd = unsafe { bpf(PROG_LOAD, &mut attr) };
    // The first answer stands: a program that is taken only with a log is a kernel's oddity.
    owned(fd, CALL, program.name).map_err(|_second| {
        let object = format!("{}: {}", program.name, last_words(&log));
        SyscallError::new(CALL, object, refused.source)
    })
}

/// Loads a program that runs on packets, and is attached as `attach_type` says.
fn load_network(
    program_type: u32,
    attach_type: u32,
    flags: u32,
    name: &str,
    instructions: &[u64],
) -> Result<OwnedFd, SyscallError> {
    const CALL: &str = "bpf(BPF_PROG_LOAD)";
    let license = c"GPL";
    let mut attr = Attr::new()
        .word(0, program_type)
        .word(4, bounded(instructions.len(), CALL)?)
        .pointer(8, instructions.as_ptr().addr())
        .pointer(16, license.as_ptr().addr())
        .word(44, flags)
        .name(48, name)
        .word(68, attach_type);
    // SAFETY: `insns` and `insn_cnt` describe `instructions`, `license` ends with a NUL; both
    // outlive the call and are only read; no log is asked for.
    let fd = unsafe { bpf(PROG_LOAD, &mut attr) };
    owned(fd, CALL, name)
}

/// Makes a map for one value of the kernel type `value_type`.
///
/// # Errors
/// No privilege, or the kernel does not know the type as a structure of programs.
pub fn create_struct_ops_map(
    name: &str,
    value_type: u32,
    value_bytes: usize,
    type_information: BorrowedFd<'_>,
) -> Result<OwnedFd, SyscallError> {
    const CALL: &str = "bpf(BPF_MAP_CREATE)";
    let mut attr = Attr::new()
        .word(0, MAP_TYPE_STRUCT_OPS)
        .word(4, 4)
        .word(8, bounded(value_bytes, CALL)?)
        .word(12, 1)
        .name(28, name)
        .fd(48, type_information.as_raw_fd())
        .word(60, value_type);
    // SAFETY: the attributes of BPF_MAP_CREATE hold no pointer.
    let fd = unsafe { bpf(MAP_CREATE, &mut attr) };
    owned(fd, CALL, name)
}

/// Writes a struct_ops map's value, which registers it.
///
/// # Errors
/// The value is not what the kernel wants there (`EINVAL`), or its name is taken (`EEXIST`).
pub fn register(map: BorrowedFd<'_>, value: &[u8]) -> Result<(), SyscallError> {
    const CALL: &str = "bpf(BPF_MAP_UPDATE_ELEM)";
    check_value(map, value.len(), CALL)?;
    let key = 0_u32;
    let mut attr = Attr::new()
        .fd(0, map.as_raw_fd())
        .pointer(8, (&raw const key).addr())
        .pointer(16, value.as_ptr().addr());
    // SAFETY: `key` has the four bytes of this map's key and `value` the bytes the kernel said its
    // value has (checked above); both outlive the call and are only read.
    let answer = unsafe { bpf(MAP_UPDATE_ELEM, &mut attr) };
    done(answer, CALL, "struct_ops map")
}

/// Takes a struct_ops map's value back. Who uses the structure already keeps it until done.
///
/// # Errors
/// It is not registered (`ENOENT`), or was registered through a link (`EOPNOTSUPP`).
pub fn unregister(map: BorrowedFd<'_>) -> Result<(), SyscallError> {
    let key = 0_u32;
    let mut attr = Attr::new().fd(0, map.as_raw_fd()).pointer(8, (&raw const key).addr());
    // SAFETY: `key` has the four bytes of a struct_ops map's key, outlives the call, is only read.
    let answer = unsafe { bpf(MAP_DELETE_ELEM, &mut attr) };
    done(answer, "bpf(BPF_MAP_DELETE_ELEM)", "struct_ops map")
}

/// A struct_ops map's value: the users' count and state first, then the structure.
///
/// # Errors
/// It is no struct_ops map, or the kernel does not answer.
pub fn value(map: BorrowedFd<'_>) -> Result<Vec<u8>, SyscallError> {
    const CALL: &str = "bpf(BPF_MAP_LOOKUP_ELEM)";
    let bytes = map_info(map)?.value_bytes as usize;
    check_value(map, bytes, CALL)?;
    let key = 0_u32;
    let mut value = vec![0_u8; bytes];
    let mut attr = Attr::new()
        .fd(0, map.as_raw_fd())
        .pointer(8, (&raw const key).addr())
        .pointer(16, value.as_mut_ptr().addr());
    // SAFETY: `key` has the four bytes of this map's key and `value` the bytes the kernel said its
    // value has (checked above); the kernel writes no more into it.
    let answer = unsafe { bpf(MAP_LOOKUP_ELEM, &mut attr) };
    done(answer, CALL, "struct_ops map")?;
    Ok(value)
}

/// The number of the next map after `id`; `None` after the last.
///
/// # Errors
/// No privilege (`CAP_SYS_ADMIN`).
pub fn next_map(id: u32) -> Result<Option<u32>, SyscallError> {
    next(MAP_GET_NEXT_ID, id, "bpf(BPF_MAP_GET_NEXT_ID)")
}

/// The number after `id` of objects of one kind, by a command that asks for it.
fn next(command: libc::c_int, id: u32, call: &'static str) -> Result<Option<u32>, SyscallError> {
    let mut attr = Attr::new().word(0, id);
    // SAFETY: the attributes of BPF_…_GET_NEXT_ID hold no pointer.
    let answer = unsafe { bpf(command, &mut attr) };
    match done(answer, call, "objects") {
        Err(error) if error.source.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(error),
        Ok(()) => Ok(Some(word(&attr.0, 4))),
    }
}

/// Opens a map by its number.
///
/// # Errors
/// It is gone (`ENOENT`), or no privilege (`CAP_SYS_ADMIN`).
pub fn open_map(id: u32) -> Result<OwnedFd, SyscallError> {
    open_numbered(MAP_GET_FD_BY_ID, id, "bpf(BPF_MAP_GET_FD_BY_ID)")
}

/// Opens an object by its number, by a command that does.
fn open_numbered(
    command: libc::c_int,
    id: u32,
    call: &'static str,
) -> Result<OwnedFd, SyscallError> {
    let mut attr = Attr::new().word(0, id);
    // SAFETY: the attributes of BPF_…_GET_FD_BY_ID hold no pointer.
    let fd = unsafe { bpf(command, &mut attr) };
    owned(fd, call, &format!("number {id}"))
}

/// What a map is.
///
/// # Errors
/// The descriptor is no map's.
pub fn map_info(map: BorrowedFd<'_>) -> Result<MapInfo, SyscallError> {
    let mut info = [0_u8; MAP_INFO_BYTES];
    // SAFETY: what the kernel reads of `info` is zero, so there is no pointer in it.
    unsafe { object_info(map, &mut info, "map") }?;
    Ok(MapInfo {
        id: word(&info, 4),
        is_struct_ops: word(&info, 0) == MAP_TYPE_STRUCT_OPS,
        value_bytes: word(&info, 12),
        name: text(&info[24..40]),
        value_type: word(&info, 44),
    })
}

/// What the kernel says of an object, in a structure of the object's kind.
///
/// # Safety
/// Pointers that `info` holds are valid for what the kernel writes there.
unsafe fn object_info(
    object: BorrowedFd<'_>,
    info: &mut [u8],
    what: &str,
) -> Result<(), SyscallError> {
    const CALL: &str = "bpf(BPF_OBJ_GET_INFO_BY_FD)";
    let mut attr = Attr::new()
        .fd(0, object.as_raw_fd())
        .word(4, bounded(info.len(), CALL)?)
        .pointer(8, info.as_mut_ptr().addr());
    // SAFETY: `info` and `info_len` describe `info`, which nothing else refers to; the kernel
    // writes no more than that, and where its pointers lead, which is the caller's promise.
    let answer = unsafe { bpf(OBJ_GET_INFO_BY_FD, &mut attr) };
    done(answer, CALL, what)
}

/// A name up to its NUL.
fn text(bytes: &[u8]) -> String {
    let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

/// The value of a struct_ops map has exactly `bytes`; only then may the kernel be given a pointer
/// to that many.
fn check_value(map: BorrowedFd<'_>, bytes: usize, call: &'static str) -> Result<(), SyscallError> {
    let info = map_info(map)?;
    let fits = info.value_bytes as usize == bytes && bytes <= VALUE_BYTES_MAX;
    if info.is_struct_ops && fits {
        return Ok(());
    }
    let object = format!("map {} of {} bytes, not {bytes}", info.id, info.value_bytes);
    Err(SyscallError::new(call, object, io::ErrorKind::InvalidInput))
}

/// # Safety
/// Every pointer that `command` reads from `attr` is valid for what the kernel does with it.
unsafe fn bpf(command: libc::c_int, attr: &mut Attr) -> libc::c_long {
    // SAFETY: `attr` has ATTR_BYTES bytes, of which the kernel takes the unused ones as zero and
    // writes none beyond; the pointers within are the caller's promise.
    unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attr, ATTR_BYTES) }
}

fn owned(answer: libc::c_long, call: &'static str, object: &str) -> Result<OwnedFd, SyscallError> {
    match RawFd::try_from(answer) {
        Ok(fd) if fd >= 0 => {
            // SAFETY: the kernel has just made this descriptor for us; nobody else has it.
            Ok(unsafe { OwnedFd::from_raw_fd(fd) })
        }
        _ => Err(SyscallError::last(call, object)),
    }
}

fn done(answer: libc::c_long, call: &'static str, object: &str) -> Result<(), SyscallError> {
    if answer >= 0 { Ok(()) } else { Err(SyscallError::last(call, object)) }
}

fn bounded(length: usize, call: &'static str) -> Result<u32, SyscallError> {
    u32::try_from(length).map_err(|_too_long| {
        SyscallError::new(call, format!("{length} bytes"), io::ErrorKind::InvalidInput)
    })
}

fn word(bytes: &[u8], offset: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[offset..offset + 4]);
    u32::from_ne_bytes(word)
}

/// The last lines of a verifier's log before its statistics, in one line.
fn last_words(log: &[u8]) -> String {
    let text = log.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = String::from_utf8_lossy(text);
    let said: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("processed "))
        .collect();
    said[said.len().saturating_sub(2)..].join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_written_where_the_kernel_reads_them() {
        let attr =
            Attr::new().word(4, 7).pointer(8, 0x0102).name(28, "a-name too long for the kernel");
        assert_eq!(word(&attr.0, 4), 7);
        assert_eq!(attr.0[8..16], 0x0102_u64.to_ne_bytes());
        assert_eq!(&attr.0[28..44], b"a_name_too_long\0");
    }

    #[test]
    fn the_verifiers_last_words() {
        let log =
            b"0: R1=ctx()\n0: (79) r1 = *(u64 *)(r1 +0)\ninvalid access\nprocessed 1 insns\n\0\0";
        assert_eq!(last_words(log), "0: (79) r1 = *(u64 *)(r1 +0); invalid access");
        assert_eq!(last_words(&[]), "");
    }

    #[test]
    fn a_file_is_no_map() {
        use std::os::fd::AsFd;
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(map_info(file.as_fd()).unwrap_err().call, "bpf(BPF_OBJ_GET_INFO_BY_FD)");
        assert!(register(file.as_fd(), &[0; 8]).is_err());
    }
}
