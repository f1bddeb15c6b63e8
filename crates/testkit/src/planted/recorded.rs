//! Recorded results of planted labs, one file a run, judged again in milliseconds: those of `cases.toml` in
//! `testdata/planted`, those that a seed drew in `testdata/drawn`, packed.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use explain::Fit;
use results::{Results, Verdict};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::cases::Accepted;
use super::packed;

/// One recorded run.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recorded {
    /// By what means it was planted.
    pub by: String,
    /// The mechanism, in words.
    pub plants: String,
    /// Verdicts that name it rightly.
    pub accept: Vec<Accepted>,
    /// The document `path` wrote, or a model did; of any version that the program reads.
    #[serde(deserialize_with = "of_any_version")]
    pub results: Results,
}

fn of_any_version<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Results, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    results::read_results(value.to_string().as_bytes()).map_err(D::Error::custom)
}

/// Where they lie.
fn folders() -> [PathBuf; 2] {
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let mut folders = above.map(|folder| folder.join("testdata"));
    let testdata = folders.find(|folder| folder.is_dir()).expect("testdata is in the repository");
    ["planted", "drawn"].map(|name| testdata.join(name))
}

/// All of them with their names, sorted. Read once: they are hundreds of files, and tests ask for one after the other.
pub fn recorded() -> &'static [(String, Recorded)] {
    static ALL: LazyLock<Vec<(String, Recorded)>> =
        LazyLock::new(|| folders().iter().flat_map(|folder| in_folder(folder)).collect());
    &ALL
}

/// Those of a folder with their names, sorted; none where nothing was recorded yet.
pub fn in_folder(folder: &Path) -> Vec<(String, Recorded)> {
    let entries = fs::read_dir(folder);
    let mut files: Vec<PathBuf> = entries
        .into_iter()
        .flatten()
        .map(|entry| entry.expect("a readable folder").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    files.sort();
    let read = |path: &PathBuf| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = fs::read(path).expect("a readable file");
        let document = serde_json::from_slice(&text).ok().and_then(packed::unpack);
        let document = document.unwrap_or_else(|| panic!("{} is damaged", path.display()));
        let recorded = serde_json::from_value(document);
        (name, recorded.unwrap_or_else(|error| panic!("{}: {error}", path.display())))
    };
    files.iter().map(read).collect()
}

impl Recorded {
    /// The verdict on it today, and whether it is right.
    pub fn judge(&self) -> (Verdict, bool) {
        self.judge_with(&Fit::default())
    }

    /// The verdict by these thresholds, and whether it is right.
    pub fn judge_with(&self, fit: &Fit) -> (Verdict, bool) {
        let verdict = explain::explain_fitted(&self.results, fit);
        let is_right = self.accept.iter().any(|accepted| accepted.is(&verdict));
        (verdict, is_right)
    }
}
