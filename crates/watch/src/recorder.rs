//! Events, the state file and metrics, written by a thread of their own.

use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use liveness::states::Event;

use crate::lines::{self, Form, Place};
use crate::link::unix_us;
use crate::metrics_server::Published;
use crate::state_file::StateFile;

/// Events that wait for a slow disk or pipe; more are dropped and counted.
const WAITING_COUNT_MAX: usize = 1024;
/// How long what was handed over may take at the end.
const LAST_WORDS: Duration = Duration::from_secs(1);

enum Work {
    Line(String),
    State(StateFile),
    Metrics(String),
}

/// Where a recorder writes.
pub struct Records {
    /// Where events are written.
    pub events: Box<dyn Write + Send>,
    /// How events are written.
    pub form: Form,
    /// What the watcher knows, for the one that follows it.
    pub state_file: Option<PathBuf>,
    /// OpenMetrics text, replaced every few seconds and when a state changes.
    pub metrics_file: Option<PathBuf>,
    /// The same for a listener.
    pub published: Option<Published>,
}

impl Records {
    /// Events as JSON, nothing else.
    #[must_use]
    pub fn of_events(events: Box<dyn Write + Send>) -> Self {
        let form = Form::Json;
        Self { events, form, state_file: None, metrics_file: None, published: None }
    }
}

impl fmt::Debug for Records {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Records").field("form", &self.form).finish_non_exhaustive()
    }
}

/// Writes events and keeps the state file and the metrics up to date, without ever making the watcher wait.
#[derive(Debug)]
pub struct Recorder {
    sender: Option<SyncSender<Work>>,
    thread: Option<JoinHandle<()>>,
    plan: String,
    form: Form,
    has_metrics: bool,
    lost_count: u64,
}

impl Recorder {
    /// Begins to write.
    ///
    /// # Errors
    /// No thread is to be had.
    pub fn start(plan: &str, records: Records) -> std::io::Result<Self> {
        let (sender, receiver) = sync_channel(WAITING_COUNT_MAX);
        let form = records.form;
        let has_metrics = records.metrics_file.is_some() || records.published.is_some();
        let writer = Writer { records, plan: plan.to_owned(), refused: String::new() };
        let body = move || writer.write_all(&receiver);
        let thread = std::thread::Builder::new().name("recorder".to_owned()).spawn(body)?;
        let (sender, thread, plan) = (Some(sender), Some(thread), plan.to_owned());
        Ok(Self { sender, thread, plan, form, has_metrics, lost_count: 0 })
    }

    /// Writes an event; `names` are the gateways' in the plan's order.
    pub(crate) fn event(&mut self, event: &Event, names: &[String]) {
        if let Some(line) = lines::of_event(self.form, &self.place(names), event) {
            self.line(line);
        }
    }

    /// Writes that something could not be done.
    pub fn complaint(&mut self, text: &str) {
        self.line(lines::of_complaint(self.form, &self.place(&[]), text));
    }

    fn place<'a>(&'a self, names: &'a [String]) -> Place<'a> {
        Place { plan: &self.plan, names, unix_us: unix_us(), lost_count: self.lost_count }
    }

    fn line(&mut self, line: String) {
        if self.hand_over(Work::Line(line)) {
            self.lost_count = 0;
        } else {
            self.lost_count += 1;
        }
    }

    /// Whether anybody wants metrics.
    pub(crate) fn has_metrics(&self) -> bool {
        self.has_metrics
    }

    pub(crate) fn metrics(&self, text: String) {
        // What is lost here is followed by newer figures.
        self.hand_over(Work::Metrics(text));
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
    /// What was handed over is written, unless a disk or a pipe takes longer than a second.
    fn drop(&mut self) {
        self.sender = None;
        let Some(thread) = self.thread.take() else { return };
        let until = Instant::now() + LAST_WORDS;
        while !thread.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
        if thread.is_finished() {
            thread.join().ok();
        }
    }
}

/// The end of a recorder that waits for disks and pipes.
struct Writer {
    records: Records,
    plan: String,
    /// What was said last of files that could not be written.
    refused: String,
}

impl Writer {
    fn write_all(mut self, receiver: &Receiver<Work>) {
        while let Ok(first) = receiver.recv() {
            let (mut state, mut metrics) = (None, None);
            // Of several states only the newest is written.
            for work in std::iter::once(first).chain(receiver.try_iter()) {
                match work {
                    Work::Line(line) => self.line(&line),
                    Work::State(newest) => state = Some(newest),
                    Work::Metrics(newest) => metrics = Some(newest),
                }
            }
            self.records.events.flush().ok();
            let state = state.and_then(|state| serde_json::to_string_pretty(&state).ok());
            let has_new = state.is_some() || metrics.is_some();
            let mut refused = Vec::new();
            refused.extend(replaced(self.records.state_file.as_deref(), state.as_deref()));
            refused.extend(replaced(self.records.metrics_file.as_deref(), metrics.as_deref()));
            if let (Some(published), Some(metrics)) = (&self.records.published, metrics) {
                published.set(metrics);
            }
            if has_new {
                self.complain(refused.join("; "));
            }
        }
    }

    fn line(&mut self, line: &str) {
        // A reader that is gone, or a full disk, does not end the watcher.
        self.records.events.write_all(line.as_bytes()).ok();
    }

    /// Says once what could not be written, and again when it has been possible meanwhile.
    fn complain(&mut self, refused: String) {
        if !refused.is_empty() && refused != self.refused {
            let place = Place { plan: &self.plan, names: &[], unix_us: unix_us(), lost_count: 0 };
            let line = lines::of_complaint(self.records.form, &place, &refused);
            self.line(&line);
            self.records.events.flush().ok();
        }
        self.refused = refused;
    }
}

/// Replaces a file, if there is one and something new; why it could not be.
fn replaced(path: Option<&Path>, text: Option<&str>) -> Option<String> {
    let (path, text) = path.zip(text)?;
    let refused = sys::durable::replace(path, text.as_bytes()).err()?;
    Some(format!("{refused}: {}", refused.source))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Text(Arc<Mutex<Vec<u8>>>);

    impl Write for Text {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn files_that_cannot_be_written_are_named_once() {
        let text = Text::default();
        let records = Records {
            // There is no folder below a device.
            state_file: Some(PathBuf::from("/dev/null/state.json")),
            ..Records::of_events(Box::new(text.clone()))
        };
        let recorder = Recorder::start("p", records).unwrap();
        let state = || StateFile { plan: "p".to_owned(), unix_s: 1, gateways: Vec::new() };
        recorder.state(state());
        recorder.state(state());
        drop(recorder);
        let said = String::from_utf8(text.0.lock().unwrap().clone()).unwrap();
        assert!(said.contains("/dev/null/state.json: cannot open its folder: Not a"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}
