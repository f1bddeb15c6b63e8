//! What the kernel has registered: adding ours, listing, taking back.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use sys::SyscallError;
use sys::bpf::{self, StructOpsProgram};
use thiserror::Error;

use crate::btf::Btf;
use crate::layout::Layout;
use crate::object::{Object, ObjectError};
use crate::relocate::{FitError, fit};

/// The running kernel's types.
const KERNEL_TYPES: &str = "/sys/kernel/btf/vmlinux";
/// Largest description read; Linux 6.18 has 5 to 7 MB.
const KERNEL_TYPES_BYTES_MAX: u64 = 64 << 20;
/// By this name of their maps our registrations are known.
const MAP_NAME: &str = "clearstream_cc";
/// `TCP_CA_NAME_MAX` without its NUL.
const NAME_BYTES_MAX: usize = 15;
/// More maps than a host has.
const MAPS_MAX: usize = 1 << 20;
/// `TCP_CONG_NON_RESTRICTED`.
const FLAG_EVERYONE: u32 = 1;
/// The terms of `bpf/htcp.bpf.c`, in the words the kernel knows.
const LICENSE: &str = "Dual MIT/GPL";
/// A registered value's state (`enum bpf_struct_ops_state`, `INUSE`).
const STATE_IN_USE: u32 = 1;

/// Types of our own that the kernel asks for beside every map: one integer.
const OWN_TYPES: [u32; 11] = [
    0x0001_eb9f, // magic, version, flags
    24,          // bytes of this header
    0,           // types begin
    16,          // types, bytes
    16,          // names begin
    4,           // names, bytes
    1,           // the integer's name
    0x0100_0000, // kind: integer
    4,           // bytes
    0x0100_0020, // signed, 32 bits
    u32::from_le_bytes(*b"\0i\0\0"),
];

/// A congestion control registered by a BPF program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registered {
    /// Number of its map.
    pub map: u32,
    /// Name applications choose it by.
    pub name: String,
    /// Whether this program registered it.
    pub is_ours: bool,
    /// Connections, listeners and namespace defaults that use it, as the kernel estimates.
    pub users: u32,
    /// Whether it can still be chosen; otherwise its last users are finishing.
    pub can_be_chosen: bool,
}

/// Who may choose a congestion control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Privileged programs, as with most of the kernel's own (`CAP_NET_ADMIN`).
    Privileged,
    /// Any program, and any namespace as its default.
    Everyone,
}

/// Why a congestion control could not be registered, listed or taken back.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CcError {
    /// The program was built where there was no clang.
    #[error("H-TCP is not built into this program: there was no clang when it was built")]
    NotBuiltIn,
    /// The kernel does not describe its types.
    #[error("this kernel does not describe its types in {KERNEL_TYPES} (CONFIG_DEBUG_INFO_BTF)")]
    NoTypes(#[source] std::io::Error),
    /// The kernel takes no congestion control from BPF.
    #[error(
        "this kernel does not accept BPF programs as congestion control (needs Linux 5.6 and \
         CONFIG_BPF_JIT)"
    )]
    NoStructOps,
    /// The caller may not.
    #[error("{action} needs CAP_BPF, CAP_NET_ADMIN and CAP_SYS_ADMIN on the host")]
    Privilege {
        /// What was tried.
        action: &'static str,
        /// The kernel's answer.
        source: SyscallError,
    },
    /// Somebody has registered this name.
    #[error("a congestion control named {name} is registered already")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// The program does not fit this kernel.
    #[error(transparent)]
    Fit(#[from] FitError),
    /// The built-in object is broken.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// The kernel refused.
    #[error("the kernel refused the congestion control")]
    Refused(#[source] SyscallError),
    /// A name the kernel cannot take.
    #[error("'{name}' is not a name for a congestion control: 1 to 15 letters, digits, - and _")]
    Name {
        /// The name.
        name: String,
    },
}

impl CcError {
    /// Whether a privilege or a kernel feature is missing.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(
            self,
            Self::NotBuiltIn
                | Self::NoTypes(_)
                | Self::NoStructOps
                | Self::Privilege { .. }
                | Self::Fit(_)
        )
    }

    fn of(action: &'static str) -> impl Fn(SyscallError) -> Self {
        move |source| match source.source.raw_os_error() {
            _ if source.is_privilege() => Self::Privilege { action, source },
            // No bpf(2) at all, or no such map type.
            Some(38 | 95 | 524) => Self::NoStructOps,
            _ => Self::Refused(source),
        }
    }
}

/// The name for our H-TCP: `htcp`, or `htcp_bpf` where the kernel has its own. `available` is
/// `net.ipv4.tcp_available_congestion_control`, `ours` what [`registered`] lists.
#[must_use]
pub fn name_for(available: &str, ours: &[Registered]) -> &'static str {
    let from_bpf = ours.iter().any(|one| one.name == "htcp");
    let in_kernel = available.split_whitespace().any(|name| name == "htcp");
    if in_kernel && !from_bpf { "htcp_bpf" } else { "htcp" }
}

/// Registers the H-TCP program under `name`; it stays when this process ends.
///
/// # Errors
/// [`CcError`]; nothing is left behind.
pub fn register(name: &str, scope: Scope) -> Result<(), CcError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(plain) {
        return Err(CcError::Name { name: name.to_owned() });
    }
    let object = Object::parse(crate::htcp_object().ok_or(CcError::NotBuiltIn)?)?;
    let types = kernel_types()?;
    let kernel = Btf::parse(&types).map_err(ObjectError::from)?;
    let layout = Layout::of(&kernel).ok_or(CcError::NoStructOps)?;
    let refused = CcError::of("registering a congestion control");
    let mut value = vec![0_u8; layout.value_bytes];
    put(&mut value, &layout, "name", name.as_bytes())?;
    if scope == Scope::Everyone {
        put(&mut value, &layout, "flags", &FLAG_EVERYONE.to_ne_bytes())?;
    }
    // Their descriptors stand in the value, and must stay open until it is registered.
    let mut programs: Vec<OwnedFd> = Vec::new();
    for program in &object.programs {
        let instructions = fit(program, &object.btf, &kernel)?;
        let (member, _) = layout.member(program.member).ok_or(CcError::NoStructOps)?;
        let title = format!("{name}_{}", program.member);
        let loaded = bpf::load_program(&StructOpsProgram {
            name: &title,
            instructions: &instructions,
            license: LICENSE,
            structure_type: layout.structure,
            member,
        })
        .map_err(&refused)?;
        let number = u64::from(loaded.as_raw_fd().unsigned_abs());
        put(&mut value, &layout, program.member, &number.to_ne_bytes())?;
        programs.push(loaded);
    }
    let own_types: Vec<u8> = OWN_TYPES.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let own_types = bpf::load_type_information(&own_types).map_err(&refused)?;
    let map =
        bpf::create_struct_ops_map(MAP_NAME, layout.value, layout.value_bytes, own_types.as_fd())
            .map_err(&refused)?;
    bpf::register(map.as_fd(), &value).map_err(|error| match error.source.raw_os_error() {
        Some(17) => CcError::NameTaken { name: name.to_owned() },
        _ => refused(error),
    })
}

/// Every congestion control that BPF programs have registered, anybody's.
///
/// # Errors
/// No privilege to look (`CAP_SYS_ADMIN`), or the kernel does not describe its types.
pub fn registered() -> Result<Vec<Registered>, CcError> {
    let refused = CcError::of("looking at BPF maps");
    let mut found = Vec::new();
    let mut kernel_bytes = None;
    let mut id = 0;
    for _ in 0..MAPS_MAX {
        let Some(next) = bpf::next_map(id).map_err(&refused)? else { break };
        id = next;
        // A map may go between being listed and being opened.
        let Ok(map) = bpf::open_map(id) else { continue };
        let Ok(info) = bpf::map_info(map.as_fd()) else { continue };
        if !info.is_struct_ops {
            continue;
        }
        if kernel_bytes.is_none() {
            kernel_bytes = Some(kernel_types()?);
        }
        let types = kernel_bytes.as_deref().unwrap_or_default();
        let kernel = Btf::parse(types).map_err(ObjectError::from)?;
        let Some(layout) = Layout::of(&kernel).filter(|known| known.value == info.value_type)
        else {
            continue;
        };
        let Ok(value) = bpf::value(map.as_fd()) else { continue };
        found.extend(read(&layout, &value, info.id, info.name == MAP_NAME));
    }
    Ok(found)
}

/// Takes back a congestion control of ours; connections that use it keep it until they end.
///
/// # Errors
/// It is not ours or gone, or the caller may not.
pub fn unregister(one: &Registered) -> Result<(), CcError> {
    let refused = CcError::of("taking a congestion control back");
    let map = bpf::open_map(one.map).map_err(&refused)?;
    bpf::unregister(map.as_fd()).map_err(&refused)
}

/// What a map's value says; `None` while it was never registered.
fn read(layout: &Layout, value: &[u8], map: u32, is_ours: bool) -> Option<Registered> {
    let (_, place) = layout.member("name")?;
    let name = value.get(place)?.split(|byte| *byte == 0).next()?;
    let name = String::from_utf8_lossy(name).into_owned();
    let users = crate::bytes::word(value, layout.users_offset)?;
    let state = crate::bytes::word(value, layout.users_offset + 4)?;
    let can_be_chosen = state == STATE_IN_USE;
    // The registration itself counts as one.
    let users = users.saturating_sub(u32::from(can_be_chosen));
    (!name.is_empty()).then_some(Registered { map, name, is_ours, users, can_be_chosen })
}

fn put(value: &mut [u8], layout: &Layout, member: &str, bytes: &[u8]) -> Result<(), CcError> {
    let (_, place) = layout.member(member).ok_or(CcError::NoStructOps)?;
    let room = value.get_mut(place).ok_or(CcError::NoStructOps)?;
    room.get_mut(..bytes.len()).ok_or(CcError::NoStructOps)?.copy_from_slice(bytes);
    Ok(())
}

fn kernel_types() -> Result<Vec<u8>, CcError> {
    let mut bytes = Vec::new();
    File::open(KERNEL_TYPES)
        .and_then(|file| file.take(KERNEL_TYPES_BYTES_MAX).read_to_end(&mut bytes))
        .map_err(CcError::NoTypes)?;
    Ok(bytes)
}
