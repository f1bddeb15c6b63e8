//! The rooms and the arrows between them: dependencies point down only, pure crates stay pure and
//! `unsafe` stays behind its fence. ARCHITECTURE.md shows the same as a picture.

use std::collections::BTreeMap;

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
    ("liveness", Layer::Pure),
    ("messaging", Layer::Pure),
    ("dve", Layer::Pure),
    ("statespace", Layer::Pure),
    ("compare", Layer::Pure),
    ("recorded", Layer::Pure),
    ("report", Layer::Pure),
    ("route-plan", Layer::Pure),
    ("virtqueue", Layer::Pure),
    ("topology", Layer::Parts),
    ("ports", Layer::Parts),
    ("bpf-cc", Layer::Parts),
    ("crew", Layer::Parts),
    ("watch", Layer::Parts),
    ("checker", Layer::World),
    ("file-load", Layer::World),
    ("packet-switch", Layer::World),
    ("traffic", Layer::World),
    ("iperf3", Layer::World),
    ("vm", Layer::World),
    ("lab", Layer::World),
    ("tuning", Layer::World),
    ("gateway", Layer::World),
    ("clearstream", Layer::Program),
    // Libraries beside the program, for other people's programs; the program depends on neither.
    ("c-api", Layer::Program),
    ("netmap-preload", Layer::Program),
    // Our messages below libfabric's programs.
    ("fabric-provider", Layer::Program),
    // The same messages below MX's programs.
    ("mx-api", Layer::Program),
    // The benchmark program: starts the others.
    ("peers", Layer::Program),
    // Attacks on the program; no part of it.
    ("attack", Layer::Program),
    // What tests share; see `only_tests_use_the_testkit`.
    ("testkit", Layer::Program),
    // These checks.
    ("rules", Layer::Program),
];

/// The edges allowed inside one layer.
const INNER_EDGES: &[(&str, &str)] = &[
    ("results", "stats"),
    ("results", "units"),
    ("stats", "units"),
    ("shm", "sys"),
    ("ring", "shm"),
    ("ring", "sys"),
    // A comparison has a page as a results document has one.
    ("report", "compare"),
    // Tests judge recordings by their verdict.
    ("recorded", "explain"),
    // The lab's switches are the packet switch.
    ("lab", "packet-switch"),
    // Guests are on ports of the packet switch.
    ("vm", "packet-switch"),
    ("lab", "vm"),
    // Routes are changed with the journal and the undo engine of settings.
    ("gateway", "tuning"),
    // Programs linked with it when it was the C interface too still find `cs_*` there.
    ("netmap-preload", "c-api"),
    // One endpoint, with its transports, below two interfaces.
    ("mx-api", "fabric-provider"),
    // iperf3 drives the engine, and is handed to the server and the client by the program.
    ("iperf3", "traffic"),
    // The program's tests read documents through it.
    ("clearstream", "rules"),
    // And have MPI jobs use the library.
    ("clearstream", "fabric-provider"),
    // Planted limits are a benchmark too.
    ("peers", "testkit"),
    // The attack suite is a test with a program of its own.
    ("attack", "testkit"),
];

/// Where `unsafe` may stand.
const FENCES: &[&str] = &[
    "crates/sys/",
    "crates/shm/",
    "crates/c-api/",
    "crates/fabric-provider/",
    "crates/mx-api/",
    "crates/netmap-preload/",
    "crates/mpi/",
];

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
    let manifests: Vec<String> = rules::files("", "/Cargo.toml");
    let manifests: Vec<String> = manifests.iter().map(|path| rules::text(path)).collect();
    let mut edges: BTreeMap<String, Vec<String>> =
        manifests.iter().map(|text| (name(text), dependencies(text))).collect();
    let names: Vec<String> = edges.keys().cloned().collect();
    edges.values_mut().for_each(|tos| tos.retain(|to| names.contains(to)));
    // Any room's tests may use it, see below.
    let may = |from: &str| INNER_EDGES.contains(&(from, TESTKIT));
    edges.iter_mut().for_each(|(from, tos)| tos.retain(|to| to != TESTKIT || may(from)));
    edges
}

/// What any room may depend on for its tests, and no room otherwise.
const TESTKIT: &str = "testkit";

#[test]
fn only_tests_use_the_testkit() {
    for manifest in rules::files("", "/Cargo.toml") {
        let text = rules::text(&manifest);
        let own = name(&text);
        let shipped = text.split("\n[dev-dependencies]").next().unwrap_or_default();
        let uses = dependencies(shipped).iter().any(|to| to == TESTKIT);
        let may = INNER_EDGES.contains(&(own.as_str(), TESTKIT));
        assert!(!uses || may, "{manifest}: {TESTKIT} is for [dev-dependencies]");
    }
}

/// What a value between quotes is given to this key, on a line of its own or in braces.
fn value<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let at = line.find(&format!("{key} = \""))?;
    line[at..].split('"').nth(1)
}

/// The package's name. The manifest says it first.
fn name(manifest: &str) -> String {
    let name = manifest.lines().find_map(|line| value(line, "name"));
    name.expect("a manifest names its package").to_owned()
}

/// The packages that a manifest depends on in any of its sections, by their own names: written as
/// `name = …`, `name.workspace = true`, or as a section `[dependencies.name]`.
fn dependencies(manifest: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_list = false;
    for line in manifest.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            is_list = section.ends_with("dependencies");
            let one = section.rsplit_once("dependencies.").map(|(_, name)| name.to_owned());
            found.extend(one);
        } else if is_list && !line.starts_with('#') {
            let Some((key, _)) = line.split_once([' ', '.', '=']) else { continue };
            found.push(value(line, "package").unwrap_or(key).trim_matches('"').to_owned());
        }
    }
    found
}

#[test]
fn dependencies_are_found_however_they_are_written() {
    let manifest = "[package]\nname = \"a\"\n\n[dependencies]\nunits.workspace = true\n\
        # sys = \"no\"\nother = { package = \"lab\", path = \"../lab\" }\n\n\
        [target.'cfg(unix)'.build-dependencies]\nmpi = { path = \"../mpi\" }\n\n\
        [dev-dependencies.ring]\npath = \"../ring\"\n\n[features]\nnone = []\n";
    assert_eq!(name(manifest), "a");
    assert_eq!(dependencies(manifest), ["units", "lab", "mpi", "ring"]);
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

/// Or an arrow could hide behind another name.
#[test]
fn rooms_go_by_their_own_names() {
    for line in rules::text("Cargo.toml").lines().filter(|line| line.contains("path = \"crates/")) {
        let folder = value(line, "path").and_then(|path| path.strip_prefix("crates/"));
        assert_eq!(line.split(' ').next(), folder, "{line}");
    }
}

#[test]
fn the_rule_itself_objects() {
    assert_eq!(objection("units", "results"), Some("sideways"));
    assert_eq!(objection("sys", "traffic"), Some("upward"));
    assert_eq!(objection("lab", "traffic"), Some("sideways"));
    assert_eq!(objection("traffic", "iperf3"), Some("sideways"));
    assert_eq!(objection("report", "sys"), Some("a pure crate never sees system calls"));
    assert_eq!(objection("lab", "ports"), None);
}

#[test]
fn pure_crates_are_pure() {
    let mut impure = Vec::new();
    for (name, layer) in LAYERS {
        if !matches!(layer, Layer::Base | Layer::Pure) {
            continue;
        }
        for path in rules::files(&format!("crates/{name}/src"), ".rs") {
            if rules::is_test_file(&path) {
                continue;
            }
            let source = rules::text(&path);
            let code = rules::program_part(&source).lines().enumerate();
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
    let lifted: Vec<String> = rules::files("", ".rs")
        .into_iter()
        .filter(|path| !FENCES.iter().any(|fence| path.starts_with(fence)))
        .filter(|path| {
            let source = rules::text(path);
            LIFTS.iter().any(|lift| source.contains(&format!("{lift}(unsafe{}", "_code")))
        })
        .collect();
    assert!(lifted.is_empty(), "these lift the ban on unsafe code: {lifted:?}");
    for (name, _) in LAYERS {
        let folder = if *name == "peers" { "benches".to_owned() } else { format!("crates/{name}") };
        let manifest = rules::text(&format!("{folder}/Cargo.toml"));
        assert!(
            manifest.contains("[lints]\nworkspace = true"),
            "{name} must take the workspace's lints"
        );
    }
}

/// Modules below `verbs` that hold what several verbs share: their options.
const SHARED_BY_VERBS: [&str; 1] = ["options"];

/// The verb that a line of another one names.
fn named_verb<'a>(own: &str, line: &'a str) -> Option<&'a str> {
    let (_, after) = line.split_once("verbs::")?;
    let named = after.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next()?;
    let is_other = !named.is_empty() && named != own && !SHARED_BY_VERBS.contains(&named);
    is_other.then_some(named)
}

/// What two verbs need lies beside them, where neither has to be read for the other.
#[test]
fn no_verb_uses_another() {
    const FOLDER: &str = "crates/clearstream/src/verbs/";
    assert_eq!(named_verb("path", "use crate::verbs::explain::wrapped;"), Some("explain"));
    assert_eq!(named_verb("path", "use crate::verbs::path::battery;"), None);
    assert_eq!(named_verb("path", "use crate::verbs::options::duration;"), None);
    let mut named = Vec::new();
    for path in rules::files(FOLDER.trim_end_matches('/'), ".rs") {
        let own = path.strip_prefix(FOLDER).unwrap_or_default();
        let own = own.split(['/', '.']).next().unwrap_or_default();
        for (number, line) in rules::text(&path).lines().enumerate() {
            named
                .extend(named_verb(own, line).map(|verb| format!("{path}:{}: {verb}", number + 1)));
        }
    }
    assert!(named.is_empty(), "{named:#?}");
}
