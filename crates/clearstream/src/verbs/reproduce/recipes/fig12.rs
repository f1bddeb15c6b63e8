//! C-fig12: the sender pinned to each core in turn.

use results::{Direction, LawCheck, Machine, PaperFigure, Point, Results, TestSpec};
use sweep::Setting;
use sweep::placement::{NEAR_CORE, chance_of_being_better};
use units::show_bit_rate;

use super::{Context, Recipe, undecided};

const NAME: &str = "C-fig12";
const LAW: &str = "throughput follows the distance from core to NIC";
/// A fixed source port, so that the flow keeps its queue.
const PORT: u16 = 25_212;
/// p-value above which the advantage of cores near the card may be chance.
const CHANCE_MAX: f64 = 0.05;

pub(super) const RECIPE: Recipe = Recipe { id: NAME, lab: "onequeue", round, judge };

fn round(number: u32, context: &Context<'_>) -> Option<sweep::Plan> {
    let open = TestSpec { first_port: Some(PORT), ..context.tcp(1, Direction::Forward) };
    let pinned = context.near.usable_cores.iter().map(|core| {
        let spec = TestSpec { near_cores: vec![*core], ..open.clone() };
        Setting::new(NAME, spec).varying(NEAR_CORE, f64::from(*core))
    });
    let settings: Vec<Setting> = pinned.chain([Setting::new(NAME, open.clone())]).collect();
    (number == 0).then(|| context.plan(settings))
}

fn judge(results: &Results) -> (Vec<PaperFigure>, LawCheck) {
    let mut cores: Vec<(u32, Vec<f64>)> = Vec::new();
    for point in results.points.iter().filter(|point| point.experiment == NAME) {
        let core = point.spec().and_then(|spec| spec.near_cores.first());
        let (Some(core), Some(rate)) = (core, rate(point)) else {
            continue;
        };
        match cores.iter_mut().find(|(known, _)| known == core) {
            Some((_, rates)) => rates.push(rate),
            None => cores.push((*core, vec![rate])),
        }
    }
    cores.sort_by_key(|(core, _)| *core);
    let shown = |rates: &[f64]| stats::median(rates).map(show_bit_rate);
    let figures = cores.iter().map(|(core, rates)| PaperFigure {
        name: format!("sender on core {core}"),
        paper: "faster beside the PCIe bridge".to_owned(),
        here: shown(rates),
    });
    let figures: Vec<PaperFigure> = figures.collect();
    let machine = results.near().machine.as_ref();
    let interface = results.near().interface.as_ref().map(|interface| interface.name.as_str());
    let Some(near_nic) = machine.and_then(|machine| near_cores(machine, interface?)) else {
        return (figures, undecided(LAW, &lacks(results)));
    };
    let of = |wanted: bool| -> Vec<f64> {
        let chosen = cores.iter().filter(|(core, _)| near_nic.contains(core) == wanted);
        chosen.flat_map(|(_, rates)| rates.iter().copied()).collect()
    };
    let (beside, beyond) = (of(true), of(false));
    let (Some(fast), Some(slow)) = (stats::median(&beside), stats::median(&beyond)) else {
        return (figures, undecided(LAW, "not every kind of core was measured"));
    };
    let chance = chance_of_being_better(&beside, &beyond, true);
    let judged = format!(
        "{} on cores beside the card, {} on the others ({:+.0}%, p = {:.3})",
        show_bit_rate(fast),
        show_bit_rate(slow),
        (fast / slow - 1.0) * 100.0,
        chance
    );
    let holds = Some(chance <= CHANCE_MAX);
    (figures, LawCheck { law: LAW.to_owned(), holds, judged })
}

fn rate(point: &Point) -> Option<f64> {
    Some(point.measured()?.directions.first()?.received_bits_per_s)
}

/// The cores next to the card; `None` if all are, or none is known to be.
fn near_cores(machine: &Machine, interface: &str) -> Option<Vec<u32>> {
    let nic = machine.nic(interface)?;
    let cores = &nic.near_cores;
    let some_are_not = machine.cores.iter().any(|core| !cores.contains(&core.core));
    (!cores.is_empty() && some_are_not).then(|| cores.clone())
}

/// Why the law cannot be tested on this host.
fn lacks(results: &Results) -> String {
    let near = results.near();
    let nodes = near.machine.as_ref().map_or(0, |machine| machine.nodes.len());
    let card = near.interface.as_ref().map_or_else(
        || "no network card".to_owned(),
        |interface| {
            let driver = interface.driver.as_deref().unwrap_or("unknown driver");
            format!("{} ({driver})", interface.name)
        },
    );
    format!(
        "this host has {} cores on {} memory node{}, all equally far from {card}; the law needs two \
         packages or nodes, and a PCIe card beside one of them",
        near.online_cores_count,
        nodes.max(1),
        if nodes > 1 { "s" } else { "" },
    )
}
