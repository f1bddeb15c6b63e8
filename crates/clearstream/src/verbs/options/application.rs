//! How an application uses its sockets: all options of a test except its shape and length.

use clap::{Args, ValueEnum};
use results::{ReceivePath, SendPath, TestSpec, WindowSide};

use super::values::{Cores, bit_rate, byte_size, congestion_control, cores, dscp};
use crate::exit::VerbError;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SendPathOption {
    /// write(2): the kernel copies.
    Copy,
    /// sendfile(2) from a file in memory.
    Sendfile,
    /// MSG_ZEROCOPY; the share that was really zero-copy is reported.
    Zerocopy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum WindowSideOption {
    /// The sender's send buffer.
    Sender,
    /// The receiver's receive buffer.
    Receiver,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ReceivePathOption {
    /// read(2), as in any application.
    Copy,
    /// The kernel drops the bytes: not what an application sees.
    Discard,
    /// TCP_ZEROCOPY_RECEIVE: whole pages are mapped.
    Zerocopy,
}

/// The application's side of a test. Sizes are binary (128K is 131072 bytes), rates decimal (10G is
/// 10^10 bit/s).
#[derive(Debug, Clone, Args)]
pub(crate) struct ApplicationOptions {
    /// Bytes per write and read; for UDP the datagram payload [default: 1448 for UDP].
    #[arg(short = 'l', long, alias = "length", value_name = "SIZE", value_parser = byte_size,
          help_heading = "Sockets")]
    block: Option<u64>,
    /// Socket buffers at both ends (TCP: see --window-side); the windows that the kernels grant are reported.
    #[arg(short = 'w', long, value_name = "SIZE", value_parser = byte_size,
          help_heading = "Sockets")]
    window: Option<u64>,
    /// The side whose buffers --window sets: the sender's send buffer or the receiver's receive
    /// buffer. Both if omitted.
    #[arg(long, value_name = "SIDE", requires = "window", help_heading = "Sockets")]
    window_side: Option<WindowSideOption>,
    /// TCP maximum segment size, bytes.
    #[arg(short = 'M', long, alias = "set-mss", value_name = "BYTES", help_heading = "Sockets",
          value_parser = clap::value_parser!(u32).range(88..=65_483))]
    mss: Option<u32>,
    /// Disable Nagle's algorithm (TCP_NODELAY).
    #[arg(short = 'N', long, help_heading = "Sockets")]
    no_delay: bool,
    /// TCP congestion control of the sender: cubic, bbr, …
    #[arg(short = 'C', long, value_name = "NAME", help_heading = "Sockets",
          value_parser = congestion_control)]
    congestion: Option<String>,
    /// Differentiated services code point: 0 to 63, or a name such as ef, af41, cs1.
    #[arg(long, value_name = "DSCP", value_parser = dscp, help_heading = "Sockets")]
    dscp: Option<u8>,
    /// Multipath TCP.
    #[arg(short = 'm', long, help_heading = "Sockets")]
    mptcp: bool,
    /// Source port of the first stream; further streams use the ports after it, so that each flow
    /// uses the same queues every time.
    #[arg(long, alias = "cport", value_name = "PORT", help_heading = "Sockets",
          value_parser = clap::value_parser!(u16).range(1..))]
    port_base: Option<u16>,

    /// Maximum rate that the sending application offers per stream: 950M, 10G; 0 is no limit
    /// [default: no limit; 1M for `test -u`].
    #[arg(short = 'b', long, alias = "bitrate", value_name = "RATE", value_parser = bit_rate,
          help_heading = "Rates")]
    offered_rate: Option<u64>,
    /// Rate to which the kernel paces each stream's packets (SO_MAX_PACING_RATE).
    #[arg(long, alias = "fq-rate", value_name = "RATE", value_parser = bit_rate,
          help_heading = "Rates")]
    pacing_rate: Option<u64>,
    /// Maximum rate at which the receiving application reads each stream.
    #[arg(long, value_name = "RATE", value_parser = bit_rate, help_heading = "Rates")]
    read_rate: Option<u64>,

    /// How bytes get into the socket.
    #[arg(long, value_enum, default_value = "copy", help_heading = "Hosts")]
    send_path: SendPathOption,
    /// How bytes get out of the socket.
    #[arg(long, value_enum, default_value = "copy", help_heading = "Hosts")]
    receive_path: ReceivePathOption,
    /// Cores for this end's streams, round robin: 0,2-5 [default: not pinned].
    #[arg(long, value_name = "CORES", value_parser = cores, help_heading = "Hosts")]
    cores: Option<Cores>,
    /// Cores for the far end's streams.
    #[arg(long, value_name = "CORES", value_parser = cores, help_heading = "Hosts")]
    far_cores: Option<Cores>,
    /// While the test runs, this end's packets are received on this core: the interface's receive
    /// interrupts or NAPI threads are moved there, and restored even if this command is killed. Needs
    /// root.
    #[arg(long, value_name = "CORE", help_heading = "Hosts",
          value_parser = clap::value_parser!(u32).range(..1024))]
    interrupt_core: Option<u32>,
    /// While the test runs, the far end's packets are received on this core; the far end must run
    /// `clearstream serve --allow-interrupt-moves`.
    #[arg(long, value_name = "CORE", help_heading = "Hosts",
          value_parser = clap::value_parser!(u32).range(..1024))]
    far_interrupt_core: Option<u32>,
}

impl ApplicationOptions {
    /// A specification of one forward TCP stream of this application.
    pub(crate) fn spec(&self) -> TestSpec {
        let cores = |cores: &Option<Cores>| cores.clone().map(|cores| cores.0).unwrap_or_default();
        // As in iperf3, a rate of 0 means no limit.
        let rate = |rate: Option<u64>| rate.filter(|rate| *rate > 0).map(|rate| rate as f64);
        TestSpec {
            block_bytes: self.block,
            window_bytes: self.window,
            window_side: self.window_side.map(|side| match side {
                WindowSideOption::Sender => WindowSide::Sender,
                WindowSideOption::Receiver => WindowSide::Receiver,
            }),
            mss_bytes: self.mss,
            congestion_control: self.congestion.clone(),
            dscp: self.dscp,
            pacing_bits_per_s: rate(self.pacing_rate),
            offered_bits_per_s: rate(self.offered_rate),
            read_bits_per_s: rate(self.read_rate),
            mptcp: self.mptcp,
            nodelay: self.no_delay,
            send_path: match self.send_path {
                SendPathOption::Copy => SendPath::Copy,
                SendPathOption::Sendfile => SendPath::Sendfile,
                SendPathOption::Zerocopy => SendPath::Zerocopy,
            },
            receive_path: match self.receive_path {
                ReceivePathOption::Copy => ReceivePath::Copy,
                ReceivePathOption::Discard => ReceivePath::Discard,
                ReceivePathOption::Zerocopy => ReceivePath::Zerocopy,
            },
            near_cores: cores(&self.cores),
            far_cores: cores(&self.far_cores),
            near_interrupt_core: self.interrupt_core,
            far_interrupt_core: self.far_interrupt_core,
            first_port: self.port_base,
            ..TestSpec::tcp()
        }
    }

    /// Whether `-b` was given, including 0 (no limit).
    pub(super) fn names_offered_rate(&self) -> bool {
        self.offered_rate.is_some()
    }

    /// Block or datagram size, bytes.
    pub(super) fn block(&self) -> Option<u64> {
        self.block
    }

    /// Refuses options that only TCP has.
    pub(super) fn check_for_udp(&self) -> Result<(), VerbError> {
        if self.mss.is_some() || self.congestion.is_some() || self.no_delay || self.mptcp {
            return Err(VerbError::usage(
                "-M, -C, -N and -m apply to TCP only: leave them out with --udp",
            ));
        }
        if self.window_side.is_some() {
            return Err(VerbError::usage(
                "--window-side applies to TCP only: UDP has one buffer for its data, which \
                 --window sets",
            ));
        }
        let paths = (self.send_path, self.receive_path);
        if paths != (SendPathOption::Copy, ReceivePathOption::Copy) {
            return Err(VerbError::usage(
                "--send-path and --receive-path apply to TCP only: UDP streams always copy",
            ));
        }
        Ok(())
    }
}
