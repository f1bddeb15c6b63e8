//! What to do about it: the placement file, and the commands.

use std::path::Path;

use results::{HostFacts, PLACEMENT_VERSION, PlacedEnd, Placement, PlacementFindings, Results};
use traffic::client::Target;
use units::{Timestamp, show_bit_rate, show_seconds};

use crate::verbs::options::command_line;

/// The file that `test --place` and `run --place` obey. It pins nothing when pinning is no better.
pub(super) fn placement(results: &Results, found: &PlacementFindings) -> Placement {
    let best = &found.best;
    let spec = results.points.first().map(|point| &point.spec);
    let far_host = results.far.as_ref().unwrap_or(&results.near);
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
        near: end(
            &results.near,
            best.near_core,
            found.near_incoming_core,
            spec.and_then(|spec| spec.first_port),
        ),
        far: end(far_host, best.far_core, found.far_incoming_core, None),
    }
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
    let spec = results
        .points
        .iter()
        .map(|point| &point.spec)
        .find(|spec| spec.near_cores == [best.near_core] && spec.far_cores == [best.far_core]);
    let far_name = results.far.as_ref().map_or("the far host", |far| far.name.as_str());
    let mut lines = vec![
        format!("`taskset -c {} PROGRAM` on {}", best.near_core, results.near.name),
        format!("`taskset -c {} PROGRAM` on {far_name}", best.far_core),
    ];
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
