//! Records planted limits that a seed draws: `record_drawn SEED FIRST COUNT FOLDER PROGRAM`. Those in which the planted
//! limit did not bind, by throughput alone, are discarded.

use std::path::Path;

use testkit::planted::bed::PlantedLab;
use testkit::planted::{drawn, trim};

fn main() -> Result<(), String> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [seed, first, count, folder, program] = &words[..] else {
        return Err("record_drawn SEED FIRST COUNT FOLDER PROGRAM".to_owned());
    };
    let number = |text: &str| text.parse::<usize>().map_err(|error| format!("{text}: {error}"));
    let (seed, first, count) = (number(seed)?, number(first)?, number(count)?);
    let program: &'static str = String::leak(program.clone());
    for drawn in drawn::drawn(seed as u64, first + count).into_iter().skip(first) {
        let case = &drawn.case;
        let told = match PlantedLab::up(case, program).and_then(|lab| lab.path(case)) {
            Err(error) => format!("failed: {error}"),
            Ok(results) if !drawn.binds(&results) => {
                let measured = explain::diagnose(&results).measured.map(|rate| rate.median / 1e6);
                format!(
                    "discarded: {measured:.1?} Mbit/s, planned {:?}",
                    drawn.predicted_bits_per_s
                )
            }
            Ok(results) => {
                trim::record(case, &results, Path::new(folder))
                    .map_err(|error| error.to_string())?;
                let verdict = explain::explain(&results);
                let is_right = case.accept.iter().any(|accepted| accepted.is(&verdict));
                format!("{}: {}", if is_right { "right" } else { "WRONG" }, verdict.summary)
            }
        };
        println!("{} ({}): {told}", case.name, case.plants);
    }
    Ok(())
}
