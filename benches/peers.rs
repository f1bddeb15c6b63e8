//! `make bench`: our figures beside the peers', measured in the same minutes on the same wires.
//!
//! A *comparison* is a list of contenders that take turns: round after round each runs once, so
//! that whatever drifts on the machine drifts for all. From the rounds come *rows*: our median, the
//! best peer's median, their ratio, our spread and the number of rounds. A peer that is not
//! installed or fails is absent with the reason, never zero; a contender of ours that fails is a missed
//! requirement ([`judgement`]).
//!
//! Both ends live in network namespaces of this run, joined by a veth pair, the sending program on
//! the first core and the receiving one on the second. Everything ends with this process, whatever
//! ends it. `target/bench.json` holds the rows.
//!
//! ```sh
//! make bench                                  # 5 rounds of 5 s
//! make bench BENCH='--quick'                  # 3 rounds of 2 s
//! make bench BENCH='--only tcp-1-stream'      # comparisons whose name begins so
//! make bench BENCH='--gate'                   # exit code 3 when a requirement is missed
//! make bench BENCH='--history'                # what earlier runs found, by row
//! make bench BENCH='--only verdicts-live --record testdata/planted'   # planted labs, recorded
//! ```

mod comparison;
mod datagrams;
mod files;
mod gateways;
mod host;
mod iperf;
mod judgement;
mod messages;
mod ours;
mod packets;
mod pingpong;
mod plan;
mod queues;
mod record;
mod scratch;
mod states;
mod table;
mod verdicts;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use crate::comparison::Effort;
use crate::host::BenchError;
use crate::judgement::GateLevel;
use crate::record::Record;

/// Options.
#[derive(Debug, Parser)]
#[command(about = "ClearStream beside its peers", disable_version_flag = true)]
struct Options {
    /// Three rounds of two seconds: enough to see that it works, not to quote.
    #[arg(long)]
    quick: bool,
    /// Only comparisons whose name begins with NAME; may be given more than once.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Rounds of each comparison.
    #[arg(long, value_name = "N")]
    rounds: Option<u32>,
    /// Seconds of each run.
    #[arg(long, value_name = "S")]
    seconds: Option<u32>,
    /// Of `verdicts-live`, cases whose name begins so (NAME= for just that one); may be given more
    /// than once.
    #[arg(long, value_name = "NAME")]
    case: Vec<String>,
    /// Bring up every planted lab and write what `path` measured there into FOLDER.
    #[arg(long, value_name = "FOLDER")]
    record: Option<PathBuf>,
    /// End with exit code 3 when something is missed: a contender of ours that failed (`runs`), or a
    /// required figure or ratio as well.
    #[arg(long, value_name = "LEVEL", num_args = 0..=1, require_equals = true,
          default_missing_value = "figures")]
    gate: Option<GateLevel>,
    /// Name the comparisons and stop.
    #[arg(long)]
    list: bool,
    /// Show what earlier runs found (benches/record.jsonl) and stop.
    #[arg(long)]
    history: bool,
    /// The program under test [default: clearstream beside this program].
    #[arg(long, value_name = "PATH")]
    program: Option<String>,
    /// The iperf3 to compare with [default: the one on the path]; one with --gsro fills rows that others
    /// cannot.
    #[arg(long, value_name = "PATH")]
    iperf3: Option<String>,
    /// The folder with the ior and mdtest to compare with [default: those on the path].
    #[arg(long, value_name = "FOLDER")]
    ior: Option<String>,
    /// Where the rows go [default: bench.json in the build folder; the run is then also recorded].
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Options {
    fn effort(&self) -> Effort {
        let (rounds, seconds) = if self.quick { (3, 2) } else { (5, 5) };
        Effort {
            rounds: self.rounds.unwrap_or(rounds).max(1),
            run: Duration::from_secs(self.seconds.unwrap_or(seconds).max(1).into()),
            quick: self.quick,
        }
    }
}

impl Options {
    /// Whether this is a run to compare later ones with: this repository's program, as `make bench`
    /// builds it, with rounds enough.
    fn is_recorded(&self) -> bool {
        let is_own = self.program.is_none() && self.iperf3.is_none() && self.output.is_none();
        is_own && self.effort().rounds >= record::ROUNDS_MIN
    }
}

fn main() -> ExitCode {
    // The bare loops are this program again, inside the namespaces.
    let arguments: Vec<String> = std::env::args().collect();
    let intercepts =
        [pingpong::intercept, datagrams::intercept, queues::intercept, packets::floor::intercept];
    if let Some(code) = intercepts.iter().find_map(|intercept| intercept(&arguments)) {
        return code;
    }
    let options = Options::parse();
    options.program.iter().for_each(|path| ours::choose(path));
    options.iperf3.iter().for_each(|path| iperf::choose(path));
    options.ior.iter().for_each(|folder| files::choose(folder));
    let ended = run(&options);
    scratch::clean();
    match ended {
        Ok(code) => code,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::from(if matches!(error, BenchError::Privilege(_)) { 4 } else { 1 })
        }
    }
}

fn run(options: &Options) -> Result<ExitCode, BenchError> {
    let record_path = record::path();
    let record = record_path.as_deref().map(Record::read).transpose()?.unwrap_or_default();
    if options.history {
        print!("{}", record.show());
        return Ok(ExitCode::SUCCESS);
    }
    let chosen = |name: &str| {
        options.only.is_empty() || options.only.iter().any(|one| name.starts_with(one))
    };
    let verdicts =
        verdicts::Verdicts { only: options.case.clone(), record: options.record.clone() };
    let comparisons: Vec<_> = plan::comparisons(options.effort(), &verdicts)
        .into_iter()
        .filter(|one| chosen(one.name))
        .collect();
    if comparisons.is_empty() {
        return Err(BenchError::Failed(
            "no comparison has such a name; --list names them".to_owned(),
        ));
    }
    if options.list {
        comparisons.iter().for_each(|one| println!("{}", one.name));
        return Ok(ExitCode::SUCCESS);
    }
    let mut sheet = table::Sheet::new(options.output.clone());
    for comparison in comparisons {
        let measured = comparison.run()?;
        sheet.add(&comparison, &measured);
        sheet.save()?;
    }
    sheet.print(&record);
    if let (Some(path), true) = (record_path, options.is_recorded())
        && let Some(run) = sheet.as_run()
    {
        run.append_to(&path)?;
        println!("recorded in {}", path.display());
    }
    let missed = options.gate.map(|level| sheet.missed(level)).unwrap_or_default();
    missed.iter().for_each(|line| eprintln!("missed: {line}"));
    Ok(if missed.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(3) })
}
