//! Running under a service manager: adopting its sockets and notifying it.

use std::env;
use std::io;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram};

use rustix::process::getpid;
use sys::process::duplicate_by_number;

use super::ServerError;

/// First inherited descriptor (`SD_LISTEN_FDS_START`, sd_listen_fds(3)).
const FIRST_FD: i32 = 3;
/// Upper bound on inherited sockets: more than one port needs in all protocols and families.
const SOCKETS_MAX: i32 = 64;

/// The sockets that a service manager passed to this process; none without such a manager.
pub(super) fn inherited_sockets() -> Result<Vec<OwnedFd>, ServerError> {
    let number = |name| env::var(name).ok().and_then(|text| text.parse::<i32>().ok());
    let for_us = number("LISTEN_PID") == Some(getpid().as_raw_nonzero().get());
    let count = number("LISTEN_FDS").unwrap_or(0);
    if !for_us || count <= 0 {
        return Ok(Vec::new());
    }
    if count > SOCKETS_MAX {
        return Err(ServerError::Inherited(format!("LISTEN_FDS={count}")));
    }
    // Duplicate them: the numbers are only a claim of the environment, and a descriptor may belong
    // to another part of this process.
    duplicate_by_number(FIRST_FD..FIRST_FD + count)
        .map_err(|error| ServerError::Inherited(error.source.to_string()))
}

/// Tells the service manager, if there is one, that the server is ready (`READY=1`, sd_notify(3)).
///
/// # Errors
/// There is a service manager, but the notification cannot be sent.
pub fn notify_ready() -> io::Result<()> {
    let Some(name) = env::var_os("NOTIFY_SOCKET") else { return Ok(()) };
    let name = name.into_encoded_bytes();
    let address = match name.split_first() {
        Some((b'@', rest)) => UnixAddress::from_abstract_name(rest)?,
        _ => UnixAddress::from_pathname(String::from_utf8_lossy(&name).as_ref())?,
    };
    UnixDatagram::unbound()?.send_to_addr(b"READY=1\n", &address)?;
    Ok(())
}
