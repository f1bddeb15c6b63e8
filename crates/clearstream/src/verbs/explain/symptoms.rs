//! `explain --symptoms`: what the figures of a file show, before any limit is weighed, as a table or as JSON.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;

use explain::symptoms::{Symptom, SymptomEstimate, SymptomGroup, SymptomUnit, Symptoms};
use results::{End, Results};
use serde::Serialize;
use units::{count_of, show_bit_rate};

use crate::VerbResult;
use crate::exit::{Exit, VerbError};
use crate::verdict_text::{is_file_load, wrapped};

/// Width of the column of names; the longest name of a symptom fits.
const NAME_COLUMNS: usize = 29;

/// Absent symptoms of a section that are named in the text; of more the number is told.
const NAMED_MAX: usize = 8;

/// Output of `--symptoms --json`.
#[derive(Debug, Serialize)]
struct Told<'a> {
    schema_version: &'a str,
    target: &'a str,
    symptoms: Vec<Known<'a>>,
    absent: Vec<AbsentGroup<'a>>,
    /// Why the figures contradict each other, if they do.
    #[serde(skip_serializing_if = "Option::is_none")]
    contradiction: Option<String>,
}

/// A symptom that the file shows.
#[derive(Debug, Serialize)]
struct Known<'a> {
    name: &'a str,
    section: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<End>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offered_bits_per_s: Option<f64>,
    test: &'a str,
    unit: &'static str,
    median: f64,
    repeats_count: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    spread: Option<Spread>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sampling: Option<Sampling>,
    source: &'a str,
}

/// How far the repeats differ, in the symptom's unit.
#[derive(Debug, Serialize)]
struct Spread {
    deviation: f64,
    min: f64,
    max: f64,
}

/// Uncertainty of the only repeat, in the symptom's unit.
#[derive(Debug, Serialize)]
struct Sampling {
    standard_error: f64,
    samples_count: u32,
}

/// Names of the symptoms of a section that the file does not hold.
#[derive(Debug, Serialize)]
struct AbsentGroup<'a> {
    section: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<End>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offered_bits_per_s: Option<f64>,
    names: Vec<&'a str>,
}

/// Prints the symptoms of `results`, which are those of the file `name`.
pub(super) fn run(name: &Path, results: &Results, json: bool) -> VerbResult {
    if is_file_load(results) {
        return Err(VerbError::usage(format!(
            "{} holds file-system load, but symptoms exist only for network tests: leave out \
             --symptoms",
            crate::store::input_name(name)
        )));
    }
    let symptoms = explain::symptoms::symptoms(results);
    let mut out = crate::out::stdout();
    if json {
        serde_json::to_writer_pretty(&mut out, &told(results, &symptoms))
            .map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        write!(out, "{}", show(results, &symptoms))?;
    }
    Ok(Exit::Ok)
}

fn told<'a>(results: &'a Results, symptoms: &'a Symptoms) -> Told<'a> {
    let known = symptoms.all().filter_map(|(group, one)| {
        let estimate = one.estimate?;
        Some(Known {
            name: &one.name,
            section: group.section.name(),
            end: group.end,
            offered_bits_per_s: group.offered_bits_per_s,
            test: &group.test,
            unit: one.unit.name(),
            median: estimate.median,
            repeats_count: estimate.repeats_count,
            spread: estimate.spread.map(|spread| Spread {
                deviation: spread.deviation,
                min: spread.min,
                max: spread.max,
            }),
            sampling: estimate.sampling.map(|sampling| Sampling {
                standard_error: sampling.standard_error,
                samples_count: sampling.samples_count,
            }),
            source: &one.source,
        })
    });
    let absent = symptoms.groups.iter().map(|group| AbsentGroup {
        section: group.section.name(),
        end: group.end,
        offered_bits_per_s: group.offered_bits_per_s,
        names: absent(group).map(|one| one.name.as_str()).collect(),
    });
    Told {
        schema_version: &results.schema_version,
        target: &results.path.target,
        symptoms: known.collect(),
        absent: absent.filter(|group| !group.names.is_empty()).collect(),
        contradiction: symptoms.contradiction(),
    }
}

fn absent(group: &SymptomGroup) -> impl Iterator<Item = &Symptom> {
    group.symptoms.iter().filter(|one| one.estimate.is_none())
}

/// The table, section by section, then what the file does not hold.
fn show(results: &Results, symptoms: &Symptoms) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    lines(&mut out, results, symptoms).ok();
    out
}

fn lines(out: &mut String, results: &Results, symptoms: &Symptoms) -> std::fmt::Result {
    let recorder = results.recorder().map_or_else(String::new, |name| format!(", from {name}"));
    let known = symptoms.all().filter(|(_, one)| one.estimate.is_some()).count();
    writeln!(out, "Symptoms of {}{recorder}: {known} known", target(results))?;
    for group in &symptoms.groups {
        section(out, group)?;
    }
    if let Some(contradiction) = symptoms.contradiction() {
        writeln!(out)?;
        wrapped(out, "Caution  ", &contradiction)?;
    }
    let is_sampled = |one: &Symptom| one.estimate.is_some_and(|told| told.sampling.is_some());
    if symptoms.all().any(|(_, one)| is_sampled(one)) {
        writeln!(out)?;
        let line = "+- is the standard error of one repeat's interval samples, as if they were independent: the true \
                    error is larger, and repeats may differ by more";
        wrapped(out, "Note     ", line)?;
    }
    let missing: Vec<String> = symptoms.groups.iter().filter_map(missing).collect();
    if !missing.is_empty() {
        writeln!(out)?;
        let line = format!("{}. All by name: --json", missing.join("; "));
        wrapped(out, "Not in this file: ", &line)?;
    }
    Ok(())
}

fn target(results: &Results) -> &str {
    match results.path.target.as_str() {
        "" => "an unnamed path",
        target => target,
    }
}

fn section(out: &mut String, group: &SymptomGroup) -> std::fmt::Result {
    if group.symptoms.iter().all(|one| one.estimate.is_none()) {
        return Ok(());
    }
    let mut title = group.section.title(group.end);
    if let Some(offered) = group.offered_bits_per_s {
        title += &format!(", {} offered", show_bit_rate(offered));
    }
    if !group.test.is_empty() {
        title += &format!(": {}", group.test);
    }
    write!(out, "\n{}", crate::tables::labelled("", &title))?;
    let mut table = String::new();
    writeln!(
        table,
        "  {:<NAME_COLUMNS$} {:>7} {:<6} {:>16}  {:>2}  source",
        "symptom", "median", "unit", "spread", "n"
    )?;
    for one in &group.symptoms {
        let Some(estimate) = one.estimate else { continue };
        let (factor, unit) = scale(one.unit, estimate.median);
        writeln!(
            table,
            "  {:<NAME_COLUMNS$} {:>7} {unit:<6} {:>16}  {:>2}  {}",
            one.name,
            digits(one.unit, estimate.median * factor),
            spread(one.unit, &estimate, factor),
            estimate.repeats_count,
            // Its fields begin with `tcpi_`, and the line is full.
            one.source.trim_start_matches("tcp_info.")
        )?;
    }
    *out += &crate::tables::fit(&table);
    Ok(())
}

/// `67.7 .. 69.0` over the repeats, `+- 0.31` of one repeat with samples.
fn spread(unit: SymptomUnit, estimate: &SymptomEstimate, factor: f64) -> String {
    let digits = |value: f64| digits(unit, value * factor);
    match (estimate.spread, estimate.sampling) {
        (Some(spread), _) => {
            format!("{} .. {}", digits(spread.min), digits(spread.max))
        }
        (None, Some(sampling)) => format!("+- {}", digits(sampling.standard_error)),
        (None, None) => String::new(),
    }
}

/// The names of a group that are absent; how many, where they are many: `far host: all 29 symptoms`.
fn missing(group: &SymptomGroup) -> Option<String> {
    let names: Vec<&str> = absent(group).map(|one| one.name.as_str()).collect();
    if names.is_empty() {
        return None;
    }
    let mut title = group.section.title(group.end).to_lowercase();
    if let Some(offered) = group.offered_bits_per_s {
        title += &format!(", {} offered", show_bit_rate(offered));
    }
    let told = match names.len() {
        all if all == group.symptoms.len() => format!("all {}", count_of(all as u64, "symptom")),
        many if many > NAMED_MAX => {
            format!("{many} of {}", count_of(group.symptoms.len() as u64, "symptom"))
        }
        _ => names.join(", "),
    };
    Some(format!("{title}: {told}"))
}

/// Prefixes of a unit: the value from which one is used, the factor, its name.
type Scales = &'static [(f64, f64, &'static str)];

const BIT_RATES: Scales = &[
    (1e12, 1e-12, "Tbit/s"),
    (1e9, 1e-9, "Gbit/s"),
    (1e6, 1e-6, "Mbit/s"),
    (1e3, 1e-3, "kbit/s"),
    (0.0, 1.0, "bit/s"),
];
const BYTES: Scales = &[
    (1_073_741_824.0, 1.0 / 1_073_741_824.0, "GiB"),
    (1_048_576.0, 1.0 / 1_048_576.0, "MiB"),
    (10_240.0, 1.0 / 1024.0, "KiB"),
    (0.0, 1.0, "B"),
];
const SECONDS: Scales =
    &[(1.0, 1.0, "s"), (1e-3, 1e3, "ms"), (1e-6, 1e6, "us"), (1e-12, 1e9, "ns"), (0.0, 1.0, "s")];
const COUNTS: Scales = &[(1e9, 1e-9, "G"), (1e6, 1e-6, "M"), (1e4, 1e-3, "k"), (0.0, 1.0, "count")];
const RATES: Scales = &[(1e6, 1e-6, "M/s"), (1e4, 1e-3, "k/s"), (0.0, 1.0, "/s")];
const BYTE_RATES: Scales = &[(1e9, 1e-9, "GB/s"), (1e6, 1e-6, "MB/s"), (0.0, 1.0, "B/s")];

/// The factor and the name of the unit in which a median, its spread and its error are printed.
fn scale(unit: SymptomUnit, median: f64) -> (f64, &'static str) {
    let scales: Scales = match unit {
        SymptomUnit::BitsPerS => BIT_RATES,
        SymptomUnit::Bytes => BYTES,
        SymptomUnit::S => SECONDS,
        SymptomUnit::Count => COUNTS,
        SymptomUnit::PerS => RATES,
        SymptomUnit::BytesPerS => BYTE_RATES,
        SymptomUnit::Share => return (100.0, "%"),
        SymptomUnit::Ratio => return (1.0, "ratio"),
        SymptomUnit::Cores => return (1.0, "cores"),
        SymptomUnit::SPerGbit => return (1.0, "s/Gbit"),
    };
    let fitting = scales.iter().find(|(from, _, _)| median.abs() >= *from);
    fitting.map_or((1.0, unit.name()), |(_, factor, name)| (*factor, *name))
}

/// Three significant digits; whole numbers from 100 on, and what is below 0.0005 in powers of ten. Whole counts have no
/// decimals.
fn digits(unit: SymptomUnit, value: f64) -> String {
    let is_counted = matches!(unit, SymptomUnit::Count | SymptomUnit::PerS);
    match value.abs() {
        0.0 => "0".to_owned(),
        whole if is_counted && whole < 100.0 && whole.fract() == 0.0 => format!("{value:.0}"),
        small if small < 0.000_5 => format!("{value:.1e}"),
        below if below < 0.095 => format!("{value:.4}"),
        below if below < 0.9995 => format!("{value:.3}"),
        below if below < 9.995 => format!("{value:.2}"),
        below if below < 99.95 => format!("{value:.1}"),
        below if below < 999_999.5 => format!("{value:.0}"),
        _ => format!("{value:.2e}"),
    }
}

#[cfg(test)]
mod tests;
