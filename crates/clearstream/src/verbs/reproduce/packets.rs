//! P-vale and P-pipe: frames through a switch and through a pipe, between processes of this host.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use packet_switch::daemon::{Config, Daemon, DaemonError};
use results::{
    Estimate, Figure, FramesWork, LawCheck, NEAR, PaperFigure, Results, Summary, TestOutcome, Work,
    Worker, figure,
};
use serde_json::Value;
use sweep::{Plan, PlannedPoint, Setting};
use sys::private::Scratch;
use sys::process::{Ending, Owned};
use units::show_bit_rate;

use super::catalogue::Entry;
use super::recipes::undecided;
use super::single::wait_unless_told;
use super::{ReproduceArgs, conduct, local, publish};
use crate::VerbResult;
use crate::exit::VerbError;
use crate::progress::Progress;
use crate::runner::{self, Done, Driver};
use crate::signals;

/// The frames sent: their size in bytes, without preamble and checksum, and whether only slots are passed
/// on, as the paper's pkt-gen does, whose frames are written in the first round only and never read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Load {
    frame_bytes: u32,
    slots_only: bool,
}

/// The shortest and full-size frames as in the paper, and the shortest with each frame written and read.
const LOADS: [Load; 3] = [
    Load { frame_bytes: 60, slots_only: true },
    Load { frame_bytes: 1500, slots_only: true },
    Load { frame_bytes: 60, slots_only: false },
];

impl Load {
    fn name(self) -> String {
        let how = if self.slots_only { "slots only, as pkt-gen" } else { "each written and read" };
        format!("{}-byte frames, {how}", self.frame_bytes)
    }

    fn experiment(self, id: &str) -> String {
        format!("{id}, {}", self.name())
    }
}

/// The paper's rates for the shortest frames, frames/s (ptnet 2016, section II).
const PAPER_VALE_PKTS_PER_S: f64 = 20e6;
const PAPER_PIPE_PKTS_PER_S: f64 = 100e6;

/// Least ratio of the rate of long frames to that of the shortest which shows that frames are not copied.
const UNCOPIED_MIN: f64 = 0.8;

/// What connects the two ports.
const SWITCH: &str = "switch";
const PIPE: &str = "pipe";

/// Seed of the shuffled order of the loads.
const SEED: u64 = 0x2016;

/// Time for the receiver to start.
const SETTLE: Duration = Duration::from_millis(200);

/// Longest time for the receiver to end once no frames arrive.
const LINGER_MAX: Duration = Duration::from_secs(30);

/// Kept length of the receiver's output, bytes.
const SAID_BYTES_MAX: usize = 1 << 20;

/// Runs P-vale or P-pipe.
pub(super) fn run(entry: &'static Entry, args: &ReproduceArgs, json: bool) -> VerbResult {
    if args.host.is_some() {
        return Err(VerbError::usage(format!(
            "{} measures this host only: leave out the host",
            entry.id
        )));
    }
    signals::watch().map_err(|error| VerbError::from_error(&error))?;
    let is_vale = entry.id == "P-vale";
    let settings = LOADS.map(|load| {
        let work = FramesWork {
            frame_bytes: load.frame_bytes,
            slots_only: load.slots_only,
            through: if is_vale { SWITCH } else { PIPE }.to_owned(),
            duration_s: args.duration.as_secs_f64(),
        };
        Setting::new(load.experiment(entry.id), Work::Frames(work))
    });
    let plan = Plan::new(settings.to_vec(), args.repeats, SEED);
    let document = local::document();
    let conducted = conduct(entry, &plan, &mut Frames, document, Progress::new(0), args);
    publish(entry, conducted, |results| judged(entry, is_vale, results), args, json)
}

/// Sends frames between two processes of this host, with a new switch for every point.
struct Frames;

impl Driver for Frames {
    fn run(
        &mut self,
        planned: &PlannedPoint,
        _what: &str,
        _progress: &mut Progress,
    ) -> Result<Done, VerbError> {
        let started_unix_ms = runner::now_unix_ms();
        let Work::Frames(work) = &planned.work else {
            let error = VerbError::failed("this work is not a stream of frames");
            return Ok(Done::failed(planned, started_unix_ms, error));
        };
        let bed = Testbed::up()?;
        let by = bed.workers(work);
        let mut done = match bed.stream(work) {
            Err(error) => Done::failed(planned, started_unix_ms, error),
            Ok((duration_s, pkts_per_s, bits_per_s)) => {
                let figures = vec![
                    Figure::new(figure::RECEIVED_PKTS_PER_S, pkts_per_s),
                    Figure::new(figure::RECEIVED_BITS_PER_S, bits_per_s),
                ];
                let outcome = TestOutcome { duration_s, figures, ..TestOutcome::default() };
                Done::measured(planned, started_unix_ms, outcome)
            }
        };
        done.point.by = by;
        Ok(done)
    }
}

/// A switch in this process; dropping the value ends it.
struct Testbed {
    socket: PathBuf,
    _scratch: Scratch,
    should_stop: Arc<AtomicBool>,
    daemon: Option<JoinHandle<Result<(), DaemonError>>>,
    /// Core of the sender, and core of the receiver.
    cores: (u32, u32),
    switch_core: u32,
}

impl Testbed {
    fn up() -> Result<Self, VerbError> {
        let usable = sys::thread::usable_cores().map_err(|error| VerbError::from_error(&error))?;
        let (first, last) = (usable.first().copied(), usable.last().copied());
        let cores = (first.unwrap_or(0), last.unwrap_or(0));
        // With three cores or more the switch has its own; otherwise it shares the sender's.
        let own = if usable.len() > 2 { usable[1] } else { cores.0 };
        let scratch = Scratch::new("packets").map_err(|error| VerbError::from_error(&error))?;
        let socket = scratch.path().join("switch.sock");
        let config = Config { cores: vec![own], ..Config::new(socket.clone()) };
        let daemon = Daemon::bind(config).map_err(|error| VerbError::from_error(&error))?;
        let should_stop = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&should_stop);
        let serve = move || daemon.run(&mut |_| {}, &|| stop.load(Ordering::Relaxed));
        let daemon = thread::Builder::new().name("switch".to_owned()).spawn(serve)?;
        let daemon = Some(daemon);
        Ok(Self { socket, _scratch: scratch, should_stop, daemon, cores, switch_core: own })
    }

    /// The workers that send, forward and receive.
    fn workers(&self, work: &FramesWork) -> Vec<Worker> {
        let worker = |part: &str, core: u32| Worker {
            host: NEAR.to_owned(),
            part: part.to_owned(),
            cores: vec![core],
        };
        let switch = (work.through == SWITCH).then(|| worker("forward", self.switch_core));
        let ends = [worker("send", self.cores.0), worker("receive", self.cores.1)];
        ends.into_iter().chain(switch).collect()
    }

    /// Runs the load; returns the time in which frames arrived (seconds), frames/s and bit/s.
    fn stream(&self, work: &FramesWork) -> Result<(f64, f64, f64), VerbError> {
        let through_switch = work.through == SWITCH;
        let (from, to) = if through_switch { ("vale0:a", "vale0:b") } else { ("p{0", "p}0") };
        let (near, far) = (self.cores.0.to_string(), self.cores.1.to_string());
        let (seconds, size) = (work.duration_s.to_string(), work.frame_bytes.to_string());
        let mut sink =
            vec!["pkt", "sink", to, "--core", &far, "--quiet", "1s", "--linger", "100us"];
        let mut generate = vec!["pkt", "gen", from, "--core", &near, "--size", &size];
        generate.extend(["--duration", &seconds, "--dst", "02:00:00:00:00:02"]);
        if work.slots_only {
            sink.push("--slots-only");
            generate.push("--slots-only");
        }
        if through_switch {
            // The sender must not poll on a core that it may share with the switch.
            sink.extend(["--announce", "02:00:00:00:00:02"]);
            generate.extend(["--linger", "0s"]);
        } else {
            self.program(&["port", "add", "p", "--pipes", "1"])?.output()?;
            generate.extend(["--linger", "100us"]);
        }
        let start = |arguments: &[&str]| -> Result<Owned, VerbError> {
            Ok(Owned::start(&mut self.program(arguments)?, Ending::KILL)?
                .capture(SAID_BYTES_MAX)?)
        };
        let sink = start(&sink)?;
        thread::sleep(SETTLE);
        let mut sender = start(&generate)?;
        wait_unless_told(&mut sender)?;
        let sent = sender.ended_within(Duration::ZERO)?;
        if !sent.status.success() {
            return Err(VerbError::failed(format!("sending frames: {}", sent.last_line())));
        }
        let value = told(sink, LINGER_MAX)?;
        let figure = |name: &str| {
            let missing = || VerbError::failed(format!("`pkt sink --json` reports no {name}"));
            value[name].as_f64().ok_or_else(missing)
        };
        let elapsed_s = figure("elapsed_s")?;
        Ok((elapsed_s, figure("frames_per_s")?, 8.0 * figure("bytes")? / elapsed_s))
    }

    fn program(&self, arguments: &[&str]) -> Result<Command, VerbError> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(arguments).arg("--socket").arg(&self.socket).arg("--json");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(command)
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        self.should_stop.store(true, Ordering::Relaxed);
        if let Some(daemon) = self.daemon.take() {
            // Its result no longer matters; a panic there has been printed.
            daemon.join().ok();
        }
    }
}

/// Waits for a child's end; returns the JSON that it printed.
fn told(child: Owned, limit: Duration) -> Result<Value, VerbError> {
    let ended = child.ended_within(limit)?;
    serde_json::from_slice(&ended.stdout).map_err(|error| {
        VerbError::failed(format!("`pkt sink --json`: {error}: {}", ended.last_line()))
    })
}

/// A figure of a load over its repeats.
fn estimate(results: &Results, id: &str, load: Load, figure: &str) -> Option<Estimate> {
    let experiment = load.experiment(id);
    let of_load = |summary: &&Summary| summary.experiment == experiment && summary.figure == figure;
    results.summaries.iter().find(of_load).map(|summary| summary.estimate)
}

fn show_mpkts(value: f64) -> String {
    format!("{:.1} Mpkt/s", value / 1e6)
}

fn judged(entry: &Entry, is_vale: bool, results: &Results) -> (Vec<PaperFigure>, LawCheck) {
    let row = |name: String, paper: &str, here: Option<Estimate>, show: fn(f64) -> String| {
        let here = here.map(|one| one.text(show));
        PaperFigure { name, paper: paper.to_owned(), here }
    };
    let mut figures = Vec::new();
    for load in LOADS {
        let of = |figure| estimate(results, entry.id, load, figure);
        let paper = match (load, is_vale) {
            (Load { frame_bytes: 60, slots_only: true }, true) => "up to 20 Mpkt/s",
            (Load { frame_bytes: 60, slots_only: true }, false) => "over 100 Mpkt/s",
            _ => "-",
        };
        figures.push(row(load.name(), paper, of(figure::RECEIVED_PKTS_PER_S), show_mpkts));
        let payload = format!("{}, payload", load.name());
        figures.push(row(payload, "-", of(figure::RECEIVED_BITS_PER_S), show_bit_rate));
    }
    let rate = |load| estimate(results, entry.id, load, figure::RECEIVED_PKTS_PER_S);
    let [short, long, touched] = LOADS.map(rate);
    let (Some(short), Some(long), Some(touched)) = (short, long, touched) else {
        return (figures, undecided(entry.law, "not every load was measured"));
    };
    let told = format!(
        "{} of 60 bytes and {} of 1500 (slots only; {} of 60 bytes written and read)",
        show_mpkts(short.median),
        show_mpkts(long.median),
        show_mpkts(touched.median)
    );
    let (holds, judged) = if is_vale {
        let share = short.median / PAPER_VALE_PKTS_PER_S;
        (share >= 1.0, format!("{told}: {share:.2} times the paper's 20 Mpkt/s"))
    } else {
        let kept = long.median / short.median;
        let share = short.median / PAPER_PIPE_PKTS_PER_S;
        let text =
            format!("{told}: {kept:.2} times as many; {share:.2} times the paper's 100 Mpkt/s");
        (kept >= UNCOPIED_MIN, text)
    };
    (figures, LawCheck { law: entry.law.to_owned(), holds: Some(holds), judged })
}
