//! Frames that are more work than they look, and floods of them.

use std::time::{Duration, Instant};

use packet_switch::attachment::Shape;
use serde_json::json;

use super::{DWELL, Hostile, SMALL, broadcast};
use crate::case::{Case, Door, Scene};

pub(crate) const CASES: &[Case] = &[
    Case::of(Door::Switch, "super-segments cut into packets of one byte", amplify).floods(),
    Case::of(Door::Switch, "super-segments of one byte on a lossy link", amplify_link).floods(),
    Case::of(
        Door::Switch,
        "240 ports send super-segments cut into packets of 63 bytes",
        amplify_all,
    )
    .floods(),
    Case::of(Door::Switch, "virtio-net headers at their extremes", headers).floods(),
    Case::of(Door::Switch, "a flood of broadcasts", flood).floods(),
    Case::of(
        Door::Switch,
        "200 ports flood each other and want to be woken for each frame",
        flood_and_wake,
    )
    .floods()
    .long(),
    Case::of(Door::Switch, "a flood of source addresses", addresses).floods(),
    Case::of(Door::Switch, "virtio-net headers of any kind", any_header).floods().generated(),
];

/// A port's rings for super-segments.
const LARGE: Shape = Shape { slots: 256, buffer_bytes: 4160 };

/// A virtio-net header, then a TCP segment over IPv4 of so many bytes in all.
fn segment(header_bytes: usize, gso: [u16; 2], bytes: usize) -> Vec<u8> {
    let [kind, size] = gso;
    let mut packet = vec![1, kind as u8];
    packet.extend(54_u16.to_le_bytes());
    packet.extend(size.to_le_bytes());
    packet.extend(34_u16.to_le_bytes());
    packet.extend(16_u16.to_le_bytes());
    packet.resize(header_bytes.max(10), 0);
    let mut frame = broadcast(12, bytes);
    frame[12..14].copy_from_slice(&[0x08, 0]);
    let total = u16::try_from(bytes - 14).unwrap_or(u16::MAX).to_be_bytes();
    let header = [0x45, 0, total[0], total[1], 0, 1, 0, 0, 64, 6, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2];
    frame[14..34].copy_from_slice(&header);
    frame[34..54]
        .copy_from_slice(&[0, 1, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    packet.extend(frame);
    packet
}

/// Has a port's frames begin with a header.
fn with_header(scene: &Scene, port: &str, header_bytes: u8) -> Result<Hostile, String> {
    let hostile = Hostile::attach(&scene.socket, port, LARGE)?;
    let ask =
        json!({"version": 1, "ask": {"set_header": {"port": port, "header_bytes": header_bytes}}});
    hostile.raw.ask_bytes(ask.to_string().as_bytes(), &[])?;
    Ok(hostile)
}

fn amplify(scene: &mut Scene) -> Result<(), String> {
    let hostile = with_header(scene, "vale0:gso", 12)?;
    let receivers: Result<Vec<Hostile>, String> = (0..22)
        .map(|number| Hostile::attach(&scene.socket, &format!("vale0:g{number}"), SMALL))
        .collect();
    let mut next = 0;
    // As many as a ring holds, at once.
    for _ in 0..15 {
        next = hostile.send(next, &segment(12, [1, 1], 65_000), 4160);
    }
    hostile.publish(next);
    std::thread::sleep(DWELL);
    drop(receivers?);
    Ok(())
}

fn amplify_link(scene: &mut Scene) -> Result<(), String> {
    let hostile = with_header(scene, "vale2:gso", 10)?;
    let link = json!({"version": 1, "ask": {"add_link": {"one": "vale2:one", "other": "vale0:two",
        "link": {"loss_per_billion": 500_000_000, "rate_bits_per_s": 1_000_000_000, "seed": 1}}}});
    hostile.raw.ask_bytes(link.to_string().as_bytes(), &[])?;
    let mut next = 0;
    for _ in 0..15 {
        next = hostile.send(next, &segment(10, [1, 1], 65_000), 4160);
    }
    hostile.publish(next);
    std::thread::sleep(DWELL);
    Ok(())
}

/// None of them is more work than a port's share in a round allows; all of them together must not be either. They are
/// for one port without headers, which is too slow for them.
fn amplify_all(scene: &mut Scene) -> Result<(), String> {
    const PORTS: u32 = 240;
    const CUT: u16 = 63;
    // As long as a super-segment gets with packets of that size: it fills 16 slots.
    const BYTES: usize = 54 + 1000 * CUT as usize;
    const SLOTS: u32 = 16;
    let slow = Hostile::attach(&scene.socket, "vale0:slow", SMALL)?;
    let mut hello = broadcast(21, 60);
    let slow_station: [u8; 6] = std::array::from_fn(|index| hello[6 + index]);
    // The switch learns where it is, and nobody else hears of it.
    hello[..6].copy_from_slice(&slow_station);
    let next = slow.send(0, &hello, 2112);
    slow.publish(next);
    let ports: Result<Vec<Hostile>, String> =
        (0..PORTS).map(|number| with_header(scene, &format!("vale0:a{number}"), 12)).collect();
    let ports = ports?;
    let mut packet = segment(12, [1, CUT], BYTES);
    packet[12..18].copy_from_slice(&slow_station);
    packet[21] = 1;
    for (number, port) in (0_u16..).zip(&ports) {
        packet[22..24].copy_from_slice(&number.to_be_bytes());
        let mut first = 0;
        for _ in 0..LARGE.slots / SLOTS {
            first = port.send(first, &packet, LARGE.buffer_bytes as usize);
        }
    }
    ports.iter().for_each(|port| port.publish(LARGE.slots - SLOTS));
    let until = Instant::now() + Duration::from_millis(500);
    while Instant::now() < until {
        for port in &ports {
            // All whole ones that the switch has given back, again.
            port.publish(port.owner(0, 1) % LARGE.slots / SLOTS * SLOTS);
        }
        let arrived = slow.owner(1, 1) % SMALL.slots;
        slow.set_user(1, 1, arrived);
        slow.set_user(1, 0, arrived);
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

fn headers(scene: &mut Scene) -> Result<(), String> {
    let edges = [0, 1, 2, 53, 54, 55, 0x7fff, 0x8000, 0xfff0, 0xffff];
    for header_bytes in [10, 12] {
        let hostile = with_header(scene, "vale0:headers", header_bytes)?;
        let mut next = 0;
        for place in [0, 1, 2, 4, 6, 8] {
            for edge in edges {
                for bytes in [60, 1500, 9000] {
                    let mut packet = segment(header_bytes.into(), [1, 100], bytes);
                    packet[place..place + 2].copy_from_slice(&u16::to_le_bytes(edge));
                    next = hostile.send(next, &packet, 4160);
                    hostile.publish(next);
                }
                std::thread::sleep(Duration::from_micros(300));
            }
        }
    }
    Ok(())
}

fn flood(scene: &mut Scene) -> Result<(), String> {
    let hostile = Hostile::attach(&scene.socket, "vale0:flood", Shape { slots: 1024, ..SMALL })?;
    let until = Instant::now() + Duration::from_millis(300);
    for index in 0..1024 {
        hostile.fill(index, &broadcast(13, 60));
        hostile.set_slot(0, index, hostile.slot(0, index) as u32, 60, 0);
    }
    while Instant::now() < until {
        // All that the switch has given back.
        hostile.publish(hostile.owner(0, 1) % 1024);
        std::thread::yield_now();
    }
    Ok(())
}

/// As guests with ptnet ask to be woken, each time: the switch would ring 40 000 times a round.
fn flood_and_wake(scene: &mut Scene) -> Result<(), String> {
    const EACH_TIME: u32 = 1;
    let ports: Result<Vec<Hostile>, String> = (0..200)
        .map(|number| Hostile::attach(&scene.socket, &format!("vale0:w{number}"), SMALL))
        .collect();
    let ports = ports?;
    for (station, port) in (0..).zip(&ports) {
        for index in 0..SMALL.slots {
            port.fill(index, &broadcast(station, 60));
            port.set_slot(0, index, port.slot(0, index) as u32, 60, 0);
        }
        port.set_user(1, 2, EACH_TIME);
    }
    let until = Instant::now() + Duration::from_secs(1);
    while Instant::now() < until {
        for port in &ports {
            // What has arrived is taken, and all that the switch has given back is sent again.
            let arrived = port.owner(1, 1) % SMALL.slots;
            port.set_user(1, 1, arrived);
            port.set_user(1, 0, arrived);
            port.publish(port.owner(0, 1) % SMALL.slots);
        }
        std::thread::yield_now();
    }
    Ok(())
}

fn addresses(scene: &mut Scene) -> Result<(), String> {
    let hostile = Hostile::attach(&scene.socket, "vale0:many", SMALL)?;
    let mut next = 0;
    for number in 0..20_000_u32 {
        let mut frame = broadcast(14, 60);
        // Never the innocents' own: on one network an address is whoever says so.
        frame[7] = 0xbb;
        frame[8..12].copy_from_slice(&number.wrapping_mul(2_654_435_761).to_be_bytes());
        next = hostile.send(next, &frame, 2112);
        hostile.publish(next);
        if number % 60 == 0 {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
    Ok(())
}

fn any_header(scene: &mut Scene) -> Result<(), String> {
    while !scene.is_over() {
        let header_bytes = scene.pick(&[10, 12]);
        let hostile = with_header(scene, "vale0:any", header_bytes)?;
        let mut next = 0;
        for _ in 0..scene.random.below(100) {
            let kind = scene.pick(&[0, 1, 3, 4, 5, 0x81, 0xff]);
            let size = scene.pick(&[0, 1, 2, 7, 536, 1448, 0xffff]);
            let bytes = scene.pick(&[54, 55, 60, 1500, 9000, 65_000]);
            let mut packet = segment(header_bytes.into(), [kind, size], bytes);
            for _ in 0..scene.random.below(4) {
                let place = scene.random.below(70) as usize;
                // Not the addresses: the innocents' are theirs.
                let header = usize::from(header_bytes);
                if place < packet.len() && !(header..header + 12).contains(&place) {
                    packet[place] = scene.random.bits() as u8;
                }
            }
            next = hostile.send(next, &packet, 4160);
            hostile.publish(next);
            std::thread::sleep(Duration::from_micros(scene.random.below(1000)));
        }
    }
    Ok(())
}
