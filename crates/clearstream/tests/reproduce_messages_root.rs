//! Tables of the Open-MX paper: stock Open MPI between two hosts of a lab, whose packets are processed on chosen cores.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};

use results::{PointOutcome, Results, Work};
use sys::private::Scratch;

use crate::PROGRAM;
use crate::mpi::built;

/// Held by a test that has the lab of these experiments up: there is one of that name.
static LAB: Mutex<()> = Mutex::new(());

fn reproduce(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.arg("reproduce").args(arguments).args(["--duration", "100ms", "--repeats", "1"]);
    command.arg("--library").arg(built("libclearstream_fi.so"));
    command.arg("--output").arg(folder.join("results.json")).stdin(Stdio::null());
    command.output().expect("the program runs")
}

fn said(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr];
    format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err))
}

fn read(folder: &Path) -> Results {
    let bytes = std::fs::read(folder.join("results.json")).expect("written");
    results::read_results(&bytes).expect("a results document")
}

#[test]
fn every_way_to_receive_is_measured_by_ranks_of_stock_open_mpi_root() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can create network namespaces");
        return;
    }
    let _lab = LAB.lock().unwrap_or_else(PoisonError::into_inner);
    let scratch = Scratch::new("reproduce-messages").expect("a folder");
    // Short jobs: what a rank measures in a tenth of a second judges nothing.
    let output = reproduce(scratch.path(), &["M-tab1"]);
    assert!(matches!(output.status.code(), Some(0 | 3 | 5)), "{}", said(&output));
    let results = read(scratch.path());
    assert!(results.points.len() >= 4, "round-robin and the same core, at two lengths");
    for point in &results.points {
        let PointOutcome::Measured(outcome) = &point.outcome else { panic!("{point:?}") };
        let time = outcome.figures.iter().find(|one| one.name == "half_round_trip_s");
        assert!(time.is_some_and(|time| time.value > 0.0), "{point:?}");
        let Work::Messages(work) = &point.work else { panic!("{point:?}") };
        assert_eq!((work.through.as_str(), work.ranks_count), ("clearstream", 2));
        assert_eq!(point.by.len(), 2);
    }
    let reproduction = results.reproduction.expect("a reproduction");
    let told = |name: &str| {
        let row = reproduction.figures.iter().find(|row| row.name.starts_with(name));
        row.unwrap_or_else(|| panic!("{name}: {reproduction:?}")).clone()
    };
    assert_eq!(told("4.00 MiB, round-robin").paper, "646 MiB/s");
    assert!(told("4.00 MiB, round-robin").here.is_some_and(|here| here.contains("MiB/s")));
    assert!(told("0 B, multiqueue").here.is_some_and(|here| here.contains("one endpoint")));
    assert!(reproduction.law.judged.contains("predictions came true"), "{reproduction:?}");
}

#[test]
fn two_hosts_search_a_model_over_the_provider_and_over_tcp_root() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can create network namespaces");
        return;
    }
    let _lab = LAB.lock().unwrap_or_else(PoisonError::into_inner);
    let scratch = Scratch::new("reproduce-divine").expect("a folder");
    let output = reproduce(scratch.path(), &["M-divine"]);
    assert!(matches!(output.status.code(), Some(0 | 3 | 5)), "{}", said(&output));
    let results = read(scratch.path());
    assert_eq!(results.points.len(), 3, "one host, two by messages, two by TCP");
    for point in &results.points {
        let PointOutcome::Measured(outcome) = &point.outcome else { panic!("{point:?}") };
        let rate = outcome.figures.iter().find(|one| one.name == "states_per_s");
        assert!(rate.is_some_and(|rate| rate.value > 0.0), "{point:?}");
    }
    let reproduction = results.reproduction.expect("a reproduction");
    assert_eq!(reproduction.law.holds, None, "so short a search judges nothing");
    let rows: Vec<&str> = reproduction.figures.iter().map(|row| row.name.as_str()).collect();
    assert!(rows.contains(&"two hosts, messages / one host"), "{rows:?}");
    assert!(reproduction.figures.iter().all(|row| row.here.is_some()), "{reproduction:?}");
    let output = reproduce(scratch.path(), &["M-divine", "somewhere.example"]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
}

#[test]
fn a_table_of_applications_needs_them_and_says_so() {
    let scratch = Scratch::new("reproduce-nas").expect("a folder");
    let folder = scratch.path().to_str().expect("a path of ours");
    let output = reproduce(scratch.path(), &["M-tab3", "--nas", folder]);
    assert_eq!(output.status.code(), Some(4), "{}", said(&output));
    assert!(said(&output).contains("cg, mg, ft or is"), "{}", said(&output));
    let output = reproduce(scratch.path(), &["M-fig5", "somewhere.example"]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
}
