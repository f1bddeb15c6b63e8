//! What else a limit predicts of its experiment: whether it still binds afterwards, and whether a change that should
//! have helped did harm.

use results::{Companion, End, Estimate, Limit, Point};
use units::show_bit_rate;

use super::Trial;
use super::figures::{cost_s_per_byte, marked, retransmit_share, retransmitted, sends};
use crate::change::Change;
use crate::experiment::Rule;
use crate::numbers::{fine_percent, middle, percent, ratio, share};
use crate::observed::{flight_of_cwnd, flight_of_window, round_trip_s};
use crate::thresholds::{predictions, rulings};

impl Trial<'_> {
    /// Predictions beside that of throughput, of an experiment whose throughput was as predicted.
    pub(in crate::judgement) fn companions(&self) -> Vec<Companion> {
        let is_smaller = match self.experiment.change {
            Change::Window { from_bytes, to_bytes, .. } => to_bytes < from_bytes,
            _ => false,
        };
        let told = match self.experiment.rule {
            Rule::FollowsReceiveWindow if is_smaller => {
                [self.window_is_full(), self.no_more_lost()]
            }
            Rule::FollowsSendBuffer if is_smaller => [self.no_more_lost(), None],
            Rule::FollowsCost(end) => [self.still_has_no_time(end), None],
            Rule::Stays => [self.passed_by_the_reader(), None],
            Rule::Scales => match (self.experiment.limit, &self.experiment.change) {
                (
                    Limit::CongestionControl,
                    Change::MoreStreams { .. } | Change::CongestionControl { .. },
                ) => [self.below_the_ceiling().and_then(|()| self.no_more_lost()), None],
                (
                    Limit::Loss | Limit::LossRecovery,
                    Change::MoreStreams { .. } | Change::CongestionControl { .. },
                ) => [self.still_lost(), None],
                (
                    Limit::EcnMarks,
                    Change::MoreStreams { .. } | Change::CongestionControl { .. },
                ) => [self.still_marked(), None],
                _ => [None, None],
            },
            _ => [None, None],
        };
        told.into_iter().flatten().collect()
    }

    /// What a change that should have raised throughput says if it lowered it, beyond the noise: a cheaper way that
    /// turned out dearer is consistent with a full core, anything else speaks against the limit.
    pub(in crate::judgement) fn harm(&self) -> Option<Companion> {
        let after = self.after()?;
        let should_gain = matches!(self.experiment.rule, Rule::Lifts | Rule::Eases | Rule::Scales);
        let (gain, noise) = (self.gain(&after), self.noise(&after));
        if !should_gain || gain >= -noise || self.not_made(&after).is_some() {
            return None;
        }
        let dearer = self.cost_factor();
        let follows =
            |factor: &f64| ((gain + 1.0) * factor - 1.0).abs() <= rulings::FOLLOWS + noise;
        let cost = dearer.map_or_else(String::new, |factor| {
            format!(", processor time per byte {factor:.2}-fold")
        });
        Some(Companion {
            predicted: format!(
                "{}: no fall, unless a byte costs more processor time",
                self.experiment.change
            ),
            measured: format!("{} ({}){cost}", show_bit_rate(after.median), percent(gain)),
            holds: dearer.as_ref().is_some_and(follows),
        })
    }

    /// What a larger buffer that lowered throughput beyond the noise brought, in words: another window, which had room
    /// before and is full now. So does an option that sets both sides' buffers; it shows nothing of the former limit.
    pub(in crate::judgement) fn taken_over(&self, after: &Estimate, what: &str) -> Option<String> {
        let is_filled = |full: fn(&Point) -> Option<f64>| {
            let before = self.middle_before(full);
            let later = middle(self.points.iter().filter_map(full));
            before.zip(later).is_some_and(|(before, later)| {
                before < rulings::HAD_ROOM && later >= predictions::STILL_FULL
            })
        };
        let is_of_sender = self.experiment.rule == Rule::FollowsSendBuffer;
        let window = match self.gain(after) < -self.noise(after) {
            true if is_of_sender && is_filled(flight_of_window) => "the receiver's window",
            true if is_filled(flight_of_cwnd) => "the congestion window",
            _ => return None,
        };
        let [before, after] = [self.before.median, after.median].map(show_bit_rate);
        Some(format!(
            "a larger {what} carried less, {before} -> {after}, because {window} became the limit"
        ))
    }

    /// What speaks for a rate that drops the excess, in words, where a congestion control that heeds no loss carried more:
    /// it stopped far below the next ceiling, more was lost, and nothing waited. Losses that come whatever the load take
    /// as large a share of faster traffic.
    pub(in crate::judgement) fn drops_excess(&self, after: &Estimate) -> Option<String> {
        let is_heedless = matches!(
            &self.experiment.change, Change::CongestionControl { to, .. } if to == "bbr"
        );
        let next = self.experiment.predicted.expected_bits_per_s;
        if self.experiment.limit != Limit::Loss
            || !is_heedless
            || after.median > predictions::NEXT_REACHED * next
        {
            return None;
        }
        let before = self.middle_before(retransmit_share)?;
        let later = middle(self.points.iter().filter_map(retransmit_share))?;
        let is_more = later > rulings::LOST_MORE * before + predictions::STILL_LOST;
        let waits = middle(self.points.iter().filter_map(round_trip_s))
            .zip(self.middle_before(round_trip_s))
            .is_none_or(|(later_s, before_s)| later_s > rulings::WAITED * before_s);
        (is_more && !waits).then(|| {
            format!(
                "retransmissions {} -> {} though nothing waits: a rate drops the excess",
                fine_percent(before),
                fine_percent(later)
            )
        })
    }

    /// By how much a byte costs the end more whose way to or from the socket was changed.
    fn cost_factor(&self) -> Option<f64> {
        let is_sent = match self.experiment.change {
            Change::SendPath(_) => true,
            Change::ReceivePath(_) => false,
            _ => return None,
        };
        let end = [End::Near, End::Far]
            .into_iter()
            .find(|end| self.judged.iter().any(|point| sends(point, *end) == Some(is_sent)))?;
        let before_s = self.middle_before(|point| cost_s_per_byte(point, end))?;
        let after_s = middle(self.points.iter().filter_map(|point| cost_s_per_byte(point, end)))?;
        ratio(after_s, before_s)
    }

    /// A smaller window that binds is full; else something else holds the sender back, which the change brought.
    fn window_is_full(&self) -> Option<Companion> {
        let full = middle(self.points.iter().filter_map(flight_of_window))?;
        Some(Companion {
            predicted: format!(
                "the smaller window is at least {} full",
                percent(predictions::STILL_FULL)
            ),
            measured: percent(full),
            holds: full >= predictions::STILL_FULL,
        })
    }

    /// Present if the experiment stopped far below what was predicted of it, where nothing overflows.
    fn below_the_ceiling(&self) -> Option<()> {
        let next = self.experiment.predicted.expected_bits_per_s;
        let after = self.after()?;
        (after.median < predictions::NEXT_REACHED * next).then_some(())
    }

    /// Losses that come whatever the load take as large a share of what another congestion control or several streams
    /// send. Those that go away with it were a queue's.
    fn still_lost(&self) -> Option<Companion> {
        let before = self.middle_before(retransmit_share)?;
        let counts = self.points.iter().filter_map(retransmitted);
        let (again, sent) = counts.reduce(|sum, one| (sum.0 + one.0, sum.1 + one.1))?;
        if before * (again + sent) < rulings::LOST_EXPECTED_LEAST {
            return None;
        }
        let (later, least) = (share(again, again + sent)?, before * rulings::LOST_STILL);
        Some(Companion {
            predicted: format!("at least {} retransmitted still", fine_percent(least)),
            measured: fine_percent(later),
            holds: later >= least,
        })
    }

    /// A congestion control that heeds no marks, or several streams, fill the queue that marks, which then marks as large
    /// a share. Without marks something else was lifted.
    fn still_marked(&self) -> Option<Companion> {
        let of_sent = |(marked, sent): (f64, f64)| share(marked, sent);
        let before = self.middle_before(|point| of_sent(marked(point)?))?;
        let counts = self.points.iter().filter_map(marked);
        let (marks, sent) = counts.reduce(|sum, one| (sum.0 + one.0, sum.1 + one.1))?;
        if before * sent < rulings::LOST_EXPECTED_LEAST {
            return None;
        }
        let (later, least) = (share(marks, sent)?, before * rulings::LOST_STILL);
        Some(Companion {
            predicted: format!("at least {} marked still", fine_percent(least)),
            measured: fine_percent(later),
            holds: later >= least,
        })
    }

    /// Less in flight, or more congestion windows below the next ceiling, lose no more.
    fn no_more_lost(&self) -> Option<Companion> {
        let before = self.middle_before(retransmit_share)?;
        let later = middle(self.points.iter().filter_map(retransmit_share))?;
        let most = before + predictions::STILL_LOST;
        Some(Companion {
            predicted: format!("at most {} retransmitted", fine_percent(most)),
            measured: fine_percent(later),
            holds: later <= most,
        })
    }

    /// What exceeds a rate does not reach the receiving host. Present if that host dropped datagrams.
    fn passed_by_the_reader(&self) -> Option<Companion> {
        let of_missing = |point: &Point| {
            let direction = point.measured()?.directions.first()?;
            let udp = direction.udp.as_ref()?;
            let dropped = [udp.loss.socket_buffer_count, udp.loss.softnet_count];
            let dropped: u64 = dropped.into_iter().flatten().sum();
            let missing = direction.sent_bits_per_s - direction.received_bits_per_s;
            let dropped_share = ratio(dropped as f64, udp.sent_count as f64)?;
            ratio(dropped_share * direction.sent_bits_per_s, missing)
        };
        let share =
            middle(self.points.iter().filter_map(of_missing)).filter(|share| *share > 0.0)?;
        Some(Companion {
            predicted: format!(
                "the receiving host drops at most {} of what is missing",
                percent(rulings::MISSING_AT_READER)
            ),
            measured: percent(share),
            holds: share <= rulings::MISSING_AT_READER,
        })
    }

    /// A core that binds has no time left afterwards either.
    fn still_has_no_time(&self, end: End) -> Option<Companion> {
        let before = self.middle_before(|point| busy_share(point, end))?;
        let later = middle(self.points.iter().filter_map(|point| busy_share(point, end)))?;
        let least = before * predictions::STILL_BUSY;
        Some(Companion {
            predicted: format!("its threads run or wait at least {} of the time", percent(least)),
            measured: percent(later),
            holds: later >= least,
        })
    }
}

/// Share of the time that the busiest thread of an end ran or waited for a core.
fn busy_share(point: &Point, end: End) -> Option<f64> {
    let outcome = point.measured()?;
    let report = match end {
        End::Near => outcome.near(),
        End::Far => outcome.far()?,
    };
    let busy = report.streams.iter().filter_map(|stream| {
        let busy_s = stream.thread_user_s? + stream.thread_system_s? + stream.thread_wait_s?;
        ratio(busy_s, stream.duration_s)
    });
    busy.reduce(f64::max)
}
