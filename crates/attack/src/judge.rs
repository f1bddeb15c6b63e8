//! What an attack did to the innocents, beyond what the machine did to everybody.
//!
//! A wait counts less what of it the machine explains: times in which a core was late for a thread that runs
//! before all others, and times in which a pair of the same kind, at a daemon of its own that nobody attacks,
//! waited too. So that an attack cannot excuse itself by keeping the control pair waiting as well, so much
//! excuse has a bound: beyond it the moment was unfit to judge, and that is no pass.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::innocents::{Innocents, Lane};
use testkit::spans::{Span, covered_ns, ms, now_ns, union};
use testkit::stalls::Machine;

/// Longest wait of an innocent frame.
pub(crate) const WAIT_MAX: Duration = Duration::from_millis(50);
/// Longest wait for an answer of the control thread.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(1);
/// How long frames that were sent during an attack may be on their way before they count as stopped.
const SETTLE: Duration = Duration::from_secs(5);
/// What the control pair may excuse of an attack: this, and [`EXCUSED_SHARE`] of its time.
const EXCUSED: Duration = Duration::from_millis(250);
const EXCUSED_SHARE: f64 = 0.1;

/// How it went.
#[derive(Debug, Clone, Default)]
pub(crate) struct Judgement {
    /// Longest wait of an innocent frame, beyond the machine's own, milliseconds.
    pub(crate) frame_ms: f64,
    /// The same of an answer.
    pub(crate) answer_ms: f64,
    pub(crate) lost: u64,
    /// What broke, waits aside; none when nothing did.
    pub(crate) broken: Option<String>,
    /// A wait above its limit. How often that may happen is decided over all rounds ([`crate::table`]).
    pub(crate) slow: Option<String>,
    /// Why waits cannot be judged.
    pub(crate) unfit: Option<String>,
}

/// Who watches an attack.
#[derive(Debug)]
pub(crate) struct Watch {
    began_ns: u64,
    lost_before: Vec<u64>,
}

impl Watch {
    pub(crate) fn begin(innocents: &Innocents, control: &Innocents, machine: &Machine) -> Self {
        for lane in innocents.lanes.iter().chain([&innocents.asker]).chain(&control.lanes) {
            lane.take_waits();
        }
        machine.take_stalls();
        let lost_before =
            innocents.lanes.iter().map(|lane| lane.lost.load(Ordering::Relaxed)).collect();
        Self { began_ns: now_ns(), lost_before }
    }

    /// Waits until what was sent has arrived, and judges; `floods` says that the first lane may lose frames,
    /// because its port was to be filled.
    pub(crate) fn end(
        self,
        innocents: &mut Innocents,
        control: &Innocents,
        machine: &Machine,
        floods: bool,
    ) -> Judgement {
        let mut judgement = Judgement::default();
        settle(innocents);
        settle(control);
        let control_waits: Vec<Span> =
            control.lanes.iter().flat_map(|lane| lane.take_waits().1).collect();
        let stalls = machine.take_stalls();
        let excuses = union(stalls.iter().copied().chain(control_waits.iter().copied()).collect());
        for lane in &innocents.lanes {
            judgement.frame_ms = judgement.frame_ms.max(worst_ms(lane, &excuses));
        }
        judgement.answer_ms = worst_ms(&innocents.asker, &excuses);
        for (lane, before) in innocents.lanes.iter().zip(&self.lost_before) {
            let lost = lane.lost.load(Ordering::Relaxed) - before;
            judgement.lost +=
                if floods && lane.port == Some("vale0:innocent-b") { 0 } else { lost };
        }
        judgement.broken = innocents.trouble().or_else(|| judgement.loss());
        judgement.slow = judgement.delay();
        let whole = Span { from_ns: self.began_ns, to_ns: now_ns() };
        // What the machine did is a fact where it is exactly known; what the control pair waited may be the
        // attack's own doing.
        let doubtful = if machine.is_exact { union(control_waits) } else { excuses };
        let excused_ns = covered_ns(whole, &doubtful);
        let most_ns = EXCUSED.as_nanos() as f64 + whole.length_ns() as f64 * EXCUSED_SHARE;
        if excused_ns as f64 > most_ns {
            judgement.unfit = Some(format!(
                "machine too busy: the control pair waited {:.0} of {:.0} ms",
                ms(excused_ns),
                ms(whole.length_ns())
            ));
        }
        judgement
    }
}

impl Judgement {
    fn loss(&self) -> Option<String> {
        (self.lost > 0).then(|| format!("innocents lost {} frames", self.lost))
    }

    /// The wait that is above its limit, if one is.
    fn delay(&self) -> Option<String> {
        if self.frame_ms > WAIT_MAX.as_secs_f64() * 1e3 {
            return Some(format!("innocents waited {:.0} ms", self.frame_ms));
        }
        let late = self.answer_ms > ANSWER_MAX.as_secs_f64() * 1e3;
        late.then(|| format!("an answer took {:.0} ms", self.answer_ms))
    }
}

fn settle(innocents: &Innocents) {
    let sent: Vec<u64> =
        innocents.lanes.iter().map(|lane| lane.sent.load(Ordering::Relaxed)).collect();
    let asked = innocents.asker.sent.load(Ordering::Relaxed);
    let since = Instant::now();
    let is_missing = |(lane, &sent): (&std::sync::Arc<Lane>, &u64)| {
        // A frame that waits to be sent is not there yet.
        lane.missing(sent) > 0 && lane.trouble().is_none()
    };
    while since.elapsed() < SETTLE
        && (innocents.lanes.iter().zip(&sent).any(is_missing)
            || innocents.asker.missing(asked) > 0 && innocents.asker.trouble().is_none())
    {
        std::thread::sleep(Duration::from_millis(2));
    }
    for (lane, &sent) in innocents.lanes.iter().zip(&sent) {
        lane.give_up(sent, since.elapsed() >= SETTLE);
    }
}

/// The longest wait of a lane less what of it is excused.
fn worst_ms(lane: &Lane, excuses: &[Span]) -> f64 {
    let (shorter_ns, waits) = lane.take_waits();
    let left = |span: &Span| span.length_ns() - covered_ns(*span, excuses);
    ms(waits.iter().map(left).max().unwrap_or(0).max(shorter_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(frame_ms: f64, answer_ms: f64, lost: u64) -> [Option<String>; 2] {
        let judgement = Judgement { frame_ms, answer_ms, lost, ..Judgement::default() };
        [judgement.loss(), judgement.delay()]
    }

    #[test]
    fn what_is_too_long_or_lost_is_named() {
        assert_eq!(judged(49.9, 999.0, 0), [None, None]);
        assert_eq!(judged(50.1, 0.0, 0), [None, Some("innocents waited 50 ms".to_owned())]);
        assert_eq!(judged(0.0, 0.0, 1), [Some("innocents lost 1 frames".to_owned()), None]);
        assert_eq!(judged(0.0, 1001.0, 0), [None, Some("an answer took 1001 ms".to_owned())]);
    }
}
