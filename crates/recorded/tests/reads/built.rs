//! Built captures: each format and link gives the same document; the figures are those planted.

use recorded::RecordedError;
use results::{Limit, Results, StreamEnd};

use crate::synthetic::{Format, MSS, PLAIN, Packet, WINDOW_FLOW, WindowFlow, capture};

fn read(file: &[u8]) -> Results {
    recorded::read(file).expect("a capture").expect("with a flow")
}

pub(crate) fn stream(results: &Results) -> &StreamEnd {
    &results.points[0].measured().expect("measured").near().streams[0]
}

pub(crate) fn told<'a>(results: &'a Results, code: &str) -> &'a str {
    let code = format!("recorded-{code}");
    let finding = results.findings.iter().find(|finding| finding.code == code);
    finding.map_or("", |finding| &finding.text)
}

#[test]
fn every_format_and_link_of_the_same_packets_gives_the_same_document() {
    let packets = WINDOW_FLOW.packets();
    let plain = read(&capture(PLAIN, &packets));
    for is_ng in [false, true] {
        for is_big_endian in [false, true] {
            for is_ns in [false, true] {
                for (link_type, tags) in [(1, 0), (1, 2), (113, 0), (276, 0), (101, 0), (228, 0)] {
                    let format = Format { is_ng, is_big_endian, is_ns, link_type, tags, ..PLAIN };
                    let same = read(&capture(format, &packets));
                    assert!(same.points == plain.points, "{is_ng} {is_big_endian} {link_type}");
                    assert_eq!(same.findings, plain.findings);
                }
            }
        }
    }
    let ipv6 = read(&capture(Format { is_ipv6: true, snap_bytes: 128, ..PLAIN }, &packets));
    assert_eq!(ipv6.path.address.as_deref(), Some("fd00::2"));
    assert_eq!(ipv6.findings, plain.findings);
}

#[test]
fn the_end_a_capture_was_taken_at_is_told_by_the_halves_of_the_round_trip() {
    let places = [
        (20_000_000, 50_000, "at the sender"),
        (50_000, 20_000_000, "at the receiver"),
        (8_000_000, 12_000_000, "between the sender"),
        (50_000, 60_000, "at an unknown place"),
    ];
    for (to_receiver_ns, to_sender_ns, place) in places {
        let flow = WindowFlow { to_receiver_ns, to_sender_ns, ..WINDOW_FLOW };
        let packets = flow.packets();
        // With the handshake and (by timestamps) without.
        for packets in [&packets[..], &packets[3..]] {
            let results = read(&capture(PLAIN, packets));
            let taken_at = told(&results, "taken-at");
            assert!(taken_at.contains(place), "{place}: {taken_at}");
        }
    }
}

#[test]
fn round_trip_window_and_flight_are_the_planted_ones_from_any_place() {
    for (to_receiver_ns, to_sender_ns) in
        [(20_000_000, 50_000), (50_000, 20_000_000), (8_000_000, 12_000_000)]
    {
        let flow = WindowFlow { to_receiver_ns, to_sender_ns, ..WINDOW_FLOW };
        let results = read(&capture(PLAIN, &flow.packets()));
        let tcp = &stream(&results).tcp.as_ref().expect("sampled").last;
        assert!((tcp.rtt_s / flow.rtt_s() - 1.0).abs() < 0.06, "{} {}", tcp.rtt_s, flow.rtt_s());
        let window = f64::from(flow.window * u32::from(MSS));
        let told = tcp.peer_window_bytes.expect("its scale is known") as f64;
        assert!((told / window - 1.0).abs() < 0.01, "{told} {window}");
        let in_flight = tcp.in_flight_bytes as f64;
        assert!((in_flight / window - 1.0).abs() < 0.1, "{in_flight} {window}");
        let verdict = explain::explain(&results);
        assert_eq!(verdict.limit, Limit::ReceiveWindow, "{verdict:#?}");
    }
}

#[test]
fn without_the_syn_packets_the_window_is_absent_with_its_reason() {
    let packets = WINDOW_FLOW.packets();
    let results = read(&capture(PLAIN, &packets[3..]));
    assert_eq!(told(&results, "in-flight"), "");
    let tcp = stream(&results).tcp.as_ref().expect("sampled");
    assert_eq!((tcp.last.peer_window_bytes, tcp.window_scale_shifts), (None, None));
    assert!(told(&results, "window").contains("SYN packets"), "{:?}", results.findings);
    assert!(results.absent.iter().any(|absent| absent.why.contains("SYN")));
    assert_ne!(explain::explain(&results).limit, Limit::ReceiveWindow);
}

#[test]
fn a_syn_cut_off_before_its_scale_leaves_the_window_absent() {
    let format = Format { is_ipv6: true, snap_bytes: 96, ..PLAIN };
    let results = read(&capture(format, &WINDOW_FLOW.packets()));
    let tcp = stream(&results).tcp.as_ref().expect("sampled");
    assert_eq!((tcp.last.peer_window_bytes, tcp.segments_out_count), (None, None));
    assert!(told(&results, "window").contains("not whole"), "{:?}", results.findings);
}

#[test]
fn a_window_that_is_not_scaled_is_said_to_be_so() {
    let flow = WindowFlow { shift: None, ..WINDOW_FLOW };
    let results = read(&capture(PLAIN, &flow.packets()));
    assert!(told(&results, "window").contains("not scaled"), "{:?}", results.findings);
    let verdict = explain::explain(&results);
    assert_eq!(verdict.limit, Limit::ReceiveWindow);
    let says = |line: &results::Evidence| line.text.contains("no window scale was agreed on");
    assert!(verdict.evidence.iter().any(says), "{verdict:#?}");
}

#[test]
fn a_sender_that_writes_now_and_then_is_named_and_no_queue_is_seen() {
    for (to_receiver_ns, to_sender_ns) in [(20_000_000, 50_000), (50_000, 20_000_000)] {
        let flow = WindowFlow { to_receiver_ns, to_sender_ns, rounds: 30, ..WINDOW_FLOW };
        let packets = flow.writing_every(80_000_000);
        let results = read(&capture(PLAIN, &packets));
        let verdict = explain::explain(&results);
        assert_eq!(verdict.limit, Limit::SendingApplication, "{verdict:#?}");
        let idle = told(&results, "idle");
        assert!(idle.contains("nothing outstanding 6") || idle.contains("outstanding 7"), "{idle}");
        let rtt_s = stream(&results).tcp.as_ref().expect("sampled").last.rtt_s;
        assert!((rtt_s / flow.rtt_s() - 1.0).abs() < 0.1, "{rtt_s}");
    }
}

#[test]
fn losses_are_counted_and_placed_before_or_beyond_the_capture() {
    let flow = WINDOW_FLOW;
    let packets = flow.packets();
    let is_data = |packet: &&Packet| packet.payload_bytes > 0;
    let lost: Vec<Packet> =
        packets.iter().filter(is_data).skip(200).step_by(100).copied().collect();
    let rtt_ns = flow.to_receiver_ns + flow.to_sender_ns;
    let again = |packet: &Packet| Packet { at_ns: packet.at_ns + rtt_ns * 3 / 2, ..*packet };
    // Seen beyond the loss, only the second copy passes; seen before it, both do.
    for (passes_twice, place) in [(false, "before the capture"), (true, "beyond it")] {
        let kept = packets.iter().filter(|packet| {
            passes_twice
                || !lost.iter().any(|lost| {
                    lost.payload_bytes > 0 && lost.seq == packet.seq && packet.payload_bytes > 0
                })
        });
        let mut seen: Vec<Packet> = kept.copied().chain(lost.iter().map(again)).collect();
        seen.sort_by_key(|packet| packet.at_ns);
        let results = read(&capture(PLAIN, &seen));
        let outcome = results.points[0].measured().expect("measured");
        assert_eq!(outcome.directions[0].retransmits_count, Some(lost.len() as u64));
        if !passes_twice {
            let count = lost.len();
            let text = told(&results, "losses");
            assert!(text.contains(&format!(" {count} retransmissions")), "{place}: {text}");
        }
    }
}

#[test]
fn of_a_long_capture_only_the_beginning_is_looked_at() {
    let rounds = |rounds| WindowFlow { rounds, window: 44, ..WINDOW_FLOW }.packets();
    let packets = rounds(200);
    let each_round = (rounds(201).len() - packets.len()) as u64;
    let beyond = u32::try_from(recorded::SEGMENTS_MAX as u64 / each_round).expect("few") + 10;
    let results = read(&capture(PLAIN, &rounds(beyond)));
    let payload_bytes = |packets: &[Packet]| -> u64 {
        packets.iter().map(|packet| u64::from(packet.payload_bytes)).sum()
    };
    let a_round = payload_bytes(&rounds(201)) - payload_bytes(&packets);
    let sent = results.points[0].measured().expect("measured").directions[0].sent_bytes;
    let looked_at = recorded::SEGMENTS_MAX as u64 / each_round * a_round;
    assert!(sent.abs_diff(looked_at) <= 2 * a_round, "{sent}, not {looked_at}");
    assert!(told(&results, "bounded").contains("only the first"), "{:?}", results.findings);
}

#[test]
fn a_capture_without_payload_or_of_another_link_says_why() {
    let packets = WINDOW_FLOW.packets();
    let none = recorded::read(&capture(PLAIN, &packets[..3])).expect("a capture");
    assert_eq!(none, Err(RecordedError::NoData { packets_count: 3, tcp_count: 3 }));
    let wifi = recorded::read(&capture(Format { link_type: 105, ..PLAIN }, &packets));
    assert_eq!(wifi.expect("a capture"), Err(RecordedError::LinkType { link_type: 105 }));
    let cut = recorded::read(&capture(PLAIN, &packets)[..20]).expect("a capture");
    assert!(matches!(cut, Err(RecordedError::Header(_))), "{cut:?}");
}
