//! The promises of SPECIFICATION.md and the tests that show them.
//!
//! A row is `| id | promise | … | shown by |`. Whoever adds one writes `+` for its id and names its tests in the last
//! cell as `FILE::TEST` between backticks; [`tidied`] then gives it the next free id, moves the names into the list
//! `tests/promises.txt`, one line `ID FILE::TEST` each, and leaves the files' short names in the cell.

use std::collections::BTreeMap;
use std::fmt::Write;

/// Where the promises stand, and where the names of their tests.
pub const PROMISES: &str = "SPECIFICATION.md";
/// See [`PROMISES`].
pub const TESTS: &str = "tests/promises.txt";

/// Begins what is generated in the last cell.
const GENERATED: &str = "tests: ";
/// First lines of the list.
const HEAD: &str = "# The tests behind each promise of SPECIFICATION.md, as `ID FILE::TEST`. Written by\n\
    # `CLEARSTREAM_WRITE_PROMISES=1 cargo test -p rules promises`.\n";

/// Tests by the id of their promise, in order.
pub type Tests = BTreeMap<String, Vec<String>>;

/// The list as it stands in its file.
#[must_use]
pub fn read_list(text: &str) -> Tests {
    let mut tests = Tests::new();
    for (id, test) in text.lines().filter_map(|line| line.split_once(' ')) {
        if id != "#" {
            tests.entry(id.to_owned()).or_default().push(test.to_owned());
        }
    }
    tests
}

/// The list as text.
#[must_use]
pub fn write_list(tests: &Tests) -> String {
    let mut text = HEAD.to_owned();
    for (id, tests) in tests {
        for test in tests {
            writeln!(text, "{id} {test}").expect("into a String");
        }
    }
    text
}

/// The document and the list as they should be: ids given, names moved, short names up to date, and no line of
/// the list whose promise is gone.
#[must_use]
pub fn tidied(document: &str, list: &Tests) -> (String, Tests) {
    let mut next = 1 + ids(document)
        .chain(list.keys().map(String::as_str))
        .filter_map(number)
        .max()
        .unwrap_or(0);
    let (mut text, mut tests) = (String::new(), Tests::new());
    let mut is_table = false;
    for line in document.lines() {
        is_table =
            if line.starts_with("| id |") { true } else { is_table && line.starts_with('|') };
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let is_row = is_table && !line.starts_with("| id |") && !line.starts_with("|-");
        let (true, [id, between @ .., shown]) = (is_row, cells.as_slice()) else {
            writeln!(text, "{line}").expect("into a String");
            continue;
        };
        let id = if number(id).is_some() { (*id).to_owned() } else { format!("S-{next:03}") };
        next += u32::from(!cells[0].starts_with("S-"));
        let (words, new) = apart(shown);
        let mut all = list.get(&id).cloned().unwrap_or_default();
        all.extend(new.into_iter().filter(|test| !all.contains(test)).collect::<Vec<_>>());
        let generated = (!all.is_empty()).then(|| format!("{GENERATED}{}", short(&all)));
        let shown = [words, generated.unwrap_or_default()];
        let shown: Vec<&str> =
            shown.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
        let between: String = between
            .iter()
            .map(|cell| {
                format!("{cell} | ").replacen(" | ", if cell.is_empty() { "| " } else { " | " }, 1)
            })
            .collect();
        writeln!(text, "| {id} | {between}{} |", shown.join("; ")).expect("into a String");
        if !all.is_empty() {
            tests.insert(id, all);
        }
    }
    (text, tests)
}

/// The ids that a document has given, in order.
pub fn ids(document: &str) -> impl Iterator<Item = &str> {
    let first =
        |line: &str| line.strip_prefix("| ").and_then(|line| line.split(' ').next()).map(str::len);
    document
        .lines()
        .filter_map(move |line| Some(&line[2..2 + first(line)?]))
        .filter(|id| number(id).is_some())
}

/// Of `S-017`.
fn number(id: &str) -> Option<u32> {
    id.strip_prefix("S-")?.parse().ok()
}

/// What a last cell says in words, and the tests that it names in full.
fn apart(shown: &str) -> (String, Vec<String>) {
    let written = shown.split(GENERATED).next().unwrap_or_default();
    let is_test = |part: &&str| part.contains(".rs::");
    let tests = written.split('`').skip(1).step_by(2).filter(is_test).map(str::to_owned).collect();
    let mut words = written.to_owned();
    for test in written.split('`').skip(1).step_by(2).filter(is_test) {
        words = words.replace(&format!("`{test}`"), "");
    }
    let separators = [',', ';', ' '];
    let parts = words.split([',', ';']).map(str::trim).filter(|part| !part.is_empty());
    let words = parts.collect::<Vec<_>>().join(", ");
    (words.trim_matches(separators).to_owned(), tests)
}

/// The files of tests without folders and endings, each once, with how many of the tests they hold.
fn short(tests: &[String]) -> String {
    let mut files: Vec<(String, usize)> = Vec::new();
    for test in tests {
        let path = test.split(".rs::").next().unwrap_or_default();
        let mut parts =
            path.rsplit('/').filter(|part| !["tests", "main", "src", "lib"].contains(part));
        let file = parts.next().unwrap_or(path).to_owned();
        match files.iter_mut().find(|(known, _)| *known == file) {
            Some((_, count)) => *count += 1,
            None => files.push((file, 1)),
        }
    }
    let show = |(file, count): &(String, usize)| {
        if *count == 1 { file.clone() } else { format!("{file} {count}") }
    };
    files.iter().map(show).collect::<Vec<_>>().join(", ")
}
