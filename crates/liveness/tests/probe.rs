//! Probes between a prober and a reflector: accepted as they are meant, refused in every other form.

use std::net::IpAddr;

use liveness::probe::datagram::{Datagram, header_bytes};
use liveness::probe::payload::{Ends, Kind, is_genuine};
use liveness::probe::{
    Answer, Arrived, MacAddress, PAYLOAD_BYTES, Payload, Ports, Prober, ProberConfig, Reflector,
    ReflectorConfig, RefusedProbeError as Refused, SizeClass, UnreachableKind,
};
use liveness::siphash::Key;

const MS: u64 = 1_000_000;
const NEAR_MAC: MacAddress = [2, 0, 0, 0, 1, 0];
const FAR_MAC: MacAddress = [2, 0, 0, 0, 2, 0];
const FAMILIES: [(&str, &str); 2] = [("10.100.0.1", "10.10.0.21"), ("fd01::1", "fd02::21")];

fn ends((prober, reflector): (&str, &str)) -> Ends {
    Ends { prober: prober.parse().unwrap(), reflector: reflector.parse().unwrap() }
}

fn key() -> Key {
    Key::new(*b"0123456789abcdef")
}

fn prober(ends: Ends) -> Prober {
    Prober::new(ProberConfig {
        key: key(),
        plan_id: 9,
        ports: Ports::default(),
        ends,
        gateways: vec![Some(NEAR_MAC), None, Some([2, 0, 0, 0, 1, 2])],
        mtu_bytes: 1500,
        first_sequence: 1_000_000,
    })
}

fn reflector(ends: Ends) -> Reflector {
    Reflector::new(ReflectorConfig {
        key: key(),
        plan_id: 9,
        ports: Ports::default(),
        addresses: vec![ends.reflector],
        sources: vec![ends.prober],
        rate_per_s: 1000,
        burst_count: 100,
    })
}

fn ask(prober: &mut Prober, now_ns: u64, gateway: u16, size: SizeClass) -> Vec<u8> {
    let mut packet = vec![0xee; 2000];
    let length = prober.ask(now_ns, gateway, size, 5, &mut packet);
    packet.truncate(length);
    packet
}

fn reflect(far: &mut Reflector, now_ns: u64, packet: &mut [u8]) -> Result<usize, Refused> {
    let (length, to) = far.reflect(now_ns, Arrived { source_mac: FAR_MAC, packet })?;
    assert_eq!(to, FAR_MAC);
    Ok(length)
}

#[test]
fn a_question_is_answered_with_as_many_bytes_and_swapped_addresses() {
    for family in FAMILIES {
        let ends = ends(family);
        let (mut near, mut far) = (prober(ends), reflector(ends));
        for (size, bytes) in
            [(SizeClass::Small, header_bytes(ends.prober.is_ipv6()) + 56), (SizeClass::Full, 1500)]
        {
            let mut packet = ask(&mut near, 7 * MS, 0, size);
            assert_eq!(packet.len(), bytes);
            // Ethernet's padding is no part of it.
            packet.extend([0; 9]);
            assert_eq!(reflect(&mut far, 100, &mut packet), Ok(bytes));
            let datagram = Datagram::parse(&packet).unwrap();
            assert_eq!((datagram.source, datagram.destination), (ends.reflector, ends.prober));
            assert_eq!((datagram.source_port, datagram.destination_port), (3999, 3998));
            let answer = near.handle_answer(9 * MS, NEAR_MAC, &packet[..bytes], bytes);
            let rtt_ns = 2 * MS;
            assert_eq!(answer, Ok(Answer { gateway: 0, round: 5, size, rtt_ns }));
        }
    }
}

fn hear(near: &mut Prober, mac: MacAddress, packet: &[u8]) -> Result<Answer, Refused> {
    near.handle_answer(1, mac, packet, packet.len())
}

#[test]
fn the_beginning_of_a_full_size_answer_is_enough_if_the_packet_was_whole() {
    for family in FAMILIES {
        let ends = ends(family);
        let (mut near, mut far) = (prober(ends), reflector(ends));
        let mut packet = ask(&mut near, 0, 0, SizeClass::Full);
        reflect(&mut far, 0, &mut packet).unwrap();
        let whole = header_bytes(ends.prober.is_ipv6()) + 56;
        for (kept, bytes) in [(whole, 1499), (whole - 1, 1500), (whole, 0)] {
            let answer = near.handle_answer(1, NEAR_MAC, &packet[..kept], bytes);
            assert_eq!(answer, Err(Refused::TooShort), "{kept} of {bytes}");
        }
        let answer = near.handle_answer(1, NEAR_MAC, &packet[..whole], 1500);
        assert_eq!(answer.map(|answer| answer.size), Ok(SizeClass::Full));
    }
}

/// Sum of 16-bit words by the definition of RFC 1071, written without regard to speed.
fn checksum_is_right(words: &[u8]) -> bool {
    let mut sum = 0_u32;
    for pair in words.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum == 0xffff
}

#[test]
fn checksums_are_right_in_both_families_both_ways_and_both_sizes() {
    for family in FAMILIES {
        let ends = ends(family);
        let (mut near, mut far) = (prober(ends), reflector(ends));
        for round in 0..200 {
            let size = if round % 2 == 0 { SizeClass::Small } else { SizeClass::Full };
            let mut packet = ask(&mut near, round * MS, 0, size);
            for _way in 0..2 {
                let is_v6 = ends.prober.is_ipv6();
                let ip_bytes = header_bytes(is_v6) - 8;
                assert!(is_v6 || checksum_is_right(&packet[..20]));
                let addresses = if is_v6 { &packet[8..40] } else { &packet[12..20] };
                let udp = &packet[ip_bytes..];
                assert!(udp[6..8] != [0, 0], "no checksum");
                let mut pseudo = addresses.to_vec();
                pseudo.extend([0, 17]);
                pseudo.extend((udp.len() as u16).to_be_bytes());
                pseudo.extend(udp);
                assert!(checksum_is_right(&pseudo));
                if packet[ip_bytes + 8 + 5] == 1 {
                    reflect(&mut far, round * MS, &mut packet).unwrap();
                }
            }
        }
    }
}

/// What the reflector says to a packet changed by `change`, and that it left the packet alone.
fn refused(change: impl Fn(&mut Vec<u8>)) -> Refused {
    let ends = ends(FAMILIES[0]);
    let mut packet = ask(&mut prober(ends), 0, 0, SizeClass::Small);
    change(&mut packet);
    let before = packet.clone();
    let mut far = reflector(ends);
    let refusal = reflect(&mut far, 0, &mut packet).unwrap_err();
    assert_eq!(packet, before);
    assert_eq!(far.counters().refused_count(refusal), 1);
    assert_eq!(far.counters().all_refused_count(), 1);
    refusal
}

#[test]
fn wrong_questions_are_refused_with_their_reason() {
    let set = |at: usize, value: u8| move |packet: &mut Vec<u8>| packet[at] = value;
    assert_eq!(refused(|packet| packet.truncate(0)), Refused::TooShort);
    assert_eq!(refused(|packet| packet.truncate(83)), Refused::TooShort);
    assert_eq!(refused(set(0, 0x46)), Refused::Header);
    assert_eq!(refused(set(0, 0x55)), Refused::Header);
    assert_eq!(refused(set(6, 0x20)), Refused::Fragment);
    assert_eq!(refused(set(7, 9)), Refused::Fragment);
    assert_eq!(refused(set(9, 6)), Refused::OtherPorts);
    assert_eq!(refused(set(21, 7)), Refused::OtherPorts);
    assert_eq!(refused(set(23, 7)), Refused::OtherPorts);
    assert_eq!(refused(set(19, 99)), Refused::OtherDestination);
    assert_eq!(refused(set(15, 99)), Refused::UnknownSource);
    assert_eq!(refused(set(28, b'X')), Refused::NoProbe);
    assert_eq!(refused(set(32, 2)), Refused::Version);
    assert_eq!(refused(set(33, 2)), Refused::Direction);
    assert_eq!(refused(set(33, 3)), Refused::Direction);
    assert_eq!(refused(set(36, 1)), Refused::OtherPlan);
    assert_eq!(refused(set(3, 83)), Refused::Padding, "the IP length");
    assert_eq!(refused(set(25, 63)), Refused::Padding, "the UDP length");
    assert_eq!(refused(set(61, 55)), Refused::Padding, "the payload's length");
    assert_eq!(refused(set(62, 2)), Refused::Padding, "the size class");
    assert_eq!(refused(set(63, 1)), Refused::Padding);
    assert_eq!(refused(set(35, 1)), Refused::Forged, "the gateway");
    assert_eq!(refused(set(51, 0xff)), Refused::Forged, "the sequence number");
    assert_eq!(refused(|packet| packet[83] ^= 1), Refused::Forged, "the tag");
}

#[test]
fn probes_are_bound_to_their_addresses() {
    let ours = ends(FAMILIES[0]);
    let victim: IpAddr = "10.100.0.2".parse().unwrap();
    let mut far = Reflector::new(ReflectorConfig {
        key: key(),
        plan_id: 9,
        ports: Ports::default(),
        addresses: vec![ours.reflector],
        sources: vec![ours.prober, victim],
        rate_per_s: 1000,
        burst_count: 100,
    });
    let mut packet = ask(&mut prober(ours), 0, 0, SizeClass::Small);
    packet[15] = 2; // in the name of 10.100.0.2, which the plan knows too
    assert_eq!(reflect(&mut far, 0, &mut packet), Err(Refused::Forged));
}

#[test]
fn answers_go_to_no_multicast_address() {
    let ends = ends(FAMILIES[0]);
    let mut packet = ask(&mut prober(ends), 0, 0, SizeClass::Small);
    for source_mac in [[0xff; 6], [1, 0, 0x5e, 0, 0, 1], [0; 6]] {
        let refusal = reflector(ends).reflect(0, Arrived { source_mac, packet: &mut packet });
        assert_eq!(refusal, Err(Refused::SourceMac));
    }
}

#[test]
fn an_answer_is_never_reflected_again() {
    let ends = ends(FAMILIES[0]);
    let mut packet = ask(&mut prober(ends), 0, 0, SizeClass::Small);
    let mut far = reflector(ends);
    reflect(&mut far, 0, &mut packet).unwrap();
    // Two reflectors that face each other, ports swapped: still no loop.
    let mut other = Reflector::new(ReflectorConfig {
        key: key(),
        plan_id: 9,
        ports: Ports { prober: 3999, reflector: 3998 },
        addresses: vec![ends.prober],
        sources: vec![ends.reflector],
        rate_per_s: 1000,
        burst_count: 100,
    });
    assert_eq!(reflect(&mut other, 0, &mut packet), Err(Refused::Direction));
}

#[test]
fn a_replayed_question_is_answered_once_and_costs_its_sender_nothing() {
    let ends = ends(FAMILIES[0]);
    let (mut near, mut far) = (prober(ends), reflector(ends));
    let captured = ask(&mut near, 0, 0, SizeClass::Small);
    assert!(reflect(&mut far, 0, &mut captured.clone()).is_ok());
    for _ in 0..10_000 {
        assert_eq!(reflect(&mut far, 1, &mut captured.clone()), Err(Refused::Replayed));
    }
    let mut forged = captured.clone();
    forged[51] ^= 0x40;
    for _ in 0..10_000 {
        assert_eq!(reflect(&mut far, 1, &mut forged.clone()), Err(Refused::Forged));
    }
    for _ in 0..99 {
        let mut packet = ask(&mut near, 1, 0, SizeClass::Small);
        assert!(reflect(&mut far, 1, &mut packet).is_ok(), "the whole burst is left");
    }
    let mut packet = ask(&mut near, 1, 0, SizeClass::Small);
    assert_eq!(reflect(&mut far, 1, &mut packet), Err(Refused::TooFast));
}

#[test]
fn a_source_gets_its_rate_and_no_more() {
    let ends = ends(FAMILIES[1]);
    let (mut near, mut far) = (prober(ends), reflector(ends));
    let mut answered_count = 0;
    // 5000 a second for 2 s at 1000 a second and 100 at once.
    for step in 0..10_000_u64 {
        let now_ns = step * MS / 5;
        let mut packet = ask(&mut near, now_ns, 0, SizeClass::Small);
        answered_count += u64::from(reflect(&mut far, now_ns, &mut packet).is_ok());
    }
    assert!((2000..=2101).contains(&answered_count), "{answered_count}");
}

#[test]
fn a_prober_whose_clock_was_set_back_is_heard_again_after_10_s() {
    let ends = ends(FAMILIES[0]);
    let mut far = reflector(ends);
    let mut near = prober(ends);
    reflect(&mut far, 0, &mut ask(&mut near, 0, 0, SizeClass::Small)).unwrap();
    let mut back = Prober::new(ProberConfig {
        key: key(),
        plan_id: 9,
        ports: Ports::default(),
        ends,
        gateways: vec![Some(NEAR_MAC)],
        mtu_bytes: 1500,
        first_sequence: 5,
    });
    let early = reflect(&mut far, 9999 * MS, &mut ask(&mut back, 0, 0, SizeClass::Small));
    assert_eq!(early, Err(Refused::Replayed));
    assert!(reflect(&mut far, 10_001 * MS, &mut ask(&mut back, 0, 0, SizeClass::Small)).is_ok());
    let again = reflect(&mut far, 10_002 * MS, &mut ask(&mut back, 0, 0, SizeClass::Small));
    assert!(again.is_ok(), "{again:?}");
}

#[test]
fn only_the_answer_to_an_open_question_by_the_same_gateway_counts_and_once() {
    let ends = ends(FAMILIES[0]);
    let (mut near, mut far) = (prober(ends), reflector(ends));
    let question = ask(&mut near, 0, 0, SizeClass::Small);
    let mut answer = question.clone();
    reflect(&mut far, 0, &mut answer).unwrap();
    assert_eq!(hear(&mut near, [2, 0, 0, 0, 1, 2], &answer), Err(Refused::OtherGateway));
    assert_eq!(hear(&mut near, NEAR_MAC, &question), Err(Refused::OtherPorts));
    assert!(hear(&mut near, NEAR_MAC, &answer).is_ok());
    assert_eq!(hear(&mut near, NEAR_MAC, &answer), Err(Refused::NotAsked), "twice");
    let mut other = prober(ends);
    assert_eq!(hear(&mut other, NEAR_MAC, &answer), Err(Refused::NotAsked), "never asked");
    let mut forged = answer.clone();
    forged[60] ^= 1;
    assert!(hear(&mut near, NEAR_MAC, &forged).is_err());
    // A gateway that comes back with another address.
    let mut late = ask(&mut near, 0, 0, SizeClass::Small);
    reflect(&mut far, 0, &mut late).unwrap();
    near.set_mac(0, Some([2, 9, 9, 9, 9, 9]));
    assert_eq!(hear(&mut near, NEAR_MAC, &late), Err(Refused::OtherGateway));
    assert!(hear(&mut near, [2, 9, 9, 9, 9, 9], &late).is_ok());
}

#[test]
fn an_answer_that_was_overtaken_by_4096_questions_comes_too_late() {
    let ends = ends(FAMILIES[0]);
    let (mut near, mut far) = (prober(ends), reflector(ends));
    let mut answer = ask(&mut near, 0, 0, SizeClass::Small);
    reflect(&mut far, 0, &mut answer).unwrap();
    (0..4096).for_each(|_| drop(ask(&mut near, 0, 0, SizeClass::Small)));
    assert_eq!(hear(&mut near, NEAR_MAC, &answer), Err(Refused::NotAsked));
}

/// An ICMP error as a Linux router sends it: 8 bytes, then the packet it could not forward.
fn icmp(kind: u8, code: u8, rest: u32, packet: &[u8], quoted: usize) -> Vec<u8> {
    let mut message = vec![kind, code, 0, 0];
    message.extend(rest.to_be_bytes());
    message.extend(&packet[..packet.len().min(quoted)]);
    message
}

#[test]
fn icmp_errors_are_believed_when_they_quote_an_open_question_and_once() {
    for (family, unreachable, too_big) in
        [(FAMILIES[0], (3, 0), (3, 4)), (FAMILIES[1], (1, 3), (2, 0))]
    {
        let mut near = prober(ends(family));
        let full = ask(&mut near, 0, 2, SizeClass::Full);
        let mut forwarded = full.clone();
        // The router has counted down the TTL.
        forwarded[if near.packet_bytes(SizeClass::Small) > 90 { 7 } else { 8 }] -= 1;
        let message = icmp(too_big.0, too_big.1, 1400, &forwarded, 548);
        let heard = near.handle_icmp(&message).unwrap();
        assert_eq!((heard.gateway, heard.round, heard.size), (2, 5, SizeClass::Full));
        assert_eq!(heard.kind, UnreachableKind::TooBig(1400));
        assert_eq!(near.handle_icmp(&message), Err(Refused::NotAsked), "once");
        let small = ask(&mut near, 0, 0, SizeClass::Small);
        let message = icmp(unreachable.0, unreachable.1, 0, &small, 548);
        let heard = near.handle_icmp(&message).unwrap();
        assert_eq!((heard.gateway, heard.kind), (0, UnreachableKind::Code(unreachable.1)));
    }
}

#[test]
fn icmp_errors_that_prove_nothing_are_refused() {
    let mut near = prober(ends(FAMILIES[0]));
    let small = ask(&mut near, 0, 0, SizeClass::Small);
    assert_eq!(near.handle_icmp(&icmp(3, 1, 0, &small, 28)), Err(Refused::Quote), "8 bytes quoted");
    assert_eq!(
        near.handle_icmp(&icmp(11, 0, 0, &small, 548)),
        Err(Refused::Quote),
        "no such error"
    );
    assert_eq!(near.handle_icmp(&[3, 1]), Err(Refused::Quote));
    assert_eq!(
        near.handle_icmp(&icmp(3, 3, 0, &small, 548)),
        Err(Refused::Quote),
        "nobody reflects on the far host, which is no gateway's fault"
    );
    let mut forged = small.clone();
    forged[51] ^= 1;
    assert_eq!(near.handle_icmp(&icmp(3, 1, 0, &forged, 548)), Err(Refused::Forged));
    let mut stranger = small.clone();
    stranger[19] = 1;
    assert_eq!(near.handle_icmp(&icmp(3, 1, 0, &stranger, 548)), Err(Refused::UnknownSource));
    assert!(near.handle_icmp(&icmp(3, 1, 0, &small, 548)).is_ok(), "the true one still counts");
}

#[test]
fn payloads_survive_the_way_through_bytes_and_every_bit_is_under_the_tag() {
    type Material = (bool, u16, (u64, u64, u64), (bool, u8));
    bolero::check!().with_type::<Material>().for_each(
        |&(is_answer, gateway, numbers, (full, more))| {
            let payload = Payload {
                kind: if is_answer { Kind::Answer } else { Kind::Question },
                gateway,
                plan_id: numbers.0,
                sequence: numbers.1,
                sent_ns: numbers.2,
                size: if full { SizeClass::Full } else { SizeClass::Small },
            };
            let ends = ends(FAMILIES[usize::from(full)]);
            let mut bytes = vec![0xaa; PAYLOAD_BYTES + usize::from(more)];
            payload.write(&key(), &ends, &mut bytes);
            assert_eq!(Payload::parse(&bytes, bytes.len()), Ok(payload));
            assert!(is_genuine(&bytes, &key(), &ends));
            let bit = usize::from(more) * 7 % (PAYLOAD_BYTES * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_genuine(&bytes, &key(), &ends));
            assert!(!is_genuine(&bytes, &key(), &Ends { prober: ends.reflector, ..ends }));
        },
    );
}

#[test]
fn any_packet_is_answered_with_no_more_bytes_or_refused() {
    let ends = ends(FAMILIES[0]);
    let question = ask(&mut prober(ends), 0, 0, SizeClass::Full);
    type Material = (Vec<(u16, u8)>, u16, Vec<u8>);
    bolero::check!().with_type::<Material>().for_each(|(changes, length, noise)| {
        let mut packet = question.clone();
        for (at, value) in changes {
            let at = usize::from(*at) % packet.len();
            packet[at] = *value;
        }
        packet.truncate(usize::from(*length).max(20));
        let came = packet.len();
        if let Ok(length) = reflect(&mut reflector(ends), 0, &mut packet) {
            assert!(length <= came);
        }
        let mut near = prober(ends);
        near.handle_answer(0, NEAR_MAC, &packet, packet.len()).ok();
        near.handle_icmp(&packet).ok();
        near.handle_icmp(&icmp(3, 1, 0, &packet, 548)).ok();
        let mut noise = noise.clone();
        near.handle_answer(0, NEAR_MAC, &noise, noise.len()).ok();
        near.handle_icmp(&noise).ok();
        assert!(reflect(&mut reflector(ends), 0, &mut noise).is_err());
    });
}
