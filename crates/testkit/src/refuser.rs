//! A daemon that has no ports and refuses everything, with the answers that a test wants.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::socket::socket_path;
use packet_switch::attachment::{Answer, Ask, Health, Request};
use shm::{Listener, Message, Socket};

/// What real refusals say, and nothing. None of it may decide anything.
pub const WORDS: [&str; 6] = [
    "vale0:a is already in use",
    "vale0:a belongs to another user",
    "vale0:a already exists",
    "there is no port vale0:a",
    "vale0:a gehört jemand anderem",
    "",
];

#[derive(Debug)]
pub struct Refuser {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Refuser {
    /// Answers a list with an empty one, and everything else with these bytes.
    pub fn start(name: &str, answer: impl Fn(&Ask) -> Vec<u8> + Send + 'static) -> Self {
        let path = socket_path(name);
        let listener = Listener::bind(&path).expect("nobody else listens");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut clients = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                clients.extend(listener.accept().expect("a descriptor is left"));
                clients.retain(|client| hear(client, &answer));
                std::thread::sleep(Duration::from_micros(500));
            }
        });
        Self { path, stop, thread: Some(thread) }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Refuser {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || matches!(ended, Some(Ok(()))));
    }
}

/// Answers a client that has asked something; false when it has gone.
fn hear(client: &Socket, answer: &impl Fn(&Ask) -> Vec<u8>) -> bool {
    match client.receive() {
        Ok(Message::Received { bytes, .. }) => {
            let answer = match Request::decode(&bytes).expect("a request") {
                Ask::List { .. } => {
                    let health = Health::default();
                    Answer::Listed { entries: Vec::new(), more: false, health }.encode()
                }
                ask => answer(&ask),
            };
            client.send(&answer, &[]).is_ok()
        }
        Ok(Message::Nothing) => true,
        _ => false,
    }
}
