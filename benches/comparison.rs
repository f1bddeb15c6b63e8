//! Contenders that take turns, and the rows their rounds give.

use std::collections::BTreeMap;
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

/// One program in one setting.
pub(crate) struct Contender {
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
}

/// The wire a comparison runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Medium {
    /// None: start times and sizes.
    Nothing,
    /// Two namespaces and a veth pair.
    Veth,
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
    /// Contender → its rounds.
    pub(crate) rounds: BTreeMap<String, Vec<Figures>>,
    /// Contender → why it has none.
    pub(crate) absent: BTreeMap<String, String>,
}

impl Comparison {
    /// Runs the contenders in turns. A contender that fails once is out, with its reason; without a
    /// wire all are.
    pub(crate) fn run(&self) -> Result<Measured, BenchError> {
        eprintln!("\n{}: {}", self.name, self.setting);
        let mut measured = Measured::default();
        let wire = match Wire::lay(self.medium) {
            Ok(wire) => wire,
            Err(error @ BenchError::Privilege(_)) => return Err(error),
            Err(error) => {
                eprintln!("  absent: {error}");
                let why = |one: &Contender| (one.name.clone(), error.to_string());
                measured.absent = self.contenders.iter().map(why).collect();
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
            Err(error) => {
                eprintln!("  {:36} absent: {error}", contender.name);
                measured.rounds.remove(&contender.name);
                measured.absent.insert(contender.name.clone(), error.to_string());
            }
        }
    }
}

fn shown(figures: &Figures) -> String {
    let one = |(name, value): (&&str, &f64)| format!("{name} {value:.4e}");
    figures.iter().map(one).collect::<Vec<_>>().join("  ")
}

impl Measured {
    /// All rounds of one contender's figure, in the row's unit.
    pub(crate) fn values(&self, contender: &str, row: &RowPlan) -> Vec<f64> {
        let rounds = self.rounds.get(contender).map(Vec::as_slice).unwrap_or_default();
        rounds
            .iter()
            .filter_map(|figures| figures.get(row.figure))
            .map(|value| value / row.scale)
            .collect()
    }

    /// The contender among `names` with the best median, and its rounds.
    pub(crate) fn best(&self, names: &[String], row: &RowPlan) -> Option<(String, Vec<f64>)> {
        let median = |values: &Vec<f64>| stats::median(values).unwrap_or(f64::NAN);
        let ran = names.iter().map(|name| (name.clone(), self.values(name, row)));
        ran.filter(|(_, values)| !values.is_empty()).max_by(|(_, one), (_, other)| {
            let order = median(one).total_cmp(&median(other));
            if row.better == Better::Higher { order } else { order.reverse() }
        })
    }

    /// Why none of `names` ran.
    pub(crate) fn reason(&self, names: &[String]) -> String {
        let mut names_of: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for name in names {
            if let Some(why) = self.absent.get(name) {
                names_of.entry(why).or_default().push(name);
            }
        }
        if names_of.is_empty() {
            return "this figure was not reported".to_owned();
        }
        let one = |(why, names): (&&str, &Vec<&str>)| format!("{}: {why}", names.join(", "));
        names_of.iter().map(one).collect::<Vec<_>>().join("; ")
    }
}
