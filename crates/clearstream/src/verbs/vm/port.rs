//! `vm port`: adds a port for a guest that another program starts.

use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use packet_switch::attachment::{Ask, DeviceKind, Shape};
use packet_switch::client::Connection;
use packet_switch::{Name, PortName};
use serde_json::json;
use units::parse_byte_size;
use vm::VmError;
use vm::line::{PortType, QUEUES_MAX, mac_of};
use vm::words::{Words, of_port, of_rings};

use crate::VerbResult;
use crate::exit::{Exit, VerbError};
use crate::signals;

/// How often a port that is held looks for signals.
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  \
    clearstream vm port vale0:vm --path /run/vm.sock --memory 1G\n\n\
    Adds the port as `port add vale0:vm --type vhost-user --path /run/vm.sock` does, and prints the\n\
    options for the hypervisor. The port stays until `port del` removes it. Whoever runs the\n\
    hypervisor must be able to open the socket.\n\n\
    With --type ptnet the guest drives the port's rings itself. This command then holds the port's\n\
    memory and doorbells until it ends (Ctrl-C), even while the switch is restarted.")]
pub(super) struct PortArgs {
    /// The port to add.
    port: PortName,
    /// The socket to create, to which the hypervisor connects.
    #[arg(long, value_name = "SOCKET")]
    path: PathBuf,
    /// How the guest uses the port: virtio (its own virtio-net driver) or ptnet (the driver of guest/ptnet).
    #[arg(long = "type", value_name = "TYPE", default_value = "virtio", value_parser = ["virtio", "ptnet"])]
    port_type: String,
    /// Trust group of the guest, as for `vm run` (--type ptnet).
    #[arg(long, value_name = "GROUP")]
    trust: Option<Name>,
    /// The guest's memory, for the printed options.
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_byte_size)]
    memory: u64,
    /// Number of queue pairs of its network device; at most 8 with --type ptnet, 1 with --trust.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(QUEUES_MAX)))]
    queues: u32,
}

pub(super) fn run(args: &PortArgs, switch: &Path, json: bool) -> VerbResult {
    let path = std::path::absolute(&args.path)?;
    let mac = mac_of(&args.port);
    if args.port_type == "ptnet" {
        let most = PortType::Ptnet.queues_max(args.trust.is_some());
        if args.queues > most {
            let which = if args.trust.is_some() { "in a trust group" } else { "of type ptnet" };
            let words = format!("--queues: a port {which} has at most {most} of them");
            return Err(VerbError::usage(words));
        }
        signals::watch().map_err(|error| VerbError::from_error(&error))?;
        let _socket = vm::keeper::hold_port(
            switch,
            &args.port,
            (&mac, args.queues),
            &path,
            args.trust.clone(),
        )
        .map_err(|error| of_socket(&path, error))?;
        let held = tell(args, &path, &of_rings(&path, args.queues), json);
        while held.is_ok() && signals::caught().is_none() {
            std::thread::sleep(LOOK_EVERY);
        }
        return held;
    }
    if args.trust.is_some() {
        return Err(VerbError::usage(
            "--trust needs --type ptnet: guests of other types share no memory",
        ));
    }
    add(&args.port, &path, switch)?;
    tell(args, &path, &of_port(&path, &mac, args.memory, args.queues), json)
}

/// Says where the port waits, and what each hypervisor is to be told.
fn tell(args: &PortArgs, path: &Path, words: &[Words], json: bool) -> VerbResult {
    let mut out = crate::out::stdout();
    if json {
        let told = words.iter().map(|words| {
            json!({ "hypervisor": words.hypervisor, "options": words.options, "note": words.note })
        });
        let told: Vec<_> = told.collect();
        let line = json!({ "port": args.port, "path": path, "hypervisors": told });
        writeln!(out, "{line}")?;
        return Ok(Exit::Ok);
    }
    writeln!(out, "port {} waits for a guest at {}", args.port, path.display())?;
    for one in words {
        let Words { hypervisor, note, .. } = one;
        writeln!(out, "\n{hypervisor}: {note}")?;
        if let Some(line) = one.line() {
            writeln!(out, "  {line}")?;
        }
    }
    Ok(Exit::Ok)
}

fn add(port: &PortName, path: &Path, switch: &Path) -> Result<(), VerbError> {
    let mut connection = Connection::open(switch).map_err(VmError::from)?;
    let listener =
        ports::vm::Listener::bind(path).map_err(|error| of_socket(path, error.into()))?;
    let device = DeviceKind::VhostUser { path: path.display().to_string() };
    let ask = Ask::AddDevice { port: port.clone(), device, shape: Shape::of_device() };
    connection.ask_with(ask, &[listener.as_fd()]).map_err(|error| {
        // This command created the socket, and nobody serves it.
        std::fs::remove_file(path).ok();
        VmError::from(error).into()
    })
}

fn of_socket(path: &Path, error: VmError) -> VerbError {
    match &error {
        VmError::Syscall(call) if call.source.kind() == std::io::ErrorKind::AddrInUse => {
            VerbError::failed(format!("{} already exists", path.display()))
        }
        _ => error.into(),
    }
}
