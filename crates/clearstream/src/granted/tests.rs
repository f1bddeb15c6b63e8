use results::{Finding, Host, InterfaceFacts, PathFacts, RunKind, TcpSummary, ZeroCopyShare};

use super::*;

fn hosts() -> Results {
    let host = |name: &str| HostFacts {
        name: name.to_owned(),
        usable_cores: vec![0, 1, 2, 3],
        sysctls: [(CONGESTION_CONTROLS.to_owned(), "reno cubic".to_owned())].into(),
        ..HostFacts::default()
    };
    Results {
        hosts: vec![Host::near(host("one")), Host::far(host("two"))],
        path: PathFacts { address: Some("127.0.0.1".to_owned()), ..PathFacts::default() },
        ..Results::begun(RunKind::Test, 0)
    }
}

/// What is missing before a test.
fn before(spec: &TestSpec) -> String {
    let error = check(spec, &hosts()).expect_err("not granted");
    assert_eq!(error.code(), 4, "{error}");
    error.to_string()
}

/// What is missing after a test whose ends said this of one stream each.
fn after(spec: &TestSpec, near: StreamEnd, far: StreamEnd) -> Vec<String> {
    let account = |stream| EndReport { streams: vec![stream], ..EndReport::default() };
    let hosts_said = results::HostAccount::of_ends(account(near), Some(account(far)));
    let outcome = TestOutcome { hosts: hosts_said, ..TestOutcome::default() };
    ungranted(spec, &outcome, &hosts())
}

fn sender(congestion_control: &str, mss_bytes: u32) -> StreamEnd {
    let congestion_control = congestion_control.to_owned();
    let tcp = TcpSummary { congestion_control, mss_bytes, ..TcpSummary::default() };
    StreamEnd { sending: true, tcp: Some(tcp), ..StreamEnd::default() }
}

#[test]
fn a_congestion_control_that_the_kernel_lacks_is_refused_with_those_it_has() {
    let congestion_control = Some("no_such".to_owned());
    let spec = TestSpec { congestion_control, ..TestSpec::tcp() };
    let why = before(&spec);
    assert!(why.contains("-C no_such") && why.ends_with("available: reno, cubic"), "{why}");
    // The near end of a reverse test acknowledges; what it has does not matter.
    check(&TestSpec { direction: Direction::Reverse, ..spec }, &hosts()).expect("granted");
}

#[test]
fn cores_that_an_end_lacks_are_refused_with_those_it_has() {
    let why = before(&TestSpec { far_cores: vec![1, 64], ..TestSpec::tcp() });
    assert_eq!(why, "core 64 is not usable at the far end; usable cores: 0-3");
    assert!(before(&TestSpec { near_cores: vec![1023], ..TestSpec::tcp() }).contains("near end"));
}

#[test]
fn udp_is_paced_by_fq_alone() {
    let spec = TestSpec { pacing_bits_per_s: Some(1e9), ..TestSpec::udp(1400) };
    let with = |qdisc: &str| {
        let mut results = hosts();
        let (name, qdisc) = ("eth0".to_owned(), Some(qdisc.to_owned()));
        let interface = InterfaceFacts { name, qdisc, ..InterfaceFacts::default() };
        results.near_mut().interface = Some(interface);
        check(&spec, &results).map_err(|error| error.to_string())
    };
    assert_eq!(with("fq"), Ok(()));
    assert!(with("fq_codel").expect_err("not paced").contains("eth0 of one has fq_codel"));
}

#[test]
fn another_congestion_control_or_segment_size_than_asked_fails_the_test() {
    let quiet = StreamEnd::default();
    let bbr = TestSpec { congestion_control: Some("bbr".to_owned()), ..TestSpec::tcp() };
    assert_eq!(after(&bbr, sender("bbr", 1448), quiet.clone()), [""; 0]);
    assert_eq!(
        after(&bbr, sender("cubic", 1448), quiet.clone()),
        ["-C bbr: the near end ran cubic"]
    );
    let mss = TestSpec { mss_bytes: Some(9000), ..TestSpec::tcp() };
    assert_eq!(after(&mss, sender("cubic", 8988), quiet.clone()), [""; 0], "timestamps take 12");
    let small = after(&mss, sender("cubic", 1448), quiet);
    assert_eq!(small, ["-M 9000: segments from the near end carried 1448 bytes"]);
}

#[test]
fn zero_copy_that_copied_everything_fails_the_test_at_either_end() {
    let spec = TestSpec { receive_path: ReceivePath::Zerocopy, ..TestSpec::tcp() };
    let share = |zero_copied_bytes| StreamEnd {
        zero_copy: Some(ZeroCopyShare { asked_bytes: 1 << 30, zero_copied_bytes }),
        ..StreamEnd::default()
    };
    let missing = after(&spec, sender("cubic", 1448), share(0));
    assert!(missing[0].contains("--receive-path zerocopy: the kernel at the far end copied all"));
    // A part of it is said beside the rate.
    assert_eq!(after(&spec, sender("cubic", 1448), share(1)), [""; 0]);
}

#[test]
fn a_refusal_at_an_end_that_does_not_send_is_of_no_account() {
    let congestion_control = Some("bbr".to_owned());
    let spec = TestSpec { congestion_control, ..TestSpec::tcp() };
    let code = "congestion-control-refused".to_owned();
    let finding = Finding { end: None, code, text: "ENOENT".to_owned() };
    let account = EndReport { findings: vec![finding], ..EndReport::default() };
    let facts = HostFacts::default();
    assert_eq!(refusals(&spec, End::Far, &account, &facts), [""; 0]);
    let near = refusals(&spec, End::Near, &account, &facts);
    assert_eq!(near, ["-C bbr: not available at the near end"]);
}
