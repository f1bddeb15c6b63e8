//! Letting go of what takes long to let go of: memory of gigabytes, sockets of devices.
//!
//! Unmapping a region whose other users have gone gives its pages back one by one, and the end of an
//! `AF_XDP` socket or a TAP device waits for every core (`synchronize_net`). Neither is for a thread on
//! which others wait, so a thread of its own does it.

use std::any::Any;
use std::sync::mpsc::{self, Sender};

use crate::panics;

/// Hands things to the thread that lets go of them; without one they go at once.
#[derive(Debug, Default, Clone)]
pub(crate) struct DeferredDrop {
    sender: Option<Sender<Box<dyn Any + Send>>>,
}

impl DeferredDrop {
    /// Begins the thread, which may do what the calling one may, and ends with the last handle.
    pub(crate) fn begin() -> Self {
        let (sender, receiver) = mpsc::channel::<Box<dyn Any + Send>>();
        let thread = std::thread::Builder::new().name("letting go".to_owned()).spawn(move || {
            while let Ok(one) = receiver.recv() {
                // What cannot even go in order is gone all the same.
                panics::caught(|| drop(one)).ok();
            }
        });
        Self { sender: thread.is_ok().then_some(sender) }
    }

    /// Lets go of it, soon.
    pub(crate) fn drop_later(&self, what: Box<dyn Any + Send>) {
        if let Some(sender) = &self.sender {
            // The thread ends only with the last sender.
            sender.send(what).ok();
        }
    }
}
