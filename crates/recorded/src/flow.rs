//! The biggest TCP flow of a capture: its packets in the order of the file, numbered without wrap.

use std::collections::{BTreeMap, VecDeque};

use crate::capture::{self, Damage, Packets};
use crate::frame::{self, Endpoint, Segment};
use crate::{FLOWS_MAX, RecordedError, SEGMENTS_MAX};

/// A second copy of a packet (a capture on several interfaces at once) comes this soon after it.
const COPY_WITHIN_NS: u64 = 1_000_000;
/// Packets each way in which a copy is looked for.
const COPIES_AMONG: usize = 16;

/// What a SYN tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Syn {
    pub(crate) time_ns: u64,
    pub(crate) mss_bytes: Option<u16>,
    pub(crate) window_shift: Option<u8>,
    pub(crate) may_sack: bool,
    pub(crate) has_timestamps: bool,
    /// Whether the capture held enough of it to say whether windows are scaled.
    pub(crate) tells_scale: bool,
    /// Whether this is the first of the two: its sender opened the connection.
    pub(crate) is_first: bool,
}

/// One packet of the flow. Numbers count payload bytes from the first of the sender's that was
/// seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) time_ns: u64,
    pub(crate) kind: StepKind,
    pub(crate) timestamps: Option<(u32, u32)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StepKind {
    /// Payload from the sender of the data.
    Data { start: i64, end: i64, is_marked: bool },
    /// Anything from the receiver: what it acknowledges, its window (scaled where the scale is
    /// known), and the first selective block.
    Ack { upto: i64, window_bytes: u64, sack: Option<(i64, i64)>, is_pure: bool },
}

/// The flow, and what was passed over to get it.
#[derive(Debug, Clone)]
pub(crate) struct Flow {
    /// Of the data, and the other.
    pub(crate) sender: Endpoint,
    pub(crate) receiver: Endpoint,
    pub(crate) sender_syn: Option<Syn>,
    pub(crate) receiver_syn: Option<Syn>,
    /// When the packet came that answered the second SYN.
    pub(crate) third_ns: Option<u64>,
    pub(crate) steps: Vec<Step>,
    /// Payload of this flow in the whole capture, and of all others, bytes.
    pub(crate) payload_bytes: u64,
    pub(crate) other_bytes: u64,
    pub(crate) flows_count: usize,
    /// Payload that was looked at, retransmissions included, bytes.
    pub(crate) looked_bytes: u64,
    /// Only the beginning was looked at.
    pub(crate) is_bounded: bool,
    /// Where the file stops being readable.
    pub(crate) damage: Option<Damage>,
    /// Second copies of packets, left out.
    pub(crate) copies_count: u64,
}

impl Flow {
    /// The receiver's window is told with a scale that only its SYN names, and the sender's must
    /// have allowed it (RFC 7323).
    pub(crate) fn is_scale_known(&self) -> bool {
        let tells = |syn: Option<Syn>| syn.is_some_and(|syn| syn.tells_scale);
        tells(self.sender_syn) && tells(self.receiver_syn)
    }

    /// The agreed shift of the receiver's windows, where both SYNs were seen.
    pub(crate) fn window_shift(&self) -> Option<u8> {
        self.sender_syn?.window_shift?;
        self.receiver_syn?.window_shift
    }
}

/// Payload of one flow, by direction.
#[derive(Debug, Clone, Copy, Default)]
struct Moved {
    forth_bytes: u64,
    back_bytes: u64,
}

/// Finds the flow and reads it.
pub(crate) fn biggest(bytes: &[u8]) -> Result<Flow, RecordedError> {
    let survey = survey(bytes)?;
    let total = |moved: &Moved| moved.forth_bytes + moved.back_bytes;
    let Survey { packets_count, tcp_count, .. } = survey;
    let none = || match survey.damage {
        Some(damage) => RecordedError::Damaged { damage: damage.to_string(), tcp_count },
        None => RecordedError::NoData { packets_count, tcp_count },
    };
    let (pair, moved) =
        survey.flows.iter().max_by_key(|(_, moved)| total(moved)).ok_or_else(none)?;
    let all_bytes: u64 = survey.flows.values().map(total).sum();
    let (sender, receiver) =
        if moved.forth_bytes >= moved.back_bytes { *pair } else { (pair.1, pair.0) };
    let flow = Flow {
        sender,
        receiver,
        sender_syn: None,
        receiver_syn: None,
        third_ns: None,
        steps: Vec::new(),
        payload_bytes: moved.forth_bytes.max(moved.back_bytes),
        other_bytes: all_bytes - total(moved),
        flows_count: survey.flows.len(),
        looked_bytes: 0,
        is_bounded: false,
        damage: survey.damage,
        copies_count: 0,
    };
    Ok(Reader::new(flow).read(capture::packets(bytes)?))
}

struct Survey {
    flows: BTreeMap<(Endpoint, Endpoint), Moved>,
    packets_count: u64,
    tcp_count: u64,
    damage: Option<Damage>,
}

fn survey(bytes: &[u8]) -> Result<Survey, RecordedError> {
    let mut survey =
        Survey { flows: BTreeMap::new(), packets_count: 0, tcp_count: 0, damage: None };
    let mut unread = None;
    let mut packets = capture::packets(bytes)?;
    for packet in packets.by_ref() {
        survey.packets_count += 1;
        if !frame::reads(packet.link_type) {
            unread = Some(packet.link_type);
            continue;
        }
        let Some(segment) = frame::segment(&packet) else { continue };
        survey.tcp_count += 1;
        if segment.payload_bytes == 0 {
            continue;
        }
        let is_forth = segment.from <= segment.to;
        let pair = if is_forth { (segment.from, segment.to) } else { (segment.to, segment.from) };
        if survey.flows.len() >= FLOWS_MAX && !survey.flows.contains_key(&pair) {
            continue;
        }
        let moved = survey.flows.entry(pair).or_default();
        let bytes = u64::from(segment.payload_bytes);
        *(if is_forth { &mut moved.forth_bytes } else { &mut moved.back_bytes }) += bytes;
    }
    survey.damage = packets.damage();
    match unread {
        Some(link_type) if survey.tcp_count == 0 => Err(RecordedError::LinkType { link_type }),
        _ => Ok(survey),
    }
}

/// The second pass.
struct Reader {
    flow: Flow,
    /// Number of the sender's first payload byte, and the last sequence number of its numbering.
    origin: Option<Origin>,
    /// Packets seen last, to know copies.
    recent: VecDeque<Segment>,
}

/// A place in the sender's numbers: 32 bits on the wire, counted on from the first here.
#[derive(Debug, Clone, Copy)]
struct Origin {
    wire: u32,
    count: i64,
}

impl Origin {
    /// The count of a number on the wire: the nearest to what was last seen.
    fn count(self, wire: u32) -> i64 {
        self.count + i64::from(wire.wrapping_sub(self.wire).cast_signed())
    }

    fn advance(&mut self, wire: u32) {
        let count = self.count(wire);
        if count > self.count {
            *self = Self { wire, count };
        }
    }
}

impl Reader {
    fn new(flow: Flow) -> Self {
        Self { flow, origin: None, recent: VecDeque::new() }
    }

    fn read(mut self, packets: Packets<'_>) -> Flow {
        for packet in packets {
            let Some(segment) = frame::segment(&packet) else { continue };
            let ends = (self.flow.sender, self.flow.receiver);
            let is_sender = (segment.from, segment.to) == ends;
            if !is_sender && (segment.to, segment.from) != ends {
                continue;
            }
            if self.is_copy(&segment) {
                self.flow.copies_count += 1;
                continue;
            }
            if self.flow.steps.len() >= SEGMENTS_MAX {
                self.flow.is_bounded = true;
                break;
            }
            self.take(&segment, is_sender);
        }
        self.flow
    }

    fn take(&mut self, segment: &Segment, is_sender: bool) {
        let flags = segment.flags;
        if flags.is_rst() {
            return;
        }
        if flags.is_syn() {
            self.take_syn(segment, is_sender);
            return;
        }
        if is_sender && segment.payload_bytes > 0 {
            self.take_data(segment);
        } else if !is_sender && flags.is_ack() {
            self.take_ack(segment);
        }
        let answers = |syn: Option<Syn>| syn.is_some_and(|syn| syn.is_first);
        let opened = if is_sender { self.flow.sender_syn } else { self.flow.receiver_syn };
        if self.flow.third_ns.is_none() && answers(opened) {
            self.flow.third_ns = Some(segment.time_ns);
        }
    }

    fn take_syn(&mut self, segment: &Segment, is_sender: bool) {
        let options = segment.options;
        let syn = Syn {
            time_ns: segment.time_ns,
            mss_bytes: options.mss_bytes,
            window_shift: options.window_shift,
            may_sack: options.may_sack,
            has_timestamps: options.timestamps.is_some(),
            tells_scale: options.window_shift.is_some() || !options.is_cut,
            is_first: !segment.flags.is_ack(),
        };
        let known = if is_sender { &mut self.flow.sender_syn } else { &mut self.flow.receiver_syn };
        // The last of several: the one that was answered.
        *known = Some(syn);
        if is_sender {
            self.origin = Some(Origin { wire: segment.seq.wrapping_add(1), count: 0 });
        }
    }

    fn take_data(&mut self, segment: &Segment) {
        let origin = self.origin.get_or_insert(Origin { wire: segment.seq, count: 0 });
        let start = origin.count(segment.seq);
        let end = start + i64::from(segment.payload_bytes);
        origin.advance(segment.seq.wrapping_add(segment.payload_bytes));
        self.flow.looked_bytes += u64::from(segment.payload_bytes);
        let kind = StepKind::Data { start, end, is_marked: segment.is_marked };
        self.push(segment, kind);
    }

    fn take_ack(&mut self, segment: &Segment) {
        // Before the first data there is nothing to count from but a SYN.
        let Some(origin) = self.origin else { return };
        let shift = self.flow.window_shift().unwrap_or(0);
        let sack = segment.options.sack;
        let kind = StepKind::Ack {
            upto: origin.count(segment.ack),
            window_bytes: u64::from(segment.window) << shift,
            sack: sack.map(|(left, right)| (origin.count(left), origin.count(right))),
            is_pure: segment.payload_bytes == 0,
        };
        self.push(segment, kind);
    }

    fn push(&mut self, segment: &Segment, kind: StepKind) {
        let timestamps = segment.options.timestamps;
        self.flow.steps.push(Step { time_ns: segment.time_ns, kind, timestamps });
    }

    /// Whether the very packet was seen a moment ago.
    fn is_copy(&mut self, segment: &Segment) -> bool {
        let is_same = |other: &Segment| {
            let within = segment.time_ns.abs_diff(other.time_ns) < COPY_WITHIN_NS;
            // Acknowledgements of IPv6 may well repeat.
            let is_told =
                segment.ident.is_some_and(|ident| ident != 0) || segment.payload_bytes > 0;
            within && is_told && Segment { time_ns: other.time_ns, ..*segment } == *other
        };
        if self.recent.iter().any(is_same) {
            return true;
        }
        if self.recent.len() >= COPIES_AMONG {
            self.recent.pop_front();
        }
        self.recent.push_back(*segment);
        false
    }
}
