//! The peers: stock iperf3 and iperf2, with their own servers.

use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::Value;

use crate::comparison::Figures;
use crate::host::{BenchError, Server, Side, Wire, finish, host_busy_s, installed};

const IPERF3_PORT: u16 = 5201;
const IPERF2_PORT: u16 = 5001;

static IPERF3: OnceLock<String> = OnceLock::new();

/// The iperf3 compared with: the one chosen, or the one on the path.
pub(crate) fn iperf3_program() -> &'static str {
    IPERF3.get_or_init(|| "iperf3".to_owned())
}

/// Takes another iperf3; before the first run.
pub(crate) fn choose(path: &str) {
    IPERF3.get_or_init(|| path.to_owned());
}

/// Its version as it tells it; empty when it is not there.
pub(crate) fn iperf3_version() -> String {
    let output = Command::new(iperf3_program()).arg("--version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.unwrap_or_default().lines().next().unwrap_or_default().to_owned()
}

/// Whether this iperf3 has an option.
pub(crate) fn has_option(option: &str) -> Result<(), BenchError> {
    installed(iperf3_program())?;
    let help = Command::new(iperf3_program()).arg("--help").output()?;
    if String::from_utf8_lossy(&help.stdout).contains(option) {
        return Ok(());
    }
    Err(BenchError::NotInstalled(format!(
        "an iperf3 with {option} (`--iperf3 PATH` names another one)"
    )))
}

/// One run of iperf3 with extra client options; figures by name.
pub(crate) fn iperf3(wire: &Wire, length: Duration, extra: &[&str]) -> Result<Figures, BenchError> {
    installed(iperf3_program())?;
    let mut serve = wire.command(Side::Far, iperf3_program());
    serve.args(["-s", "-p", &IPERF3_PORT.to_string()]);
    let server = Server::start(wire, serve, IPERF3_PORT, false)?;
    let mut client = wire.command(Side::Near, iperf3_program());
    client.args([
        "-c",
        &wire.target(),
        "-p",
        &IPERF3_PORT.to_string(),
        "-J",
        "-t",
        &seconds(length),
    ]);
    client.args(extra);
    let run = account(&server, client, length)?;
    let json: Value = serde_json::from_str(&run.stdout)
        .map_err(|error| BenchError::Failed(format!("iperf3's JSON: {error}")))?;
    if let Some(error) = json["error"].as_str() {
        return Err(BenchError::Failed(error.to_owned()));
    }
    let received = &json["end"]["sum_received"];
    let number = |name: &str| received[name].as_f64();
    let bits_per_s = number("bits_per_second")
        .ok_or_else(|| BenchError::Failed("no sum_received".to_owned()))?;
    let mut figures = run.figures(bits_per_s);
    if let (Some(sent), Some(lost), Some(seconds)) =
        (number("packets"), number("lost_packets"), number("seconds"))
    {
        figures.insert("datagrams_per_s", (sent - lost) / seconds);
    }
    Ok(figures)
}

/// One run of iperf2 over TCP. Its client's figure counts what was handed to the socket, a little
/// more than what arrived.
pub(crate) fn iperf2(
    wire: &Wire,
    length: Duration,
    congestion_control: &str,
) -> Result<Figures, BenchError> {
    installed("iperf")?;
    let mut serve = wire.command(Side::Far, "iperf");
    serve.args(["-s", "-p", &IPERF2_PORT.to_string()]);
    let server = Server::start(wire, serve, IPERF2_PORT, false)?;
    let mut client = wire.command(Side::Near, "iperf");
    client.args(["-c", &wire.target(), "-p", &IPERF2_PORT.to_string(), "-y", "C"]);
    client.args(["-t", &seconds(length), "-Z", congestion_control]);
    let run = account(&server, client, length)?;
    let rate =
        run.stdout.lines().next_back().and_then(|line| line.split(',').nth(8)?.parse::<f64>().ok());
    let rate =
        rate.ok_or_else(|| BenchError::Failed(format!("iperf2 printed {:?}", run.stdout.trim())))?;
    Ok(run.figures(rate))
}

/// A client's run with the processor time it cost.
pub(crate) struct Accounted {
    /// What the client printed.
    pub(crate) stdout: String,
    /// User and system time of client and server, seconds.
    processes_s: f64,
    /// Time all cores were busy, seconds.
    host_s: f64,
    length: Duration,
}

/// Runs the client against the server and accounts for both.
pub(crate) fn account(
    server: &Server,
    client: Command,
    length: Duration,
) -> Result<Accounted, BenchError> {
    let (server_s, host_s) = (server.cpu_s(), host_busy_s());
    let finished = finish(client, length + Duration::from_secs(20))?;
    Ok(Accounted {
        stdout: finished.stdout,
        processes_s: server.cpu_s() - server_s + finished.cpu_s,
        host_s: host_busy_s() - host_s,
        length,
    })
}

impl Accounted {
    /// The figures every throughput run has.
    pub(crate) fn figures(&self, bits_per_s: f64) -> Figures {
        let gbit = bits_per_s * self.length.as_secs_f64() / 1e9;
        Figures::from([
            ("bits_per_s", bits_per_s),
            ("cpu_s_per_gbit", self.processes_s / gbit),
            ("host_cpu_s_per_gbit", self.host_s / gbit),
        ])
    }
}

/// A length as every peer's `-t` takes it.
pub(crate) fn seconds(length: Duration) -> String {
    length.as_secs().to_string()
}
