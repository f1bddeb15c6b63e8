//! A plan carried out: what ranks are told of their cores and ports, settings that are changed while the job runs and changed
//! back at its end, and the launcher as a child for that time.

use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;
use std::time::Duration;

use crew::{CoreChoice, Unsteered};
use rustix::event::{PollFd, PollFlags};
use rustix::process::Signal;
use settings::Key;
use sys::process::{Ending, Owned, SignalReader};
use tuning::{ChangeResult, Outcome, Policy, Undo};

use super::placed::{LauncherBinding, Placed};
use crate::VerbResult;
use crate::exit::{Exit, VerbError, complain, not_run};
use crate::placement::cores_text;
use crate::tuners;

/// Tells the provider the cores of this host's ranks.
pub(super) const CORES_VARIABLE: &str = "FI_CLEARSTREAM_CORES";
/// Tells it the UDP ports of their endpoints.
pub(super) const UDP_PORT_VARIABLE: &str = "FI_CLEARSTREAM_UDP_PORT";
/// What a launcher has after a signal before it is killed.
const GRACE: Ending = Ending { signal: Signal::TERM, grace: Duration::from_secs(5), group: false };

/// The cores of this host's ranks as the provider reads them; `None` where the plan binds none.
pub(super) fn cores_value(placed: &Placed) -> Option<String> {
    let here: Vec<_> = placed.plan.ranks.iter().filter(|rank| rank.is_here).collect();
    let is_bound = |rank: &&crew::RankPlacement| {
        matches!(rank.core_choice, CoreChoice::Queue | CoreChoice::Order)
    };
    if here.is_empty() || !here.iter().all(is_bound) {
        return None;
    }
    let usable: Vec<u32> = placed
        .machine
        .cores
        .iter()
        .filter(|core| core.is_online && core.is_usable)
        .map(|core| core.core)
        .collect();
    let of_rank = |rank: &&crew::RankPlacement| {
        let given = if rank.given_cores.is_empty() { &usable } else { &rank.given_cores };
        let given: Vec<String> = given.iter().map(u32::to_string).collect();
        let core = rank.cores.first()?;
        Some(format!("{core}/{}", given.join(",")))
    };
    let all: Option<Vec<String>> = here.iter().map(of_rank).collect();
    Some(format!("{}:{}", placed.host, all?.join(";")))
}

/// Starts the launcher with the plan carried out; changes are undone when it has ended.
pub(super) fn run(mut command: Command, placed: Option<&Placed>) -> VerbResult {
    placed.iter().for_each(|placed| say_binding(placed));
    let made = placed.map(apply).unwrap_or_default();
    if made.is_empty() {
        let program = command.get_program().to_owned();
        return Ok(not_run(&program, &command.exec()));
    }
    let line = format!(
        "packets of these ranks are steered while the job runs: {} changed; clearstream mpi plan shows them",
        units::count_of(made.len() as u64, "setting")
    );
    writeln!(crate::out::stderr(), "clearstream: {line}").ok();
    let ended = supervise(&mut command);
    undo(&made);
    ended
}

/// What is said of the ranks' cores.
fn say_binding(placed: &Placed) {
    let here = || placed.plan.ranks.iter().filter(|rank| rank.is_here);
    let cores: Vec<u32> = here().filter_map(|rank| rank.cores.first().copied()).collect();
    let choice = here().map(|rank| rank.core_choice).next();
    let line = match (choice, placed.binding) {
        (_, LauncherBinding::Chosen) => {
            "ranks stay where the launcher's own options bind them".to_owned()
        }
        (Some(CoreChoice::Queue), _) => format!(
            "ranks of this host are bound to cores {}, next to the receive queues of {}",
            cores_text(&cores),
            placed.endpoint.interface
        ),
        (Some(CoreChoice::Order), _) => {
            format!("ranks of this host are bound to cores {}", cores_text(&cores))
        }
        (Some(CoreChoice::TooFewCores), _) => {
            "ranks of this host are not bound: there are more ranks than usable cores".to_owned()
        }
        _ => return,
    };
    writeln!(crate::out::stderr(), "clearstream: {line}").ok();
}

/// Makes the plan's changes; those that are in force. One that fails is told and the job goes on without it.
fn apply(placed: &Placed) -> Vec<Key> {
    let plan = &placed.plan;
    let interface = &placed.endpoint.interface;
    let unsteered = |why: &str| complain(&format!("packets of these ranks are not steered: {why}"));
    match plan.unsteered {
        Some(Unsteered::NoQueues) => unsteered(&format!("{interface} shows no receive queue here")),
        Some(Unsteered::NoCores) if placed.binding != LauncherBinding::None => {
            unsteered("the ranks are bound to no core");
        }
        _ => {}
    }
    if let Some(why) = &plan.no_rules {
        complain(&format!(
            "{interface} cannot direct flows to queues by rules ({why}): its hash of addresses \
             and ports chooses the queue of each rank's packets"
        ));
    }
    if plan.changes.is_empty() {
        return Vec::new();
    }
    let applied =
        tuners::tuner(None, None).apply(&plan.changes, Policy::KeepGoing, false, &mut |_step| {});
    match applied {
        Ok(applied) => {
            refusals(&applied.outcomes).iter().for_each(|why| unsteered(why));
            applied.made().map(|outcome| outcome.key.clone()).collect()
        }
        Err(error) => {
            unsteered(&error.to_string());
            Vec::new()
        }
    }
}

/// Why changes were not made, each reason once; a missing privilege is one reason for all.
fn refusals(outcomes: &[Outcome]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut is_told = false;
    for outcome in outcomes {
        if let ChangeResult::Failed { reason, is_privilege } = &outcome.result
            && !(*is_privilege && is_told)
        {
            is_told |= is_privilege;
            lines.push(reason.clone());
        }
    }
    lines
}

/// Undoes what was changed. What cannot be undone stays in the journal.
fn undo(made: &[Key]) {
    match tuners::tuner(None, None).revert(made, Undo::Last, &mut |_step| {}) {
        Ok(outcomes) => {
            for outcome in outcomes.iter().filter(|outcome| !outcome.result.is_settled()) {
                complain(&format!(
                    "{}: not changed back to {}: {:?}; see clearstream tune status",
                    outcome.key, outcome.from, outcome.result
                ));
            }
        }
        Err(error) => complain(&format!("{error}; clearstream tune revert undoes the changes")),
    }
}

/// Runs the launcher to its end. Signals sent to this process are passed on; those of a terminal reach the launcher by
/// themselves.
fn supervise(command: &mut Command) -> VerbResult {
    let failed = |error: &dyn std::error::Error| VerbError::failed(error.to_string());
    let signals = SignalReader::open().map_err(|error| failed(&error))?;
    let program = command.get_program().to_owned();
    let mut child = match Owned::start(command, GRACE) {
        Ok(child) => child,
        Err(error) => return Ok(not_run(&program, &error)),
    };
    loop {
        // Its end is a signal too.
        let mut fds = [PollFd::new(&signals, PollFlags::IN)];
        rustix::event::poll(&mut fds, None).ok();
        while let Some(signal) = signals.next().map_err(|error| failed(&error))? {
            let passed = Signal::from_named_raw(signal.number);
            if let Some(passed) = passed.filter(|&one| one != Signal::CHILD && !signal.from_kernel)
            {
                child.signal(passed)?;
            }
        }
        if let Some(status) = child.try_wait()? {
            return Ok(match (status.code(), status.signal()) {
                (Some(code), _) => Exit::Program(u8::try_from(code).unwrap_or(1)),
                (None, Some(number)) => Exit::Signal(number),
                (None, None) => Exit::Program(1),
            });
        }
    }
}

/// Whether rules name the ports of endpoints.
pub(super) fn port_value(placed: &Placed) -> Option<String> {
    placed.plan.first_port.map(|port| format!("{}:{port}", placed.host))
}
