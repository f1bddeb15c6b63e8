//! What a server permits a client to request. Pure: maps a spec and limits to the spec that will
//! run, or to a refusal.

use std::time::Duration;

use results::{Direction, End, Finding, Protocol, TestLimit, TestSpec};

use super::{ANSWER_FRAME_BYTES_MAX, Refusal, RefusalCode, SERVER_FRAME_BYTES_MAX};

/// Limits on the tests of one client.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Longest test, the omitted start included.
    pub duration_max: Duration,
    /// Highest rate of a test in one direction, all streams together, in bit/s; `None`: unlimited.
    pub rate_bits_per_s_max: Option<f64>,
    /// Upper bound on the streams in each direction.
    pub streams_max: u32,
    /// Whether a test may move this host's receive interrupts while it runs.
    pub may_move_interrupts: bool,
}

impl Default for Limits {
    /// One hour, any rate, 128 streams, no moving of interrupts.
    fn default() -> Self {
        Self {
            duration_max: Duration::from_secs(3600),
            rate_bits_per_s_max: None,
            streams_max: 128,
            may_move_interrupts: false,
        }
    }
}

/// Upper bound on `streams_max`: each stream has a thread and sockets.
const STREAMS_MAX: u32 = 1024;
const BLOCK_BYTES_MAX: u64 = 16 << 20;
/// Upper bound on the buffers of all streams together, in bytes.
const MEMORY_BYTES_MAX: u64 = 2 << 30;
const WINDOW_BYTES_MAX: u64 = 2 << 30;
const MESSAGE_BYTES_MAX: u32 = 1 << 20;
/// Upper bound on the samples of a test, at [`SAMPLE_BYTES_MAX`] each, so that its report fits into
/// the largest message.
const SAMPLES_MAX: f64 = (SERVER_FRAME_BYTES_MAX / SAMPLE_BYTES_MAX) as f64;
/// Size of a sample in a message, in bytes, with every value as long as it gets in practice.
const SAMPLE_BYTES_MAX: usize = 1 << 10;
/// Size of a stream's account in a report, its samples apart, in bytes.
const STREAM_BYTES_MAX: f64 = 16e3;
/// How much longer than planned a test may be sampled, in seconds.
const REPORT_MARGIN_S: f64 = 20.0;

impl Limits {
    /// How long an admitted test may run, its omitted start included: as long as its spec says. A
    /// test limited by an amount may run as long as the longest one with the same streams and
    /// interval.
    #[must_use]
    pub fn longest(&self, spec: &TestSpec) -> Duration {
        let longest_s = match spec.limit {
            TestLimit::DurationS(duration_s) => duration_s + spec.omit_s,
            TestLimit::TotalBytes(_) | TestLimit::TotalBlocks(_) => {
                SAMPLES_MAX / samples_per_s(spec)
            }
        };
        let longest = Duration::try_from_secs_f64(longest_s).unwrap_or(self.duration_max);
        longest.min(self.duration_max)
    }
}

/// Largest frame that the server of this test needs, in bytes: its report, where that tells each stream's
/// every sample.
#[must_use]
pub fn report_bytes_max(spec: &TestSpec) -> usize {
    let TestLimit::DurationS(duration_s) = spec.limit else { return SERVER_FRAME_BYTES_MAX };
    let samples = (duration_s + spec.omit_s + REPORT_MARGIN_S) * samples_per_s(spec);
    let streams = f64::from(spec.streams) * ways(spec) as f64;
    let report = samples * SAMPLE_BYTES_MAX as f64 + streams * STREAM_BYTES_MAX;
    (ANSWER_FRAME_BYTES_MAX + units::saturating_u64(report) as usize).min(SERVER_FRAME_BYTES_MAX)
}

/// Samples of all streams per second.
fn samples_per_s(spec: &TestSpec) -> f64 {
    f64::from(spec.streams) * ways(spec) as f64 / spec.interval_s
}

/// Number of directions that have their own streams.
fn ways(spec: &TestSpec) -> u64 {
    if spec.direction == Direction::Bidirectional { 2 } else { 1 }
}

/// The test as a server with these limits runs it, and findings about what the limits changed.
///
/// # Errors
/// The test is invalid (`bad-request`), or exceeds a limit that slowing it down cannot meet
/// (`limit`, `not-allowed`).
pub fn admit(mut spec: TestSpec, limits: &Limits) -> Result<(TestSpec, Vec<Finding>), Refusal> {
    check_amounts(&spec, limits)?;
    check_sizes(&spec)?;
    check_rates(&spec)?;
    check_names(&spec)?;
    check_interrupts(&spec, limits)?;
    let finding = clamp_rate(&mut spec, limits);
    Ok((spec, finding.into_iter().collect()))
}

fn check_amounts(spec: &TestSpec, limits: &Limits) -> Result<(), Refusal> {
    let streams_max = limits.streams_max.min(STREAMS_MAX);
    if spec.streams == 0 {
        return Err(bad("0 streams carry nothing; ask for at least 1"));
    }
    if spec.streams > streams_max {
        return Err(beyond(format!(
            "{} streams are more than the {streams_max} this server allows",
            spec.streams
        )));
    }
    if !within(spec.interval_s, 0.05, 60.0) {
        return Err(bad(format!(
            "an interval of {} s is not within 0.05 to 60 s",
            spec.interval_s
        )));
    }
    let duration_max_s = limits.duration_max.as_secs_f64();
    if !within(spec.omit_s, 0.0, duration_max_s) {
        return Err(bad(format!("an omitted start of {} s is out of range", spec.omit_s)));
    }
    let longest_s = match spec.limit {
        TestLimit::DurationS(duration_s) if !within(duration_s, 0.01, f64::MAX) => {
            return Err(bad(format!("a duration of {duration_s} s is out of range")));
        }
        TestLimit::DurationS(duration_s) => duration_s + spec.omit_s,
        TestLimit::TotalBytes(0) | TestLimit::TotalBlocks(0) => {
            return Err(bad("a test of nothing; ask for at least one byte or block"));
        }
        // Ended by the server after `Limits::longest`, however slow it is.
        TestLimit::TotalBytes(_) | TestLimit::TotalBlocks(_) => spec.omit_s,
    };
    if longest_s > duration_max_s {
        return Err(beyond(format!(
            "{longest_s} s (omitted start included) is longer than the {duration_max_s} s this \
             server allows"
        )));
    }
    let samples = longest_s * samples_per_s(spec);
    if samples > SAMPLES_MAX {
        return Err(beyond(format!(
            "{samples:.0} samples are more than {SAMPLES_MAX:.0}; ask for a longer interval"
        )));
    }
    Ok(())
}

fn check_sizes(spec: &TestSpec) -> Result<(), Refusal> {
    let block_bytes = spec.block_bytes.unwrap_or(1);
    if !(1..=BLOCK_BYTES_MAX).contains(&block_bytes) {
        return Err(bad(format!("blocks of {block_bytes} bytes are not within 1 byte to 16 MiB")));
    }
    if block_bytes * u64::from(spec.streams) * ways(spec) > MEMORY_BYTES_MAX {
        return Err(beyond("streams times block size is more than 2 GiB"));
    }
    if spec.window_bytes.is_some_and(|bytes| !(1024..=WINDOW_BYTES_MAX).contains(&bytes)) {
        return Err(bad("the window is not within 1 KiB to 2 GiB"));
    }
    if spec.mss_bytes.is_some_and(|bytes| !(88..=65_483).contains(&bytes)) {
        return Err(bad("the MSS is not within 88 to 65483 bytes"));
    }
    if spec.dscp.is_some_and(|dscp| dscp > 63) {
        return Err(bad("the DSCP is not within 0 to 63"));
    }
    if let Some(udp) = &spec.udp {
        if !(16..=65_507).contains(&udp.datagram_bytes) {
            return Err(bad("the datagram size is not within 16 to 65507 bytes"));
        }
        if !(1..=1024).contains(&udp.batch_count) {
            return Err(bad("the batch is not within 1 to 1024 datagrams"));
        }
    }
    if let Some(sizes) = &spec.request_response {
        let known = 1..=MESSAGE_BYTES_MAX;
        if !known.contains(&sizes.request_bytes) || !known.contains(&sizes.response_bytes) {
            return Err(bad("requests and responses are 1 byte to 1 MiB"));
        }
        let datagram = spec.protocol == Protocol::Udp;
        if datagram && sizes.request_bytes.max(sizes.response_bytes) > 65_507 {
            return Err(bad("a UDP request or response is at most 65507 bytes"));
        }
        if spec.direction != Direction::Forward {
            return Err(bad("a request/response test has no other direction than forward"));
        }
    }
    let bulk_udp = spec.protocol == Protocol::Udp && spec.request_response.is_none();
    if bulk_udp != spec.udp.is_some() {
        return Err(bad("a bulk UDP test, and no other, says how large its datagrams are"));
    }
    Ok(())
}

fn check_rates(spec: &TestSpec) -> Result<(), Refusal> {
    let rates = [
        ("pacing rate", spec.pacing_bits_per_s),
        ("offered rate", spec.offered_bits_per_s),
        ("read rate", spec.read_bits_per_s),
    ];
    for (name, rate) in rates {
        if rate.is_some_and(|bits_per_s| !within(bits_per_s, 1.0, 1e15)) {
            return Err(bad(format!("the {name} is not within 1 bit/s to 1 Pbit/s")));
        }
    }
    Ok(())
}

fn check_names(spec: &TestSpec) -> Result<(), Refusal> {
    // TCP_CA_NAME_MAX is 16 with its NUL (kernel include/net/tcp.h).
    let good = |name: &String| {
        (1..16).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
    };
    if spec.congestion_control.as_ref().is_some_and(|name| !good(name)) {
        return Err(bad("the name of the congestion control is not valid"));
    }
    let cores_max = 1024;
    if spec.near_cores.len().max(spec.far_cores.len()) > cores_max {
        return Err(bad("a core list names at most 1024 cores"));
    }
    Ok(())
}

fn check_interrupts(spec: &TestSpec, limits: &Limits) -> Result<(), Refusal> {
    let cores = [spec.near_interrupt_core, spec.far_interrupt_core];
    if let Some(core) = cores.into_iter().flatten().find(|core| *core >= 1024) {
        return Err(bad(format!("no host has a core {core} to move interrupts to")));
    }
    if spec.far_interrupt_core.is_some() && !limits.may_move_interrupts {
        return Err(Refusal::new(
            RefusalCode::NotAllowed,
            "this server moves no interrupts; its owner can allow it: \
             clearstream serve --allow-interrupt-moves",
        ));
    }
    Ok(())
}

/// Reduces the test's rate to the server's limit; returns a finding if that changed it.
fn clamp_rate(spec: &mut TestSpec, limits: &Limits) -> Option<Finding> {
    let total = limits.rate_bits_per_s_max?;
    let share = total / f64::from(spec.streams);
    if spec.offered_bits_per_s.is_some_and(|offered| offered <= share) {
        return None;
    }
    spec.offered_bits_per_s = Some(share);
    Some(Finding {
        end: Some(End::Far),
        code: "rate-limited".to_owned(),
        text: format!(
            "the server allows {} per test, so each stream offers {}",
            units::show_bit_rate(total),
            units::show_bit_rate(share)
        ),
    })
}

fn within(value: f64, low: f64, high: f64) -> bool {
    // False for NaN.
    (low..=high).contains(&value)
}

fn bad(reason: impl Into<String>) -> Refusal {
    Refusal::new(RefusalCode::BadRequest, reason)
}

fn beyond(reason: impl Into<String>) -> Refusal {
    Refusal::new(RefusalCode::Limit, reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use results::RequestResponseSpec;

    fn refused(change: impl FnOnce(&mut TestSpec)) -> RefusalCode {
        let mut spec = TestSpec::tcp();
        change(&mut spec);
        admit(spec, &Limits::default()).expect_err("refused").code
    }

    #[test]
    fn ordinary_tests_pass_unchanged() {
        for spec in [
            TestSpec::tcp(),
            TestSpec::udp(1400),
            TestSpec::request_response(Protocol::Tcp, 1, 1),
            TestSpec::request_response(Protocol::Udp, 1, 1),
        ] {
            let (admitted, findings) = admit(spec.clone(), &Limits::default()).expect("ordinary");
            assert_eq!((admitted, findings), (spec, Vec::new()));
        }
    }

    #[test]
    fn absurd_parameters_are_refused() {
        use RefusalCode::{BadRequest, Limit};
        assert_eq!(refused(|spec| spec.streams = 1_000_000_000), Limit);
        assert_eq!(refused(|spec| spec.streams = 0), BadRequest);
        assert_eq!(refused(|spec| spec.omit_s = f64::NAN), BadRequest);
        assert_eq!(refused(|spec| spec.interval_s = 0.0), BadRequest);
        assert_eq!(refused(|spec| spec.interval_s = -1.0), BadRequest);
        assert_eq!(refused(|spec| spec.limit = TestLimit::DurationS(f64::INFINITY)), BadRequest);
        assert_eq!(refused(|spec| spec.limit = TestLimit::DurationS(-5.0)), BadRequest);
        assert_eq!(refused(|spec| spec.limit = TestLimit::DurationS(1e9)), Limit);
        assert_eq!(refused(|spec| spec.limit = TestLimit::TotalBytes(0)), BadRequest);
        assert_eq!(refused(|spec| spec.block_bytes = Some(u64::MAX)), BadRequest);
        assert_eq!(refused(|spec| spec.window_bytes = Some(0)), BadRequest);
        assert_eq!(refused(|spec| spec.mss_bytes = Some(1)), BadRequest);
        assert_eq!(refused(|spec| spec.dscp = Some(64)), BadRequest);
        assert_eq!(refused(|spec| spec.pacing_bits_per_s = Some(f64::NAN)), BadRequest);
        assert_eq!(refused(|spec| spec.near_interrupt_core = Some(4096)), BadRequest);
        let moving = refused(|spec| spec.far_interrupt_core = Some(0));
        assert_eq!(moving, RefusalCode::NotAllowed);
        assert_eq!(refused(|spec| spec.offered_bits_per_s = Some(-1.0)), BadRequest);
        assert_eq!(refused(|spec| spec.congestion_control = Some("../x".into())), BadRequest);
        assert_eq!(refused(|spec| spec.protocol = Protocol::Udp), BadRequest);
        assert_eq!(
            refused(|spec| {
                let sizes = RequestResponseSpec { request_bytes: 0, response_bytes: 1 };
                spec.request_response = Some(sizes);
            }),
            BadRequest
        );
    }

    /// A test that ends after an amount may run no longer than one that says how long it is.
    #[test]
    fn samples_are_bounded_however_a_test_is_bounded() {
        for direction in [Direction::Forward, Direction::Bidirectional] {
            let mut spec =
                TestSpec { streams: 128, interval_s: 0.05, direction, ..TestSpec::tcp() };
            spec.limit = TestLimit::DurationS(3600.0);
            let refusal = admit(spec.clone(), &Limits::default()).expect_err("too many samples");
            assert_eq!(refusal.code, RefusalCode::Limit);
            for limit in [TestLimit::TotalBytes(u64::MAX), TestLimit::TotalBlocks(u64::MAX)] {
                spec.limit = limit;
                let limits = Limits::default();
                let (mut spec, _) = admit(spec.clone(), &limits).expect("it may be short");
                let longest_s = limits.longest(&spec).as_secs_f64();
                let timed = |duration_s| TestSpec {
                    limit: TestLimit::DurationS(duration_s),
                    ..spec.clone()
                };
                admit(timed(longest_s - 0.01), &limits).expect("so long and no longer");
                admit(timed(longest_s + 0.01), &limits).expect_err("so long and no longer");
                spec.omit_s = longest_s + 1.0;
                admit(spec, &limits).expect_err("it would end before it began");
            }
        }
        let spec = TestSpec { limit: TestLimit::TotalBytes(1), ..TestSpec::tcp() };
        assert_eq!(Limits::default().longest(&spec), Limits::default().duration_max);
    }

    /// The longest figures that come up, in every field.
    #[test]
    fn the_account_of_the_longest_test_fits_a_message() {
        let long = 1.0 / 3.0 * 1e-5;
        let tcp = results::TcpSample {
            rtt_s: long,
            rtt_variation_s: long,
            rtt_min_s: Some(long),
            receiver_rtt_s: Some(long),
            congestion_window_bytes: u32::MAX.into(),
            peer_window_bytes: Some(u32::MAX.into()),
            advertised_window_bytes: Some(u32::MAX.into()),
            in_flight_bytes: u32::MAX.into(),
            not_sent_bytes: Some(u32::MAX.into()),
            retransmits_count: u32::MAX.into(),
            delivery_bits_per_s: Some(123_456_789_012.25),
            delivery_app_limited: false,
            pacing_bits_per_s: Some(123_456_789_012.25),
            busy_s: Some(1_234.567_891),
            receive_window_limited_s: Some(1_234.567_891),
            send_buffer_limited_s: Some(1_234.567_891),
            marked_count: Some(u32::MAX.into()),
            reordering_segments: Some(u32::MAX.into()),
            reordered_count: Some(u32::MAX.into()),
            needless_retransmits_count: Some(u32::MAX.into()),
            out_of_order_count: Some(u32::MAX.into()),
            slow_start_threshold_bytes: Some(u32::MAX.into()),
        };
        let sample = results::IntervalSample {
            start_s: 1_234.567_891_234,
            end_s: 1_234.567_891_234,
            bytes: 1 << 40,
            omitted: false,
            tcp: Some(tcp),
            datagrams_count: None,
            lost_count: None,
            jitter_s: None,
            receive_queue_bytes: Some(u32::MAX.into()),
            send_queue_bytes: Some(u32::MAX.into()),
        };
        let bytes = serde_json::to_vec(&sample).expect("serialises").len() + 1;
        assert!((600..SAMPLE_BYTES_MAX).contains(&bytes), "{bytes}");
    }

    #[test]
    fn a_rate_limit_slows_and_says_so() {
        let limits = Limits { rate_bits_per_s_max: Some(1e9), ..Limits::default() };
        let mut spec = TestSpec::tcp();
        spec.streams = 4;
        let (admitted, findings) = admit(spec.clone(), &limits).expect("slowed");
        assert_eq!(admitted.offered_bits_per_s, Some(250e6));
        assert_eq!(findings[0].code, "rate-limited");
        spec.offered_bits_per_s = Some(1e6);
        assert_eq!(admit(spec, &limits).expect("slow already").1, Vec::new());
    }

    #[test]
    fn whatever_is_admitted_is_within_bounds() {
        type Numbers = (u32, f64, f64, f64, u64, Option<u64>, Option<f64>);
        bolero::check!().with_type::<Numbers>().for_each(|numbers| {
            let (streams, duration_s, omit_s, interval_s, bytes, block_bytes, offered) = *numbers;
            let mut spec = TestSpec::tcp();
            spec.streams = streams % 2000;
            spec.limit = if bytes % 2 == 0 {
                TestLimit::DurationS(duration_s)
            } else {
                TestLimit::TotalBytes(bytes)
            };
            (spec.omit_s, spec.interval_s) = (omit_s, interval_s);
            (spec.block_bytes, spec.offered_bits_per_s) = (block_bytes, offered);
            let limits = Limits { rate_bits_per_s_max: Some(1e9), ..Limits::default() };
            let Ok((spec, _)) = admit(spec, &limits) else { return };
            assert!((1..=limits.streams_max).contains(&spec.streams));
            assert!(spec.interval_s >= 0.05 && spec.omit_s >= 0.0);
            assert!(spec.block_bytes.unwrap_or(1) <= BLOCK_BYTES_MAX);
            let offered = spec.offered_bits_per_s.expect("limited");
            assert!(offered * f64::from(spec.streams) <= 1e9 * 1.000_001);
            if let TestLimit::DurationS(duration_s) = spec.limit {
                assert!(duration_s + spec.omit_s <= 3600.0);
            }
        });
    }
}
