//! The share of right verdicts: planted limits as the tests have them, recorded and live.

use std::path::PathBuf;

use testkit::planted::bed::PlantedLab;
use testkit::planted::cases::{self, Case};
use testkit::planted::{families, modelled, recorded, trim};

use crate::comparison::Figures;
use crate::host::BenchError;
use crate::ours::program;

/// A short run brings up every so-manieth live case.
const QUICK_STRIDE: usize = 6;

/// Which planted labs to bring up.
#[derive(Debug, Clone)]
pub(crate) struct Verdicts {
    /// Names begin so; empty for all.
    pub(crate) only: Vec<String>,
    /// Where to write what was measured; then the cases that are only recorded run too.
    pub(crate) record: Option<PathBuf>,
}

impl Verdicts {
    /// The recorded and the modelled ones.
    pub(crate) fn recorded() -> Result<Figures, BenchError> {
        let modelled = modelled::modelled();
        let all: Vec<_> = recorded::recorded().iter().chain(&modelled).collect();
        let right = all.iter().filter(|(name, recorded)| {
            let (verdict, is_right) = recorded.judge();
            if !is_right {
                eprintln!("  {name} ({}): {}", recorded.plants, verdict.summary);
            }
            is_right
        });
        let mut figures = share(right.count(), all.len())?;
        let left_out = families::left_out(recorded::recorded());
        eprintln!("  {left_out}");
        figures.insert("left_out_share", left_out.share_left_out());
        Ok(figures)
    }

    /// The live ones, first answers only; a sixth of them when it must be quick.
    pub(crate) fn live(&self, quick: bool) -> Result<Figures, BenchError> {
        let stride = if quick && self.only.is_empty() { QUICK_STRIDE } else { 1 };
        let cases: Vec<Case> = cases::cases()
            .into_iter()
            .filter(|case| {
                let named = self.only.iter().any(|name| match name.strip_suffix('=') {
                    Some(whole) => case.name == whole,
                    None => case.name.starts_with(name.as_str()),
                });
                named || (self.only.is_empty() && (case.live || self.record.is_some()))
            })
            .step_by(stride)
            .collect();
        let mut right = 0;
        for case in &cases {
            right += usize::from(self.judge(case).unwrap_or_else(|why| {
                eprintln!("  FAILED {:23} {why}", case.name);
                false
            }));
        }
        share(right, cases.len())
    }

    fn judge(&self, case: &Case) -> Result<bool, BenchError> {
        let lab = PlantedLab::up(case, program()).map_err(BenchError::Failed)?;
        let results = lab.path(case).map_err(BenchError::Failed)?;
        if let Some(folder) = &self.record {
            trim::record(case, &results, folder)?;
        }
        let Some(verdict) = &results.verdict else {
            return Err(BenchError::Failed(format!("{}: no verdict", case.name)));
        };
        let is_right = case.accept.iter().any(|accepted| accepted.is(verdict));
        let word = if is_right { "right" } else { "WRONG" };
        eprintln!("  {word} {:24} {}", case.name, verdict.summary);
        Ok(is_right)
    }
}

fn share(right: usize, count: usize) -> Result<Figures, BenchError> {
    if count == 0 {
        return Err(BenchError::Failed("no such case".to_owned()));
    }
    let share = right as f64 / count as f64;
    eprintln!("  {right} of {count} named rightly");
    Ok(Figures::from([("right_share", share)]))
}
