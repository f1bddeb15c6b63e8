//! A host as an SVG file: packages as frames, nodes in them, caches as bands, cores as cells,
//! interfaces beside their node with the ceilings that bind them, distances as a tinted table.

use std::collections::BTreeMap;

use results::{Core, Machine, NicCeilings};
use units::{show_bit_rate, show_byte_size};

use super::layout::{Group, Layout, Node};
use super::text::link_name;
use super::{in_short, list};
use crate::markup::{Element, el};
use crate::svg::{fit, line, px, rect, text, text_width};

const WIDTH: f64 = 1040.0;
const MARGIN: f64 = 20.0;
const PAD: f64 = 10.0;
const GAP: f64 = 10.0;
const CELL_HEIGHT: f64 = 20.0;
const TITLE_HEIGHT: f64 = 20.0;
const NIC_HEIGHT: f64 = 36.0;
const FONT: f64 = 12.0;
/// Interfaces whose interrupts have a colour of their own.
const COLOURS: usize = 6;

const STYLE: &str = include_str!("machine.css");

pub(super) fn draw(machine: &Machine, ceilings: &[NicCeilings]) -> String {
    let layout = Layout::of(machine);
    let mut canvas = Canvas::new(machine, ceilings);
    canvas.put(text("head", (MARGIN, MARGIN + 12.0), in_short(machine)));
    canvas.y = MARGIN + 28.0;
    for package in &layout.packages {
        let name = package.number.map_or_else(|| "cores".to_owned(), |at| format!("package {at}"));
        canvas.package(&name, &package.nodes);
    }
    if !layout.unplaced.is_empty() {
        let numbers: Vec<u32> = layout.unplaced.iter().map(|core| core.core).collect();
        let says = format!("offline, place unknown: cores {}", list(&numbers));
        canvas.put(text("soft", (MARGIN, canvas.y + 12.0), fit(&says, WIDTH - 2.0 * MARGIN, FONT)));
        canvas.y += 24.0;
    }
    canvas.loose_nics(&layout);
    canvas.distances();
    canvas.legend();
    let (height, art) = (canvas.y + MARGIN, canvas.art);
    let description = describe(machine, ceilings);
    el("svg")
        .attr("xmlns", "http://www.w3.org/2000/svg")
        .attr("viewBox", format!("0 0 {} {}", px(WIDTH), px(height)))
        .attr("width", px(WIDTH))
        .attr("height", px(height))
        .attr("role", "img")
        .attr("aria-labelledby", "machine-title machine-desc")
        .child(el("title").attr("id", "machine-title").text("What this host is made of"))
        .child(el("desc").attr("id", "machine-desc").text(description))
        .child(el("style").own_source(STYLE))
        .child(rect("page", (0.0, 0.0), (WIDTH, height)))
        .child(art)
        .into_markup()
}

/// The drawing in words.
pub(super) fn describe(machine: &Machine, ceilings: &[NicCeilings]) -> String {
    let mut words = vec![in_short(machine)];
    for node in &machine.nodes {
        words.push(format!("node {}: cores {}", node.node, list(&node.cores)));
    }
    for nic in &machine.nics {
        let node = nic.node.map_or(String::new(), |node| format!(" at node {node}"));
        let served: Vec<u32> =
            nic.interrupts.iter().flat_map(|at| at.effective_cores.iter().copied()).collect();
        let served = if served.is_empty() {
            String::new()
        } else {
            format!(", interrupts on cores {}", list(&served))
        };
        let bound = bound(ceilings, &nic.name).map_or(String::new(), |text| format!(", {text}"));
        words.push(format!("{}{node}{served}{bound}", nic.name));
    }
    words.join(". ")
}

/// `at most 24.7 Gbit/s in (PCI Express, receiving)`.
fn bound(ceilings: &[NicCeilings], nic: &str) -> Option<String> {
    let lowest = ceilings.iter().find(|told| told.nic == nic)?.lowest_receiving()?;
    let rate = show_bit_rate(lowest.goodput_bits_per_s);
    Some(format!("at most {rate} in ({})", link_name(lowest)))
}

#[derive(Debug)]
struct Canvas<'a> {
    machine: &'a Machine,
    ceilings: &'a [NicCeilings],
    art: Element,
    y: f64,
    cell: f64,
    /// Core to the colours of the interfaces whose interrupts it serves.
    serves: BTreeMap<u32, Vec<usize>>,
}

impl<'a> Canvas<'a> {
    fn new(machine: &'a Machine, ceilings: &'a [NicCeilings]) -> Self {
        let mut serves: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (at, nic) in machine.nics.iter().enumerate().take(COLOURS) {
            let queues = nic.interrupts.iter().filter(|interrupt| interrupt.queue.is_some());
            let threads = nic.napi_threads.iter().filter_map(|thread| thread.last_core);
            for core in queues.flat_map(|at| at.effective_cores.iter().copied()).chain(threads) {
                let colours = serves.entry(core).or_default();
                if !colours.contains(&at) {
                    colours.push(at);
                }
            }
        }
        let highest = machine.cores.iter().map(|core| core.core).max().unwrap_or(0);
        let cell = text_width(&highest.to_string(), FONT) + 16.0;
        Self { machine, ceilings, art: el("g"), y: 0.0, cell, serves }
    }

    fn put(&mut self, element: Element) {
        self.art = std::mem::replace(&mut self.art, el("g")).child(element);
    }

    /// A package over the whole width, its nodes side by side as they fit.
    fn package(&mut self, name: &str, nodes: &[Node<'_>]) {
        let top = self.y;
        let room = WIDTH - 2.0 * MARGIN - 2.0 * PAD;
        let across = if nodes.len() > 1 { 2.0 } else { 1.0 };
        let width = (room - GAP * (across - 1.0)) / across;
        let mut inside = std::mem::replace(&mut self.art, el("g"));
        self.y = top + TITLE_HEIGHT + 6.0;
        for pair in nodes.chunks(across as usize) {
            let row = self.y;
            let mut bottom = row;
            for (at, node) in pair.iter().enumerate() {
                let x = MARGIN + PAD + at as f64 * (width + GAP);
                self.y = row;
                self.node(node, x, width);
                bottom = bottom.max(self.y);
            }
            self.y = bottom + GAP;
        }
        let drawn = std::mem::replace(&mut self.art, el("g"));
        inside = inside
            .child(rect("package", (MARGIN, top), (WIDTH - 2.0 * MARGIN, self.y - top)))
            .child(text("title", (MARGIN + PAD, top + 16.0), name))
            .child(drawn);
        self.art = inside;
        self.y += GAP;
    }

    fn node(&mut self, node: &Node<'_>, x: f64, width: f64) {
        let top = self.y;
        let inside = std::mem::replace(&mut self.art, el("g"));
        self.y = top + 4.0;
        if let Some(number) = node.number {
            let memory = node
                .memory_bytes
                .map_or(String::new(), |bytes| format!("  {}", show_byte_size(bytes)));
            let name = fit(&format!("node {number}{memory}"), width - 2.0 * PAD, FONT);
            self.put(text("soft", (x + PAD, top + 16.0), name));
            self.y = top + TITLE_HEIGHT + 4.0;
        }
        for group in &node.groups {
            self.group(group, x + PAD, width - 2.0 * PAD);
        }
        for &at in &node.nics {
            self.nic(at, x + PAD, width - 2.0 * PAD);
        }
        let drawn = std::mem::replace(&mut self.art, inside);
        self.put(rect("node", (x, top), (width, self.y - top)));
        self.put(drawn);
    }

    /// A cache as a band with its cores in it.
    fn group(&mut self, group: &Group<'_>, x: f64, width: f64) {
        let top = self.y;
        let name = group.cache.map_or(String::new(), |cache| {
            let size = cache.size_bytes.map_or(String::new(), show_byte_size);
            format!("L{} {size}", cache.level)
        });
        let label = if name.is_empty() { 0.0 } else { 92.0 };
        let inner = width - label - 8.0;
        let mut cells = el("g");
        let (mut at_x, mut at_y) = (0.0, top + 5.0);
        for threads in &group.physical {
            let needs = self.cell * threads.len() as f64;
            if at_x > 0.0 && at_x + needs > inner {
                at_x = 0.0;
                at_y += CELL_HEIGHT + 6.0;
            }
            for (at, core) in threads.iter().enumerate() {
                let place = (x + label + at_x + self.cell * at as f64, at_y);
                cells = cells.child(self.core(core, place));
            }
            at_x += needs + 5.0;
        }
        let bottom = at_y + CELL_HEIGHT + 5.0;
        self.put(rect("cache", (x, top), (width, bottom - top)));
        if !name.is_empty() {
            self.put(text("soft", (x + 8.0, top + 19.0), name));
        }
        self.put(cells);
        self.y = bottom + 6.0;
    }

    fn core(&self, core: &Core, (x, y): (f64, f64)) -> Element {
        let state = match (core.is_online, core.is_usable, core.is_isolated) {
            (false, _, _) => "core offline",
            (true, false, _) => "core unusable",
            (true, true, true) => "core isolated",
            (true, true, false) => "core",
        };
        let colours = self.serves.get(&core.core).map_or(&[][..], Vec::as_slice);
        let names: Vec<&str> =
            colours.iter().map(|&at| self.machine.nics[at].name.as_str()).collect();
        let serves =
            if names.is_empty() { String::new() } else { format!(", serves {}", names.join(", ")) };
        let says = format!("{} {}{serves}", state.replace("core ", "core, "), core.core);
        let centre = x + (self.cell - 1.0) / 2.0;
        let bar = (self.cell - 1.0) / colours.len().max(1) as f64;
        el("g")
            .child(el("title").text(says))
            .child(rect(state, (x, y), (self.cell - 1.0, CELL_HEIGHT)))
            .children(colours.iter().enumerate().map(|(nth, colour)| {
                let place = (x + bar * nth as f64, y + CELL_HEIGHT - 4.0);
                rect(&format!("serves n{colour}"), place, (bar, 4.0))
            }))
            .child(text("number", (centre, y + 13.0), core.core))
    }

    fn nic(&mut self, at: usize, x: f64, width: f64) {
        let Some(nic) = self.machine.nics.get(at) else { return };
        let top = self.y;
        let mut head = vec![nic.name.clone()];
        head.extend(nic.driver.clone());
        head.extend(nic.speed_bits_per_s.map(show_bit_rate));
        head.extend(
            nic.pcie
                .as_ref()
                .map(|link| format!("PCIe {} GT/s x{}", link.speed_gt_per_s, link.lanes_count)),
        );
        let queues = nic.receive_queues.len();
        let mut foot = vec![format!("MTU {}", nic.mtu_bytes)];
        foot.push(if queues == 1 { "1 queue".into() } else { format!("{queues} queues") });
        if nic.is_napi_threaded == Some(true) {
            foot.push("threaded NAPI".to_owned());
        }
        foot.extend(bound(self.ceilings, &nic.name));
        let class = if at < COLOURS { format!("tag n{at}") } else { "tag".to_owned() };
        let room = width - 24.0;
        self.put(rect("nic", (x, top), (width, NIC_HEIGHT)));
        self.put(rect(&class, (x, top), (5.0, NIC_HEIGHT)));
        self.put(text("name", (x + 14.0, top + 15.0), fit(&head.join("  "), room, FONT)));
        self.put(text("soft", (x + 14.0, top + 29.0), fit(&foot.join(", "), room, FONT)));
        self.y = top + NIC_HEIGHT + 6.0;
    }

    /// Interfaces whose place is not told, two side by side.
    fn loose_nics(&mut self, layout: &Layout<'_>) {
        if layout.nics.is_empty() {
            return;
        }
        self.put(text("title", (MARGIN, self.y + 12.0), "interfaces of no node"));
        self.y += TITLE_HEIGHT;
        let width = (WIDTH - 2.0 * MARGIN - GAP) / 2.0;
        for pair in layout.nics.chunks(2) {
            let row = self.y;
            for (nth, &at) in pair.iter().enumerate() {
                self.y = row;
                self.nic(at, MARGIN + nth as f64 * (width + GAP), width);
            }
        }
        self.y += GAP;
    }

    /// The matrix; the farther, the stronger its tint.
    fn distances(&mut self) {
        let nodes = &self.machine.nodes;
        if nodes.len() < 2 || nodes.iter().all(|node| node.distances.is_empty()) {
            return;
        }
        let cell = ((WIDTH - 2.0 * MARGIN - 60.0) / nodes.len() as f64).min(40.0);
        let all = || nodes.iter().flat_map(|node| node.distances.iter().copied());
        let farthest = all().max().unwrap_or(10).max(11);
        let top = self.y + TITLE_HEIGHT;
        self.put(text("title", (MARGIN, self.y + 12.0), "node distances"));
        let mut table = el("g");
        for (at, node) in nodes.iter().enumerate() {
            let along = MARGIN + 60.0 + at as f64 * cell;
            let down = top + (at + 1) as f64 * CELL_HEIGHT;
            let name = text("number soft", (along + cell / 2.0, top + 14.0), node.node);
            table = table.child(name).child(text(
                "soft",
                (MARGIN, down + 14.0),
                format!("node {}", node.node),
            ));
            for (nth, &distance) in node.distances.iter().take(nodes.len()).enumerate() {
                let x = MARGIN + 60.0 + nth as f64 * cell;
                let far = f64::from(distance.saturating_sub(10)) / f64::from(farthest - 10);
                let tint = rect("tint", (x, down), (cell - 2.0, CELL_HEIGHT - 2.0))
                    .attr("fill-opacity", format!("{:.2}", 0.05 + 0.5 * far.clamp(0.0, 1.0)));
                let figure = text("number", (x + cell / 2.0 - 1.0, down + 13.0), distance);
                table = table.child(tint).child(figure);
            }
        }
        self.put(table);
        self.y = top + (nodes.len() + 1) as f64 * CELL_HEIGHT + GAP;
    }

    fn legend(&mut self) {
        let has = |is: fn(&Core) -> bool| self.machine.cores.iter().any(is);
        let marks: Vec<(&str, &str)> = [
            ("core offline", "offline", has(|core| !core.is_online)),
            (
                "core unusable",
                "not usable by this process",
                has(|core| core.is_online && !core.is_usable),
            ),
            ("core isolated", "isolated", has(|core| core.is_isolated)),
        ]
        .into_iter()
        .filter_map(|(class, word, is_there)| is_there.then_some((class, word)))
        .collect();
        self.put(line("edge", (MARGIN, self.y), (WIDTH - MARGIN, self.y)));
        self.y += 8.0;
        let mut x = MARGIN;
        for (class, word) in marks {
            self.put(rect(class, (x, self.y), (16.0, 12.0)));
            self.put(text("soft", (x + 22.0, self.y + 10.0), word));
            x += text_width(word, FONT) + 44.0;
        }
        if !self.serves.is_empty() {
            let word = "coloured foot: serves the queues of the interface of that colour";
            self.put(text("soft", (x, self.y + 10.0), word));
        }
        self.y += 14.0;
    }
}
