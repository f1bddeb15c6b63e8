//! The server's side of QEMU's ivshmem protocol (`docs/specs/ivshmem-spec.txt` of QEMU), for one guest.
//!
//! It is a stream of 8-byte numbers over a UNIX socket, some with a descriptor. The host is peer 0, the guest peer 1 and in the
//! memory of a trust group 1 + its seat: the device tells the guest, which finds its rings by that number. The guest rings
//! doorbell `v` of the host through the host's descriptor `v`; the host interrupts the guest through the guest's.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread;

use ports::vm::Listener;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use sys::SyscallError;

use crate::VmError;

const PROTOCOL_VERSION: i64 = 0;
const HOST: i64 = 0;
/// The guest at the first seat.
const GUEST: i64 = 1;
/// Comes with the memory.
const MEMORY: i64 = -1;

/// What a guest's device is made of.
#[derive(Debug)]
pub(crate) struct Descriptors {
    /// Its memory, whose length is a power of two.
    pub(crate) memory: OwnedFd,
    /// The guest's seat there.
    pub(crate) seat: u8,
    /// Eventfds that the guest signals.
    pub(crate) doorbells: Vec<OwnedFd>,
    /// Eventfds that interrupt the guest, as many.
    pub(crate) interrupts: Vec<OwnedFd>,
}

impl Descriptors {
    /// All that QEMU is told, in order.
    fn messages(&self) -> Vec<(i64, Option<BorrowedFd<'_>>)> {
        let guest = GUEST + i64::from(self.seat);
        let mut all =
            vec![(PROTOCOL_VERSION, None), (guest, None), (MEMORY, Some(self.memory.as_fd()))];
        all.extend(self.doorbells.iter().map(|fd| (HOST, Some(fd.as_fd()))));
        all.extend(self.interrupts.iter().map(|fd| (guest, Some(fd.as_fd()))));
        all
    }
}

/// Serves the socket at `path` from now on, one hypervisor after the other, by a thread that ends with the process. The
/// file stays; a socket of this user's that nobody serves any more is replaced.
///
/// # Errors
/// The socket cannot be made, or no thread.
pub(crate) fn serve(path: &Path, device: Descriptors) -> Result<(), VmError> {
    let listener = UnixListener::from(OwnedFd::from(Listener::bind(path)?));
    listener.set_nonblocking(false).map_err(VmError::file("listen at", path))?;
    thread::Builder::new()
        .name("ivshmem".to_owned())
        .spawn(move || {
            for socket in listener.incoming().flatten() {
                // A hypervisor that goes meanwhile is followed by the next, if any.
                attend(&socket, &device).ok();
            }
        })
        .map_err(|error| SyscallError::new("clone", "thread", error))?;
    Ok(())
}

/// Returns when the hypervisor has gone.
fn attend(mut socket: &UnixStream, device: &Descriptors) -> io::Result<()> {
    for (number, fd) in device.messages() {
        send(socket, number, fd)?;
    }
    // It has nothing to say.
    io::copy(&mut socket, &mut io::sink()).map(drop)
}

fn send(socket: &UnixStream, number: i64, fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = fd.map(|fd| [fd]);
    if let Some(fds) = &fds {
        // There is room for one.
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    let bytes = number.to_le_bytes();
    let sent =
        rustix::net::sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
    // The receiver reads at once: the socket has room for all messages, and none is torn.
    if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

#[cfg(test)]
mod tests {
    use std::io::IoSliceMut;

    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
    use shm::{Bell, Region};

    use super::*;

    /// The next number, as QEMU reads it, and what came with it.
    fn receive(socket: &UnixStream) -> (i64, Option<OwnedFd>) {
        let mut bytes = [0; 8];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let into = &mut [IoSliceMut::new(&mut bytes)];
        let got = rustix::net::recvmsg(socket, into, &mut control, RecvFlags::WAITALL).unwrap();
        assert_eq!(got.bytes, 8);
        let fd = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        (i64::from_le_bytes(bytes), fd)
    }

    #[test]
    fn a_hypervisor_gets_version_number_memory_doorbells_and_interrupts() {
        let region = Region::create("test", 8 << 20).unwrap();
        let doorbells = [Bell::new().unwrap(), Bell::new().unwrap()];
        let interrupts = [Bell::new().unwrap(), Bell::new().unwrap()];
        let own = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().unwrap();
        let all = |bells: &[Bell]| bells.iter().map(|bell| own(bell.as_fd())).collect();
        let device = Descriptors {
            memory: own(region.fd().unwrap()),
            seat: 2,
            doorbells: all(&doorbells),
            interrupts: all(&interrupts),
        };
        let folder = sys::private::Scratch::new("ivshmem").unwrap();
        let path = folder.path().join("socket");
        serve(&path, device).unwrap();
        // One that comes after another has gone is served alike.
        for _ in 0..2 {
            let socket = UnixStream::connect(&path).unwrap();
            assert!(matches!(receive(&socket), (0, None)), "the protocol's version");
            assert!(matches!(receive(&socket), (3, None)), "its own number");
            let (number, memory) = receive(&socket);
            assert_eq!(number, -1);
            assert_eq!(Region::attach(memory.unwrap()).unwrap().length_bytes(), 8 << 20);
            for (whose, bells) in [(0, &doorbells), (3, &interrupts)] {
                for bell in bells {
                    let (number, fd) = receive(&socket);
                    assert_eq!(number, whose);
                    Bell::from_fd(fd.unwrap()).ring().unwrap();
                    assert!(bell.wait(None).unwrap(), "in their order");
                }
            }
        }
    }
}
