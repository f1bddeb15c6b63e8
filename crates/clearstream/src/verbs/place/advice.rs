//! The recommendation of a sweep: the placement file, and the commands.

use std::path::Path;

use results::{
    AppliedChange, End, HostFacts, PLACEMENT_VERSION, PlacedEnd, Placement, PlacementFindings,
    Point, Results, TestSpec,
};
use settings::Change;
use traffic::client::Target;
use units::{Timestamp, show_bit_rate, show_seconds};

use crate::verbs::options::command_line;

/// The placement file for `test --place` and `run --place`. It pins nothing if pinning is no better.
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

/// Whether a test used the best placement.
fn is_best(found: &PlacementFindings, spec: &TestSpec) -> bool {
    let best = &found.best;
    spec.near_cores == [best.near_core]
        && spec.far_cores == [best.far_core]
        && spec.near_interrupt_core == best.near_interrupt_core
        && spec.far_interrupt_core == best.far_interrupt_core
}

/// The settings changed at one end in the best placement, except those that this program does not know:
/// the far end's report is not trusted.
fn best_moves(results: &Results, found: &PlacementFindings, end: End) -> Vec<Change> {
    let is_best = |point: &&Point| point.spec().is_some_and(|spec| is_best(found, spec));
    let point = results.points.iter().find(is_best);
    point.into_iter().flat_map(|point| moves_of(point, end)).collect()
}

/// The changes that an end reports to have made for a test.
fn moves_of(point: &Point, end: End) -> impl Iterator<Item = Change> {
    let outcome = point.measured();
    let report = outcome.and_then(|outcome| match end {
        End::Near => Some(outcome.near()),
        End::Far => outcome.far(),
    });
    let changes = report.into_iter().flat_map(|report| &report.changes);
    changes.filter_map(|change| tuning::verdict::change_of(change).ok())
}

/// Every change that the sweep made, each once; all of them were reverted.
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

/// The commands that permanently move the interrupts as in the best placement.
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

/// The commands, as lines of text.
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

/// The result of the sweep on one line.
pub(super) fn verdict(found: &PlacementFindings) -> String {
    let show =
        |value| if found.more_is_better { show_bit_rate(value) } else { show_seconds(value) };
    let best = &found.best;
    let place = format!("near core {}, far core {}", best.near_core, best.far_core);
    let gave = show(best.estimate.median);
    let Some(unpinned) = &found.unpinned else {
        return format!("{place}: {gave}; no unpinned run succeeded for comparison");
    };
    let without = show(unpinned.median);
    let gain = match (found.gain.unwrap_or(0.0) * 100.0).round() {
        0.0 => "0%".to_owned(),
        gain => format!("{gain:+}%"),
    };
    let chance = found.chance.unwrap_or(1.0);
    if found.beats_unpinned {
        format!("{place}: {gave} against {without} unpinned, {gain} (p = {chance:.3})")
    } else {
        format!(
            "no placement beats unpinned by more than the noise: the best, {place}, gave {gave}, \
             unpinned {without} ({gain}, p = {chance:.3})"
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

/// The memory node of a core, if the host has several.
fn node_of(host: &HostFacts, core: u32) -> Option<u32> {
    let machine = host.machine.as_ref().filter(|machine| machine.nodes.len() > 1)?;
    machine.core(core)?.node
}
