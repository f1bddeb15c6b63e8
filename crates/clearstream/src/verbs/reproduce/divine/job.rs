//! The model checker as an MPI job on two hosts of a lab, and its traffic on their interfaces.
//!
//! A launcher inside the lab cannot reach the lab's other hosts, and one outside cannot reach its networks.
//! So the launcher runs on the first host, and each host's part is started from here ([`crew::ManualJob`]).

use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use crew::{ManualJob, ManualJobError};
use results::DeviceCounters;
use serde_json::Value;
use sys::process::{Ending, Owned};

use crate::bed::TestBed;
use crate::exit::VerbError;
use crate::signals;

/// Prefix of a command that makes MPICH (UCX) use the lab's link instead of shared memory.
const ENVIRONMENT: [&str; 3] = ["env", "UCX_TLS=tcp", "UCX_NET_DEVICES=eth0"];

/// Sampling interval of both ends' counters.
const SAMPLE_EVERY: Duration = Duration::from_millis(250);

/// Longest time for a job; one that takes longer hangs.
const JOB_MAX: Duration = Duration::from_secs(120);

/// Longest time for a link to come up; the kernel waits a second after a change.
const LINK_MAX: Duration = Duration::from_secs(5);

/// Bytes to read of a link's state, which is a single word.
const STATE_BYTES_MAX: usize = 64;

/// Attempts to start a job, because launchers occasionally fail in a race with their own processes.
const ATTEMPTS: u32 = 3;

/// Result of one search over the path.
#[derive(Debug, Clone, Copy)]
pub(super) struct Search {
    pub(super) states_count: f64,
    pub(super) seconds: f64,
    /// Bytes that the near end sent, by its interface's counter.
    pub(super) near_sent_bytes: f64,
    /// Bytes that the far end sent, by its interface's counter.
    pub(super) far_sent_bytes: f64,
    /// Highest rate that both ends sent together in a sample, bit/s.
    pub(super) peak_bits_per_s: f64,
}

impl Search {
    pub(super) fn states_per_s(&self) -> f64 {
        self.states_count / self.seconds
    }

    /// Mean rate over the search, both directions together, bit/s.
    pub(super) fn bits_per_s(&self) -> f64 {
        (self.near_sent_bytes + self.far_sent_bytes) * 8.0 / self.seconds
    }
}

/// The launcher installed here.
pub(super) fn launcher() -> Result<&'static str, VerbError> {
    crew::manual_launcher().ok_or_else(|| {
        VerbError::missing("the lab's MPI jobs need MPICH's launcher (package mpich)")
    })
}

/// Searches a model with one rank on each of the lab's two hosts; calls `while_running` repeatedly meanwhile.
pub(super) fn search(
    bed: &TestBed,
    launcher: &str,
    model: &Path,
    while_running: &mut dyn FnMut() -> Result<(), VerbError>,
) -> Result<Search, VerbError> {
    for host in [bed.near(), bed.far()] {
        wait_for_link(bed, host)?;
    }
    let mut why = String::new();
    for _ in 0..ATTEMPTS {
        match attempt(bed, launcher, model, while_running)? {
            Ok(search) => return Ok(search),
            Err(reason) => why = reason,
        }
        if let Some(number) = signals::caught() {
            return Err(VerbError::failed(format!("ended by signal {number}")));
        }
    }
    Err(VerbError::failed(format!("the job in the lab did not end well: {why}")))
}

/// Waits until a host's link is up, because UCX uses no other.
fn wait_for_link(bed: &TestBed, host: &str) -> Result<(), VerbError> {
    let start = Instant::now();
    loop {
        // The link's state is not in /proc, so it is read by a program on the host.
        let mut look = bed.command(host);
        look.args(["cat", "/sys/class/net/eth0/operstate"]);
        look.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let looked = Owned::start(&mut look, Ending::KILL)?.capture(STATE_BYTES_MAX)?;
        let state = looked.ended_within(LINK_MAX)?.stdout;
        let state = String::from_utf8_lossy(&state).trim().to_owned();
        if matches!(state.as_str(), "up" | "unknown") {
            return Ok(());
        }
        if start.elapsed() > LINK_MAX {
            return Err(VerbError::failed(format!("eth0 of {host} stays {state}")));
        }
        thread::sleep(Duration::from_millis(50));
    }
}

fn attempt(
    bed: &TestBed,
    launcher: &str,
    model: &Path,
    while_running: &mut dyn FnMut() -> Result<(), VerbError>,
) -> Result<Result<Search, String>, VerbError> {
    let program = std::env::current_exe()?;
    let hosts = [bed.near(), bed.far()];
    let mut command = bed.command(bed.near());
    command.args(ENVIRONMENT).arg(launcher).args(ManualJob::options(&hosts)).arg(program);
    command.args(["check", "--json", "--full"]).arg(model);
    let mut job = ManualJob::begin(command, &hosts)?;
    let (start, mut looked) = (Instant::now(), Instant::now());
    let before = [sent_bytes(bed, bed.near())?, sent_bytes(bed, bed.far())?];
    let (mut last, mut peak) = (before, 0.0f64);
    let part = |host: &str, words: &mut dyn Iterator<Item = &str>| {
        let mut part = bed.command(host);
        part.args(ENVIRONMENT).args(words);
        part
    };
    let status = loop {
        match job.advance(part) {
            Ok(Some(status)) => break status,
            Ok(None) => {}
            Err(ManualJobError::System(error)) => return Err(error.into()),
            Err(error @ ManualJobError::Part) => return Ok(Err(error.to_string())),
        }
        if start.elapsed() > JOB_MAX || signals::caught().is_some() {
            return Ok(Err("it did not end in time".to_owned()));
        }
        if looked.elapsed() >= SAMPLE_EVERY {
            let now = [sent_bytes(bed, bed.near())?, sent_bytes(bed, bed.far())?];
            let bits = ((now[0] - last[0]) + (now[1] - last[1])) * 8.0;
            peak = peak.max(bits / looked.elapsed().as_secs_f64());
            (looked, last) = (Instant::now(), now);
            while_running()?;
        }
        thread::sleep(Duration::from_millis(10));
    };
    let after = [sent_bytes(bed, bed.near())?, sent_bytes(bed, bed.far())?];
    if !status.success() {
        return Ok(Err(status.to_string()));
    }
    let Some((states_count, seconds)) = told(&job.said()) else {
        return Ok(Err("it reported no result".to_owned()));
    };
    Ok(Ok(Search {
        states_count,
        seconds,
        near_sent_bytes: after[0] - before[0],
        far_sent_bytes: after[1] - before[1],
        peak_bits_per_s: peak,
    }))
}

/// States and seconds in a report.
fn told(report: &str) -> Option<(f64, f64)> {
    let json: Value = serde_json::from_str(report).ok()?;
    let check = &json["checks"][0];
    Some((check["states_count"].as_f64()?, check["duration_s"].as_f64()?))
}

/// Bytes that a host has sent on its links so far.
fn sent_bytes(bed: &TestBed, host: &str) -> Result<f64, VerbError> {
    Ok(of_links(&bed.devices(host)?))
}

/// Bytes sent on all interfaces except `lo`.
fn of_links(devices: &[DeviceCounters]) -> f64 {
    let links = devices.iter().filter(|device| device.interface != "lo");
    links.map(|device| device.tx_bytes as f64).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_host_sends_to_itself_is_not_counted() {
        let device = |name: &str, tx_bytes| DeviceCounters {
            interface: name.to_owned(),
            tx_bytes,
            ..DeviceCounters::default()
        };
        assert_eq!(of_links(&[device("lo", 9), device("eth0", 70), device("eth1", 7)]), 77.0);
        assert_eq!(of_links(&[]), 0.0);
    }
}
