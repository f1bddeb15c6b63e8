//! No false alarm.

use liveness::probe::SizeClass;
use liveness::states::{EventKind, GatewayState, WatchConfig};

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
