//! `clearstream pkt`: the functions of pkt-gen, on ports and pipes.

mod drops;
mod lasting;
mod show;

use std::cell::Cell;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use packet_switch::attachment::PipeEnd;
use packet_switch::client::{Attached, Connection};
use packet_switch::pkt::{
    self, EndpointRange, FRAME_BYTES_MAX, FRAME_BYTES_MIN, Flows, Frame, Generate, MacAddress,
    MacRange, Manner, Sink,
};
use packet_switch::station::Place;

use super::port::explain;
use crate::VerbResult;
use crate::exit::VerbError;
use crate::signals;
use crate::verbs::options::check_cores;
use show::Show;

/// Options of `pkt`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    clearstream pkt sink vale0:b --announce 02:00:00:00:00:02\n  \
    clearstream pkt gen vale0:a --src 02:00:00:00:00:01 --dst 02:00:00:00:00:02\n  \
    clearstream pkt gen vale0:a --src-ip 10.0.0.1:2000-10.0.0.8:2099 --rate 1M\n  \
    clearstream pkt echo vale0:b\n  \
    clearstream pkt ping vale0:a --count 1000\n  \
    clearstream pkt bridge vale0:c vale1:c\n  \
    clearstream pkt gen 'chain{0' --duration 5s\n  \
    clearstream pkt sink 'chain}0' --check\n\n\
    PORT is SWITCH:PORT, or GROUP{N and GROUP}N for the two ends of a group's Nth pipe. Frames are\n\
    UDP datagrams to the discard port. Every run reports progress once a second and the result at\n\
    its end. Ctrl-C ends a run. When the switch restarts, a run continues at the same ports; the\n\
    time without a switch does not count, and frames that the old switch had not taken are\n\
    counted as lost.\n\n\
    gen and sink report what the switch dropped during the run, by port and reason: frames that\n\
    were sent without a destination, and frames from any sender for which the ring of a port had no\n\
    room. `clearstream port stats` has the totals.")]
pub(crate) struct PktArgs {
    #[command(subcommand)]
    action: Action,
    /// The switch's socket [default: $CLEARSTREAM_SWITCH, else below $XDG_RUNTIME_DIR, else /run].
    #[arg(long, value_name = "PATH", global = true)]
    socket: Option<PathBuf>,
    /// Maximum number of frames handed over at once.
    #[arg(long, value_name = "N", default_value_t = 256, global = true,
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    batch: u32,
    /// Longest time to poll before sleeping; shortened when frames are rare. 0s sleeps at once.
    #[arg(long, value_name = "TIME", default_value = "100us", global = true,
          value_parser = units::parse_duration)]
    linger: Duration,
    /// Run on this core only.
    #[arg(long, value_name = "CORE", global = true)]
    core: Option<u32>,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Send frames.
    Gen(GenArgs),
    /// Receive frames and count them.
    Sink(SinkArgs),
    /// Send every frame back with its addresses exchanged.
    Echo {
        /// SWITCH:PORT, or an end of a pipe: GROUP{N or GROUP}N.
        port: String,
    },
    /// Send one frame at a time to an echo and print round-trip percentiles.
    Ping(GenArgs),
    /// Pass frames between two ports, both ways.
    Bridge {
        /// SWITCH:PORT, or an end of a pipe.
        port: String,
        /// The port or end of a pipe to pass frames to and from.
        other: String,
    },
}

#[derive(Debug, clap::Args)]
struct GenArgs {
    /// SWITCH:PORT, or an end of a pipe: GROUP{N or GROUP}N.
    port: String,
    /// Ethernet source address, or a range FIRST-LAST of which each frame has the next.
    #[arg(long, value_name = "MAC[-MAC]", default_value = "02:00:00:00:00:01")]
    src: MacRange,
    /// Ethernet destination address, or a range.
    #[arg(long, value_name = "MAC[-MAC]", default_value = "ff:ff:ff:ff:ff:ff")]
    dst: MacRange,
    /// IPv4 source and UDP port; in a range, ports vary before addresses.
    #[arg(long, value_name = "IP[:PORT][-IP[:PORT]]", default_value = "192.0.2.1:9")]
    src_ip: EndpointRange,
    /// IPv4 destination and UDP port; a range advances after each cycle through the sources.
    #[arg(long, value_name = "IP[:PORT][-IP[:PORT]]", default_value = "192.0.2.2:9")]
    dst_ip: EndpointRange,
    /// Length of a frame in bytes, without Ethernet's checksum.
    #[arg(long, value_name = "BYTES", default_value_t = FRAME_BYTES_MIN as u32,
          value_parser = clap::value_parser!(u32).range(FRAME_BYTES_MIN as i64..=FRAME_BYTES_MAX as i64))]
    size: u32,
    /// Frames per second: 1M [default: as fast as possible].
    #[arg(long, value_name = "RATE", value_parser = frame_rate)]
    rate: Option<u64>,
    /// Number of frames [default: no limit; 1000 for ping].
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Time to run [default: no limit].
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration)]
    duration: Option<Duration>,
    /// Write each buffer only in the first round of the ring and then send its slot again unchanged, as
    /// pkt-gen does. By default every frame is written whole, with its number and the time.
    #[arg(long)]
    slots_only: bool,
    /// Every frame is stamped unless --slots-only; once it had to be asked for.
    #[arg(long, hide = true, conflicts_with = "slots_only")]
    stamp: bool,
}

#[derive(Debug, clap::Args)]
struct SinkArgs {
    /// SWITCH:PORT, or an end of a pipe: GROUP{N or GROUP}N.
    port: String,
    /// End after this many frames.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// End after this long.
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration)]
    duration: Option<Duration>,
    /// End when nothing has arrived for this long, after the first frame.
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration)]
    quiet: Option<Duration>,
    /// Check the timestamps: missing and late frames, transit time. Exit code 3 if any frame is
    /// missing or late.
    #[arg(long)]
    check: bool,
    /// Count slots without reading frames, as pkt-gen does. By default every byte is read.
    #[arg(long, conflicts_with = "check")]
    slots_only: bool,
    /// First send a frame from this address, or from each of a range, so that the switch learns
    /// where it is.
    #[arg(long, value_name = "MAC[-MAC]")]
    announce: Option<MacRange>,
}

/// Parses a number of frames per second: `1000`, `64k`, `1.5M`, `1M/s`. A rate of bits is none.
fn frame_rate(text: &str) -> Result<u64, String> {
    let is_digit = |letter: char| letter.is_ascii_digit() || letter == '.';
    let unit = text.trim().trim_start_matches(is_digit).trim();
    let prefix = unit.strip_suffix("/s").unwrap_or(unit);
    if prefix.contains("bit") || prefix.contains("bps") {
        return Err(format!(
            "'{text}' is a bit rate, but frames per second are needed; write for example 1M"
        ));
    }
    if unit == text.trim() && !unit.is_empty() {
        let what = if unit.starts_with('-') { "negative" } else { "not a number" };
        return Err(format!("'{text}' is {what}; write for example 1000, 64k or 1.5M"));
    }
    if !["", "k", "K", "m", "M", "g", "G"].contains(&prefix) {
        return Err(format!(
            "'{text}' has an unknown unit '{unit}'; known: k M G, optionally with /s"
        ));
    }
    match units::parse_bit_rate(text).map_err(|error| error.to_string())? {
        0 => Err("the rate must be more than 0".to_owned()),
        rate => Ok(rate),
    }
}

/// Interval at which a run checks for messages from the switch.
const ATTENTION: Duration = Duration::from_millis(100);

pub(crate) fn run(args: &PktArgs, json: bool) -> VerbResult {
    signals::watch().map_err(|error| VerbError::from_error(&error))?;
    if let Some(core) = args.core {
        check_cores(&[core])?;
        sys::thread::pin_current(&[core]).map_err(|error| VerbError::from_error(&error))?;
    }
    let socket = args.socket.as_deref();
    let manner = Manner { linger: args.linger, batch: args.batch };
    let mut show = Show::new(json);
    match &args.action {
        Action::Gen(what) => lasting::generate(socket, place(&what.port)?, what, manner, &mut show),
        Action::Sink(what) => lasting::sink(socket, place(&what.port)?, what, manner, &mut show),
        Action::Ping(what) => lasting::ping(socket, place(&what.port)?, what, manner, &mut show),
        Action::Echo { port } => lasting::echo(socket, place(port)?, manner, &mut show),
        Action::Bridge { port, other } => {
            lasting::bridge(socket, [place(port)?, place(other)?], manner, &mut show)
        }
    }
}

/// The condition that ends a run: a signal, or a message from the switch, which always means trouble.
fn stop(switches: &[&Connection]) -> impl Fn() -> bool {
    // Reading the clock is cheap, reading the socket is a system call.
    let (asked, news) = (Cell::new(Instant::now()), Cell::new(false));
    move || {
        let now = Instant::now();
        if now - asked.get() >= ATTENTION {
            asked.set(now);
            // A message once seen is remembered.
            news.set(news.get() || switches.iter().any(|switch| switch.has_news()));
        }
        news.get() || signals::caught().is_some()
    }
}

/// Parses the name of a port or a pipe's end.
fn place(port: &str) -> Result<Place, VerbError> {
    let Some((group, pipe)) = port.split_once(['{', '}']) else {
        return port.parse().map(Place::Port).map_err(VerbError::usage);
    };
    let end = if port.contains('{') { PipeEnd::Master } else { PipeEnd::Slave };
    let group = group.parse().map_err(VerbError::usage)?;
    let pipe = pipe.parse().map_err(|_ignored| {
        VerbError::usage(format!("'{port}': a pipe is GROUP{{N or GROUP}}N with a number"))
    })?;
    Ok(Place::Pipe { group, pipe, end })
}

impl GenArgs {
    fn generate(&self, manner: Manner) -> Generate {
        let flows = Flows {
            source_macs: self.src,
            destination_macs: self.dst,
            sources: self.src_ip,
            destinations: self.dst_ip,
        };
        Generate {
            frame: Frame::of(flows, self.size as usize),
            flows: (!flows.are_one()).then_some(flows),
            slots_only: self.slots_only,
            rate_per_s: self.rate.map(|rate| rate as f64),
            count: self.count,
            duration: self.duration,
            manner,
        }
    }
}

impl SinkArgs {
    fn announce(&self, port: &mut Attached, manner: Manner) -> Result<(), VerbError> {
        let Some(sources) = self.announce else { return Ok(()) };
        let nobody = MacAddress([0xff; 6]);
        let flows = Flows { source_macs: sources, ..Flows::between(sources.at(0), nobody) };
        let what = Generate {
            frame: Frame::of(flows, FRAME_BYTES_MIN),
            flows: Some(flows),
            slots_only: false,
            rate_per_s: None,
            count: Some(sources.count()),
            duration: None,
            manner,
        };
        let signalled = || signals::caught().is_some();
        pkt::generate(&mut port.sender, &what, &mut |_| {}, &signalled)
            .map(|_| ())
            .map_err(|error| VerbError::from_error(&error))
    }

    fn sink(&self, manner: Manner) -> Sink {
        Sink {
            check: self.check,
            slots_only: self.slots_only,
            count: self.count,
            duration: self.duration,
            quiet: self.quiet,
            manner,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_no_frames() {
        for (text, rate) in
            [("1000", 1000), ("64k", 64_000), ("1.5M", 1_500_000), ("1M/s", 1_000_000)]
        {
            assert_eq!(frame_rate(text), Ok(rate), "{text}");
        }
        for text in ["1Gbit", "1kbit", "10Mbit/s", "5Mbps"] {
            let told = frame_rate(text).expect_err("bits");
            let reason = "is a bit rate, but frames per second are needed; write for example 1M";
            assert_eq!(told, format!("'{text}' {reason}"));
        }
        let told = frame_rate("1MB").expect_err("bytes");
        assert_eq!(told, "'1MB' has an unknown unit 'MB'; known: k M G, optionally with /s");
        assert!(frame_rate("0").is_err());
    }
}
