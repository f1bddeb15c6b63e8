//! Events and the state file, written by a thread of their own.

use std::io::Write;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use liveness::states::{Event, EventKind};
use serde::Serialize;

use crate::link::unix_us;
use crate::state_file::StateFile;

/// Events that wait for a slow disk or pipe; more are dropped and counted.
const WAITING_COUNT_MAX: usize = 1024;

enum Work {
    Line(String),
    State(StateFile),
}

/// One line of the event stream: JSON, ended by a newline.
#[derive(Debug, Serialize)]
struct Line<'a> {
    /// Seconds since 1970, to the millisecond.
    unix_s: f64,
    plan: &'a str,
    /// Name of the gateway that the event is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    /// Events that were lost before this one: whoever reads them was too slow.
    #[serde(skip_serializing_if = "is_zero")]
    lost_count: u64,
    #[serde(flatten)]
    event: &'a Event,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Writes events as newline-delimited JSON and keeps the state file up to date, without ever making the
/// watcher wait.
#[derive(Debug)]
pub struct Recorder {
    sender: Option<SyncSender<Work>>,
    thread: Option<JoinHandle<()>>,
    plan: String,
    lost_count: u64,
}

impl Recorder {
    /// Begins to write: events to `events`, the state to a file of that name.
    ///
    /// # Errors
    /// No thread is to be had.
    pub fn start(
        plan: &str,
        events: Box<dyn Write + Send>,
        state_file: Option<PathBuf>,
    ) -> std::io::Result<Self> {
        let (sender, receiver) = sync_channel(WAITING_COUNT_MAX);
        let body = move || write_all(&receiver, events, state_file);
        let thread = std::thread::Builder::new().name("recorder".to_owned()).spawn(body)?;
        let plan = plan.to_owned();
        Ok(Self { sender: Some(sender), thread: Some(thread), plan, lost_count: 0 })
    }

    /// Writes an event; `names` are the gateways' in the plan's order.
    pub(crate) fn event(&mut self, event: &Event, names: &[String]) {
        let gateway = match &event.kind {
            EventKind::State { gateway, .. }
            | EventKind::HoldDownCutShort { gateway }
            | EventKind::Bfd { gateway, .. }
            | EventKind::PathMtu { gateway, .. } => names.get(usize::from(*gateway)),
            _other => None,
        };
        let line = Line {
            unix_s: (unix_us() / 1000) as f64 / 1000.0,
            plan: &self.plan,
            name: gateway.map(String::as_str),
            lost_count: self.lost_count,
            event,
        };
        let Ok(mut text) = serde_json::to_string(&line) else { return };
        text.push('\n');
        if self.hand_over(Work::Line(text)) {
            self.lost_count = 0;
        } else {
            self.lost_count += 1;
        }
    }

    /// Writes that something could not be done.
    pub(crate) fn complaint(&mut self, text: &str) {
        let unix_s = (unix_us() / 1000) as f64 / 1000.0;
        let plan = &self.plan;
        let line = serde_json::json!({
            "unix_s": unix_s, "plan": plan, "event": "complaint", "text": text
        });
        if !self.hand_over(Work::Line(format!("{line}\n"))) {
            self.lost_count += 1;
        }
    }

    pub(crate) fn state(&self, state: StateFile) {
        // A state that is lost here is followed by another with the next event.
        self.hand_over(Work::State(state));
    }

    fn hand_over(&self, work: Work) -> bool {
        let Some(sender) = &self.sender else { return false };
        !matches!(sender.try_send(work), Err(TrySendError::Full(_) | TrySendError::Disconnected(_)))
    }
}

impl Drop for Recorder {
    /// What was handed over is written.
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

fn write_all(
    receiver: &Receiver<Work>,
    mut events: Box<dyn Write + Send>,
    state_file: Option<PathBuf>,
) {
    while let Ok(first) = receiver.recv() {
        let mut newest = None;
        // Of several states only the newest is written.
        for work in std::iter::once(first).chain(receiver.try_iter()) {
            match work {
                Work::Line(line) => {
                    // A reader that is gone, or a full disk, does not end the watcher.
                    events.write_all(line.as_bytes()).ok();
                }
                Work::State(state) => newest = Some(state),
            }
        }
        events.flush().ok();
        if let (Some(path), Some(state)) = (&state_file, newest)
            && let Ok(text) = serde_json::to_string_pretty(&state)
        {
            sys::durable::replace(path, text.as_bytes()).ok();
        }
    }
}
