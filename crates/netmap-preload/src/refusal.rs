//! netmap's error numbers for what the switch refuses.

use packet_switch::attachment::RefusalCode;
use rustix::io::Errno;

/// The error number that stands for a refusal; none where only the caller knows which is usual.
#[must_use]
pub fn errno(code: RefusalCode) -> Option<Errno> {
    match code {
        RefusalCode::NotThere => Some(Errno::NXIO),
        RefusalCode::Exists => Some(Errno::EXIST),
        RefusalCode::Taken | RefusalCode::Busy => Some(Errno::BUSY),
        RefusalCode::NotOwner => Some(Errno::PERM),
        RefusalCode::Limit => Some(Errno::NOMEM),
        RefusalCode::Invalid => Some(Errno::INVAL),
        RefusalCode::Device | RefusalCode::System => Some(Errno::IO),
        RefusalCode::Malformed | RefusalCode::Version | RefusalCode::Other => None,
    }
}
