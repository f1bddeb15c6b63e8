//! What clients say, and how they are left.

use std::sync::Arc;
use std::time::{Duration, Instant};

use shm::{Message, Socket, Waiting};

use super::descriptor_threads::{Brought, MessageContent, ReceivedMessage};
use super::refusal::{self, Refusal};
use super::registry::Asked;
use super::session::{SessionId, State};
use super::{Daemon, Notice};
use crate::attachment::{Answer, Ask, Delivery, MessageError, RefusalCode, Request};
use crate::device::Keep;
use crate::panics::{self, printable};

/// How long descriptors wait for a thread to receive them before their sender is told to go.
const WAITS_MAX: Duration = Duration::from_secs(2);

/// Longest answer that says no, characters.
const WHY_MAX: usize = 400;

/// Messages that are thrown away for a client that is left. More fit no socket unless its owner is root.
const LEFT_OVER_MAX: usize = 4096;

impl Daemon {
    /// Hears a connection that has something to say.
    pub(super) fn serve(&mut self, id: SessionId, notice: &mut dyn FnMut(Notice)) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if session.state != State::Ready {
            // Only its end is listened for.
            return self.close(id, notice);
        }
        match session.socket.peek() {
            Ok(Waiting::Nothing) => {}
            Ok(Waiting::Plain) => self.serve_plain(id, notice),
            Ok(Waiting::WithDescriptors) => {
                session.state = State::Waiting(Instant::now());
                self.try_one(id, notice);
            }
            Ok(Waiting::Closed) | Err(_) => self.close(id, notice),
        }
    }

    fn serve_plain(&mut self, id: SessionId, notice: &mut dyn FnMut(Notice)) {
        let Some(session) = self.sessions.get(&id) else { return };
        let bytes = match session.socket.receive() {
            Ok(Message::Received { bytes, .. }) => Ok(bytes),
            Ok(Message::TooLong) => Err(MessageError::TooLong),
            Ok(Message::NoDescriptors) => Err(MessageError::NoDescriptors),
            Ok(Message::Nothing) => return,
            Ok(Message::Closed) | Err(_) => return self.close(id, notice),
        };
        let ask = bytes.and_then(|bytes| Request::decode(&bytes));
        self.answer(id, ask, Brought::Nothing, Keep::default(), notice);
    }

    /// A message that brought descriptors, which have been dealt with.
    pub(super) fn handle_received(
        &mut self,
        message: ReceivedMessage,
        notice: &mut dyn FnMut(Notice),
    ) {
        let ReceivedMessage { session: id, content } = message;
        if let Some(session) = self.sessions.get_mut(&id) {
            session.state = State::Ready;
        }
        match content {
            MessageContent::Asked { ask, brought, keep } if self.sessions.contains_key(&id) => {
                self.answer(id, Ok(*ask), brought, keep, notice);
            }
            // Who asked has gone meanwhile.
            MessageContent::Asked { brought: Brought::Device(Ok(device)), keep, .. } => {
                keep.refuse(device);
            }
            MessageContent::Asked { .. } => {}
            MessageContent::Unreadable(error) => {
                self.answer(id, Err(error), Brought::Nothing, Keep::default(), notice)
            }
            MessageContent::Closed => self.close(id, notice),
        }
    }

    fn answer(
        &mut self,
        id: SessionId,
        ask: Result<Ask, MessageError>,
        brought: Brought,
        keep: Keep,
        notice: &mut dyn FnMut(Notice),
    ) {
        let Some(session) = self.sessions.get(&id) else { return };
        let user = session.user;
        if matches!(ask, Ok(Ask::List { .. })) {
            // It says what is so now, and not what was at the last look.
            self.count_refused_calls(notice);
        }
        let delivery = ask
            .map_err(|error| (error.code(), error.to_string()))
            .and_then(|ask| {
                let asked = Asked { session: id, user, ask, brought, keep };
                let refused = |error: Refusal| (error.code(), refusal::words(&error));
                self.registry.answer(asked, notice).map_err(refused)
            })
            .unwrap_or_else(|(code, why)| {
                // Some of it is what the client wrote, and is shown on terminals.
                let why = printable(&why, WHY_MAX);
                notice(Notice::Refused { user, why: why.clone() });
                Delivery::from(Answer::refused(code, why))
            });
        // A client that does not read its answers is not waited for.
        if !self.sessions.get(&id).is_some_and(|session| session.tell(&delivery)) {
            self.close(id, notice);
        }
    }

    /// Finds threads for those whose descriptors wait for one.
    pub(super) fn try_again(&mut self, notice: &mut dyn FnMut(Notice)) {
        let waits = |state| matches!(state, State::Waiting(_));
        let waiting = self.sessions.iter().filter(|(_, session)| waits(session.state));
        let waiting: Vec<SessionId> = waiting.map(|(id, _)| *id).collect();
        waiting.into_iter().for_each(|id| self.try_one(id, notice));
        self.close_later();
    }

    fn try_one(&mut self, id: SessionId, notice: &mut dyn FnMut(Notice)) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let (State::Waiting(since), user) = (session.state, session.user) else { return };
        if self.descriptor_threads.receive(id, user, &session.socket) {
            session.state = State::Busy;
        } else if since.elapsed() > WAITS_MAX {
            let why = "your earlier descriptors are still being opened or closed; connect later"
                .to_owned();
            notice(Notice::Refused { user, why: why.clone() });
            session.tell(&Answer::refused(RefusalCode::Busy, why).into());
            self.close(id, notice);
        }
    }

    pub(super) fn close(&mut self, id: SessionId, notice: &mut dyn FnMut(Notice)) {
        if let Some(session) = self.sessions.remove(&id) {
            self.let_go(session.socket);
        }
        self.registry.leave(id, notice);
    }

    /// As [`close`](Self::close), of a connection in whose service something failed.
    pub(super) fn end(&mut self, id: SessionId, notice: &mut dyn FnMut(Notice)) {
        if let Err(why) = panics::caught(|| self.close(id, notice)) {
            notice(Notice::Fault { what: format!("closing connection {id}"), why });
        }
    }

    /// Closes a connection, whatever its client has put into it that nobody has received: descriptors among
    /// that are closed by a thread of their own.
    pub(super) fn let_go(&mut self, socket: Arc<Socket>) {
        // Where that fails the other end has gone, or nothing was ever said.
        socket.shutdown().ok();
        for _ in 0..LEFT_OVER_MAX {
            match socket.peek() {
                Ok(Waiting::Plain) => drop(socket.receive()),
                Ok(Waiting::Closed) => return,
                Ok(Waiting::Nothing | Waiting::WithDescriptors) | Err(_) => break,
            }
        }
        let user = socket.peer_user().unwrap_or(u32::MAX);
        let left = self.descriptor_threads.close(user, socket);
        self.closing.extend(left.map(|socket| (user, socket)));
    }

    /// Finds threads to close what is left.
    pub(super) fn close_later(&mut self) {
        // One after the other: a panic must not close the others here and now, which may take for ever.
        for _ in 0..self.closing.len() {
            let Some((user, socket)) = self.closing.pop_front() else { return };
            let left = self.descriptor_threads.close(user, socket);
            self.closing.extend(left.map(|socket| (user, socket)));
        }
    }
}

impl Drop for Daemon {
    /// What cannot be closed here and now ends with the process.
    fn drop(&mut self) {
        for (_, session) in std::mem::take(&mut self.sessions) {
            self.let_go(session.socket);
        }
        self.closing.drain(..).for_each(std::mem::forget);
        // The last handle of the listener would close what waits to be accepted, here and now.
        std::mem::forget(self.spare.take());
    }
}
