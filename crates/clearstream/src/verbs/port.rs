//! `clearstream port`: manages the ports and pipes of a running switch.

mod capture;
mod device;
mod openmetrics;

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use packet_switch::PortName;
use packet_switch::attachment::{Ask, DeviceState, Entry, Kind, PIPES_MAX, RefusalCode, Shape};
use packet_switch::client::{ClientError, Connection, default_socket};
use packet_switch::counters::FlowCount;

use crate::VerbResult;
use crate::exit::{Exit, VerbError};
use capture::Until;
use device::Settings;

/// Options of `port`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    clearstream port add vale0:a\n  \
    clearstream port add chain --pipes 2\n  \
    ip netns exec blue clearstream port add vale0:blue --type tap --device tap0\n  \
    clearstream port add vale0:up --type xdp --device eth1 --queue 0\n  \
    clearstream port add vale0:vm --type vhost-user --path /run/vm.sock\n  \
    clearstream port list\n  \
    clearstream port stats vale0:a\n  \
    clearstream port stats --openmetrics\n  \
    clearstream port capture vale0:a -o a.pcap\n  \
    clearstream port del vale0:a\n\n\
    A client may attach to a port that was not added: the port is then created, and removed when the\n\
    client leaves. Incoming frames come from the client, outgoing frames go to it.\n\n\
    A device is opened in the network namespace and with the privilege of this command; the switch\n\
    itself needs neither. TAP devices pass super-segments without splitting them, and VLAN tags\n\
    unchanged.\n\n\
    A port of type xdp takes a queue of a device away from the host's stack (AF_XDP) and returns it\n\
    when the port is removed; `port list` shows whether the kernel copies frames. The port does not\n\
    see VLAN tags that the device strips and checksums that it leaves to offload: use ethtool -K DEV\n\
    rxvlan off, and at the other end of a veth pair ethtool -K DEV tx off txvlan off.\n\n\
    A port of type vhost-user belongs to a guest. QEMU connects to its socket and shares the guest's\n\
    memory:\n  \
    -chardev socket,id=c,path=PATH -netdev vhost-user,id=n,chardev=c\n  \
    -device virtio-net-pci,netdev=n -machine memory-backend=mem\n  \
    -object memory-backend-memfd,id=mem,size=SIZE,share=on\n\
    The guest needs no special driver. It may reboot, and another guest may take its place;\n\
    `port list` shows the last violation of virtio by a guest.")]
pub(crate) struct PortArgs {
    #[command(subcommand)]
    action: Action,
    /// The switch's socket [default: $CLEARSTREAM_SWITCH, else below $XDG_RUNTIME_DIR, else /run].
    #[arg(long, value_name = "PATH", global = true)]
    socket: Option<PathBuf>,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Add a persistent port, or a group of pipes.
    Add(AddArgs),
    /// Remove a port or a group of pipes, with its clients.
    Del {
        /// SWITCH:PORT, or the group's name.
        name: String,
    },
    /// List ports, and the clients attached to them.
    List,
    /// Show frames, bytes and drops by reason.
    Stats {
        /// SWITCH:PORT [default: all].
        name: Option<String>,
        /// Print OpenMetrics text, for Prometheus and similar systems.
        #[arg(long)]
        openmetrics: bool,
    },
    /// Write the frames that pass a port, in both directions, to a pcap file for Wireshark and
    /// tcpdump.
    Capture {
        /// SWITCH:PORT.
        name: PortName,
        /// The file; `-` writes to standard output.
        #[arg(long, short, value_name = "FILE")]
        output: PathBuf,
        /// End after this many frames.
        #[arg(long, value_name = "N")]
        count: Option<u64>,
        /// End after this long.
        #[arg(long, value_name = "TIME", value_parser = units::parse_duration)]
        duration: Option<Duration>,
    },
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    clearstream port add vale0:stack --type tap --device tap0 --queues 4\n  \
    clearstream port add vale0:wire --type xdp --device eth1 --queue 0\n  \
    clearstream port add vale0:vm --type vhost-user --path /run/vm.sock\n  \
    clearstream port add chain --pipes 4")]
struct AddArgs {
    /// SWITCH:PORT, or with --pipes the group's name.
    name: String,
    /// The options --type, --device, --path, --queue and --queues as words: type=, dev=, path=,
    /// queue= and queues=.
    #[arg(value_name = "KEY=VALUE")]
    words: Vec<String>,
    #[command(flatten)]
    settings: Settings,
    /// Add a group of this many pipes in one memory region, for the processes of one user.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=PIPES_MAX as i64))]
    pipes: Option<u32>,
    /// Slots of each ring, 2 to 4096 [default: 1024].
    #[arg(long, value_name = "N")]
    slots: Option<u32>,
    /// Bytes of each buffer, a multiple of 64 [default: 2112; 4160 for the port of a TAP device].
    #[arg(long, value_name = "BYTES")]
    buffer: Option<u32>,
}

pub(crate) fn run(args: &PortArgs, json: bool) -> VerbResult {
    if let Action::Add(add) = &args.action {
        // Refused before a switch is looked for.
        add.settings.clone().with(&add.words)?.device()?;
    }
    let mut connection = connect(args.socket.as_ref())?;
    match &args.action {
        Action::Add(add) => match add.settings.clone().with(&add.words)?.device()? {
            None => done(connection.ask(add.ask()?)),
            Some(wanted) => {
                if add.pipes.is_some() {
                    return Err(VerbError::usage("a group of pipes has no device"));
                }
                let port = add.name.parse().map_err(VerbError::usage)?;
                device::add(&mut connection, &port, &wanted, add.shape(wanted.default_shape()))
            }
        },
        Action::Del { name } => done(connection.ask(match name.parse::<PortName>() {
            Ok(port) => Ask::DeletePort { port },
            Err(_) => Ask::DeletePipes { group: name.parse().map_err(VerbError::usage)? },
        })),
        Action::List => {
            print(&connection.list().map_err(|error| explain(&error))?, json, list_line)
        }
        Action::Capture { name, output, count, duration } => {
            let until = Until { count: *count, duration: *duration };
            capture::run(&mut connection, name, output, until, json)
        }
        Action::Stats { name, openmetrics } => {
            let mut entries = connection.list().map_err(|error| explain(&error))?;
            if let Some(name) = name {
                let names: Vec<String> = entries.iter().map(|entry| entry.name.clone()).collect();
                entries.retain(|entry| entry.name == *name);
                if entries.is_empty() {
                    return Err(no_port(name, &names));
                }
            }
            if *openmetrics {
                write!(
                    crate::out::stdout(),
                    "{}",
                    openmetrics::text(&entries, connection.health())
                )?;
                return Ok(Exit::Ok);
            }
            print(&entries, json, stats_lines)
        }
    }
}

impl AddArgs {
    fn shape(&self, default: Shape) -> Shape {
        Shape {
            slots: self.slots.unwrap_or(default.slots),
            buffer_bytes: self.buffer.unwrap_or(default.buffer_bytes),
        }
    }

    fn ask(&self) -> Result<Ask, VerbError> {
        let shape = self.shape(Shape::default());
        Ok(match self.pipes {
            Some(pipes) => {
                Ask::AddPipes { group: self.name.parse().map_err(VerbError::usage)?, pipes, shape }
            }
            None => Ask::AddPort { port: self.name.parse().map_err(VerbError::usage)?, shape },
        })
    }
}

/// Connects to the switch at `socket`, by default at the usual place.
pub(super) fn connect(socket: Option<&PathBuf>) -> Result<Connection, VerbError> {
    let path = socket.cloned().unwrap_or_else(default_socket);
    Connection::open(&path).map_err(|error| explain(&error))
}

/// Converts a client's error into one with an exit code.
pub(super) fn explain(error: &ClientError) -> VerbError {
    match error {
        ClientError::Syscall(error) if error.is_privilege() => {
            VerbError::missing(format!("no permission: {}", crate::exit::chain(error)))
        }
        ClientError::Refused { code: RefusalCode::Invalid, why } => VerbError::usage(why),
        ClientError::Refused { code: RefusalCode::NotThere, why } => {
            VerbError::failed(format!("{why}; `clearstream port list` lists the ports"))
        }
        _ => VerbError::from_error(error),
    }
}

/// Ports that an error names at most.
const NAMED_MAX: usize = 8;

/// A port that the switch does not have, with those that it has.
fn no_port(name: &str, names: &[String]) -> VerbError {
    let shown: Vec<&str> = names.iter().map(String::as_str).take(NAMED_MAX).collect();
    let there = match (shown.join(", "), names.len().saturating_sub(NAMED_MAX)) {
        (none, _) if none.is_empty() => "it has none".to_owned(),
        (shown, 0) => format!("its ports: {shown}"),
        (shown, more) => format!("its ports: {shown} and {more} more"),
    };
    VerbError::failed(format!("there is no port {name} on the switch ({there})"))
}

fn done(outcome: Result<(), ClientError>) -> VerbResult {
    outcome.map_err(|error| explain(&error))?;
    Ok(Exit::Ok)
}

fn print(entries: &[Entry], json: bool, lines: fn(&Entry) -> String) -> VerbResult {
    let mut out = crate::out::stdout();
    if json {
        let text = serde_json::to_string_pretty(entries).map_err(io::Error::other)?;
        writeln!(out, "{text}")?;
    } else {
        for entry in entries {
            writeln!(out, "{}", lines(entry))?;
        }
    }
    Ok(Exit::Ok)
}

fn list_line(entry: &Entry) -> String {
    let Shape { slots, buffer_bytes } = entry.shape;
    let what = match entry.kind {
        Kind::Port if entry.device.is_some() => device_words(entry.device.as_ref()),
        Kind::Port => "port".to_owned(),
        Kind::Ephemeral => "port, removed with its client".to_owned(),
        Kind::Pipes { pipes: 1 } => "1 pipe".to_owned(),
        Kind::Pipes { pipes } => format!("{pipes} pipes"),
    };
    let attached = match entry.attached {
        0 => "free".to_owned(),
        1 => "attached".to_owned(),
        count => format!("{count} attached"),
    };
    let trust =
        entry.trust.as_ref().map(|group| format!(", trust group {group}")).unwrap_or_default();
    let name = &entry.name;
    let shape = format!("{slots} slots, {buffer_bytes}-byte buffers, {what}{trust}");
    let line = crate::tables::labelled(&format!("{name:<24} {attached:<12} "), &shape);
    line.trim_end().to_owned()
}

fn device_words(device: Option<&DeviceState>) -> String {
    let Some(device) = device else { return String::new() };
    let mode = device.mode.as_ref().map(|mode| format!(", {mode}")).unwrap_or_default();
    let trouble =
        device.trouble.as_ref().map(|why| format!(", last fault: {why}")).unwrap_or_default();
    let ended = device.ended.as_ref().map(|why| format!(", ENDED: {why}")).unwrap_or_default();
    format!("{} {}{mode}{trouble}{ended}", device.kind, device.name)
}

fn stats_lines(entry: &Entry) -> String {
    let Some(count) = &entry.count else {
        return format!(
            "{}\n  absent: a pipe's frames pass no switch that could count them",
            entry.name
        );
    };
    let mut text = entry.name.clone();
    text += &flow_lines("incoming", &count.incoming);
    text += &flow_lines("outgoing", &count.outgoing);
    text += &format!("\n  wake-ups {:>14}", count.wakeups);
    if let Some(group) = &entry.trust {
        let handed_over = count.handed_over;
        text += &format!(
            "\n  handed over {handed_over:>11} outgoing frames, uncopied, from trust group {group}"
        );
    }
    if let Some(device) = &entry.device {
        text += &format!("\n  {}", device_words(Some(device)));
        if device.refused + device.lost > 0 {
            text += &format!(", refused {} frames, lost {}", device.refused, device.lost);
        }
    }
    if let Some(why) = &entry.last_cut_off {
        text += &format!("\n  last client disconnected: {why}");
    }
    text
}

fn flow_lines(direction: &str, flow: &FlowCount) -> String {
    let drops: String =
        flow.dropped.iter().map(|(reason, count)| format!(", dropped {count} {reason}")).collect();
    let size = units::show_byte_size(flow.bytes);
    format!("\n  {direction} {:>14} frames {size:>12}{drops}", flow.frames)
}
