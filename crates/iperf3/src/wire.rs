//! iperf3's control protocol: the cookie, the states and the two JSON messages. Pure.
//!
//! The client opens a TCP connection and sends a [`Cookie`]; from then on the server leads with
//! single bytes ([`State`]) and the client answers. Two messages are JSON behind a four-byte
//! big-endian length: the client's [`Parameters`], and both ends' [`EndResults`]. Data connections
//! begin with the same cookie (TCP) or with [`UDP_HELLO`] and [`UDP_WELCOME`] (UDP).
//!
//! Reading is tolerant (any number form, unknown members, missing ones where iperf3 tolerates it)
//! and bounded: lengths are checked before anything is allocated.
//!
//! Source: esnet/iperf 3.12 and 3.21, `src/iperf_api.h` (states), `src/iperf.h` (UDP words).

use thiserror::Error;

use super::ordered::Json;

/// Length of a cookie on the wire: 36 characters and a NUL.
pub const COOKIE_BYTES: usize = 37;

/// Longest parameter message we read; stock servers stop at 8 KiB.
pub const PARAMETERS_BYTES_MAX: u32 = 64 * 1024;

/// Longest results message a server reads from a client with this many streams: twice what they
/// need, and as much again as a congestion control's name and what later releases may add.
#[must_use]
pub fn results_bytes_max(streams_count: usize) -> u32 {
    u32::try_from(streams_count).unwrap_or(u32::MAX).saturating_mul(512).saturating_add(64 << 10)
}

/// Longest results message a client reads: it may carry the server's whole output.
pub const SERVER_RESULTS_BYTES_MAX: u32 = 64 << 20;

/// First datagram of a UDP stream, client to server.
pub const UDP_HELLO: [u8; 4] = *b"9876";

/// The server's answer.
pub const UDP_WELCOME: [u8; 4] = *b"6789";

/// The hello of clients before 3.10 (123456789, little-endian).
pub const UDP_HELLO_LEGACY: [u8; 4] = 123_456_789_u32.to_le_bytes();

/// The answer of servers before 3.10 (987654321, little-endian).
pub const UDP_WELCOME_LEGACY: [u8; 4] = 987_654_321_u32.to_le_bytes();

/// What a peer sent that iperf3 would not have.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WireError {
    /// A length of nothing or beyond the bound.
    #[error("a JSON message of {length_bytes} bytes was announced; at most {max_bytes} are read")]
    Length {
        /// Announced.
        length_bytes: u32,
        /// Bound.
        max_bytes: u32,
    },
    /// Not JSON.
    #[error("the message is not JSON")]
    NotJson(#[source] serde_json::Error),
    /// A member that must be there is not, or is of another kind.
    #[error("the message has no usable '{0}'")]
    Missing(&'static str),
}

/// Names one test; every connection of it begins with this.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Cookie(pub [u8; COOKIE_BYTES]);

impl Cookie {
    /// A cookie of these random bytes, in iperf3's alphabet (base 32).
    #[must_use]
    pub fn from_random(random: [u8; COOKIE_BYTES - 1]) -> Self {
        const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
        let mut bytes = [0; COOKIE_BYTES];
        for (character, random) in bytes.iter_mut().zip(random) {
            *character = ALPHABET[usize::from(random % 32)];
        }
        Self(bytes)
    }

    /// Whether a client of iperf3 may have sent this: 36 letters or digits and a NUL. iperf3 itself
    /// uses its alphabet's letters only; other programs that speak its protocol use more.
    #[must_use]
    pub fn is_plausible(&self) -> bool {
        let [text @ .., last] = &self.0;
        *last == 0 && text.iter().all(u8::is_ascii_alphanumeric)
    }

    /// The printable part.
    #[must_use]
    pub fn text(&self) -> String {
        let end = self.0.iter().position(|&byte| byte == 0).unwrap_or(COOKIE_BYTES);
        String::from_utf8_lossy(&self.0[..end]).into_owned()
    }
}

impl std::fmt::Debug for Cookie {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Cookie({:?})", self.text())
    }
}

/// One byte on the control connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i8)]
pub enum State {
    /// Server: the streams are there.
    TestStart = 1,
    /// Server: go.
    TestRunning = 2,
    /// Client: enough.
    TestEnd = 4,
    /// Server: tell me the parameters.
    ParamExchange = 9,
    /// Server: connect the streams.
    CreateStreams = 10,
    /// Server: I was told to stop.
    ServerTerminate = 11,
    /// Client: I was told to stop.
    ClientTerminate = 12,
    /// Server: tell me your results.
    ExchangeResults = 13,
    /// Server: show them.
    DisplayResults = 14,
    /// Client: that was all.
    IperfDone = 16,
    /// Server: busy with somebody else.
    AccessDenied = -1,
    /// Server: it failed; two numbers follow ([`encode_server_error`]).
    ServerError = -2,
}

impl State {
    /// The byte on the wire.
    #[must_use]
    pub const fn byte(self) -> u8 {
        (self as i8).cast_unsigned()
    }

    /// The state a byte stands for.
    #[must_use]
    pub fn from_byte(byte: u8) -> Option<Self> {
        const ALL: [State; 12] = [
            State::TestStart,
            State::TestRunning,
            State::TestEnd,
            State::ParamExchange,
            State::CreateStreams,
            State::ServerTerminate,
            State::ClientTerminate,
            State::ExchangeResults,
            State::DisplayResults,
            State::IperfDone,
            State::AccessDenied,
            State::ServerError,
        ];
        ALL.into_iter().find(|state| state.byte() == byte)
    }
}

/// What follows [`State::ServerError`]: iperf3's number for what failed, and `errno`.
#[must_use]
pub fn encode_server_error(code: i32, errno: i32) -> [u8; 9] {
    let mut bytes = [State::ServerError.byte(); 9];
    bytes[1..5].copy_from_slice(&code.to_be_bytes());
    bytes[5..9].copy_from_slice(&errno.to_be_bytes());
    bytes
}

/// A JSON message as it goes over the wire.
#[must_use]
pub fn encode_message(message: &Json) -> Vec<u8> {
    let body = message.compact().into_bytes();
    // A message is built here and is far below 4 GiB.
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
    let mut bytes = length.to_be_bytes().to_vec();
    bytes.extend(body);
    bytes
}

/// The length of the message behind these four bytes.
///
/// # Errors
/// It is zero or beyond `max_bytes`.
pub fn message_length(header: [u8; 4], max_bytes: u32) -> Result<usize, WireError> {
    match u32::from_be_bytes(header) {
        length_bytes if length_bytes == 0 || length_bytes > max_bytes => {
            Err(WireError::Length { length_bytes, max_bytes })
        }
        length => Ok(usize::try_from(length).unwrap_or(usize::MAX)),
    }
}

/// What carries the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Transport {
    /// TCP, or MPTCP where asked for.
    #[default]
    Tcp,
    /// UDP.
    Udp,
    /// SCTP: known, never run.
    Sctp,
}

impl Transport {
    /// As iperf3 prints it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        }
    }
}

/// What the client asks for. Zero and empty mean "not given", as in iperf3.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Parameters {
    /// `tcp`, `udp` or `sctp`.
    pub transport: Transport,
    /// `-O`, seconds.
    pub omit_s: i64,
    /// The core the server shall use.
    pub server_core: Option<i64>,
    /// `-t`, seconds; 0 with `-n`, `-k` and for "until interrupted".
    pub duration_s: i64,
    /// `-n`.
    pub total_bytes: i64,
    /// `-k`.
    pub total_blocks: i64,
    /// `-M`, bytes.
    pub mss_bytes: i64,
    /// `-N`.
    pub nodelay: bool,
    /// `-P`.
    pub streams: i64,
    /// `-R`.
    pub reverse: bool,
    /// `--bidir`.
    pub bidirectional: bool,
    /// `-m`.
    pub mptcp: bool,
    /// `-w`, bytes.
    pub window_bytes: i64,
    /// `-l`, bytes.
    pub block_bytes: i64,
    /// `-b`, bit/s.
    pub rate_bits_per_s: i64,
    /// `--fq-rate`, bit/s.
    pub pacing_bits_per_s: i64,
    /// `--pacing-timer`, microseconds; obsolete.
    pub pacing_timer_us: i64,
    /// Packets per burst (`-b rate/burst`).
    pub burst_count: i64,
    /// `--gsro`: the server may segment and join datagrams.
    pub gsro: bool,
    /// `-S`/`--dscp`: the whole type-of-service byte.
    pub type_of_service: i64,
    /// `-L`.
    pub flow_label: i64,
    /// `-T`.
    pub title: Option<String>,
    /// `--extra-data`.
    pub extra_data: Option<String>,
    /// `-C`.
    pub congestion: Option<String>,
    /// `--get-server-output`.
    pub get_server_output: bool,
    /// `--udp-counters-64bit`.
    pub udp_counters_64bit: bool,
    /// `--repeating-payload`.
    pub repeating_payload: bool,
    /// `-Z`.
    pub zerocopy: bool,
    /// `--dont-fragment`.
    pub dont_fragment: bool,
    /// `--skip-rx-copy`.
    pub skip_rx_copy: bool,
    /// The client presented credentials.
    pub authenticated: bool,
    /// `client_version`.
    pub client_version: Option<String>,
}

impl Parameters {
    /// Reads a parameter message.
    ///
    /// # Errors
    /// It is not a JSON object.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let message = object(bytes)?;
        let number = |key: &str| message.get(key).and_then(Json::as_i64).unwrap_or(0);
        let is_true = |key: &str| message.get(key) == Some(&Json::Bool(true));
        let text = |key: &str| message.get(key).and_then(Json::as_str).map(str::to_owned);
        // cJSON's readers take the last protocol named.
        let transport = if is_true("sctp") {
            Transport::Sctp
        } else if is_true("udp") {
            Transport::Udp
        } else {
            Transport::Tcp
        };
        Ok(Self {
            transport,
            omit_s: number("omit"),
            server_core: message.get("server_affinity").and_then(Json::as_i64),
            duration_s: number("time"),
            total_bytes: number("num"),
            total_blocks: number("blockcount"),
            mss_bytes: number("MSS"),
            nodelay: is_true("nodelay"),
            streams: message.get("parallel").and_then(Json::as_i64).unwrap_or(1),
            reverse: is_true("reverse"),
            bidirectional: is_true("bidirectional"),
            mptcp: is_true("mptcp"),
            window_bytes: number("window"),
            block_bytes: number("len"),
            rate_bits_per_s: number("bandwidth"),
            pacing_bits_per_s: number("fqrate"),
            pacing_timer_us: number("pacing_timer"),
            burst_count: number("burst"),
            gsro: number("gso") > 0 || number("gro") > 0,
            type_of_service: number("TOS"),
            flow_label: number("flowlabel"),
            title: text("title"),
            extra_data: text("extra_data"),
            congestion: text("congestion"),
            get_server_output: number("get_server_output") != 0,
            udp_counters_64bit: number("udp_counters_64bit") != 0,
            repeating_payload: number("repeating_payload") != 0,
            zerocopy: number("zerocopy") != 0,
            dont_fragment: number("dont_fragment") != 0,
            skip_rx_copy: number("skip_rx_copy") != 0,
            authenticated: message.get("authtoken").is_some(),
            client_version: text("client_version"),
        })
    }

    /// The message, in iperf3's order, without what was not given.
    #[must_use]
    pub fn message(&self) -> Json {
        let mut message = Json::object([]);
        message.push(&self.transport.name().to_ascii_lowercase(), true);
        message.push("omit", self.omit_s);
        push_some(&mut message, "server_affinity", self.server_core);
        message.push("time", self.duration_s);
        message.push("num", self.total_bytes);
        message.push("blockcount", self.total_blocks);
        push_number(&mut message, "MSS", self.mss_bytes);
        push_true(&mut message, "nodelay", self.nodelay);
        message.push("parallel", self.streams);
        push_true(&mut message, "reverse", self.reverse);
        push_true(&mut message, "bidirectional", self.bidirectional);
        push_true(&mut message, "mptcp", self.mptcp);
        push_number(&mut message, "window", self.window_bytes);
        push_number(&mut message, "len", self.block_bytes);
        push_number(&mut message, "bandwidth", self.rate_bits_per_s);
        push_number(&mut message, "fqrate", self.pacing_bits_per_s);
        push_number(&mut message, "pacing_timer", self.pacing_timer_us);
        push_number(&mut message, "burst", self.burst_count);
        if self.transport == Transport::Udp {
            self.push_offload(&mut message);
        }
        push_number(&mut message, "TOS", self.type_of_service);
        push_number(&mut message, "flowlabel", self.flow_label);
        push_some(&mut message, "title", self.title.clone());
        push_some(&mut message, "extra_data", self.extra_data.clone());
        push_some(&mut message, "congestion", self.congestion.clone());
        push_flag(&mut message, "get_server_output", self.get_server_output);
        push_flag(&mut message, "udp_counters_64bit", self.udp_counters_64bit);
        push_flag(&mut message, "repeating_payload", self.repeating_payload);
        push_flag(&mut message, "zerocopy", self.zerocopy);
        push_flag(&mut message, "dont_fragment", self.dont_fragment);
        push_flag(&mut message, "skip_rx_copy", self.skip_rx_copy);
        push_some(&mut message, "client_version", self.client_version.clone());
        message
    }

    /// Segmentation offload, which iperf3 names with UDP always, used or not.
    fn push_offload(&self, message: &mut Json) {
        const BUFFER_BYTES: i64 = 65_507;
        let datagram_bytes = if self.gsro { self.block_bytes.max(1) } else { 0 };
        let whole_bytes =
            if self.gsro { BUFFER_BYTES / datagram_bytes * datagram_bytes } else { BUFFER_BYTES };
        message.push("gso", i64::from(self.gsro));
        message.push("gso_dg_size", datagram_bytes);
        message.push("gso_bf_size", whole_bytes);
        message.push("gro", i64::from(self.gsro));
        message.push("gro_bf_size", BUFFER_BYTES);
    }
}

/// Processor time of a process over a test, percent of one core.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct CpuPercent {
    /// Both.
    pub total: f64,
    /// In user mode.
    pub user: f64,
    /// In the kernel.
    pub system: f64,
}

/// One end's account of a whole test.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EndResults {
    /// Processor time.
    pub cpu: CpuPercent,
    /// 1: the sender counts retransmissions; 0: it cannot; -1: this end does not send.
    pub sender_has_retransmits: i64,
    /// Congestion control in use.
    pub congestion_used: Option<String>,
    /// The server's output, where the client wanted it.
    pub server_output: Option<ServerOutput>,
    /// Every stream.
    pub streams: Vec<StreamResult>,
}

/// What a server printed.
#[derive(Debug, Clone, PartialEq)]
pub enum ServerOutput {
    /// As text.
    Text(String),
    /// As JSON (`-J` at the server).
    Json(Json),
}

/// One stream in [`EndResults`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StreamResult {
    /// Stream number: 1, 3, 4, 5, … in the order of creation.
    pub id: i64,
    /// Bytes sent or received, the omitted start not counted.
    pub bytes: u64,
    /// Segments retransmitted; -1 where this end does not know.
    pub retransmits: i64,
    /// Jitter, seconds.
    pub jitter_s: f64,
    /// Datagrams missed, the omitted start included.
    pub errors: i64,
    /// Of which in the omitted start; absent before 3.14.
    pub omitted_errors: Option<i64>,
    /// Datagrams sent, or received and missed; the omitted start included.
    pub packets: i64,
    /// Of which in the omitted start; absent before 3.14.
    pub omitted_packets: Option<i64>,
    /// Seconds from `start_time` to `end_time`; absent before 3.2.
    pub duration_s: Option<f64>,
}

impl EndResults {
    /// Reads a results message.
    ///
    /// # Errors
    /// It is not JSON, or lacks what every iperf3 sends.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let message = object(bytes)?;
        let streams = message
            .get("streams")
            .and_then(Json::as_array)
            .ok_or(WireError::Missing("streams"))?
            .iter()
            .map(StreamResult::from_json)
            .collect::<Result<_, _>>()?;
        let text = |key| message.get(key).and_then(Json::as_str).map(str::to_owned);
        let output_json = message.get("server_output_json").cloned().map(ServerOutput::Json);
        Ok(Self {
            cpu: CpuPercent {
                total: required(&message, "cpu_util_total")?,
                user: required(&message, "cpu_util_user")?,
                system: required(&message, "cpu_util_system")?,
            },
            sender_has_retransmits: required(&message, "sender_has_retransmits")? as i64,
            congestion_used: text("congestion_used"),
            server_output: output_json
                .or_else(|| text("server_output_text").map(ServerOutput::Text)),
            streams,
        })
    }

    /// The message, in iperf3's order.
    #[must_use]
    pub fn message(&self) -> Json {
        let mut message = Json::object([
            ("cpu_util_total", self.cpu.total.into()),
            ("cpu_util_user", self.cpu.user.into()),
            ("cpu_util_system", self.cpu.system.into()),
            ("sender_has_retransmits", self.sender_has_retransmits.into()),
        ]);
        push_some(&mut message, "congestion_used", self.congestion_used.clone());
        match &self.server_output {
            Some(ServerOutput::Json(output)) => {
                message.push("server_output_json", output.clone());
            }
            Some(ServerOutput::Text(output)) => {
                message.push("server_output_text", output.as_str());
            }
            None => {}
        }
        message.push("streams", self.streams.iter().map(StreamResult::to_json).collect::<Vec<_>>());
        message
    }
}

impl StreamResult {
    fn from_json(stream: &Json) -> Result<Self, WireError> {
        // What a peer claims is held where sums over all streams cannot overflow.
        const COUNT_MAX: i64 = 1 << 53;
        let held = |value: f64| (value as i64).clamp(-1, COUNT_MAX);
        let number = |key| stream.get(key).and_then(Json::as_f64);
        let whole = |key| number(key).map(held);
        let time = number("end_time").zip(number("start_time"));
        Ok(Self {
            id: held(required(stream, "id")?),
            bytes: units::saturating_u64(required(stream, "bytes")?).min(COUNT_MAX.cast_unsigned()),
            retransmits: held(required(stream, "retransmits")?),
            jitter_s: required(stream, "jitter")?,
            errors: held(required(stream, "errors")?),
            omitted_errors: whole("omitted_errors"),
            packets: held(required(stream, "packets")?),
            omitted_packets: whole("omitted_packets"),
            duration_s: time.map(|(end_s, start_s)| end_s - start_s),
        })
    }

    fn to_json(&self) -> Json {
        Json::object([
            ("id", self.id.into()),
            ("bytes", self.bytes.into()),
            ("retransmits", self.retransmits.into()),
            ("jitter", self.jitter_s.into()),
            ("errors", self.errors.into()),
            ("omitted_errors", self.omitted_errors.unwrap_or(0).into()),
            ("packets", self.packets.into()),
            ("omitted_packets", self.omitted_packets.unwrap_or(0).into()),
            ("start_time", 0i64.into()),
            ("end_time", self.duration_s.unwrap_or(0.0).into()),
        ])
    }
}

fn object(bytes: &[u8]) -> Result<Json, WireError> {
    match Json::parse(bytes).map_err(WireError::NotJson)? {
        message @ Json::Object(_) => Ok(message),
        _ => Err(WireError::Missing("object")),
    }
}

fn required(message: &Json, key: &'static str) -> Result<f64, WireError> {
    message.get(key).and_then(Json::as_f64).ok_or(WireError::Missing(key))
}

fn push_some(message: &mut Json, key: &str, value: Option<impl Into<Json>>) {
    if let Some(value) = value {
        message.push(key, value);
    }
}

fn push_number(message: &mut Json, key: &str, value: i64) {
    if value != 0 {
        message.push(key, value);
    }
}

fn push_true(message: &mut Json, key: &str, value: bool) {
    if value {
        message.push(key, true);
    }
}

fn push_flag(message: &mut Json, key: &str, value: bool) {
    push_number(message, key, i64::from(value));
}

#[cfg(test)]
mod tests;
