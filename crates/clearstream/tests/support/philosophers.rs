//! Dining philosophers as models, and what a check of them says.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

pub(crate) use crate::PROGRAM;

/// Philosophers with forks to their left and right; `greedy`: all take the left one first, and may
/// wait for each other for ever.
pub(crate) fn philosophers(count: usize, greedy: bool) -> String {
    let mut text = format!("byte fork[{count}];\n");
    for me in 0..count {
        let (mut first, mut second) = (me, (me + 1) % count);
        if !greedy && first > second {
            std::mem::swap(&mut first, &mut second);
        }
        text += &format!(
            "process P{me} {{ byte eaten; state thinks, has, eats; init thinks; trans\n \
             thinks -> has {{ guard fork[{first}] == 0; effect fork[{first}] = 1; }},\n \
             has -> eats {{ guard fork[{second}] == 0; effect fork[{second}] = 1, eaten = (eaten + 1) % 3; }},\n \
             eats -> thinks {{ effect fork[{first}] = 0, fork[{second}] = 0; }}; }}\n"
        );
    }
    text + "system async;\n"
}

/// A file in a folder of its own, gone when dropped.
pub(crate) struct ModelFile(pub(crate) PathBuf);

impl ModelFile {
    pub(crate) fn new(name: &str, text: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("ranks-{name}-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a folder in the temporary folder");
        let path = folder.join("model.dve");
        std::fs::write(&path, text).expect("a file of ours");
        Self(path)
    }

    /// For temporary files of jobs: where two begin and end in one folder, Open MPI 4 may find what it is about to make.
    pub(crate) fn folder(&self) -> &Path {
        self.0.parent().expect("it is in one")
    }

    pub(crate) fn check(&self, options: &[&str]) -> (Option<i32>, Value) {
        let (code, out, err) = self.told(options);
        let json = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{err}"));
        (code, json)
    }

    /// The same as it was written: exit code, standard output, standard error.
    pub(crate) fn told(&self, options: &[&str]) -> (Option<i32>, String, String) {
        let mut run = Command::new(PROGRAM);
        run.args(["check", "--json"]).arg(&self.0).args(options);
        let done = run.output().expect("the program runs");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        (done.status.code(), text(done.stdout), text(done.stderr))
    }
}

/// A folder that is gone when dropped.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder in the temporary folder");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

impl Drop for ModelFile {
    fn drop(&mut self) {
        std::fs::remove_dir_all(self.folder()).ok();
    }
}

/// What must be the same however many ranks search.
pub(crate) fn counts(json: &Value) -> Vec<Value> {
    let check = &json["checks"][0];
    ["verdict", "states_count", "transitions_count", "deadlocks_count", "depth", "never_taken"]
        .map(|name| check[name].clone())
        .to_vec()
}

/// Each state of a run follows from the one before by a step of the model.
pub(crate) fn assert_run(json: &Value) -> usize {
    let run = json["checks"][0]["run"].as_array().expect("a run");
    assert!(run[0]["step"].is_null(), "{run:?}");
    assert!(run[1..].iter().all(|line| line["step"].is_string()), "{run:?}");
    run.len()
}
