//! The model checker as an MPI job on two hosts of a lab, and what their interfaces see of it.
//!
//! A launcher inside the lab reaches no other host of it, and one outside reaches no network of it.
//! MPICH's launcher can leave the start to others (`-launcher manual`): it runs on the first host and
//! prints the command that starts each host's part, which is run there.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::exit::VerbError;
use crate::signals;
use crate::verbs::reproduce::in_lab::TestBed;

/// Names of MPICH's launcher, Debian's first.
const LAUNCHERS: [&str; 3] = ["mpiexec.mpich", "mpiexec.hydra", "mpiexec"];

/// What goes before a program so that MPICH (UCX) takes the lab's link and not shared memory.
const ENVIRONMENT: [&str; 3] = ["env", "UCX_TLS=tcp", "UCX_NET_DEVICES=eth0"];

/// How often both ends are looked at.
const SAMPLE_EVERY: Duration = Duration::from_millis(250);

/// A job that has not ended by then never will.
const JOB_MAX: Duration = Duration::from_secs(120);

/// A link that is not up by then will not be: the kernel waits a second after a change.
const LINK_MAX: Duration = Duration::from_secs(5);

/// Starts that fail are tried again: launchers race with their own processes now and then.
const ATTEMPTS: u32 = 3;

/// What one search over the path came to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Search {
    pub(super) states_count: f64,
    pub(super) seconds: f64,
    /// Bytes that left each end, as its interface counts.
    pub(super) near_sent_bytes: f64,
    pub(super) far_sent_bytes: f64,
    /// Most that both ends sent together in a sample, bit/s.
    pub(super) peak_bits_per_s: f64,
}

impl Search {
    pub(super) fn states_per_s(&self) -> f64 {
        self.states_count / self.seconds
    }

    /// Both directions together, mean over the search.
    pub(super) fn bits_per_s(&self) -> f64 {
        (self.near_sent_bytes + self.far_sent_bytes) * 8.0 / self.seconds
    }
}

/// The launcher that is here.
pub(super) fn launcher() -> Result<&'static str, VerbError> {
    let is_hydra = |name: &&&str| {
        let output = Command::new(name).arg("--version").stdin(Stdio::null()).output();
        output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("HYDRA"))
    };
    LAUNCHERS.iter().find(is_hydra).copied().ok_or_else(|| {
        VerbError::missing("the lab's MPI jobs need MPICH's launcher (package mpich)")
    })
}

/// Searches a model by one rank on each of the lab's two hosts; `while_running` is called as it goes.
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

/// Waits until a host's link carries: UCX takes no other.
fn wait_for_link(bed: &TestBed, host: &str) -> Result<(), VerbError> {
    let start = Instant::now();
    loop {
        let mut command = bed.command(host);
        command.args(["cat", "/sys/class/net/eth0/operstate"]).stdin(Stdio::null());
        let state = String::from_utf8_lossy(&command.output()?.stdout).trim().to_owned();
        if matches!(state.as_str(), "up" | "unknown") {
            return Ok(());
        }
        if start.elapsed() > LINK_MAX {
            return Err(VerbError::failed(format!("eth0 of {host} stays {state}")));
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// Children that end with the value.
struct Children(Vec<Child>);

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Whatever has ended already needs no signal.
            child.kill().ok();
            child.wait().ok();
        }
    }
}

fn attempt(
    bed: &TestBed,
    launcher: &str,
    model: &Path,
    while_running: &mut dyn FnMut() -> Result<(), VerbError>,
) -> Result<Result<Search, String>, VerbError> {
    let program = std::env::current_exe()?;
    let hosts = format!("{}:1,{}:1", bed.near(), bed.far());
    let mut command = bed.command(bed.near());
    command.args(ENVIRONMENT).args([launcher, "-launcher", "manual", "-hosts", &hosts, "-n", "2"]);
    command.arg(program).args(["check", "--json", "--full"]).arg(model);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut children = Children(vec![command.spawn()?]);
    let lines = lines_of(children.0[0].stdout.take());
    let mut places = [bed.near(), bed.far()].into_iter();
    let mut said = String::new();
    let (start, mut looked) = (Instant::now(), Instant::now());
    let before = [sent_bytes(bed, bed.near())?, sent_bytes(bed, bed.far())?];
    let (mut last, mut peak) = (before, 0.0f64);
    let status = loop {
        for line in lines.try_iter() {
            match line.strip_prefix("HYDRA_LAUNCH: ") {
                Some(words) => {
                    let Some(host) = places.next() else { continue };
                    children.0.push(begin_part(bed, host, words)?);
                }
                None if line.starts_with("HYDRA_LAUNCH_END") => {}
                None => said.push_str(&line),
            }
        }
        if let Some(status) = children.0[0].try_wait()? {
            break status;
        }
        for part in &mut children.0[1..] {
            if part.try_wait()?.is_some_and(|status| !status.success()) {
                return Ok(Err("a host's part of it failed".to_owned()));
            }
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
    said.extend(lines.iter());
    if !status.success() {
        return Ok(Err(status.to_string()));
    }
    let Some((states_count, seconds)) = told(&said) else {
        return Ok(Err("it told no result".to_owned()));
    };
    Ok(Ok(Search {
        states_count,
        seconds,
        near_sent_bytes: after[0] - before[0],
        far_sent_bytes: after[1] - before[1],
        peak_bits_per_s: peak,
    }))
}

/// Starts one host's part of the job, as the launcher says it.
fn begin_part(bed: &TestBed, host: &str, words: &str) -> Result<Child, VerbError> {
    let mut part = bed.command(host);
    part.args(ENVIRONMENT).args(words.split_whitespace());
    part.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(part.spawn()?)
}

/// States and seconds of a report.
fn told(report: &str) -> Option<(f64, f64)> {
    let json: Value = serde_json::from_str(report).ok()?;
    let check = &json["checks"][0];
    Some((check["states_count"].as_f64()?, check["duration_s"].as_f64()?))
}

/// A child's lines as they come; a thread waits for them.
fn lines_of(pipe: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (say, hear) = channel();
    if let Some(pipe) = pipe {
        thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                if say.send(line).is_err() {
                    break;
                }
            }
        });
    }
    hear
}

/// Bytes that a host has sent on its links so far.
fn sent_bytes(bed: &TestBed, host: &str) -> Result<f64, VerbError> {
    let output = bed.command(host).args(["cat", "/proc/net/dev"]).stdin(Stdio::null()).output()?;
    Ok(parse_sent_bytes(&String::from_utf8_lossy(&output.stdout)))
}

/// Sum of the ninth figure of all interfaces but `lo` (kernel `net/core/net-procfs.c`).
fn parse_sent_bytes(text: &str) -> f64 {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let links = lines.filter(|(name, _)| name.trim() != "lo");
    links.filter_map(|(_, rest)| rest.split_whitespace().nth(8)?.parse::<f64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sent_bytes_are_the_ninth_figure_of_each_link() {
        let text = "Inter-|   Receive  |  Transmit\n face |bytes packets|bytes packets\n\
                    \x20   lo: 9 1 0 0 0 0 0 0 9 1 0 0 0 0 0 0\n\
                    \x20 eth0: 1000 2 0 0 0 0 0 0 70 3 0 0 0 0 0 0\n\
                    \x20 eth1:5 2 0 0 0 0 0 0 7 3 0 0 0 0 0 0\n";
        assert_eq!(parse_sent_bytes(text), 77.0);
        assert_eq!(parse_sent_bytes("eth0: no numbers"), 0.0);
    }
}
