//! Files that somebody else wrote: results, models, checkpoints, lab files, placements, journals.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use crate::case::{Case, Door, Scene};

pub(crate) const CASES: &[Case] = &[
    Case::of(Door::Verbs, "files of every kind in place of those that verbs read", every_kind),
    Case::of(Door::Verbs, "files that are nearly right", nearly).generated(),
];

/// None of these is more than a moment's work.
const WITHIN: Duration = Duration::from_secs(20);

const MODEL: &str = "byte x = 0;\nprocess P {\n state a, b;\n init a;\n trans a -> b { guard x < 200; effect x = x + 1; },\n \
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
];

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
    let model = scene.folder.join("model.dve");
    fs::write(&model, MODEL).ok();
    let word = |word: &&str| match *word {
        "FILE" => file.to_owned(),
        "OUT" => scene.folder.join("out.html").display().to_string(),
        "MODEL" => model.display().to_string(),
        "PORT" => scene.port.to_string(),
        other => other.to_owned(),
    };
    READERS.iter().map(|words| words.iter().map(word).collect()).collect()
}

fn read_by_all(scene: &Scene, what: &str, file: &str) -> Result<(), String> {
    for words in readers(scene, file) {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        super::run(&scene.program, &words, &scene.folder, None, WITHIN)
            .map_err(|why| format!("{what}: {why}"))?;
    }
    Ok(())
}

fn every_kind(scene: &mut Scene) -> Result<(), String> {
    let path = |name: &str| scene.folder.join(name);
    for (what, bytes) in contents() {
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

/// A results file of a real test, and a checkpoint of a real search, with some bytes changed.
fn nearly(scene: &mut Scene) -> Result<(), String> {
    let (results, checkpoint) =
        (scene.folder.join("real.json"), scene.folder.join("real.checkpoint"));
    let text = |path: &PathBuf| path.display().to_string();
    if !results.exists() {
        let port = scene.port.to_string();
        let words = ["test", "127.0.0.1", "-p", &port, "-t", "100ms", "-o", &text(&results)];
        super::run(&scene.program, &words, &scene.folder, None, WITHIN)?;
        let model = scene.folder.join("model.dve");
        fs::write(&model, MODEL).map_err(|error| error.to_string())?;
        let words = ["check", &text(&model), "--checkpoint", &text(&checkpoint), "--memory", "1"];
        super::run(&scene.program, &words, &scene.folder, None, WITHIN)?;
    }
    let kinds = [(results, "explain"), (checkpoint, "--resume")];
    for (real, verb) in &kinds {
        let Ok(mut bytes) = fs::read(real) else { continue };
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
        let file = scene.folder.join("nearly");
        File::create(&file)
            .and_then(|mut file| file.write_all(&bytes))
            .map_err(|error| error.to_string())?;
        let (file, model) = (text(&file), text(&scene.folder.join("model.dve")));
        let words = if *verb == "explain" {
            vec!["explain", &file]
        } else {
            vec!["check", &model, "--resume", &file]
        };
        super::run(&scene.program, &words, &scene.folder, None, WITHIN)?;
    }
    Ok(())
}
