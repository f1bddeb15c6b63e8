//! What fails is found in time, put out of use and taken back.

use liveness::bfd::State as Bfd;
use liveness::states::{
    BfdInput, Cause, DrainError, EventKind, GatewayState, Inputs, WatchConfig, WatchConfigError,
    Watcher,
};

use crate::world::{MS, S, World};

fn use_changes(world: &World) -> usize {
    world.count(|kind| matches!(kind, EventKind::Use { .. }))
}

#[test]
fn a_gateway_that_stops_answering_is_out_of_use_within_four_intervals() {
    for (interval_ms, seeds) in [(20, 0..50), (50, 0..200), (100, 0..50)] {
        for seed in seeds {
            let config = WatchConfig::with_interval(interval_ms * MS);
            let mut world = World::new(config, 3, seed);
            world.gateways.iter_mut().for_each(|gateway| gateway.loss = 0.01);
            let phase_ns = world.random.below(interval_ms * MS);
            world.run(2 * S + phase_ns);
            world.gateways[1].is_dead = true;
            let failed_ns = world.now_ns;
            world.run(S);
            let found_ns = world.entered(1, GatewayState::Down, failed_ns).unwrap() - failed_ns;
            assert!(found_ns <= 4 * interval_ms * MS, "seed {seed}: {found_ns}");
            assert_eq!(world.used(), [0, 2]);
        }
    }
}

#[test]
fn a_gateway_that_says_it_cannot_forward_is_out_of_use_within_two_and_a_half_intervals() {
    for seed in 0..100 {
        let mut world = World::new(WatchConfig::default(), 3, seed);
        let phase_ns = world.random.below(50 * MS);
        world.run(2 * S + phase_ns);
        world.gateways[1].is_dead = true;
        world.gateways[1].is_honest = true;
        let failed_ns = world.now_ns;
        world.run(S);
        let suspect_ns = world.entered(1, GatewayState::Suspect, failed_ns).unwrap() - failed_ns;
        // Once an answer is missed as well: what a router says of one far host another may refute.
        assert!(suspect_ns <= 92 * MS, "seed {seed}: {suspect_ns}");
        let found_ns = world.entered(1, GatewayState::Down, failed_ns).unwrap() - failed_ns;
        assert!(found_ns <= 140 * MS, "seed {seed}: {found_ns}");
    }
}

#[test]
fn an_mtu_hole_is_named_and_found_within_a_fifth_second_of_the_first_lost_probe() {
    for (full_every, bound_ms) in [(1, 200), (20, 1200)] {
        for seed in 0..100 {
            let config = WatchConfig { full_every, ..WatchConfig::default() };
            let mut world = World::new(config, 3, seed);
            let phase_ns = world.random.below(S);
            world.run(2 * S + phase_ns);
            world.gateways[2].has_mtu_hole = true;
            let failed_ns = world.now_ns;
            world.run(2 * S);
            let found_ns = world.entered(2, GatewayState::MtuHole, failed_ns).unwrap() - failed_ns;
            assert!(found_ns <= bound_ms * MS, "every {full_every}, seed {seed}: {found_ns}");
            assert_eq!(world.used(), [0, 1]);
            world.gateways[2].has_mtu_hole = false;
            world.run(5 * S);
            assert_eq!(world.state(2), GatewayState::Up);
            assert_eq!(world.used(), [0, 1, 2]);
        }
    }
}

#[test]
fn a_router_that_says_what_fits_is_no_mtu_hole() {
    let mut world = World::new(WatchConfig::default(), 2, 1);
    world.gateways[0].has_mtu_hole = true;
    world.gateways[0].is_honest = true;
    world.run(60 * S);
    assert_eq!(world.alarms(), [] as [&(u64, EventKind); 0]);
    let told = EventKind::PathMtu { gateway: 0, mtu_bytes: 1400 };
    assert_eq!(world.count(|kind| *kind == told), 1, "once");
}

#[test]
fn all_at_once_is_held_and_said_and_costs_no_hold_down() {
    let mut world = World::new(WatchConfig::default(), 3, 1);
    world.run(2 * S);
    world.far_answers = false;
    world.run(3 * S);
    assert_eq!(world.used(), [0, 1, 2]);
    assert_eq!(world.state(1), GatewayState::Held);
    let all = EventKind::AllFailed { held: vec![0, 1, 2] };
    assert_eq!(world.count(|kind| *kind == all), 1);
    world.far_answers = true;
    world.run(400 * MS);
    assert_eq!(world.state(1), GatewayState::Up);
    assert_eq!(world.count(|kind| *kind == EventKind::AllFailedEnded), 1);
    assert_eq!(use_changes(&world), 0);
}

/// The same when loss spreads the detection over more than one round.
#[test]
fn nearly_at_once_is_held_too() {
    for seed in 0..100 {
        let mut world = World::new(WatchConfig::default(), 3, seed);
        world.run(2 * S);
        world.gateways.iter_mut().for_each(|gateway| gateway.loss = 0.5);
        world.run(60 * MS);
        world.far_answers = false;
        world.run(2 * S);
        assert_eq!(world.used(), [0, 1, 2], "seed {seed}");
    }
}

/// The far host dies between the probes of one round: the first gateway's was answered, the others' were not.
#[test]
fn a_far_host_that_dies_within_a_round_moves_nothing() {
    for first in 0..3_u16 {
        let mut world = World::new(WatchConfig::default(), 3, first.into());
        world.run(S);
        let other = (first + 1) % 3;
        for gateway in [other, (first + 2) % 3] {
            world.gateways[usize::from(gateway)].is_dead = true;
        }
        world.run(50 * MS);
        world.far_answers = false;
        world.run(S);
        assert_eq!(use_changes(&world), 0, "{:#?}", world.events);
        assert_eq!(world.used(), [0, 1, 2]);
    }
}

#[test]
fn the_last_gateway_stays_until_another_comes_back() {
    let mut world = World::new(WatchConfig::default(), 3, 1);
    for gateway in 0..3 {
        world.run(S);
        world.gateways[gateway].is_dead = true;
    }
    world.run(S);
    assert_eq!(world.used(), [2]);
    assert_eq!(world.state(2), GatewayState::Held);
    world.gateways[0].is_dead = false;
    world.run(S);
    assert_eq!(world.used(), [0]);
    assert_eq!([0, 1, 2].map(|one| world.state(one)), {
        [GatewayState::Up, GatewayState::Down, GatewayState::Down]
    });
}

#[test]
fn a_healthy_gateway_that_is_held_down_is_better_than_a_dead_one() {
    let config = WatchConfig { hold_down_ns: 60 * S, ..WatchConfig::default() };
    let mut world = World::new(config, 2, 1);
    world.run(S);
    world.gateways[0].is_dead = true;
    world.run(S);
    world.gateways[0].is_dead = false;
    world.run(5 * S);
    assert_eq!(world.used(), [1], "held down");
    world.gateways[1].is_dead = true;
    world.run(201 * MS);
    assert_eq!(world.used(), [0]);
    assert_eq!(world.count(|kind| *kind == EventKind::HoldDownCutShort { gateway: 0 }), 1);
}

#[test]
fn hold_down_doubles_with_each_failure_and_is_forgotten_after_a_stable_minute() {
    let mut world = World::new(WatchConfig::default(), 2, 1);
    let out_tenths = |world: &mut World| {
        world.run(S);
        world.gateways[0].is_dead = true;
        let from_ns = world.now_ns;
        world.run(S);
        world.gateways[0].is_dead = false;
        world.run(70 * S - 2 * S);
        let up_ns = world.entered(0, GatewayState::Up, from_ns);
        let down_ns = world.entered(0, GatewayState::Down, from_ns);
        up_ns.zip(down_ns).map(|(up_ns, down_ns)| (up_ns - down_ns) / (100 * MS))
    };
    assert_eq!(out_tenths(&mut world), Some(20), "2 s");
    assert_eq!(out_tenths(&mut world), Some(20), "2 s: stable in between");
    let mut world = World::new(WatchConfig::default(), 2, 1);
    let mut outs = Vec::new();
    for _ in 0..7 {
        world.run(S);
        world.gateways[0].is_dead = true;
        let from_ns = world.now_ns;
        world.run(S);
        world.gateways[0].is_dead = false;
        while world.entered(0, GatewayState::Up, from_ns).is_none() {
            world.run(10 * MS);
        }
        outs.push((world.now_ns - from_ns) / S);
    }
    assert_eq!(outs, [2, 4, 8, 16, 32, 64, 64]);
}

#[test]
fn a_flapping_gateway_moves_routes_ever_more_rarely() {
    let mut world = World::new(WatchConfig::default(), 3, 1);
    for _ in 0..600 {
        world.gateways[1].is_dead = true;
        world.run(300 * MS);
        world.gateways[1].is_dead = false;
        world.run(700 * MS);
    }
    let changes_count = use_changes(&world);
    assert!((6..=30).contains(&changes_count), "{changes_count} in 600 flaps");
}

#[test]
fn a_gateway_comes_back_after_five_answered_rounds_and_its_hold_down() {
    let config = WatchConfig { hold_down_ns: 0, ..WatchConfig::default() };
    let mut world = World::new(config, 2, 1);
    world.run(S);
    world.gateways[0].is_dead = true;
    world.run(S);
    world.gateways[0].is_dead = false;
    let from_ns = world.now_ns;
    world.run(S);
    let up_ns = world.entered(0, GatewayState::Up, from_ns).unwrap() - from_ns;
    assert!((201 * MS..=301 * MS).contains(&up_ns), "{up_ns}");
}

#[test]
fn a_gateway_that_comes_back_with_an_mtu_hole_stays_out() {
    let config = WatchConfig { hold_down_ns: 0, up_after: 1, ..WatchConfig::default() };
    let mut world = World::new(config, 2, 1);
    world.run(S);
    world.gateways[0].is_dead = true;
    world.run(S);
    world.gateways[0].is_dead = false;
    world.gateways[0].has_mtu_hole = true;
    let from_ns = world.now_ns;
    world.run(10 * S);
    assert_eq!((world.state(0), world.used()), (GatewayState::MtuHole, &[1][..]));
    assert_eq!(world.entered(0, GatewayState::Up, from_ns), None, "not even for a while");
}

#[test]
fn an_mtu_hole_is_better_than_nothing() {
    let mut world = World::new(WatchConfig::default(), 2, 1);
    world.gateways[0].has_mtu_hole = true;
    world.run(3 * S);
    assert_eq!(world.used(), [1]);
    world.gateways[1].is_dead = true;
    world.run(S);
    assert_eq!((world.state(0), world.used()), (GatewayState::Held, &[0][..]));
}

#[test]
fn what_was_down_before_proves_itself_first() {
    let inputs = [Inputs::default(), Inputs { was_down: true, ..Inputs::default() }];
    let mut world = World::with(WatchConfig::default(), &inputs, 1);
    assert_eq!(world.used(), [0]);
    world.run(100 * MS);
    assert_eq!(world.state(1), GatewayState::Down);
    world.run(S);
    assert_eq!((world.state(1), world.used()), (GatewayState::Up, &[0, 1][..]));
    let inputs = [Inputs { was_down: true, ..Inputs::default() }; 2];
    let world = World::with(WatchConfig::default(), &inputs, 1);
    assert_eq!(world.used(), [0, 1], "all down before: all are used");
}

#[test]
fn a_gateway_that_is_drained_while_all_have_failed_is_out_of_use() {
    let mut world = World::new(WatchConfig::default(), 3, 1);
    world.run(S);
    world.far_answers = false;
    world.run(S);
    assert_eq!((world.state(1), world.used()), (GatewayState::Held, &[0, 1, 2][..]));
    world.watcher.set_draining(world.clock_ns(), 1, true).unwrap();
    world.run(S);
    assert_eq!(world.used(), [0, 2]);
}

#[test]
fn draining_takes_a_gateway_out_of_use_but_never_the_last() {
    let mut world = World::new(WatchConfig::default(), 2, 1);
    world.run(S);
    world.watcher.set_draining(world.clock_ns(), 0, true).unwrap();
    world.run(S);
    assert_eq!((world.state(0), world.used()), (GatewayState::Draining, &[1][..]));
    let now_ns = world.clock_ns();
    assert_eq!(world.watcher.set_draining(now_ns, 1, true), Err(DrainError::Last(1)));
    assert_eq!(world.watcher.set_draining(now_ns, 7, true), Err(DrainError::Unknown(7)));
    world.gateways[1].is_dead = true;
    world.run(S);
    assert_eq!(world.used(), [0], "rather a draining gateway than a dead one");
    world.gateways[1].is_dead = false;
    world.run(5 * S);
    assert_eq!(world.used(), [1]);
    world.watcher.set_draining(world.clock_ns(), 0, false).unwrap();
    world.run(S);
    assert_eq!(world.used(), [0, 1]);
}

#[test]
fn bfd_takes_a_gateway_down_at_once_and_a_session_never_up_does_not() {
    let mut world = World::new(WatchConfig::default(), 3, 1);
    world.run(S);
    world.watcher.handle_bfd(world.clock_ns(), 0, BfdInput::of(Bfd::Down, Bfd::Down));
    world.run(MS);
    assert_eq!(world.state(0), GatewayState::Up, "never up: it says nothing");
    world.watcher.handle_bfd(world.clock_ns(), 0, BfdInput::of(Bfd::Up, Bfd::Up));
    world.watcher.handle_bfd(world.clock_ns(), 0, BfdInput::of(Bfd::Down, Bfd::Up));
    world.run(MS);
    assert_eq!((world.state(0), world.used()), (GatewayState::Down, &[1, 2][..]));
    world.watcher.handle_bfd(world.clock_ns(), 0, BfdInput::of(Bfd::Up, Bfd::Up));
    world.run(5 * S);
    assert_eq!(world.state(0), GatewayState::Up);
    world.watcher.handle_bfd(world.clock_ns(), 1, BfdInput::of(Bfd::Down, Bfd::AdminDown));
    world.run(MS);
    assert_eq!(
        (world.state(1), world.used()),
        (GatewayState::Draining, &[0, 2][..]),
        "it is going"
    );
}

#[test]
fn a_gateway_without_probes_is_judged_by_bfd_alone() {
    let inputs = [Inputs::default(), Inputs { is_probed: false, ..Inputs::default() }];
    let mut world = World::with(WatchConfig::default(), &inputs, 1);
    world.gateways[1].is_dead = true;
    world.run(10 * S);
    assert_eq!(world.state(1), GatewayState::Up);
    world.watcher.handle_bfd(world.clock_ns(), 1, BfdInput::Up);
    world.watcher.handle_bfd(world.clock_ns(), 1, BfdInput::Down);
    world.run(S);
    assert_eq!(world.used(), [0]);
    world.watcher.handle_bfd(world.clock_ns(), 1, BfdInput::Up);
    world.run(3 * S);
    assert_eq!(world.used(), [0, 1]);
}

/// The peer may be heard before it answers: the session is then on its way up, and was not up before.
#[test]
fn a_session_that_has_not_been_up_does_not_go_down() {
    let mut world = World::new(WatchConfig::default(), 1, 1);
    let said_count = |world: &World| world.count(|kind| matches!(kind, EventKind::Bfd { .. }));
    let mut says = |input| {
        let before_count = said_count(&world);
        world.watcher.handle_bfd(world.clock_ns(), 0, input);
        world.run(S);
        said_count(&world) - before_count
    };
    let all = [BfdInput::Down, BfdInput::Up, BfdInput::Up, BfdInput::Down, BfdInput::Down];
    assert_eq!(all.map(&mut says), [0, 1, 0, 1, 0]);
}

#[test]
fn a_relaxed_watcher_hurries_once_an_answer_is_missing() {
    for seed in 0..50 {
        let mut world = World::new(WatchConfig::default(), 3, seed);
        world.watcher.relax(Some(S));
        world.run(20 * S);
        assert!(world.asked_count < 3 * 25, "{}", world.asked_count);
        let phase_ns = world.random.below(S);
        world.run(phase_ns);
        world.gateways[0].is_dead = true;
        let failed_ns = world.now_ns;
        world.run(2 * S);
        let found_ns = world.entered(0, GatewayState::Down, failed_ns).unwrap() - failed_ns;
        assert!(found_ns <= 1150 * MS, "seed {seed}: {found_ns}");
        world.watcher.handle_reported(world.clock_ns(), 1, true);
        world.run(MS);
        assert_eq!(world.used(), [2], "sentinels are believed at once");
        let is_it = |kind: &EventKind| {
            matches!(kind, EventKind::State { gateway: 1, cause: Some(Cause::Reported), .. })
        };
        assert_eq!(world.count(is_it), 1);
        world.watcher.handle_reported(world.clock_ns(), 1, false);
        world.run(5 * S);
        assert_eq!(world.used(), [1, 2]);
    }
}

#[test]
fn configurations_that_make_no_sense_are_refused() {
    let with = |change: fn(&mut WatchConfig)| {
        let mut config = WatchConfig::default();
        change(&mut config);
        Watcher::new(config, &[Inputs::default()]).unwrap_err()
    };
    assert_eq!(with(|config| config.interval_ns = 0), WatchConfigError::ZeroTime);
    assert_eq!(with(|config| config.multiplier = 0), WatchConfigError::Multiplier(0));
    assert_eq!(with(|config| config.multiplier = 33), WatchConfigError::Multiplier(33));
    assert_eq!(with(|config| config.up_after = 0), WatchConfigError::UpAfter(0));
    assert_eq!(with(|config| config.timeout_ns = S), WatchConfigError::Timeout);
    let none = Watcher::new(WatchConfig::default(), &[]).unwrap_err();
    assert_eq!(none, WatchConfigError::Gateways(0));
}
