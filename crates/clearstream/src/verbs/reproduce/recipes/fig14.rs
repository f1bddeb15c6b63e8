//! C-fig14: sender core × receiver core, one queue.

use results::{
    Direction, HostFacts, LawCheck, PaperFigure, PlacementFindings, Point, Proximity, Results,
    TestSpec,
};
use sweep::placement::{
    EXPERIMENT, Effort, EndView, Survey, chance_of_being_better, conclude, incoming_cores,
};
use units::show_bit_rate;

use super::{Context, Recipe, undecided};
use crate::placement::shares_machine;

const NAME: &str = "C-fig14";
const LAW: &str = "the distance between the receiver's core and its interrupt's decides";
/// A fixed source port, so that the flow always uses the same queue.
const PORT: u16 = 25_214;
/// The paper's matrix is 8 x 8.
const CORES_MAX: usize = 8;
/// p-value above which the difference may be chance.
const CHANCE_MAX: f64 = 0.05;

pub(super) const RECIPE: Recipe = Recipe { id: NAME, lab: "onequeue", round, judge };

fn round(number: u32, context: &Context<'_>) -> Option<sweep::Plan> {
    let spec = TestSpec { first_port: Some(PORT), ..context.tcp(1, Direction::Forward) };
    let survey = survey(context.near, context.far?, false, spec, context.repeats);
    // Round 0 looks for the queue's core, round 1 measures the whole matrix.
    (number < 2).then(|| survey.round(number, context.points)).flatten()
}

fn survey<'a>(
    near: &'a HostFacts,
    far: &'a HostFacts,
    shares_machine: bool,
    spec: TestSpec,
    repeats: u32,
) -> Survey<'a> {
    let view = |host: &'a HostFacts| EndView {
        machine: host.machine.as_ref(),
        usable_cores: &host.usable_cores[..host.usable_cores.len().min(CORES_MAX)],
        interface: host.interface.as_ref().map(|interface| interface.name.as_str()),
    };
    Survey {
        near: view(near),
        far: view(far),
        shares_machine,
        spec,
        effort: Effort { repeats, points_max: 0, is_exhaustive: true, refines: false },
        near_interrupt_cores: Vec::new(),
        far_interrupt_cores: Vec::new(),
    }
}

fn judge(results: &Results) -> (Vec<PaperFigure>, LawCheck) {
    let of_sweep = |point: &&Point| point.experiment == EXPERIMENT;
    let first = results.points.iter().filter(of_sweep).find_map(Point::spec);
    let (Some(far), Some(first)) = (results.far(), first) else {
        return (Vec::new(), undecided(LAW, "the far end reports nothing about its cores"));
    };
    let same = shares_machine(results);
    let survey = survey(results.near(), far, same, first.clone(), 1);
    let Some(found) = conclude(&survey, &results.points) else {
        return (Vec::new(), undecided(LAW, "no placement was measured"));
    };
    let figures = figures(&found);
    let (_, Some(queue)) = incoming_cores(&results.points) else {
        let why = "the flow's packets arrived on no fixed core, so no core is near them";
        return (figures, undecided(LAW, why));
    };
    (figures, law(results, far, queue, same))
}

/// The paper's figures beside the measured ones.
fn figures(found: &PlacementFindings) -> Vec<PaperFigure> {
    let of_receiver = |wanted: Proximity| {
        found
            .relations
            .iter()
            .find(|one| one.end == results::End::Far && one.proximity == wanted)
            .map(|one| super::shown(&one.estimate))
    };
    let row = |name: &str, paper: &str, here: Option<String>| PaperFigure {
        name: name.to_owned(),
        paper: paper.to_owned(),
        here,
    };
    vec![
        row(
            "receiver on the interrupt's core",
            "best, +1 Gbit/s on its CPU",
            of_receiver(Proximity::SameCore),
        ),
        row("receiver sharing a cache with it", "about +10%", of_receiver(Proximity::SharedCache)),
        row("receiver in the same node", "about +10% (same CPU)", of_receiver(Proximity::SameNode)),
        row("receiver in another node", "the others", of_receiver(Proximity::OtherNode)),
        row("not pinned", "-", found.unpinned.as_ref().map(super::shown)),
    ]
}

/// Compares receivers near the interrupt's core with others. If both ends share a machine, senders on the
/// interrupt's core are left out: they would take its time, which senders on another host cannot.
fn law(results: &Results, far: &HostFacts, queue: u32, same: bool) -> LawCheck {
    let placed = |point: &&Point| point.experiment == EXPERIMENT && !point.varied.is_empty();
    let machine = far.machine.as_ref();
    let several_nodes = machine.is_some_and(|machine| machine.nodes.len() > 1);
    let (mut beside, mut beyond) = (Vec::new(), Vec::new());
    let (mut senders, mut receivers) = (Vec::new(), Vec::new());
    for point in results.points.iter().filter(placed) {
        let Some((spec, outcome)) = point.tested() else { continue };
        let (Some(near), Some(far)) = (spec.near_cores.first(), spec.far_cores.first()) else {
            continue;
        };
        let Some(rate) = outcome.directions.first().map(|one| one.received_bits_per_s) else {
            continue;
        };
        if same && *near == queue {
            continue;
        }
        senders.push((*near, rate));
        receivers.push((*far, rate));
        let proximity = machine.and_then(|machine| machine.proximity(queue, *far));
        // With a single node, only the interrupt's core itself counts as near.
        let is_beside = match proximity {
            Some(proximity) if several_nodes => proximity != Proximity::OtherNode,
            _ => *far == queue,
        };
        if is_beside { beside.push(rate) } else { beyond.push(rate) }
    }
    let (Some(fast), Some(slow)) = (stats::median(&beside), stats::median(&beyond)) else {
        return undecided(LAW, "all of this host's cores are equally far from the interrupt");
    };
    let chance = chance_of_being_better(&beside, &beyond, true);
    let (by_receiver, by_sender) = (spread(&receivers), spread(&senders));
    let judged = format!(
        "beside the interrupt (core {queue}) {}, elsewhere {} ({:+.0}%, p = {:.3}); {}",
        show_bit_rate(fast),
        show_bit_rate(slow),
        (fast / slow - 1.0) * 100.0,
        chance,
        match by_sender {
            Some(by_sender) => format!(
                "the receiver's core moves the median by {:.0}%, the sender's by {:.0}%",
                by_receiver.unwrap_or(0.0) * 100.0,
                by_sender * 100.0
            ),
            None => "how little the sender's core matters cannot be judged here: both ends share \
                     these cores, and one of them is the interrupt's"
                .to_owned(),
        }
    );
    let decides = by_sender.is_none_or(|by_sender| by_receiver.unwrap_or(0.0) > by_sender);
    LawCheck { law: LAW.to_owned(), holds: Some(chance <= CHANCE_MAX && decides), judged }
}

/// Spread of the cores' medians, as a share of the lowest; `None` for a single core.
fn spread(rates: &[(u32, f64)]) -> Option<f64> {
    let mut cores: Vec<u32> = rates.iter().map(|(core, _)| *core).collect();
    cores.sort_unstable();
    cores.dedup();
    let median = |core: &u32| {
        let of_core = rates.iter().filter(|(other, _)| other == core).map(|(_, rate)| *rate);
        stats::median(&of_core.collect::<Vec<_>>())
    };
    let medians: Vec<f64> = cores.iter().filter_map(median).collect();
    let low = medians.iter().copied().fold(f64::INFINITY, f64::min);
    let high = medians.iter().copied().fold(0.0, f64::max);
    (medians.len() > 1 && low > 0.0).then(|| high / low - 1.0)
}
