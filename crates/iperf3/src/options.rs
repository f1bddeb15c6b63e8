//! iperf3's command line. Pure: words in, [`Options`] out.
//!
//! Every option of 3.12 to 3.21 is known. Those that this program cannot honour (SCTP, RSA
//! authentication) are refused in iperf3's form; `docs/decisions/0001-iperf3-protocol.md` lists
//! them.

use thiserror::Error;

use super::wire::Transport;

mod getopt;
mod help;
mod read;
mod table;

pub use help::{help, usage};

/// Server or client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// `-s`.
    Server,
    /// `-c HOST`.
    Client {
        /// Name or address.
        host: String,
    },
}

/// Which IP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Family {
    /// Whatever the name resolves to; a server listens on both.
    #[default]
    Any,
    /// `-4`.
    V4,
    /// `-6`.
    V6,
}

/// `--cntl-ka[=idle/interval/count]`; 0 leaves the system's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeepAlive {
    /// Seconds of silence before the first probe.
    pub idle_s: u32,
    /// Seconds between probes.
    pub interval_s: u32,
    /// Probes before giving up.
    pub probes_count: u32,
}

/// A whole command line.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// `-s` or `-c`.
    pub role: Role,
    /// `-p`.
    pub port: u16,
    /// `-f`, one of `kmgtKMGT`; `a` adapts.
    pub format: char,
    /// `-i`, seconds; 0: no interval reports.
    pub interval_s: f64,
    /// `-I`.
    pub pid_file: Option<String>,
    /// `-F`.
    pub file: Option<String>,
    /// `-A n`.
    pub core: Option<u32>,
    /// `-A ,m`.
    pub server_core: Option<u32>,
    /// `-B`.
    pub bind_address: Option<String>,
    /// `--bind-dev`.
    pub bind_device: Option<String>,
    /// `-V`.
    pub verbose: bool,
    /// `-J`, or implied by `--json-stream`.
    pub json: bool,
    /// `--json-stream`.
    pub json_stream: bool,
    /// `--json-stream-full-output`.
    pub json_stream_full: bool,
    /// `--logfile`.
    pub log_file: Option<String>,
    /// `--forceflush`.
    pub force_flush: bool,
    /// `--timestamps`, with its `strftime(3)` format.
    pub timestamps: Option<String>,
    /// `--rcv-timeout`, milliseconds.
    pub receive_timeout_ms: u64,
    /// `--snd-timeout`, milliseconds; 0: the system's.
    pub send_timeout_ms: u32,
    /// `--cntl-ka`.
    pub keep_alive: Option<KeepAlive>,
    /// `-d`: 0 to 4.
    pub debug_level: u8,
    /// `-4`, `-6`.
    pub family: Family,
    /// `-m`.
    pub mptcp: bool,
    /// A server's options.
    pub server: ServerOptions,
    /// A client's options.
    pub client: ClientOptions,
}

/// What only `-s` takes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ServerOptions {
    /// `-D`.
    pub daemon: bool,
    /// `-1`.
    pub one_off: bool,
    /// `--server-bitrate-limit`, bit/s; 0: none.
    pub rate_limit_bits_per_s: u64,
    /// Over how many seconds it is averaged.
    pub rate_limit_interval_s: f64,
    /// `--idle-timeout`, seconds; 0: none.
    pub idle_timeout_s: u64,
    /// `--server-max-duration`, seconds; 0: none.
    pub max_duration_s: u64,
}

/// What only `-c` takes.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientOptions {
    /// `-u`.
    pub transport: Transport,
    /// `--connect-timeout`, milliseconds.
    pub connect_timeout_ms: Option<u64>,
    /// `-b`, bit/s; 0: as fast as it goes.
    pub rate_bits_per_s: u64,
    /// `-b rate/burst`, packets; 0: one by one.
    pub burst_count: u32,
    /// `--pacing-timer`, microseconds; only handed on.
    pub pacing_timer_us: u64,
    /// `--fq-rate`, bit/s; 0: none.
    pub pacing_bits_per_s: u64,
    /// `-t`, seconds; 0 with `-n` and `-k`, or forever.
    pub duration_s: u32,
    /// `-n`; 0: not given.
    pub total_bytes: u64,
    /// `-k`; 0: not given.
    pub total_blocks: u64,
    /// `-l`, bytes; 0: UDP's is found from the path.
    pub block_bytes: u32,
    /// `--cport`.
    pub first_port: Option<u16>,
    /// `-P`.
    pub streams: u32,
    /// `-R`.
    pub reverse: bool,
    /// `--bidir`.
    pub bidirectional: bool,
    /// `-w`, bytes; 0: the kernel's choice.
    pub window_bytes: u32,
    /// `-C`.
    pub congestion: Option<String>,
    /// `-M`, bytes; 0: the path's.
    pub mss_bytes: u32,
    /// `-N`.
    pub nodelay: bool,
    /// `-S`, `--dscp`: the whole byte.
    pub type_of_service: u8,
    /// `-L`; 0: none.
    pub flow_label: u32,
    /// `-Z`.
    pub zerocopy: bool,
    /// `--skip-rx-copy`.
    pub skip_rx_copy: bool,
    /// `-O`, seconds.
    pub omit_s: u32,
    /// `-T`.
    pub title: Option<String>,
    /// `--extra-data`.
    pub extra_data: Option<String>,
    /// `--get-server-output`.
    pub get_server_output: bool,
    /// `--udp-counters-64bit`.
    pub udp_counters_64bit: bool,
    /// `--gsro`.
    pub gsro: bool,
    /// `--repeating-payload`.
    pub repeating_payload: bool,
    /// `--dont-fragment`.
    pub dont_fragment: bool,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            transport: Transport::Tcp,
            connect_timeout_ms: None,
            rate_bits_per_s: 0,
            burst_count: 0,
            pacing_timer_us: 1000,
            pacing_bits_per_s: 0,
            duration_s: 10,
            total_bytes: 0,
            total_blocks: 0,
            block_bytes: 0,
            first_port: None,
            streams: 1,
            reverse: false,
            bidirectional: false,
            window_bytes: 0,
            congestion: None,
            mss_bytes: 0,
            nodelay: false,
            type_of_service: 0,
            flow_label: 0,
            zerocopy: false,
            skip_rx_copy: false,
            omit_s: 0,
            title: None,
            extra_data: None,
            get_server_output: false,
            udp_counters_64bit: false,
            gsro: false,
            repeating_payload: false,
            dont_fragment: false,
        }
    }
}

impl Options {
    /// What iperf3 does when only its role is given.
    #[must_use]
    pub fn new(role: Role) -> Self {
        Self {
            role,
            port: super::DEFAULT_PORT,
            format: 'a',
            interval_s: 1.0,
            pid_file: None,
            file: None,
            core: None,
            server_core: None,
            bind_address: None,
            bind_device: None,
            verbose: false,
            json: false,
            json_stream: false,
            json_stream_full: false,
            log_file: None,
            force_flush: false,
            timestamps: None,
            receive_timeout_ms: 120_000,
            send_timeout_ms: 0,
            keep_alive: None,
            debug_level: 0,
            family: Family::Any,
            mptcp: false,
            server: ServerOptions { rate_limit_interval_s: 5.0, ..ServerOptions::default() },
            client: ClientOptions::default(),
        }
    }

    /// Warnings that iperf3 prints before it starts.
    #[must_use]
    pub fn warnings(&self) -> Vec<&'static str> {
        let mut warnings = Vec::new();
        if self.json && self.format != 'a' {
            warnings.push("Report format (-f) flag ignored with JSON output (-J)");
        }
        if self.json && self.verbose {
            warnings.push("Verbose output (-v) may interfere with JSON output (-J)");
        }
        if self.json && self.debug_level > 0 {
            warnings.push("Debug output (-d) may interfere with JSON output (-J)");
        }
        warnings
    }
}

/// What a command line asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// Run a client or server.
    Run(Box<Options>),
    /// `-h`.
    Help,
    /// `-v`.
    Version,
}

/// Reads the words behind the program's name.
///
/// # Errors
/// [`OptionsError`], in iperf3's words; its exit code is 1.
pub fn parse(arguments: &[String]) -> Result<Request, OptionsError> {
    read::request(&getopt::parse(&table::ENTRIES, arguments).map_err(OptionsError::Syntax)?)
}

/// Why a command line cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// Not an option, or one without its value.
    #[error("{0}")]
    Syntax(String),
    /// iperf3's parameter errors.
    #[error("parameter error - {0}")]
    Parameter(#[from] ParameterError),
}

/// iperf3's parameter errors, in its words.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant's text is its documentation")]
pub enum ParameterError {
    #[error("cannot be both server and client")]
    BothRoles,
    #[error("must either be a client (-c) or server (-s)")]
    NoRole,
    #[error("some option you are trying to set is server only")]
    ServerOnly,
    #[error("some option you are trying to set is client only")]
    ClientOnly,
    #[error("test duration valid values are 0 to 86400 seconds")]
    Duration,
    #[error("number of parallel streams too large (maximum = 128)")]
    Streams,
    #[error("number of parallel streams must be at least 1")]
    NoStreams,
    #[error("block size too large (maximum = 1048576 bytes)")]
    BlockSize,
    #[error("socket buffer size too large (maximum = 536870912 bytes)")]
    BufferSize,
    #[error("invalid report interval (min = 0.1, max = 60 seconds)")]
    Interval,
    #[error("TCP MSS too large (maximum = 32767 bytes)")]
    Mss,
    #[error("bogus value for --omit (maximum = 600 seconds)")]
    Omit,
    #[error("invalid burst count (maximum = 1000)")]
    Burst,
    #[error("only one test end condition (-t, -n, -k) may be specified")]
    EndConditions,
    #[error("block size invalid (minimum = 16 bytes, maximum = 65507 bytes)")]
    DatagramSize,
    #[error("bad TOS value (must be between 0 and 255 inclusive)")]
    TypeOfService,
    #[error("bad format specifier (valid formats are in the set [kmgtKMGT])")]
    Format,
    #[error("cannot be both reverse and bidirectional")]
    ReverseAndBidirectional,
    #[error("port number must be between 1 and 65535 inclusive")]
    Port,
    #[error("invalid time interval for calculating average data rate")]
    RateInterval,
    #[error("idle timeout parameter is not positive or larger than allowed limit")]
    IdleTimeout,
    #[error("receive timeout value is incorrect or not in range")]
    ReceiveTimeout,
    #[error("client receive timeout is valid only in receiving mode")]
    ReceiveTimeoutWhenSending,
    #[error("send timeout value is incorrect or not in range")]
    SendTimeout,
    #[error("cannot transfer file using UDP")]
    FileOverUdp,
    #[error(
        "control connection Keepalive period should be larger than the full retry period (interval * count)"
    )]
    KeepAlive,
    #[error("invalid unit value or suffix: '{0}'")]
    Unit(String),
    #[error("unable to set CPU affinity: Invalid argument")]
    Affinity,
    #[error("unable to set IPv6 flow label")]
    FlowLabel,
    #[error("no SCTP support available")]
    Sctp,
    #[error("authentication ({0}) is not supported by this implementation of iperf3")]
    Authentication(&'static str),
    #[error("-F is not supported by this implementation of iperf3: payload is always generated")]
    File,
}

#[cfg(test)]
mod tests;
