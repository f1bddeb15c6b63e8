//! Descriptors that clients send, kept away from the thread that serves all clients.
//!
//! Nothing can be done with a descriptor of somebody else's that does not take as long as that somebody
//! likes: a file of theirs (FUSE) answers no question before its server does, and to close a TCP socket may
//! mean to wait until its peer has read (`SO_LINGER`). The kernel does such things in the name of whoever
//! receives the descriptor, or closes the connection that it waits in. So the control thread only looks
//! whether a message brings some ([`shm::Socket::peek`]); a thread of its own then receives that message,
//! opens the device they are, and closes what nobody needs. How many such threads a user has at once is
//! bounded; whoever has used up his share waits, and only he.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};

use shm::{Bell, Message, Socket};
use sys::SyscallError;

use super::lent_memory::{LentMemory, LentMemoryError};
use super::session::SessionId;
use crate::attachment::{Ask, MessageError, Request};
use crate::device::{Adopted, DeviceError, Keep};
use crate::panics;

/// Most threads that receive, open or close descriptors of one user at once.
const THREADS_OF_USER_MAX: usize = 8;
/// Most of them together.
const THREADS_MAX: usize = 64;

/// A message that brought descriptors, without those.
#[derive(Debug)]
pub(super) struct ReceivedMessage {
    pub(super) session: SessionId,
    pub(super) content: MessageContent,
}

/// What was in it.
#[derive(Debug)]
pub(super) enum MessageContent {
    /// A request, and what its descriptors are.
    Asked { ask: Box<Ask>, brought: Brought, keep: Keep },
    /// The message is not a request.
    Unreadable(MessageError),
    /// The client has disconnected.
    Closed,
}

/// What descriptors that came with a request turned out to be.
#[derive(Debug, Default)]
pub(super) enum Brought {
    /// Nothing that the request is about.
    #[default]
    Nothing,
    /// The device that it is to add.
    Device(Result<Adopted, DeviceError>),
    /// The memory that it is to attach.
    Memory(Result<LentMemory, LentMemoryError>),
}

/// Threads at work, by user.
type Busy = Arc<Mutex<BTreeMap<u32, usize>>>;

#[derive(Debug)]
pub(super) struct DescriptorThreads {
    busy: Busy,
    arrived: (Sender<ReceivedMessage>, Receiver<ReceivedMessage>),
    bell: Arc<Bell>,
}

impl DescriptorThreads {
    pub(super) fn new() -> Result<Self, SyscallError> {
        let bell = Arc::new(Bell::new()?);
        Ok(Self { busy: Busy::default(), arrived: mpsc::channel(), bell })
    }

    /// Rings when there is a message, or room for another thread.
    pub(super) fn bell(&self) -> &Bell {
        &self.bell
    }

    pub(super) fn arrivals(&self) -> Vec<ReceivedMessage> {
        // The bell is ours alone.
        self.bell.clear().ok();
        self.arrived.1.try_iter().collect()
    }

    /// Receives the next message of a connection; false when this user has all threads that he may have.
    pub(super) fn receive(&self, session: SessionId, user: u32, socket: &Arc<Socket>) -> bool {
        let (socket, tell) = (Arc::clone(socket), self.arrived.0.clone());
        let bell = Arc::clone(&self.bell);
        self.begin(user, move |slot| {
            let (keep, back) = mpsc::channel();
            let unpacked = panics::caught(|| unpack(&socket, Keep::new(keep)));
            let (content, rest) = unpacked.unwrap_or_else(|_| (MessageContent::Closed, Vec::new()));
            // Nobody listens where the daemon ends.
            tell.send(ReceivedMessage { session, content }).ok();
            bell.ring().ok();
            // A device that is not wanted comes back at once; the rest of a wanted one's is kept as long as
            // it is there.
            let refused = slot.rest_during(|| back.recv());
            drop(refused);
            drop(rest);
            drop(socket);
        })
    }

    /// Closes a connection and what waits in it, or gives it back: nobody else may hold it, or whoever lets
    /// go of it last closes it.
    pub(super) fn close(&self, user: u32, socket: Arc<Socket>) -> Option<Arc<Socket>> {
        let here = Arc::new(Mutex::new(Some(socket)));
        let there = Arc::clone(&here);
        let take = |place: &Mutex<Option<Arc<Socket>>>| {
            place.lock().unwrap_or_else(PoisonError::into_inner).take()
        };
        // A thread that could not begin has not taken it.
        if self.begin(user, move |_| drop(take(&there))) { None } else { take(&here) }
    }

    fn begin(&self, user: u32, work: impl FnOnce(&Slot) + Send + 'static) -> bool {
        let Some(slot) = Slot::take(&self.busy, user, &self.bell) else { return false };
        let thread = std::thread::Builder::new().name("descriptors".to_owned());
        // Without a thread the slot is free again, and it is tried anew.
        thread.spawn(move || drop(panics::caught(|| work(&slot)))).is_ok()
    }
}

fn unpack(socket: &Socket, keep: Keep) -> (MessageContent, Vec<OwnedFd>) {
    let (bytes, fds) = match socket.receive() {
        Ok(Message::Received { bytes, fds }) => (bytes, fds),
        Ok(Message::TooLong) => {
            return (MessageContent::Unreadable(MessageError::TooLong), Vec::new());
        }
        Ok(Message::NoDescriptors) => {
            return (MessageContent::Unreadable(MessageError::NoDescriptors), Vec::new());
        }
        Ok(Message::Nothing | Message::Closed) | Err(_) => {
            return (MessageContent::Closed, Vec::new());
        }
    };
    match Request::decode(&bytes) {
        Err(error) => (MessageContent::Unreadable(error), fds),
        Ok(ask) => match &ask {
            Ask::AddDevice { device: kind, .. } | Ask::LendDevice { device: kind, .. } => {
                let (device, rest) = Adopted::open(kind, fds);
                let keep = if rest.is_empty() { Keep::until_accepted(keep) } else { keep };
                let brought = Brought::Device(device);
                (MessageContent::Asked { ask: Box::new(ask), brought, keep }, rest)
            }
            Ask::AttachMemory { .. } => {
                let (memory, rest) = LentMemory::open(fds);
                let (brought, keep) = (Brought::Memory(memory), Keep::default());
                (MessageContent::Asked { ask: Box::new(ask), brought, keep }, rest)
            }
            _ => {
                let (brought, keep) = (Brought::Nothing, Keep::default());
                (MessageContent::Asked { ask: Box::new(ask), brought, keep }, fds)
            }
        },
    }
}

/// A thread's place among those of its user.
struct Slot {
    busy: Busy,
    user: u32,
    bell: Arc<Bell>,
}

impl Slot {
    fn take(busy: &Busy, user: u32, bell: &Arc<Bell>) -> Option<Self> {
        let mut all = busy.lock().unwrap_or_else(PoisonError::into_inner);
        // Whose devices all go at once has more threads than a share: that is nobody else's affair.
        let counted = all.values().map(|&one| one.min(THREADS_OF_USER_MAX)).sum::<usize>();
        if counted >= THREADS_MAX {
            return None;
        }
        let his = all.entry(user).or_default();
        if *his >= THREADS_OF_USER_MAX {
            return None;
        }
        *his += 1;
        drop(all);
        Some(Self { busy: Arc::clone(busy), user, bell: Arc::clone(bell) })
    }

    /// Does not count meanwhile.
    fn rest_during<T>(&self, work: impl FnOnce() -> T) -> T {
        self.count(-1);
        let value = work();
        self.count(1);
        value
    }

    fn count(&self, change: isize) {
        let mut all = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let his = all.entry(self.user).or_default();
        *his = his.saturating_add_signed(change);
        if *his == 0 {
            all.remove(&self.user);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.count(-1);
        // Somebody may wait for the place.
        self.bell.ring().ok();
    }
}
