//! What to do about it: the placement file, and the commands.

use std::path::Path;

use results::{
    AppliedChange, End, HostFacts, PLACEMENT_VERSION, PlacedEnd, Placement, PlacementFindings,
    Point, Results, TestSpec,
};
use settings::Change;
use traffic::client::Target;
use units::{Timestamp, show_bit_rate, show_seconds};

use crate::verbs::options::command_line;

/// The file that `test --place` and `run --place` obey. It pins nothing when pinning is no better.
pub(super) fn placement(results: &Results, found: &PlacementFindings) -> Placement {
    let best = &found.best;
    let spec = results.points.first().and_then(Point::spec);
    let far_host = results.far().unwrap_or(results.near());
    let with_interrupts = |placed: PlacedEnd, core: Option<u32>, end: End| match core {
        Some(core) if found.beats_unpinned => {
            let moves = best_moves(results, found, end);
            let interrupts = moves.iter().filter_map(|change| change.key.packet_source()).collect();
            PlacedEnd { interrupt_core: Some(core), interrupts, ..placed }
        }
        _ => placed,
    };
    let end = |host: &HostFacts, core: u32, queue: Option<u32>, port: Option<u16>| PlacedEnd {
        host: host.name.clone(),
        cores: if found.beats_unpinned { vec![core] } else { Vec::new() },
        memory_node: node_of(host, core).filter(|_| found.beats_unpinned),
        first_port: port,
        why: relation_text(host, core, queue),
        ..PlacedEnd::default()
    };
    let unix_ms = results.finished_unix_ms.unwrap_or(results.started_unix_ms);
    Placement {
        version: PLACEMENT_VERSION,
        made: Timestamp { unix_ms }.to_string(),
        target: results.path.target.clone(),
        why: verdict(found),
        near: with_interrupts(
            end(
                results.near(),
                best.near_core,
                best.near_interrupt_core.or(found.near_incoming_core),
                spec.and_then(|spec| spec.first_port),
            ),
            best.near_interrupt_core,
            End::Near,
        ),
        far: with_interrupts(
            end(far_host, best.far_core, best.far_interrupt_core.or(found.far_incoming_core), None),
            best.far_interrupt_core,
            End::Far,
        ),
    }
}

/// Whether a test is one of the best placement.
fn is_best(found: &PlacementFindings, spec: &TestSpec) -> bool {
    let best = &found.best;
    spec.near_cores == [best.near_core]
        && spec.far_cores == [best.far_core]
        && spec.near_interrupt_core == best.near_interrupt_core
        && spec.far_interrupt_core == best.far_interrupt_core
}

/// The settings that were changed at one end in the best placement; none that this program does not
/// know, whatever a far end says.
fn best_moves(results: &Results, found: &PlacementFindings, end: End) -> Vec<Change> {
    let is_best = |point: &&Point| point.spec().is_some_and(|spec| is_best(found, spec));
    let point = results.points.iter().find(is_best);
    point.into_iter().flat_map(|point| moves_of(point, end)).collect()
}

/// What an end says it changed for a test.
fn moves_of(point: &Point, end: End) -> impl Iterator<Item = Change> {
    let outcome = point.measured();
    let report = outcome.and_then(|outcome| match end {
        End::Near => Some(outcome.near()),
        End::Far => outcome.far(),
    });
    let changes = report.into_iter().flat_map(|report| &report.changes);
    changes.filter_map(|change| tuning::verdict::change_of(change).ok())
}

/// Every change the sweep made, each once; all of them were undone.
pub(super) fn changes(points: &[Point]) -> Vec<AppliedChange> {
    let mut changes: Vec<AppliedChange> = Vec::new();
    for (point, end) in points.iter().flat_map(|point| [(point, End::Near), (point, End::Far)]) {
        for moved in moves_of(point, end) {
            let change = AppliedChange {
                end,
                key: moved.key.to_string(),
                from: moved.from.unwrap_or_default(),
                to: moved.to,
                why: None,
                source: None,
                predicted_bits_per_s: None,
                before: None,
                after: None,
                is_kept: Some(false),
                outcome: Some("undone after each test".to_owned()),
            };
            if !changes.contains(&change) {
                changes.push(change);
            }
        }
    }
    changes
}

/// The commands that move for good what the best placement moved.
fn move_commands(results: &Results, found: &PlacementFindings) -> Vec<String> {
    let far_name = results.far().map_or("the far host", |far| far.name.as_str());
    let hosts = [(End::Near, results.near().name.as_str()), (End::Far, far_name)];
    let of = |(end, host): (End, &str)| -> Vec<String> {
        let moves = best_moves(results, found, end);
        let commands = moves.iter().map(|change| settings::command(&change.key, &change.to));
        commands.map(|command| format!("`{command}` on {host}")).collect()
    };
    hosts.into_iter().flat_map(of).collect()
}

/// The commands.
pub(super) fn lines(
    results: &Results,
    found: &PlacementFindings,
    target: &Target,
    file: &Path,
) -> Vec<String> {
    let best = &found.best;
    if !found.beats_unpinned {
        return vec!["leave it unpinned".to_owned()];
    }
    let spec = results.points.iter().filter_map(Point::spec).find(|spec| is_best(found, spec));
    let far_name = results.far().map_or("the far host", |far| far.name.as_str());
    let mut lines = vec![
        format!("`taskset -c {} PROGRAM` on {}", best.near_core, results.near().name),
        format!("`taskset -c {} PROGRAM` on {far_name}", best.far_core),
    ];
    lines.extend(move_commands(results, found));
    let file = file.display();
    lines
        .push(format!("`clearstream run --place {file} -- PROGRAM` does it, with --end far there"));
    lines.extend(spec.map(|spec| format!("`{}` shows it", command_line(target, spec))));
    lines
}

/// One line: what came out.
pub(super) fn verdict(found: &PlacementFindings) -> String {
    let show =
        |value| if found.more_is_better { show_bit_rate(value) } else { show_seconds(value) };
    let best = &found.best;
    let place = format!("near core {}, far core {}", best.near_core, best.far_core);
    let gave = show(best.estimate.median);
    let Some(unpinned) = &found.unpinned else {
        return format!("{place}: {gave}; no run without pinning came through to compare with");
    };
    let without = show(unpinned.median);
    let gain = found.gain.unwrap_or(0.0) * 100.0;
    let chance = found.chance.unwrap_or(1.0) * 100.0;
    if found.beats_unpinned {
        format!("{place}: {gave} against {without} unpinned, {gain:+.0}% (by chance: {chance:.1}%)")
    } else {
        format!(
            "no placement is better than none beyond the noise: the best, {place}, gave {gave}, \
             unpinned {without} ({gain:+.0}%, by chance: {chance:.1}%)"
        )
    }
}

fn relation_text(host: &HostFacts, core: u32, queue: Option<u32>) -> String {
    let Some(queue) = queue else { return String::new() };
    let machine = host.machine.as_ref();
    let proximity = machine.and_then(|machine| machine.proximity(queue, core));
    match proximity {
        _ if queue == core => format!("on core {queue}, which serves the flow's queue"),
        Some(proximity) => {
            format!("{} with core {queue}, which serves the queue", proximity.words())
        }
        None => format!("core {queue} serves the flow's queue"),
    }
}

/// The memory node of a core, where there is more than one to choose from.
fn node_of(host: &HostFacts, core: u32) -> Option<u32> {
    let machine = host.machine.as_ref().filter(|machine| machine.nodes.len() > 1)?;
    machine.core(core)?.node
}
