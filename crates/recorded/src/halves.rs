//! The two halves of the round trip, from where the capture was taken: there to the receiver and
//! back, there to the sender and back.

use std::collections::VecDeque;

use crate::flow::{Flow, Step, StepKind};

/// An end answers sooner than this share of the round trip.
const OWN_SHARE_MAX: f64 = 0.1;
/// A round trip below this is too short to tell whose half is whose, ns.
const TOLD_FROM_NS: u64 = 300_000;

/// Where the capture was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Vantage {
    /// At the sender of the data.
    Sender,
    /// At its receiver.
    Receiver,
    /// Between them.
    Middle,
    /// It cannot be told.
    Unknown,
}

/// A measured time and when it was measured, ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Timed {
    pub(crate) at_ns: u64,
    pub(crate) took_ns: u64,
}

/// Both halves.
#[derive(Debug, Clone, Default)]
pub(crate) struct Halves {
    /// Data seen until its acknowledgement was seen.
    pub(crate) to_receiver: Vec<Timed>,
    /// A timestamp of the receiver's seen until the sender's echo of it was.
    pub(crate) to_sender: Vec<Timed>,
    /// The same two of the handshake, ns: no queue of the flow's own, no delayed acknowledgement.
    pub(crate) handshake: Option<(u64, u64)>,
}

impl Halves {
    pub(crate) fn of(flow: &Flow) -> Self {
        let handshake = handshake(flow);
        let least_echo_ns = handshake.map(|(_, to_sender_ns)| to_sender_ns);
        let mut meter = Meter { least_echo_ns, ..Meter::default() };
        for step in &flow.steps {
            meter.step(step);
        }
        Self { handshake, ..meter.halves }
    }

    /// The shortest seen of each, ns.
    pub(crate) fn shortest(&self) -> (Option<u64>, Option<u64>) {
        let least = |half: &[Timed]| half.iter().map(|timed| timed.took_ns).min();
        let (there, here) = (least(&self.to_receiver), least(&self.to_sender));
        let lower = |seen: Option<u64>, shaken: Option<u64>| seen.into_iter().chain(shaken).min();
        (
            lower(there, self.handshake.map(|halves| halves.0)),
            lower(here, self.handshake.map(|halves| halves.1)),
        )
    }

    pub(crate) fn vantage(&self) -> Vantage {
        let seen = self.shortest();
        let Some((there, here)) = self.handshake.or(seen.0.zip(seen.1)) else {
            return Vantage::Unknown;
        };
        let whole = there.saturating_add(here);
        if whole < TOLD_FROM_NS {
            return Vantage::Unknown;
        }
        let share = here as f64 / whole as f64;
        if share < OWN_SHARE_MAX {
            Vantage::Sender
        } else if share > 1.0 - OWN_SHARE_MAX {
            Vantage::Receiver
        } else {
            Vantage::Middle
        }
    }
}

/// To the receiver and to the sender, where the whole handshake was captured.
fn handshake(flow: &Flow) -> Option<(u64, u64)> {
    let (sender, receiver) = (flow.sender_syn?, flow.receiver_syn?);
    let is_opened_by_sender = sender.is_first;
    let (first, second) = if is_opened_by_sender { (sender, receiver) } else { (receiver, sender) };
    if !first.is_first || second.is_first {
        return None;
    }
    let to_responder = second.time_ns.checked_sub(first.time_ns)?;
    let to_opener = flow.third_ns?.checked_sub(second.time_ns)?;
    Some(if is_opened_by_sender { (to_responder, to_opener) } else { (to_opener, to_responder) })
}

#[derive(Default)]
struct Meter {
    halves: Halves,
    /// Data not yet acknowledged: its end and when it was seen.
    outstanding: VecDeque<(i64, u64)>,
    sent_upto: i64,
    acked_upto: i64,
    /// Up to here an acknowledgement may be for either of two copies (Karn's rule).
    ambiguous_upto: i64,
    /// Timestamps of the receiver's whose echo was not seen yet, and when each was seen first.
    unanswered: VecDeque<(u32, u64)>,
    /// When data came last, and the shortest echo so far.
    data_ns: Option<u64>,
    least_echo_ns: Option<u64>,
}

impl Meter {
    fn step(&mut self, step: &Step) {
        match step.kind {
            StepKind::Data { start, end, .. } => {
                self.data(start, end, step.time_ns);
                if let Some((_, echo)) = step.timestamps {
                    self.echo(echo, step.time_ns);
                }
                self.data_ns = Some(step.time_ns);
            }
            StepKind::Ack { upto, .. } => {
                self.ack(upto, step.time_ns);
                if let Some((value, _)) = step.timestamps
                    && self.unanswered.back().is_none_or(|(last, _)| is_after(value, *last))
                {
                    self.unanswered.push_back((value, step.time_ns));
                }
            }
        }
    }

    fn data(&mut self, start: i64, end: i64, at_ns: u64) {
        if start < self.sent_upto {
            self.ambiguous_upto = self.sent_upto;
        }
        if end > self.sent_upto {
            self.sent_upto = end;
            self.outstanding.push_back((end, at_ns));
        }
    }

    fn ack(&mut self, upto: i64, at_ns: u64) {
        if upto <= self.acked_upto {
            return;
        }
        self.acked_upto = upto;
        // The packet that holds the last byte acknowledged; of a super-segment perhaps a part.
        while self.outstanding.front().is_some_and(|(end, _)| *end < upto) {
            self.outstanding.pop_front();
        }
        let Some((end, sent_ns)) = self.outstanding.front().copied() else { return };
        if end == upto {
            self.outstanding.pop_front();
        }
        if upto > self.ambiguous_upto
            && let Some(took_ns) = at_ns.checked_sub(sent_ns)
        {
            self.halves.to_receiver.push(Timed { at_ns, took_ns });
        }
    }

    fn echo(&mut self, echo: u32, at_ns: u64) {
        while self.unanswered.front().is_some_and(|(value, _)| is_after(echo, *value)) {
            self.unanswered.pop_front();
        }
        if let Some((value, seen_ns)) = self.unanswered.front().copied()
            && value == echo
        {
            self.unanswered.pop_front();
            let took_ns = at_ns.saturating_sub(seen_ns);
            let least_ns = self.least_echo_ns.map_or(took_ns, |least_ns| least_ns.min(took_ns));
            self.least_echo_ns = Some(least_ns);
            // After a silence the sender may have had nothing to send: the echo waited for data. A
            // queue on the way makes echoes longer too, but leaves no silence.
            let silence_ns = self.data_ns.map_or(0, |data_ns| at_ns.saturating_sub(data_ns));
            let may_have_waited = silence_ns > least_ns / 2 && took_ns / 5 * 4 > least_ns;
            if !may_have_waited {
                self.halves.to_sender.push(Timed { at_ns, took_ns });
            }
        }
    }
}

/// Whether a timestamp is later than another, across the wrap of its 32 bits.
fn is_after(value: u32, other: u32) -> bool {
    value.wrapping_sub(other).cast_signed() > 0
}
