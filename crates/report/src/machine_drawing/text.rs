//! A host in a terminal.

use std::collections::BTreeMap;
use std::fmt::Write;

use results::{Ceiling, CeilingLink, Core, Machine, Nic, NicCeilings, PcieLink};
use units::{show_bit_rate, show_byte_size};

use super::layout::{Group, Layout, Node};
use super::{in_short, list, queues};

/// Cores drawn one by one; of larger hosts, ranges stand.
const CORES_SINGLE_MAX: usize = 64;
/// Columns of the distance matrix side by side.
const DISTANCES_ACROSS: usize = 16;

pub(super) fn draw(machine: &Machine, ceilings: &[NicCeilings], columns: usize) -> String {
    let layout = Layout::of(machine);
    let mut page = Page { text: String::new(), columns };
    page.line(&in_short(machine));
    page.line("");
    let is_folded = machine.cores.len() > CORES_SINGLE_MAX;
    for package in &layout.packages {
        let name = package.number.map_or_else(
            || "cores (package not reported)".to_owned(),
            |number| format!("package {number}"),
        );
        page.rule('\u{250c}', &name, '\u{2510}');
        for node in &package.nodes {
            node_lines(&mut page, machine, node, is_folded);
        }
        page.rule('\u{2514}', "", '\u{2518}');
    }
    if !layout.unplaced.is_empty() {
        let numbers: Vec<u32> = layout.unplaced.iter().map(|core| core.core).collect();
        page.line(&format!("offline, place unknown: {}", list(&numbers)));
    }
    if machine.cores.iter().any(|core| !core.is_online || !core.is_usable || core.is_isolated) {
        page.line("core marks: -off  (not usable)  isolated!");
    }
    smaller_caches(&mut page, machine);
    steering_of_cores(&mut page, machine);
    distances(&mut page, machine);
    for nic in &machine.nics {
        nic_lines(&mut page, nic);
        let own = ceilings.iter().find(|ceilings| ceilings.nic == nic.name);
        own.into_iter().for_each(|own| ceiling_lines(&mut page, own));
    }
    if machine.irqbalance_runs {
        page.line("");
        page.line("irqbalance runs: it moves interrupts by itself every few seconds");
    }
    if !machine.absent.is_empty() {
        page.line("");
        page.line("not known");
        for absent in &machine.absent {
            page.wrapped("  ", &format!("{}: {}", absent.what, absent.why), "    ");
        }
    }
    page.text
}

fn node_lines(page: &mut Page, machine: &Machine, node: &Node<'_>, is_folded: bool) {
    if let Some(number) = node.number {
        let memory =
            node.memory_bytes.map_or(String::new(), |bytes| format!("  {}", show_byte_size(bytes)));
        let nics: Vec<&str> = node.nics.iter().map(|&at| machine.nics[at].name.as_str()).collect();
        let nics =
            if nics.is_empty() { String::new() } else { format!("  <== {}", nics.join(", ")) };
        page.boxed("", &format!("node {number}{memory}{nics}"));
    }
    for group in &node.groups {
        let name = group.cache.map_or(String::new(), |cache| {
            let size = cache.size_bytes.map_or(String::new(), show_byte_size);
            format!("L{} {size:<9}", cache.level)
        });
        page.boxed(&format!("  {name:<13}"), &cores_of(group, is_folded));
    }
}

/// `[0 64] [1 65]` one by one, `0-15 + 64-79` folded; a core alone stands without brackets.
fn cores_of(group: &Group<'_>, is_folded: bool) -> String {
    let is_plain = |core: &&Core| core.is_online && core.is_usable && !core.is_isolated;
    let all_plain = group.physical.iter().flatten().all(is_plain);
    let threads_max = group.physical.iter().map(Vec::len).max().unwrap_or(0);
    if is_folded && all_plain {
        let nth = |nth: usize| -> Vec<u32> {
            group.physical.iter().filter_map(|core| Some(core.get(nth)?.core)).collect()
        };
        let lists: Vec<String> = (0..threads_max).map(|at| list(&nth(at))).collect();
        return lists.join(" + ");
    }
    let one = |threads: &Vec<&Core>| {
        let marks: Vec<String> = threads.iter().map(|core| mark(core)).collect();
        if threads_max > 1 { format!("[{}]", marks.join(" ")) } else { marks.join(" ") }
    };
    group.physical.iter().map(one).collect::<Vec<_>>().join(" ")
}

fn mark(core: &Core) -> String {
    let number = core.core;
    match (core.is_online, core.is_usable, core.is_isolated) {
        (false, _, _) => format!("-{number}"),
        (true, false, _) => format!("({number})"),
        (true, true, true) => format!("{number}!"),
        (true, true, false) => number.to_string(),
    }
}

/// Caches below the last level: how many of a size, and among how many cores each is shared.
fn smaller_caches(page: &mut Page, machine: &Machine) {
    let last = machine.caches.iter().map(|cache| cache.level).max().unwrap_or(0).max(2);
    let mut kinds: BTreeMap<(u32, &str, Option<u64>, usize), usize> = BTreeMap::new();
    for cache in machine.caches.iter().filter(|cache| cache.level < last) {
        let kind = (cache.level, cache.kind.as_str(), cache.size_bytes, cache.cores.len());
        *kinds.entry(kind).or_default() += 1;
    }
    let told = kinds.iter().map(|(&(level, kind, size, sharers), count)| {
        let kind = match kind {
            "Data" => "d",
            "Instruction" => "i",
            _unified => "",
        };
        let size = size.map_or_else(|| "of unknown size".to_owned(), show_byte_size);
        let share = match sharers {
            1 => "one per core".to_owned(),
            _ => format!("each shared by {sharers} cores"),
        };
        format!("{count} x L{level}{kind} {size}, {share}")
    });
    let told: Vec<String> = told.collect();
    if !told.is_empty() {
        page.wrapped("", &format!("caches  {}", told.join("; ")), "  ");
    }
}

/// Clock and idle states, cores that agree in one line.
fn steering_of_cores(page: &mut Page, machine: &Machine) {
    let ghz = |khz: Option<u64>| {
        khz.map_or_else(|| "?".to_owned(), |khz| format!("{:.2}", khz as f64 / 1e6))
    };
    let clock = |core: &Core| {
        let clock = core.frequency.as_ref()?;
        let driver = clock.driver.as_deref().unwrap_or("no driver named");
        Some(format!(
            "clock: {} ({driver}), {} to {} GHz, hardware {}",
            clock.governor,
            ghz(clock.min_khz),
            ghz(clock.max_khz),
            ghz(clock.hardware_max_khz)
        ))
    };
    let idle = |core: &Core| {
        let states = core.idle_states.iter().map(|state| {
            let off = if state.is_disabled { " off" } else { "" };
            format!("{} {} us{off}", state.name, state.exit_latency_us)
        });
        let states: Vec<String> = states.collect();
        (!states.is_empty()).then(|| format!("idle: {}", states.join(", ")))
    };
    for told in [&clock as &dyn Fn(&Core) -> Option<String>, &idle] {
        let mut same: Vec<(String, Vec<u32>)> = Vec::new();
        for core in &machine.cores {
            let Some(text) = told(core) else { continue };
            match same.iter_mut().find(|(known, _)| *known == text) {
                Some((_, cores)) => cores.push(core.core),
                None => same.push((text, vec![core.core])),
            }
        }
        for (text, cores) in &same {
            page.wrapped("", &format!("cores {}  {text}", list(cores)), "  ");
        }
    }
}

/// As `numactl --hardware` prints them, in blocks where there are many.
fn distances(page: &mut Page, machine: &Machine) {
    let nodes = &machine.nodes;
    if nodes.len() < 2 || nodes.iter().all(|node| node.distances.is_empty()) {
        return;
    }
    page.line("");
    page.line("node distances (10: itself)");
    for first in (0..nodes.len()).step_by(DISTANCES_ACROSS) {
        let across = first..nodes.len().min(first + DISTANCES_ACROSS);
        let mut head = "node".to_owned();
        for to in &nodes[across.clone()] {
            write!(head, " {:>4}", to.node).expect("a String takes everything");
        }
        page.line(&head);
        for from in nodes {
            let mut row = format!("{:>4}", from.node);
            for at in across.clone() {
                let distance = from.distances.get(at).map_or("-".to_owned(), u32::to_string);
                write!(row, " {distance:>4}").expect("a String takes everything");
            }
            page.line(&row);
        }
    }
}

fn nic_lines(page: &mut Page, nic: &Nic) {
    page.line("");
    let mut head = vec![nic.name.clone()];
    head.extend(nic.driver.clone());
    head.push(if nic.is_up { "carrier" } else { "no carrier" }.to_owned());
    head.extend(nic.speed_bits_per_s.map(show_bit_rate));
    head.push(format!("MTU {}", nic.mtu_bytes));
    head.extend(nic.node.map(|node| format!("node {node}")));
    if !nic.near_cores.is_empty() {
        head.push(format!("near cores {}", list(&nic.near_cores)));
    }
    page.wrapped("", &head.join("  "), "      ");
    nic.pcie.iter().for_each(|link| page.wrapped("  ", &pcie_line(link), "      "));
    page.wrapped("  ", &settings(nic), "      ");
    let rows = queues::rows(nic);
    let width = |of: fn(&queues::Row) -> &String, least: usize, most: usize| {
        let longest = rows.iter().map(|row| of(row).chars().count()).max().unwrap_or(0);
        longest.clamp(least, most)
    };
    let (first, second) = (width(|row| &row.queues, 5, 14), width(|row| &row.server, 9, 38));
    let third = width(|row| &row.allowed, 11, 24);
    if rows.iter().any(|row| !row.allowed.is_empty()) {
        page.line(&format!(
            "  {:<first$}  {:<second$}  {:<third$}  ran on",
            "queue", "served by", "may run on"
        ));
    }
    for row in rows {
        let steering =
            if row.steering.is_empty() { String::new() } else { format!("  {}", row.steering) };
        let server = cut(&row.server, second);
        let text = format!(
            "{:<first$}  {server:<second$}  {:<third$}  {}{steering}",
            row.queues, row.allowed, row.ran
        );
        page.wrapped("  ", text.trim_end(), "      ");
    }
}

fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let kept: String = text.chars().take(most.saturating_sub(1)).collect();
    format!("{}\u{2026}", kept.trim_end_matches('\u{2026}'))
}

/// Rings, channels, coalescing, RSS, threads and offloads: what is known of them.
fn settings(nic: &Nic) -> String {
    let mut parts = Vec::new();
    if let Some(channels) = nic.channels {
        for (now, most, word) in [
            (channels.combined_count, channels.combined_max_count, "combined"),
            (channels.receive_count, channels.receive_max_count, "rx"),
            (channels.transmit_count, channels.transmit_max_count, "tx"),
        ] {
            if most > 0 || now > 0 {
                parts.push(format!("channels {now} of {most} {word}"));
            }
        }
    } else if !nic.receive_queues.is_empty() {
        let (receive, transmit) = (nic.receive_queues.len(), nic.transmit_queues.len());
        parts.push(format!("queues {receive} rx {transmit} tx"));
    }
    if let Some(rings) = nic.rings {
        parts.push(format!(
            "rings rx {} of {} tx {} of {}",
            rings.receive_count,
            rings.receive_max_count,
            rings.transmit_count,
            rings.transmit_max_count
        ));
    }
    if let Some(wait) = nic.coalescing {
        let adaptive = |on: bool| if on { " adaptive" } else { "" };
        parts.push(format!(
            "coalescing rx{} {} us/{} tx{} {} us/{}",
            adaptive(wait.is_receive_adaptive),
            wait.receive_usecs,
            wait.receive_frames_count,
            adaptive(wait.is_transmit_adaptive),
            wait.transmit_usecs,
            wait.transmit_frames_count
        ));
    }
    let used: Vec<u32> = nic.rss_spread.iter().copied().filter(|&times| times > 0).collect();
    if let (Some(least), Some(most)) = (used.iter().min(), used.iter().max()) {
        let queues = nic.rss_spread.len();
        parts.push(format!(
            "RSS over {} of {queues} queues, {least} to {most} entries each",
            used.len()
        ));
    }
    if let Some(is_threaded) = nic.is_napi_threaded {
        parts.push(format!("threaded NAPI {}", if is_threaded { "on" } else { "off" }));
    }
    let on: Vec<&str> = OFFLOADS
        .iter()
        .filter(|(name, _)| nic.offloads.iter().any(|at| at.name == *name && at.is_on))
        .map(|(_, short)| *short)
        .collect();
    if !nic.offloads.is_empty() {
        parts
            .push(format!("offloads {}", if on.is_empty() { "none".into() } else { on.join(" ") }));
    }
    parts.join("; ")
}

/// The offloads that decide throughput, by the short names of `ethtool -k` users.
const OFFLOADS: &[(&str, &str)] = &[
    ("tx-tcp-segmentation", "tso"),
    ("tx-tcp6-segmentation", "tso6"),
    ("tx-generic-segmentation", "gso"),
    ("tx-udp-segmentation", "uso"),
    ("rx-gro", "gro"),
    ("rx-gro-hw", "gro-hw"),
    ("rx-lro", "lro"),
    ("tx-scatter-gather", "sg"),
    ("rx-checksum", "rx-csum"),
    ("tx-checksum-ip-generic", "tx-csum"),
    ("tx-checksum-ipv4", "tx-csum4"),
    ("rx-ntuple-filter", "ntuple"),
    ("rx-hashing", "rxhash"),
];

fn pcie_line(link: &PcieLink) -> String {
    let mut text =
        format!("PCIe {}: {} GT/s x{}", link.address, link.speed_gt_per_s, link.lanes_count);
    if let (Some(speed), Some(lanes)) = (link.speed_max_gt_per_s, link.lanes_max_count) {
        let is_less = speed > link.speed_gt_per_s || lanes > link.lanes_count;
        text += &if is_less {
            format!(", could be {speed} GT/s x{lanes}")
        } else {
            ", its maximum".to_owned()
        };
    }
    if let Some(bytes) = link.payload_max_bytes {
        text += &format!(", MaxPayload {bytes}");
    }
    if let Some(bytes) = link.read_request_max_bytes {
        text += &format!(", MaxReadRequest {bytes}");
    }
    if let Some(bridge) = &link.narrowest_bridge {
        text += &format!(", below a narrower bridge {bridge}");
        if let (Some(speed), Some(lanes)) = (link.bridge_speed_gt_per_s, link.bridge_lanes_count) {
            text += &format!(" ({speed} GT/s x{lanes})");
        }
    }
    text
}

fn ceiling_lines(page: &mut Page, told: &NicCeilings) {
    for ceiling in &told.ceilings {
        page.line(&format!("  ceiling, {}", link_name(ceiling)));
        for step in &ceiling.steps {
            let rate = show_bit_rate(step.bits_per_s);
            page.wrapped(
                &format!("  {rate:>13}  "),
                &format!("{}  [{}]", step.what, step.working),
                "                   ",
            );
        }
    }
    let lowest = |word: &str, lowest: Option<&Ceiling>| {
        let lowest = lowest?;
        let rate = show_bit_rate(lowest.goodput_bits_per_s);
        Some(format!("  at most {rate} {word}: {}", link_name(lowest)))
    };
    if told.ceilings.iter().any(|ceiling| ceiling.link != CeilingLink::Memory) {
        let (receiving, sending) = (told.lowest_receiving(), told.lowest_sending());
        let lines = [lowest("of payload in", receiving), lowest("of payload out", sending)];
        lines.into_iter().flatten().for_each(|line| page.line(&line));
    }
    let lacks: Vec<String> =
        told.absent.iter().map(|absent| format!("{} ({})", absent.what, absent.why)).collect();
    if !lacks.is_empty() {
        page.wrapped("  ", &format!("no ceiling: {}", lacks.join("; ")), "      ");
    }
}

pub(super) fn link_name(ceiling: &Ceiling) -> &'static str {
    match ceiling.link {
        CeilingLink::Line => "the wire",
        CeilingLink::PcieReceive => "PCI Express, receiving",
        CeilingLink::PcieTransmit => "PCI Express, sending",
        CeilingLink::Memory => "memory",
    }
}

/// Lines no wider than the terminal; nothing in them but what can be printed.
#[derive(Debug)]
struct Page {
    text: String,
    columns: usize,
}

impl Page {
    fn line(&mut self, text: &str) {
        // A device may call itself anything; escape sequences end here.
        let shown = |c: char| if c.is_control() { '\u{fffd}' } else { c };
        let text: String = text.chars().map(shown).take(self.columns).collect();
        self.text.push_str(text.trim_end());
        self.text.push('\n');
    }

    fn rule(&mut self, left: char, name: &str, right: char) {
        let name = if name.is_empty() { String::new() } else { format!(" {name} ") };
        let bar = self.columns.saturating_sub(name.chars().count() + 3);
        let bar = "\u{2500}".repeat(bar);
        self.line(&format!("{left}\u{2500}{name}{bar}{right}"));
    }

    /// A text inside a box, wrapped at words, its continuation below its beginning.
    fn boxed(&mut self, head: &str, text: &str) {
        let room = self.columns.saturating_sub(4);
        let blank = " ".repeat(head.chars().count());
        for (at, line) in wrap(text, room.saturating_sub(blank.len()).max(20)).iter().enumerate() {
            let inside = format!("{}{line}", if at == 0 { head } else { &blank });
            self.line(&format!("\u{2502} {inside:<room$} \u{2502}"));
        }
    }

    /// A text wrapped at words; empty ones are left out.
    fn wrapped(&mut self, head: &str, text: &str, blank: &str) {
        let room = self.columns.saturating_sub(head.chars().count().max(blank.chars().count()));
        for (at, line) in wrap(text, room.max(20)).iter().enumerate() {
            self.line(&format!("{}{line}", if at == 0 { head } else { blank }));
        }
    }
}

/// Cuts at single spaces; runs of spaces hold a table together and stay while they fit.
fn wrap(text: &str, room: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest = text;
    while rest.chars().count() > room {
        let end = rest.char_indices().nth(room).map_or(rest.len(), |(at, _)| at);
        let at = rest[..end].rfind([' ', ',']).filter(|&at| at > 0).map_or(end, |at| at + 1);
        lines.push(rest[..at].trim_end().to_owned());
        rest = rest[at..].trim_start();
    }
    if !rest.is_empty() {
        lines.push(rest.to_owned());
    }
    lines
}
