//! The throughput ceilings of an interface: wire, PCI Express in each direction, memory.
//!
//! Arithmetic only, every step written down with its figures ([`results::CeilingStep`]), so that a
//! reader can check it. A ceiling is the rate that would pass if nothing else were the bottleneck; a
//! step that assumes a figure says which one and why.

mod pcie;

use results::{Absent, Ceiling, CeilingLink, CeilingStep, Nic, NicCeilings, PathFacts};

use crate::ceiling::ETHERNET_WIRE_BYTES;
use crate::numbers::positive;

/// The IP and TCP header options of the packets on a path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Headers {
    /// IPv6, 40 bytes (RFC 8200); else IPv4, 20 bytes (RFC 791).
    pub is_ipv6: bool,
    /// TCP without the timestamps option, 20 bytes (RFC 9293); else 32 (RFC 7323, padded).
    pub lacks_timestamps: bool,
}

impl Headers {
    /// The headers of a TCP connection over the path, with timestamps (the kernel's default).
    #[must_use]
    pub fn of_path(path: &PathFacts) -> Self {
        Self { is_ipv6: path.is_ipv6(), lacks_timestamps: false }
    }

    /// Size of the IP and TCP headers together.
    #[must_use]
    pub fn bytes(self) -> u32 {
        let ip = if self.is_ipv6 { 40 } else { 20 };
        ip + if self.lacks_timestamps { 20 } else { 32 }
    }

    /// TCP payload of a full packet, bytes; `None` when the MTU has no room for any.
    #[must_use]
    pub fn payload_bytes(self, mtu_bytes: u32) -> Option<u32> {
        mtu_bytes.checked_sub(self.bytes()).filter(|&payload| payload > 0)
    }

    fn names(self) -> String {
        let ip = if self.is_ipv6 { "IPv6 40" } else { "IPv4 20" };
        let tcp = if self.lacks_timestamps { "TCP 20" } else { "TCP 20 + timestamps 12" };
        format!("{ip}, {tcp}")
    }
}

/// Every ceiling of an interface that its facts allow; the others are absent, with the reason.
/// `copy_bytes_per_s`: measured rate of copying from memory to memory, if it was measured.
#[must_use]
pub fn ceilings(nic: &Nic, headers: Headers, copy_bytes_per_s: Option<f64>) -> NicCeilings {
    let mut told = NicCeilings { nic: nic.name.clone(), ..NicCeilings::default() };
    let mut lacks = |what: &str, why: &str| {
        told.absent.push(Absent { what: what.to_owned(), why: why.to_owned() });
    };
    let Some(payload_bytes) = headers.payload_bytes(nic.mtu_bytes) else {
        lacks("all ceilings", "the MTU has no room for a payload");
        return told;
    };
    match nic.speed_bits_per_s.and_then(plausible) {
        Some(speed) => told.ceilings.push(line(nic.mtu_bytes, headers, payload_bytes, speed)),
        None => lacks("line rate", "the device does not know its speed"),
    }
    match &nic.pcie {
        Some(link) if pcie::is_plausible(link) => {
            let frames = pcie::Frames::of(nic, headers, payload_bytes);
            told.ceilings.push(pcie::receive(link, &frames));
            told.ceilings.push(pcie::transmit(link, &frames));
        }
        Some(_) => lacks("PCI Express", "its speed or width is not a number"),
        None => lacks("PCI Express", "no PCI Express link is seen: a virtual device"),
    }
    match copy_bytes_per_s.and_then(plausible) {
        Some(rate) => told.ceilings.push(memory(rate)),
        None => lacks("memory", "not measured; `topo --memory` measures it"),
    }
    told
}

/// Filters out rates that no machine has: those not positive, or above 1e15.
fn plausible(rate: f64) -> Option<f64> {
    positive(rate).filter(|&rate| rate <= 1e15)
}

fn line(mtu_bytes: u32, headers: Headers, payload_bytes: u32, speed: f64) -> Ceiling {
    let mtu = f64::from(mtu_bytes);
    let on_the_wire = mtu + ETHERNET_WIRE_BYTES;
    let mut steps = Steps::begin("line rate", "as the device says".to_owned(), speed);
    steps.then(
        "Ethernet: preamble 8, header 14, FCS 4, gap 12",
        format!("{mtu} of {on_the_wire} bytes"),
        speed * mtu / on_the_wire,
    );
    steps.then(
        &headers.names(),
        format!("{payload_bytes} of {mtu} bytes"),
        speed * f64::from(payload_bytes) / on_the_wire,
    );
    steps.end(CeilingLink::Line)
}

/// The receiver's kernel copies every payload byte once to the program, the sender's once from it.
fn memory(copy_bytes_per_s: f64) -> Ceiling {
    let bits = copy_bytes_per_s * 8.0;
    let working = format!("{:.2} GB/s x 8, all usable cores at once", copy_bytes_per_s / 1e9);
    let mut steps = Steps::begin("copying from memory to memory, measured", working, bits);
    let working = "a copying send or receive moves each payload byte once".to_owned();
    steps.then("one copy between kernel and program", working, bits);
    steps.end(CeilingLink::Memory)
}

/// A ceiling's calculation in progress.
#[derive(Debug)]
struct Steps {
    steps: Vec<CeilingStep>,
}

impl Steps {
    fn begin(what: &str, working: String, bits_per_s: f64) -> Self {
        let mut steps = Self { steps: Vec::new() };
        steps.then(what, working, bits_per_s);
        steps
    }

    fn then(&mut self, what: &str, working: String, bits_per_s: f64) {
        self.steps.push(CeilingStep { what: what.to_owned(), working, bits_per_s });
    }

    fn end(self, link: CeilingLink) -> Ceiling {
        let goodput_bits_per_s = self.steps.last().map_or(0.0, |step| step.bits_per_s);
        Ceiling { link, goodput_bits_per_s, steps: self.steps }
    }
}

#[cfg(test)]
mod tests;
