use results::{EndReport, TcpSample, TcpSummary, UdpStreamEnd};

use super::*;
use crate::wire::{Parameters, Transport};

fn setup(side: Side, asked: Parameters) -> Setup {
    Setup { side, asked: Parameters { streams: 1, ..asked }, interval_s: 1.0 }
}

fn account(setup: Setup) -> Account {
    let at = |port| std::net::SocketAddr::from(([127, 0, 0, 1], port));
    let flags = setup.sending_flags();
    let label =
        |(position, sending)| StreamLabel { position, sending, local: at(1), remote: at(2) };
    Account::new(setup, flags.into_iter().enumerate().map(label).collect())
}

fn sample(span: (f64, f64), bytes: u64, omitted: bool) -> IntervalSample {
    IntervalSample { start_s: span.0, end_s: span.1, bytes, omitted, ..IntervalSample::default() }
}

fn report(sending: bool, sample: IntervalSample) -> IntervalReport {
    IntervalReport {
        start_s: sample.start_s,
        end_s: sample.end_s,
        omitted: sample.omitted,
        streams: vec![(0, sending, sample)],
    }
}

fn with_retransmits(sample: IntervalSample, retransmits_count: u64) -> IntervalSample {
    let tcp = TcpSample { retransmits_count, rtt_s: 0.017, ..TcpSample::default() };
    IntervalSample { tcp: Some(tcp), ..sample }
}

fn outcome(end: StreamEnd, duration_s: f64) -> EndOutcome {
    EndOutcome {
        report: EndReport { streams: vec![end], ..EndReport::default() },
        request_response: None,
        latency_under_load: None,
        duration_s,
    }
}

#[test]
fn streams_have_iperf3s_numbers_and_order() {
    let both = Parameters { bidirectional: true, ..Parameters::default() };
    let mut client = setup(Side::Client, both.clone());
    client.asked.streams = 2;
    assert_eq!(client.sending_flags(), [true, true, false, false]);
    let mut server = setup(Side::Server, both);
    server.asked.streams = 2;
    assert_eq!(server.sending_flags(), [false, false, true, true]);
    let ids: Vec<_> = account(client).labels.iter().map(StreamLabel::id).collect();
    assert_eq!(ids, [1, 3, 4, 5]);
    let reverse = Parameters { reverse: true, ..Parameters::default() };
    assert_eq!(setup(Side::Client, reverse.clone()).sending_flags(), [false]);
    assert_eq!(setup(Side::Server, reverse).sending_flags(), [true]);
}

#[test]
fn the_omitted_start_is_shown_and_not_counted() {
    let mut account = account(setup(Side::Client, Parameters::default()));
    let omitted = with_retransmits(sample((0.0, 1.0), 1000, true), 7);
    let shown = account.interval(&report(true, omitted)).unwrap();
    assert!(shown.omitted && shown.first);
    let counted = with_retransmits(sample((1.0, 2.0), 500, false), 9);
    let shown = account.interval(&report(true, counted)).unwrap();
    assert_eq!((shown.start_s, shown.end_s, shown.first), (0.0, 1.0, false));
    assert_eq!(shown.streams[0].tcp.unwrap().retransmits, 2);
    assert_eq!(account.sent(), (500, 0));
    let tcp = |retransmits_count| TcpSample { retransmits_count, ..TcpSample::default() };
    let end = StreamEnd {
        sending: true,
        bytes: 500,
        tcp: Some(TcpSummary {
            congestion_control: "cubic".into(),
            first: tcp(7),
            last: tcp(9),
            ..TcpSummary::default()
        }),
        ..StreamEnd::default()
    };
    assert_eq!(account.finish(&outcome(end, 1.0), CpuPercent::default()), []);
    let results = account.results();
    assert_eq!((results.sender_has_retransmits, results.streams[0].retransmits), (1, 2));
    assert_eq!(results.congestion_used.as_deref(), Some("cubic"));
    let summary = account.summary(None);
    assert_eq!(summary.directions[0].streams[0].tcp.rtt_us_mean, 17_000);
}

#[test]
fn ticks_add_up_to_intervals_and_the_rest_is_shown_at_the_end() {
    let mut account =
        account(setup(Side::Client, Parameters { reverse: true, ..Parameters::default() }));
    let shown: Vec<_> = (0..15)
        .filter_map(|tick| {
            let start_s = f64::from(tick) * 0.1;
            account.interval(&report(false, sample((start_s, start_s + 0.1), 10, false)))
        })
        .collect();
    assert_eq!(shown.len(), 1);
    assert_eq!(shown[0].streams[0].bytes, 100);
    // One more sample that no event told of.
    let intervals = vec![sample((1.5, 1.53), 5, false)];
    let end = StreamEnd { bytes: 155, intervals, ..StreamEnd::default() };
    let rest = account.finish(&outcome(end, 1.53), CpuPercent::default());
    assert_eq!(rest.len(), 1);
    assert_eq!(rest[0].streams[0].bytes, 55);
    assert_eq!(account.results().streams[0].bytes, 155);
    assert_eq!(account.results().sender_has_retransmits, -1);
}

#[test]
fn a_short_empty_rest_is_not_shown() {
    let mut account = account(setup(Side::Server, Parameters::default()));
    assert!(account.interval(&report(false, sample((0.0, 1.0), 10, false))).is_some());
    assert!(account.interval(&report(false, sample((1.0, 1.05), 0, false))).is_none());
    assert_eq!(account.flush(), None);
}

#[test]
fn datagrams_of_the_omitted_start_are_told_apart() {
    let udp = Parameters { transport: Transport::Udp, ..Parameters::default() };
    let mut account = account(setup(Side::Server, udp));
    let counts = |sample: IntervalSample, arrived, lost| IntervalSample {
        datagrams_count: Some(arrived),
        lost_count: Some(lost),
        ..sample
    };
    account.interval(&report(false, counts(sample((0.0, 1.0), 1, true), 40, 2)));
    account.interval(&report(false, counts(sample((1.0, 2.0), 1, false), 90, 10)));
    let udp = UdpStreamEnd {
        datagrams_count: 90,
        lost_count: Some(10),
        jitter_s: Some(0.001),
        ..UdpStreamEnd::default()
    };
    let end = StreamEnd { bytes: 1, udp: Some(udp), ..StreamEnd::default() };
    account.finish(&outcome(end, 1.0), CpuPercent::default());
    let stream = &account.results().streams[0];
    assert_eq!((stream.packets, stream.omitted_packets), (142, Some(42)));
    assert_eq!((stream.errors, stream.omitted_errors), (12, Some(2)));
    let row = &account.summary(None).directions[0].streams[0];
    assert_eq!((row.receiver_packets, row.lost, row.sender_packets), (100, 10, 0));
}

/// A server of iperf 3.12 tells all it missed, and bytes only from the end of the omitted start on.
#[test]
fn losses_that_an_older_server_counts_in_the_omitted_start_are_not_the_tests() {
    let block_bytes = 1400;
    let udp = Parameters { transport: Transport::Udp, block_bytes, ..Parameters::default() };
    let mut account = account(setup(Side::Client, udp));
    let sent = |span, count, omitted| IntervalSample {
        datagrams_count: Some(count),
        ..sample(span, count * 1400, omitted)
    };
    account.interval(&report(true, sent((0.0, 2.0), 5355, true)));
    account.interval(&report(false, sent((2.0, 4.0), 5357, false)));
    let udp = UdpStreamEnd { datagrams_count: 5357, ..UdpStreamEnd::default() };
    let end =
        StreamEnd { bytes: 5357 * 1400, sending: true, udp: Some(udp), ..StreamEnd::default() };
    account.finish(&outcome(end, 2.0), CpuPercent::default());
    let mut told = account.results();
    told.streams[0] = StreamResult {
        bytes: 3614 * 1400,
        errors: 3496,
        omitted_errors: None,
        packets: 10_712,
        omitted_packets: None,
        ..told.streams[0].clone()
    };
    let row = &account.summary(Some(&told)).directions[0].streams[0];
    assert_eq!((row.sender_packets, row.lost), (5357, 5357 - 3614));
    told.streams[0].omitted_errors = Some(1527);
    let row = &account.summary(Some(&told)).directions[0].streams[0];
    assert_eq!(row.lost, 1969, "a server from 3.14 on tells the start's");
}
