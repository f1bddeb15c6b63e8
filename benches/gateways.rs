//! What routing over gateways costs a host: ten thousand routes applied, a failed gateway moved off, and what watching
//! takes of a core. Beside it the same routes by iproute2's batch mode, which keeps no journal.

mod probes;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use gateway::{Network, Options, apply, move_flows, read_host, revert};
use route_plan::parse_plan;
use sys::netlink_socket::NetlinkSocket;

use crate::comparison::{
    Better, Comparison, Contender, Effort, Figures, Gate, Medium, RowPlan, Run, Whose,
};
use crate::host::{BenchError, finish};
use crate::scratch;

const OURS: &str = "ClearStream";
const PEER: &str = "ip -batch";
/// Of a move off a gateway and back.
const MOVES_COUNT: usize = 10;
/// Longest that the peer may take.
const RUN_MAX: Duration = Duration::from_secs(60);

/// A storage host of ten thousand clients.
const PLAN: &str = r#"
name = "many"
[network.compute]
prefix = "10.100.0.0/16"
[network.storage]
prefix = "10.10.0.0/24"
[[gateway]]
names = "g[1-3]"
addresses = { compute = "10.100.0.[91-93]", storage = "10.10.0.[11-13]" }
interfaces = { compute = "hsn0", storage = "ib0" }
[hosts.c]
network = "compute"
names = "c[1-10000]"
addresses = "10.100.[64-103].[1-250]"
interface = "hsn0"
[hosts.s]
network = "storage"
names = "s1"
addresses = "10.10.0.21"
interface = "ib0"
[routing]
mode = "pairs"
"#;

/// Every comparison of routing over gateways.
pub(crate) fn comparisons(effort: Effort) -> Vec<Comparison> {
    let routes = Comparison {
        name: "gateway-routes",
        setting: "10 000 routes over three gateways applied on a storage host, then one gateway moved off".to_owned(),
        medium: Medium::Nothing,
        effort,
        contenders: vec![
            contender(Whose::Ours, OURS, Box::new(|_, _| in_namespace(ours))),
            contender(Whose::Peer, PEER, Box::new(|_, _| in_namespace(theirs))),
        ],
        rows: vec![
            row("gateway-apply", "apply_s", "s", Gate::Figure(1.0), &[PEER]),
            row("gateway-move", "move_ms", "ms", Gate::Figure(20.0), &[]),
        ],
    };
    let probe = "processor time of a watcher, the kernel's forwarding by two namespaces included (gateway-probe) or on another \
                 core (gateway-probe-own)";
    let probes = Comparison {
        name: "gateway-probes",
        setting: format!("{probe}: 32 gateways every millisecond, then 10 gateways every 100 ms"),
        medium: Medium::Nothing,
        effort,
        contenders: vec![contender(Whose::Ours, OURS, Box::new(|_, time| probes::run(time)))],
        rows: vec![
            row("gateway-probe", "probe_us", "us", Gate::Figure(5.0), &[]),
            row("gateway-probe-own", "own_us", "us", Gate::Figure(5.0), &[]),
            row("gateway-watch", "watch_percent", "% of a core", Gate::Figure(0.5), &[]),
        ],
    };
    vec![routes, probes]
}

fn contender(whose: Whose, name: &str, run: Run) -> Contender {
    Contender { whose, name: name.to_owned(), run }
}

fn row(
    name: &str,
    figure: &'static str,
    unit: &'static str,
    gate: Gate,
    peers: &[&str],
) -> RowPlan {
    RowPlan {
        name: name.to_owned(),
        figure,
        unit,
        scale: 1.0,
        better: Better::Lower,
        ours: vec![OURS.to_owned()],
        peers: peers.iter().map(|&peer| peer.to_owned()).collect(),
        gate,
        note: None,
    }
}

fn failed(error: impl ToString) -> BenchError {
    BenchError::Failed(error.to_string())
}

/// Runs iproute2 in the calling thread's namespace.
fn ip(line: &str) -> Result<(), BenchError> {
    let done = Command::new("ip").args(line.split(' ')).output()?;
    let complaint = String::from_utf8_lossy(&done.stderr);
    if done.status.success() { Ok(()) } else { Err(failed(format!("ip {line}: {complaint}"))) }
}

/// On the storage host, in a network namespace of its own; the folder is its own too.
fn in_namespace(
    body: impl FnOnce(&Path) -> Result<Figures, BenchError> + Send,
) -> Result<Figures, BenchError> {
    let folder = scratch::path("gateway")?;
    fs::create_dir_all(&folder)?;
    let run = || {
        let _namespace = sys::namespace::unshare_network()
            .map_err(|error| BenchError::Privilege(error.to_string()))?;
        for line in [
            "link set lo up",
            "link add ib0 type veth peer name far",
            "link set far up",
            "link set ib0 up",
            "addr add 10.10.0.21/24 dev ib0",
        ] {
            ip(line)?;
        }
        body(&folder)
    };
    let figures = thread::scope(|scope| scope.spawn(run).join());
    fs::remove_dir_all(&folder)?;
    figures.map_err(|_panic| failed("the run panicked"))?
}

/// Applies, moves and reverts; the commands that do the same are left in the folder.
fn ours(folder: &Path) -> Result<Figures, BenchError> {
    let plan = parse_plan("plan", PLAN).map_err(failed)?;
    let role = plan.find("s1").ok_or_else(|| failed("no s1 in the plan"))?;
    let options = Options::new(&folder.join("state"), 1);
    let began = Instant::now();
    apply(&plan, role, &options, &mut Network::default(), &mut |_step| {}).map_err(failed)?;
    let apply_s = began.elapsed().as_secs_f64();
    let interfaces = read_host(plan.family, []).map_err(failed)?.interfaces;
    let mut socket = NetlinkSocket::open().map_err(failed)?;
    let mut moves_ms = Vec::new();
    for _turn in 0..MOVES_COUNT {
        for up in [[true, false, true], [true; 3]] {
            let began = Instant::now();
            let ends: (&[bool], &[bool]) = (&[], &up);
            move_flows(&plan, role, &interfaces, &mut socket, ends).map_err(failed)?;
            moves_ms.push(began.elapsed().as_secs_f64() * 1e3);
        }
    }
    let move_ms = stats::median(&moves_ms).ok_or_else(|| failed("no moves"))?;
    revert(&options.state, false, &mut Network::default(), &mut |_step| {}).map_err(failed)?;
    Ok([("apply_s", apply_s), ("move_ms", move_ms)].into())
}

/// The commands that `gateway plan` shows, in one process.
fn theirs(folder: &Path) -> Result<Figures, BenchError> {
    let plan = parse_plan("plan", PLAN).map_err(failed)?;
    let role = plan.find("s1").ok_or_else(|| failed("no s1 in the plan"))?;
    let options = Options::new(&folder.join("state"), 1);
    let made = apply(&plan, role, &options, &mut Network::default(), &mut |_step| {});
    let commands = made.map_err(failed)?.commands;
    revert(&options.state, false, &mut Network::default(), &mut |_step| {}).map_err(failed)?;
    let lines = commands.iter().filter_map(|command| command.strip_prefix("ip "));
    let batch = folder.join("batch");
    fs::write(&batch, lines.collect::<Vec<_>>().join("\n") + "\n")?;
    let mut command = Command::new("ip");
    command.arg("-batch").arg(&batch);
    let began = Instant::now();
    finish(command, RUN_MAX)?;
    Ok([("apply_s", began.elapsed().as_secs_f64())].into())
}
