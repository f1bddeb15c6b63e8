//! M-idle: packets that wake a sleeping core, compared with packets for a core that is awake.
//!
//! The processes of both hosts share one core, as the one process per node in the paper does. Packets
//! are processed on that core (the right one) or on another, which has nothing else to do and sleeps, or
//! is kept awake by a busy loop of the lowest priority. Where Open MPI is installed, messages over the provider are
//! measured like TCP, and the law is judged by them: their ranks poll, as the paper's did.

use std::io::Write;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use results::{Estimate, LawCheck, PaperFigure, Protocol, Results, TestLimit, TestSpec, Work};
use sweep::{Plan, PlannedPoint, Setting};

use super::catalogue::Entry;
use super::messages::shared_core::{self, SharedCore};
use super::{Ground, ReproduceArgs, conduct, finding, publish};
use crate::VerbResult;
use crate::bed::TestBed;
use crate::exit::VerbError;
use crate::progress::Progress;
use crate::runner::{self, Done, Driver, Tested};

const LAB: &str = "local40g";
const LATENCY: &str = "M-idle";
const BULK: &str = "M-idle bulk";
const MESSAGES: [&str; 2] = ["M-idle messages", "M-idle long messages"];
const AWAY: &str = "interrupt_away";
const AWAKE: &str = "other_core_awake";
const RTT: &str = "rtt_p50_s";
const RATE: &str = "forward_received_bits_per_s";
const LAW: &str = "wake-ups cost more than misses";
const SEED: u64 = 0x2009;

/// The core of both processes, and the other core.
#[derive(Debug, Clone, Copy)]
struct Cores {
    process: u32,
    other: u32,
}

/// Runs the experiment. It requires a lab, because interrupts of a remote host cannot be moved here.
pub(super) fn run(entry: &'static Entry, args: &ReproduceArgs, json: bool) -> VerbResult {
    if args.host.is_some() {
        return Err(VerbError::usage(
            "M-idle moves interrupt work at both ends, which is possible only in a lab: leave \
             out the host",
        ));
    }
    let usable = sys::thread::usable_cores().map_err(|error| VerbError::from_error(&error))?;
    let [process, other, ..] = usable[..] else {
        return Err(VerbError::missing("M-idle needs two cores, and this program may use one"));
    };
    let ranks = SharedCore::up(args.jobs.library.as_deref(), process, other)?;
    let ground = Ground::lab(LAB)?;
    let (cores, duration) = (Cores { process, other }, args.duration);
    let mut idle = Idle { ground, ranks, cores, duration };
    let mut progress = Progress::new(1);
    let mut document = idle.ground.document(&mut progress)?;
    if idle.ranks.is_none() {
        let text = "Open MPI's mpirun is not installed: messages were not measured";
        document.findings.push(finding("no-open-mpi", text));
    }
    let plan = plan(args, idle.cores, idle.ranks.is_some());
    let conducted = conduct(entry, &plan, &mut idle, document, progress, args);
    drop(idle);
    publish(entry, conducted, judge, args, json)
}

/// Tests with the packets processed on a given core, which is kept awake or not.
struct Idle {
    ground: Ground,
    ranks: Option<SharedCore>,
    cores: Cores,
    duration: Duration,
}

impl Driver for Idle {
    fn run(
        &mut self,
        planned: &PlannedPoint,
        what: &str,
        progress: &mut Progress,
    ) -> Result<Done, VerbError> {
        let is = |name: &str| planned.varied.get(name) == Some(&1.0);
        if let Work::Messages(work) = &planned.work {
            let spinner = is(AWAKE).then(|| Spinner::start(self.cores.other)).transpose()?;
            let done = self.messages(planned, work.message_bytes.unwrap_or(0), is(AWAY));
            drop(spinner);
            return Ok(done);
        }
        if let Some(bed) = &self.ground.bed {
            let core = if is(AWAY) { self.cores.other } else { self.cores.process };
            take_packets_on(bed, core)?;
        }
        let spinner = is(AWAKE).then(|| Spinner::start(self.cores.other)).transpose()?;
        let done = Tested(&mut *self.ground.tests).run(planned, what, progress);
        drop(spinner);
        done
    }
}

impl Idle {
    fn messages(&self, planned: &PlannedPoint, bytes: u64, is_away: bool) -> Done {
        let started_unix_ms = runner::now_unix_ms();
        let ranks = self.ranks.as_ref().ok_or_else(|| VerbError::missing("Open MPI's mpirun"));
        match ranks.and_then(|ranks| ranks.measure(bytes, is_away, self.duration)) {
            Ok(outcome) => Done::measured(planned, started_unix_ms, outcome),
            Err(error) => Done::failed(planned, started_unix_ms, error),
        }
    }
}

fn plan(args: &ReproduceArgs, cores: Cores, has_messages: bool) -> Plan {
    let test = |base: TestSpec| TestSpec {
        limit: TestLimit::DurationS(args.duration.as_secs_f64()),
        near_cores: vec![cores.process],
        far_cores: vec![cores.process],
        ..base
    };
    // A request that waits for the previous answer would otherwise measure Nagle's timer.
    let request = TestSpec::request_response(Protocol::Tcp, 1, 1);
    let latency = test(TestSpec { nodelay: true, ..request });
    let bulk = test(TestSpec::tcp());
    let settings = [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0)];
    let mut works = vec![(LATENCY, Work::from(latency)), (BULK, Work::from(bulk))];
    if has_messages {
        works.extend(MESSAGES.into_iter().zip(shared_core::SIZES.map(shared_core::work)));
    }
    let settings = settings.into_iter().flat_map(|(away, awake)| {
        works.iter().map(move |(name, work)| {
            Setting::new(*name, work.clone()).varying(AWAY, away).varying(AWAKE, awake)
        })
    });
    Plan::new(settings.collect(), args.repeats, SEED)
}

/// Makes both hosts process their packets on this core (RPS, kernel
/// `Documentation/networking/scaling.rst`). The setting ends with the lab.
fn take_packets_on(bed: &TestBed, core: u32) -> Result<(), VerbError> {
    let mask = core_mask(core);
    for host in [bed.near(), bed.far()] {
        let script = "for queue in /sys/class/net/eth*/queues/rx-*; do echo \"$1\" > \"$queue/rps_cpus\" || exit; done";
        let output = bed
            .command(host)
            .args(["sh", "-c", script, "sh", &mask])
            .stdin(Stdio::null())
            .output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(VerbError::missing(format!(
                "M-idle: the core that takes packets cannot be chosen here (rps_cpus): {}",
                said.lines().last().unwrap_or("no reason given")
            )));
        }
    }
    Ok(())
}

/// A mask of one core in the kernel's format: 32-bit words, the highest first.
pub(super) fn core_mask(core: u32) -> String {
    let mut mask = format!("{:x}", 1_u32 << (core % 32));
    for _ in 0..core / 32 {
        mask.push_str(",00000000");
    }
    mask
}

/// Keeps a core awake, at the lowest priority.
struct Spinner {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Spinner {
    fn start(core: u32) -> Result<Self, VerbError> {
        let ends = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&ends);
        let (say, hear) = mpsc::channel();
        let thread = thread::spawn(move || {
            let ready =
                sys::thread::pin_current(&[core]).and_then(|()| sys::thread::run_only_when_idle());
            let spins = ready.is_ok();
            // The receiver is gone when the program ends.
            say.send(ready).ok();
            while spins && !seen.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let ready = hear.recv().map_err(|error| VerbError::from_error(&error))?;
        let spinner = Self { ends, thread: Some(thread) };
        ready.map_err(|error| VerbError::from_error(&error))?;
        Ok(spinner)
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            writeln!(crate::out::stderr(), "clearstream: the spinner ended early").ok();
        }
    }
}

/// Whether the interrupt is away from the process's core, and whether the other cores are awake.
const SETTINGS: [(&str, &str, (f64, f64)); 4] = [
    ("interrupt on the right core, others asleep", "11 us one way", (0.0, 0.0)),
    ("interrupt on a core that sleeps", "15-20 us one way", (1.0, 0.0)),
    ("interrupt on the right core, others awake", "-", (0.0, 1.0)),
    ("interrupt on another core, awake", "-", (1.0, 1.0)),
];

fn judge(results: &Results) -> (Vec<PaperFigure>, LawCheck) {
    let of = |experiment: &str, figure: &str, (away, awake): (f64, f64)| -> Option<Estimate> {
        let found = results.summaries.iter().find(|summary| {
            summary.experiment == experiment
                && summary.figure == figure
                && summary.varied.get(AWAY) == Some(&away)
                && summary.varied.get(AWAKE) == Some(&awake)
        });
        found.map(|summary| summary.estimate)
    };
    let half = shared_core::figure();
    let has_messages =
        results.points.iter().any(|point| MESSAGES.contains(&point.experiment.as_str()));
    let mut figures = Vec::new();
    let row = |name: String, paper: &str, here: Option<String>| PaperFigure {
        name,
        paper: paper.to_owned(),
        here,
    };
    let (mut tcp_s, mut messages_s) = (Vec::new(), Vec::new());
    for (name, paper, setting) in SETTINGS {
        if has_messages {
            let time = of(MESSAGES[0], half, setting);
            figures.push(row(format!("messages, {name}"), paper, time.as_ref().map(show_us)));
            messages_s.extend(time.map(|estimate| estimate.median));
        }
        let paper = if has_messages { "-" } else { paper };
        let round_trip = of(LATENCY, RTT, setting);
        figures.push(row(format!("TCP, {name}"), paper, round_trip.as_ref().map(one_way)));
        tcp_s.extend(round_trip.map(|estimate| 0.5 * estimate.median));
    }
    let change = |right: Option<Estimate>, away: Option<Estimate>| {
        let (right, away) = (right?.median, away?.median);
        Some(format!("{:+.0}%", (away / right - 1.0) * 100.0))
    };
    let name = "throughput, interrupt on a core that sleeps";
    let (right, away) = ((0.0, 0.0), (1.0, 0.0));
    if has_messages {
        // Times: the shorter is the better.
        let time = |setting| of(MESSAGES[1], half, setting);
        let here = change(time(away), time(right));
        figures.push(row(format!("messages, {name}"), "about -20%", here));
    }
    let paper = if has_messages { "-" } else { "about -20%" };
    let here = change(of(BULK, RATE, right), of(BULK, RATE, away));
    figures.push(row(format!("TCP, {name}"), paper, here));
    let (what, latencies_s) = if has_messages { ("messages", messages_s) } else { ("TCP", tcp_s) };
    let [right_asleep, away_asleep, right_awake, away_awake] = latencies_s[..] else {
        return (figures, super::recipes::undecided(LAW, "a test did not finish"));
    };
    let (asleep_us, miss_us) =
        ((away_asleep - right_asleep) * 1e6, (away_awake - right_awake) * 1e6);
    let wake_us = asleep_us - miss_us;
    let judged = format!(
        "{what}, one way: another core costs {miss_us:+.1} us when it is awake (misses, and cores that \
         interrupt each other) and {asleep_us:+.1} us when it sleeps: the wake-up costs {wake_us:+.1} us"
    );
    let law = LawCheck { law: LAW.to_owned(), holds: Some(wake_us > miss_us.max(0.0)), judged };
    (figures, law)
}

fn show_us(estimate: &Estimate) -> String {
    estimate.text(|time_s| format!("{:.1} us", time_s * 1e6))
}

/// Half a round trip, which Open-MX and IMB call latency.
fn one_way(estimate: &Estimate) -> String {
    estimate.text(|round_trip_s| format!("{:.1} us", round_trip_s * 5e5))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_of_one_core() {
        assert_eq!(core_mask(0), "1");
        assert_eq!(core_mask(5), "20");
        assert_eq!(core_mask(31), "80000000");
        assert_eq!(core_mask(64), "1,00000000,00000000");
    }

    /// A document in which packets take so long one way, in us, by setting; messages as TCP, or none.
    fn document(one_way_us: [f64; 4], has_messages: bool) -> Results {
        let mut results = Results::begun(results::RunKind::Reproduce, 0);
        for ((_, _, (away, awake)), us) in SETTINGS.into_iter().zip(one_way_us) {
            let half = shared_core::figure();
            let mut all = vec![(LATENCY, RTT, 2e-6 * us), (BULK, RATE, 1e9)];
            if has_messages {
                all.extend([(MESSAGES[0], half, 1e-6 * us), (MESSAGES[1], half, 1e-3)]);
            }
            for (experiment, figure, value) in all {
                let planned = PlannedPoint {
                    experiment: experiment.to_owned(),
                    varied: [(AWAY.to_owned(), away), (AWAKE.to_owned(), awake)].into(),
                    repeat: 0,
                    work: shared_core::work(0),
                };
                let figures = vec![results::Figure::new(figure, value)];
                let outcome = results::TestOutcome { figures, ..results::TestOutcome::default() };
                results.points.push(Done::measured(&planned, 0, outcome).point);
            }
        }
        results.summaries = sweep::summarise(&results.points);
        results
    }

    #[test]
    fn the_wake_up_is_what_sleep_adds_to_another_core() {
        for has_messages in [true, false] {
            let (rows, law) = judge(&document([11.0, 17.0, 11.0, 12.0], has_messages));
            assert_eq!(law.holds, Some(true), "{law:?}");
            assert!(law.judged.contains("the wake-up costs +5.0 us"), "{law:?}");
            assert_eq!(law.judged.starts_with("messages"), has_messages);
            assert_eq!(rows.len(), if has_messages { 10 } else { 5 });
            assert!(rows.iter().all(|row| row.here.is_some()), "{rows:?}");
            let (_, law) = judge(&document([11.0, 17.0, 11.0, 16.0], has_messages));
            assert_eq!(law.holds, Some(false), "{law:?}");
        }
        let mut partly = document([1.0; 4], true);
        partly.points.retain(|point| point.experiment != MESSAGES[0]);
        partly.summaries = sweep::summarise(&partly.points);
        assert_eq!(judge(&partly).1.holds, None);
    }
}
