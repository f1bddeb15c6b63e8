//! What was measured of a path that no limit explains, and what was not.

use results::End;

use crate::numbers::{fine_percent, percent};
use crate::observed::{Observed, end_name};
use crate::symptoms::names;

/// A figure that some limit is told by.
struct Sign {
    /// What it is, for a measurement that lacks it.
    what: &'static str,
    /// What it shows; `None` if it was not measured.
    words: fn(&Observed<'_>) -> Option<String>,
}

/// In the order of the path: the rate, the connection, the hosts.
static SIGNS: [Sign; 10] = [
    Sign {
        what: "several streams",
        words: |seen| {
            let gain = seen.shown().path(names::STREAMS_GAIN)?;
            let count = seen.shown().path(names::STREAMS)?;
            Some(format!("{count:.0} streams carry {gain:.2} times as much"))
        },
    },
    Sign {
        what: "UDP",
        words: |seen| {
            let gain = seen.shown().path(names::UDP_GAIN)?;
            let lost = percent(seen.shown().path(names::UDP_LOST)?);
            let place = seen.shown().place_of_udp_losses();
            Some(format!("UDP delivers {gain:.2} times as much and loses {lost} {place}"))
        },
    },
    Sign { what: "round trips under load", words: |seen| seen.round_trip_words() },
    Sign {
        what: "the use of the congestion window",
        words: |seen| {
            let fill = percent(seen.shown().sender(names::CWND_FILL)?);
            Some(format!("{fill} of the congestion window is in flight"))
        },
    },
    Sign {
        what: "the use of the receiver's window",
        words: |seen| {
            let fill = percent(seen.shown().sender(names::PEER_WINDOW_FILL)?);
            Some(format!("{fill} of the receiver's window"))
        },
    },
    Sign {
        what: "how long a window or buffer held the sender back",
        words: |seen| {
            let window = percent(seen.shown().sender(names::WINDOW_LIMITED)?);
            let buffer = percent(seen.shown().sender(names::BUFFER_LIMITED)?);
            Some(format!(
                "the receiver's window held the sender back {window} of the time, the send buffer {buffer}"
            ))
        },
    },
    Sign {
        what: "retransmissions",
        words: |seen| {
            let again = fine_percent(seen.shown().sender(names::RETRANSMIT_SHARE)?);
            Some(format!("{again} of the segments were retransmitted"))
        },
    },
    Sign {
        what: "the receiver's socket",
        words: |seen| {
            let fullness = percent(seen.shown().receiver(names::SOCKET_FULLNESS)?);
            Some(format!("the receiver's socket is {fullness} full"))
        },
    },
    Sign { what: "the near end's threads", words: |seen| core_use(seen, End::Near) },
    Sign { what: "the far end's threads", words: |seen| core_use(seen, End::Far) },
];

/// How an end used its core: only where waiting was recorded too, the scheduler is excluded by it.
fn core_use(seen: &Observed<'_>, end: End) -> Option<String> {
    let (shown, name) = (seen.shown(), end_name(end));
    let ran = percent(shown.thread_ran(end)?);
    let waited = shown.host(end, names::THREAD_WAIT);
    Some(match (shown.host(end, names::THREAD_RUN), waited) {
        (Some(_), Some(waited)) => {
            format!(
                "the {name} end's thread ran {ran} of the time and waited for its core {}",
                percent(waited)
            )
        }
        (Some(_), None) => {
            format!(
                "the {name} end's thread ran {ran} of the time; whether it waited was not recorded"
            )
        }
        (None, _) => {
            format!(
                "the {name} end's process used {ran} of a core; whether it waited was not recorded"
            )
        }
    })
}

/// Two lines at most: what the measurement shows, and what limits are told by that it lacks.
pub(crate) fn evidence(seen: &Observed<'_>) -> Vec<String> {
    let told: Vec<String> = SIGNS.iter().filter_map(|sign| (sign.words)(seen)).collect();
    let lacking = SIGNS.iter().filter(|sign| (sign.words)(seen).is_none());
    let lacking: Vec<&str> = lacking.map(|sign| sign.what).collect();
    let line = |head: &str, words: String| (!words.is_empty()).then(|| format!("{head}: {words}"));
    let lines = [line("measured", told.join("; ")), line("not measured", lacking.join(", "))];
    lines.into_iter().flatten().collect()
}
