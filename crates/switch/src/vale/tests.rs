use std::collections::BTreeMap;

use super::*;

fn port(number: usize) -> PortId {
    PortId::new(number).unwrap()
}

fn mac(number: u64) -> Mac {
    let [a, b, c, d, e, f, ..] = (number << 1).to_le_bytes();
    Mac::new([a, b, c, d, e, f])
}

const BROADCAST: Mac = Mac::new([0xff; 6]);

fn switch(ports: usize) -> Forwarder {
    let mut switch = Forwarder::new(1);
    (0..ports).for_each(|number| switch.add(port(number)));
    switch
}

fn send(switch: &mut Forwarder, from: usize, source: u64, destination: Mac, now_s: u32) -> Verdict {
    let addresses = Addresses { source: mac(source), destination };
    switch.route(port(from), addresses, 60, now_s)
}

#[test]
fn learns_who_is_where() {
    let mut switch = switch(3);
    assert_eq!(send(&mut switch, 0, 10, mac(11), 0), Verdict::Flood, "nobody knows 11");
    assert_eq!(send(&mut switch, 1, 11, mac(10), 0), Verdict::To(port(0)));
    assert_eq!(send(&mut switch, 0, 10, mac(11), 0), Verdict::To(port(1)));
    assert_eq!(send(&mut switch, 2, 12, BROADCAST, 0), Verdict::Flood);
    assert_eq!(send(&mut switch, 1, 10, mac(12), 0), Verdict::To(port(2)), "10 has moved");
    assert_eq!(send(&mut switch, 0, 13, mac(10), 0), Verdict::To(port(1)));
    assert_eq!(
        send(&mut switch, 1, 14, mac(10), 0),
        Verdict::Drop(DropReason::SamePort),
        "both are behind port 1"
    );
}

#[test]
fn forgets_the_silent_and_the_gone() {
    let mut switch = switch(3);
    send(&mut switch, 0, 10, BROADCAST, 1);
    assert_eq!(send(&mut switch, 1, 11, mac(10), 1 + AGE_S_MAX), Verdict::To(port(0)));
    assert_eq!(send(&mut switch, 1, 11, mac(10), 2 + AGE_S_MAX), Verdict::Flood);
    send(&mut switch, 0, 10, BROADCAST, 400);
    assert_eq!(send(&mut switch, 1, 11, mac(10), 400), Verdict::To(port(0)), "a word keeps it");
    switch.remove(port(0));
    assert_eq!(send(&mut switch, 1, 11, mac(10), 400), Verdict::Flood);
    switch.remove(port(2));
    let alone = Verdict::Drop(DropReason::NoDestination);
    assert_eq!(send(&mut switch, 1, 11, mac(10), 400), alone);
}

#[test]
fn group_addresses_are_never_learned_and_fragments_go_nowhere() {
    let mut switch = switch(2);
    let from_group = Addresses { source: BROADCAST, destination: mac(1) };
    assert_eq!(switch.route(port(0), from_group, 60, 0), Verdict::Flood);
    let to_group = Addresses { source: mac(2), destination: BROADCAST };
    assert_eq!(switch.route(port(1), to_group, 60, 0), Verdict::Flood);
    let short = Verdict::Drop(DropReason::TooShort);
    assert_eq!(switch.route(port(1), to_group, 13, 0), short);
}

#[test]
fn ten_thousand_addresses_fit() {
    let mut table = MacTable::new(7);
    for number in 0..10_000 {
        table.learn(mac(number), port(number as usize % PORTS_MAX), 5);
    }
    let known = (0..10_000)
        .filter(|&number| table.find(mac(number), 5) == Some(port(number as usize % PORTS_MAX)))
        .count();
    assert!(known > 9_000, "{known}");
    let wrong = (10_000..20_000).filter(|&number| table.find(mac(number), 5).is_some()).count();
    assert_eq!(wrong, 0);
}

#[test]
fn a_full_set_forgets_the_oldest() {
    let mut table = MacTable::new(7);
    for number in 0..100_000 {
        table.learn(mac(number), port(1), number as u32 / 1000);
    }
    let known = |range: std::ops::Range<u64>| {
        range.filter(|&number| table.find(mac(number), 99).is_some()).count()
    };
    assert!(known(99_000..100_000) > 950, "the newest are there");
    assert_eq!(known(0..1000), 0, "the oldest are not");
}

/// Any frames at all agree with a map that remembers everything.
#[test]
fn any_traffic_agrees_with_a_plain_map() {
    bolero::check!().with_type::<Vec<(u8, u8, u8, u8)>>().for_each(|frames| {
        let mut switch = switch(8);
        let mut oracle: BTreeMap<u64, (usize, u32)> = BTreeMap::new();
        let mut now_s = 0;
        for &(from, source, destination, pause) in frames {
            let (from, source, destination) =
                (usize::from(from % 8), u64::from(source), u64::from(destination));
            now_s += u32::from(pause);
            oracle.insert(source, (from, now_s));
            let expected = match oracle.get(&destination) {
                Some(&(to, seen_s)) if now_s - seen_s <= AGE_S_MAX => {
                    if to == from {
                        Verdict::Drop(DropReason::SamePort)
                    } else {
                        Verdict::To(port(to))
                    }
                }
                _ => Verdict::Flood,
            };
            assert_eq!(send(&mut switch, from, source, mac(destination), now_s), expected);
        }
    });
}

/// Whatever goes where, each port gets its packets once and in order.
#[test]
fn batches_keep_order() {
    bolero::check!().with_type::<Vec<Vec<u8>>>().for_each(|batches| {
        let mut batch = Batch::default();
        let mut ports = PortSet::default();
        (0..4).for_each(|number| ports.insert(port(number)));
        for packets in batches {
            batch.clear();
            let mut oracle: BTreeMap<PortId, Vec<usize>> = BTreeMap::new();
            for (packet, &to) in packets.iter().enumerate() {
                match to % 6 {
                    5 => batch.push(None),
                    4 => {
                        batch.push(Some(None));
                        for number in 1..4 {
                            oracle.entry(port(number)).or_default().push(packet);
                        }
                    }
                    number => {
                        let to = port(usize::from(number));
                        batch.push(Some(Some(to)));
                        oracle.entry(to).or_default().push(packet);
                    }
                }
            }
            // Port 0 is the one they come from; what is for it alone cannot be.
            oracle.remove(&port(0));
            let got: BTreeMap<PortId, Vec<usize>> = batch
                .destinations(&ports, port(0))
                .iter()
                .filter(|&to| to != port(0))
                .map(|to| (to, batch.packets_for(to).collect::<Vec<_>>()))
                .filter(|(_, packets)| !packets.is_empty())
                .collect();
            assert_eq!(got, oracle);
        }
    });
}

#[test]
fn sets_of_ports_hold_what_was_put_in() {
    let mut set = PortSet::default();
    let some = [0, 1, 63, 64, 127, 128, 253];
    some.iter().for_each(|&number| set.insert(port(number)));
    assert_eq!(set.iter().map(PortId::index).collect::<Vec<_>>(), some);
    set.remove(port(64));
    assert!(!set.contains(port(64)) && set.contains(port(63)));
    assert_eq!(PortId::new(254), None);
}
