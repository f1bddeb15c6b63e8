//! P-fig3, P-stream, P-fig4, P-fig5 and P-netmap: two guests on ptnet, on virtio-net over vhost-user and on virtio-net over a
//! TAP device and a bridge, all up at once and measured in turns.
//!
//! Every rate stands beside the same rate per second of processor time that QEMU and the switch used meanwhile. QEMU's
//! time is the guest's and its devices'; the kernel charges a bridge's work to the QEMU that sends.

mod contender;
mod judge;
mod meter;
mod pairs;
mod study;

use results::{Figure, FramesWork, NEAR, PointOutcome, TestOutcome, Work, Worker, figure};
use sweep::{Plan, PlannedPoint};

use super::catalogue::Entry;
use super::{ReproduceArgs, conduct, local, publish};
use crate::VerbResult;
use crate::exit::VerbError;
use crate::progress::Progress;
use crate::runner::{self, Done, Driver};
use crate::signals;
use contender::Contender;
use meter::Window;
use pairs::{ContenderGuests, Pair};
use study::Study;

/// Name of the figure: processor time of both QEMUs in a second, cores.
const QEMU_CORES: &str = "qemu_cores_count";
/// Name of the figure: processor time of the switch and of the guests' keepers in a second, cores.
const SWITCH_CORES: &str = "switch_cores_count";

/// Whether an entry of the catalogue is one of these.
pub(super) fn is_one(id: &str) -> bool {
    Study::find(id).is_some()
}

/// Runs the experiment on this host, in a network namespace of its own.
pub(super) fn run(entry: &'static Entry, args: &ReproduceArgs, json: bool) -> VerbResult {
    let id = entry.id;
    if args.host.is_some() {
        return Err(VerbError::usage(format!(
            "{id} boots guests on this host: leave out the host"
        )));
    }
    let study = Study::find(id)
        .ok_or_else(|| VerbError::failed(format!("{id} is not an experiment with guests")))?;
    signals::watch().map_err(|error| VerbError::from_error(&error))?;
    let mut progress = Progress::new(1);
    progress.begin("the guests' image");
    let image = pairs::image(|step| progress.show(&format!("the guests' image: {step}")))?;
    // This host's devices are not in the network namespace.
    let mut document = local::document();
    pairs::enter_own_network(id)?;
    let plan = Plan::new(study.settings(args.duration.as_secs_f64()), args.repeats, SEED);
    progress.begin("guests boot");
    let guests = ContenderGuests::up(&image, study)?;
    document.findings.extend(guests.findings());
    let mut driver = Guests { guests, study };
    let conducted = conduct(entry, &plan, &mut driver, document, progress, args);
    drop(driver);
    publish(entry, conducted, |results| judge::judged(study, entry.law, results), args, json)
}

/// Seed of the shuffled order of the settings.
const SEED: u64 = 0x2016;

/// Runs every test in the guests of its contender.
struct Guests {
    guests: ContenderGuests,
    study: &'static Study,
}

impl Driver for Guests {
    fn run(
        &mut self,
        planned: &PlannedPoint,
        _what: &str,
        _progress: &mut Progress,
    ) -> Result<Done, VerbError> {
        let started_unix_ms = runner::now_unix_ms();
        let pair = Contender::of(&planned.experiment).and_then(|one| self.guests.pair(one));
        let pair = pair.ok_or_else(|| VerbError::failed("no guests for this work"))?;
        let ran = match &planned.work {
            Work::Frames(work) => self.generate(pair, planned, work),
            work => match work.test() {
                Some(spec) => pair
                    .test(spec)
                    .map(|(outcome, window)| self.with_cost(outcome.with_figures(), &window)),
                None => Err(VerbError::failed("this work is not for guests")),
            },
        };
        let mut done = match ran {
            Err(error) => Done::failed(planned, started_unix_ms, error),
            Ok(outcome) => Done::measured(planned, started_unix_ms, outcome),
        };
        // The document has the facts of this host; the accounts are those of the guests.
        if let PointOutcome::Measured(outcome) = &mut done.point.outcome {
            outcome.hosts.clear();
        }
        let worker =
            |part: &str| Worker { host: NEAR.to_owned(), part: part.to_owned(), cores: Vec::new() };
        done.point.by = vec![worker("send"), worker("receive")];
        Ok(done)
    }
}

impl Guests {
    /// Sends frames from the guest; what counts is what came out at the other end.
    fn generate(
        &self,
        pair: &Pair,
        planned: &PlannedPoint,
        work: &FramesWork,
    ) -> Result<TestOutcome, VerbError> {
        let batch = planned.varied.get(study::BATCH).copied().unwrap_or(1.0);
        let window = pair.generate(work, units::saturating_u64(batch))?;
        if window.pkts == 0 {
            return Err(VerbError::failed("no frame arrived in the measured time"));
        }
        let rate = window.pkts as f64 / window.seconds;
        let figures = vec![
            Figure::new(figure::RECEIVED_PKTS_PER_S, rate),
            Figure::new(figure::RECEIVED_BITS_PER_S, rate * 8.0 * f64::from(work.frame_bytes)),
        ];
        let outcome = TestOutcome { duration_s: window.seconds, figures, ..TestOutcome::default() };
        Ok(self.with_cost(outcome, &window))
    }

    /// Adds the processor time, and the rate per second of it.
    fn with_cost(&self, mut outcome: TestOutcome, window: &Window) -> TestOutcome {
        let (qemu, switch) = window.cores();
        let rate = outcome.figures.iter().find(|figure| figure.name == self.study.rate);
        let per_cpu = rate.filter(|_| qemu + switch > 0.0).map(|rate| Figure {
            name: self.study.per_cpu.to_owned(),
            unit: rate.unit.clone(),
            value: rate.value / (qemu + switch),
        });
        outcome.figures.extend(per_cpu);
        let cores = [(QEMU_CORES, qemu), (SWITCH_CORES, switch)];
        outcome.figures.extend(cores.map(|(name, value)| Figure::new(name, value)));
        outcome
    }
}
