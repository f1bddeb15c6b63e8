//! What a guest says while it measures, and the processor time that its host spends meanwhile.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use results::TestOutcome;
use sys::process::cpu_time;

use crate::exit::VerbError;
use crate::tester::Answer;

/// What a guest's script says at both ends of the time that counts.
pub(super) const MARK: &str = "@mark";

/// Longest line of a guest that is kept, bytes: an account of a test is a hundredth of it.
const LINE_BYTES_MAX: usize = 4 << 20;

/// What is read at a moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reading {
    pub(super) at: Instant,
    /// Processor time of the guests' QEMUs so far.
    pub(super) qemu: Duration,
    /// The same of the switch and of the guests' keepers.
    pub(super) switch: Duration,
    /// Frames that the host has received of the guests so far.
    pub(super) pkts: u64,
}

/// Between the first and the last reading.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Window {
    pub(super) seconds: f64,
    pub(super) qemu: Duration,
    pub(super) switch: Duration,
    pub(super) pkts: u64,
}

impl Window {
    /// Processor time in a second of QEMU, and of switch and keepers, cores.
    pub(super) fn cores(&self) -> (f64, f64) {
        let cores = |time: Duration| time.as_secs_f64() / self.seconds;
        (cores(self.qemu), cores(self.switch))
    }

    fn between(first: Reading, last: Reading) -> Self {
        Self {
            seconds: (last.at - first.at).as_secs_f64(),
            qemu: last.qemu.saturating_sub(first.qemu),
            switch: last.switch.saturating_sub(first.switch),
            pkts: last.pkts.saturating_sub(first.pkts),
        }
    }
}

/// Processor time of these processes so far; one that has ended counts nothing.
pub(super) fn cpu_of(pids: &[i32]) -> Duration {
    pids.iter().filter_map(|pid| cpu_time(*pid)).sum()
}

/// Hears what a guest says, line by line, and reads the meters with every report of an interval and every mark.
pub(super) struct Listener<'a> {
    read: &'a dyn Fn() -> Reading,
    line: Vec<u8>,
    first: Option<Reading>,
    last: Option<Reading>,
    outcome: Option<TestOutcome>,
    /// The last line that is none of ours, or an error of the process in the guest.
    said: Option<VerbError>,
}

impl<'a> Listener<'a> {
    pub(super) fn new(read: &'a dyn Fn() -> Reading) -> Self {
        Self { read, line: Vec::new(), first: None, last: None, outcome: None, said: None }
    }

    fn hear(&mut self) {
        let line = std::mem::take(&mut self.line);
        let text = String::from_utf8_lossy(&line);
        let text = text.trim();
        if text == MARK {
            return self.mark();
        }
        match serde_json::from_str(text) {
            Ok(Answer::Rate(_)) => self.mark(),
            Ok(Answer::Outcome(outcome)) => self.outcome = Some(*outcome),
            Ok(Answer::Failed { code, why }) => self.said = Some(VerbError::of_code(code, why)),
            _ if text.is_empty() => {}
            _ => self.said = Some(VerbError::failed(units::printable(text))),
        }
    }

    fn mark(&mut self) {
        let reading = (self.read)();
        self.first.get_or_insert(reading);
        self.last = Some(reading);
    }

    /// The window between the marks.
    ///
    /// # Errors
    /// There are no two; with what the guest said instead.
    pub(super) fn window(&mut self) -> Result<Window, VerbError> {
        match (self.first, self.last) {
            (Some(first), Some(last)) if last.at > first.at => Ok(Window::between(first, last)),
            _ => Err(self.complaint()),
        }
    }

    /// The account of the test.
    ///
    /// # Errors
    /// There is none; with what the guest said instead.
    pub(super) fn outcome(&mut self) -> Result<TestOutcome, VerbError> {
        let outcome = self.outcome.take();
        outcome.ok_or_else(|| self.complaint())
    }

    fn complaint(&mut self) -> VerbError {
        self.said
            .take()
            .unwrap_or_else(|| VerbError::failed("the guest reported nothing about its test"))
    }
}

impl Write for Listener<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for &byte in bytes {
            if byte == b'\n' {
                self.hear();
            } else if self.line.len() < LINE_BYTES_MAX {
                self.line.push(byte);
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn processor_time_is_that_between_the_first_and_the_last_report() {
        let (began, count) = (Instant::now(), Cell::new(0_u32));
        let read = || {
            count.set(count.get() + 1);
            Reading {
                at: began + Duration::from_secs(u64::from(count.get())),
                qemu: Duration::from_secs(10) * count.get(),
                switch: Duration::from_secs(1) * count.get(),
                pkts: 100 * u64::from(count.get()),
            }
        };
        let mut listener = Listener::new(&read);
        let outcome =
            Answer::Outcome(Box::new(TestOutcome { duration_s: 2.0, ..TestOutcome::default() }));
        let outcome = serde_json::to_string(&outcome).unwrap();
        let said = format!("{{\"Rate\":1.0}}\r\n{{\"Rate\":2.0}}\n{MARK}\n{outcome}\n");
        // As a serial line has it: torn anywhere.
        for piece in said.as_bytes().chunks(7) {
            listener.write_all(piece).unwrap();
        }
        let window = listener.window().unwrap();
        let second = Duration::from_secs(1);
        assert_eq!((window.qemu, window.switch, window.pkts), (20 * second, 2 * second, 200));
        assert_eq!(window.cores(), (10.0, 1.0));
        assert_eq!(listener.outcome().unwrap().duration_s, 2.0);
    }

    #[test]
    fn what_a_guest_says_instead_of_a_test_is_the_error() {
        let read = || Reading {
            at: Instant::now(),
            qemu: Duration::ZERO,
            switch: Duration::ZERO,
            pkts: 0,
        };
        let mut listener = Listener::new(&read);
        listener.write_all(b"sh: clearstream: not found\n\n").unwrap();
        let error = listener.window().unwrap_err();
        assert_eq!(error.to_string(), "sh: clearstream: not found");
        let failed = Answer::Failed { code: 4, why: "no listener".to_owned() };
        let failed = serde_json::to_string(&failed).unwrap();
        listener.write_all(format!("{failed}\n").as_bytes()).unwrap();
        let error = listener.outcome().unwrap_err();
        assert_eq!((error.code(), error.to_string()), (4, "no listener".to_owned()));
    }
}
