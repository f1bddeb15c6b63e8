//! Requests and answers: parts of the round trip that counters tell are taken off it, and named
//! when they are large.

use results::{
    Coalescing, End, EndCounters, EndReport, Host as Described, HostAccount, HostFacts,
    IdleStateUse, InterfaceFacts, LatencySummary, Limit, Machine, Nic, PercentilePoint, Point,
    Protocol, RequestResponseOutcome, Results, RunKind, StreamEnd, TestOutcome, TestSpec, Verdict,
};

const TRANSACTIONS: u64 = 10_000;

/// What an end spends on each transaction, seconds.
#[derive(Clone, Copy, Default)]
struct Host {
    waits_s: f64,
    works_s: f64,
    exit_us: u64,
    /// Wait of its interface before an interrupt, microseconds.
    receive_usecs: u32,
    is_adaptive: bool,
}

fn report(host: Host) -> EndReport {
    let stream = StreamEnd {
        cores: vec![1],
        thread_wait_s: Some(host.waits_s * TRANSACTIONS as f64),
        thread_user_s: Some(0.0),
        thread_system_s: Some(host.works_s * TRANSACTIONS as f64),
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

/// The facts of an end with one interface.
fn facts(host: Host) -> HostFacts {
    let coalescing = Coalescing {
        is_receive_adaptive: host.is_adaptive,
        receive_usecs: host.receive_usecs,
        ..Coalescing::default()
    };
    let nic = Nic { name: "eth0".to_owned(), coalescing: Some(coalescing), ..Nic::default() };
    HostFacts {
        interface: Some(InterfaceFacts { name: "eth0".to_owned(), ..InterfaceFacts::default() }),
        machine: Some(Machine { nics: vec![nic], ..Machine::default() }),
        ..HostFacts::default()
    }
}

fn verdict(median_s: f64, near: Host, far: Option<Host>) -> Verdict {
    explain::explain(&document(near, far, vec![point(median_s, near, far)]))
}

fn document(near: Host, far: Option<Host>, points: Vec<Point>) -> Results {
    let mut hosts = vec![Described::near(facts(near))];
    hosts.extend(far.map(|far| Described::far(facts(far))));
    Results { points, hosts, ..Results::begun(RunKind::Test, 0) }
}

fn point(median_s: f64, near: Host, far: Option<Host>) -> Point {
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
    Point::new("round-trip", spec, outcome)
}

#[test]
fn the_part_that_takes_a_quarter_of_the_round_trip_is_named_with_its_end() {
    let waits = Host { waits_s: 40e-6, ..Host::default() };
    let sleeps = Host { exit_us: 40, ..Host::default() };
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
    let busy = Host { waits_s: 40e-6, exit_us: 40, ..Host::default() };
    for far in [Some(busy), None] {
        let verdict = verdict(10e-3, busy, far);
        assert_eq!((verdict.limit, verdict.end), (Limit::NoneFound, None), "{verdict:#?}");
        let rest = verdict.evidence.last().map_or("", |line| line.text.as_str());
        assert!(rest.contains("the wire, both stacks") && rest.contains("8.00 ms"), "{rest}");
    }
}

#[test]
fn an_interface_that_waits_before_it_interrupts_is_named_unless_it_adapts() {
    let slow = Host { receive_usecs: 60, ..Host::default() };
    let told = verdict(100e-6, Host::default(), Some(slow));
    assert_eq!((told.limit, told.end), (Limit::InterruptModeration, Some(End::Far)), "{told:#?}");
    assert!(told.summary.contains("rx-usecs 60") && told.summary.contains("may"), "{told:#?}");
    let adaptive = Host { is_adaptive: true, ..slow };
    assert_eq!(verdict(100e-6, Host::default(), Some(adaptive)).limit, Limit::NoneFound);
    // A bound takes no more than what the counters leave.
    let waits = Host { waits_s: 80e-6, ..Host::default() };
    assert_eq!(verdict(100e-6, waits, Some(slow)).limit, Limit::Scheduler);
}

#[test]
fn the_work_itself_is_told_and_accuses_nobody() {
    let works = Host { works_s: 60e-6, ..Host::default() };
    let told = verdict(100e-6, works, Some(Host::default()));
    assert_eq!((told.limit, told.end), (Limit::NoneFound, None), "{told:#?}");
    assert!(told.summary.contains("works 60.0 us"), "{told:#?}");
}

#[test]
fn what_is_longer_under_load_waits_in_a_queue() {
    let calm = Host { works_s: 5e-6, ..Host::default() };
    let under = |loaded: Host| {
        let mut later = point(100e-6, calm, Some(calm));
        later.varied.insert(explain::FILE.to_owned(), 1.0);
        let points = vec![point(900e-6, calm, Some(loaded)), later];
        explain::explain(&document(calm, Some(calm), points))
    };
    let told = under(calm);
    assert_eq!((told.limit, told.end), (Limit::Queue, None), "{told:#?}");
    assert!(told.summary.contains("800 us"), "{told:#?}");
    // Its far end's thread ran all the time: the requests waited for it.
    let full = Host { works_s: 480e-6, ..calm };
    let told = under(full);
    assert_eq!((told.limit, told.end), (Limit::ReceiverCore, Some(End::Far)), "{told:#?}");
    // Waiting for a core is no queue of the path.
    let waits = Host { waits_s: 800e-6, ..calm };
    let mut later = point(100e-6, calm, Some(calm));
    later.varied.insert(explain::FILE.to_owned(), 1.0);
    let points = vec![point(900e-6, calm, Some(Host { waits_s: 400e-6, ..calm })), later];
    let told = explain::explain(&document(calm, Some(calm), points));
    assert!(told.evidence.iter().any(|line| line.limit == Limit::Scheduler), "{told:#?}");
    assert_eq!(verdict(900e-6, waits, Some(calm)).limit, Limit::Scheduler);
}
