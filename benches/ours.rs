//! Our side: `clearstream serve` and `clearstream test`.

use std::sync::OnceLock;
use std::time::Duration;

use results::{PointOutcome, TestOutcome};

use crate::comparison::Figures;
use crate::host::{BenchError, Server, Side, Wire};
use crate::iperf::{Accounted, account, seconds};

static PROGRAM: OnceLock<String> = OnceLock::new();

/// The program under test: the one chosen, or the one that was built beside this.
pub(crate) fn program() -> &'static str {
    PROGRAM.get_or_init(|| {
        let own = std::env::current_exe().unwrap_or_default();
        own.with_file_name("clearstream").to_string_lossy().into_owned()
    })
}

/// Takes another program; before the first run.
pub(crate) fn choose(path: &str) {
    PROGRAM.get_or_init(|| path.to_owned());
}

const PORT: u16 = 5221;

/// One run of `clearstream test` with extra options; figures by name.
pub(crate) fn test(wire: &Wire, length: Duration, extra: &[&str]) -> Result<Figures, BenchError> {
    let mut serve = wire.command(Side::Far, program());
    serve.args(["serve", "--port", &PORT.to_string()]);
    let server = Server::start(wire, serve, PORT, false)?;
    let mut client = wire.command(Side::Near, program());
    client.args([
        "test",
        &wire.target(),
        "--port",
        &PORT.to_string(),
        "--json",
        "--time",
        &seconds(length),
    ]);
    client.args(extra);
    let run = account(&server, client, length)?;
    let document = results::read_results(run.stdout.as_bytes())
        .map_err(|error| BenchError::Failed(format!("clearstream test --json: {error}")))?;
    let point = document.points.last().ok_or_else(|| BenchError::Failed("no point".to_owned()))?;
    match &point.outcome {
        PointOutcome::Measured(outcome) => figures(&run, outcome),
        PointOutcome::Failed(why) => Err(BenchError::Failed(why.clone())),
    }
}

fn figures(run: &Accounted, outcome: &TestOutcome) -> Result<Figures, BenchError> {
    if let Some(answers) = &outcome.request_response {
        return Ok(Figures::from([("transactions_per_s", answers.transactions_per_s)]));
    }
    let direction = outcome.directions.first();
    let direction = direction.ok_or_else(|| BenchError::Failed("no direction".to_owned()))?;
    let mut figures = run.figures(direction.received_bits_per_s);
    if let Some(udp) = &direction.udp {
        figures.insert("datagrams_per_s", udp.received_count as f64 / outcome.duration_s);
    }
    Ok(figures)
}

/// Time from starting `clearstream --help` to its end, milliseconds.
pub(crate) fn help_ms(program: &str) -> Result<Figures, BenchError> {
    let began = std::time::Instant::now();
    let output = std::process::Command::new(program).arg("--help").output()?;
    let took = began.elapsed();
    if !output.status.success() {
        return Err(BenchError::Failed(format!("{program} --help: {}", output.status)));
    }
    Ok(Figures::from([("start_ms", took.as_secs_f64() * 1e3)]))
}

/// Size of the program, bytes.
pub(crate) fn size() -> Result<Figures, BenchError> {
    Ok(Figures::from([("bytes", std::fs::metadata(program())?.len() as f64)]))
}
