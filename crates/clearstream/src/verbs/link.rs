//! `clearstream link`: links between ports of the switch.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use packet_switch::PortName;
use packet_switch::attachment::{Ask, Entry, LinkConfig};

use super::port::{connect, explain};
use crate::VerbResult;
use crate::exit::{Exit, VerbError};

/// Options of `link`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    clearstream link add vale0:geneva vale1:amsterdam --delay 8.5ms --rate 40G --queue 40M\n  \
    clearstream link add vale0:up vale1:down --delay 10ms --jitter 1ms --loss 0.1%\n  \
    clearstream link list\n  \
    clearstream link del vale0:geneva\n\n\
    A link makes a port at each end and carries frames both ways. Super-segments are not split; each\n\
    of their wire packets takes its time on the line and is lost independently of the others. The\n\
    ports count what the link loses: `clearstream port stats`.")]
pub(crate) struct LinkArgs {
    #[command(subcommand)]
    action: Action,
    /// The switch's socket [default: $CLEARSTREAM_SWITCH, else below $XDG_RUNTIME_DIR, else /run].
    #[arg(long, value_name = "PATH", global = true)]
    socket: Option<PathBuf>,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Join two switches, or two ports of one.
    Add(AddArgs),
    /// Remove a link and both its ports.
    Del {
        /// Either of its ports.
        port: PortName,
    },
    /// List links.
    List,
}

#[derive(Debug, clap::Args)]
struct AddArgs {
    /// SWITCH:PORT at one end.
    one: PortName,
    /// SWITCH:PORT at the other end.
    other: PortName,
    /// One-way delay: 8.5ms.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = delay)]
    delay: Duration,
    /// Variation of the delay to either side.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = delay)]
    jitter: Duration,
    /// Line rate, including Ethernet's overhead: 40G [default: unlimited].
    #[arg(long, value_name = "RATE", value_parser = rate)]
    rate: Option<u64>,
    /// Size of the queue, bytes that may wait for the line: 40M [default: no limit].
    #[arg(long, value_name = "SIZE", value_parser = units::parse_byte_size)]
    queue: Option<u64>,
    /// Share of wire packets that are lost: 0.1%.
    #[arg(long, value_name = "PERCENT", default_value = "0%", value_parser = units::parse_percent)]
    loss: f64,
    /// Seed of the random draws: the same seed gives the same losses.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// Longest one-way delay of a link.
const DELAY_MAX: Duration = Duration::from_secs(60);

fn delay(text: &str) -> Result<Duration, String> {
    let delay = units::parse_duration(text).map_err(|error| error.to_string())?;
    if delay > DELAY_MAX { Err("the longest delay is 1 minute".to_owned()) } else { Ok(delay) }
}

fn rate(text: &str) -> Result<u64, String> {
    match units::parse_bit_rate(text).map_err(|error| error.to_string())? {
        0 => Err("the rate must be more than 0".to_owned()),
        rate => Ok(rate),
    }
}

pub(crate) fn run(args: &LinkArgs, json: bool) -> VerbResult {
    let mut connection = connect(args.socket.as_ref())?;
    match &args.action {
        Action::Add(add) => {
            let (one, other) = (add.one.clone(), add.other.clone());
            if one == other {
                return Err(VerbError::usage(format!("both ends of the link are {one}")));
            }
            let ask = Ask::AddLink { one, other, link: add.config() };
            connection.ask(ask).map_err(|error| explain(&error))?;
        }
        Action::Del { port } => {
            let entries = connection.list().map_err(|error| explain(&error))?;
            let name = port.to_string();
            if !entries.iter().any(|entry| entry.name == name && is_link(entry)) {
                return Err(VerbError::failed(format!("{port} is not a port of a link")));
            }
            let ask = Ask::DeletePort { port: port.clone() };
            connection.ask(ask).map_err(|error| explain(&error))?;
        }
        Action::List => {
            let mut entries = connection.list().map_err(|error| explain(&error))?;
            entries.retain(is_link);
            print(&entries, json)?;
        }
    }
    Ok(Exit::Ok)
}

fn is_link(entry: &Entry) -> bool {
    entry.device.as_ref().is_some_and(|device| device.link.is_some())
}

fn print(entries: &[Entry], json: bool) -> io::Result<()> {
    let mut out = crate::out::stdout();
    if json {
        return writeln!(out, "{}", serde_json::to_string_pretty(entries)?);
    }
    let links = entries.iter().filter_map(|entry| entry.device.as_ref());
    let mut shown = Vec::new();
    for device in links {
        let Some(link) = device.link.filter(|_| !shown.contains(&&device.name)) else { continue };
        shown.push(&device.name);
        writeln!(out, "{:<40} {}", device.name, words(&link))?;
    }
    Ok(())
}

fn words(link: &LinkConfig) -> String {
    let time = |ns: u64| units::show_seconds(ns as f64 / 1e9);
    let mut text = format!("delay {}", time(link.delay_ns));
    if link.jitter_ns > 0 {
        text += &format!(", jitter {}", time(link.jitter_ns));
    }
    if let Some(rate) = link.rate_bits_per_s {
        text += &format!(", {}", units::show_bit_rate(rate as f64));
    }
    if let Some(bytes) = link.queue_bytes {
        text += &format!(", queue {}", units::show_byte_size(bytes));
    }
    if link.loss_per_billion > 0 {
        text += &format!(", loss {}", units::show_share(f64::from(link.loss_per_billion) / 1e9));
    }
    text
}

impl AddArgs {
    fn config(&self) -> LinkConfig {
        // Far below the range of 64-bit nanoseconds; the switch refuses more than a minute.
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        LinkConfig {
            delay_ns: nanoseconds(self.delay),
            jitter_ns: nanoseconds(self.jitter),
            rate_bits_per_s: self.rate,
            queue_bytes: self.queue,
            // `loss` is a share from 0 to 1.
            loss_per_billion: (self.loss * 1e9).round() as u32,
            seed: self.seed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_described_with_the_units_of_all_other_output() {
        let link = LinkConfig {
            delay_ns: 8_500_000,
            rate_bits_per_s: Some(1_000_000),
            queue_bytes: Some(40 << 20),
            loss_per_billion: 10_000_000,
            ..LinkConfig::default()
        };
        assert_eq!(words(&link), "delay 8.50 ms, 1.00 Mbit/s, queue 40.0 MiB, loss 1.00%");
    }
}
