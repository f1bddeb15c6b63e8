//! What iperf3 prints for programs: `-J` and `--json-stream`, in 3.21's shape and key order.

use super::account::{
    DirectionSummary, Interval, Setup, Side, StreamInterval, StreamLabel, StreamSummary, Summary,
};
use super::options::Options;
use super::ordered::Json;
use super::sink::{Agreement, Buffers, Ending, Output, Sink, host_of};
use super::text::{congestion, interval_sum, percent, sum};
use super::wire::{ServerOutput, Transport};

/// Gathers a run into one document, printed at its end, or prints it event by event.
#[derive(Debug)]
pub struct JsonReport {
    output: Output,
    side: Side,
    stream: bool,
    full: bool,
    document: Document,
    setup: Option<Setup>,
    labels: Vec<StreamLabel>,
}

#[derive(Debug)]
struct Document {
    connected: Vec<Json>,
    start: Vec<(String, Json)>,
    intervals: Vec<Json>,
    end: Json,
    tail: Vec<(String, Json)>,
}

impl Document {
    fn new() -> Self {
        Self {
            connected: Vec::new(),
            start: vec![
                ("version".to_owned(), super::version_line().into()),
                ("system_info".to_owned(), super::system_line().into()),
            ],
            intervals: Vec::new(),
            end: Json::object([]),
            tail: Vec::new(),
        }
    }

    fn start(&self) -> Json {
        let mut start = vec![("connected".to_owned(), Json::Array(self.connected.clone()))];
        start.extend(self.start.iter().cloned());
        Json::Object(start)
    }

    fn whole(&self) -> Json {
        let mut whole = Json::object([
            ("start", self.start()),
            ("intervals", self.intervals.clone().into()),
            ("end", self.end.clone()),
        ]);
        for (key, value) in &self.tail {
            whole.push(key, value.clone());
        }
        whole
    }

    fn has(&self, key: &str) -> bool {
        self.start.iter().any(|(name, _)| name == key)
    }
}

impl JsonReport {
    /// Begins a document.
    #[must_use]
    pub fn new(output: Output, options: &Options, side: Side) -> Self {
        Self {
            output,
            side,
            stream: options.json_stream,
            full: options.json_stream_full || !options.json_stream,
            document: Document::new(),
            setup: None,
            labels: Vec::new(),
        }
    }

    /// Where the lines go.
    pub fn output(&mut self) -> &mut Output {
        &mut self.output
    }

    fn event(&mut self, name: &str, data: Json) {
        if self.stream {
            let event = Json::object([("event", name.into()), ("data", data)]);
            self.output.raw(&format!("{}\n", event.compact()));
            self.output.flush();
        }
    }

    fn keeps_intervals(&self) -> bool {
        let wanted = self.setup.as_ref().is_some_and(|setup| setup.asked.get_server_output);
        self.full || (self.side == Side::Server && wanted)
    }

    fn socket(&self, position: usize) -> Json {
        self.labels.get(position).map_or(0, StreamLabel::socket).into()
    }

    /// `sum`, or `sum_bidir_reverse` for what the server sends in a bidirectional test.
    fn name(&self, setup: &Setup, base: &str, sending: bool) -> String {
        let from_server = sending == (self.side == Side::Server);
        let suffix = if setup.asked.bidirectional && from_server { "_bidir_reverse" } else { "" };
        format!("{base}{suffix}")
    }

    fn summary_stream(&self, setup: &Setup, way: &DirectionSummary, row: &StreamSummary) -> Json {
        let socket = self.socket(row.position);
        let mut sender = Json::object([("socket", socket.clone())]);
        push_span(&mut sender, 0.0, way.sender_s, row.sent_bytes);
        if setup.asked.transport == Transport::Udp {
            let packets =
                if row.sender_packets > 0 { row.sender_packets } else { row.receiver_packets };
            sender.push("jitter_ms", row.jitter_s * 1e3);
            sender.push("lost_packets", row.lost);
            sender.push("packets", packets);
            sender.push("lost_percent", percent(row.lost, row.sender_packets));
            sender.push("out_of_order", row.out_of_order);
            sender.push("sender", way.sending);
            return Json::object([("udp", sender)]);
        }
        if way.has_retransmits {
            sender.push("retransmits", row.retransmits);
            sender.push("reorder", row.tcp.reordering);
            sender.push("max_snd_cwnd", row.tcp.congestion_window_bytes_max);
            sender.push("max_snd_wnd", row.tcp.peer_window_bytes_max);
            sender.push("max_rtt", row.tcp.rtt_us_max);
            sender.push("min_rtt", row.tcp.rtt_us_min);
            sender.push("mean_rtt", row.tcp.rtt_us_mean);
        }
        sender.push("sender", way.sending);
        let mut receiver = Json::object([("socket", socket)]);
        push_span(&mut receiver, 0.0, way.receiver_s, row.received_bytes);
        receiver.push("sender", way.sending);
        Json::object([("sender", sender), ("receiver", receiver)])
    }

    fn sums(&mut self, setup: &Setup, way: &DirectionSummary) {
        let total = sum(&way.streams);
        let span = |seconds, bytes| {
            let mut span = Json::object([]);
            push_span(&mut span, 0.0, seconds, bytes);
            span
        };
        let mut sent = span(way.sender_s, total.sent_bytes);
        let mut received = span(way.receiver_s, total.received_bytes);
        if setup.asked.transport == Transport::Udp {
            let packets = if total.sender_packets > 0 {
                total.sender_packets
            } else {
                total.receiver_packets
            };
            let mut both = span(way.receiver_s, total.sent_bytes);
            push_datagrams(&mut both, total.jitter_s, total.lost, packets, way.sending);
            push_datagrams(&mut sent, 0.0, 0, total.sender_packets, true);
            push_datagrams(
                &mut received,
                total.jitter_s,
                total.lost,
                total.receiver_packets,
                false,
            );
            self.document.end.push(&self.name(setup, "sum", way.sending), both);
        } else {
            if way.has_retransmits {
                sent.push("retransmits", total.retransmits);
            }
            sent.push("sender", way.sending);
            received.push("sender", way.sending);
        }
        self.document.end.push(&self.name(setup, "sum_sent", way.sending), sent);
        self.document.end.push(&self.name(setup, "sum_received", way.sending), received);
    }
}

impl Sink for JsonReport {
    fn agreed(&mut self, agreement: &Agreement) {
        let asked = &agreement.setup.asked;
        let unix_ms = agreement.unix_ms;
        let time = Json::object([
            ("time", super::http_date(unix_ms).into()),
            ("timesecs", (unix_ms / 1000).into()),
            ("timemillisecs", unix_ms.into()),
        ]);
        let peer = Json::object([
            ("host", agreement.peer_host.as_str().into()),
            ("port", u32::from(agreement.peer_port).into()),
        ]);
        let client = self.side == Side::Client;
        let mut facts = vec![
            ("timestamp", time),
            (if client { "connecting_to" } else { "accepted_connection" }, peer),
            ("cookie", agreement.cookie.text().into()),
        ];
        match (asked.transport, asked.mss_bytes) {
            (Transport::Tcp, 0) => {
                facts.push(("tcp_mss_default", agreement.control_mss_bytes.into()));
            }
            (Transport::Tcp, mss_bytes) => facts.push(("tcp_mss", mss_bytes.into())),
            _ => {}
        }
        facts.push(("target_bitrate", asked.rate_bits_per_s.into()));
        facts.push(("fq_rate", asked.pacing_bits_per_s.into()));
        let facts = facts.into_iter().map(|(key, value)| (key.to_owned(), value));
        self.document.start.extend(facts);
        self.setup = Some(agreement.setup.clone());
        self.labels.clear();
    }

    fn buffers(&mut self, buffers: Buffers) {
        if self.document.has("sock_bufsize") {
            return;
        }
        let tcp = self.setup.as_ref().is_some_and(Setup::is_tcp);
        // An iperf3 server knows the buffers of its TCP listener before it has a client.
        let early = self.document.start.iter().position(|(key, _)| key == "timestamp");
        let at = match early {
            Some(at) if tcp && self.side == Side::Server => at,
            _ => self.document.start.len(),
        };
        let facts = [
            ("sock_bufsize", buffers.asked_bytes),
            ("sndbuf_actual", buffers.send_bytes),
            ("rcvbuf_actual", buffers.receive_bytes),
        ];
        let facts = facts.map(|(key, bytes)| (key.to_owned(), bytes.into()));
        self.document.start.splice(at..at, facts);
    }

    fn stream(&mut self, label: &StreamLabel) {
        self.document.connected.push(Json::object([
            ("socket", label.socket().into()),
            ("local_host", host_of(label.local).into()),
            ("local_port", u32::from(label.local.port()).into()),
            ("remote_host", host_of(label.remote).into()),
            ("remote_port", u32::from(label.remote.port()).into()),
        ]));
        self.labels.push(label.clone());
    }

    fn started(&mut self) {
        let Some(setup) = &self.setup else { return };
        let asked = &setup.asked;
        let flag = |value: bool| i64::from(value).into();
        let test = Json::object([
            ("protocol", asked.transport.name().into()),
            ("num_streams", asked.streams.into()),
            ("blksize", asked.block_bytes.into()),
            ("omit", asked.omit_s.into()),
            ("duration", asked.duration_s.into()),
            ("bytes", asked.total_bytes.into()),
            ("blocks", asked.total_blocks.into()),
            ("reverse", flag(asked.reverse)),
            ("tos", asked.type_of_service.into()),
            ("target_bitrate", asked.rate_bits_per_s.into()),
            ("bidir", flag(asked.bidirectional)),
            ("fqrate", asked.pacing_bits_per_s.into()),
            ("interval", setup.interval_s.into()),
            ("gso", flag(asked.gsro)),
            ("gro", flag(asked.gsro)),
        ]);
        self.document.start.push(("test_start".to_owned(), test));
        self.event("start", self.document.start());
    }

    fn interval(&mut self, interval: &Interval) {
        let Some(setup) = self.setup.clone() else { return };
        let first = interval.streams.first().is_some_and(|row| row.sending);
        let mut streams = Vec::new();
        let mut sums = Vec::new();
        for sending in [first, !first] {
            let rows: Vec<_> =
                interval.streams.iter().filter(|row| row.sending == sending).collect();
            for row in &rows {
                let head = Json::object([("socket", self.socket(row.position))]);
                streams.push(interval_object(head, &setup, interval, row, true));
            }
            if !rows.is_empty() {
                let total = interval_sum(&rows);
                let sum = interval_object(Json::object([]), &setup, interval, &total, false);
                sums.push((self.name(&setup, "sum", sending), sum));
            }
        }
        let mut object = Json::object([("streams", streams.into())]);
        for (name, sum) in sums {
            object.push(&name, sum);
        }
        if self.keeps_intervals() {
            self.document.intervals.push(object.clone());
        }
        self.event("interval", object);
        self.output.pause();
    }

    fn finished(&mut self, summary: &Summary) {
        let Some(setup) = self.setup.clone() else { return };
        let streams: Vec<Json> = summary
            .directions
            .iter()
            .flat_map(|way| way.streams.iter().map(move |row| (way, row)))
            .map(|(way, row)| self.summary_stream(&setup, way, row))
            .collect();
        self.document.end.push("streams", streams);
        for way in &summary.directions {
            self.sums(&setup, way);
        }
        let (local, remote) = (summary.local_cpu, summary.remote_cpu);
        let cpu = Json::object([
            ("host_total", local.total.into()),
            ("host_user", local.user.into()),
            ("host_system", local.system.into()),
            ("remote_total", remote.total.into()),
            ("remote_user", remote.user.into()),
            ("remote_system", remote.system.into()),
        ]);
        self.document.end.push("cpu_utilization_percent", cpu);
        if setup.is_tcp() {
            let sending = summary.directions.last().is_some_and(|way| way.sending);
            let (sender, receiver) = congestion(summary, sending);
            if let Some(name) = sender {
                self.document.end.push("sender_tcp_congestion", name.as_str());
            }
            if let Some(name) = receiver {
                self.document.end.push("receiver_tcp_congestion", name.as_str());
            }
        }
        if setup.asked.get_server_output {
            let output = summary.server_output.as_ref().map(|output| match output {
                ServerOutput::Text(text) => ("server_output_text", text.as_str().into()),
                ServerOutput::Json(json) => ("server_output_json", json.clone()),
            });
            let output = output.map(|(key, value)| (key.to_owned(), value));
            self.document.tail.extend(output);
        }
    }

    fn ended(&mut self, how: Ending<'_>) {
        let mut tail = Vec::new();
        if let Ending::Cut(text) | Ending::Failed(text) = how {
            tail.push(("error".to_owned(), Json::from(text)));
        }
        let asked = self.setup.as_ref().map(|setup| &setup.asked);
        let texts = [
            ("title", asked.and_then(|asked| asked.title.clone())),
            ("extra_data", asked.and_then(|asked| asked.extra_data.clone())),
        ];
        for (key, text) in texts {
            tail.extend(text.map(|text| (key.to_owned(), text.into())));
        }
        tail.append(&mut self.document.tail);
        self.document.tail = tail;
        for (key, value) in self.document.tail.clone() {
            if key == "error" || key.starts_with("server_output") {
                self.event(&key, value);
            }
        }
        self.event("end", self.document.end.clone());
        if self.full {
            let text = self.document.whole().pretty();
            self.output.raw(&format!("{text}\n"));
        }
        self.output.flush();
        // A server's next client gets a document of its own.
        self.document = Document::new();
        self.setup = None;
        self.labels.clear();
    }

    fn warning(&mut self, text: &str) {
        self.output.warn(text);
    }

    fn output(&self) -> Option<ServerOutput> {
        let asked = self.setup.as_ref().is_some_and(|setup| setup.asked.get_server_output);
        (asked && self.side == Side::Server).then(|| ServerOutput::Json(self.document.whole()))
    }
}

/// One stream's (or the streams' summed) figures of one interval, behind `object`'s members.
fn interval_object(
    mut object: Json,
    setup: &Setup,
    interval: &Interval,
    row: &StreamInterval,
    single: bool,
) -> Json {
    push_span(&mut object, interval.start_s, interval.end_s, row.bytes);
    if setup.asked.transport == Transport::Udp {
        if !row.sending {
            object.push("jitter_ms", row.jitter_s * 1e3);
            object.push("lost_packets", row.lost);
        }
        object.push("packets", row.packets);
        if !row.sending {
            object.push("lost_percent", percent(row.lost, row.packets));
        }
    } else if let Some(tcp) = row.tcp {
        object.push("retransmits", tcp.retransmits);
        if single {
            object.push("snd_cwnd", tcp.congestion_window_bytes);
            object.push("snd_wnd", tcp.peer_window_bytes);
            object.push("rtt", tcp.rtt_us);
            object.push("rttvar", tcp.rtt_variation_us);
            object.push("pmtu", tcp.path_mtu_bytes);
            object.push("reorder", tcp.reordering);
        }
    }
    object.push("omitted", interval.omitted);
    object.push("sender", row.sending);
    object
}

fn push_span(object: &mut Json, start_s: f64, end_s: f64, bytes: u64) {
    let seconds = end_s - start_s;
    object.push("start", start_s);
    object.push("end", end_s);
    object.push("seconds", seconds);
    object.push("bytes", bytes);
    object.push("bits_per_second", if seconds > 0.0 { bytes as f64 * 8.0 / seconds } else { 0.0 });
}

fn push_datagrams(object: &mut Json, jitter_s: f64, lost: i64, packets: i64, sender: bool) {
    object.push("jitter_ms", jitter_s * 1e3);
    object.push("lost_packets", lost);
    object.push("packets", packets);
    object.push("lost_percent", percent(lost, packets));
    object.push("sender", sender);
}
