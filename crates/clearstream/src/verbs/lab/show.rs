//! Text output about labs.

use std::io::{self, Write};

use lab::plan::{DirectionPlan, EndPlan, LabPlan, SwitchPlan, WirePlan};
use lab::{DirectionCounters, HostPortCounters, Lab, LabCounters};
use packet_switch::counters::FlowCount;
use units::{count_of, show_bit_rate, show_byte_size, show_count_of, show_seconds};

/// Lists hosts and their addresses, one line each.
pub(super) fn hosts(out: &mut impl Write, plan: &LabPlan) -> io::Result<()> {
    for host in &plan.hosts {
        let addresses: Vec<String> =
            plan.addresses_of(&host.name).map(|address| address.to_string()).collect();
        let cores: Vec<String> = host.cores.iter().map(u32::to_string).collect();
        let cores = match &cores[..] {
            [] => String::new(),
            some => format!("  cores {}", some.join(",")),
        };
        writeln!(out, "  {:<12} {}{cores}", host.name, addresses.join("  "))?;
    }
    for guest in &plan.guests {
        let addresses: Vec<String> =
            plan.addresses_of(&guest.name).map(|address| address.to_string()).collect();
        let size = format!("cores {}, {}", guest.cores, show_byte_size(guest.memory_bytes));
        let (name, kind, addresses) = (&guest.name, guest.port_type, addresses.join("  "));
        writeln!(out, "  {name:<12} {addresses}  guest, {kind}, {size}")?;
    }
    if let Some(files) = &plan.filesystem {
        let (point, servers) = (files.mount_point(), files.servers.join(" "));
        let clients = files.clients.join(" ");
        writeln!(
            out,
            "  {:<12} {}, served by {servers}, mounted on {clients}",
            point.display(),
            files.kind
        )?;
    }
    Ok(())
}

/// `: DESCRIPTION`, or nothing if the lab file has none.
pub(super) fn described(plan: &LabPlan) -> String {
    if plan.description.is_empty() { String::new() } else { format!(": {}", plan.description) }
}

/// The complete status of a running lab.
pub(super) fn status(out: &mut impl Write, lab: &Lab, counters: &LabCounters) -> io::Result<()> {
    let plan = lab.plan();
    writeln!(out, "lab {} (pid {}){}", plan.name, lab.pid(), described(plan))?;
    if let Some(owner_pid) = lab.owner_pid() {
        writeln!(out, "  goes down with process {owner_pid}")?;
    }
    hosts(out, plan)?;
    for note in lab.notes() {
        writeln!(out, "  note: {note}")?;
    }
    for guest in &plan.guests {
        let name = &guest.name;
        match lab.guest(name).map(|machine| machine.state()) {
            Ok(state) => {
                let (accelerator, pid) = (state.config.accelerator, state.keeper.pid);
                writeln!(out, "  guest {name}: runs under {accelerator} (pid {pid})")?;
            }
            Err(_) => writeln!(out, "  guest {name}: has ended")?,
        }
    }
    for failure in lab.failures().unwrap_or_default() {
        writeln!(out, "  fails: {failure}")?;
    }
    for (index, link) in plan.links.iter().enumerate() {
        let [first, second] = &link.ends;
        let kind = match link.wire {
            WirePlan::Veth(_) => "veth pair",
            WirePlan::Lightpath(_) => "lightpath",
        };
        let (near, far) = (place(first), place(second));
        writeln!(out, "link {near} - {far}: {kind}, MTU {}", link.mtu_bytes)?;
        let counted = counters.links.iter().find(|counted| counted.link_index == index);
        if let (WirePlan::Lightpath(path), Some(counted)) = (&link.wire, counted) {
            writeln!(out, "  {} -> {}: {}", first.host, second.host, wire(&path.forward))?;
            direction(out, &counted.forward)?;
            writeln!(out, "  {} -> {}: {}", second.host, first.host, wire(&path.backward))?;
            direction(out, &counted.backward)?;
        }
    }
    for switch in &plan.switches {
        show_switch(out, lab, switch)?;
        let counted = counters.switches.iter().find(|counted| counted.switch == switch.name);
        counted.iter().flat_map(|counted| &counted.ports).try_for_each(|port| {
            let end = switch.ends.iter().find(|end| end.host == port.host);
            show_port(out, end.map_or("", |end| &end.interface), port)?;
            for (way, counted) in [("to", &port.to_switch), ("from", &port.from_switch)] {
                if let Some(counted) = counted {
                    writeln!(out, "   {way} the switch:")?;
                    direction(out, counted)?;
                }
            }
            Ok::<(), io::Error>(())
        })?;
    }
    Ok(())
}

fn show_switch(out: &mut impl Write, lab: &Lab, switch: &SwitchPlan) -> io::Result<()> {
    let (name, mtu) = (&switch.name, switch.mtu_bytes);
    let ports = count_of(switch.ends.len() as u64, "port");
    let socket = lab.switch_socket(name);
    writeln!(out, "switch {name}: {ports}, MTU {mtu}, socket {}", socket.display())?;
    match &switch.line {
        Some(line) => writeln!(out, "  to and from each host: {}", wire(line)),
        None => Ok(()),
    }
}

/// A port's counters from the host's side: what it sent, what it received.
fn show_port(out: &mut impl Write, interface: &str, port: &HostPortCounters) -> io::Result<()> {
    let flow = |flow: &FlowCount| {
        let dropped: Vec<String> =
            flow.dropped.iter().map(|(why, count)| format!(", {count} dropped ({why})")).collect();
        let frames = show_count_of(flow.frames, "frame");
        format!("{frames}, {}{}", show_byte_size(flow.bytes), dropped.concat())
    };
    let (sent, received) = (flow(&port.count.incoming), flow(&port.count.outgoing));
    write!(out, "  {}:{interface}: sent {sent}; received {received}", port.host)?;
    if port.refused_frames_count > 0 {
        write!(out, "; {} were refused", port.refused_frames_count)?;
    }
    match &port.ended {
        Some(why) => writeln!(out, "; ended: {why}"),
        None => writeln!(out),
    }
}

fn place(end: &EndPlan) -> String {
    format!("{}:{}", end.host, end.interface)
}

/// The settings of one direction of a link, as far as they are set.
fn wire(plan: &DirectionPlan) -> String {
    let time = |ns: u64| show_seconds(ns as f64 * 1e-9);
    let share = |share: f64| format!("{}%", share * 100.0);
    let mut parts = Vec::new();
    parts.extend(plan.rate_bits_per_s.map(|rate| show_bit_rate(rate as f64)));
    parts.push(format!("delay {}", time(plan.delay_ns)));
    if plan.jitter_ns > 0 {
        parts.push(format!("jitter {}", time(plan.jitter_ns)));
    }
    parts.extend(plan.queue_bytes.map(|bytes| format!("queue {}", show_byte_size(bytes))));
    parts.extend(plan.mark_above_bytes.map(|bytes| format!("ECN > {}", show_byte_size(bytes))));
    parts.extend(plan.shaper.map(|shaper| {
        let burst = show_byte_size(shaper.burst_bytes);
        format!("shaped to {} (burst {burst})", show_bit_rate(shaper.rate_bits_per_s as f64))
    }));
    if plan.loss > 0.0 {
        parts.push(format!("loss {}", share(plan.loss)));
    }
    parts.extend(plan.burst_loss.map(|burst| {
        format!("bursts of loss {} every {:.0} packets", share(burst.loss), 1.0 / burst.enter)
    }));
    if plan.reorder > 0.0 {
        parts.push(format!("reorder {} by {}", share(plan.reorder), time(plan.reorder_by_ns)));
    }
    parts.join(", ")
}

fn direction(out: &mut impl Write, counted: &DirectionCounters) -> io::Result<()> {
    let packets = &counted.packets;
    writeln!(
        out,
        "    delivered {}, {}; queue {} now, {} at most",
        show_count_of(packets.delivered_pkts, "packet"),
        show_byte_size(packets.delivered_wire_bytes),
        show_byte_size(counted.queue_bytes),
        show_byte_size(packets.queue_bytes_max),
    )?;
    writeln!(
        out,
        "    dropped: queue {}, loss {}, burst {}; marked {}, reordered {}",
        packets.dropped_queue_pkts,
        packets.dropped_loss_pkts,
        packets.dropped_burst_pkts,
        packets.marked_pkts,
        packets.reordered_frames_count,
    )?;
    if counted.overflow_frames_count + counted.refused_frames_count > 0 {
        writeln!(
            out,
            "    the emulation itself lost {} frames for lack of memory and refused {}",
            counted.overflow_frames_count, counted.refused_frames_count,
        )?;
    }
    if let Some(late) = &counted.lateness {
        writeln!(
            out,
            "    released late by {} (median), {} (p99), {} (max)",
            show_seconds(late.p50_s),
            show_seconds(late.p99_s),
            show_seconds(late.max_s),
        )?;
    }
    Ok(())
}
