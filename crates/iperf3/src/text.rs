//! What iperf3 prints for people.

use super::account::{
    DirectionSummary, Interval, Setup, Side, StreamInterval, StreamLabel, StreamSummary, Summary,
};
use super::figures::{amount, general};
use super::options::Options;
use super::sink::{Agreement, Ending, Output, Sink, host_of};
use super::wire::{CpuPercent, ServerOutput, Transport};

const SEPARATOR: &str = "- - - - - - - - - - - - - - - - - - - - - - - - -";
const RULE: &str = "-----------------------------------------------------------";

/// Prints a run the way `iperf3` without `-J` does.
#[derive(Debug)]
pub struct TextReport {
    output: Output,
    verbose: bool,
    format: char,
    side: Side,
    setup: Option<Setup>,
    labels: Vec<StreamLabel>,
}

impl TextReport {
    /// Begins a report; with `-V` the version comes first.
    #[must_use]
    pub fn new(output: Output, options: &Options, side: Side) -> Self {
        let mut report = Self {
            output,
            verbose: options.verbose,
            format: options.format,
            side,
            setup: None,
            labels: Vec::new(),
        };
        if report.verbose {
            report.output.line(&super::version_line());
            report.output.line(&super::system_line());
        }
        report
    }

    /// Where the lines go.
    pub fn output(&mut self) -> &mut Output {
        &mut self.output
    }

    fn separator(&mut self) {
        self.output.line(SEPARATOR);
    }

    fn interval_header(&mut self, setup: &Setup) {
        let role = if setup.asked.bidirectional { "[Role]" } else { "" };
        let columns = match (setup.asked.transport, setup.sends(), setup.receives()) {
            (Transport::Udp, true, false) => "Total Datagrams",
            (Transport::Udp, ..) => "Jitter    Lost/Total Datagrams",
            (_, true, _) => "Retr  Cwnd",
            // iperf3's client announces these columns also where it only receives.
            _ if self.side == Side::Client => "Retr  Cwnd",
            _ => "",
        };
        self.header(role, columns);
    }

    fn summary_header(&mut self, setup: &Setup, summary: &Summary) {
        let role = if setup.asked.bidirectional { "[Role]" } else { "" };
        let retransmits = summary.directions.iter().any(|direction| direction.has_retransmits);
        let columns = match setup.asked.transport {
            Transport::Udp => "Jitter    Lost/Total Datagrams",
            _ if retransmits => "Retr",
            _ => "",
        };
        self.header(role, columns);
    }

    fn header(&mut self, role: &str, columns: &str) {
        let line = format!("[ ID]{role} Interval           Transfer     Bitrate         {columns}");
        self.output.line(line.trim_end());
    }

    /// `[  5][TX-C]   0.00-1.00   sec  1.25 GBytes  10.7 Gbits/sec`: how every figure begins.
    fn span(&self, who: &str, role: &str, start_s: f64, end_s: f64, bytes: u64) -> String {
        let length_s = end_s - start_s;
        let per_s = if length_s > 0.0 { bytes as f64 / length_s } else { 0.0 };
        format!(
            "[{who:>3}]{role} {start_s:6.2}-{end_s:<6.2} sec  {}s  {}s/sec",
            amount(bytes as f64, 'A'),
            amount(per_s, self.format),
        )
    }

    fn role(&self, setup: &Setup, sending: bool) -> String {
        if !setup.asked.bidirectional {
            return String::new();
        }
        let way = if sending { "TX" } else { "RX" };
        let side = if self.side == Side::Client { 'C' } else { 'S' };
        format!("[{way}-{side}]")
    }

    fn interval_line(
        &mut self,
        setup: &Setup,
        who: &str,
        interval: &Interval,
        row: &StreamInterval,
    ) {
        let role = self.role(setup, row.sending);
        let span = self.span(who, &role, interval.start_s, interval.end_s, row.bytes);
        let omitted = if interval.omitted { "(omitted)" } else { "" };
        let line = match (setup.asked.transport, row.tcp) {
            (Transport::Udp, _) if row.sending => {
                let gap = if role.is_empty() { "" } else { "          " };
                format!("{span} {gap} {}  {omitted}", row.packets)
            }
            (Transport::Udp, _) => {
                format!("{span}  {}  {omitted}", datagrams(row.jitter_s, row.lost, row.packets))
            }
            (_, Some(tcp)) if who == "SUM" => {
                format!("{span}  {:3}             {omitted}", tcp.retransmits)
            }
            (_, Some(tcp)) => format!(
                "{span}  {:3}   {}s       {omitted}",
                tcp.retransmits,
                amount(tcp.congestion_window_bytes as f64, 'A'),
            ),
            (_, None) => format!("{span}                  {omitted}"),
        };
        self.output.line(&line);
    }

    fn direction(&mut self, setup: &Setup, direction: &DirectionSummary) {
        for stream in &direction.streams {
            let socket = self.labels.get(stream.position).map_or(0, StreamLabel::socket);
            self.summary_lines(setup, direction, &socket.to_string(), stream);
        }
        if setup.streams() > 1 {
            self.summary_lines(setup, direction, "SUM", &sum(&direction.streams));
        }
    }

    /// The sender's and the receiver's line; a server has only its own.
    fn summary_lines(
        &mut self,
        setup: &Setup,
        direction: &DirectionSummary,
        who: &str,
        stream: &StreamSummary,
    ) {
        let role = self.role(setup, direction.sending);
        let client = self.side == Side::Client;
        if client || direction.sending {
            let span = self.span(who, &role, 0.0, direction.sender_s, stream.sent_bytes);
            let figures = match setup.asked.transport {
                Transport::Udp => format!("  {}  ", datagrams(0.0, 0, stream.sender_packets)),
                _ if direction.has_retransmits => {
                    format!("  {:3}             ", stream.retransmits)
                }
                _ => " ".repeat(18),
            };
            self.output.line(&format!("{span}{figures}sender"));
        } else if self.verbose {
            self.output.line(&format!("[{who:>3}] (sender statistics not available)"));
        }
        if who != "SUM" && stream.out_of_order > 0 {
            let (end_s, count) = (direction.sender_s, stream.out_of_order);
            self.output.line(&format!(
                "[SUM]{role}  0.0-{end_s:4.1} sec  {count} datagrams received out-of-order"
            ));
        }
        if client || !direction.sending {
            let span = self.span(who, &role, 0.0, direction.receiver_s, stream.received_bytes);
            let figures = match setup.asked.transport {
                Transport::Udp => format!(
                    "  {}  ",
                    datagrams(stream.jitter_s, stream.lost, stream.receiver_packets)
                ),
                _ => " ".repeat(18),
            };
            self.output.line(&format!("{span}{figures}receiver"));
        } else if self.verbose {
            self.output.line(&format!("[{who:>3}] (receiver statistics not available)"));
        }
    }

    /// `-V`: processor time and congestion control.
    fn verbose_tail(&mut self, setup: &Setup, summary: &Summary, direction: &DirectionSummary) {
        let cpu = |sending: bool| {
            let (here, there) =
                if sending { ("sender", "receiver") } else { ("receiver", "sender") };
            let figure = |cpu: CpuPercent| {
                format!("{:.1}% ({:.1}%u/{:.1}%s)", cpu.total, cpu.user, cpu.system)
            };
            format!(
                "CPU Utilization: local/{here} {}, remote/{there} {}",
                figure(summary.local_cpu),
                figure(summary.remote_cpu)
            )
        };
        if direction.sending {
            self.output.line(&cpu(true));
            if setup.asked.bidirectional {
                self.output.line(&cpu(false));
            }
        }
        if setup.is_tcp() {
            let (sender, receiver) = congestion(summary, direction.sending);
            if let Some(name) = sender {
                self.output.line(&format!("snd_tcp_congestion {name}"));
            }
            if let Some(name) = receiver {
                self.output.line(&format!("rcv_tcp_congestion {name}"));
            }
        }
    }

    fn server_output(&mut self, output: &ServerOutput) {
        self.output.line("");
        match output {
            ServerOutput::Text(text) => self.output.raw(&format!("Server output:\n{text}\n")),
            ServerOutput::Json(json) => {
                self.output.raw(&format!("Server JSON output:\n{}\n", json.pretty()));
            }
        }
    }
}

impl Sink for TextReport {
    fn listening(&mut self, port: u16, test_number: u64) {
        self.output.line(RULE);
        self.output.line(&format!("Server listening on {port} (test #{test_number})"));
        self.output.line(RULE);
        self.output.pause();
    }

    fn opened(&mut self, control_mss_bytes: u64) {
        if self.verbose {
            self.output.raw(&format!("Control connection MSS {control_mss_bytes}\n"));
        }
    }

    fn sized(&mut self, datagram_bytes: u64) {
        if self.verbose {
            self.output.raw(&format!("Setting UDP block size to {datagram_bytes}\n"));
        }
    }

    fn agreed(&mut self, agreement: &Agreement) {
        let asked = &agreement.setup.asked;
        if self.side == Side::Server && asked.get_server_output {
            self.output.keep();
        }
        if self.verbose {
            self.output.line(&format!("Time: {}", super::http_date(agreement.unix_ms)));
        }
        let (host, port) = (&agreement.peer_host, agreement.peer_port);
        if self.side == Side::Client {
            self.output.line(&format!("Connecting to host {host}, port {port}"));
            if asked.reverse {
                self.output.line(&format!("Reverse mode, remote host {host} is sending"));
            }
        } else {
            self.output.line(&format!("Accepted connection from {host}, port {port}"));
        }
        if self.verbose {
            self.output.line(&format!("      Cookie: {}", agreement.cookie.text()));
            match asked.mss_bytes {
                _ if asked.transport != Transport::Tcp => {}
                0 => {
                    let mss = agreement.control_mss_bytes;
                    self.output.line(&format!("      TCP MSS: {mss} (default)"));
                }
                mss => self.output.line(&format!("      TCP MSS: {mss}")),
            }
            if asked.rate_bits_per_s != 0 {
                self.output.line(&format!("      Target Bitrate: {}", asked.rate_bits_per_s));
            }
        }
        self.setup = Some(agreement.setup.clone());
        self.labels.clear();
    }

    fn stream(&mut self, label: &StreamLabel) {
        self.output.line(&format!(
            "[{:3}] local {} port {} connected to {} port {}",
            label.socket(),
            host_of(label.local),
            label.local.port(),
            host_of(label.remote),
            label.remote.port(),
        ));
        self.labels.push(label.clone());
    }

    fn started(&mut self) {
        let Some(setup) = self.setup.as_ref().filter(|_| self.verbose) else { return };
        let asked = &setup.asked;
        let amount = match (asked.total_bytes, asked.total_blocks) {
            (0, 0) => format!("{} second test", asked.duration_s),
            (0, blocks) => format!("{blocks} blocks to send"),
            (bytes, _) => format!("{bytes} bytes to send"),
        };
        let line = format!(
            "Starting Test: protocol: {}, {} streams, {} byte blocks, omitting {} seconds, {amount}, tos {}",
            asked.transport.name(),
            asked.streams,
            asked.block_bytes,
            asked.omit_s,
            asked.type_of_service,
        );
        self.output.line(&line);
    }

    fn interval(&mut self, interval: &Interval) {
        let Some(setup) = self.setup.clone() else { return };
        if interval.first {
            self.interval_header(&setup);
        } else if setup.streams() > 1 {
            self.separator();
        }
        let first = interval.streams.first().is_some_and(|row| row.sending);
        for sending in [first, !first] {
            let rows: Vec<_> =
                interval.streams.iter().filter(|row| row.sending == sending).collect();
            for row in &rows {
                let socket = self.labels.get(row.position).map_or(0, StreamLabel::socket);
                self.interval_line(&setup, &socket.to_string(), interval, row);
            }
            if rows.len() > 1 {
                self.interval_line(&setup, "SUM", interval, &interval_sum(&rows));
            }
        }
        self.output.pause();
    }

    fn finished(&mut self, summary: &Summary) {
        let Some(setup) = self.setup.clone() else { return };
        self.separator();
        if self.verbose {
            self.output.line("Test Complete. Summary Results:");
        }
        self.summary_header(&setup, summary);
        for direction in &summary.directions {
            self.direction(&setup, direction);
            if self.verbose {
                self.verbose_tail(&setup, summary, direction);
            }
        }
        if let Some(output) = &summary.server_output
            && setup.asked.get_server_output
        {
            self.server_output(output);
        }
    }

    fn ended(&mut self, how: Ending<'_>) {
        match how {
            Ending::Failed(text) => self.output.complain(&format!("error - {text}")),
            Ending::Cut(text) => self.output.complain(text),
            Ending::Well if self.side == Side::Client => {
                self.output.line("");
                self.output.line("iperf Done.");
            }
            Ending::Well => {}
        }
        self.output.take_kept();
        self.output.flush();
    }

    fn warning(&mut self, text: &str) {
        self.output.warn(text);
    }

    fn output(&self) -> Option<ServerOutput> {
        self.output.kept().map(|text| ServerOutput::Text(text.to_owned()))
    }
}

/// Congestion control of sender and receiver.
pub(super) fn congestion(summary: &Summary, sending: bool) -> (Option<&String>, Option<&String>) {
    let (local, remote) = (summary.local_congestion.as_ref(), summary.remote_congestion.as_ref());
    if sending { (local, remote) } else { (remote, local) }
}

/// The sum of streams that go one way; jitter is their mean.
pub(super) fn interval_sum(rows: &[&StreamInterval]) -> StreamInterval {
    let mut sum = StreamInterval::default();
    for row in rows {
        sum.sending = row.sending;
        sum.bytes += row.bytes;
        sum.packets += row.packets;
        sum.lost += row.lost;
        sum.jitter_s += row.jitter_s / rows.len() as f64;
        if let Some(tcp) = row.tcp {
            sum.tcp.get_or_insert_default().retransmits += tcp.retransmits;
        }
    }
    sum
}

/// The sum of streams over the whole test; jitter is their mean.
pub(super) fn sum(streams: &[StreamSummary]) -> StreamSummary {
    let mut sum = StreamSummary::default();
    for stream in streams {
        sum.sent_bytes += stream.sent_bytes;
        sum.received_bytes += stream.received_bytes;
        sum.retransmits += stream.retransmits;
        sum.sender_packets += stream.sender_packets;
        sum.receiver_packets += stream.receiver_packets;
        sum.lost += stream.lost;
        sum.jitter_s += stream.jitter_s / streams.len() as f64;
    }
    sum
}

/// Lost datagrams, percent.
pub(super) fn percent(lost: i64, packets: i64) -> f64 {
    if packets > 0 { 100.0 * lost as f64 / packets as f64 } else { 0.0 }
}

fn datagrams(jitter_s: f64, lost: i64, packets: i64) -> String {
    let percent = general(percent(lost, packets), 2);
    format!("{:5.3} ms  {lost}/{packets} ({percent}%)", jitter_s * 1e3)
}
