//! Options that several verbs share: the address of the far end, and the definition of a test.
//!
//! Option letters that iperf3 has are used in iperf3's meaning only.

mod application;
mod command;
mod values;

use std::time::Duration;

use clap::Args;
use results::{Direction, Protocol, RequestResponseSpec, TestLimit, TestSpec, UdpSpec};
use traffic::client::{Family, Target};

use crate::exit::VerbError;
pub(crate) use application::ApplicationOptions;
pub(crate) use command::command_line;
pub(crate) use values::{Cores, check_cores, cores, duration};
use values::{Sizes, byte_size, count, host, sizes};

/// Datagram payload, bytes, that fits Ethernet's 1500 bytes in IPv4 and IPv6 alike.
const DATAGRAM_BYTES_DEFAULT: u64 = 1448;
const BATCH_COUNT_DEFAULT: u32 = 16;
/// Rate of a UDP stream if none is given, as in iperf3.
const UDP_BITS_PER_S_DEFAULT: f64 = 1e6;

/// Where the far end is.
#[derive(Debug, Clone, Args)]
pub(crate) struct TargetOptions {
    /// Far host: a name or an address; `clearstream serve` or `iperf3 -s` must run there.
    #[arg(value_name = "HOST", value_hint = clap::ValueHint::Hostname, value_parser = host)]
    pub(crate) host: String,
    #[command(flatten)]
    server: ServerOptions,
}

/// How to reach the server of a host.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServerOptions {
    /// Port of the server on the far host, TCP and UDP.
    #[arg(short, long, value_name = "PORT", default_value_t = traffic::server::DEFAULT_PORT,
          value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Use IPv4 only.
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    ipv4: bool,
    /// Use IPv6 only.
    #[arg(short = '6', long)]
    ipv6: bool,
}

impl TargetOptions {
    /// The far end's address.
    pub(crate) fn target(&self) -> Target {
        self.server.at(&self.host)
    }
}

impl ServerOptions {
    /// The address of the server on `host`.
    pub(crate) fn at(&self, host: &str) -> Target {
        let family = match (self.ipv4, self.ipv6) {
            (true, _) => Some(Family::V4),
            (_, true) => Some(Family::V6),
            _ => None,
        };
        Target { host: host.to_owned(), port: self.port, family }
    }
}

/// One test, as options. Sizes are binary (128K is 131072 bytes), rates decimal (10G is 10^10
/// bit/s).
#[derive(Debug, Clone, Args)]
pub(crate) struct TestOptions {
    /// UDP instead of TCP, at 1 Mbit/s per stream unless -b or --flood sets another rate.
    #[arg(short, long, help_heading = "Test")]
    udp: bool,
    /// Streams in each direction, 1 to 1024; one thread per stream.
    #[arg(short = 'P', long, value_name = "N", default_value = "1", help_heading = "Test",
          alias = "parallel", value_parser = clap::value_parser!(u32).range(1..=1024))]
    streams: u32,
    /// The far end sends.
    #[arg(short = 'R', long, conflicts_with = "bidir", help_heading = "Test")]
    reverse: bool,
    /// Both ends send at once.
    #[arg(long, help_heading = "Test")]
    bidir: bool,
    /// Requests and responses instead of bulk data (netperf's TCP_RR, with -u UDP_RR): size of
    /// each, in bytes. -b limits each direction; the printed rates are for both directions
    /// together.
    #[arg(long, value_name = "REQ[,RESP]", num_args = 0..=1, default_missing_value = "1",
          require_equals = true, value_parser = sizes, help_heading = "Test",
          conflicts_with_all = ["reverse", "bidir"])]
    rr: Option<Sizes>,
    /// Measure round trips on a separate connection while the test runs.
    #[arg(long, help_heading = "Test")]
    latency: bool,

    /// Length of the test: 10, 90s, 5m (--omit is added to it).
    #[arg(short = 't', long = "duration", alias = "time", value_name = "TIME",
          default_value = "10s", value_parser = duration, help_heading = "Length")]
    duration: Duration,
    /// End after this many bytes instead, all streams together: 10G.
    #[arg(short = 'n', long, value_name = "SIZE", value_parser = byte_size, help_heading = "Length",
          conflicts_with_all = ["duration", "blocks"])]
    bytes: Option<u64>,
    /// End after this many blocks or datagrams instead, all streams together.
    #[arg(short = 'k', long, alias = "blockcount", value_name = "N", value_parser = count,
          help_heading = "Length", conflicts_with = "duration")]
    blocks: Option<u64>,
    /// Time at the start that is left out of the results (slow start).
    #[arg(short = 'O', long, value_name = "TIME", default_value = "0", value_parser = duration,
          help_heading = "Length")]
    omit: Duration,
    /// Time between samples and between printed lines, 50ms to 60s.
    #[arg(short = 'i', long, value_name = "TIME", default_value = "1s", value_parser = duration,
          help_heading = "Length")]
    interval: Duration,

    #[command(flatten)]
    pub(crate) application: ApplicationOptions,
    /// Send UDP as fast as the host can, which may overload the path; the same as -b 0.
    #[arg(long, requires = "udp", conflicts_with_all = ["offered_rate", "rr"],
          help_heading = "Rates")]
    flood: bool,
    /// Send UDP without segmentation offload (UDP_SEGMENT).
    #[arg(long, requires = "udp", help_heading = "Hosts")]
    no_gso: bool,
    /// Receive UDP without receive offload (UDP_GRO).
    #[arg(long, requires = "udp", help_heading = "Hosts")]
    no_gro: bool,
    /// UDP datagrams per system call.
    #[arg(long, value_name = "N", default_value_t = BATCH_COUNT_DEFAULT, requires = "udp",
          help_heading = "Hosts", value_parser = clap::value_parser!(u32).range(1..=1024))]
    batch: u32,
}

impl TestOptions {
    /// The specification of the test.
    ///
    /// # Errors
    /// An invalid combination of options: exit code 2.
    pub(crate) fn spec(&self) -> Result<TestSpec, VerbError> {
        let protocol = if self.udp { Protocol::Udp } else { Protocol::Tcp };
        let request_response = self.rr.map(|Sizes { request_bytes, response_bytes }| {
            RequestResponseSpec { request_bytes, response_bytes }
        });
        let bulk_udp = self.udp && request_response.is_none();
        self.check()?;
        let udp = bulk_udp.then(|| self.udp_spec()).transpose()?;
        let application = self.application.spec();
        let is_unlimited = self.flood || self.application.names_offered_rate();
        let offered_bits_per_s = match application.offered_bits_per_s {
            None if bulk_udp && !is_unlimited => Some(UDP_BITS_PER_S_DEFAULT),
            named => named,
        };
        Ok(TestSpec {
            protocol,
            direction: match (self.reverse, self.bidir) {
                (true, _) => Direction::Reverse,
                (_, true) => Direction::Bidirectional,
                _ => Direction::Forward,
            },
            streams: self.streams,
            limit: match (self.bytes, self.blocks) {
                (Some(bytes), _) => TestLimit::TotalBytes(bytes),
                (_, Some(blocks)) => TestLimit::TotalBlocks(blocks),
                _ => TestLimit::DurationS(self.duration.as_secs_f64()),
            },
            omit_s: self.omit.as_secs_f64(),
            interval_s: self.interval.as_secs_f64(),
            block_bytes: application.block_bytes.filter(|_| !bulk_udp),
            // A request that waits for the previous answer would otherwise measure Nagle's timer.
            nodelay: application.nodelay || (request_response.is_some() && !self.udp),
            udp,
            offered_bits_per_s,
            request_response,
            latency_under_load: self.latency,
            ..application
        })
    }

    fn check(&self) -> Result<(), VerbError> {
        let interval_s = self.interval.as_secs_f64();
        if !(0.05..=60.0).contains(&interval_s) {
            return Err(VerbError::usage("--interval is 50ms to 60s"));
        }
        if self.bytes.is_none()
            && self.blocks.is_none()
            && self.duration < Duration::from_millis(10)
        {
            return Err(VerbError::usage("--duration is at least 10ms"));
        }
        if self.udp { self.application.check_for_udp() } else { Ok(()) }
    }

    fn udp_spec(&self) -> Result<UdpSpec, VerbError> {
        let bytes = self.application.block().unwrap_or(DATAGRAM_BYTES_DEFAULT);
        let datagram_bytes = u32::try_from(bytes)
            .ok()
            .filter(|bytes| (16..=65_507).contains(bytes))
            .ok_or_else(|| VerbError::usage("with --udp, --block is 16 to 65507 bytes"))?;
        let (gso, gro) = (!self.no_gso, !self.no_gro);
        Ok(UdpSpec { datagram_bytes, gso, gro, batch_count: self.batch })
    }
}
