//! Messages of stock Open MPI: over our provider, over its own TCP, over other libfabric providers and over UCX, with the
//! same ranks (`clearstream rank ping-pong`) on the same cores.
//!
//! Between two hosts (network namespaces, a veth pair) Open MPI starts its daemons by a script that enters the host's
//! namespace. Inside a host both ranks are on this one.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::comparison::{
    Better, Comparison, Contender, Effort, Figures, Gate, Medium, RowPlan, Run, Whose,
};
use crate::host::{BenchError, Finished, Side, Wire, finish, host_busy_s, installed, speak_to_us};
use crate::ours::program;
use crate::{pingpong, scratch};

const LAUNCHER: &str = "mpirun.openmpi";
/// Time a job may take besides what it measures.
const BESIDES: Duration = Duration::from_secs(30);
/// The long message, bytes.
const LONG_BYTES: u64 = 4 << 20;

const UDP: &str = "ClearStream, UDP";
const MEMORY: &str = "ClearStream, shared memory";
const BARE: &str = "bare datagram loop, polling";
const TCP: &str = "Open MPI tcp";
const OFI_RXM: &str = "Open MPI ofi tcp;ofi_rxm";
const OFI_NET: &str = "Open MPI ofi net";
const UCX: &str = "Open MPI UCX tcp";
const VADER: &str = "Open MPI vader";
/// What the requirement names.
const PEERS: [&str; 4] = [TCP, OFI_RXM, OFI_NET, UCX];

/// Every comparison of messages.
pub(crate) fn comparisons(effort: Effort) -> Vec<Comparison> {
    vec![
        between_hosts("messages", ["messages-0-byte", "messages-4-mb"], Medium::Veth, effort),
        between_hosts(
            "messages-split",
            ["messages-split-0-byte", "messages-split-4-mb"],
            Medium::VethSplittingAll,
            effort,
        ),
        inside_a_host(effort),
    ]
}

/// How messages travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Ours,
    Tcp,
    Ofi(&'static str),
    Ucx,
    Vader,
}

impl Way {
    /// Open MPI's options for it, on this interface.
    fn options(self, interface: &str) -> Vec<String> {
        let words = match self {
            Self::Ours => String::new(),
            Self::Tcp => {
                format!("--mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include {interface}")
            }
            Self::Vader => "--mca pml ob1 --mca btl vader,self".to_owned(),
            Self::Ofi(provider) => format!(
                "--mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include {provider} -x FI_TCP_IFACE={interface} \
                 -x FI_NET_IFACE={interface}"
            ),
            Self::Ucx => format!(
                "--mca pml ucx --mca pml_ucx_tls any --mca pml_ucx_devices any -x UCX_TLS=tcp,self \
                 -x UCX_NET_DEVICES={interface}"
            ),
        };
        words.split_whitespace().map(str::to_owned).collect()
    }
}

fn contender(whose: Whose, name: &str, way: Way, shared_memory: &'static str) -> Contender {
    let run: Run = Box::new(move |wire, time| {
        installed(LAUNCHER)?;
        both(wire, time, way, shared_memory)
    });
    Contender { whose, name: name.to_owned(), run }
}

fn peers() -> [Contender; 4] {
    [
        contender(Whose::Peer, TCP, Way::Tcp, "off"),
        contender(Whose::Peer, OFI_RXM, Way::Ofi("tcp;ofi_rxm"), "off"),
        contender(Whose::Peer, OFI_NET, Way::Ofi("net"), "off"),
        contender(Whose::Peer, UCX, Way::Ucx, "off"),
    ]
}

fn row(name: &str, is_short: bool, ours: &str, peers: &[&str], gate: Gate) -> RowPlan {
    RowPlan {
        name: name.to_owned(),
        figure: if is_short { "half_round_trip_s" } else { "long_bytes_per_s" },
        unit: if is_short { "us" } else { "GB/s" },
        scale: if is_short { 1e-6 } else { 1e9 },
        better: if is_short { Better::Lower } else { Better::Higher },
        ours: vec![ours.to_owned()],
        peers: peers.iter().map(|name| (*name).to_owned()).collect(),
        gate,
        note: None,
    }
}

fn between_hosts(
    name: &'static str,
    [short, long]: [&str; 2],
    medium: Medium,
    effort: Effort,
) -> Comparison {
    let has_offloads = medium == Medium::Veth;
    let offloads = if has_offloads { "on" } else { "off" };
    let mut contenders = vec![contender(Whose::Ours, UDP, Way::Ours, "off")];
    contenders.extend(peers());
    let rate = Gate::Ratio(if has_offloads { 2.5 } else { 1.0 });
    let mut rows =
        vec![row(short, true, UDP, &PEERS, Gate::Ratio(1.0)), row(long, false, UDP, &PEERS, rate)];
    if has_offloads {
        let bare: Run = Box::new(|wire, time| {
            let figures = pingpong::run(wire, time, "udp-polling")?;
            let rate = figures.get("transactions_per_s").copied().unwrap_or(f64::NAN);
            Ok(Figures::from([("half_round_trip_s", 0.5 / rate)]))
        });
        contenders.push(Contender { whose: Whose::Ours, name: BARE.to_owned(), run: bare });
        rows.push(row("messages-0-byte-bare", true, UDP, &[BARE], Gate::Ratio(1.3)));
    }
    Comparison {
        name,
        setting: format!(
            "stock Open MPI, ping-pong, half a round trip of 0 bytes and the rate of 4 MiB, veth pair of MTU 1500, \
             segmentation offloads {offloads}, a core a rank"
        ),
        medium,
        effort,
        contenders,
        rows,
    }
}

fn inside_a_host(effort: Effort) -> Comparison {
    let mut contenders = vec![contender(Whose::Ours, MEMORY, Way::Ours, "direct")];
    contenders.extend(peers());
    contenders.push(contender(Whose::Peer, VADER, Way::Vader, "off"));
    Comparison {
        name: "messages-memory",
        setting: "stock Open MPI, ping-pong between two ranks of one host, a core a rank; TCP over the loopback"
            .to_owned(),
        medium: Medium::Nothing,
        effort,
        contenders,
        rows: vec![
            row("messages-memory-0-byte", true, MEMORY, &PEERS, Gate::Ratio(1.0)),
            row("messages-memory-4-mb", false, MEMORY, &PEERS, Gate::Ratio(2.5)),
            row("messages-memory-0-byte-vader", true, MEMORY, &[VADER], Gate::None),
            row("messages-memory-4-mb-vader", false, MEMORY, &[VADER], Gate::None),
        ],
    }
}

/// A short and a long message, half of the time each.
fn both(wire: &Wire, time: Duration, way: Way, shared_memory: &str) -> Result<Figures, BenchError> {
    let half = time / 2;
    let busy_s = host_busy_s();
    let short_s = job(wire, half, way, shared_memory, 0)?;
    let long_s = job(wire, half, way, shared_memory, LONG_BYTES)?;
    Ok(Figures::from([
        ("half_round_trip_s", short_s),
        ("long_bytes_per_s", LONG_BYTES as f64 / long_s),
        ("host_cpu_s", host_busy_s() - busy_s),
    ]))
}

/// Half a round trip of a message, seconds: the median of its batches.
fn job(
    wire: &Wire,
    time: Duration,
    way: Way,
    shared_memory: &str,
    bytes: u64,
) -> Result<f64, BenchError> {
    let (bytes, time_text) = (bytes.to_string(), format!("{}s", time.as_secs_f64()));
    let mut command = launch(wire, way, shared_memory)?;
    command.arg(program()).args(["rank", "ping-pong", "--bytes", &bytes, "--time", &time_text]);
    let Finished { stdout, .. } = finish(command, time + BESIDES)?;
    let told = stdout.lines().find_map(|line| serde_json::from_str::<Value>(line).ok());
    let half = told.as_ref().and_then(|told| told["median_s"].as_f64());
    half.ok_or_else(|| BenchError::Failed(format!("the ranks tell no time: {stdout:?}")))
}

/// The launcher with all options, up to the program of the ranks.
fn launch(wire: &Wire, way: Way, shared_memory: &str) -> Result<Command, BenchError> {
    let interface = if matches!(wire, Wire::Nothing) { "lo" } else { "veth0" };
    let first = if way == Way::Ours { program() } else { LAUNCHER };
    let mut command = wire.unbound(Side::Near, first);
    if way == Way::Ours {
        command.args(["mpi", "--interface", interface, "--shared-memory", shared_memory]);
        command.args(["--", LAUNCHER]);
    }
    command.args(way.options(interface));
    command.args(["--bind-to", "none", "-n", "2"]);
    let folder = scratch::path("messages")?;
    fs::create_dir_all(&folder)?;
    if let Wire::Veth { near, far } = wire {
        let mut script = "#!/bin/sh\nhost=$1\nshift\ncase $host in\n".to_owned();
        for (name, host) in [("near", near), ("far", far)] {
            let (namespace, place) = (host.namespace(), folder.join(name));
            fs::create_dir_all(&place)?;
            let place = place.display();
            script += &format!("{name}) enter={namespace} place={place} ;;\n");
        }
        // The launcher's words are one command line.
        script += "esac\nTMPDIR=$place exec nsenter $enter sh -c \"$*\"\n";
        let agent = written(&folder, "agent", &script)?;
        command.args(["--host", "near:1,far:1", "--mca", "plm", "rsh", "--mca", "plm_rsh_agent"]);
        command.arg(agent).args(["--mca", "oob_tcp_if_include", interface]);
    } else {
        command.arg("--oversubscribe");
    }
    let bind = "#!/bin/sh\nexec taskset -c \"$OMPI_COMM_WORLD_RANK\" \"$@\"\n";
    command.arg(written(&folder, "bind", bind)?);
    command.env("TMPDIR", &folder);
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    speak_to_us(&mut command).stdin(Stdio::null());
    Ok(command)
}

/// A script in a folder of this run.
fn written(folder: &std::path::Path, name: &str, text: &str) -> Result<PathBuf, BenchError> {
    let path = folder.join(name);
    fs::write(&path, text)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700))?;
    Ok(path)
}
