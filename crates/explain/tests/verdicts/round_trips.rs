//! Requests and answers: parts of the round trip that counters tell are taken off it, and named
//! when they are large.

use results::{
    End, EndCounters, EndReport, HostAccount, IdleStateUse, LatencySummary, Limit, PercentilePoint,
    Point, Protocol, RequestResponseOutcome, Results, RunKind, StreamEnd, TestOutcome, TestSpec,
    Verdict,
};

const TRANSACTIONS: u64 = 10_000;

/// What an end spends on each transaction, seconds.
#[derive(Clone, Copy, Default)]
struct Host {
    waits_s: f64,
    exit_us: u64,
}

fn report(host: Host) -> EndReport {
    let stream = StreamEnd {
        cores: vec![1],
        thread_wait_s: Some(host.waits_s * TRANSACTIONS as f64),
        ..StreamEnd::default()
    };
    let state = IdleStateUse {
        core: 1,
        state: "C6".to_owned(),
        exit_latency_us: host.exit_us,
        entered_count: TRANSACTIONS,
        time_s: 1.0,
    };
    let counters = EndCounters { idle_states: vec![state], ..EndCounters::default() };
    EndReport { streams: vec![stream], counters, ..EndReport::default() }
}

fn verdict(median_s: f64, near: Host, far: Option<Host>) -> Verdict {
    let latency = LatencySummary {
        count: TRANSACTIONS,
        min_s: median_s * 0.8,
        mean_s: median_s,
        deviation_s: 0.0,
        max_s: median_s * 3.0,
        percentiles: vec![PercentilePoint { percentile: 50.0, value_s: median_s }],
        method: "tcp-rr".to_owned(),
    };
    let outcome = TestOutcome {
        duration_s: 5.0,
        request_response: Some(RequestResponseOutcome {
            transactions_count: TRANSACTIONS,
            transactions_per_s: 2000.0,
            timeouts_count: 0,
            latency,
        }),
        hosts: HostAccount::of_ends(report(near), far.map(report)),
        ..TestOutcome::default()
    };
    let spec = TestSpec::request_response(Protocol::Tcp, 1, 1);
    let point = Point::new("round-trip", spec, outcome);
    explain::explain(&Results { points: vec![point], ..Results::begun(RunKind::Test, 0) })
}

#[test]
fn the_part_that_takes_a_quarter_of_the_round_trip_is_named_with_its_end() {
    let waits = Host { waits_s: 40e-6, exit_us: 0 };
    let sleeps = Host { waits_s: 0.0, exit_us: 40 };
    let calm = Host::default();
    for (near, far, limit, end) in [
        (waits, calm, Limit::Scheduler, End::Near),
        (calm, waits, Limit::Scheduler, End::Far),
        (sleeps, calm, Limit::IdleStates, End::Near),
        (calm, sleeps, Limit::IdleStates, End::Far),
    ] {
        let verdict = verdict(100e-6, near, Some(far));
        assert_eq!((verdict.limit, verdict.end), (limit, Some(end)), "{verdict:#?}");
        assert!(verdict.summary.contains("40.0 us"), "{verdict:#?}");
    }
}

#[test]
fn a_long_wire_accuses_no_host_and_the_rest_is_told() {
    let busy = Host { waits_s: 40e-6, exit_us: 40 };
    for far in [Some(busy), None] {
        let verdict = verdict(10e-3, busy, far);
        assert_eq!((verdict.limit, verdict.end), (Limit::NoneFound, None), "{verdict:#?}");
        let rest = verdict.evidence.last().map_or("", |line| line.text.as_str());
        assert!(rest.contains("the wire, both stacks") && rest.contains("8.00 ms"), "{rest}");
    }
}
