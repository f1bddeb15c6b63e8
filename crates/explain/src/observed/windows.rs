//! How far windows and buffers hold the judged test back.

use results::Limit;

use super::Observed;
use crate::numbers::{ramp, share};

impl Observed<'_> {
    /// Share of the time limited by the receiver's window, 0 to 1: the kernel's account or, if that is
    /// more, how full the window was. A sender that paces itself (BBR) at the very rate the window allows
    /// is seldom seen waiting for it; one that is never seen waiting is not limited by it.
    pub(crate) fn receive_window_share(&self) -> f64 {
        if self.refuted.contains(&Limit::ReceiveWindow) {
            return 0.0;
        }
        let counted = self.flow.receive_window_share.unwrap_or(0.0);
        let caught = self.flow.receive_window_share.map_or(0.9, |counted| ramp(counted, 0.02, 0.1));
        let room_left = 1.0 - ramp(self.flow.window_use().unwrap_or(0.0), 0.85, 0.95);
        let filled = ramp(self.receive_window_use(), 0.85, 0.95);
        counted.max(0.95 * filled.max(self.follows_asked_window()) * room_left * caught)
    }

    /// Confidence, 0 to 1, that the window which the test requests determines throughput: it is as high as
    /// the law allows, and each further stream adds as much again.
    fn follows_asked_window(&self) -> f64 {
        let (Some(window), Some(rtt_s)) = (self.receive_window_bytes(), self.window_rtt_s()) else {
            return 0.0;
        };
        let Some((streams, _)) = self.several.filter(|_| self.spec.window_bytes.is_some()) else {
            return 0.0;
        };
        let of_law = self.rate() * rtt_s / (8.0 * window);
        let each = self.streams_gain().unwrap_or(0.0) * self.streams() / f64::from(streams);
        ramp(of_law, 0.7, 0.8) * ramp(each, 0.6, 0.85)
    }

    /// Data in flight over the window that the receiver advertises, 0 to 1.
    fn receive_window_use(&self) -> f64 {
        let used = self.flow.in_flight_bytes.zip(self.flow.peer_window_bytes);
        used.and_then(|(in_flight, window)| share(in_flight, window)).unwrap_or(0.0)
    }

    /// Share of the time limited by the send buffer, 0 to 1: the kernel's account or, if that is more, the
    /// confidence that all the buffer can hold is in flight while both windows have room. The kernel's
    /// account starts only when the sender runs dry, which small and frequent acknowledgements hide.
    pub(crate) fn send_buffer_share(&self) -> f64 {
        if self.refuted.contains(&Limit::SendBuffer) {
            return 0.0;
        }
        let counted = self.flow.send_buffer_share.unwrap_or(0.0);
        let queued = self.sender.send_queue_bytes.unwrap_or(0.0);
        let sent = share(self.flow.in_flight_bytes.unwrap_or(0.0), queued).unwrap_or(0.0);
        let filled = self.sender.send_buffer_bytes.and_then(|buffer| share(queued, buffer));
        let full = ramp(sent, 0.6, 0.8) * ramp(filled.unwrap_or(0.0), 0.5, 0.75);
        // A writer that waits for room in the buffer sleeps.
        let sleeps = 1.0 - self.sender.starved().unwrap_or(0.0);
        let receiver_open = 1.0 - ramp(self.receive_window_use(), 0.8, 0.9);
        let sender_open = 1.0 - ramp(self.flow.window_use().unwrap_or(0.0), 0.85, 0.95);
        let drained = full * sender_open;
        counted.max(0.9 * drained.max(self.follows_send_buffer()) * receiver_open * sleeps)
    }

    /// Confidence, 0 to 1, that the send buffer binds under BBR: throughput is what the queued bytes give over a
    /// round trip. BBR spaces its packets at that very rate and is seldom seen waiting for the buffer; one that
    /// may grow holds several times as much as is on the way (`sndbuf_expand` 3 of twice the path's product).
    fn follows_send_buffer(&self) -> f64 {
        let is_bbr = |name: &String| name.starts_with("bbr");
        if !self.flow.congestion_control.as_ref().is_some_and(is_bbr) {
            return 0.0;
        }
        let (Some(queued), Some(buffer), Some(rtt_s)) =
            (self.sender.send_queue_bytes, self.sender.send_buffer_bytes, self.flow.rtt_s)
        else {
            return 0.0;
        };
        let on_the_way = self.rate() * rtt_s / 8.0;
        let of_queue = share(on_the_way, queued).unwrap_or(0.0);
        let filled = share(queued, buffer).unwrap_or(0.0);
        ramp(of_queue, 0.45, 0.6) * ramp(filled, 0.3, 0.5) * (1.0 - self.sender_idle())
    }
}
