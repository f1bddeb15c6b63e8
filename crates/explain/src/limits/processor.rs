//! The processor time of the threads that send and read: a stage of a transfer, which several limits can slow down.

use crate::observed::{HostView, Observed};
use crate::symptoms::names;
use crate::thresholds::{Fitted, hosts, path};

/// Confidence, 0 to 1, that the processor time of an end's threads binds, for whatever reason.
pub(super) fn processor_binds(seen: &Observed<'_>, host: &HostView<'_>) -> f64 {
    if host.end == seen.sender.end { sender_binds(seen) } else { receiver_binds(seen) }
}

fn sender_binds(seen: &Observed<'_>) -> f64 {
    let (own, other) = (&seen.sender, &seen.receiver);
    let by_buffer = seen.shown().sender(names::BUFFER_LIMITED).unwrap_or(0.0);
    let held_back = seen.receive_window_share().max(by_buffer);
    let fullness = seen.shown().receiver(names::SOCKET_FULLNESS).unwrap_or(0.0);
    let reader_is_slower = seen.starved(other).unwrap_or(0.0) * fullness;
    let full = seen.starved(own).unwrap_or_else(|| hosts::CORE_WITHOUT_THREAD * core_full(own));
    full * (1.0 - hosts::HELD_BACK_SENDER * held_back)
        * (1.0 - hosts::SLOWER_END * reader_is_slower)
        * (1.0 - own_choice(own))
}

fn receiver_binds(seen: &Observed<'_>) -> f64 {
    let (own, other) = (&seen.receiver, &seen.sender);
    let fullness = seen.shown().receiver(names::SOCKET_FULLNESS);
    let full = seen.starved(own).unwrap_or_else(|| {
        // Unread data and a full core, but it is unknown whose work fills the core.
        hosts::CORE_WITHOUT_THREAD
            * core_full(own)
            * seen.fit[Fitted::SlowReader].of(fullness.unwrap_or(0.0))
    });
    let feeder_is_slower =
        seen.starved(other).unwrap_or(0.0) * (1.0 - fullness.unwrap_or(hosts::FULLNESS_UNKNOWN));
    let by_thread = full * (1.0 - hosts::SLOWER_END * feeder_is_slower) * (1.0 - own_choice(own));
    // The socket is full although the reader never paused: the reader is scheduled too late or too briefly.
    let by_queue = seen.fit[Fitted::SlowReader].of(fullness.unwrap_or(0.0))
        * path::HELD_BY_READER.of(seen.receive_window_share())
        * seen.shown().thread_busy(own.end).map_or(0.0, |busy| hosts::QUEUE_BUSY.of(busy))
        * (1.0 - own_choice(own));
    by_thread.max(by_queue)
}

/// Confidence, 0 to 1, that the core its thread ran on has no time left.
fn core_full(host: &HostView<'_>) -> f64 {
    host.core.map_or(0.0, |core| hosts::CORE_IDLE.not(core.idle))
}

/// Confidence, 0 to 1, that its application pauses by choice; the core then has time.
fn own_choice(host: &HostView<'_>) -> f64 {
    hosts::OWN_PAUSES.of(host.application_idle_share.unwrap_or(0.0))
}
