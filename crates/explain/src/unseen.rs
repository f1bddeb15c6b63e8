//! Limits that a document cannot show, beside those that they would look like.

use results::Limit;

use crate::limits::loaded_rtt_s;
use crate::observed::Observed;
use crate::symptoms::names;
use crate::thresholds::path;

/// Pairs of a limit that may be named and another one that the figures cannot speak for: an experiment that does not
/// tell the first from the second confirms nothing.
pub(crate) fn unseen(seen: &Observed<'_>) -> Vec<(Limit, Limit)> {
    let of_sender = |name: &str| seen.shown().sender(name);
    let lost = of_sender(names::RETRANSMIT_SHARE);
    let drops = lost.is_none_or(|lost| lost > path::DROPS_UNQUEUED.from);
    let is_silent = of_sender(names::CWND).is_none() && of_sender(names::RTT).is_none();
    [
        // Where nobody tells whether packets wait, what exceeds a rate may as well be dropped at once.
        (drops && loaded_rtt_s(seen).is_none()).then_some((Limit::Shaper, Limit::Policer)),
        // The buffer of a sender that tells nothing holds each stream back as a congestion window does.
        is_silent.then_some((Limit::CongestionControl, Limit::SendBuffer)),
    ]
    .into_iter()
    .flatten()
    .collect()
}
