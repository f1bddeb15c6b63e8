//! Peers that compute: packets wait for them, and nothing is lost.

use messaging::{Counters, PeerId, SendMode};

use crate::network::{Path, World};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
/// A batch of states of the model checker.
const BATCH_BYTES: usize = 8_000;

/// Two nodes that know the path.
fn world() -> World {
    let mut world = World::new(2, Path::LAN, 1);
    for _ in 0..30 {
        world.receive(1, Some(0), 1, 8);
        world.send(0, 1, 1, vec![1; 8], SendMode::Standard);
        world.receive(0, Some(1), 1, 8);
        world.send(1, 0, 1, vec![1; 8], SendMode::Standard);
        world.run_for(MS);
    }
    world
}

fn counters(world: &World, at: usize) -> Counters {
    *world.nodes[at].machine.counters()
}

fn window_bytes(world: &World) -> u64 {
    world.nodes[0].machine.window_bytes(PeerId(0)).expect("a peer")
}

/// Sends batches to a peer that begins to compute for so long; the context of the last one's receive.
fn send_to_absent(world: &mut World, batches: usize, pause_ns: u64) -> u64 {
    let posted: Vec<_> = (0..batches).map(|_| world.receive(1, Some(0), 2, BATCH_BYTES)).collect();
    let until_ns = world.now_ns + pause_ns;
    world.compute(1, until_ns);
    for _ in 0..batches {
        world.send(0, 1, 2, vec![7; BATCH_BYTES], SendMode::Standard);
    }
    *posted.last().expect("a batch")
}

/// Only the first timeout, before anything is known of the peer, retransmits a packet.
#[test]
fn a_computing_peer_costs_no_window_and_a_probe_a_pause() {
    const PAUSES: u64 = 200;
    for pause_ns in [300 * US, 3 * MS, 20 * MS] {
        let mut world = world();
        let before = counters(&world, 0);
        let window_before = window_bytes(&world);
        for _ in 0..PAUSES {
            let posted = send_to_absent(&mut world, 2, pause_ns);
            let until_ns = world.now_ns + pause_ns + 200 * US;
            assert!(world.run_until(until_ns, |world| world.completion(1, posted).is_some()));
            world.run_for(200 * US);
        }
        let after = counters(&world, 0);
        let what = format!("{pause_ns} ns: {after:?}");
        assert!(after.resent_pkts - before.resent_pkts <= 2, "{what}");
        assert!(after.pings - before.pings <= PAUSES * 3 / 2, "{what}");
        assert_eq!(after.spurious_losses, before.spurious_losses, "{what}");
        assert!(window_bytes(&world) >= window_before, "{what}");
        assert!(counters(&world, 1).duplicate_pkts <= 2, "{what}");
    }
}

/// What waits for a process does not wait on the path: the window grows as if it were prompt.
#[test]
fn the_window_grows_while_both_ends_compute() {
    const BATCHES: usize = 200;
    let mut world = world();
    let posted: Vec<_> = (0..BATCHES).map(|_| world.receive(1, Some(0), 2, BATCH_BYTES)).collect();
    for _ in 0..BATCHES {
        world.send(0, 1, 2, vec![7; BATCH_BYTES], SendMode::Standard);
    }
    let last = *posted.last().expect("a batch");
    let began_ns = world.now_ns;
    let mut rounds = 0;
    while world.completion(1, last).is_none() {
        rounds += 1;
        assert!(rounds < 100, "{} bytes of window", window_bytes(&world));
        let now_ns = world.now_ns;
        world.compute(0, now_ns + MS);
        world.compute(1, now_ns + MS + 300 * US);
        // The answers of this round wait for the next: less than a round trip is left of it.
        world.run_for(MS + 310 * US);
    }
    // 1.6 MB, of which 24 kB leave in the first round.
    let took_ns = world.now_ns - began_ns;
    assert!(rounds <= 16, "{rounds} rounds, {took_ns} ns, {} bytes", window_bytes(&world));
    assert_eq!(counters(&world, 0).spurious_losses, 0);
}

/// A loss is found by the answer to the probe, at the latest after the longest timeout.
#[test]
fn a_packet_lost_on_the_way_to_a_computing_peer_is_sent_again() {
    for lost in 1..=6 {
        for pause_ns in [500 * US, 5 * MS] {
            let mut world = world();
            for _ in 0..20 {
                send_to_absent(&mut world, 1, pause_ns);
                world.run_for(pause_ns + 200 * US);
            }
            let before = counters(&world, 0);
            world.lose.push(world.sent_pkts + lost);
            let posted = send_to_absent(&mut world, 1, pause_ns);
            let until_ns = world.now_ns + pause_ns + 20 * MS;
            let is_done = |world: &World| world.completion(1, posted).is_some();
            assert!(
                world.run_until(until_ns, is_done),
                "{lost} {pause_ns}: {:?}",
                counters(&world, 0)
            );
            let after = counters(&world, 0);
            assert!(after.resent_pkts - before.resent_pkts <= 2, "{lost} {pause_ns}: {after:?}");
        }
    }
}
