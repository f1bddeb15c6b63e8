//! Messages of stock Open MPI: over our provider, over its own TCP, over other libfabric providers and over UCX, with the
//! same ranks (`clearstream rank`) on the same cores.
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
/// Messages of whose rate is told, bytes.
const SMALL_BYTES: u64 = 8;

const UDP: &str = "ClearStream, UDP";
const MEMORY: &str = "ClearStream, shared memory";
const BARE: &str = "bare datagram loop, polling";
const TCP: &str = "Open MPI tcp";
const OFI_RXM: &str = "Open MPI ofi tcp;ofi_rxm";
const OFI_NET: &str = "Open MPI ofi net";
const UCX: &str = "Open MPI UCX tcp";
const VADER: &str = "Open MPI vader";
const BOTH: &str = "ClearStream, UDP, shared memory inside a host";
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
        rate(effort),
        all_to_all(effort),
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

/// What the ranks do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Load {
    /// Ping-pong of short and long messages, a rank a host.
    PingPong,
    /// Many small messages at once in one direction, a rank a host.
    Stream,
    /// One byte from each to each, two ranks a host.
    AllToAll,
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

fn contender(whose: Whose, name: &str, load: Load, job: Job) -> Contender {
    let run: Run = Box::new(move |wire, time| {
        installed(LAUNCHER)?;
        match load {
            Load::PingPong => job.both(wire, time),
            Load::Stream => job.rate(wire, time),
            Load::AllToAll => job.exchange(wire, time),
        }
    });
    Contender { whose, name: name.to_owned(), run }
}

fn ours(name: &str, load: Load, shared_memory: &'static str) -> Contender {
    contender(Whose::Ours, name, load, Job { way: Way::Ours, shared_memory })
}

fn peer(name: &str, load: Load, way: Way) -> Contender {
    contender(Whose::Peer, name, load, Job { way, shared_memory: "off" })
}

fn peers(load: Load) -> [Contender; 4] {
    [
        peer(TCP, load, Way::Tcp),
        peer(OFI_RXM, load, Way::Ofi("tcp;ofi_rxm")),
        peer(OFI_NET, load, Way::Ofi("net")),
        peer(UCX, load, Way::Ucx),
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
    let mut contenders = vec![ours(UDP, Load::PingPong, "off")];
    contenders.extend(peers(Load::PingPong));
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
    let mut contenders = vec![ours(MEMORY, Load::PingPong, "direct")];
    contenders.extend(peers(Load::PingPong));
    contenders.push(peer(VADER, Load::PingPong, Way::Vader));
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

fn rate(effort: Effort) -> Comparison {
    let mut contenders = vec![ours(UDP, Load::Stream, "off")];
    contenders.extend(peers(Load::Stream));
    let row = RowPlan {
        figure: "messages_per_s",
        unit: "k/s",
        scale: 1e3,
        better: Better::Higher,
        ..row("messages-rate-8-byte", true, UDP, &PEERS, Gate::Ratio(2.0))
    };
    Comparison {
        name: "messages-rate",
        setting: "stock Open MPI, 8-byte messages from one rank to another, 64 at once, veth pair of MTU 1500, a core a rank"
            .to_owned(),
        medium: Medium::Veth,
        effort,
        contenders,
        rows: vec![row],
    }
}

fn all_to_all(effort: Effort) -> Comparison {
    let mut contenders = vec![ours(BOTH, Load::AllToAll, "direct")];
    contenders.extend(peers(Load::AllToAll));
    let row = RowPlan {
        figure: "exchange_s",
        ..row("messages-alltoall-1-byte", true, BOTH, &PEERS, Gate::Ratio(0.75))
    };
    Comparison {
        name: "messages-alltoall",
        setting: "stock Open MPI, MPI_Alltoall of 1 byte, 4 ranks, two on each of two hosts, veth pair of MTU 1500, a core for \
                  each two ranks, which yield it while they wait"
            .to_owned(),
        medium: Medium::Veth,
        effort,
        contenders,
        rows: vec![row],
    }
}

/// A job of ranks.
#[derive(Debug, Clone, Copy)]
struct Job {
    way: Way,
    /// `--shared-memory` of `clearstream mpi`.
    shared_memory: &'static str,
}

impl Job {
    /// A short and a long message, half of the time each.
    fn both(self, wire: &Wire, time: Duration) -> Result<Figures, BenchError> {
        let half = time / 2;
        let busy_s = host_busy_s();
        let short_s = self.median_s(wire, half, ("ping-pong", 0), 1)?;
        let long_s = self.median_s(wire, half, ("ping-pong", LONG_BYTES), 1)?;
        Ok(Figures::from([
            ("half_round_trip_s", short_s),
            ("long_bytes_per_s", LONG_BYTES as f64 / long_s),
            ("host_cpu_s", host_busy_s() - busy_s),
        ]))
    }

    fn rate(self, wire: &Wire, time: Duration) -> Result<Figures, BenchError> {
        let each_s = self.median_s(wire, time, ("stream", SMALL_BYTES), 1)?;
        Ok(Figures::from([("messages_per_s", 1.0 / each_s)]))
    }

    fn exchange(self, wire: &Wire, time: Duration) -> Result<Figures, BenchError> {
        Ok(Figures::from([("exchange_s", self.median_s(wire, time, ("all-to-all", 1), 2)?)]))
    }

    /// Time of a message or an exchange, seconds: the median of the batches.
    fn median_s(
        self,
        wire: &Wire,
        time: Duration,
        (pattern, bytes): (&str, u64),
        ranks_per_host: usize,
    ) -> Result<f64, BenchError> {
        let (bytes, time_text) = (bytes.to_string(), format!("{}s", time.as_secs_f64()));
        let mut command = self.launch(wire, ranks_per_host)?;
        command.arg(program()).args(["rank", pattern, "--bytes", &bytes, "--time", &time_text]);
        let Finished { stdout, .. } = finish(command, time + BESIDES)?;
        let told = stdout.lines().find_map(|line| serde_json::from_str::<Value>(line).ok());
        let median_s = told.as_ref().and_then(|told| told["median_s"].as_f64());
        median_s.ok_or_else(|| BenchError::Failed(format!("the ranks tell no time: {stdout:?}")))
    }

    /// The launcher with all options, up to the program of the ranks: so many on each host, or two where there is one
    /// host.
    fn launch(self, wire: &Wire, ranks_per_host: usize) -> Result<Command, BenchError> {
        let interface = if matches!(wire, Wire::Nothing) { "lo" } else { "veth0" };
        let first = if self.way == Way::Ours { program() } else { LAUNCHER };
        let mut command = wire.unbound(Side::Near, first);
        if self.way == Way::Ours {
            command.args(["mpi", "--interface", interface]);
            command.args(["--shared-memory", self.shared_memory, "--", LAUNCHER]);
        }
        command.args(self.way.options(interface));
        command.args(["--bind-to", "none", "-n", &(2 * ranks_per_host).to_string()]);
        if ranks_per_host > 1 {
            command.args(["--mca", "mpi_yield_when_idle", "1"]);
        }
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
            let hosts = format!("near:{ranks_per_host},far:{ranks_per_host}");
            command.args(["--host", &hosts, "--mca", "plm", "rsh", "--mca", "plm_rsh_agent"]);
            command.arg(agent).args(["--mca", "oob_tcp_if_include", interface]);
        } else {
            command.arg("--oversubscribe");
        }
        // One rank a host: the first on one core, the second on the other; more: as many cores as ranks on each.
        let number = if ranks_per_host > 1 { "LOCAL_RANK" } else { "RANK" };
        let bind = format!("#!/bin/sh\nexec taskset -c \"$OMPI_COMM_WORLD_{number}\" \"$@\"\n");
        command.arg(written(&folder, "bind", &bind)?);
        command.env("TMPDIR", &folder);
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        speak_to_us(&mut command).stdin(Stdio::null());
        Ok(command)
    }
}

/// A script in a folder of this run.
fn written(folder: &std::path::Path, name: &str, text: &str) -> Result<PathBuf, BenchError> {
    let path = folder.join(name);
    fs::write(&path, text)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700))?;
    Ok(path)
}
