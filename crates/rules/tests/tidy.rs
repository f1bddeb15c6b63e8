//! House rules that a compiler does not check.

use std::collections::BTreeMap;

/// Lines of code a file may have, comments, blank lines and tests not counted.
const FILE_LINES_MAX: usize = 500;
/// Lines a function may have, from its signature to its closing brace.
const FUNCTION_LINES_MAX: usize = 70;
/// Files and functions of the program that are longer, with their length. The list may only shrink.
const LONG: &str = "tests/long.txt";

/// Endings of files that are text.
const TEXT: &[&str] = &[
    ".rs", ".toml", ".md", ".txt", ".json", ".html", ".css", ".js", ".service", ".socket",
    "Makefile",
];

fn code_lines(source: &str) -> usize {
    let code = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
    rules::program_part(source).lines().filter(code).count()
}

/// Name and length of every function that is too long. rustfmt puts a closing brace under the
/// first letter of what it closes, so indentation is enough to find it.
fn long_functions(source: &str) -> Vec<(String, usize)> {
    let lines: Vec<&str> = source.lines().collect();
    let mut long = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else { continue };
        let indent = line.len() - line.trim_start().len();
        let closing = format!("{}}}", " ".repeat(indent));
        let end = lines[start..].iter().position(|line| **line == closing).unwrap_or(0);
        if end + 1 > FUNCTION_LINES_MAX {
            long.push((name.to_owned(), end + 1));
        }
    }
    long
}

fn function_name(line: &str) -> Option<&str> {
    let (before, after) = line.trim_start().split_once("fn ")?;
    let qualifier = |word: &str| {
        word.starts_with("pub")
            || ["const", "async", "unsafe", "extern", "\"C\""].contains(&word)
            || word.ends_with(')')
    };
    (before.split_whitespace().all(qualifier) && !line.trim_end().ends_with(';'))
        .then(|| after.split(['(', '<']).next().unwrap_or(after))
}

#[test]
fn files_and_functions_are_short() {
    let mut long = BTreeMap::new();
    for path in rules::files("", ".rs") {
        if rules::is_test_file(&path) {
            continue;
        }
        let source = rules::text(&path);
        if code_lines(&source) > FILE_LINES_MAX {
            long.insert(path.clone(), code_lines(&source));
        }
        for (name, lines) in long_functions(rules::program_part(&source)) {
            long.insert(format!("{path} fn {name}"), lines);
        }
    }
    let listed = rules::text(LONG);
    let listed: BTreeMap<String, usize> = listed
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.split_once(' ').expect("`LINES PATH`"))
        .map(|(lines, path)| (path.to_owned(), lines.parse().expect("a number of lines")))
        .collect();
    assert_eq!(
        long, listed,
        "left: the tree; right: {LONG}, which may only shrink: split what has grown"
    );
}

#[test]
fn the_measures_measure() {
    assert_eq!(code_lines("//! doc\n\nuse a;\nfn b() {}\n\n#[cfg(test)]\nmod tests {\n}\n"), 2);
    let body = "    x;\n".repeat(FUNCTION_LINES_MAX);
    assert_eq!(
        long_functions(&format!("pub(crate) fn f() {{\n{body}}}\n")),
        [("f".to_owned(), 72)]
    );
    assert_eq!(long_functions("fn g() {\n}\n"), []);
    assert_eq!(function_name("    pub const unsafe fn h<T>(a: T) {"), Some("h"));
    assert_eq!(function_name("// the fn of it"), None);
}

#[test]
fn nothing_is_left_behind() {
    // Put together here, or this file would find itself.
    let banned = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X "),
        concat!("/wo", "rk/"),
        concat!("/fa", "rm/"),
        concat!("/ro", "ot/"),
        concat!("/ho", "me/"),
        concat!("#[ign", "ore"),
        // What a merge that was not finished leaves: documents are part of the program's help.
        concat!("<<<<", "<<< "),
        concat!(">>>>", ">>> "),
    ];
    let mut found = Vec::new();
    for path in TEXT.iter().flat_map(|ending| rules::files("", ending)) {
        for (number, line) in rules::text(&path).lines().enumerate() {
            let words = banned.iter().filter(|word| line.contains(*word));
            found.extend(words.map(|word| format!("{path}:{}: {word}", number + 1)));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// What a peer, a file or a device says may be part of any line: all of them go through `out.rs`,
/// which shows what a terminal would obey. Screens (ratatui) leave such characters out themselves.
#[test]
fn all_output_of_the_program_goes_through_one_place() {
    let direct = ["stdout()", "stderr()", "print!(", "println!(", "eprint!(", "dbg!("];
    let allowed = [
        "crate::out::",
        "out::std",
        "is_terminal()",
        "tcgetwinsize(",
        "use_stderr()",
        "take_stdout()",
    ];
    let mut found = Vec::new();
    for path in rules::files("crates/clearstream/src", ".rs") {
        if path.ends_with("/src/out.rs") {
            continue;
        }
        for (number, line) in rules::program_part(&rules::text(&path)).lines().enumerate() {
            let writes = direct.iter().any(|word| line.contains(word));
            let is_code = !line.trim_start().starts_with("//");
            if is_code && writes && !allowed.iter().any(|word| line.contains(word)) {
                found.push(format!("{path}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "write through crate::out: {found:#?}");
}

#[test]
fn modules_are_named_after_themselves() {
    let nameless = rules::files("crates", "/mod.rs");
    assert!(nameless.is_empty(), "use foo.rs beside foo/: {nameless:?}");
}

/// A short file with one type is explained by the type's own documentation.
#[test]
fn every_larger_file_says_what_it_is_for() {
    let silent: Vec<String> = rules::files("", ".rs")
        .into_iter()
        .filter(|path| !rules::is_test_file(path))
        .filter(|path| {
            let source = rules::text(path);
            let root = path.ends_with("/lib.rs") || path.ends_with("/main.rs");
            (root || code_lines(&source) > 100) && !source.trim_start().starts_with("//!")
        })
        .collect();
    assert!(silent.is_empty(), "no module documentation: {silent:?}");
}

#[test]
fn skips_are_reasons() {
    let listed = rules::text("tests/allowed-skips.txt");
    let reasons: Vec<&str> =
        listed.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let mut unique = reasons.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), reasons.len(), "a reason stands twice in tests/allowed-skips.txt");
}

/// Where the files of `tests` are modules of few programs, one that no program names would never run.
#[test]
fn every_test_file_is_part_of_a_test_program() {
    let mut left_out = Vec::new();
    for manifest in rules::files("crates", "/Cargo.toml") {
        let text = rules::text(&manifest);
        if !text.contains("autotests = false") {
            continue;
        }
        let folder = manifest.replace("Cargo.toml", "tests/");
        let roots: Vec<String> = text
            .lines()
            .filter_map(|line| line.strip_prefix("path = \"tests/")?.strip_suffix('"'))
            .map(|root| format!("{folder}{root}"))
            .collect();
        let modules: String = roots.iter().map(|root| rules::text(root)).collect();
        left_out.extend(rules::files(&folder, ".rs").into_iter().filter(|path| {
            let name = path.trim_start_matches(&folder).trim_end_matches(".rs");
            let is_below = name.contains('/');
            !is_below && !roots.contains(path) && !modules.contains(&format!("\nmod {name};\n"))
        }));
    }
    assert!(left_out.is_empty(), "no test program names these: {left_out:?}");
}

/// `tools/test` runs test programs by name: what is called `waits` or `waits_…` beside others, what is called `quiet`
/// or `quiet_…` alone, and every other by the pattern `[!qw]*`.
#[test]
fn test_programs_are_named_for_their_lane() {
    let script = rules::text("tools/test");
    assert!(script.contains("--test waits") && script.contains("--test quiet"));
    assert!(script.contains("--test '[!qw]*'"));
    let mut wrong = Vec::new();
    for manifest in rules::files("", "/Cargo.toml") {
        let text = rules::text(&manifest);
        let declared = text.split("[[test]]").skip(1).filter_map(|target| {
            target.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'))
        });
        let mut programs: Vec<String> = declared.map(str::to_owned).collect();
        if !text.contains("autotests = false") {
            let folder = manifest.replace("Cargo.toml", "tests/");
            let files = rules::files(&folder, ".rs").into_iter();
            let names = files.map(|path| path[folder.len()..].trim_end_matches(".rs").to_owned());
            programs.extend(names.filter(|name| !name.contains('/') || name.ends_with("/main")));
        }
        let misnamed = |name: &String| {
            let lane = name.split('_').next().unwrap_or_default();
            name.starts_with(['q', 'w']) && !["quiet", "waits"].contains(&lane)
        };
        wrong.extend(programs.into_iter().filter(misnamed).map(|name| (manifest.clone(), name)));
    }
    assert!(wrong.is_empty(), "no lane of tools/test runs these: {wrong:?}");
}
