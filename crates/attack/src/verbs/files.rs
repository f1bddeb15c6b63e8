//! Files that somebody else wrote: results, models, checkpoints, lab files, placements, journals.

use std::fs::{self, File};
use std::path::PathBuf;
use std::time::Duration;

use crate::case::{Case, Door, Scene};

pub(crate) const CASES: &[Case] = &[
    Case::of(Door::Verbs, "files of every kind in place of those that verbs read", every_kind),
    Case::of(Door::Verbs, "recordings of iperf3 with too many rows and values", long_recordings),
    Case::of(Door::Verbs, "files that are nearly right", nearly).generated(),
];

/// None of these is more than a moment's work.
const WITHIN: Duration = Duration::from_secs(20);

pub(super) const MODEL: &str = "byte x = 0;\nprocess P {\n state a, b;\n init a;\n trans a -> b { guard x < 200; effect x = x + 1; },\n \
    b -> a { };\n}\nsystem async;\n";

/// Verbs that read a file, FILE, and write at most to OUT.
const READERS: &[&[&str]] = &[
    &["explain", "FILE"],
    &["explain", "--after", "FILE", "FILE"],
    &["report", "FILE", "-o", "OUT"],
    &["check", "FILE"],
    &["check", "MODEL", "--resume", "FILE"],
    &["check", "MODEL", "--ltl", "FILE"],
    &["test", "127.0.0.1", "-p", "PORT", "-t", "100ms", "--place", "FILE"],
    &["lab", "up", "FILE"],
    &["compare", "FILE", "FILE"],
    &["gateway", "plan", "FILE"],
    &["gateway", "plan", "PLAN", "--host", "HOST", "--review", "FILE"],
    &["tune", "plan", "--results", "FILE"],
    &["tune", "apply", "--from", "FILE", "--state", "STATE"],
    &["tune", "apply", "--plan", "FILE", "--state", "STATE"],
];

/// A plan of gateways that is one, with a host of it.
const PLAN: &str = include_str!("../../../route-plan/tests/data/cumulus.toml");
const HOST: &str = "wolf01";

/// A capture of a real connection.
const RECORDED: &[u8] = include_bytes!("../../../../testdata/recorded/window-receiver.pcap");

/// Exit codes that these verbs may have (docs/exit-codes.md).
const DOCUMENTED: &[i32] = &[0, 1, 2, 3, 4, 5, 10, 11];

/// A capture file (pcap, little-endian) of Ethernet frames that all claim to be `claimed` bytes long.
fn capture(frames: &[Vec<u8>], claimed: Option<u32>) -> Vec<u8> {
    let words =
        |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    // Version 2.4, no time zone, frames up to 64 KiB, Ethernet.
    let mut bytes = words(&[0xa1b2_c3d4, 4 << 16 | 2, 0, 0, 65_536, 1]);
    for (number, frame) in (0..).zip(frames) {
        let length = claimed.unwrap_or(frame.len() as u32);
        bytes.extend(words(&[1_700_000_000, number * 100, length, length]));
        bytes.extend(frame);
    }
    bytes
}

/// Segments of a TCP connection from `10.0.0.1` to `10.0.0.2` whose options are `options`.
fn segments(options: &[u8]) -> Vec<Vec<u8>> {
    let segment = |number: u32| {
        let words = (20 + options.len()).div_ceil(4);
        let length = 20 + words * 4 + 100;
        let mut frame = vec![0x02; 12];
        frame.extend([0x08, 0x00, 0x45, 0]);
        frame.extend((length as u16).to_be_bytes());
        frame.extend([0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([0x9c, 0x40, 0x14, 0x51]);
        frame.extend((number * 100).to_be_bytes());
        frame.extend([0, 0, 0, 1, (words.min(15) as u8) << 4, 0x10, 0xff, 0xff, 0, 0, 0, 0]);
        frame.extend(options);
        frame.resize(14 + length, 7);
        frame
    };
    (0..200).map(segment).collect()
}

/// Captures, and what looks like one.
fn captures() -> Vec<(&'static str, Vec<u8>)> {
    let (plain, none) = (segments(&[]), Vec::new);
    let block = |length: u32| {
        // A section header (pcapng), then a packet block of that length.
        let mut bytes =
            vec![0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0];
        bytes.extend(
            [[0xff; 8].as_slice(), &[28, 0, 0, 0, 6, 0, 0, 0], &length.to_le_bytes()].concat(),
        );
        bytes.extend([0; 64]);
        bytes
    };
    vec![
        ("a capture", capture(&plain, None)),
        ("a capture of no frames", capture(&none(), None)),
        ("a capture of frames without bytes", capture(&vec![Vec::new(); 1000], Some(0))),
        ("a capture of endless frames", capture(&plain, Some(u32::MAX))),
        ("a capture of short frames", capture(&vec![vec![0x45; 15]; 1000], None)),
        ("a capture with odd options", capture(&segments(&[5, 255, 5, 0, 8, 1, 253, 2]), None)),
        ("a capture with options without end", capture(&segments(&[2, 0, 3, 0, 4, 0, 5, 2]), None)),
        ("a block of no length", block(0)),
        ("a block of an odd length", block(13)),
        ("an endless block", block(u32::MAX)),
    ]
}

/// What may stand in place of a file.
fn contents() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("empty", Vec::new()),
        ("a NUL", vec![0]),
        ("bytes", vec![0xff; 5000]),
        ("deep", "[".repeat(200_000).into_bytes()),
        ("deep objects", "{\"a\":".repeat(100_000).into_bytes()),
        (
            "deep terms",
            format!("{MODEL}// {}\nprocess Q {{ state {}", "(".repeat(10), "(".repeat(100_000))
                .into_bytes(),
        ),
        (
            "numbers",
            b"{\"schema_version\":1e999,\"points\":[1e-999,18446744073709551616]}".to_vec(),
        ),
        (
            "a wrong version",
            b"{\"schema\":\"clearstream-results\",\"schema_version\":4294967295}".to_vec(),
        ),
        (
            "escapes",
            b"{\"schema_version\":\"\\u001b[2J\\u0007\",\"points\":\"\\u009b31m\"}".to_vec(),
        ),
        ("raw escapes", b"\x1b[2J\x07 = \x1b]0;x\x07\n[[host]]\nname = \"\x1b[2J\"\n".to_vec()),
        ("a lab", b"name = \"../../x\"\n[[host]]\nname = \"../../y\"\n".to_vec()),
        ("a model", MODEL.as_bytes().to_vec()),
        ("long lines", vec![b'x'; 5 << 20]),
    ]
}

fn readers(scene: &Scene, file: &str) -> Vec<Vec<String>> {
    let path = |name: &str| scene.folder.join(name).display().to_string();
    let (model, plan) = (path("model.dve"), path("plan.toml"));
    fs::write(&model, MODEL).ok();
    fs::write(&plan, PLAN).ok();
    let word = |word: &&str| match *word {
        "FILE" => file.to_owned(),
        "OUT" => path("out.html"),
        "MODEL" => model.clone(),
        "PLAN" => plan.clone(),
        "HOST" => HOST.to_owned(),
        // A place of its own for what would be changed, were it carried out.
        "STATE" => path("tune"),
        "PORT" => scene.port.to_string(),
        other => other.to_owned(),
    };
    READERS.iter().map(|words| words.iter().map(word).collect()).collect()
}

fn read_by_all(scene: &Scene, what: &str, file: &str) -> Result<(), String> {
    for words in readers(scene, file) {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        read_by(scene, &words).map_err(|why| format!("{what}: {why}"))?;
    }
    Ok(())
}

fn read_by(scene: &Scene, words: &[&str]) -> Result<(), String> {
    let said = super::run(&scene.program, words, &scene.folder, None, WITHIN)?;
    match said.status.code() {
        Some(code) if DOCUMENTED.contains(&code) => Ok(()),
        _ => Err(format!(
            "`clearstream {}`: {}, which is documented nowhere",
            words.join(" "),
            said.status
        )),
    }
}

fn every_kind(scene: &mut Scene) -> Result<(), String> {
    let path = |name: &str| scene.folder.join(name);
    for (what, bytes) in contents().into_iter().chain(captures()) {
        let file = path("input");
        fs::write(&file, bytes).map_err(|error| error.to_string())?;
        read_by_all(scene, what, &file.display().to_string())?;
    }
    let huge = path("huge");
    File::create(&huge)
        .and_then(|file| file.set_len(100 << 30))
        .map_err(|error| error.to_string())?;
    std::os::unix::fs::symlink("loop", path("loop")).ok();
    fs::create_dir(path("folder")).ok();
    for (what, file) in [
        ("100 GB of nothing", huge),
        ("a folder", path("folder")),
        ("a link to itself", path("loop")),
        ("no file", path("none")),
        ("/dev/null", PathBuf::from("/dev/null")),
        ("/dev/zero", PathBuf::from("/dev/zero")),
        ("/dev/full", PathBuf::from("/dev/full")),
        ("/proc/self/mem", PathBuf::from("/proc/self/mem")),
    ] {
        read_by_all(scene, what, &file.display().to_string())?;
    }
    Ok(())
}

/// A recording of iperf3 of so many streams and intervals, each interval with a row of each stream.
fn recording(streams: usize, intervals: usize) -> String {
    let list = |count: usize, row: &dyn Fn(usize) -> String| {
        (1..=count).map(row).collect::<Vec<_>>().join(",")
    };
    let connected = list(streams, &|number| format!("{{\"socket\":{number}}}"));
    let row = |number: usize| format!("{{\"socket\":{number},\"start\":0,\"end\":1,\"bytes\":5}}");
    let interval = format!("{{\"streams\":[{}]}}", list(streams, &row));
    let intervals = list(intervals, &|_| interval.clone());
    let side = "{\"bytes\":5,\"seconds\":2}";
    let ends = list(streams, &|_| format!("{{\"sender\":{side},\"receiver\":{side}}}"));
    let sum = "{\"seconds\":2,\"bytes\":10,\"bits_per_second\":40}";
    format!(
        "{{\"start\":{{\"version\":\"iperf 3.12\",\"connected\":[{connected}],\"test_start\":{{\"protocol\":\"TCP\",\
         \"num_streams\":1,\"duration\":2}}}},\"intervals\":[{intervals}],\"end\":{{\"streams\":[{ends}],\
         \"sum_sent\":{sum},\"sum_received\":{sum}}}}}"
    )
}

/// What is read in a time proportional to its length, or refused for the memory that it would take.
fn long_recordings(scene: &mut Scene) -> Result<(), String> {
    let path = |name: &str| scene.folder.join(name).display().to_string();
    let values = |value: &str| {
        let many = format!(",{value}").repeat((80 << 20) / (value.len() + 1));
        format!("{{\"start\":[{value}{many}],\"x\":\"iperf 3\"}}")
    };
    for (what, text) in [
        ("rows of many streams", recording(1000, 400)),
        ("many numbers", values("0")),
        ("many objects", values("{}")),
    ] {
        let file = path("recording.json");
        fs::write(&file, text).map_err(|error| error.to_string())?;
        read_by(scene, &["explain", &file]).map_err(|why| format!("{what}: {why}"))?;
    }
    Ok(())
}

/// What is real, by the name of its file, and the verb that reads it in place of FILE.
const REAL: &[(&str, &[&str])] = &[
    ("real.json", &["explain", "FILE"]),
    ("real.json", &["compare", "REAL", "FILE"]),
    ("real.json", &["tune", "plan", "--results", "FILE"]),
    ("real.checkpoint", &["check", "MODEL", "--resume", "FILE"]),
    ("real.pcap", &["explain", "FILE"]),
    ("real.toml", &["gateway", "plan", "FILE"]),
];

/// A results file of a real test, a checkpoint of a real search, a capture and a plan.
fn prepare(scene: &Scene) -> Result<(), String> {
    let path = |name: &str| scene.folder.join(name).display().to_string();
    fs::write(path("model.dve"), MODEL).map_err(|error| error.to_string())?;
    fs::write(path("real.toml"), PLAN).map_err(|error| error.to_string())?;
    fs::write(path("real.pcap"), RECORDED).map_err(|error| error.to_string())?;
    let (port, results) = (scene.port.to_string(), path("real.json"));
    read_by(scene, &["test", "127.0.0.1", "-p", &port, "-t", "100ms", "-o", &results])?;
    let (model, checkpoint) = (path("model.dve"), path("real.checkpoint"));
    read_by(scene, &["check", &model, "--checkpoint", &checkpoint, "--memory", "1"])
}

/// Real files with some bytes changed.
fn nearly(scene: &mut Scene) -> Result<(), String> {
    if !scene.folder.join("real.json").exists() {
        prepare(scene)?;
    }
    for (real, words) in REAL {
        let Ok(mut bytes) = fs::read(scene.folder.join(real)) else { continue };
        if bytes.is_empty() {
            continue;
        }
        for _ in 0..=scene.random.below(5) {
            let place = scene.random.below(bytes.len() as u64) as usize;
            match scene.random.below(3) {
                0 => bytes[place] = scene.random.bits() as u8,
                1 => bytes[place] = scene.pick(b"0123456789-eE[]{}\",:"),
                _ => bytes.truncate(place.max(1)),
            }
        }
        let path = |name: &str| scene.folder.join(name).display().to_string();
        fs::write(path("nearly"), bytes).map_err(|error| error.to_string())?;
        let word = |word: &&str| match *word {
            "FILE" => path("nearly"),
            "REAL" => path(real),
            "MODEL" => path("model.dve"),
            other => other.to_owned(),
        };
        let words: Vec<String> = words.iter().map(word).collect();
        read_by(scene, &words.iter().map(String::as_str).collect::<Vec<_>>())?;
    }
    Ok(())
}
