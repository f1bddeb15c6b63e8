//! `clearstream gateway weights`: measures what each gateway carries, and derives weights from that.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lab::Lab;
use results::{DeviceCounters, Point, Results, RunKind, TestLimit, TestSpec};
use route_plan::{Chooser, Host, Mode, Plan, Proposal, Role, propose};
use serde_json::json;
use sweep::{PlannedPoint, Setting};
use sys::process::{Ending, Owned};
use units::{count_of, show_bit_rate};

use super::identity::own_role;
use super::read_plan;
use crate::VerbResult;
use crate::ending::{self, Outputs, Said};
use crate::exit::{Exit, VerbError};
use crate::far::Tests;
use crate::progress::Progress;
use crate::runner::{self, Done, Driver, Keeping};
use crate::signals;
use crate::store;
use crate::tester::Tester;
use crate::verbs::options::duration;

/// Name of the experiment, and the parameter that it varies: the gateway's position in the plan, from 1.
const EXPERIMENT: &str = "gateway-weights";
const GATEWAY: &str = "gateway";
/// Longest time a server started here may take to listen.
const LISTEN_MAX: Duration = Duration::from_secs(20);
/// From so many tests of two gateways on, no overlap is rarer than 5% between equal ones: 2 of 70 orders of 4 and 4.
const REPEATS_TELLING: usize = 4;
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Options of `gateway weights`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    clearstream gateway weights cumulus --lab cumulus\n  \
    clearstream gateway weights cumulus --host c1        far hosts run `clearstream serve`\n  \
    clearstream gateway weights cumulus -o weights.json  each test, with all its figures\n\n\
    In mode `pairs` each pair of hosts has one gateway: a test between them goes through it.\n\
    Gateways are measured one at a time and in turns. Weights are printed in the plan's syntax, as\n\
    the smallest numbers that fit the measured rates; the plan is not changed. A gateway can carry at\n\
    least what was measured: the limit may have been the end hosts or other traffic.")]
pub(crate) struct WeightsArgs {
    /// The plan, a TOML file, which must already be applied.
    #[arg(value_name = "PLAN")]
    plan: PathBuf,
    /// This machine is that host of the plan [default: the one with this machine's name].
    #[arg(long, value_name = "NAME", conflicts_with = "lab")]
    host: Option<String>,
    /// Measure between hosts of this lab, which must be up; servers are started there.
    #[arg(long, value_name = "LAB")]
    lab: Option<String>,
    /// Number of tests of each gateway.
    #[arg(long, alias = "repeats", value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(2..=1000))]
    repeat: u32,
    /// Length of a test.
    #[arg(short = 't', long, value_name = "TIME", default_value = "2s", value_parser = duration)]
    time: Duration,
    /// TCP streams of a test.
    #[arg(short = 'P', long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=128))]
    parallel: u32,
    /// Also write the results document to FILE.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// A pair of hosts whose packets cross a given gateway.
struct Way<'a> {
    near: &'a Host,
    far: &'a Host,
}

pub(super) fn run(args: &WeightsArgs, json: bool) -> VerbResult {
    let plan = read_plan(&args.plan)?;
    store::check_outputs([args.output.as_deref()])?;
    let lab = args.lab.as_deref().map(Lab::open).transpose()?;
    let own = match &lab {
        Some(_) => None,
        None => Some(own_host(args, &plan)?),
    };
    let ways = ways(&plan, own)?;
    signals::watch().map_err(|error| VerbError::from_error(&error))?;
    let mut through = Through::open(&ways, lab.as_ref(), &plan)?;
    let mut results = through.describe(lab.is_some())?;
    let spec = TestSpec {
        streams: args.parallel,
        limit: TestLimit::DurationS(args.time.as_secs_f64()),
        ..TestSpec::tcp()
    };
    let number = 1..=plan.gateways.len();
    let setting = |number| Setting::new(EXPERIMENT, spec.clone()).varying(GATEWAY, number as f64);
    let turns = sweep::Plan::in_turns(number.map(setting).collect(), args.repeat);
    let keeping =
        Keeping { output: args.output.as_deref(), failures_in_a_row_max: 1, ..Keeping::NOTHING };
    let conducted = runner::conduct(&turns, &mut through, keeping, &mut results, Progress::new(0));
    let rates: Vec<Vec<f64>> = (1..=plan.gateways.len()).map(|one| rates(&results, one)).collect();
    let Some(proposal) = propose(&rates) else {
        return ending::nothing(conducted, "not every gateway could be measured: no weights");
    };
    let text = shown(&plan, &ways, &proposal);
    let told = format!("{}\n", to_json(&plan, &ways, &proposal));
    let outputs = Outputs { results: args.output.as_deref(), report: None, also: None, json };
    ending::end(outputs, &results, conducted, &Said { text, json: Some(&told), exit: Exit::Ok })
}

fn own_host<'a>(args: &WeightsArgs, plan: &'a Plan) -> Result<&'a Host, VerbError> {
    match own_role(plan, args.host.as_deref())? {
        (_, Role::Host(host)) => Ok(host),
        (name, Role::Gateway(..)) => Err(VerbError::usage(format!(
            "{name} is a gateway; gateways are measured from the hosts of the plan"
        ))),
    }
}

/// A pair for each gateway; its near end is `own` if given.
fn ways<'a>(plan: &'a Plan, own: Option<&'a Host>) -> Result<Vec<Way<'a>>, VerbError> {
    if plan.routing.mode != Mode::Pairs {
        return Err(VerbError::usage(
            "weights can be measured only in mode `pairs`, where each pair of hosts uses one \
             gateway; this plan hashes flows",
        ));
    }
    let chooser = Chooser::new(plan, None);
    let nears: Vec<&Host> = own.map_or_else(|| plan.hosts.iter().collect(), |own| vec![own]);
    let way = |gateway: usize| {
        let pairs = nears.iter().flat_map(|near| plan.hosts.iter().map(move |far| (*near, far)));
        let mut pairs = pairs.filter(|(near, far)| near.network != far.network);
        let found = pairs.find(|(near, far)| chooser.gateway(near, far, [0; 2]) == Some(gateway));
        found.map(|(near, far)| Way { near, far }).ok_or_else(|| {
            let name = &plan.gateways[gateway].name;
            let whose = own.map_or("the plan", |own| &own.name);
            VerbError::failed(format!(
                "no pair of hosts of {whose} uses {name}: measure from another host"
            ))
        })
    };
    (0..plan.gateways.len()).map(way).collect()
}

/// Runs tests through each gateway.
struct Through<'a> {
    plan: &'a Plan,
    /// A client for each gateway, on its pair's near host.
    testers: Vec<Tester>,
    lab: Option<&'a Lab>,
    /// The servers on far hosts of the lab; dropping this value ends them.
    _servers: Vec<Owned>,
}

impl<'a> Through<'a> {
    fn open(ways: &[Way<'_>], lab: Option<&'a Lab>, plan: &'a Plan) -> Result<Self, VerbError> {
        let program = std::env::current_exe()?;
        let on = |host: &Host| {
            let mut command = Command::new(&program);
            if let Some(lab) = lab {
                command.args(["lab", "exec", &lab.plan().name, &host.name, "--"]).arg(&program);
            }
            command
        };
        let mut servers = Vec::new();
        let mut served: Vec<&str> = Vec::new();
        for way in ways.iter().filter(|_| lab.is_some()) {
            if served.contains(&way.far.name.as_str()) {
                continue;
            }
            served.push(&way.far.name);
            let mut serve = on(way.far);
            serve.arg("serve").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            servers.push(Owned::start(&mut serve, Ending::KILL.with_group())?);
        }
        let tester = |way: &Way<'_>| Tester::start(on(way.near), &way.far.port.address.to_string());
        let testers = ways.iter().map(tester).collect::<Result<_, _>>()?;
        Ok(Self { plan, testers, lab, _servers: servers })
    }

    /// The first pair's document, once all far hosts answer.
    fn describe(&mut self, waits: bool) -> Result<Results, VerbError> {
        let until = Instant::now() + LISTEN_MAX;
        let mut documents = Vec::new();
        for tester in &mut self.testers {
            documents.push(loop {
                match tester.document(RunKind::Test, &mut Progress::new(1)) {
                    Ok(document) => break document,
                    Err(_early) if waits && Instant::now() < until => thread::sleep(LOOK_EVERY),
                    Err(error) => return Err(error),
                }
            });
        }
        documents.into_iter().next().ok_or_else(|| VerbError::failed("the plan has no gateway"))
    }

    /// Bytes that a gateway of the lab has received so far; `None` without a lab.
    fn carried(&self, gateway: usize) -> Result<Option<u64>, VerbError> {
        let Some(lab) = self.lab else { return Ok(None) };
        let files = lab.host_files(&self.plan.gateways[gateway].name)?;
        let devices = topology::InterfaceCounters::read_from(&files);
        let bytes =
            |device: &DeviceCounters| if device.interface == "lo" { 0 } else { device.rx_bytes };
        Ok(Some(devices.iter().map(bytes).sum()))
    }
}

impl Driver for Through<'_> {
    fn run(
        &mut self,
        planned: &PlannedPoint,
        _what: &str,
        _progress: &mut Progress,
    ) -> Result<Done, VerbError> {
        let started_unix_ms = runner::now_unix_ms();
        let gateway = planned.varied.get(GATEWAY).map_or(0, |number| *number as usize - 1);
        let Some(spec) = planned.spec() else {
            return Err(VerbError::failed("this work is not a test between two hosts"));
        };
        let before = self.carried(gateway)?;
        let outcome = match self.testers[gateway].run_test(spec, &mut |_rate| {}) {
            Ok(outcome) => outcome,
            Err(error) => return Ok(Done::failed(planned, started_unix_ms, error)),
        };
        let received: u64 = outcome.directions.iter().map(|one| one.received_bytes).sum();
        if let (Some(before), Some(after)) = (before, self.carried(gateway)?)
            && after.saturating_sub(before) < received
        {
            let name = &self.plan.gateways[gateway].name;
            let why = format!(
                "the test did not go through {name}: is the plan applied, and {name} in use?"
            );
            return Ok(Done::failed(planned, started_unix_ms, VerbError::failed(why)));
        }
        Ok(Done::measured(planned, started_unix_ms, outcome))
    }
}

/// Rates through a gateway, bit/s at the receiver.
fn rates(results: &Results, number: usize) -> Vec<f64> {
    let is_its = |point: &&Point| {
        point.experiment == EXPERIMENT && point.varied.get(GATEWAY) == Some(&(number as f64))
    };
    let rate = |point: &Point| Some(point.measured()?.directions.first()?.received_bits_per_s);
    results.points.iter().filter(is_its).filter_map(rate).collect()
}

fn shown(plan: &Plan, ways: &[Way<'_>], proposal: &Proposal) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let mut line = |line: String| writeln!(text, "{line}").unwrap_or_default();
    let mut table = format!(
        "{:<12} {:>12} {:>31} {:>6}  {}\n",
        "gateway", "median", "interval (confidence)", "weight", "measured"
    );
    for ((gateway, weighed), way) in plan.gateways.iter().zip(&proposal.gateways).zip(ways) {
        let rate = &weighed.rate;
        let interval = match rate.count {
            1 => "none: one test".to_owned(),
            _ => format!(
                "{} to {} ({:.0}%)",
                show_bit_rate(rate.low),
                show_bit_rate(rate.high),
                100.0 * rate.confidence
            ),
        };
        let (median, tests) = (show_bit_rate(rate.median), count_of(rate.count as u64, "test"));
        table += &format!(
            "{:<12} {median:>12} {interval:>31} {:>6}  {tests} from {} to {}\n",
            gateway.name, weighed.weight, way.near.name, way.far.name
        );
    }
    line(crate::tables::fit(&table).trim_end().to_owned());
    if !proposal.is_different {
        line("no difference beyond the noise, or beyond 5%: equal weights".to_owned());
    } else if is_within_chance(proposal) {
        line(format!(
            "too few tests to tell a difference from noise: use --repeat {REPEATS_TELLING} or \
             more"
        ));
    }
    let is_so = |(gateway, weighed): (&route_plan::Gateway, &route_plan::Weighed)| {
        gateway.weight == weighed.weight
    };
    if plan.gateways.iter().zip(&proposal.gateways).all(is_so) {
        line("the plan has these weights".to_owned());
    } else {
        line("for the plan, under [[gateway]]; gateways of one range that differ need sections of their own:".to_owned());
        for (gateway, weighed) in plan.gateways.iter().zip(&proposal.gateways) {
            line(format!(
                "  {}: weight = {}  # now {}",
                gateway.name, weighed.weight, gateway.weight
            ));
        }
    }
    text
}

/// Whether equal gateways would look as different by chance, because there are too few tests.
fn is_within_chance(proposal: &Proposal) -> bool {
    proposal.gateways.iter().any(|weighed| weighed.rate.count < REPEATS_TELLING)
}

fn to_json(plan: &Plan, ways: &[Way<'_>], proposal: &Proposal) -> serde_json::Value {
    let rows = plan.gateways.iter().zip(&proposal.gateways).zip(ways);
    let rows: Vec<serde_json::Value> = rows
        .map(|((gateway, weighed), way)| {
            let rate = &weighed.rate;
            json!({ "gateway": gateway.name, "weight": weighed.weight, "weight_now": gateway.weight,
                "median_bits_per_s": rate.median, "low_bits_per_s": rate.low,
                "high_bits_per_s": rate.high, "confidence": rate.confidence, "count": rate.count,
                "near": way.near.name, "far": way.far.name })
        })
        .collect();
    json!({ "plan": plan.name, "is_different": proposal.is_different, "gateways": rows })
}
