//! No false alarm.

use liveness::probe::{Answer, SizeClass};
use liveness::states::{EventKind, GatewayState, Inputs, Output, WatchConfig, Watcher};

use crate::world::{MS, S, World};

#[test]
fn ten_quiet_minutes_have_no_event_at_all() {
    let mut world = World::new(WatchConfig::default(), 10, 1);
    world.run(600 * S);
    assert_eq!(world.events, []);
    let rounds_count = 600 * 20;
    let fulls_count = rounds_count / 20;
    let asked = world.asked_count / 10;
    assert!(asked.abs_diff(rounds_count + fulls_count) <= 2, "{asked}: one small, a 20th full");
}

#[test]
fn two_of_three_rounds_lost_for_ever_are_no_failure() {
    let mut world = World::new(WatchConfig::default(), 3, 1);
    world.is_lost = |ask| !ask.round.is_multiple_of(3);
    world.run(60 * S);
    assert_eq!(world.alarms(), [] as [&(u64, EventKind); 0]);
    world.is_lost = |ask| !ask.round.is_multiple_of(4);
    world.run(S);
    assert!(!world.alarms().is_empty(), "three are");
}

/// Without more probes through a suspect gateway there would be about one false alarm in each run.
#[test]
fn random_loss_of_two_percent_causes_no_alarm() {
    for seed in 0..8 {
        let mut world = World::new(WatchConfig::default(), 10, seed);
        world.gateways.iter_mut().for_each(|gateway| gateway.loss = 0.02);
        world.run(600 * S);
        let suspect =
            |kind: &EventKind| matches!(kind, EventKind::State { to: GatewayState::Suspect, .. });
        assert!(world.count(suspect) > 5, "there was something to be wrong about");
        assert_eq!(world.alarms(), [] as [&(u64, EventKind); 0], "seed {seed}");
    }
}

#[test]
fn a_full_size_probe_lost_with_the_small_one_of_its_round_proves_nothing() {
    let config = WatchConfig { full_every: 1, ..WatchConfig::default() };
    let mut world = World::new(config, 3, 1);
    world.is_lost = |ask| match ask.round % 4 {
        1 | 2 => true,
        3 => ask.size == SizeClass::Full,
        _whole => false,
    };
    world.run(60 * S);
    assert_eq!(world.alarms(), [] as [&(u64, EventKind); 0]);
}

#[test]
fn delay_within_the_timeout_and_late_wake_ups_cause_no_alarm() {
    for seed in 0..20 {
        let mut world = World::new(WatchConfig::default(), 4, seed);
        world.lateness_ns = 45 * MS;
        for _ in 0..600 {
            for gateway in 0..4 {
                world.gateways[gateway].delay_ns = MS + world.random.below(30 * MS);
            }
            world.run(100 * MS);
        }
        assert_eq!(world.alarms(), [] as [&(u64, EventKind); 0], "seed {seed}");
    }
}

/// Round trips beyond the timeout make every newest round late, and the gateways suspect at most.
#[test]
fn a_path_slower_than_the_timeout_is_no_failure() {
    let mut world = World::new(WatchConfig::default(), 2, 1);
    world.gateways.iter_mut().for_each(|gateway| gateway.delay_ns = 120 * MS);
    world.run(60 * S);
    assert_eq!(world.alarms(), [] as [&(u64, EventKind); 0]);
}

#[test]
fn an_overslept_watcher_blames_nobody() {
    for seed in 0..20 {
        // With a multiplier of 1 a single round that counts is an alarm.
        let multiplier = 1 + seed as u32 % 3;
        let config = WatchConfig { multiplier, ..WatchConfig::default() };
        let mut world = World::new(config, 4, seed);
        for _ in 0..200 {
            let before_ns = world.random.below(400 * MS);
            world.run(before_ns);
            let (sleep_ns, is_lossy) = (world.random.below(2000 * MS), world.random.chance(0.5));
            world.sleep(sleep_ns, is_lossy);
            world.run(sleep_ns);
        }
        world.run(S);
        assert_eq!(world.alarms(), [] as [&(u64, EventKind); 0], "seed {seed}");
        assert!(world.count(|kind| matches!(kind, EventKind::Overslept { .. })) > 50);
    }
}

#[test]
fn a_clock_that_jumps_either_way_blames_nobody() {
    for seed in 0..20 {
        let mut world = World::new(WatchConfig::default(), 4, seed);
        world.clock_skew_ns = 3_600_000 * MS as i64;
        for _ in 0..200 {
            let for_ns = world.random.below(600 * MS);
            world.run(for_ns);
            let jump_ns = world.random.below(7200 * S) as i64 - 3600 * S as i64;
            world.clock_skew_ns = (world.clock_skew_ns + jump_ns).max(0);
            // Nobody wakes it earlier than its timer: by the old clock.
            world.wake();
        }
        world.run(S);
        assert_eq!(world.alarms(), [] as [&(u64, EventKind); 0], "seed {seed}");
        assert!(world.count(|kind| matches!(kind, EventKind::ClockWentBack { .. })) > 10);
        world.gateways[0].is_dead = true;
        world.run(200 * MS + MS);
        assert_eq!(world.state(0), GatewayState::Down, "seed {seed}: it still watches");
    }
}

#[test]
fn the_loss_of_the_own_link_blames_nobody() {
    let mut world = World::new(WatchConfig::default(), 3, 1);
    world.run(S + 20 * MS);
    world.far_answers = false;
    world.run(100 * MS);
    world.watcher.handle_carrier(world.clock_ns(), false);
    let asked_count = world.asked_count;
    world.run(10 * S);
    assert_eq!(world.asked_count, asked_count, "nothing is sent meanwhile");
    world.far_answers = true;
    world.watcher.handle_carrier(world.clock_ns(), true);
    world.run(10 * S);
    assert_eq!(world.alarms(), [] as [&(u64, EventKind); 0]);
    assert!(world.asked_count > asked_count + 3 * 190);
    assert_eq!(world.count(|kind| matches!(kind, EventKind::Carrier { .. })), 2);
}

/// How often a watcher of three gateways is woken in the second from `from_ns` on, and then reads the answers; with `is_dead`
/// one gateway does not answer.
fn wakes_count(
    watcher: &mut Watcher,
    answers: &mut Vec<Answer>,
    from_ns: u64,
    is_dead: bool,
) -> usize {
    for count in 0.. {
        let now_ns = watcher.wakes_at().max(from_ns);
        if now_ns >= from_ns + S {
            return count;
        }
        answers.drain(..).for_each(|answer| watcher.handle_answer(&answer));
        while let Some(output) = watcher.poll(now_ns) {
            let Output::Ask(ask) = output else { continue };
            let answer =
                Answer { gateway: ask.gateway, round: ask.round, size: ask.size, rtt_ns: MS };
            answers.extend(Some(answer).filter(|one| !is_dead || one.gateway > 0));
        }
    }
    0
}

#[test]
fn a_round_wakes_a_watcher_once_while_all_is_well_and_twice_otherwise() {
    for (multiplier, well_count) in [(2, 20), (3, 20), (1, 40)] {
        let config = WatchConfig { multiplier, ..WatchConfig::default() };
        let mut watcher = Watcher::new(config, &[Inputs::default(); 3]).unwrap();
        let mut answers = Vec::new();
        let mut count =
            |second, is_dead| wakes_count(&mut watcher, &mut answers, second * S, is_dead);
        count(1, false);
        assert_eq!(count(2, false), well_count, "{multiplier}");
        assert!(count(3, true) >= 38, "{multiplier}");
    }
}

#[test]
fn rounds_missed_while_a_processor_was_away_blame_nobody() {
    for (stolen_ns, is_explained) in [(20 * MS, false), (100 * MS, true)] {
        for seed in 0..20 {
            let mut world = World::new(WatchConfig::default(), 4, seed);
            world.stolen_ns = stolen_ns;
            for gateway in (0..4).cycle().take(40) {
                let for_ns = S + world.random.below(50 * MS);
                world.run(for_ns);
                world.gateways[gateway].is_dead = true;
                world.run(200 * MS);
                world.gateways[gateway].is_dead = false;
            }
            assert_eq!(world.alarms().is_empty(), is_explained, "seed {seed}");
            let is_starved = |kind: &EventKind| matches!(kind, EventKind::Starved { .. });
            assert_eq!(world.count(is_starved) > 0, is_explained, "seed {seed}");
        }
    }
}

#[test]
fn a_failure_while_processors_are_always_away_is_found_within_half_a_second() {
    for seed in 0..100 {
        let mut world = World::new(WatchConfig::default(), 3, seed);
        world.stolen_ns = 100 * MS;
        let phase_ns = world.random.below(50 * MS);
        world.run(2 * S + phase_ns);
        world.gateways[1].is_dead = true;
        let failed_ns = world.now_ns;
        world.run(S);
        let found_ns = world.entered(1, GatewayState::Down, failed_ns).unwrap() - failed_ns;
        assert!(found_ns <= 500 * MS, "seed {seed}: {found_ns}");
        // One that has failed does not use up what others are granted.
        world.gateways[2].is_dead = true;
        world.run(130 * MS);
        world.gateways[2].is_dead = false;
        world.run(S);
        assert_eq!(world.used(), [0, 2], "seed {seed}");
    }
}

#[test]
fn gateways_held_together_stay_in_use_when_one_answers_a_moment_before_another() {
    for seed in 0..50 {
        let mut world = World::new(WatchConfig::default(), 4, seed);
        world.run(2 * S);
        world.far_answers = false;
        let phase_ns = world.random.below(50 * MS);
        world.run(S + phase_ns);
        world.events.clear();
        world.gateways[1].is_dead = true;
        world.gateways[3].is_dead = true;
        world.far_answers = true;
        world.run(120 * MS);
        world.gateways[1].is_dead = false;
        world.run(5 * S);
        let changes: Vec<_> = world
            .events
            .iter()
            .filter_map(|(_, kind)| match kind {
                EventKind::Use { gateways } => Some(gateways.as_slice()),
                _other => None,
            })
            .collect();
        assert_eq!(changes, [[0, 1, 2]], "seed {seed}: only the one that stayed dead");
        assert_eq!(world.state(1), GatewayState::Up);
    }
}
