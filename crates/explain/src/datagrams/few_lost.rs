//! What binds where few or no datagrams are known to be lost.

use results::Limit;
use units::show_bit_rate;

use super::{Account, BUSY_MIN, Finding};
use crate::numbers::{fine_percent, percent, share};

/// Share of the requested rate from which it counts as reached.
const REACHED_MIN: f64 = 0.97;

impl Account<'_> {
    /// Too much is missing behind the last arrival to be on its way over a usual path, and no gap tells where.
    pub(super) fn not_arrived(&self) -> Finding {
        let offer = show_bit_rate(self.direction.sent_bits_per_s);
        let (limit, why, advice) = if self.received > 0.0 {
            let missing = percent(share(self.undecided, self.sent).unwrap_or(0.0));
            let delivered = show_bit_rate(self.direction.received_bits_per_s);
            (
                Limit::Shaper,
                format!(
                    "{missing} of the datagrams had not arrived by the end and few are known to be lost: of {offer} \
                     sent, {delivered} was delivered, and a long queue holds the rest, or the path stopped"
                ),
                "send below the rate that was delivered (-b): if all arrives then, that rate binds",
            )
        } else {
            (
                Limit::Loss,
                format!("no datagram arrived of {offer} sent: the path drops them all"),
                "look for a firewall or a missing route between the hosts; TCP reached the far end",
            )
        };
        let advice = vec![advice.to_owned()];
        Finding { limit, end: None, weight: 0.5, place: None, why, more: Vec::new(), advice }
    }

    /// No limit on the path shows: the sender did what it was asked for, or could not.
    pub(super) fn nothing_lost(&self) -> Finding {
        let sent = self.direction.sent_bits_per_s;
        let finding = |limit, weight, why: String, advice: &str| Finding {
            limit,
            end: Some(self.sender).filter(|_| limit != Limit::NoneFound),
            weight,
            place: None,
            why,
            more: Vec::new(),
            advice: vec![advice.to_owned()],
        };
        let asked =
            self.spec.offered_bits_per_s.map(|each| each * f64::from(self.spec.streams.max(1)));
        let rate = show_bit_rate(sent);
        let lost = match self.lost_share() {
            0.0 => None,
            share => Some(fine_percent(share)),
        };
        // iperf3's rate option is per stream or, in some versions, for all streams together.
        let reached = |asked: f64| sent >= REACHED_MIN * asked;
        if asked.is_some_and(reached) || self.spec.offered_bits_per_s.is_some_and(reached) {
            return finding(
                Limit::SendingApplication,
                0.9,
                match &lost {
                    None => format!(
                        "the test offered {rate}, and all of it arrived: no limit binds yet"
                    ),
                    Some(lost) => format!(
                        "the test offered {rate}, and all but {lost} of it arrived: no limit \
                         binds yet"
                    ),
                },
                "offer a higher rate (-b) until datagrams are lost",
            );
        }
        match self.busy_share(self.sender) {
            Some(busy) if busy >= BUSY_MIN => finding(
                Limit::SenderCore,
                0.8,
                format!(
                    "{} was lost, and the sending threads ran {} of the time: they send no faster \
                     than {rate}",
                    lost.as_deref().unwrap_or("nothing"),
                    percent(busy)
                ),
                "larger datagrams, GSO, or more streams on more cores",
            ),
            _ => finding(
                Limit::NoneFound,
                0.0,
                format!(
                    "{} was lost at {rate}; what limited the sender is not known",
                    lost.as_deref().unwrap_or("nothing")
                ),
                "offer a higher rate (-b) until datagrams are lost",
            ),
        }
    }
}
