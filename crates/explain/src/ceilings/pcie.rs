//! The TCP payload rate of a PCI Express link, from the transactions each frame needs.
//!
//! The model is that of Neugebauer et al., "Understanding PCIe performance for end host
//! networking" (SIGCOMM 2018), section 3: a frame crosses as transactions of at most MaxPayload
//! bytes, each with header and framing; beside it go descriptors, completion entries and the
//! link's own acknowledgements. Each direction is a link of its own; only traffic in the payload's
//! direction takes capacity from it. Header sizes: PCI Express Base Specification 3.0, 2.2 (header 12 or
//! 16 bytes, LCRC 4), 3.5 (sequence number 2), 4.2 (framing 2), 3.4 (link-layer packet 8 framed).

use results::{Ceiling, CeilingLink, Nic, PcieLink, pcie_bits_per_s};

use super::{Headers, Steps};

/// Memory write or read request with a 64-bit address: header 16, sequence and LCRC 6, framing 2.
const REQUEST_BYTES: f64 = 24.0;
/// Completion with data: header 12, sequence and LCRC 6, framing 2.
const COMPLETION_BYTES: f64 = 20.0;
/// Bytes that a transaction saves in flit mode: the flit carries sequence, CRC and framing for all of them.
const FLIT_SAVES_BYTES: f64 = 8.0;
/// Acknowledgement or credit update of the link layer, framed.
const LINK_PACKET_BYTES: f64 = 8.0;
/// At most one acknowledgement and one credit update for each transaction in the opposite direction.
const LINK_PACKETS_PER_TRANSACTION: f64 = 2.0;
/// MaxPayload that every PCI Express device supports, and that firmware often leaves in place.
const PAYLOAD_LEAST_BYTES: u32 = 128;
/// Reset value of MaxReadRequest.
const READ_REQUEST_DEFAULT_BYTES: u32 = 512;
/// Ethernet header in memory; the device checks and strips the FCS.
const ETHERNET_BYTES: f64 = 14.0;
/// Largest super-segment by default (`GSO_LEGACY_MAX_SIZE`, kernel `include/linux/netdevice.h`).
const SUPER_SEGMENT_BYTES: f64 = 65_536.0;
/// Receive descriptors are read in cache lines.
const DESCRIPTOR_READ_BYTES: f64 = 64.0;

/// Descriptor and completion sizes of a driver's rings, bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Ring {
    receive_descriptor: f64,
    transmit_descriptor: f64,
    completion: f64,
    source: &'static str,
}

impl Ring {
    fn of(driver: Option<&str>) -> Self {
        let ring = |receive_descriptor, transmit_descriptor, completion, source| Self {
            receive_descriptor,
            transmit_descriptor,
            completion,
            source,
        };
        match driver {
            Some("mlx4_en" | "mlx4_core") => ring(16.0, 64.0, 32.0, "mlx4: TXBB 64, CQE 32"),
            Some("mlx5_core") => ring(16.0, 64.0, 64.0, "mlx5: WQEBB 64, CQE 64"),
            Some("ixgbe") => ring(16.0, 16.0, 16.0, "ixgbe: 16 each, written back"),
            Some("i40e" | "ice") => ring(32.0, 16.0, 32.0, "32 received, 16 sent, written back"),
            _other => ring(16.0, 64.0, 32.0, "assumed: descriptor 16 in, 64 out, completion 32"),
        }
    }
}

/// The frames of a bulk flow, and how its host batches them.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Frames {
    frame_bytes: f64,
    payload_bytes: f64,
    header_names: String,
    header_bytes: f64,
    ring: Ring,
    segments_a_send: f64,
    segments_an_acknowledgement: f64,
}

impl Frames {
    pub(super) fn of(nic: &Nic, headers: Headers, payload_bytes: u32) -> Self {
        let is_on = |name: &str| nic.offloads.iter().any(|at| at.name == name && at.is_on);
        let payload_bytes = f64::from(payload_bytes);
        let joined = (SUPER_SEGMENT_BYTES / payload_bytes).floor().max(2.0);
        let has_offloads = !nic.offloads.is_empty();
        let is_segmenting = is_on("tx-tcp-segmentation") || !has_offloads;
        let is_joining = is_on("rx-gro") || is_on("rx-lro") || !has_offloads;
        Self {
            frame_bytes: f64::from(nic.mtu_bytes) + ETHERNET_BYTES,
            payload_bytes,
            header_names: headers.names(),
            header_bytes: ETHERNET_BYTES + f64::from(headers.bytes()),
            ring: Ring::of(nic.driver.as_deref()),
            segments_a_send: if is_segmenting { joined } else { 1.0 },
            // Combined segments are acknowledged once, single ones every second time (RFC 5681 4.2).
            segments_an_acknowledgement: if is_joining { joined } else { 2.0 },
        }
    }
}

/// Whether the link's speed and width are those of a possible link.
pub(super) fn is_plausible(link: &PcieLink) -> bool {
    is_link(link.speed_gt_per_s, link.lanes_count)
}

fn is_link(speed_gt_per_s: f64, lanes_count: u32) -> bool {
    (1.0..=1024.0).contains(&speed_gt_per_s) && (1..=32).contains(&lanes_count)
}

/// Ceiling from the wire into memory, where the device writes.
pub(super) fn receive(link: &PcieLink, frames: &Frames) -> Ceiling {
    let (mut steps, wire) = begin(link);
    let tax = Tax::of(wire.speed);
    let payload = max_payload(link);
    let writes = (frames.frame_bytes / f64::from(payload.bytes)).ceil();
    let data = frames.frame_bytes + writes * tax.request;
    steps.then(
        &format!("transactions: {writes} writes of at most {}", payload.text),
        format!("{} of {data} bytes per frame", frames.frame_bytes),
        wire.rate * frames.frame_bytes / data,
    );
    let ring = frames.ring;
    let descriptor_reads = ring.receive_descriptor / DESCRIPTOR_READ_BYTES;
    let completion = ring.completion + tax.request;
    // Sending an acknowledgement costs two read requests (its descriptor, its data) and a completion entry.
    let acknowledgement = (tax.request * 2.0 + completion) / frames.segments_an_acknowledgement;
    let beside = completion + descriptor_reads * tax.request + acknowledgement;
    // Opposite direction: descriptors, the acknowledgement with its descriptor, and its doorbell.
    let opposite = descriptor_reads + 3.0 / frames.segments_an_acknowledgement;
    finish(steps, &wire, frames, data, (beside, opposite), CeilingLink::PcieReceive)
}

/// Ceiling from memory to the wire, where the device reads and the host answers.
pub(super) fn transmit(link: &PcieLink, frames: &Frames) -> Ceiling {
    let (mut steps, wire) = begin(link);
    let tax = Tax::of(wire.speed);
    let payload = max_payload(link);
    // Of one super-segment only one header is read: the device makes those of the other segments.
    let send = frames.payload_bytes * frames.segments_a_send + frames.header_bytes;
    let answers = (send / f64::from(payload.bytes)).ceil();
    let data = (send + answers * tax.completion) / frames.segments_a_send;
    let share = frames.payload_bytes + frames.header_bytes / frames.segments_a_send;
    steps.then(
        &format!("transactions: {answers} completions of at most {} a send", payload.text),
        format!("{share:.0} of {data:.0} bytes a segment, {} a send", frames.segments_a_send),
        // As a rate on the wire: one frame for each segment's share of the data read.
        wire.rate * frames.frame_bytes / data,
    );
    let ring = frames.ring;
    let descriptor = ring.transmit_descriptor + tax.completion;
    let doorbell = 8.0 + tax.request;
    let incoming =
        ring.receive_descriptor + ring.receive_descriptor / DESCRIPTOR_READ_BYTES * tax.completion;
    let beside = (descriptor + doorbell) / frames.segments_a_send
        + incoming / frames.segments_an_acknowledgement;
    // Opposite direction: read requests, completion entries, and incoming acknowledgements.
    let asked = link.read_request_max_bytes.unwrap_or(READ_REQUEST_DEFAULT_BYTES).max(128);
    let requests = (send / f64::from(asked)).ceil() + 2.0;
    let opposite = requests / frames.segments_a_send + 2.0 / frames.segments_an_acknowledgement;
    finish(steps, &wire, frames, data, (beside, opposite), CeilingLink::PcieTransmit)
}

fn finish(
    mut steps: Steps,
    wire: &Wire,
    frames: &Frames,
    data: f64,
    (beside, opposite): (f64, f64),
    link: CeilingLink,
) -> Ceiling {
    let all = data + beside;
    steps.then(
        &format!("descriptors, completions, doorbells, TCP ACKs ({})", frames.ring.source),
        format!("{data:.0} + {beside:.1} bytes per frame"),
        wire.rate * frames.frame_bytes / all,
    );
    let link_layer = opposite * LINK_PACKETS_PER_TRANSACTION * LINK_PACKET_BYTES;
    // Flits carry acknowledgements and credits in their own bytes.
    let link_layer = if wire.is_flit { 0.0 } else { link_layer };
    let all = all + link_layer;
    steps.then(
        "link layer: acknowledgement and credit update, 8 bytes each",
        format!("+ {link_layer:.1} bytes per frame, for {opposite:.2} transactions the other way"),
        wire.rate * frames.frame_bytes / all,
    );
    steps.then(
        &format!("Ethernet 14, {}", frames.header_names),
        format!("{} of {} bytes", frames.payload_bytes, frames.frame_bytes),
        wire.rate * frames.payload_bytes / all,
    );
    steps.end(link)
}

/// The narrowest link between device and memory, with its rate for transactions.
#[derive(Debug)]
struct Wire {
    speed: f64,
    rate: f64,
    is_flit: bool,
}

/// Bytes that each transaction adds on a link, by kind.
#[derive(Debug)]
struct Tax {
    request: f64,
    completion: f64,
}

impl Tax {
    fn of(speed_gt_per_s: f64) -> Self {
        let saved = if speed_gt_per_s > 32.0 { FLIT_SAVES_BYTES } else { 0.0 };
        Self { request: REQUEST_BYTES - saved, completion: COMPLETION_BYTES - saved }
    }
}

fn begin(link: &PcieLink) -> (Steps, Wire) {
    let bridge = match (&link.narrowest_bridge, link.bridge_speed_gt_per_s, link.bridge_lanes_count)
    {
        (Some(name), Some(speed), Some(lanes)) if is_link(speed, lanes) => {
            Some((format!(", the narrower bridge {name}"), speed, lanes))
        }
        _none => None,
    };
    let (whose, speed, lanes) =
        bridge.unwrap_or((String::new(), link.speed_gt_per_s, link.lanes_count));
    let raw = speed * 1e9 * f64::from(lanes);
    let name = format!("PCIe {} x{lanes}{whose}", generation(speed));
    let mut steps = Steps::begin(&name, format!("{speed} GT/s x {lanes} lanes"), raw);
    let encoded = pcie_bits_per_s(speed, lanes);
    let gbit = raw / 1e9;
    let is_flit = speed > 32.0;
    let (encoding, share) = match speed {
        speed if speed <= 5.0 => ("8b/10b encoding", "8/10"),
        speed if speed <= 32.0 => ("128b/130b encoding", "128/130"),
        _flits => ("flits: transactions, their CRC and FEC", "236/256"),
    };
    steps.then(encoding, format!("{gbit:.1} x {share}"), encoded);
    // Skip ordered sets compensate for clock differences: 4 symbols every 1538 at most (3.0, 4.2.7.3), or
    // a block of 16 bytes every 375. Flits send one in twice as many (6.0, 4.2.8).
    let (every, pause) = match speed {
        speed if speed <= 5.0 => (1538.0, 4.0),
        speed if speed <= 32.0 => (376.0, 1.0),
        _flits => (751.0, 1.0),
    };
    let rate = encoded * (every - pause) / every;
    steps.then("skip ordered sets", format!("{} of {every} symbols", every - pause), rate);
    (steps, Wire { speed, rate, is_flit })
}

/// The PCI Express generation of a speed: `3.0` for 8 GT/s.
fn generation(speed_gt_per_s: f64) -> &'static str {
    match speed_gt_per_s {
        speed if speed <= 2.5 => "1.x",
        speed if speed <= 5.0 => "2.0",
        speed if speed <= 8.0 => "3.0",
        speed if speed <= 16.0 => "4.0",
        speed if speed <= 32.0 => "5.0",
        speed if speed <= 64.0 => "6.0",
        _later => "7.0",
    }
}

struct MaxPayload {
    bytes: u32,
    text: String,
}

fn max_payload(link: &PcieLink) -> MaxPayload {
    match link.payload_max_bytes.filter(|&bytes| (128..=4096).contains(&bytes)) {
        Some(bytes) => MaxPayload { bytes, text: format!("{bytes} B (MaxPayload)") },
        None => MaxPayload {
            bytes: PAYLOAD_LEAST_BYTES,
            text: format!("{PAYLOAD_LEAST_BYTES} B (MaxPayload unread, the least assumed)"),
        },
    }
}
