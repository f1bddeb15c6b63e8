//! What a stock `iperf3 -J` wrote, as a results document of one point.

#[cfg(test)]
mod recorded_files;
mod samples;
mod tcp;
mod udp;

use results::{
    Absent, Direction, DirectionOutcome, EndReport, Host, HostAccount, HostFacts, LatencySummary,
    PathFacts, Point, Protocol, Results, RunKind, StreamEnd, TestLimit, TestOutcome, TestSpec,
    ToolFacts, Work,
};
use serde_json::Value;

use samples::Samples;

/// Streams and intervals taken from a file at most.
const STREAMS_MAX: usize = 1024;
const INTERVALS_MAX: usize = 1_000_000;

/// Most memory for the values of a file, bytes: about 500 000 rows of a stream and interval.
const MEMORY_BYTES_MAX: u64 = 1 << 30;

/// So much of the beginning is looked at to know the format, bytes.
const HEAD_BYTES: usize = 4096;

/// Bytes per write and read of TCP unless `-l` asks for others.
const USUAL_BLOCK_BYTES: u64 = 128 << 10;

/// What its files leave open.
const ABSENT_OF_TCP: [&str; 3] = [
    "threads, cores and counters of both ends",
    "time limited by window and buffer, and data in flight (taken as throughput x round trip)",
    "several streams and UDP for comparison",
];
const ABSENT_OF_UDP: [&str; 2] =
    ["threads, cores and counters of both ends", "the place where datagrams were lost"];
/// What a test with `-R` leaves open: the client prints its own side, which receives.
const ABSENT_OF_REVERSE: (&str, &str) = (
    "the sender's round trips, congestion window and the window it is granted",
    "iperf3 -R prints the receiving client's side: test from the other host without -R, or start the server with \
     -J and add --get-server-output",
);

/// What a UDP test with `-O` leaves open before 3.10.
const ABSENT_OF_OMITTED_START: (&str, &str) = (
    "the loss after the omitted start",
    "iperf3 before 3.10 counts the losses of the omitted start too: the share of the whole test is shown",
);

/// The document, when the bytes are iperf3's JSON of a TCP or UDP test that ended; `None` for anything
/// else. What iperf3 does not tell (the far host, its cores) is absent in it.
#[must_use]
pub fn from_iperf3(bytes: &[u8]) -> Option<Results> {
    if !begins_as_iperf3(bytes) || memory_bytes(bytes) > MEMORY_BYTES_MAX {
        return None;
    }
    let whole: Value = serde_json::from_slice(bytes).ok()?;
    let (start, end) = (whole.get("start")?, whole.get("end")?);
    let test = start.get("test_start")?;
    let (spec, outcome) = match text(test, "protocol")? {
        "TCP" => tcp(&whole, start, test, end)?,
        "UDP" => udp::read(&whole, start, test)?,
        _ => return None,
    };
    Some(document(&whole, start, spec, outcome))
}

/// Why the JSON of iperf3 is no test that can be read; `None` for bytes that do not begin as iperf3's do.
#[must_use]
pub fn damage_of_iperf3(bytes: &[u8]) -> Option<String> {
    let head = &bytes[..bytes.len().min(HEAD_BYTES)];
    if !begins_as_iperf3(bytes) || !String::from_utf8_lossy(head).contains("\"iperf 3") {
        return None;
    }
    if memory_bytes(bytes) > MEMORY_BYTES_MAX {
        let most = units::show_byte_size(MEMORY_BYTES_MAX);
        return Some(format!("the output of iperf3 has too many values to be read in {most}"));
    }
    let whole: Value = match serde_json::from_slice(bytes) {
        Ok(whole) => whole,
        // A cut inside a number is no end-of-file error to the parser.
        Err(error) if error.is_eof() || !bytes.trim_ascii_end().ends_with(b"}") => {
            let (length, line) = (bytes.len(), error.line());
            return Some(format!(
                "the output of iperf3 is truncated at byte {length}, in line {line}"
            ));
        }
        Err(error) => return Some(format!("the output of iperf3 is damaged: {error}")),
    };
    Some(match text(&whole, "error") {
        Some(error) => format!("iperf3 did not finish the test: {error}"),
        None => "the output of iperf3 lacks the sums of a TCP or UDP test that ended".to_owned(),
    })
}

/// About how much memory the values of this JSON take once it is parsed.
fn memory_bytes(json: &[u8]) -> u64 {
    // What serde_json allocates: a node of a map, the room of a short list, a value and its name.
    let cost_bytes = |byte: &u8| match byte {
        b'{' => 640,
        b'[' => 128,
        b',' => 64,
        _ => 0,
    };
    json.iter().map(cost_bytes).sum()
}

fn begins_as_iperf3(bytes: &[u8]) -> bool {
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(HEAD_BYTES)]);
    // A document of our own names its schema long before it could be mistaken.
    !head.contains("\"schema_version\"") && head.contains("\"start\"")
}

fn tcp(whole: &Value, start: &Value, test: &Value, end: &Value) -> Option<(TestSpec, TestOutcome)> {
    let spec = spec_of(start, test);
    let is_reverse = spec.direction == Direction::Reverse;
    let rows = end.get("streams")?.as_array()?;
    let each = || rows.iter().take(STREAMS_MAX).enumerate();
    // The client's rows are its own. With -R those of the sender are in the server's output, if that is there.
    let of_sender = if is_reverse { whole.get("server_output_json") } else { Some(whole) };
    let mut samples = of_sender.map(tcp::samples).unwrap_or_default();
    let senders: Vec<StreamEnd> = each()
        .filter_map(|(index, stream)| tcp::sender(whole, of_sender, &mut samples, stream, index))
        .collect();
    let mut samples = if is_reverse { tcp::samples(whole) } else { Samples::default() };
    let receivers: Vec<StreamEnd> = each()
        .filter(|_| is_reverse)
        .filter_map(|(index, stream)| tcp::receiver(whole, &mut samples, stream, index))
        .collect();
    let outcome = outcome_of(end, spec.direction, senders, receivers)?;
    Some((spec, outcome))
}

fn spec_of(start: &Value, test: &Value) -> TestSpec {
    let is_set = |name: &str| number(test, name).is_some_and(|value| value > 0.0);
    let direction = match (is_set("bidir"), is_set("reverse")) {
        (true, _) => Direction::Bidirectional,
        (false, true) => Direction::Reverse,
        (false, false) => Direction::Forward,
    };
    let positive = |value: Option<f64>| value.filter(|value| *value > 0.0);
    let whole = |value: Option<f64>| positive(value).map(units::saturating_u64);
    TestSpec {
        direction,
        streams: whole(number(test, "num_streams"))
            .and_then(|n| u32::try_from(n).ok())
            .unwrap_or(1),
        limit: match (whole(number(test, "bytes")), whole(number(test, "blocks"))) {
            (Some(bytes), _) => TestLimit::TotalBytes(bytes),
            (None, Some(blocks)) => TestLimit::TotalBlocks(blocks),
            (None, None) => {
                TestLimit::DurationS(positive(number(test, "duration")).unwrap_or(10.0))
            }
        },
        // Of UDP it is the datagram.
        block_bytes: whole(number(test, "blksize"))
            .filter(|bytes| *bytes != USUAL_BLOCK_BYTES && text(test, "protocol") == Some("TCP")),
        // Written in place of `tcp_mss_default` where it was asked for.
        mss_bytes: whole(number(start, "tcp_mss")).and_then(|mss| u32::try_from(mss).ok()),
        dscp: whole(number(test, "tos")).and_then(|tos| u8::try_from(tos >> 2).ok()),
        omit_s: number(test, "omit").unwrap_or(0.0).max(0.0),
        window_bytes: whole(number(start, "sock_bufsize")),
        offered_bits_per_s: positive(
            number(start, "target_bitrate").or(number(test, "target_bitrate")),
        ),
        pacing_bits_per_s: positive(number(start, "fq_rate").or(number(test, "fqrate"))),
        ..TestSpec::tcp()
    }
}

fn outcome_of(
    end: &Value,
    direction: Direction,
    senders: Vec<StreamEnd>,
    receivers: Vec<StreamEnd>,
) -> Option<TestOutcome> {
    let (sent, received) = (end.get("sum_sent")?, end.get("sum_received")?);
    let duration_s = number(sent, "seconds")?;
    let used = |user: &str, system: &str| cpu_s(end, user, system, duration_s);
    let sends_here = direction != Direction::Reverse;
    let (here, there) = if sends_here { (senders, receivers) } else { (receivers, senders) };
    let report =
        |streams, process_cpu_s| EndReport { streams, process_cpu_s, ..EndReport::default() };
    let near = report(here, used("host_user", "host_system"));
    let far = report(there, used("remote_user", "remote_system"));
    let told = !far.streams.is_empty() || far.process_cpu_s.is_some();
    Some(TestOutcome {
        duration_s,
        directions: vec![DirectionOutcome {
            direction: if sends_here { Direction::Forward } else { Direction::Reverse },
            sent_bytes: number(sent, "bytes").map_or(0, units::saturating_u64),
            received_bytes: number(received, "bytes").map_or(0, units::saturating_u64),
            sent_bits_per_s: number(sent, "bits_per_second")?,
            received_bits_per_s: number(received, "bits_per_second")?,
            retransmits_count: number(sent, "retransmits").map(units::saturating_u64),
            udp: None,
        }],
        hosts: HostAccount::of_ends(near, told.then_some(far)),
        ..TestOutcome::default()
    })
}

/// Processor time of one end's process, user and system, seconds.
fn cpu_s(end: &Value, user: &str, system: &str, duration_s: f64) -> Option<(f64, f64)> {
    let cpu = end.get("cpu_utilization_percent")?;
    let share = |name: &str| Some(number(cpu, name)? / 100.0 * duration_s);
    Some((share(user)?, share(system)?))
}

fn document(whole: &Value, start: &Value, spec: TestSpec, outcome: TestOutcome) -> Results {
    let to = start.get("connecting_to");
    let target = to.and_then(|to| text(to, "host")).unwrap_or("?").to_owned();
    let connected = start.get("connected").and_then(|all| all.get(0));
    let address = connected.and_then(|one| text(one, "remote_host")).map(str::to_owned);
    // iperf3 keeps the lowest round trip of each stream, not a distribution.
    let idle_rtt: Option<LatencySummary> = None;
    let absent = |what: &str| Absent {
        what: what.to_owned(),
        why: "not recorded by a stock iperf3, but by clearstream test and path".to_owned(),
    };
    let version = text(start, "version").unwrap_or("iperf3").to_owned();
    let system = text(start, "system_info").unwrap_or_default();
    let started_s = start.get("timestamp").and_then(|time| number(time, "timesecs")).unwrap_or(0.0);
    let started_unix_ms = units::saturating_u64(started_s * 1e3);
    let lacks_sender = spec.direction == Direction::Reverse
        && matches!(spec.protocol, Protocol::Tcp)
        && whole.get("server_output_json").is_none();
    let (what, why) = ABSENT_OF_REVERSE;
    let of_sender = lacks_sender.then(|| Absent { what: what.to_owned(), why: why.to_owned() });
    let work_spec = spec.clone();
    let work = Work::from(spec);
    let (experiment, unseen) = match work {
        Work::Datagrams(_) => ("udp", &ABSENT_OF_UDP[..]),
        _ => ("single-stream", &ABSENT_OF_TCP[..]),
    };
    let point = Point {
        started_unix_ms,
        command: text(whole, "title").unwrap_or_default().to_owned(),
        ..Point::new(experiment, work, outcome.with_figures())
    };
    let (what, why) = ABSENT_OF_OMITTED_START;
    let shares_losses = udp::counts_omitted_start(start, &work_spec)
        && whole.get("end").is_some_and(|end| end.get("sum_received").is_none());
    let of_start = shares_losses.then(|| Absent { what: what.to_owned(), why: why.to_owned() });
    let mut words = system.split_whitespace();
    Results {
        tool: ToolFacts { name: "iperf3".to_owned(), version },
        hosts: vec![Host::near(HostFacts {
            name: words.nth(1).unwrap_or_default().to_owned(),
            kernel: words.next().unwrap_or_default().to_owned(),
            ..HostFacts::default()
        })],
        path: PathFacts { target, address, idle_rtt, ..PathFacts::default() },
        points: vec![point],
        absent: of_sender
            .into_iter()
            .chain(of_start)
            .chain(unseen.iter().copied().map(absent))
            .collect(),
        ..Results::begun(RunKind::Test, started_unix_ms)
    }
}

fn number(object: &Value, name: &str) -> Option<f64> {
    object.get(name)?.as_f64().filter(|value| value.is_finite())
}

fn text<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object.get(name)?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"{"start":{"connected":[{"socket":5,"remote_host":"10.0.0.2"}],"version":"iperf 3.12",
        "system_info":"Linux amsterdam 6.1.0 #1","timestamp":{"timesecs":1700000000},"connecting_to":{"host":"geneva","port":5201},
        "tcp_mss_default":8948,"sock_bufsize":0,"test_start":{"protocol":"TCP","num_streams":1,"duration":3,"omit":0,"reverse":0}},
        "intervals":[{"streams":[{"socket":5,"start":0,"end":1,"bytes":1000000,"retransmits":0,"snd_cwnd":900000,"snd_wnd":64000,"rtt":10000,"rttvar":5,"omitted":false}]}],
        "end":{"streams":[{"sender":{"socket":5,"bytes":1000000,"seconds":1}}],
        "sum_sent":{"seconds":1,"bytes":1000000,"bits_per_second":8000000,"retransmits":0},
        "sum_received":{"seconds":1,"bytes":1000000,"bits_per_second":8000000},
        "cpu_utilization_percent":{"host_user":1,"host_system":4,"remote_user":0.5,"remote_system":6},"sender_tcp_congestion":"cubic"}}"#;

    #[test]
    fn a_stock_file_becomes_one_point() {
        let results = from_iperf3(SMALL.as_bytes()).expect("iperf3's");
        assert_eq!(
            (results.near().name.as_str(), results.path.target.as_str()),
            ("amsterdam", "geneva")
        );
        let outcome = results.points[0].measured().expect("measured");
        let stream = &outcome.near().streams[0];
        assert_eq!((stream.bytes, stream.intervals.len()), (1_000_000, 1));
        let tcp = stream.tcp.as_ref().expect("sampled");
        assert_eq!((tcp.mss_bytes, tcp.congestion_control.as_str()), (8948, "cubic"));
        assert_eq!(tcp.last.peer_window_bytes, Some(64_000));
        assert_eq!(outcome.near().process_cpu_s, Some((0.01, 0.04)));
        assert!(results.absent.len() >= 3);
    }

    #[test]
    fn a_cut_or_unfinished_file_says_what_is_damaged() {
        for length in 240..SMALL.len() {
            let cut = &SMALL.as_bytes()[..length];
            assert!(from_iperf3(cut).is_none(), "{length}");
            let damage = damage_of_iperf3(cut).expect("iperf3's");
            assert!(damage.contains(&format!("truncated at byte {length}")), "{damage}");
        }
        let damage = |from: &str, to: &str| {
            let changed = SMALL.replace(from, to);
            assert!(from_iperf3(changed.as_bytes()).is_none(), "{changed}");
            damage_of_iperf3(changed.as_bytes()).expect("iperf3's")
        };
        assert!(damage("\"end\":{", "\"end\":{{").contains("damaged: "));
        let interrupted = damage("\"sum_sent\"", "\"error\"");
        assert!(interrupted.contains("lacks the sums"), "{interrupted}");
        let interrupted = damage("\"end\":{", "\"error\":\"interrupted\",\"over\":{");
        assert!(interrupted.ends_with("did not finish the test: interrupted"), "{interrupted}");
    }

    #[test]
    fn more_values_than_there_is_memory_for_are_not_parsed() {
        let zeros = MEMORY_BYTES_MAX as usize / 64 + 1;
        let many = SMALL.replace(
            "\"intervals\":[",
            &format!("\"x\":[0{}],\"intervals\":[", ",0".repeat(zeros)),
        );
        assert!(from_iperf3(many.as_bytes()).is_none());
        let damage = damage_of_iperf3(many.as_bytes()).expect("iperf3's");
        assert!(damage.contains("too many values"), "{damage}");
        let row = memory_bytes(SMALL.as_bytes());
        assert!((1000..20_000).contains(&row), "{row}");
    }

    #[test]
    fn anything_else_is_not_iperf3s() {
        assert!(from_iperf3(b"{\"schema_version\":\"1.0\",\"start\":1}").is_none());
        assert!(from_iperf3(SMALL.replace("TCP", "SCTP").as_bytes()).is_none());
        bolero::check!().for_each(|bytes: &[u8]| {
            let _harmless = (from_iperf3(bytes), damage_of_iperf3(bytes));
        });
        // Figures of any size, or missing.
        bolero::check!().with_type::<(u16, i64)>().for_each(|(at, value)| {
            let digits: Vec<usize> = SMALL
                .char_indices()
                .filter(|(_, c)| c.is_ascii_digit())
                .map(|(at, _)| at)
                .collect();
            let at = digits[usize::from(*at) % digits.len()];
            let changed = format!("{}{value}{}", &SMALL[..at], &SMALL[at + 1..]);
            if let Some(results) = from_iperf3(changed.as_bytes()) {
                assert!(!explain::explain(&results).summary.is_empty());
            }
        });
    }
}
