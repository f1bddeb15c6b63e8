//! BFD: the packet, the state machine between two ends over a simulated link, and demultiplexing.

use std::collections::VecDeque;
use std::net::IpAddr;

use liveness::bfd::{
    AddSessionError, Arrival, ControlPacket, Diagnostic, Hops, MalformedControlPacketError as Bad,
    Peer, RefusedPacketError, Role, Session, SessionConfig, SessionConfigError, Sessions, State,
};

const MS: u64 = 1_000_000;

fn config(interval_ms: u32, detect_multiplier: u8) -> SessionConfig {
    let interval_us = interval_ms * 1000;
    SessionConfig {
        role: Role::Active,
        desired_min_tx_us: interval_us,
        required_min_rx_us: interval_us,
        detect_multiplier,
    }
}

fn packet() -> ControlPacket {
    ControlPacket {
        diagnostic: Diagnostic::None,
        state: State::Down,
        is_poll: false,
        is_final: false,
        is_control_plane_independent: false,
        is_demand: false,
        detect_multiplier: 3,
        my_discriminator: 77,
        your_discriminator: 0,
        desired_min_tx_us: 50_000,
        required_min_rx_us: 50_000,
        required_min_echo_rx_us: 0,
    }
}

#[test]
fn every_packet_survives_the_way_through_bytes() {
    type Material = ((u8, u8, u8), (u32, u32, u32, u32, u32));
    bolero::check!().with_type::<Material>().for_each(|&((first, second, third), numbers)| {
        let mut bytes = [0; 24];
        bytes[0] = 0x20 | (first & 0x1f);
        // Neither authentication nor multipoint.
        bytes[1] = second & 0xfa;
        bytes[2] = third;
        bytes[3] = 24;
        let numbers = [numbers.0, numbers.1, numbers.2, numbers.3, numbers.4];
        for (field, number) in bytes[4..].chunks_exact_mut(4).zip(numbers) {
            field.copy_from_slice(&number.to_be_bytes());
        }
        match ControlPacket::parse(&bytes) {
            Ok(packet) => assert_eq!(packet.encode(), bytes),
            Err(_) => {
                let both = second & 0x30 == 0x30;
                let anonymous = numbers[1] == 0 && second >> 6 > 1;
                assert!(third == 0 || numbers[0] == 0 || both || anonymous, "{bytes:?}");
            }
        }
    });
}

#[test]
fn any_bytes_are_read_or_refused() {
    let mut sessions = Sessions::new(1);
    let source: IpAddr = "192.0.2.1".parse().unwrap();
    let peer = Peer { address: source, interface_index: None, hops: Hops::One };
    sessions.add(peer, config(50, 3)).unwrap();
    let arrival = Arrival { source, interface_index: 1, ttl: 255, is_multihop: false };
    bolero::check!().for_each(|bytes: &[u8]| {
        ControlPacket::parse(bytes).ok();
        let mut sessions = sessions.clone();
        sessions.handle(5, &arrival, bytes).ok();
        for (_, _, session) in sessions.iter_mut() {
            while session.poll(6).is_some() {}
        }
    });
}

#[test]
fn malformed_packets_are_refused_with_their_reason() {
    let good = packet().encode();
    let changed = |at: usize, value: u8| {
        let mut bytes = good;
        bytes[at] = value;
        ControlPacket::parse(&bytes).unwrap_err()
    };
    assert_eq!(ControlPacket::parse(&good[..23]).unwrap_err(), Bad::TooShort(23));
    assert_eq!(ControlPacket::parse(&[]).unwrap_err(), Bad::TooShort(0));
    assert_eq!(changed(0, 0), Bad::Version(0));
    assert_eq!(changed(0, 2 << 5), Bad::Version(2));
    assert_eq!(changed(2, 0), Bad::ZeroMultiplier);
    assert_eq!(changed(3, 23), Bad::Length { stated: 23, came: 24 });
    assert_eq!(changed(3, 25), Bad::Length { stated: 25, came: 24 });
    assert_eq!(changed(1, 0x44), Bad::Length { stated: 24, came: 24 }, "authentication needs 26");
    assert_eq!(changed(1, 0x41), Bad::Multipoint);
    assert_eq!(changed(1, 0x70), Bad::PollAndFinal);
    assert_eq!(changed(1, 0x80), Bad::NoSession(State::Init));
    assert_eq!(changed(1, 0xc0), Bad::NoSession(State::Up));
    assert_eq!(changed(7, 0), Bad::ZeroDiscriminator);
    let mut authenticated = good.to_vec();
    authenticated.extend([0; 2]);
    authenticated[1] = 0x44;
    authenticated[3] = 26;
    assert_eq!(ControlPacket::parse(&authenticated).unwrap_err(), Bad::Authenticated);
    let mut longer = good.to_vec();
    longer.extend([9; 300]);
    assert_eq!(ControlPacket::parse(&longer), Ok(packet()), "what follows the length is ignored");
}

/// Two sessions and the packets between them.
struct Pair {
    ends: [Session; 2],
    /// (arrives, for which end, packet)
    flying: VecDeque<(u64, usize, ControlPacket)>,
    sent: [Vec<(u64, ControlPacket)>; 2],
    delay_ns: u64,
    is_cut: [bool; 2],
    now_ns: u64,
}

impl Pair {
    fn new(near: SessionConfig, far: SessionConfig) -> Self {
        let ends = [Session::new(near, 1001, 1).unwrap(), Session::new(far, 2002, 2).unwrap()];
        Self {
            ends,
            flying: VecDeque::new(),
            sent: [Vec::new(), Vec::new()],
            delay_ns: MS,
            is_cut: [false; 2],
            now_ns: 0,
        }
    }

    /// Runs until `end_ns`, waking up only when a packet arrives or an end says so.
    fn run(&mut self, end_ns: u64) {
        loop {
            let packets = self.flying.front().map(|(at_ns, ..)| *at_ns);
            let wakes = self.ends.iter().filter_map(Session::wakes_at);
            let next_ns = packets.into_iter().chain(wakes).min().unwrap_or(u64::MAX);
            if next_ns > end_ns {
                self.now_ns = end_ns;
                return;
            }
            self.now_ns = self.now_ns.max(next_ns);
            while let Some((_, to, packet)) =
                self.flying.pop_front_if(|(at_ns, ..)| *at_ns <= self.now_ns)
            {
                let bytes = packet.encode();
                self.ends[to].handle_packet(self.now_ns, &ControlPacket::parse(&bytes).unwrap());
            }
            for end in 0..2 {
                let mut count = 0;
                while let Some(packet) = self.ends[end].poll(self.now_ns) {
                    count += 1;
                    assert!(count < 4, "one moment, {count} packets");
                    self.sent[end].push((self.now_ns, packet));
                    if !self.is_cut[end] {
                        self.flying.push_back((self.now_ns + self.delay_ns, 1 - end, packet));
                    }
                }
            }
        }
    }

    fn states(&self) -> [State; 2] {
        [self.ends[0].state(), self.ends[1].state()]
    }

    fn gaps_ms(&self, end: usize, from_ns: u64) -> Vec<f64> {
        let times: Vec<u64> = self.sent[end]
            .iter()
            .filter(|(at_ns, packet)| *at_ns >= from_ns && !packet.is_final)
            .map(|(at_ns, _)| *at_ns)
            .collect();
        times.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 1e6).collect()
    }
}

#[test]
fn two_ends_come_up_and_stay_up() {
    let mut pair = Pair::new(config(50, 3), config(50, 3));
    pair.run(3000 * MS);
    assert_eq!(pair.states(), [State::Up, State::Up]);
    let first_up = pair.ends[0].clone();
    pair.run(60_000 * MS);
    assert_eq!(pair.states(), [State::Up, State::Up]);
    let mut near = first_up;
    let changes: Vec<_> = std::iter::from_fn(|| near.poll_change()).collect();
    assert_eq!(changes.last().unwrap().to, State::Up);
    assert!(changes[0].at_ns < 10 * MS, "both send at once: {changes:?}");
    let mut end = pair.ends[0].clone();
    assert_eq!(std::iter::from_fn(|| end.poll_change()).count(), changes.len(), "no flapping");
    assert_eq!(pair.ends[0].detection_ns(), Some(150 * MS));
}

/// The first bug of the prototype: it kept the second of the time before, and a peer that had already
/// gone over to a detection time of 150 ms took the session down again and again.
#[test]
fn an_end_that_comes_up_sends_at_once() {
    let mut session = Session::new(config(50, 3), 5, 1).unwrap();
    assert!(session.poll(0).is_some());
    assert!(session.poll(0).is_none());
    let init = ControlPacket { state: State::Init, your_discriminator: 5, ..packet() };
    session.handle_packet(MS, &init);
    assert_eq!(session.state(), State::Up);
    assert_eq!(session.wakes_at(), Some(0));
    let sent = session.poll(MS).expect("the peer hears of Up now, not within a second");
    assert_eq!((sent.state, sent.is_poll, sent.desired_min_tx_us), (State::Up, true, 50_000));
    let next_ns = session.wakes_at().unwrap() - MS;
    assert!((37 * MS..=50 * MS).contains(&next_ns), "{next_ns}");
}

/// The second bug of the prototype: the timer kept running by the longer interval.
#[test]
fn a_peer_that_lowers_its_interval_is_served_at_once() {
    let mut session = Session::new(config(50, 3), 5, 1).unwrap();
    let slow = |state| ControlPacket {
        state,
        your_discriminator: 5,
        required_min_rx_us: 1_000_000,
        desired_min_tx_us: 1_000_000,
        ..packet()
    };
    session.handle_packet(0, &slow(State::Init));
    session.poll(0).unwrap();
    session.handle_packet(MS, &ControlPacket { is_final: true, ..slow(State::Up) });
    while session.poll(MS).is_some() {}
    let late_ns = session.wakes_at().unwrap();
    assert!(late_ns > 700 * MS, "the peer wants one packet a second: {late_ns}");
    let fast = ControlPacket { required_min_rx_us: 50_000, ..slow(State::Up) };
    session.handle_packet(20 * MS, &fast);
    let wakes_ns = session.wakes_at().unwrap();
    assert!(wakes_ns <= 51 * MS, "{wakes_ns}");
    session.handle_packet(500 * MS, &ControlPacket { required_min_rx_us: 40_000, ..fast });
    assert!(session.poll(500 * MS).is_some(), "overdue by the shorter interval");
}

#[test]
fn intervals_keep_to_the_slower_end_with_jitter_below_a_quarter() {
    for (multiplier, most) in [(3, 1.0), (1, 0.9)] {
        let mut pair = Pair::new(config(40, multiplier), config(100, multiplier));
        pair.run(40_000 * MS);
        assert_eq!(pair.states(), [State::Up, State::Up]);
        for end in 0..2 {
            let gaps = pair.gaps_ms(end, 5000 * MS);
            assert!(gaps.len() > 300);
            let (low, high) = gaps
                .iter()
                .fold((f64::MAX, 0_f64), |(low, high), gap| (low.min(*gap), high.max(*gap)));
            assert!(low >= 74.9 && high <= 100.0 * most + 0.1, "{multiplier}: {low} {high}");
            assert!(high - low > 10.0, "jitter: {low} {high}");
        }
    }
}

#[test]
fn sessions_that_are_not_up_send_at_most_once_a_second() {
    let mut pair = Pair::new(config(50, 3), config(50, 3));
    pair.is_cut = [true; 2];
    pair.run(30_000 * MS);
    let gaps = pair.gaps_ms(0, 0);
    assert!(gaps.len() >= 29 && gaps.iter().all(|gap| (749.0..=1000.1).contains(gap)), "{gaps:?}");
    let sent = pair.sent[0].last().unwrap().1;
    assert_eq!((sent.desired_min_tx_us, sent.required_min_rx_us), (1_000_000, 50_000));
}

#[test]
fn silence_takes_a_session_down_within_the_detection_time() {
    let mut pair = Pair::new(config(50, 3), config(50, 3));
    pair.run(5000 * MS);
    pair.is_cut = [false, true];
    let cut_ns = pair.now_ns;
    pair.run(cut_ns + 155 * MS);
    assert_eq!(pair.ends[0].state(), State::Down);
    let mut near = pair.ends[0].clone();
    let last = std::iter::from_fn(|| near.poll_change()).last().unwrap();
    assert_eq!(last.diagnostic, Diagnostic::DetectionTimeExpired);
    // The far end still hears, and is told.
    assert_eq!(pair.ends[1].state(), State::Down);
    let mut far = pair.ends[1].clone();
    let last = std::iter::from_fn(|| far.poll_change()).last().unwrap();
    assert_eq!(last.diagnostic, Diagnostic::NeighborSignaledDown);
    assert_eq!(last.remote_diagnostic, Diagnostic::DetectionTimeExpired);
    pair.is_cut = [false; 2];
    pair.run(pair.now_ns + 3000 * MS);
    assert_eq!(pair.states(), [State::Up, State::Up], "up again");
}

#[test]
fn a_peer_that_starts_again_with_another_discriminator_is_taken_back() {
    let mut pair = Pair::new(config(50, 3), config(50, 3));
    pair.run(5000 * MS);
    pair.ends[1] = Session::new(config(50, 3), 9009, 7).unwrap();
    pair.run(pair.now_ns + 4000 * MS);
    assert_eq!(pair.states(), [State::Up, State::Up]);
    assert_eq!(pair.sent[0].last().unwrap().1.your_discriminator, 9009);
}

#[test]
fn administrative_down_is_told_and_undone() {
    let mut pair = Pair::new(config(50, 3), config(50, 3));
    pair.run(5000 * MS);
    pair.ends[0].take_down(pair.now_ns);
    pair.run(pair.now_ns + 5 * MS);
    assert_eq!(pair.states(), [State::AdminDown, State::Down]);
    assert_eq!(pair.ends[1].remote_state(), State::AdminDown);
    pair.run(pair.now_ns + 5000 * MS);
    assert_eq!(pair.states(), [State::AdminDown, State::Down]);
    let sent = pair.sent[0].last().unwrap().1;
    assert_eq!(sent.diagnostic, Diagnostic::AdministrativelyDown);
    pair.ends[0].bring_up(pair.now_ns);
    pair.run(pair.now_ns + 3000 * MS);
    assert_eq!(pair.states(), [State::Up, State::Up]);
}

#[test]
fn changed_intervals_wait_for_the_peer_where_they_must() {
    let mut pair = Pair::new(config(50, 3), config(50, 3));
    pair.run(5000 * MS);
    pair.is_cut = [false, true];
    let now_ns = pair.now_ns;
    pair.ends[0].set_intervals(now_ns, 200_000, 20_000).unwrap();
    pair.run(now_ns + 20 * MS);
    assert_eq!(pair.ends[0].interval_ns(), Some(50 * MS), "longer: not before the peer knows");
    assert_eq!(pair.ends[0].detection_ns(), Some(150 * MS), "shorter: not before the peer knows");
    assert!(pair.sent[0].last().unwrap().1.is_poll);
    pair.is_cut = [false; 2];
    pair.run(now_ns + 300 * MS);
    assert_eq!(pair.ends[0].interval_ns(), Some(200 * MS));
    assert_eq!(pair.ends[0].detection_ns(), Some(150 * MS), "the peer wants no less than 50 ms");
    assert!(!pair.sent[0].last().unwrap().1.is_poll);
    assert_eq!(pair.ends[1].detection_ns(), Some(600 * MS));
    pair.run(now_ns + 20_000 * MS);
    assert_eq!(pair.states(), [State::Up, State::Up]);
}

#[test]
fn a_poll_is_answered_at_once_whatever_is_due() {
    let mut session = Session::new(config(50, 3), 5, 1).unwrap();
    session
        .handle_packet(0, &ControlPacket { state: State::Init, your_discriminator: 5, ..packet() });
    while session.poll(0).is_some() {}
    let up = ControlPacket { state: State::Up, your_discriminator: 5, ..packet() };
    session.handle_packet(MS, &ControlPacket { is_poll: true, ..up });
    let answer = session.poll(MS).unwrap();
    assert!(answer.is_final && !answer.is_poll);
    assert!(session.poll(MS).is_none(), "one answer");
}

#[test]
fn a_peer_that_wants_no_periodic_packets_gets_none() {
    let mut session = Session::new(config(50, 3), 5, 1).unwrap();
    session.handle_packet(0, &ControlPacket { required_min_rx_us: 0, ..packet() });
    assert_eq!(session.interval_ns(), None);
    assert!(session.poll(10_000 * MS).is_none());
    let mut passive =
        Session::new(SessionConfig { role: Role::Passive, ..config(50, 3) }, 6, 1).unwrap();
    assert!(passive.poll(10_000 * MS).is_none(), "passive: silent until spoken to");
    passive.handle_packet(10_000 * MS, &packet());
    assert!(passive.poll(10_000 * MS).is_some());
}

#[test]
fn demand_mode_of_the_peer_is_heeded() {
    let mut pair = Pair::new(config(50, 3), config(50, 3));
    pair.run(5000 * MS);
    let up = pair.sent[1].last().unwrap().1;
    let demand = ControlPacket { is_demand: true, is_poll: false, is_final: false, ..up };
    pair.ends[0].handle_packet(pair.now_ns, &demand);
    assert_eq!(pair.ends[0].interval_ns(), None);
}

#[test]
fn a_late_wake_up_finds_the_session_down_and_a_clock_that_goes_back_does_not() {
    let mut pair = Pair::new(config(50, 3), config(50, 3));
    pair.run(5000 * MS);
    let mut late = pair.ends[0].clone();
    while late.poll(9000 * MS).is_some() {}
    assert_eq!(late.state(), State::Down);
    let mut back = pair.ends[0].clone();
    while back.poll(0).is_some() {}
    assert_eq!(back.state(), State::Up);
    let up = ControlPacket { is_poll: false, is_final: false, ..pair.sent[1].last().unwrap().1 };
    for at_ms in (0..1000).step_by(50) {
        back.handle_packet(at_ms * MS, &up);
        while back.poll(at_ms * MS).is_some() {}
    }
    assert_eq!(back.state(), State::Up);
    while back.poll(1500 * MS).is_some() {}
    assert_eq!(back.state(), State::Down, "the new time counts as the old one did");
}

#[test]
fn random_loss_and_delay_never_wedge_two_ends() {
    for seed in 0..40 {
        let mut random = stats::Random::from_seed(seed);
        let mut pair = Pair::new(config(50, 3), config(30, 5));
        for _ in 0..60 {
            pair.delay_ns = random.below(40) * MS;
            pair.flying.clear();
            pair.is_cut = [random.chance(0.4), random.chance(0.4)];
            pair.run(pair.now_ns + random.below(2000) * MS);
        }
        pair.is_cut = [false; 2];
        pair.delay_ns = MS;
        pair.flying.clear();
        pair.run(pair.now_ns + 5000 * MS);
        assert_eq!(pair.states(), [State::Up, State::Up], "seed {seed}");
    }
}

fn arrival(source: &str, ttl: u8, is_multihop: bool) -> Arrival {
    Arrival { source: source.parse().unwrap(), interface_index: 3, ttl, is_multihop }
}

fn peer(address: &str, hops: Hops) -> Peer {
    Peer { address: address.parse().unwrap(), interface_index: None, hops }
}

#[test]
fn packets_find_their_session_by_discriminator_and_before_that_by_source() {
    let mut sessions = Sessions::new(42);
    let one = sessions.add(peer("192.0.2.1", Hops::One), config(50, 3)).unwrap();
    let two = sessions.add(peer("192.0.2.2", Hops::One), config(50, 3)).unwrap();
    let far = Hops::Several { ttl_min: 250 };
    let three = sessions.add(peer("192.0.2.1", far), config(50, 3)).unwrap();
    let hello = packet().encode();
    assert_eq!(sessions.handle(0, &arrival("192.0.2.2", 255, false), &hello), Ok(two));
    assert_eq!(sessions.handle(0, &arrival("192.0.2.1", 255, false), &hello), Ok(one));
    assert_eq!(sessions.handle(0, &arrival("192.0.2.1", 251, true), &hello), Ok(three));
    let named = |id: usize, sessions: &Sessions| {
        let your_discriminator = sessions.get(id).unwrap().1.discriminator();
        ControlPacket { your_discriminator, state: State::Up, ..packet() }.encode()
    };
    let to_two = named(two, &sessions);
    assert_eq!(sessions.handle(1, &arrival("192.0.2.2", 255, false), &to_two), Ok(two));
    assert_eq!(sessions.get(two).unwrap().1.state(), State::Up);
    let wrong = sessions.handle(1, &arrival("192.0.2.1", 255, false), &to_two).unwrap_err();
    assert_eq!(wrong, RefusedPacketError::WrongSource("192.0.2.1".parse().unwrap()));
    let stranger = sessions.handle(1, &arrival("192.0.2.9", 255, false), &hello).unwrap_err();
    assert_eq!(stranger, RefusedPacketError::UnknownSource("192.0.2.9".parse().unwrap()));
    let nobody = ControlPacket { your_discriminator: 1, ..packet() }.encode();
    let nobody = sessions.handle(1, &arrival("192.0.2.1", 255, false), &nobody).unwrap_err();
    assert_eq!(nobody, RefusedPacketError::UnknownDiscriminator(1));
    let counters = sessions.counters();
    assert_eq!((counters.unknown_count, counters.wrong_source_count), (2, 1));
}

#[test]
fn packets_from_too_far_away_are_refused() {
    let mut sessions = Sessions::new(42);
    sessions.add(peer("192.0.2.1", Hops::One), config(50, 3)).unwrap();
    let far = Hops::Several { ttl_min: 253 };
    sessions.add(peer("2001:db8::1", far), config(50, 3)).unwrap();
    let hello = packet().encode();
    let routed = sessions.handle(0, &arrival("192.0.2.1", 254, false), &hello).unwrap_err();
    assert_eq!(routed, RefusedPacketError::Ttl { came: 254, least: 255 });
    assert!(sessions.handle(0, &arrival("2001:db8::1", 253, true), &hello).is_ok());
    let routed = sessions.handle(0, &arrival("2001:db8::1", 252, true), &hello).unwrap_err();
    assert_eq!(routed, RefusedPacketError::Ttl { came: 252, least: 253 });
    assert_eq!(sessions.counters().ttl_count, 2);
    assert_eq!((Hops::One.port(), far.port()), (3784, 4784));
}

#[test]
fn a_session_that_is_administratively_down_hears_nothing() {
    let mut sessions = Sessions::new(42);
    let id = sessions.add(peer("192.0.2.1", Hops::One), config(50, 3)).unwrap();
    sessions.iter_mut().next().unwrap().2.take_down(0);
    let refused = sessions.handle(1, &arrival("192.0.2.1", 255, false), &packet().encode());
    assert_eq!(refused, Err(RefusedPacketError::AdminDown));
    assert_eq!(sessions.get(id).unwrap().1.state(), State::AdminDown);
}

#[test]
fn sessions_are_unique_and_their_configuration_is_checked() {
    let mut sessions = Sessions::new(42);
    let here = Peer { interface_index: Some(3), ..peer("192.0.2.1", Hops::One) };
    let there = Peer { interface_index: Some(4), ..here };
    let anywhere = Peer { interface_index: None, ..here };
    sessions.add(here, config(50, 3)).unwrap();
    sessions.add(there, config(50, 3)).unwrap();
    for twice in [here, anywhere] {
        let taken = AddSessionError::Taken(here.address);
        assert_eq!(sessions.add(twice, config(50, 3)), Err(taken));
    }
    let numbers: Vec<u32> = sessions.iter_mut().map(|(_, _, one)| one.discriminator()).collect();
    assert!(numbers[0] != numbers[1] && !numbers.contains(&0));
    let other = peer("192.0.2.7", Hops::One);
    let zero = AddSessionError::Config(SessionConfigError::ZeroInterval);
    assert_eq!(sessions.add(other, config(0, 3)), Err(zero));
    let zero = AddSessionError::Config(SessionConfigError::ZeroMultiplier);
    assert_eq!(sessions.add(other, config(50, 0)), Err(zero));
}
