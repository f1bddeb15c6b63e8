//! M-idle: packets that wake a sleeping core, compared with packets for a core that is awake.
//!
//! The processes of both hosts share one core, as the one process per node in the paper does. Packets
//! are processed on that core (the right one) or on another, which has nothing else to do and sleeps, or
//! is kept awake by a busy loop of the lowest priority.

use std::io::Write;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use results::{Estimate, LawCheck, PaperFigure, Protocol, Results, TestLimit, TestSpec};
use sweep::{Plan, PlannedPoint, Setting};

use super::catalogue::Entry;
use super::{Ground, ReproduceArgs, conduct, publish};
use crate::VerbResult;
use crate::bed::TestBed;
use crate::exit::VerbError;
use crate::progress::Progress;
use crate::runner::{Done, Driver, Tested};

const LAB: &str = "local40g";
const LATENCY: &str = "M-idle";
const BULK: &str = "M-idle bulk";
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
            "M-idle moves the work of interrupts at both ends, which it can in a lab only: name no host",
        ));
    }
    let usable = sys::thread::usable_cores().map_err(|error| VerbError::from_error(&error))?;
    let [process, other, ..] = usable[..] else {
        return Err(VerbError::missing("M-idle needs two cores, and this program may use one"));
    };
    let mut idle = Idle { ground: Ground::lab(LAB)?, cores: Cores { process, other } };
    let mut progress = Progress::new(1);
    let document = idle.ground.document(&mut progress)?;
    let plan = plan(args, idle.cores);
    let conducted = conduct(entry, &plan, &mut idle, document, progress, args);
    drop(idle);
    publish(entry, conducted, judge, args, json)
}

/// Tests with the packets processed on a given core, which is kept awake or not.
struct Idle {
    ground: Ground,
    cores: Cores,
}

impl Driver for Idle {
    fn run(
        &mut self,
        planned: &PlannedPoint,
        what: &str,
        progress: &mut Progress,
    ) -> Result<Done, VerbError> {
        let is = |name: &str| planned.varied.get(name) == Some(&1.0);
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

fn plan(args: &ReproduceArgs, cores: Cores) -> Plan {
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
    let settings = settings.into_iter().flat_map(|(away, awake)| {
        [(LATENCY, &latency), (BULK, &bulk)].map(|(name, spec)| {
            Setting::new(name, spec.clone()).varying(AWAY, away).varying(AWAKE, awake)
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
fn core_mask(core: u32) -> String {
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

fn judge(results: &Results) -> (Vec<PaperFigure>, LawCheck) {
    let of = |experiment: &str, figure: &str, away: f64, awake: f64| -> Option<Estimate> {
        let found = results.summaries.iter().find(|summary| {
            summary.experiment == experiment
                && summary.figure == figure
                && summary.varied.get(AWAY) == Some(&away)
                && summary.varied.get(AWAKE) == Some(&awake)
        });
        found.map(|summary| summary.estimate)
    };
    let rows = [
        ("interrupt on the right core, others asleep", "11 us one way", (0.0, 0.0)),
        ("interrupt on a core that sleeps", "15-20 us one way", (1.0, 0.0)),
        ("interrupt on the right core, others awake", "-", (0.0, 1.0)),
        ("interrupt on another core, awake", "-", (1.0, 1.0)),
    ];
    let mut figures = Vec::new();
    let mut latencies = Vec::new();
    for (name, paper, (away, awake)) in rows {
        let latency = of(LATENCY, RTT, away, awake);
        figures.push(PaperFigure {
            name: name.to_owned(),
            paper: paper.to_owned(),
            here: latency.as_ref().map(one_way),
        });
        latencies.extend(latency.map(|estimate| estimate.median));
    }
    let rate = |away| of(BULK, RATE, away, 0.0).map(|estimate| estimate.median);
    let change = rate(0.0).zip(rate(1.0)).map(|(right, away)| (away / right - 1.0) * 100.0);
    figures.push(PaperFigure {
        name: "throughput, interrupt on a core that sleeps".to_owned(),
        paper: "about -20%".to_owned(),
        here: change.map(|percent| format!("{percent:+.0}%")),
    });
    let [right_asleep, away_asleep, right_awake, away_awake] = latencies[..] else {
        return (figures, super::recipes::undecided(LAW, "a test did not finish"));
    };
    let (asleep_us, miss_us) =
        ((away_asleep - right_asleep) * 5e5, (away_awake - right_awake) * 5e5);
    let wake_us = asleep_us - miss_us;
    let judged = format!(
        "one way, another core costs {miss_us:+.1} us when it is awake (misses, and cores that \
         interrupt each other) and {asleep_us:+.1} us when it sleeps: the wake-up costs {wake_us:+.1} us"
    );
    let law = LawCheck { law: LAW.to_owned(), holds: Some(wake_us > miss_us.max(0.0)), judged };
    (figures, law)
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
}
