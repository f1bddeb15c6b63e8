//! `vm port`: adds a port for a guest that another program starts.

use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use packet_switch::PortName;
use packet_switch::attachment::{Ask, DeviceKind, Shape};
use packet_switch::client::Connection;
use serde_json::json;
use units::parse_byte_size;
use vm::line::{QUEUES_MAX, mac_of};
use vm::words::{Words, of_port};

use crate::VerbResult;
use crate::exit::{Exit, VerbError};

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  \
    clearstream vm port vale0:vm --path /run/vm.sock --memory 1G\n\n\
    The same as `port add vale0:vm --type vhost-user --path /run/vm.sock`, with the words for the\n\
    hypervisor. The port stays; `port del` takes it away. Whoever runs the hypervisor must be able to\n\
    open the socket.")]
pub(super) struct PortArgs {
    /// The port to add.
    port: PortName,
    /// Socket to create, to which the hypervisor connects.
    #[arg(long, value_name = "SOCKET")]
    path: PathBuf,
    /// The guest's memory, for the printed options.
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_byte_size)]
    memory: u64,
    /// Pairs of queues of its network device, for the printed options.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(QUEUES_MAX)))]
    queues: u32,
}

pub(super) fn run(args: &PortArgs, switch: &Path, json: bool) -> VerbResult {
    let path = std::path::absolute(&args.path)?;
    add(&args.port, &path, switch)?;
    let words = of_port(&path, &mac_of(&args.port), args.memory, args.queues);
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
    for one in &words {
        let Words { hypervisor, note, .. } = one;
        writeln!(out, "\n{hypervisor}: {note}")?;
        if let Some(line) = one.line() {
            writeln!(out, "  {line}")?;
        }
    }
    Ok(Exit::Ok)
}

fn add(port: &PortName, path: &Path, switch: &Path) -> Result<(), VerbError> {
    let failed = |error: vm::VmError| VerbError::from(error);
    let mut connection = Connection::open(switch).map_err(|error| failed(error.into()))?;
    let listener = ports::vm::Listener::bind(path).map_err(|error| {
        match error.source.kind() == std::io::ErrorKind::AddrInUse {
            true => VerbError::failed(format!("{} already exists", path.display())),
            false => failed(error.into()),
        }
    })?;
    let device = DeviceKind::VhostUser { path: path.display().to_string() };
    let ask = Ask::AddDevice { port: port.clone(), device, shape: Shape::of_device() };
    connection.ask_with(ask, &[listener.as_fd()]).map_err(|error| {
        // This command created the socket, and nobody serves it.
        std::fs::remove_file(path).ok();
        failed(error.into())
    })
}
