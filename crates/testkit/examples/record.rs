//! Records planted limits without the benchmarks: `record FOLDER PROGRAM CASE…` those of the table,
//! `record FOLDER PROGRAM FILE.toml CASE…` those of another table (all of them, where none is named),
//! `record FOLDER PROGRAM SEED FIRST COUNT FASTEST` those that a seed draws on links of at most FASTEST bit/s. A drawn
//! limit that did not bind, by its check alone, is discarded.

use std::path::Path;

use results::Results;
use testkit::planted::bed::PlantedLab;
use testkit::planted::cases::{self, Case};
use testkit::planted::{drawn, trim};

fn main() -> Result<(), String> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [folder, program, what @ ..] = &words[..] else {
        return Err("record FOLDER PROGRAM [FILE.toml] CASE… | SEED FIRST COUNT FASTEST".to_owned());
    };
    let program: &'static str = String::leak(program.clone());
    let folder = Path::new(folder);
    let numbers: Vec<u64> = what.iter().filter_map(|word| word.parse().ok()).collect();
    if let [seed, first, count, fastest] = numbers[..] {
        let number = |value: u64| usize::try_from(value).map_err(|error| error.to_string());
        let (first, count) = (number(first)?, number(count)?);
        let all = drawn::drawn(seed, first + count, fastest as f64);
        for (_, drawn) in all.into_iter().filter(|(number, _)| *number >= first) {
            record(&drawn.case, program, folder, |results| drawn.check.holds(results));
        }
        return Ok(());
    }
    let (all, is_whole) = match what {
        [file, named @ ..] if file.ends_with(".toml") => {
            let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
            (cases::of_table(&text), named.is_empty())
        }
        _ => (cases::cases(), false),
    };
    for case in all.iter().filter(|case| is_whole || what.contains(&case.name)) {
        record(case, program, folder, |_| true);
    }
    Ok(())
}

fn record(case: &Case, program: &'static str, folder: &Path, binds: impl Fn(&Results) -> bool) {
    let told = match PlantedLab::up(case, program).and_then(|lab| lab.path(case)) {
        Err(error) => format!("failed: {error}"),
        Ok(results) if !binds(&results) => {
            let measured = explain::diagnose(&results).measured;
            format!("discarded: {:.1?} Mbit/s", measured.map(|rate| rate.median / 1e6))
        }
        Ok(results) => match trim::record(case, &results, folder) {
            Err(error) => format!("failed: {error}"),
            Ok(()) => {
                let verdict = explain::explain(&results);
                let is_right = case.accept.iter().any(|accepted| accepted.is(&verdict));
                let word = match (is_right, verdict.confirmed) {
                    (true, true) => "right and confirmed",
                    (true, false) => "right",
                    (false, true) => "WRONG and confirmed",
                    (false, false) => "WRONG",
                };
                format!("{word}: {}", verdict.summary)
            }
        },
    };
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default();
    println!("{} [{}] ({}), load {load}: {told}", case.name, case.by, case.plants);
}
