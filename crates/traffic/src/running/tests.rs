use std::collections::VecDeque;
use std::time::{Duration, Instant};

use results::{EndReport, IntervalSample, TestLimit, TestSpec};

use super::*;
use crate::client::IntervalPair;
use crate::control::{ALIVE_EVERY, ClientMessage, Limits, SILENCE_MAX, ServerMessage};
use crate::engine::{Event, IntervalReport};

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// An engine that reports every second and finishes after `length` or when it is stopped.
struct Engine {
    began: Instant,
    length: Duration,
    interval: Duration,
    reported: u32,
    stopped: bool,
    /// Bytes received in an interval.
    received_bytes: u64,
}

impl Engine {
    fn new(began: Instant, length: Duration) -> Self {
        let interval = Duration::from_secs(1);
        Self { began, length, interval, reported: 0, stopped: false, received_bytes: 1000 }
    }

    fn next_event(&mut self, now: Instant) -> Event {
        let ran = now.duration_since(self.began);
        if self.stopped || (ran >= self.length && self.interval * (self.reported + 1) > self.length)
        {
            return Event::Finished;
        }
        if ran < self.interval * (self.reported + 1) {
            return Event::Quiet;
        }
        let start_s = (self.interval * self.reported).as_secs_f64();
        self.reported += 1;
        let end_s = (self.interval * self.reported).as_secs_f64();
        let sample = IntervalSample { bytes: self.received_bytes, ..IntervalSample::default() };
        let streams = vec![(0, false, sample)];
        Event::Interval(IntervalReport { start_s, end_s, omitted: false, streams })
    }
}

/// Messages under way in one direction; a path that is cut loses what is sent from then on.
struct Path<M> {
    delay: Duration,
    cut: bool,
    under_way: VecDeque<(Instant, M)>,
    heard: Instant,
}

impl<M> Path<M> {
    fn new(now: Instant, delay: Duration) -> Self {
        Self { delay, cut: false, under_way: VecDeque::new(), heard: now }
    }

    fn send(&mut self, now: Instant, message: M) {
        if !self.cut {
            self.under_way.push_back((now + self.delay, message));
        }
    }

    fn receive(&mut self, now: Instant) -> Option<M> {
        if self.under_way.front()?.0 > now {
            return None;
        }
        self.heard = now;
        Some(self.under_way.pop_front()?.1)
    }
}

/// Both ends of a test over a path, in virtual time.
struct Pair {
    begin: Instant,
    now: Instant,
    near: NearRun,
    far: FarRun,
    near_engine: Engine,
    far_engine: Engine,
    forth: Path<ClientMessage>,
    back: Path<ServerMessage>,
    shown: Vec<IntervalPair>,
    near_lost: bool,
    /// When the near end and the far end said something last, and the longest pause of either.
    spoke: [Instant; 2],
    pause_max: Duration,
    far_closed: Option<FarEnding>,
}

impl Pair {
    fn new(spec: &TestSpec, limits: &Limits, delay: Duration) -> Self {
        let begin = Instant::now();
        let TestLimit::DurationS(length_s) = spec.limit else { panic!("a test of some length") };
        let length = Duration::from_secs_f64(length_s);
        Self {
            begin,
            now: begin,
            near: NearRun::new(begin, spec),
            far: FarRun::new(begin, spec, limits),
            near_engine: Engine::new(begin, length),
            far_engine: Engine::new(begin, length),
            forth: Path::new(begin, delay),
            back: Path::new(begin, delay),
            shown: Vec::new(),
            near_lost: false,
            spoke: [begin; 2],
            pause_max: Duration::ZERO,
            far_closed: None,
        }
    }

    fn ran(&self) -> Duration {
        self.now.duration_since(self.begin)
    }

    fn is_over(&self) -> bool {
        (self.near_lost || self.near.is_over()) && self.far_closed.is_some()
    }

    /// One turn of each end, as their loops take it.
    fn turn(&mut self) {
        self.now += TURN;
        if !self.near_lost && !self.near.is_over() {
            self.near_turn();
        }
        if self.far_closed.is_none() {
            self.far_turn();
        }
    }

    fn near_turn(&mut self) {
        if !self.near.near_done() {
            self.near.on_event(self.now, self.near_engine.next_event(self.now));
        }
        while let Some(message) = self.back.receive(self.now) {
            self.near.on_message(self.now, message);
        }
        let silent_for = self.now.duration_since(self.back.heard);
        self.near_lost = self.near.on_time(self.now, silent_for).is_err();
        while let Some(action) = self.near.poll() {
            match action {
                NearAction::Say(message) => {
                    self.spoken(0);
                    self.forth.send(self.now, message);
                }
                NearAction::StopEngine => self.near_engine.stopped = true,
                NearAction::Show(pair) => self.shown.push(pair),
            }
        }
        if self.near.is_over() {
            self.shown.extend(self.near.last_intervals(self.now));
        }
    }

    fn far_turn(&mut self) {
        if !self.far.far_done() {
            self.far.on_event(self.now, self.far_engine.next_event(self.now));
        }
        while let Some(message) = self.forth.receive(self.now) {
            self.far.on_message(self.now, &message);
        }
        let moved_bytes = u64::from(self.far_engine.reported);
        self.far.on_time(self.now, self.now.duration_since(self.forth.heard), moved_bytes);
        while let Some(action) = self.far.poll() {
            match action {
                FarAction::Say(message) => {
                    self.spoken(1);
                    self.back.send(self.now, message);
                }
                FarAction::StopEngine => self.far_engine.stopped = true,
                FarAction::Touch => {}
            }
        }
        self.far_closed = self.far.ending();
        if self.far_closed == Some(FarEnding::Account) {
            for message in self.far.closing(Box::default()) {
                self.back.send(self.now, message);
            }
        }
    }

    fn spoken(&mut self, end: usize) {
        self.pause_max = self.pause_max.max(self.now.duration_since(self.spoke[end]));
        self.spoke[end] = self.now;
    }

    fn run_until(&mut self, over: impl Fn(&Self) -> bool) {
        while !over(self) {
            assert!(self.ran() < Duration::from_secs(300), "it never ends");
            self.turn();
        }
    }

    fn run(&mut self) {
        self.run_until(Self::is_over);
    }
}

fn lasting(length_s: f64) -> TestSpec {
    TestSpec { limit: TestLimit::DurationS(length_s), ..TestSpec::tcp() }
}

#[test]
fn both_ends_finish_and_no_interval_is_lost_at_any_delay() {
    for delay in [0, 1, 50, 149, 151, 400, 2500].map(ms) {
        let mut pair = Pair::new(&lasting(10.0), &Limits::default(), delay);
        pair.run();
        let after = pair.ran().checked_sub(Duration::from_secs(10)).unwrap();
        assert!(after <= delay * 2 + ms(100), "{delay:?}: {after:?} after the last byte");
        assert_eq!(pair.far_closed, Some(FarEnding::Account));
        let starts: Vec<f64> = pair.shown.iter().map(|pair| pair.near.start_s).collect();
        assert_eq!(starts, (0..10).map(f64::from).collect::<Vec<_>>(), "{delay:?}");
        // Whatever comes too late to wait for is absent: never beside another interval.
        for both in &pair.shown {
            assert!(both.far.iter().all(|far| far.start_s == both.near.start_s), "{both:?}");
        }
        let paired = pair.shown.iter().filter(|both| both.far.is_some()).count();
        assert!(paired == 10 || delay >= ms(280), "{delay:?}: {paired} of 10");
        assert_eq!(pair.near.into_parts(), (Some(EndReport::default()), None));
    }
}

#[test]
fn a_stop_ends_both_ends_within_one_round_trip() {
    let delay = ms(100);
    let mut pair = Pair::new(&lasting(60.0), &Limits::default(), delay);
    pair.run_until(|pair| pair.ran() >= Duration::from_secs(3));
    let asked = pair.now;
    pair.near.stop(asked);
    pair.near.stop(asked);
    pair.run();
    assert!(pair.now.duration_since(asked) <= delay * 2 + TURN * 4);
    assert_eq!(pair.shown.len(), 3);
}

#[test]
fn each_end_speaks_so_often_that_silence_means_loss() {
    // No reports for a minute: only what keeps the connection alive.
    let mut pair = Pair::new(&lasting(60.0), &Limits::default(), ms(300));
    pair.near_engine.interval = Duration::from_secs(60);
    pair.far_engine.interval = Duration::from_secs(60);
    pair.run();
    assert_eq!(pair.far_closed, Some(FarEnding::Account));
    assert!(pair.pause_max <= ALIVE_EVERY + TURN * 2, "{:?}", pair.pause_max);
}

#[test]
fn an_end_that_hears_nothing_gives_up_after_ten_seconds() {
    for (forth, back) in [(true, false), (false, true), (true, true)] {
        let mut pair = Pair::new(&lasting(60.0), &Limits::default(), ms(10));
        pair.run_until(|pair| pair.ran() >= Duration::from_secs(5));
        (pair.forth.cut, pair.back.cut) = (forth, back);
        let cut = pair.now;
        pair.run_until(|pair| pair.near_lost || pair.far_closed.is_some());
        let noticed = pair.now.duration_since(cut);
        let soonest = SILENCE_MAX.checked_sub(ALIVE_EVERY * 2).unwrap();
        assert!((soonest..SILENCE_MAX + ms(200)).contains(&noticed), "{noticed:?}");
        let silent = pair.far_closed == Some(FarEnding::Silent);
        assert!(if forth && back { pair.near_lost || silent } else { silent == forth });
    }
}

#[test]
fn an_end_that_never_finishes_is_ended_by_the_other_ones_drain() {
    // The far engine hangs: the client has finished, the account comes all the same.
    let mut pair = Pair::new(&lasting(5.0), &Limits::default(), ms(10));
    pair.far_engine.length = Duration::from_secs(1_000_000);
    pair.run();
    assert_eq!(pair.far_closed, Some(FarEnding::Account));
    assert!(pair.ran() <= Duration::from_secs(5) + DRAIN_TCP + ms(200), "{:?}", pair.ran());
    // The near engine hangs: it is stopped once the server has been done for long enough.
    let mut pair = Pair::new(&lasting(5.0), &Limits::default(), ms(10));
    pair.near_engine.length = Duration::from_secs(1_000_000);
    pair.run();
    assert!(pair.near_engine.stopped);
    assert!(pair.ran() <= Duration::from_secs(5) + DRAIN_TCP + ms(200), "{:?}", pair.ran());
}

#[test]
fn the_server_stops_a_test_that_is_too_fast_or_too_long_and_says_why() {
    let slow = Limits { rate_bits_per_s_max: Some(1e6), ..Limits::default() };
    let mut fast = Pair::new(&lasting(30.0), &slow, ms(10));
    fast.far_engine.received_bytes = 1_000_000;
    fast.run();
    assert!(fast.ran() < Duration::from_secs(2), "in the first interval");
    let (report, why) = fast.near.into_parts();
    assert!(why.is_some_and(|why| why.contains("faster than the 1.00 Mbit/s allowed")));
    assert!(report.is_some(), "what was measured is kept");

    let mut endless = Pair::new(&lasting(2.0), &Limits::default(), ms(10));
    endless.near_engine.length = Duration::from_secs(1_000_000);
    endless.far_engine.length = Duration::from_secs(1_000_000);
    endless.run();
    let longest = Duration::from_secs(2) + MARGIN;
    assert!((longest..longest + ms(200)).contains(&endless.ran()), "{:?}", endless.ran());
    let (_, why) = endless.near.into_parts();
    assert!(why.is_some_and(|why| why.contains("longer than this server allows")));
}

/// One thing that a machine may be told.
fn tell(pair: &mut Pair, step: u8) {
    let interval =
        || IntervalReport { start_s: 0.0, end_s: 1.0, omitted: false, streams: Vec::new() };
    let now = pair.now;
    match step % 14 {
        0 => pair.near.on_event(now, Event::Interval(interval())),
        1 => pair.near.on_event(now, Event::Finished),
        2 => pair.near.on_message(now, ServerMessage::Interval(interval().into())),
        3 => pair.near.on_message(now, ServerMessage::Finished),
        4 => pair.near.on_message(now, ServerMessage::Stopped { reason: String::new() }),
        5 => pair.near.on_message(now, ServerMessage::Report { report: Box::default() }),
        6 => pair.near.on_message(now, ServerMessage::Ready),
        7 => pair.near.stop(now),
        8 => pair.far.on_event(now, Event::Interval(interval())),
        9 => pair.far.on_event(now, Event::Finished),
        10 => pair.far.on_message(now, &ClientMessage::Finished),
        11 => pair.far.on_message(now, &ClientMessage::Stop),
        12 => pair.far.on_message(now, &ClientMessage::Bye),
        _ => pair.far.on_message(now, &ClientMessage::Alive),
    }
}

#[test]
fn whatever_the_order_of_messages_both_ends_stay_bounded_and_end() {
    bolero::check!().with_type::<Vec<(u8, u16)>>().for_each(|steps| {
        let mut pair = Pair::new(&lasting(10.0), &Limits::default(), ms(1));
        let (mut shown, mut reported) = (0, 0);
        for (step, later_ms) in steps {
            pair.now += ms(u64::from(*later_ms));
            tell(&mut pair, *step);
            reported += usize::from(step % 14 == 0);
            // The other end talks all the time, so that silence ends nothing here.
            assert_eq!(pair.near.on_time(pair.now, Duration::ZERO), Ok(()));
            pair.far.on_time(pair.now, Duration::ZERO, 0);
            let actions: Vec<_> = std::iter::from_fn(|| pair.near.poll()).collect();
            let messages = actions.iter().filter(|action| matches!(action, NearAction::Say(_)));
            assert!(messages.count() <= 2);
            shown += actions.iter().filter(|one| matches!(one, NearAction::Show(_))).count();
            assert!(std::iter::from_fn(|| pair.far.poll()).count() <= 3);
        }
        shown += pair.near.last_intervals(pair.now).count();
        assert_eq!(shown, reported, "each interval of this end is shown once");
        pair.far.on_time(pair.begin + Duration::from_secs(1_000_000), Duration::ZERO, 0);
        assert!(pair.far.ending().is_some());
    });
}
