//! Everything at once: whatever happens, some gateway is in use, the watcher comes to rest, and once the
//! world is whole again all gateways are up.

use liveness::probe::{Answer, SizeClass, Unreachable, UnreachableKind};
use liveness::states::{BfdInput, GatewayState, WatchConfig};

use crate::world::{Gateway, MS, S, World};

fn disturb(world: &mut World) {
    let count = world.gateways.len() as u64;
    let index = world.random.below(count);
    let gateway = index as u16;
    let now_ns = world.clock_ns();
    let half = world.random.chance(0.5);
    match world.random.below(14) {
        0 | 1 => world.gateways[index as usize].is_dead = half,
        2 => world.gateways[index as usize].has_mtu_hole = half,
        3 => world.gateways[index as usize].is_honest = half,
        4 => world.gateways[index as usize].loss = world.random.unit() / 2.0,
        5 => world.gateways[index as usize].delay_ns = world.random.below(200 * MS),
        6 => world.far_answers = half,
        7 => world.watcher.handle_carrier(now_ns, half),
        8 => {
            let input = [BfdInput::Up, BfdInput::Down, BfdInput::Leaving];
            let input = input[world.random.below(3) as usize];
            world.watcher.handle_bfd(now_ns, gateway, input);
        }
        9 => world.watcher.handle_reported(now_ns, gateway, half),
        10 => drop(world.watcher.set_draining(now_ns, gateway, half)),
        11 => {
            let sleep_ns = world.random.below(S);
            world.sleep(sleep_ns, half);
        }
        12 => {
            let jump_ns = world.random.below(20 * S) as i64 - 10 * S as i64;
            world.clock_skew_ns = (world.clock_skew_ns + jump_ns).max(0);
        }
        _ => world.watcher.relax(half.then_some(S)),
    }
}

#[test]
fn some_gateway_is_always_in_use_and_all_are_up_again_in_the_end() {
    for seed in 0..150 {
        let config = WatchConfig { hold_down_max_ns: 4 * S, ..WatchConfig::default() };
        let mut world = World::new(config, 1 + seed as usize % 5, seed);
        for _ in 0..300 {
            disturb(&mut world);
            let for_ns = world.random.below(300 * MS);
            // Asserts after every turn that some gateway is in use, and that it is as announced.
            world.run(for_ns);
        }
        world.far_answers = true;
        world.gateways.fill(Gateway::default());
        let now_ns = world.clock_ns();
        world.watcher.handle_carrier(now_ns, true);
        for gateway in 0..world.gateways.len() as u16 {
            world.watcher.handle_bfd(now_ns, gateway, BfdInput::Up);
            world.watcher.handle_reported(now_ns, gateway, false);
            world.watcher.set_draining(now_ns, gateway, false).unwrap();
        }
        world.run(20 * S);
        for gateway in 0..world.gateways.len() as u16 {
            assert_eq!(world.state(gateway), GatewayState::Up, "seed {seed}, gateway {gateway}");
        }
    }
}

#[test]
fn answers_nobody_asked_for_do_no_harm() {
    type Material = Vec<(u16, u64, bool, u64, bool)>;
    bolero::check!().with_type::<Material>().for_each(|answers| {
        let mut world = World::new(WatchConfig::default(), 2, 1);
        world.gateways[0].is_dead = true;
        for &(gateway, round, is_full, rtt_ns, is_error) in answers.iter().take(50) {
            let size = if is_full { SizeClass::Full } else { SizeClass::Small };
            let kind = UnreachableKind::TooBig(gateway.into());
            let heard = Unreachable { gateway, round, size, kind };
            if is_error {
                world.watcher.handle_unreachable(rtt_ns >> 14, &heard);
                world.clock_skew_ns = 0;
            } else {
                world.watcher.handle_answer(&Answer { gateway, round, size, rtt_ns });
            }
            world.wake();
        }
    });
}
