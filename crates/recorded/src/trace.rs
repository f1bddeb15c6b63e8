//! What the packets of a flow tell: round trips, windows, data in flight, losses, acknowledgements,
//! segment sizes, and how all of them went over time.

use std::collections::VecDeque;

use crate::flow::{Flow, Step, StepKind};
use crate::halves::{Halves, Timed, Vantage};
use crate::holes::{Holes, Passed};

/// Spans of time the flow is cut into, at most. A span is at least one round trip long.
const SPANS_MAX: u64 = 100;
/// Least silence before a retransmission that makes it a timeout's, ns: Linux's `TCP_RTO_MIN`.
const TIMEOUT_NS: u64 = 200_000_000;
/// Without a round trip to compare with, a hole filled sooner than this was reordering, ns.
const LATE_NS: u64 = 3_000_000;
/// Payload of a packet that is no greeting, at least.
const BULK_BYTES_MIN: i64 = 256;
/// Of the spans, left out at the start: the ramp is no state to judge.
const START_SHARE: usize = 5;

/// One span of time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    /// Acknowledged for the first time within it.
    pub(crate) acked_bytes: u64,
    /// Payload that passed here, retransmissions included.
    pub(crate) passed_bytes: u64,
    /// The middle round trip.
    pub(crate) rtt_ns: Option<u64>,
    /// The most in flight, and the window as the sender knew it then.
    pub(crate) in_flight: Option<(u64, u64)>,
    /// Since the flow began: retransmitted packets, and time in which the sender had nothing outstanding
    /// though the window was open.
    pub(crate) retransmits_count: u64,
    pub(crate) idle_ns: u64,
}

/// What was counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) data_count: u64,
    pub(crate) acks_count: u64,
    /// Sent again, as far as it was seen from here.
    pub(crate) retransmits_count: u64,
    /// Of which the first copy never passed here.
    pub(crate) lost_before_count: u64,
    /// Spans of a round trip with a retransmission.
    pub(crate) loss_events_count: u64,
    pub(crate) timeouts_count: u64,
    pub(crate) late_count: u64,
    /// Told by the receiver as having come twice (D-SACK).
    pub(crate) needless_count: u64,
    pub(crate) marked_count: u64,
    pub(crate) selective_count: u64,
    pub(crate) zero_windows_count: u64,
    pub(crate) largest_payload_bytes: u64,
    pub(crate) largest_acked_bytes: u64,
    pub(crate) missed_bytes: u64,
}

/// All of it.
#[derive(Debug, Clone)]
pub(crate) struct Trace {
    pub(crate) vantage: Vantage,
    pub(crate) halves: Halves,
    pub(crate) rtt_min_ns: Option<u64>,
    pub(crate) spans: Vec<Span>,
    pub(crate) counts: Counts,
    pub(crate) sent_bytes: u64,
    pub(crate) acked_bytes: u64,
    pub(crate) idle_ns: u64,
    /// Between acknowledgements that moved on, ascending, ns.
    pub(crate) ack_gaps_ns: Vec<u64>,
    /// From the first data to the last acknowledgement, ns since 1970.
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
}

impl Trace {
    pub(crate) fn of(flow: &Flow) -> Self {
        let halves = Halves::of(flow);
        let vantage = halves.vantage();
        let (there, here) = halves.shortest();
        let rtt_min_ns = match vantage {
            Vantage::Sender => there,
            Vantage::Receiver => here,
            Vantage::Middle => there.zip(here).map(|(there, here)| there.saturating_add(here)),
            Vantage::Unknown => there.max(here),
        };
        let from_ns = bulk_begins(flow);
        let last_ns = flow.steps.iter().map(|step| step.time_ns).max().unwrap_or(0);
        let mut walk = Walk::new(&halves, vantage, rtt_min_ns, from_ns, last_ns);
        walk.is_window_known = flow.is_scale_known();
        flow.steps.iter().for_each(|step| walk.step(step));
        let (spans, counts, ends) = walk.finish();
        let mut ack_gaps_ns = ends.ack_gaps_ns;
        ack_gaps_ns.sort_unstable();
        Self {
            vantage,
            rtt_min_ns,
            spans,
            counts,
            sent_bytes: ends.sent_bytes,
            acked_bytes: ends.acked_bytes,
            idle_ns: ends.idle_ns,
            ack_gaps_ns,
            from_ns,
            to_ns: ends.to_ns.max(from_ns),
            halves,
        }
    }

    /// The spans without the start, and without a last one that is not whole.
    pub(crate) fn steady(&self) -> &[Span] {
        let skipped = self.spans.len().div_ceil(START_SHARE).min(self.spans.len());
        &self.spans[skipped..]
    }
}

/// When the first data came that is no greeting of the application's protocol.
fn bulk_begins(flow: &Flow) -> u64 {
    let first = |least_bytes: i64| {
        flow.steps.iter().find(|step| match step.kind {
            StepKind::Data { start, end, .. } => end - start >= least_bytes,
            StepKind::Ack { .. } => false,
        })
    };
    first(BULK_BYTES_MIN).or_else(|| first(0)).map_or(0, |step| step.time_ns)
}

/// What a walk ends with beside spans and counts.
struct Ends {
    sent_bytes: u64,
    acked_bytes: u64,
    idle_ns: u64,
    ack_gaps_ns: Vec<u64>,
    to_ns: u64,
}

/// One acknowledgement, until the sender knows of it.
#[derive(Debug, Clone, Copy)]
struct Told {
    at_ns: u64,
    upto: i64,
    window_bytes: u64,
}

struct Walk<'a> {
    halves: &'a Halves,
    vantage: Vantage,
    is_window_known: bool,
    rtt_ns: Option<u64>,
    from_ns: u64,
    span_ns: u64,
    spans: Vec<Span>,
    /// Round trips of the span that is being filled.
    rtts_ns: Vec<u64>,
    rtts_taken: (usize, usize),
    counts: Counts,
    holes: Holes,
    /// Acknowledgements that passed here and are still on their way to the sender.
    underway: VecDeque<Told>,
    known: Option<Told>,
    to_sender_ns: u64,
    /// The shortest way to the sender and back.
    sender_ns: u64,
    /// When all that was sent was acknowledged, until something is sent again.
    quiet_since_ns: Option<u64>,
    idle_ns: u64,
    sent_upto: i64,
    acked_upto: i64,
    first_data: Option<i64>,
    last_data_ns: u64,
    last_event_ns: Option<u64>,
    last_ack_ns: Option<u64>,
    ack_gaps_ns: Vec<u64>,
}

impl<'a> Walk<'a> {
    fn new(
        halves: &'a Halves,
        vantage: Vantage,
        rtt_ns: Option<u64>,
        from_ns: u64,
        last_ns: u64,
    ) -> Self {
        let whole_ns = last_ns.saturating_sub(from_ns);
        let span_ns = rtt_ns.unwrap_or(0).max(whole_ns / SPANS_MAX).max(1);
        let to_sender_ns = match vantage {
            Vantage::Sender | Vantage::Unknown => 0,
            Vantage::Receiver | Vantage::Middle => halves.shortest().1.unwrap_or(0),
        };
        Self {
            halves,
            vantage,
            is_window_known: false,
            rtt_ns,
            from_ns,
            span_ns,
            spans: Vec::new(),
            rtts_ns: Vec::new(),
            rtts_taken: (0, 0),
            counts: Counts::default(),
            holes: Holes::default(),
            underway: VecDeque::new(),
            known: None,
            to_sender_ns,
            sender_ns: halves.shortest().1.unwrap_or(0),
            quiet_since_ns: None,
            idle_ns: 0,
            sent_upto: 0,
            acked_upto: 0,
            first_data: None,
            last_data_ns: 0,
            last_event_ns: None,
            last_ack_ns: None,
            ack_gaps_ns: Vec::new(),
        }
    }

    fn step(&mut self, step: &Step) {
        // The clock of a capture may step back: what seems earlier counts as now.
        let at_ns = step.time_ns.max(self.last_data_ns).max(self.last_ack_ns.unwrap_or(0));
        match step.kind {
            StepKind::Data { start, end, is_marked } => {
                self.counts.marked_count += u64::from(is_marked);
                self.data(start, end, at_ns);
            }
            StepKind::Ack { upto, window_bytes, sack, is_pure } => {
                self.counts.acks_count += u64::from(is_pure);
                self.ack(Told { at_ns, upto, window_bytes }, sack);
            }
        }
    }

    /// The span a moment lies in, begun if it is the first to.
    fn span(&mut self, at_ns: u64) -> &mut Span {
        let number = at_ns.saturating_sub(self.from_ns) / self.span_ns;
        let number = usize::try_from(number.min(SPANS_MAX)).unwrap_or(0);
        while self.spans.len() <= number {
            self.close_span();
            let started_ns = (self.spans.len() as u64).saturating_mul(self.span_ns);
            let start_ns = self.from_ns.saturating_add(started_ns);
            let retransmits_count = self.counts.retransmits_count;
            let end_ns = start_ns.saturating_add(self.span_ns);
            self.spans.push(Span { start_ns, end_ns, retransmits_count, ..Span::default() });
        }
        &mut self.spans[number]
    }

    fn data(&mut self, start: i64, end: i64, at_ns: u64) {
        let length = u64::try_from(end - start).unwrap_or(0);
        self.counts.data_count += 1;
        self.counts.largest_payload_bytes = self.counts.largest_payload_bytes.max(length);
        if self.first_data.is_none() {
            self.first_data = Some(start);
            (self.sent_upto, self.acked_upto) = (start, start);
        }
        let late_max_ns = self.rtt_ns.map_or(LATE_NS, |rtt_ns| (rtt_ns / 2).max(LATE_NS / 10));
        let silence_ns = at_ns.saturating_sub(self.last_data_ns);
        match self.holes.pass(start, end, at_ns, late_max_ns) {
            Passed::New => {}
            Passed::Late => self.counts.late_count += 1,
            // The probe of a window that is closed repeats one byte at most.
            Passed::Again if length <= 1 => {}
            passed @ (Passed::LostBefore | Passed::Again) => {
                self.counts.retransmits_count += 1;
                self.counts.lost_before_count += u64::from(passed == Passed::LostBefore);
                self.counts.timeouts_count += u64::from(silence_ns >= TIMEOUT_NS);
                self.loss_event(at_ns);
            }
        }
        self.last_data_ns = at_ns;
        let retransmits_count = self.counts.retransmits_count;
        let span = self.span(at_ns);
        span.retransmits_count = retransmits_count;
        span.passed_bytes += length;
        self.learn(at_ns);
        if end > self.sent_upto {
            // The last acknowledgement took half the way to the sender, and this the other half.
            let since_ns = self.quiet_since_ns.take().map(|since_ns| since_ns.max(self.from_ns));
            let quiet_ns = since_ns.map(|since_ns| at_ns.saturating_sub(since_ns));
            self.idle_ns += quiet_ns.unwrap_or(0).saturating_sub(self.sender_ns);
            self.sent_upto = end;
            self.in_flight(at_ns);
        }
    }

    fn loss_event(&mut self, at_ns: u64) {
        let since_ns = self.last_event_ns.map(|last_ns| at_ns.saturating_sub(last_ns));
        if since_ns.is_none_or(|since_ns| since_ns > self.rtt_ns.unwrap_or(0)) {
            self.counts.loss_events_count += 1;
            self.last_event_ns = Some(at_ns);
        }
    }

    /// What the sender knew when it sent what is seen now.
    fn learn(&mut self, at_ns: u64) {
        let (there, here) = (&self.halves.to_receiver, &self.halves.to_sender);
        let is_past = |timed: &&Timed| timed.at_ns <= at_ns;
        let (mut to_receiver_ns, mut to_sender_ns) = (None, None);
        while let Some(timed) = there.get(self.rtts_taken.0).filter(is_past) {
            self.rtts_taken.0 += 1;
            to_receiver_ns = Some(timed.took_ns);
        }
        while let Some(timed) = here.get(self.rtts_taken.1).filter(is_past) {
            self.rtts_taken.1 += 1;
            to_sender_ns = Some(timed.took_ns);
        }
        match (self.vantage, to_receiver_ns, to_sender_ns) {
            (Vantage::Receiver, _, Some(here_ns)) => {
                self.to_sender_ns = here_ns;
                self.rtts_ns.push(here_ns);
            }
            (Vantage::Middle, there_ns, Some(here_ns)) => {
                self.to_sender_ns = here_ns;
                let there_ns = there_ns.or(self.halves.shortest().0);
                self.rtts_ns.extend(there_ns.map(|there_ns| here_ns.saturating_add(there_ns)));
            }
            (Vantage::Sender | Vantage::Unknown, Some(there_ns), _) => self.rtts_ns.push(there_ns),
            _ => {}
        }
        let known_upto_ns = at_ns.saturating_sub(self.to_sender_ns);
        while let Some(told) = self.underway.front().filter(|told| told.at_ns <= known_upto_ns) {
            self.known = Some(*told);
            self.underway.pop_front();
        }
    }

    fn in_flight(&mut self, at_ns: u64) {
        let Some(known) = self.known else { return };
        let Ok(in_flight) = u64::try_from(self.sent_upto - known.upto) else { return };
        // What the sender knew is worked out unless the capture was taken there; no sender exceeds
        // the window.
        let most = if self.vantage == Vantage::Sender { u64::MAX } else { known.window_bytes };
        let in_flight = if self.is_window_known { in_flight.min(most) } else { in_flight };
        let most = &mut self.span(at_ns).in_flight;
        if most.is_none_or(|(bytes, _)| in_flight > bytes) {
            *most = Some((in_flight, known.window_bytes));
        }
    }

    fn ack(&mut self, told: Told, sack: Option<(i64, i64)>) {
        self.counts.zero_windows_count += u64::from(told.window_bytes == 0);
        if let Some((left, _)) = sack {
            let is_known = left < told.upto;
            self.counts.needless_count += u64::from(is_known);
            self.counts.selective_count += u64::from(!is_known);
        }
        self.underway.push_back(told);
        // Of what was never sent as far as was seen, and before the first data, nothing is counted.
        let upto = told.upto.min(self.sent_upto);
        if self.first_data.is_none() || upto <= self.acked_upto {
            return;
        }
        let acked_bytes = u64::try_from(upto - self.acked_upto).unwrap_or(0);
        self.acked_upto = upto;
        let is_open = told.window_bytes >= self.counts.largest_payload_bytes;
        let is_quiet = upto == self.sent_upto && (is_open || !self.is_window_known);
        self.quiet_since_ns = is_quiet.then_some(told.at_ns);
        self.counts.largest_acked_bytes = self.counts.largest_acked_bytes.max(acked_bytes);
        self.span(told.at_ns).acked_bytes += acked_bytes;
        let gap_ns = self.last_ack_ns.map(|last_ns| told.at_ns.saturating_sub(last_ns));
        self.ack_gaps_ns.extend(gap_ns);
        self.last_ack_ns = Some(told.at_ns);
    }

    fn close_span(&mut self) {
        if let Some(span) = self.spans.last_mut() {
            span.idle_ns = self.idle_ns;
            let at = self.rtts_ns.len() / 2;
            span.rtt_ns =
                (!self.rtts_ns.is_empty()).then(|| *self.rtts_ns.select_nth_unstable(at).1);
        }
        self.rtts_ns.clear();
    }

    fn finish(mut self) -> (Vec<Span>, Counts, Ends) {
        self.close_span();
        let to_ns = self.last_ack_ns.unwrap_or(self.last_data_ns);
        // What is after the last acknowledgement, and the span that it cuts, are no state to judge.
        if self.spans.len() > 2 {
            self.spans.retain(|span| span.end_ns <= to_ns);
        }
        self.counts.missed_bytes = self.holes.missed_bytes(self.acked_upto);
        let first = self.first_data.unwrap_or(0);
        let ends = Ends {
            sent_bytes: u64::try_from(self.sent_upto - first).unwrap_or(0),
            acked_bytes: u64::try_from(self.acked_upto - first).unwrap_or(0),
            idle_ns: self.idle_ns,
            ack_gaps_ns: self.ack_gaps_ns,
            to_ns,
        };
        (self.spans, self.counts, ends)
    }
}
