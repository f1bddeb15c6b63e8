//! The source tree, for the checks that read it (`tests/`): sizes, names, layers, documents.

pub mod promises;

use std::fs;
use std::path::{Path, PathBuf};

/// The repository's root.
///
/// # Panics
///
/// Where the tree has been moved away since this was built.
#[must_use]
pub fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().expect("the crate lies two folders below the root")
}

/// A file of the tree as text, named relative to the root.
///
/// # Panics
///
/// Where there is no such file.
#[must_use]
pub fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every file below `folder` (relative to the root; empty for all of it) whose name ends in `suffix`,
/// sorted, relative to the root. Build output, version control and what `.gitignore` names at the root (the demo's
/// results) are no part of the tree.
///
/// # Panics
///
/// Where a folder cannot be read to its end.
#[must_use]
pub fn files(folder: &str, suffix: &str) -> Vec<String> {
    let root = root();
    let ignored = text(".gitignore");
    let is_ignored = |name: &str| ignored.lines().any(|line| line.strip_prefix('/') == Some(name));
    let mut found = Vec::new();
    walk(&root.join(folder), &mut |path| {
        let name = path.strip_prefix(&root).expect("below the root").display().to_string();
        if name.ends_with(suffix) && !is_ignored(&name) {
            found.push(name);
        }
    });
    found.sort();
    found
}

fn walk(folder: &Path, visit: &mut impl FnMut(&Path)) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.map(|entry| entry.expect("readable folder").path()) {
        let name = path.file_name().unwrap_or_default();
        if path.is_symlink() || name == "target" || name == ".git" {
            continue;
        }
        if path.is_dir() {
            walk(&path, visit);
        } else {
            visit(&path);
        }
    }
}

/// A Rust file without its `#[cfg(test)]` tail: what runs in the program.
#[must_use]
pub fn program_part(source: &str) -> &str {
    source.find("\n#[cfg(test)]\nmod tests").map_or(source, |end| &source[..end])
}

/// Whether a Rust file holds only tests.
#[must_use]
pub fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}
