//! Contenders that take turns, and the rows their rounds give.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::host::{BenchError, Wire};

/// How long everything may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    /// Times each contender runs.
    pub(crate) rounds: u32,
    /// Length of one run.
    pub(crate) run: Duration,
    /// Whether fewer settings do as well.
    pub(crate) quick: bool,
}

/// What one run measured: figure, in the unit its row names.
pub(crate) type Figures = BTreeMap<&'static str, f64>;

/// One run of a contender on the wire, so long.
pub(crate) type Run = Box<dyn Fn(&Wire, Duration) -> Result<Figures, BenchError>>;

/// Who answers for a contender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    /// This repository, bare loops included: it must run.
    Ours,
    /// Somebody else: it may be absent.
    Peer,
}

/// One program in one setting.
pub(crate) struct Contender {
    /// Who answers for it.
    pub(crate) whose: Whose,
    /// `iperf3`, `ClearStream, sendfile`.
    pub(crate) name: String,
    /// Runs it once on the wire.
    pub(crate) run: Run,
}

/// Which way is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Better {
    /// Throughput.
    Higher,
    /// Time, size.
    Lower,
}

/// What is required of a row.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Gate {
    /// Our figure over the peer's: at least (where higher is better) or at most this.
    Ratio(f64),
    /// Our figure itself, in the row's unit.
    Figure(f64),
    /// Shown for its own sake.
    None,
}

/// Whose figures stand in a row: the best median among the contenders whose name is listed.
#[derive(Debug, Clone)]
pub(crate) struct RowPlan {
    /// The row's name.
    pub(crate) name: String,
    /// Which figure of the runs.
    pub(crate) figure: &'static str,
    /// Its unit as printed.
    pub(crate) unit: &'static str,
    /// What a figure is divided by for printing.
    pub(crate) scale: f64,
    /// Which way is better.
    pub(crate) better: Better,
    /// Contenders on our side.
    pub(crate) ours: Vec<String>,
    /// Contenders on the other.
    pub(crate) peers: Vec<String>,
    /// What is required.
    pub(crate) gate: Gate,
    /// What a reader must know, printed with the row.
    pub(crate) note: Option<&'static str>,
}

/// The wire a comparison runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Medium {
    /// None: start times and sizes.
    Nothing,
    /// Two namespaces and a veth pair.
    Veth,
    /// The same, whose devices take no super-segments of UDP: the kernel splits them before, so that
    /// every datagram is a packet on the wire, as behind a network card.
    VethSplittingUdp,
    /// The same, whose devices take no super-segments of TCP either.
    VethSplittingAll,
    /// The lab with the 1650 km lightpath.
    Lightpath,
}

/// Contenders and what to make of them.
pub(crate) struct Comparison {
    /// Its name.
    pub(crate) name: &'static str,
    /// What both sides are given, in words.
    pub(crate) setting: String,
    /// Where.
    pub(crate) medium: Medium,
    /// How long.
    pub(crate) effort: Effort,
    /// Who.
    pub(crate) contenders: Vec<Contender>,
    /// The rows.
    pub(crate) rows: Vec<RowPlan>,
}

/// All rounds of all contenders.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    /// Contender → its rounds that ended well.
    pub(crate) rounds: BTreeMap<String, Vec<Figures>>,
    /// Rounds that did not: contender, and which round for what reason.
    pub(crate) failures: Vec<(String, String)>,
    /// Contender → what it lacks on this machine.
    pub(crate) absent: BTreeMap<String, String>,
    /// Contenders that this repository answers for.
    pub(crate) own: BTreeSet<String>,
}

impl Comparison {
    /// Runs the contenders in turns. A round that fails is noted with its reason, and the next one is
    /// tried all the same; a contender that is not installed is out. Without a wire all fail.
    pub(crate) fn run(&self) -> Result<Measured, BenchError> {
        eprintln!("\n{}: {}", self.name, self.setting);
        let own = self.contenders.iter().filter(|one| one.whose == Whose::Ours);
        let own = own.map(|one| one.name.clone()).collect();
        let mut measured = Measured { own, ..Measured::default() };
        let wire = match Wire::lay(self.medium) {
            Ok(wire) => wire,
            Err(error @ BenchError::Privilege(_)) => return Err(error),
            Err(error) => {
                eprintln!("  failed: {error}");
                let why = |one: &Contender| (one.name.clone(), format!("no wire: {error}"));
                measured.failures = self.contenders.iter().map(why).collect();
                return Ok(measured);
            }
        };
        for round in 0..self.effort.rounds {
            for turn in 0..self.contenders.len() {
                // Each round begins with another contender: nobody is always first.
                let index = (turn + round as usize) % self.contenders.len();
                self.turn(&self.contenders[index], &wire, round, &mut measured);
            }
        }
        Ok(measured)
    }

    fn turn(&self, contender: &Contender, wire: &Wire, round: u32, measured: &mut Measured) {
        if measured.absent.contains_key(&contender.name) {
            return;
        }
        match (contender.run)(wire, self.effort.run) {
            Ok(figures) => {
                eprintln!(
                    "  {}/{} {:32} {}",
                    round + 1,
                    self.effort.rounds,
                    contender.name,
                    shown(&figures)
                );
                measured.rounds.entry(contender.name.clone()).or_default().push(figures);
            }
            Err(error @ BenchError::NotInstalled(_)) => {
                eprintln!("  {:36} absent: {error}", contender.name);
                measured.absent.insert(contender.name.clone(), error.to_string());
            }
            Err(error) => {
                let (name, number) = (&contender.name, round + 1);
                eprintln!("  {number}/{} {name:32} FAILED: {error}", self.effort.rounds);
                measured.failures.push((name.clone(), format!("round {number}: {error}")));
            }
        }
    }
}

fn shown(figures: &Figures) -> String {
    let one = |(name, value): (&&str, &f64)| format!("{name} {value:.4e}");
    figures.iter().map(one).collect::<Vec<_>>().join("  ")
}
