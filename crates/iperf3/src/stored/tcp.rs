//! The ends of one TCP stream in iperf3's JSON.

use results::{IntervalSample, StreamEnd, TcpSample, TcpSummary};
use serde_json::Value;

use super::samples::Samples;
use super::{number, text};

/// The sender's side of the stream `stream` of `whole`. Its samples are in `of_sender`, the output of the end that sent;
/// without them its totals remain.
pub(super) fn sender(
    whole: &Value,
    of_sender: Option<&Value>,
    samples: &mut Samples,
    stream: &Value,
    index: usize,
) -> Option<StreamEnd> {
    let sender = stream.get("sender")?;
    let mut intervals = samples.take(index);
    accumulate_retransmits(&mut intervals);
    let rtt_min_s = of_sender.and_then(|output| rtt_min_s(output, index));
    for tcp in intervals.iter_mut().filter_map(|interval| interval.tcp.as_mut()) {
        tcp.rtt_min_s = rtt_min_s;
    }
    let sampled = intervals.last().and_then(|interval| interval.tcp.clone());
    let counted = number(sender, "retransmits").map(units::saturating_u64);
    let retransmits_count =
        counted.or(sampled.as_ref().map(|tcp| tcp.retransmits_count)).unwrap_or(0);
    let end = whole.get("end");
    let algorithm = end.and_then(|end| text(end, "sender_tcp_congestion")).unwrap_or_default();
    let is_told = sampled.is_some() || counted.is_some() || !algorithm.is_empty();
    let last = TcpSample { retransmits_count, ..sampled.unwrap_or_default() };
    Some(StreamEnd {
        index: u32::try_from(index).ok()?,
        sending: true,
        bytes: units::saturating_u64(number(sender, "bytes")?),
        duration_s: number(sender, "seconds")?,
        send_buffer_bytes: of_sender.and_then(|output| buffer_of(output, "sndbuf_actual")),
        tcp: is_told.then(|| TcpSummary {
            congestion_control: algorithm.to_owned(),
            mss_bytes: mss_bytes(whole),
            first: TcpSample { rtt_s: last.rtt_s, ..TcpSample::default() },
            last,
            ..TcpSummary::default()
        }),
        intervals,
        ..StreamEnd::default()
    })
}

/// The receiver's side of a stream, where `whole` is the receiver's output.
pub(super) fn receiver(
    whole: &Value,
    samples: &mut Samples,
    stream: &Value,
    index: usize,
) -> Option<StreamEnd> {
    let receiver = stream.get("receiver")?;
    Some(StreamEnd {
        index: u32::try_from(index).ok()?,
        sending: false,
        bytes: units::saturating_u64(number(receiver, "bytes")?),
        duration_s: number(receiver, "seconds")?,
        receive_buffer_bytes: buffer_of(whole, "rcvbuf_actual"),
        intervals: samples.take(index),
        ..StreamEnd::default()
    })
}

/// The size of a socket buffer that was asked for. Of one that was not, the file has the size that it began with, from
/// which the kernel tunes it.
fn buffer_of(output: &Value, name: &str) -> Option<u64> {
    let start = output.get("start")?;
    number(start, "sock_bufsize").filter(|asked| *asked > 0.0)?;
    number(start, name).filter(|bytes| *bytes > 0.0).map(units::saturating_u64)
}

/// The lowest round trip of a stream: iperf3 keeps one for the whole test.
fn rtt_min_s(output: &Value, index: usize) -> Option<f64> {
    let sender = output.get("end")?.get("streams")?.get(index)?.get("sender")?;
    number(sender, "min_rtt").filter(|us| *us > 0.0).map(|us| us * 1e-6)
}

fn mss_bytes(whole: &Value) -> u32 {
    let start = whole.get("start");
    let mss = start.and_then(|start| number(start, "tcp_mss").or(number(start, "tcp_mss_default")));
    mss.and_then(|mss| u32::try_from(units::saturating_u64(mss)).ok()).unwrap_or(0)
}

/// The samples of the streams, each found by its socket's number at the end that wrote `output`.
pub(super) fn samples(output: &Value) -> Samples {
    let connected = output.get("start").and_then(|start| start.get("connected")?.as_array());
    let sockets = connected.into_iter().flatten().map(|one| number(one, "socket"));
    Samples::of(output, sockets, interval_of)
}

fn interval_of(row: &Value) -> Option<IntervalSample> {
    let micros = |name: &str| number(row, name).filter(|us| *us > 0.0).map(|us| us * 1e-6);
    let bytes =
        |name: &str| number(row, name).filter(|bytes| *bytes > 0.0).map(units::saturating_u64);
    let (start_s, end_s) = (number(row, "start")?, number(row, "end")?);
    let moved_bytes = number(row, "bytes").filter(|_| end_s > start_s)?;
    let tcp = micros("rtt").map(|rtt_s| {
        let congestion_window_bytes = bytes("snd_cwnd");
        let peer_window_bytes = bytes("snd_wnd");
        // Little's law; no more than the windows let out.
        let in_flight = moved_bytes / (end_s - start_s) * rtt_s;
        let windows = [peer_window_bytes, congestion_window_bytes];
        let most = windows.into_iter().flatten().min().unwrap_or(u64::MAX);
        TcpSample {
            rtt_s,
            rtt_variation_s: micros("rttvar").unwrap_or(0.0),
            congestion_window_bytes: congestion_window_bytes.unwrap_or(0),
            peer_window_bytes,
            in_flight_bytes: units::saturating_u64(in_flight).min(most),
            retransmits_count: bytes("retransmits").unwrap_or(0),
            ..TcpSample::default()
        }
    });
    Some(IntervalSample {
        start_s,
        end_s,
        bytes: units::saturating_u64(moved_bytes),
        omitted: row.get("omitted").and_then(Value::as_bool).unwrap_or(false),
        tcp,
        ..IntervalSample::default()
    })
}

/// Makes of the retransmissions of each interval, as iperf3 counts them, those since the start, as a document has them.
fn accumulate_retransmits(intervals: &mut [IntervalSample]) {
    let mut sum: u64 = 0;
    for tcp in intervals.iter_mut().filter_map(|interval| interval.tcp.as_mut()) {
        sum = sum.saturating_add(tcp.retransmits_count);
        tcp.retransmits_count = sum;
    }
}

#[cfg(test)]
mod tests {
    use results::Results;
    use serde_json::{Value, json};

    use crate::stored::from_iperf3;

    /// Two intervals of 4.7 MB/s over 20 ms, of which the sender's output tells the TCP figures.
    fn intervals(socket: u32, is_sender: bool) -> Value {
        let row = |second: u32| {
            let mut row = json!({"socket": socket, "start": second, "end": second + 1, "bytes": 4_700_000,
                "omitted": false, "sender": is_sender});
            if is_sender {
                let told = json!({"rtt": 20_000, "rttvar": 10, "snd_cwnd": 337_000, "snd_wnd": 102_000, "retransmits": 8});
                row.as_object_mut()
                    .expect("a row")
                    .extend(told.as_object().expect("figures").clone());
            }
            json!({"streams": [row]})
        };
        json!([row(0), row(1)])
    }

    fn file(is_reverse: bool, asked_bytes: u64, server: Option<Value>) -> Value {
        let sum = json!({"seconds": 2, "bytes": 9_400_000, "bits_per_second": 37_600_000, "retransmits": 16});
        let side = |name: &str| {
            let bytes = if name == "sender" { 9_400_000 } else { 9_300_000 };
            json!({"socket": 5, "bytes": bytes, "seconds": 2, "retransmits": 16, "min_rtt": 19_000,
                "sender": !is_reverse})
        };
        let mut file = json!({
            "start": {"connected": [{"socket": 5, "remote_host": "10.0.0.2"}], "version": "iperf 3.12",
                "system_info": "Linux amsterdam 6.1.0", "timestamp": {"timesecs": 1_700_000_000},
                "connecting_to": {"host": "geneva", "port": 5201}, "tcp_mss_default": 1448, "sock_bufsize": asked_bytes,
                "sndbuf_actual": 131_072, "rcvbuf_actual": 131_072,
                "test_start": {"protocol": "TCP", "num_streams": 1, "blksize": 131_072, "omit": 0, "duration": 2,
                    "bytes": 0, "blocks": 0, "reverse": u8::from(is_reverse), "tos": 0}},
            "intervals": intervals(5, !is_reverse),
            "end": {"streams": [{"sender": side("sender"), "receiver": side("receiver")}], "sum_sent": sum,
                "sum_received": sum, "sender_tcp_congestion": "cubic",
                "cpu_utilization_percent": {"host_user": 0.1, "host_system": 0.2, "remote_user": 0.1, "remote_system": 0.3}}});
        if let (Some(output), Some(file)) = (server, file.as_object_mut()) {
            file.insert("server_output_json".to_owned(), output);
        }
        file
    }

    fn read(file: &Value) -> Results {
        from_iperf3(file.to_string().as_bytes()).expect("iperf3's")
    }

    #[test]
    fn a_full_window_is_told_from_the_sides_that_recorded_it() {
        let server = json!({"start": {"connected": [{"socket": 9}], "sock_bufsize": 65_536, "sndbuf_actual": 131_072},
            "intervals": intervals(9, true)});
        for (file, end) in
            [(file(false, 65_536, None), "far"), (file(true, 65_536, Some(server)), "near")]
        {
            let verdict = explain::explain(&read(&file));
            assert_eq!(verdict.limit.name(), "receive-window", "{verdict:#?}");
            assert!(verdict.summary.contains(&format!("at the {end} end")), "{}", verdict.summary);
            // What the host has is not known; the usual bound of 6 MiB is larger than this path needs.
            assert!(!verdict.advice.join("\n").contains("tcp_rmem"), "{:#?}", verdict.advice);
        }
    }

    #[test]
    fn a_reverse_file_tells_what_it_lacks_and_nothing_that_was_not_seen() {
        let results = read(&file(true, 0, None));
        let outcome = results.points[0].measured().expect("measured");
        let (near, far) = (&outcome.near().streams[0], &outcome.far().expect("told").streams[0]);
        assert_eq!((near.sending, near.bytes, near.intervals.len()), (false, 9_300_000, 2));
        assert_eq!((far.sending, far.bytes, far.intervals.len()), (true, 9_400_000, 0));
        // The client's buffers, before the kernel tuned them, are no limit of the server's.
        assert_eq!((far.send_buffer_bytes, near.receive_buffer_bytes), (None, None));
        let verdict = explain::explain(&results);
        assert_eq!(verdict.limit.name(), "none-found", "{verdict:#?}");
        assert!(verdict.summary.contains("the sender's round trips"), "{}", verdict.summary);
        let why = &results.absent[0].why;
        assert!(why.contains("--get-server-output"), "{why}");
        for line in &verdict.ruled_out {
            let text = &line.text;
            assert!(!text.contains("slept") && !text.contains("dropped anything"), "{line:?}");
            assert!(!text.contains("(0%)") && !text.contains("no window was full"), "{line:?}");
        }
        let loss = verdict.ruled_out.iter().find(|line| line.limit.name() == "loss");
        assert!(loss.expect("weighed").text.contains("16 retransmissions (0.246%)"), "{loss:?}");
    }

    #[test]
    fn a_queue_shows_against_the_lowest_round_trip_which_is_not_called_idle() {
        let mut file = file(false, 0, None);
        file["end"]["streams"][0]["sender"]["min_rtt"] = 9_000.into();
        for at in 0..2 {
            file["intervals"][at]["streams"][0]["snd_wnd"] = 1_000_000.into();
        }
        let verdict = explain::explain(&read(&file));
        assert_eq!(verdict.limit.name(), "shaper", "{verdict:#?}");
        let queue = "the stream's smoothed RTT 20.0 ms under load, lowest RTT 9.00 ms";
        assert!(verdict.summary.contains(queue), "{}", verdict.summary);
    }

    /// Sockets that several streams claim, and rows that come twice: no sample is told more than once.
    #[test]
    fn every_row_counts_once() {
        let mut file = file(false, 0, None);
        let rows = file["intervals"][0]["streams"].as_array_mut().expect("rows");
        rows.push(rows[0].clone());
        let again = |list: &mut Value| {
            let list = list.as_array_mut().expect("a list");
            list.extend(vec![list[0].clone(); 3]);
        };
        again(&mut file["start"]["connected"]);
        again(&mut file["end"]["streams"]);
        let results = read(&file);
        let streams = &results.points[0].measured().expect("measured").near().streams;
        let counts: Vec<usize> = streams.iter().map(|stream| stream.intervals.len()).collect();
        assert_eq!(counts, [2, 0, 0, 0]);
    }

    #[test]
    fn retransmissions_of_intervals_add_up() {
        let results = read(&file(false, 0, None));
        let sender = &results.points[0].measured().expect("measured").near().streams[0];
        let counts: Vec<u64> = sender
            .intervals
            .iter()
            .filter_map(|interval| Some(interval.tcp.as_ref()?.retransmits_count))
            .collect();
        assert_eq!(counts, [8, 16]);
        assert_eq!(sender.tcp.as_ref().expect("sampled").last.retransmits_count, 16);
        let first = sender.intervals[0].tcp.as_ref().expect("sampled");
        assert_eq!((first.in_flight_bytes, first.rtt_min_s), (94_000, Some(0.019)));
    }
}
