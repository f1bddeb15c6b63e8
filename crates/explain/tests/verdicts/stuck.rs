//! Transfers of which nothing arrives: a black hole is named only where small packets pass and full segments are sent
//! again and again.

use results::{
    DirectionOutcome, EndReport, HostAccount, LatencySummary, Limit, PathFacts, Point, Results,
    RunKind, StreamEnd, TcpSample, TcpSummary, TestOutcome, TestSpec, Verdict,
};

/// One transfer: what arrived, what was retransmitted, and how many small requests were answered.
fn verdict(received_bytes: u64, retransmits_count: u64, answered: u64) -> Verdict {
    let tcp = TcpSummary {
        mss_bytes: 1448,
        last: TcpSample { retransmits_count, ..TcpSample::default() },
        ..TcpSummary::default()
    };
    let sender = StreamEnd { sending: true, tcp: Some(tcp), ..StreamEnd::default() };
    let near = EndReport { streams: vec![sender], ..EndReport::default() };
    let direction = DirectionOutcome {
        direction: results::Direction::Forward,
        sent_bytes: 65_536,
        received_bytes,
        sent_bits_per_s: 0.0,
        received_bits_per_s: received_bytes as f64 * 8.0,
        retransmits_count: Some(retransmits_count),
        udp: None,
    };
    let outcome = TestOutcome {
        duration_s: 1.0,
        directions: vec![direction],
        hosts: HostAccount::of_ends(near, None),
        ..TestOutcome::default()
    };
    let idle_rtt = LatencySummary {
        count: answered,
        min_s: 0.01,
        mean_s: 0.01,
        deviation_s: 0.0,
        max_s: 0.01,
        percentiles: Vec::new(),
        method: "tcp-rr".to_owned(),
    };
    let path = PathFacts { idle_rtt: (answered > 0).then_some(idle_rtt), ..PathFacts::default() };
    let points = vec![Point::new("single-stream", TestSpec::tcp(), outcome)];
    explain::explain(&Results { points, path, ..Results::begun(RunKind::Path, 0) })
}

#[test]
fn full_segments_that_never_arrive_are_a_black_hole_where_small_packets_pass() {
    let told = verdict(0, 5, 50);
    assert_eq!((told.limit, told.confirmed), (Limit::MtuBlackHole, false), "{told:#?}");
    assert!(told.summary.contains("1448 bytes") && told.summary.contains("50"), "{told:#?}");
    // Nothing answers: the path may be down altogether.
    assert_eq!(verdict(0, 5, 0).limit, Limit::NoneFound);
    // Nothing was retransmitted: the application may have sent nothing.
    assert_eq!(verdict(0, 0, 50).limit, Limit::NoneFound);
    // Some data arrived.
    assert_ne!(verdict(1_000_000, 5, 50).limit, Limit::MtuBlackHole);
}
