//! The rooms and the arrows between them: dependencies point down only, pure crates stay pure and
//! `unsafe` stays behind its fence. ARCHITECTURE.md shows the same as a picture.

#[path = "support/tree.rs"]
mod tree;

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

/// Every crate and the layer it lives on; an edge must go to a smaller number.
const LAYERS: &[(&str, Layer)] = &[
    ("units", Layer::Base),
    ("stats", Layer::Base),
    ("results", Layer::Base),
    ("netlink", Layer::Base),
    ("settings", Layer::Base),
    ("sys", Layer::UnsafeFence),
    ("shm", Layer::UnsafeFence),
    ("ring", Layer::UnsafeFence),
    ("mpi", Layer::UnsafeFence),
    ("explain", Layer::Pure),
    ("sweep", Layer::Pure),
    ("switch", Layer::Pure),
    ("dve", Layer::Pure),
    ("statespace", Layer::Pure),
    ("report", Layer::Pure),
    ("topology", Layer::Parts),
    ("port-tap", Layer::Parts),
    ("port-xdp", Layer::Parts),
    ("bpf-cc", Layer::Parts),
    ("crew", Layer::Parts),
    ("checker", Layer::World),
    ("packet-switch", Layer::World),
    ("traffic", Layer::World),
    ("iperf3", Layer::World),
    ("lab", Layer::World),
    ("tuning", Layer::World),
    ("clearstream", Layer::Program),
    // Libraries beside the program, for other people's programs; the program depends on neither.
    ("c-api", Layer::Program),
    ("netmap-preload", Layer::Program),
    // The benchmark program: starts the others.
    ("peers", Layer::Program),
    // Attacks on the program; no part of it.
    ("attack", Layer::Program),
];

/// The edges allowed inside one layer.
const INNER_EDGES: &[(&str, &str)] = &[
    ("results", "stats"),
    ("results", "units"),
    ("stats", "units"),
    ("shm", "sys"),
    ("ring", "shm"),
    ("ring", "sys"),
    // The lab's switches are the packet switch.
    ("lab", "packet-switch"),
    // Programs linked with it when it was the C interface too still find `cs_*` there.
    ("netmap-preload", "c-api"),
    // iperf3 drives the engine, and is handed to the server and the client by the program.
    ("iperf3", "traffic"),
];

/// Where `unsafe` may stand.
const FENCES: &[&str] =
    &["crates/sys/", "crates/shm/", "crates/c-api/", "crates/netmap-preload/", "crates/mpi/"];

/// What a pure crate never names: no input, no output, no clock, no place to hide one.
const IMPURE: &[&str] = &[
    "std::net",
    "std::fs",
    "std::env",
    "std::process",
    "std::thread",
    "std::io::stdin",
    "std::io::stdout",
    "std::io::stderr",
    "Instant::now",
    "SystemTime",
    "println!(",
    "eprintln!(",
];

/// Attributes that lift a ban.
const LIFTS: &[&str] = &["allow", "expect", "warn"];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Layer {
    /// L0: words everybody uses.
    Base,
    /// L1: the only crate with `unsafe`.
    UnsafeFence,
    /// L2: machines without input, output or clock; they never see L1.
    Pure,
    /// L3, lower half: what L3's upper half is made of.
    Parts,
    /// L3, upper half.
    World,
    /// L4.
    Program,
}

fn layer(name: &str) -> Layer {
    let known = LAYERS.iter().find(|(known, _)| *known == name);
    known.unwrap_or_else(|| panic!("{name} has no layer: add it to LAYERS and ARCHITECTURE.md")).1
}

/// Every workspace crate with the workspace crates it depends on, dev- and build-dependencies too.
fn edges() -> BTreeMap<String, Vec<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(tree::root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON");
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let packages = metadata["packages"].as_array().expect("packages");
    let inner = |package: &Value| {
        let dependencies = package["dependencies"].as_array().expect("dependencies");
        dependencies
            .iter()
            .filter(|one| one["path"].is_string())
            .map(|one| text(&one["name"]))
            .collect()
    };
    packages.iter().map(|package| (text(&package["name"]), inner(package))).collect()
}

/// Why an edge must not be, if so.
fn objection(from: &str, to: &str) -> Option<&'static str> {
    let (upper, lower) = (layer(from), layer(to));
    if INNER_EDGES.contains(&(from, to)) {
        return None;
    }
    if upper == Layer::Pure && lower == Layer::UnsafeFence {
        return Some("a pure crate never sees system calls");
    }
    (upper <= lower).then_some(if upper == lower { "sideways" } else { "upward" })
}

#[test]
fn dependencies_point_down() {
    let edges = edges();
    assert_eq!(edges.len(), LAYERS.len(), "LAYERS lists a crate that is not there");
    let bad: Vec<String> = edges
        .iter()
        .flat_map(|(from, tos)| tos.iter().map(move |to| (from, to)))
        .filter_map(|(from, to)| objection(from, to).map(|why| format!("{from} -> {to}: {why}")))
        .collect();
    assert!(bad.is_empty(), "{bad:#?}");
}

#[test]
fn the_rule_itself_objects() {
    assert_eq!(objection("units", "results"), Some("sideways"));
    assert_eq!(objection("sys", "traffic"), Some("upward"));
    assert_eq!(objection("lab", "traffic"), Some("sideways"));
    assert_eq!(objection("traffic", "iperf3"), Some("sideways"));
    assert_eq!(objection("report", "sys"), Some("a pure crate never sees system calls"));
    assert_eq!(objection("lab", "port-tap"), None);
}

#[test]
fn pure_crates_are_pure() {
    let mut impure = Vec::new();
    for (name, layer) in LAYERS {
        if !matches!(layer, Layer::Base | Layer::Pure) {
            continue;
        }
        for path in tree::files(&format!("crates/{name}/src"), ".rs") {
            if tree::is_test_file(&path) {
                continue;
            }
            let source = tree::text(&path);
            let code = tree::program_part(&source).lines().enumerate();
            for (number, line) in code.filter(|(_, line)| !line.trim_start().starts_with("//")) {
                impure.extend(
                    IMPURE
                        .iter()
                        .filter(|word| line.contains(*word))
                        .map(|word| format!("{path}:{}: {word}", number + 1)),
                );
            }
        }
    }
    assert!(impure.is_empty(), "{impure:#?}");
}

#[test]
fn unsafe_stays_behind_the_fence() {
    let lifted: Vec<String> = tree::files("", ".rs")
        .into_iter()
        .filter(|path| !FENCES.iter().any(|fence| path.starts_with(fence)))
        .filter(|path| {
            let source = tree::text(path);
            LIFTS.iter().any(|lift| source.contains(&format!("{lift}(unsafe{}", "_code")))
        })
        .collect();
    assert!(lifted.is_empty(), "these lift the ban on unsafe code: {lifted:?}");
    for (name, _) in LAYERS {
        let folder = if *name == "peers" { "benches".to_owned() } else { format!("crates/{name}") };
        let manifest = tree::text(&format!("{folder}/Cargo.toml"));
        assert!(
            manifest.contains("[lints]\nworkspace = true"),
            "{name} must take the workspace's lints"
        );
    }
}
