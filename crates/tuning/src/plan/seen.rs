//! What a results document says about one direction, as the rules need it.

use explain::Diagnosis;
use results::{
    Direction, End, EndCounters, EndReport, Estimate, HostFacts, InterfaceFacts, Limit, Nic, Point,
    Results, TestOutcome, TestSpec, WindowUse, Work,
};
use settings::Key;
use units::{show_bit_rate, show_byte_size};

use super::probe::{self, WideRun};
use super::{Plan, PlannedChange, Risk};

/// A test that came this near to what the path should carry was held by the path.
const NEAR: f64 = 0.9;

/// One direction of a measured path.
pub(super) struct Seen<'a> {
    pub(super) results: &'a Results,
    pub(super) sender: End,
    pub(super) receiver: End,
    /// Idle round trip, seconds.
    pub(super) rtt_s: Option<f64>,
    /// One stream's goodput, bit/s.
    pub(super) rate: f64,
    /// What the path should carry, bit/s.
    pub(super) target: f64,
    pub(super) target_source: String,
    /// Whether the target is known of the path, and not only hoped for.
    pub(super) is_target_known: bool,
    /// What the same stream reached with windows that it asked for itself.
    pub(super) tried: Vec<WideRun>,
    judged_spec: &'a TestSpec,
    /// Its windows, where the sender tells of them, and how many streams share them.
    pub(super) window: Option<WindowUse>,
    pub(super) streams: f64,
    /// The run the rate is of.
    pub(super) outcome: &'a TestOutcome,
    /// Limits that may bind here, likeliest first: which, where, the figures.
    pub(super) suspects: Vec<(Limit, Option<End>, String)>,
}

impl<'a> Seen<'a> {
    /// `None` when no single TCP stream was measured in this direction.
    pub(super) fn of(results: &'a Results, diagnosis: &Diagnosis, reverse: bool) -> Option<Self> {
        let way = if reverse { Direction::Reverse } else { Direction::Forward };
        let (sender, receiver) =
            if reverse { (End::Far, End::Near) } else { (End::Near, End::Far) };
        let (rate, judged_run) = typical(results, way)?;
        let (judged_spec, outcome) = judged_run.tested()?;
        let rtt_s = results.path.idle_rtt.as_ref().and_then(|rtt| rtt.percentile_s(50.0));
        let judged = match diagnosis.spec.as_ref().map(|spec| spec.direction) {
            Some(Direction::Reverse) => reverse,
            _ => !reverse,
        };
        let suspects = if judged { suspects(results, diagnosis) } else { Vec::new() };
        let explain::Wanted {
            bits_per_s: target,
            source: target_source,
            is_known: is_target_known,
        } = explain::wanted(results, way, rate);
        let window = outcome.window_use(judged_spec, way);
        let streams = f64::from(judged_spec.streams.max(1));
        let rtt_s = rtt_s.filter(|rtt| rtt.is_finite() && *rtt > 0.0);
        let tried = rtt_s.map_or_else(Vec::new, |rtt_s| probe::runs(results, judged_spec, rtt_s));
        Some(Self {
            results,
            sender,
            receiver,
            rtt_s,
            rate,
            target,
            target_source,
            is_target_known,
            tried,
            judged_spec,
            window,
            streams,
            outcome,
            suspects,
        })
    }

    /// Tests, told of in full or not, in which the judged stream asked for this window.
    pub(super) fn asked_count(&self, window_bytes: u64) -> usize {
        let tested = self.results.points.iter().filter_map(Point::tested);
        let is_asked = |(spec, _): &(&TestSpec, &TestOutcome)| {
            spec.window_bytes == Some(window_bytes) && probe::is_alike(spec, self.judged_spec)
        };
        tested.filter(is_asked).count()
    }

    pub(super) fn host(&self, end: End) -> Option<&'a HostFacts> {
        match end {
            End::Near => Some(self.results.near()),
            End::Far => self.results.far(),
        }
    }

    pub(super) fn sysctl(&self, end: End, name: &str) -> Option<&'a str> {
        self.host(end)?.sysctls.get(name).map(String::as_str)
    }

    pub(super) fn number(&self, end: End, name: &str) -> Option<u64> {
        self.sysctl(end, name)?.parse().ok()
    }

    pub(super) fn interface(&self, end: End) -> Option<&'a InterfaceFacts> {
        self.host(end)?.interface.as_ref()
    }

    pub(super) fn nic(&self, end: End) -> Option<&'a Nic> {
        self.host(end)?.machine.as_ref()?.nic(&self.interface(end)?.name)
    }

    pub(super) fn report(&self, end: End) -> Option<&'a EndReport> {
        match end {
            End::Near => Some(self.outcome.near()),
            End::Far => self.outcome.far(),
        }
    }

    pub(super) fn counters(&self, end: End) -> Option<&'a EndCounters> {
        self.report(end).map(|report| &report.counters)
    }

    /// What is said of a limit here, when it is suspected at this end.
    pub(super) fn suspected(&self, limit: Limit, end: End) -> Option<&str> {
        let found = self
            .suspects
            .iter()
            .find(|(known, at, _)| *known == limit && at.is_none_or(|at| at == end));
        found.map(|(_, _, text)| text.as_str())
    }

    /// Whether this limit is the verdict (or the likeliest suspect).
    pub(super) fn binds(&self, limit: Limit) -> bool {
        self.suspects.first().is_some_and(|(first, _, _)| *first == limit)
    }

    /// What the experiment that confirmed the verdict reached, bit/s, where it was run with this
    /// congestion control.
    pub(super) fn reached_with(&self, congestion_control: &str) -> Option<f64> {
        let verdict = self.results.verdict.as_ref()?;
        let name = explain::point_name(verdict.limit);
        let last = self.results.points.iter().rfind(|point| point.experiment == name)?;
        let asked = last.spec()?.congestion_control.as_deref();
        let confirmation = verdict.confirmation.as_ref();
        confirmation.filter(|_| asked == Some(congestion_control)).map(|it| it.after_bits_per_s)
    }

    pub(super) fn bdp_bytes(&self) -> Option<u64> {
        Some(units::bandwidth_delay_product_bytes(self.target, self.rtt_s?))
    }

    /// Packets a second at the target, full-sized.
    pub(super) fn pkts_per_s(&self) -> f64 {
        let mtu = self.results.path.path_mtu_bytes.unwrap_or(1500).clamp(576, 65_535);
        self.target / 8.0 / f64::from(mtu)
    }

    /// Adds a change; the target's throughput is what it is predicted to give.
    pub(super) fn propose(&self, plan: &mut Plan, end: End, key: &str, proposal: Proposal) {
        let Ok(key) = key.parse::<Key>() else { return };
        let Ok(to) = key.check(&proposal.to) else { return };
        plan.changes.push(PlannedChange {
            end,
            key,
            from: proposal.from,
            to,
            why: proposal.why,
            source: proposal.source.to_owned(),
            effect: proposal.effect,
            predicted_bits_per_s: proposal.predicted_bits_per_s,
            risk: proposal.risk,
            danger: proposal.danger.to_owned(),
        });
    }

    /// What one stream should reach where its windows would allow `bits_per_s`: the path may carry
    /// less, and so may the cores at its ends, which only a test without such windows has shown.
    pub(super) fn reach(&self, bits_per_s: f64) -> f64 {
        let shown = self.short_of_target().map_or(f64::MAX, |(_, rates)| rates.median);
        bits_per_s.min(self.target).min(shown.max(self.rate))
    }

    /// The best without a window in the way, where even that did not come near the target.
    fn short_of_target(&self) -> Option<(u64, Estimate)> {
        probe::unheld(&self.tried).filter(|(_, rates)| rates.high < self.target * NEAR)
    }

    /// `45.2 Mbit/s -> about 470 Mbit/s (…)`.
    pub(super) fn gain(&self, predicted: f64) -> String {
        let shown = self.short_of_target().filter(|(_, r)| r.median <= predicted * 1.001);
        let source = match shown {
            Some((asked_bytes, rates)) => format!(
                "a test that asked for a window of {} itself got {} to {}",
                show_byte_size(asked_bytes),
                show_bit_rate(rates.low),
                show_bit_rate(rates.high)
            ),
            None if predicted < self.target * 0.999 => {
                "then the next window or buffer binds".to_owned()
            }
            None => self.target_source.clone(),
        };
        // What the cores at the ends would do was seen, or it was not.
        let word = if probe::unheld(&self.tried).is_some() { "about" } else { "up to" };
        format!(
            "throughput {} -> {word} {} ({source})",
            show_bit_rate(self.rate),
            show_bit_rate(predicted),
        )
    }
}

/// What a rule proposes.
pub(super) struct Proposal {
    pub(super) from: Option<String>,
    pub(super) to: String,
    pub(super) why: String,
    pub(super) source: &'static str,
    pub(super) effect: String,
    pub(super) predicted_bits_per_s: Option<f64>,
    pub(super) risk: Risk,
    pub(super) danger: &'static str,
}

/// The repeat of the single stream whose rate is the median one.
fn typical(results: &Results, way: Direction) -> Option<(f64, &Point)> {
    let names = match way {
        Direction::Reverse => ["reverse", "single-stream", "test"],
        _ => ["single-stream", "test", "forward"],
    };
    let of_name = |name: &str| -> Vec<(f64, &Point)> {
        let points = results.points.iter().filter(|point| {
            point.experiment == name
                && matches!(&point.work, Work::Bulk(spec) if spec.direction == way)
        });
        points.filter_map(|point| Some((received(point.measured()?, way)?, point))).collect()
    };
    let mut runs = names.iter().map(|name| of_name(name)).find(|runs| !runs.is_empty())?;
    runs.sort_by(|a, b| a.0.total_cmp(&b.0));
    runs.get(runs.len() / 2).copied()
}

pub(super) fn received(outcome: &TestOutcome, way: Direction) -> Option<f64> {
    let rate = outcome.directions.iter().find(|one| one.direction == way)?.received_bits_per_s;
    (rate.is_finite() && rate > 0.0).then_some(rate)
}

/// The verdict first, then what else was suspected, each once.
fn suspects(results: &Results, diagnosis: &Diagnosis) -> Vec<(Limit, Option<End>, String)> {
    let mut suspects = Vec::new();
    if let Some(verdict) = results.verdict.as_ref().filter(|known| known.limit != Limit::NoneFound)
    {
        let text =
            verdict.evidence.first().map_or_else(|| verdict.summary.clone(), |e| e.text.clone());
        suspects.push((verdict.limit, verdict.end, text));
    }
    for candidate in diagnosis.candidates.iter().filter(|one| one.is_suspected()) {
        if suspects.iter().all(|(limit, _, _)| *limit != candidate.limit) {
            let text = candidate.evidence.first().cloned().unwrap_or_default();
            suspects.push((candidate.limit, candidate.end, text));
        }
    }
    suspects
}
