//! Which cores do the packets' work: queues, steering, interrupts, threaded NAPI, the clock.

use results::{CoreUse, End, Limit, Machine, Nic, Proximity};
use settings::mask_of;
use units::show_bit_rate;

use super::packets::{SCALING_SOURCE, queues};
use super::seen::{Proposal, Seen};
use super::windows::name;
use super::{Plan, Risk};

pub(super) fn rule(seen: &Seen<'_>, plan: &mut Plan) {
    let machine = seen.host(seen.receiver).and_then(|host| host.machine.as_ref());
    if let (Some(machine), Some(nic)) = (machine, seen.nic(seen.receiver)) {
        receive_steering(seen, plan, seen.receiver, machine, nic);
        interrupts(seen, plan, seen.receiver, machine, nic);
    }
    if let Some(nic) = seen.nic(seen.sender) {
        transmit_steering(seen, plan, seen.sender, nic);
    }
    for (end, limit) in [(seen.sender, Limit::SenderCore), (seen.receiver, Limit::ReceiverCore)] {
        governor(seen, plan, end, limit);
    }
}

/// A core that does receive work and nothing else while others are idle.
fn full_core(cores: &[CoreUse]) -> Option<&CoreUse> {
    let busy = cores.iter().filter(|core| core.softirq + core.irq > 0.5 && core.idle < 0.1);
    busy.max_by(|a, b| (a.softirq + a.irq).total_cmp(&(b.softirq + b.irq)))
}

/// One queue's packets on one full core: more queues where the device has them, else steering in
/// software, else the packet work in a thread that the scheduler may move.
fn receive_steering(seen: &Seen<'_>, plan: &mut Plan, end: End, machine: &Machine, nic: &Nic) {
    let cores = seen.report(end).map_or(&[][..], |report| &report.cores);
    let Some(full) = full_core(cores) else { return };
    let idle: Vec<u32> = idle_cores_near(machine, cores, full.core);
    if idle.is_empty() {
        plan.remarks.push(format!(
            "core {} of the {} host is full of packet work and no other core is idle",
            full.core,
            name(end)
        ));
        return;
    }
    let why = format!(
        "core {} spends {:.0}% on packets and {:.0}% idle, while {} cores are idle",
        full.core,
        (full.softirq + full.irq) * 100.0,
        full.idle * 100.0,
        idle.len()
    );
    let device = &nic.name;
    let channels = nic.channels.filter(|known| known.combined_max_count > known.combined_count);
    if let Some(channels) = channels.filter(|_| seen.outcome.directions.len() > 1) {
        let to = channels
            .combined_max_count
            .min(channels.combined_count + u32::try_from(idle.len()).unwrap_or(0));
        seen.propose(
            plan,
            end,
            &format!("{device}/channels-combined"),
            Proposal {
                from: Some(channels.combined_count.to_string()),
                to: to.to_string(),
                why: why.clone(),
                source: SCALING_SOURCE,
                effect: "several flows are served by several cores (one flow stays on one queue)"
                    .to_owned(),
                predicted_bits_per_s: None,
                risk: Risk::High,
                danger: "most drivers take the link down for a moment",
            },
        );
        return;
    }
    if queues(nic) == 1 && nic.receive_queues.iter().all(|queue| queue.rps_cores.is_empty()) {
        seen.propose(plan, end, &format!("{device}/rx-0/rps_cpus"), Proposal {
            from: Some("0".to_owned()),
            to: mask_of(&idle),
            why,
            source: "kernel Documentation/networking/scaling.rst, RPS",
            effect: format!("protocol work moves to {} cores that share a cache with core {}; measure it", idle.len(), full.core),
            predicted_bits_per_s: None,
            risk: Risk::Medium,
            danger: "an interrupt between cores for each batch; slower where one core was enough",
        });
        return;
    }
    if nic.is_napi_threaded == Some(false) && seen.suspected(Limit::ReceiverCore, end).is_some() {
        seen.propose(plan, end, &format!("{device}/threaded"), Proposal {
            from: Some("0".to_owned()),
            to: "1".to_owned(),
            why,
            source: "kernel Documentation/networking/napi.rst, threaded NAPI",
            effect: "the scheduler may run packet work beside the application instead of on its core; measure it".to_owned(),
            predicted_bits_per_s: None,
            risk: Risk::Medium,
            danger: "packet work competes with programs at normal priority",
        });
    }
}

/// Idle cores that share a cache with this one; where none does, those of its node.
fn idle_cores_near(machine: &Machine, cores: &[CoreUse], full: u32) -> Vec<u32> {
    let idle: Vec<u32> = cores
        .iter()
        .filter(|core| core.core != full && core.idle > 0.5)
        .filter(|core| {
            machine.core(core.core).is_none_or(|known| known.is_online && !known.is_isolated)
        })
        .map(|core| core.core)
        .collect();
    let at = |wanted: &[Proximity]| -> Vec<u32> {
        idle.iter()
            .copied()
            .filter(|core| {
                machine.proximity(full, *core).is_some_and(|found| wanted.contains(&found))
            })
            .collect()
    };
    let close = at(&[Proximity::SharedCache]);
    if close.is_empty() { at(&[Proximity::SameNode, Proximity::SmtSibling]) } else { close }
}

/// Interrupts that run on another memory node than their device.
fn interrupts(seen: &Seen<'_>, plan: &mut Plan, end: End, machine: &Machine, nic: &Nic) {
    if nic.near_cores.is_empty() || nic.node.is_none() || machine.nodes.len() < 2 {
        return;
    }
    let online: Vec<u32> = nic
        .near_cores
        .iter()
        .copied()
        .filter(|core| {
            machine.core(*core).is_some_and(|known| known.is_online && !known.is_isolated)
        })
        .collect();
    for (place, interrupt) in nic.interrupts.iter().enumerate() {
        let away = interrupt.effective_cores.iter().find(|core| !nic.near_cores.contains(core));
        let (Some(away), Some(to)) = (away, online.get(place % online.len().max(1))) else {
            continue;
        };
        let from = list(&interrupt.allowed_cores);
        let danger = if machine.irqbalance_runs {
            "irqbalance runs here and moves it back within 10 s unless its configuration forbids \
             it: --persist writes such a list (--banirq)"
        } else {
            "no other core serves it when that one is busy"
        };
        seen.propose(plan, end, &format!("irq:{}/affinity", interrupt.irq), Proposal {
            from: Some(from).filter(|from| !from.is_empty()),
            to: to.to_string(),
            why: format!("{} runs on core {away}, {} is on memory node {}", interrupt.name, nic.name, nic.node.unwrap_or(0)),
            source: "kernel Documentation/core-api/irq/irq-affinity.rst; Open-MX 2009; ESnet interrupt binding",
            effect: "packets are processed where their memory is; `clearstream place` measures \
                the gain".to_owned(),
            predicted_bits_per_s: None,
            risk: Risk::Medium,
            danger,
        });
    }
}

fn list(cores: &[u32]) -> String {
    cores.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

/// Several transmit queues and no core knows its own.
fn transmit_steering(seen: &Seen<'_>, plan: &mut Plan, end: End, nic: &Nic) {
    let told = seen.suspected(Limit::SenderCore, end);
    let unset = nic.transmit_queues.iter().all(|queue| queue.xps_cores.is_empty());
    let cores = seen.host(end).map_or(&[][..], |host| &host.usable_cores);
    let (Some(told), true) = (told, unset && nic.transmit_queues.len() > 1) else { return };
    for queue in &nic.transmit_queues {
        let own: Vec<u32> = cores
            .iter()
            .copied()
            .filter(|core| *core as usize % nic.transmit_queues.len() == queue.queue as usize)
            .collect();
        seen.propose(
            plan,
            end,
            &format!("{}/tx-{}/xps_cpus", nic.name, queue.queue),
            Proposal {
                from: Some("0".to_owned()),
                to: mask_of(&own),
                why: format!(
                    "{told}; {} transmit queues are shared by all cores",
                    nic.transmit_queues.len()
                ),
                source: "kernel Documentation/networking/scaling.rst, XPS",
                effect: "each core has a queue of its own: no lock between them; measure it"
                    .to_owned(),
                predicted_bits_per_s: None,
                risk: Risk::Medium,
                danger: "none while queues and cores stay as they are",
            },
        );
    }
}

/// The binding core runs below the clock it could have.
fn governor(seen: &Seen<'_>, plan: &mut Plan, end: End, limit: Limit) {
    let told = seen.suspected(Limit::CpuFrequency, end).or_else(|| seen.suspected(limit, end));
    let machine = seen.host(end).and_then(|host| host.machine.as_ref());
    let (Some(told), Some(machine)) = (told, machine) else { return };
    let binds = seen.binds(Limit::CpuFrequency) || seen.binds(limit);
    for core in machine.cores.iter().filter(|core| core.is_online && core.is_usable) {
        let Some(clock) = &core.frequency else { continue };
        let (Some(now), Some(most)) = (clock.current_khz, clock.hardware_max_khz) else { continue };
        if clock.governor == "performance" || now * 100 >= most * 95 {
            continue;
        }
        let gain = (seen.rate * most as f64 / now.max(1) as f64).min(seen.target.max(seen.rate));
        seen.propose(plan, end, &format!("cpu:{}/governor", core.core), Proposal {
            from: Some(clock.governor.clone()),
            to: "performance".to_owned(),
            why: format!("{told}; core {} runs at {:.2} of {:.2} GHz", core.core, now as f64 / 1e6, most as f64 / 1e6),
            source: "kernel Documentation/admin-guide/pm/cpufreq.rst; ESnet fasterdata 100G tuning",
            effect: format!("up to {:.2} times the clock: {}", most as f64 / now.max(1) as f64, show_bit_rate(gain)),
            predicted_bits_per_s: binds.then_some(gain),
            risk: Risk::Low,
            danger: "more power while idle",
        });
    }
}
