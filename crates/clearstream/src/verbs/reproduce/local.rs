//! Experiments without a far end: this host's hardware, compared with the paper's.

use results::{
    CeilingLink, Host, HostFacts, LawCheck, Machine, Nic, NicCeilings, Offload, PaperFigure,
    PcieLink, Results, RunKind,
};
use tuning::profile::{Advice, judge};
use units::show_bit_rate;

use super::catalogue::Entry;
use super::{ReproduceArgs, Reproduced, publish};
use crate::VerbResult;
use crate::exit::VerbError;
use crate::profiles::{running_values, shown, word};
use crate::runner;

/// Runs C-ceiling, C-fig10 or G-tune.
pub(super) fn run(entry: &'static Entry, args: &ReproduceArgs, json: bool) -> VerbResult {
    if args.host.is_some() {
        return Err(VerbError::usage(format!(
            "{} measures this host only: leave out the host",
            entry.id
        )));
    }
    let results = document();
    let judge = match entry.id {
        "C-ceiling" => ceilings,
        "G-tune" => settings,
        _ => distances,
    };
    publish(entry, Reproduced::at_once(results), |results| judge(results.near()), args, json)
}

pub(super) fn document() -> Results {
    Results {
        command: std::env::args().collect(),
        hosts: vec![Host::near(topology::host_facts(None))],
        ..Results::begun(RunKind::Reproduce, runner::now_unix_ms())
    }
}

/// The paper's card: 40GE, PCIe 2.0 x8, MaxPayload 128, without timestamps (Figure 4). The paper does not
/// give its MTU.
fn paper_card(mtu_bytes: u32) -> Nic {
    let on = |name: &str| Offload { name: name.to_owned(), is_on: true, may_change: true };
    Nic {
        name: "the paper's card".to_owned(),
        driver: Some("mlx4_en".to_owned()),
        speed_bits_per_s: Some(40e9),
        mtu_bytes,
        pcie: Some(PcieLink {
            address: "ConnectX-2".to_owned(),
            speed_gt_per_s: 5.0,
            lanes_count: 8,
            payload_max_bytes: Some(128),
            read_request_max_bytes: Some(512),
            ..PcieLink::default()
        }),
        offloads: vec![on("tx-tcp-segmentation"), on("rx-gro")],
        ..Nic::default()
    }
}

fn ceilings(near: &HostFacts) -> (Vec<PaperFigure>, LawCheck) {
    /// The paper's measurements: 25 Gbit/s (figure 5), 26 on its poster.
    const SEEN_BITS_PER_S: (f64, f64) = (25e9, 26e9);
    /// Allowed relative difference between model and measurement, because the paper's MTU is unknown.
    const TOLERANCE: f64 = 0.05;
    let headers = explain::Headers { lacks_timestamps: true, ..explain::Headers::default() };
    let of = |mtu: u32| explain::ceilings(&paper_card(mtu), headers, None);
    let (small, large) = (of(1500), of(9000));
    let step = |told: &NicCeilings, at: usize| {
        let ceiling = told.of(CeilingLink::PcieReceive)?;
        Some(show_bit_rate(ceiling.steps.get(at)?.bits_per_s))
    };
    let lowest = |told: &NicCeilings| Some(told.lowest_receiving()?.goodput_bits_per_s);
    let figure = |name: &str, paper: &str, here: Option<String>| PaperFigure {
        name: name.to_owned(),
        paper: paper.to_owned(),
        here,
    };
    let seen = "25 to 26 Gbit/s seen";
    let mut figures = vec![
        figure("its card: 8 lanes at 5 GT/s", "40 Gbit/s", step(&small, 0)),
        figure("its card: after 8b/10b", "32 Gbit/s", step(&small, 1)),
        figure("its card: TCP payload at MTU 1500", seen, lowest(&small).map(show_bit_rate)),
        figure("its card: TCP payload at MTU 9000", seen, lowest(&large).map(show_bit_rate)),
    ];
    for nic in near.machine.iter().flat_map(|machine| &machine.nics) {
        let told = explain::ceilings(nic, explain::Headers::default(), None);
        let here = lowest(&told).map(show_bit_rate);
        figures.push(figure(&format!("{} of this host, receiving", nic.name), "-", here));
    }
    let law = "the lowest ceiling of the path is the limit".to_owned();
    let is_pcie = |told: &NicCeilings| {
        told.lowest_receiving().is_some_and(|lowest| lowest.link == CeilingLink::PcieReceive)
    };
    let (Some(low), Some(high)) = (lowest(&small), lowest(&large)) else {
        return (figures, super::recipes::undecided(&law, "a ceiling could not be computed"));
    };
    let near_enough = |computed: f64, seen: f64| (computed / seen - 1.0).abs() <= TOLERANCE;
    let holds = is_pcie(&small)
        && is_pcie(&large)
        && near_enough(low, SEEN_BITS_PER_S.0)
        && near_enough(high, SEEN_BITS_PER_S.1);
    let judged = format!(
        "of the card's ceilings PCI Express is the lowest, {} at MTU 1500 and {} at MTU 9000 \
         (arithmetic, step by step in `clearstream topo`); 25 and 26 Gbit/s were seen",
        show_bit_rate(low),
        show_bit_rate(high)
    );
    (figures, LawCheck { law, holds: Some(holds), judged })
}

fn distances(near: &HostFacts) -> (Vec<PaperFigure>, LawCheck) {
    /// The rows of figure 10.
    const PAPER: [&str; 8] = [
        "10 16 16 22 16 22 16 22",
        "16 10 16 22 22 16 22 16",
        "16 16 10 16 16 16 16 22",
        "22 22 16 10 16 16 22 16",
        "16 22 16 16 10 16 16 16",
        "22 16 16 16 16 10 22 22",
        "16 22 16 22 16 22 10 16",
        "22 16 22 16 16 22 16 10",
    ];
    let none = Machine::default();
    let nodes = &near.machine.as_ref().unwrap_or(&none).nodes;
    let row = |at: usize| {
        let words = nodes.get(at)?.distances.iter().map(u32::to_string);
        Some(words.collect::<Vec<_>>().join(" "))
    };
    let mut figures = vec![PaperFigure {
        name: "memory nodes".to_owned(),
        paper: "8".to_owned(),
        here: (!nodes.is_empty()).then(|| nodes.len().to_string()),
    }];
    for at in 0..nodes.len().max(PAPER.len()) {
        figures.push(PaperFigure {
            name: format!("distances of node {at}"),
            paper: PAPER.get(at).copied().unwrap_or("-").to_owned(),
            here: row(at).or_else(|| (!nodes.is_empty()).then(|| "no such node".to_owned())),
        });
    }
    let law = "every node is nearest to itself, and some are farther than others".to_owned();
    if nodes.len() < 2 {
        let why = match nodes.len() {
            0 => "this host shows no memory nodes",
            _ => "this host has one memory node: none can be far from another",
        };
        return (figures, super::recipes::undecided(&law, why));
    }
    let is_own_nearest = nodes.iter().enumerate().all(|(at, node)| {
        let own = node.distances.get(at);
        let others = node.distances.iter().enumerate().filter(|(to, _)| *to != at);
        own.is_some_and(|own| others.into_iter().all(|(_, distance)| distance > own))
    });
    let mut known: Vec<u32> = nodes.iter().flat_map(|node| node.distances.clone()).collect();
    known.sort_unstable();
    known.dedup();
    let known: Vec<String> = known.iter().map(u32::to_string).collect();
    let judged = format!("distances here: {}; the paper's: 10, 16, 22", known.join(", "));
    (figures, LawCheck { law, holds: Some(is_own_nearest), judged })
}

fn settings(_: &HostFacts) -> (Vec<PaperFigure>, LawCheck) {
    const LIST: &str = "cumulus-2018";
    let law = "some of the settings no longer exist or have no effect".to_owned();
    let Some(profile) = tuning::profile::own(LIST) else {
        return (Vec::new(), super::recipes::undecided(&law, "the list is not in this program"));
    };
    let running = running_values(&profile);
    let (mut figures, mut outlived) = (Vec::new(), Vec::new());
    for (key, published) in &profile.settings {
        let (advice, why) = judge(key, published);
        let here = running.get(key).map(String::as_str);
        if here.is_none() || advice == Advice::Idle {
            outlived.push(format!("{key}: {why}"));
        }
        figures.push(PaperFigure {
            name: key.clone(),
            paper: shown(published, advice),
            here: Some(match here {
                Some(value) => format!("{value} ({})", word(published, value)),
                None => "not in this kernel".to_owned(),
            }),
        });
    }
    let judged = if outlived.is_empty() {
        "this kernel has every one of them, and all have an effect".to_owned()
    } else {
        format!("{} of {}: {}", outlived.len(), figures.len(), outlived.join("; "))
    };
    (figures, LawCheck { law, holds: Some(!outlived.is_empty()), judged })
}
