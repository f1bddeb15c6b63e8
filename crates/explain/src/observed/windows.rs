//! How far windows and buffers hold the judged test back.

use results::Limit;

use super::Observed;
use crate::numbers::share;
use crate::symptoms::names;
use crate::thresholds::{Fitted, path, signs};

impl Observed<'_> {
    /// Share of the time limited by the receiver's window, 0 to 1: the kernel's account or, if that is
    /// more, how full the window was. A sender that paces itself (BBR) at the very rate the window allows
    /// is seldom seen waiting for it; one that is never seen waiting is not limited by it.
    pub(crate) fn receive_window_share(&self) -> f64 {
        if self.refuted.contains(&Limit::ReceiveWindow) {
            return 0.0;
        }
        let counted = self.shown().sender(names::WINDOW_LIMITED);
        let caught =
            counted.map_or(signs::HELD_UNCOUNTED, |counted| signs::HELD_COUNTED.of(counted));
        let room_left = signs::FILLED_CWND.not(self.flow.window_use().unwrap_or(0.0));
        // Full cores answer late, and what waits for them fills the window too.
        let filled = self.fit[Fitted::FilledWindow].of(self.receive_window_use())
            * (1.0 - self.hosts_full())
            * self.moves();
        counted
            .unwrap_or(0.0)
            .max(signs::FILLED_MOST * filled.max(self.follows_known_window()) * room_left * caught)
    }

    /// Confidence, 0 to 1, that what is in flight moves: over a round trip about as much arrives. A window that holes keep
    /// full waits for their repair.
    pub(crate) fn moves(&self) -> f64 {
        let ratio = self.shown().sender(names::LITTLES_LAW);
        ratio.map_or(1.0, |ratio| path::STALLED_FLIGHT.of(ratio))
    }

    /// Confidence, 0 to 1, that a window whose size does not depend on the path determines throughput, one that the test
    /// requests or one without scaling: it is as high as the law allows, and each further stream adds as much again.
    pub(crate) fn follows_known_window(&self) -> f64 {
        let (Some(window), Some(rtt_s)) = (self.receive_window_bytes(), self.window_rtt_s()) else {
            return 0.0;
        };
        let streams = self.shown().path(names::STREAMS);
        let is_known =
            self.spec.window_bytes.is_some() || self.setup.is_window_scaled == Some(false);
        let Some(streams) = streams.filter(|_| is_known) else {
            return 0.0;
        };
        let of_law = self.rate() * rtt_s / (8.0 * window);
        let each = self.streams_gain().unwrap_or(0.0) * self.streams() / streams;
        signs::ASKED_WINDOW_LAW.of(of_law) * signs::ASKED_WINDOW_EACH.of(each)
    }

    /// Data in flight over the window that the receiver advertises, 0 to 1.
    pub(crate) fn receive_window_fill(&self) -> Option<f64> {
        share(self.flow.in_flight_bytes?, self.flow.peer_window_bytes?)
    }

    /// The same; 0 where it is not known.
    fn receive_window_use(&self) -> f64 {
        self.receive_window_fill().unwrap_or(0.0)
    }

    /// Throughput times round trip over the bytes in the send queue, 0 to 1; `None` unless BBR paces.
    pub(crate) fn paced_of_queue(&self) -> Option<f64> {
        if !self.setup.is_bbr() {
            return None;
        }
        share(self.rate() * self.flow.rtt_s? / 8.0, self.sender.send_queue_bytes?)
    }

    /// Share of the time limited by the send buffer, 0 to 1: the kernel's account or, if that is more, the
    /// confidence that all the buffer can hold is in flight while both windows have room. The kernel's
    /// account starts only when the sender runs dry, which small and frequent acknowledgements hide.
    ///
    /// A sender that several samples catch with nothing left to send, though both windows have room, waits for its
    /// writer, and a writer that neither pauses nor lacks a core waits for the buffer. That holds also where the queue
    /// is longer than the buffer's size suggests.
    pub(crate) fn send_buffer_share(&self) -> f64 {
        if self.refuted.contains(&Limit::SendBuffer) {
            return 0.0;
        }
        let counted = self.shown().sender(names::BUFFER_LIMITED).unwrap_or(0.0);
        let queued = self.sender.send_queue_bytes.unwrap_or(0.0);
        let sent = share(self.flow.in_flight_bytes.unwrap_or(0.0), queued).unwrap_or(0.0);
        let filled = self.sender.send_buffer_bytes.and_then(|buffer| share(queued, buffer));
        let full = signs::SENT_OF_QUEUE.of(sent) * signs::QUEUE_OF_BUFFER.of(filled.unwrap_or(0.0));
        // A writer that waits for room in the buffer sleeps.
        let sleeps = 1.0 - self.starved(&self.sender).unwrap_or(0.0);
        let receiver_open = signs::PEER_OPEN.not(self.receive_window_use());
        let sender_open = signs::FILLED_CWND.not(self.flow.window_use().unwrap_or(0.0));
        let caught = self.shown().sender(names::DRAINED).map_or(0.0, |drained| {
            let is_full = signs::QUEUE_OF_BUFFER.of(filled.unwrap_or(0.0));
            drained * is_full * (1.0 - self.sender_idle())
        });
        let drained = (full * sender_open).max(caught);
        counted.max(
            signs::DRAINED_MOST * drained.max(self.follows_send_buffer()) * receiver_open * sleeps,
        )
    }

    /// Confidence, 0 to 1, that the send buffer binds under BBR: throughput is what the queued bytes give over a
    /// round trip. BBR spaces its packets at that very rate and is seldom seen waiting for the buffer; one that
    /// may grow holds several times as much as is on the way (`sndbuf_expand` 3 of twice the path's product).
    fn follows_send_buffer(&self) -> f64 {
        let filled = self.sender.send_queue_bytes.zip(self.sender.send_buffer_bytes);
        let filled = filled.and_then(|(queued, buffer)| share(queued, buffer));
        let (Some(of_queue), Some(filled)) = (self.paced_of_queue(), filled) else { return 0.0 };
        self.fit[Fitted::PacedOfQueue].of(of_queue)
            * signs::PACED_OF_BUFFER.of(filled)
            * (1.0 - self.sender_idle())
    }
}
