//! `vm list`: lists guests.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

use packet_switch::attachment::{Entry, Kind};
use packet_switch::client::Connection;
use serde_json::json;
use units::{count_of, show_byte_size};
use vm::{Machine, MachineState, QueueState};

use crate::VerbResult;
use crate::exit::{Exit, plain};

/// What is said instead of an empty table.
const NONE: &str = "no guest is up; boot one with: clearstream vm run NAME --port SWITCH:PORT\n\
                    guests of labs: clearstream lab list";

pub(super) fn list(json: bool) -> VerbResult {
    let mut switches = BTreeMap::new();
    let rows: Vec<(MachineState, Option<QueueState>, String)> = Machine::all()?
        .iter()
        .map(|machine| {
            let state = machine.state();
            let queue = state.config.passthrough.as_ref().map(|_| machine.queue_state());
            let network = match &queue {
                Some(queue) => of_queue(&state, queue.as_ref()),
                None => network(&mut switches, &state),
            };
            (state, queue.flatten(), network)
        })
        .collect();
    let mut out = crate::out::stdout();
    if json {
        let rows: Vec<_> = rows
            .iter()
            .map(|(state, queue, network)| {
                let config = &state.config;
                json!({ "name": config.name, "port": config.port, "type": config.port_type,
                    "passthrough": config.passthrough, "queue": queue, "trust": config.trust,
                    "switch": config.switch,
                    "state": word(state), "network": network, "pid": state.keeper.pid,
                    "qemu_pid": state.qemu.pid, "owner_pid": state.owner.map(|owner| owner.pid),
                    "memory_bytes": config.memory_bytes, "cores": config.cores,
                    "queues": config.queues, "mac": config.mac, "accelerator": config.accelerator })
            })
            .collect();
        writeln!(out, "{}", json!({ "guests": rows }))?;
    } else if rows.is_empty() {
        writeln!(out, "{NONE}")?;
    } else {
        let mut table = String::new();
        for (state, _, network) in &rows {
            let config = &state.config;
            let cores = count_of(u64::from(config.cores), "core");
            let size = format!("{cores}, {}", show_byte_size(config.memory_bytes));
            table += &format!(
                "{:<12} {:<16} {:<6} {:<8} {size:<18} {:<4} pid {:<8} {network}\n",
                config.name,
                config.network(),
                config.port_type,
                word(state),
                config.accelerator.to_string(),
                state.keeper.pid,
            );
        }
        write!(out, "{}", crate::tables::fit(&table))?;
    }
    Ok(Exit::Ok)
}

fn word(state: &MachineState) -> &'static str {
    match (state.config.has_shell, state.is_ready) {
        (false, _) => "runs",
        (true, false) => "boots",
        (true, true) => "ready",
    }
}

/// Describes the guest's port from the switch's information.
fn network(switches: &mut BTreeMap<PathBuf, Option<Vec<Entry>>>, state: &MachineState) -> String {
    let asked = |socket: &PathBuf| Connection::open(socket).ok()?.list().ok();
    let switch = &state.config.switch;
    let known = switches.entry(switch.clone()).or_insert_with(|| asked(switch));
    let Some(entries) = known else { return "the switch has ended".to_owned() };
    let name = state.config.network();
    let entry = entries.iter().find(|entry| entry.name == name);
    let Some((mode, fault)) = entry.and_then(said) else {
        return "the port no longer exists".to_owned();
    };
    let mode = match mode {
        // The switch cannot tell a driver that is missing from one that is not loaded yet.
        mode if word(state) == "boots" && !mode.starts_with("guest runs") => {
            "guest is booting".to_owned()
        }
        mode => mode,
    };
    with_fault(mode, fault)
}

fn with_fault(mode: String, fault: Option<&String>) -> String {
    match fault {
        Some(why) => format!("{mode}, last fault: {}", plain(why)),
        None => mode,
    }
}

/// Describes the queue that is passed through to the guest, from what its keeper wrote of it.
fn of_queue(state: &MachineState, queue: Option<&QueueState>) -> String {
    let Some(queue) = queue else { return "guest is booting".to_owned() };
    let Some(how) = &queue.mode else {
        return with_fault("the device no longer exists".to_owned(), queue.fault.as_ref());
    };
    let guest = match (queue.has_client, word(state)) {
        (true, _) => "guest runs",
        (false, "boots") => "guest is booting",
        (false, _) => "guest without a driver",
    };
    let link = if queue.has_link { "" } else { ", no carrier" };
    let lost = match (queue.refused, queue.lost) {
        (0, 0) => String::new(),
        (refused, lost) => format!(", {refused} refused, {lost} lost"),
    };
    with_fault(format!("{guest}, {how}{link}{lost}"), queue.fault.as_ref())
}

/// What the switch says of the guest at a port, and what that did wrong last.
fn said(entry: &Entry) -> Option<(String, Option<&String>)> {
    match (&entry.device, entry.kind) {
        (Some(device), _) => {
            let fault = device.ended.as_ref().or(device.trouble.as_ref());
            Some((device.mode.clone().unwrap_or_default(), fault))
        }
        // A guest that drives its rings itself is attached as soon as its driver has asked for them.
        (None, Kind::Port) => {
            let mode = if entry.attached > 0 { "guest runs" } else { "guest without a driver" };
            Some((mode.to_owned(), entry.last_cut_off.as_ref()))
        }
        (None, _) => None,
    }
}
