//! The documents are true where a machine can tell: links lead somewhere, lists are complete,
//! promised figures name a test or a benchmark that exists.

use std::path::Path;

/// `[text](target)` targets of a document, without those on the web and without fragments.
fn links(text: &str) -> Vec<&str> {
    text.split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .map(|target| target.split('#').next().unwrap_or(target))
        .filter(|target| !target.is_empty() && !target.starts_with("http"))
        .collect()
}

/// What stands between single backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).filter(|word| !word.is_empty()).collect()
}

#[test]
fn links_lead_somewhere() {
    let mut broken = Vec::new();
    for path in rules::files("", ".md") {
        let folder = rules::root().join(Path::new(&path).parent().expect("a folder"));
        let text = rules::text(&path);
        let bad = links(&text).into_iter().filter(|target| !folder.join(target).exists());
        broken.extend(bad.map(|target| format!("{path}: {target}")));
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn architecture_is_short_and_complete() {
    let text = rules::text("ARCHITECTURE.md");
    assert!(text.lines().count() <= 200, "{} lines", text.lines().count());
    let manifest = rules::text("Cargo.toml");
    let dependencies = manifest.split("[workspace.dependencies]").nth(1).expect("dependencies");
    let dependencies = dependencies.split("\n[").next().expect("a section");
    let words = quoted(&text);
    let missing: Vec<&str> = dependencies
        .lines()
        .filter_map(|line| line.split(" =").next())
        .filter(|name| !name.is_empty() && !name.starts_with('#') && !words.contains(name))
        .collect();
    assert!(missing.is_empty(), "neither a room nor a dependency with a reason: {missing:?}");
}

#[test]
fn glossary_is_sorted() {
    let text = rules::text("docs/GLOSSARY.md");
    let terms: Vec<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix("**")?.split("**").next())
        .map(str::to_lowercase)
        .collect();
    assert!(terms.len() > 20);
    assert!(terms.is_sorted(), "{terms:?}");
}

/// Every promise names what shows it: `bench NAME`, or `FILE::TEST` with both there. The attacks that
/// docs/security.md names are cases of the suite.
#[test]
fn promises_name_tests_that_exist() {
    let benches: String = ["plan", "packets", "states", "messages", "files", "gateways"]
        .map(|name| rules::text(&format!("benches/{name}.rs")))
        .concat();
    let attacks: String =
        rules::files("crates/attack/src", ".rs").iter().map(|path| rules::text(path)).collect();
    let mut wrong = Vec::new();
    for (path, least) in [("SPECIFICATION.md", 20), ("docs/security.md", 20)] {
        let text = rules::text(path);
        let mut named = 0;
        for word in quoted(&text) {
            let is_there = if let Some(row) = word.strip_prefix("bench ") {
                benches.contains(&format!("\"{row}\""))
            } else if let Some(case) = word.strip_prefix("attack: ") {
                attacks.contains(&format!("\"{case}\""))
            } else if let Some((file, test)) = word.split_once(".rs::") {
                let file = rules::root().join(format!("{file}.rs"));
                let source = std::fs::read_to_string(file).unwrap_or_default();
                source.contains(&format!("fn {test}("))
            } else {
                continue;
            };
            named += 1;
            if !is_there {
                wrong.push(format!("{path}: {word} is not there"));
            }
        }
        assert!(named >= least, "{path}: only {named} promises name what shows them");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn changelog_keeps_its_form() {
    const KINDS: [&str; 6] = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"];
    let text = rules::text("CHANGELOG.md");
    assert!(text.starts_with("# Changelog\n"));
    let releases: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    assert_eq!(releases.first(), Some(&"[Unreleased]"));
    for release in &releases[1..] {
        let (version, date) = release.split_once(" - ").expect("`[x.y.z] - YYYY-MM-DD`");
        let numbers = version.trim_matches(['[', ']']).split('.');
        assert!(
            numbers.clone().count() == 3
                && numbers.into_iter().all(|one| one.parse::<u32>().is_ok())
        );
        assert!(date.len() == 10 && date.split('-').count() == 3, "{release}");
    }
    let kinds: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    assert!(kinds.iter().all(|kind| KINDS.contains(kind)), "{kinds:?}");
}

/// What has no example in its documentation says so, and is not asked for one each time.
#[test]
fn crates_without_doc_tests_have_no_examples() {
    let mut examples = Vec::new();
    for manifest in rules::files("crates", "/Cargo.toml") {
        if !rules::text(&manifest).contains("doctest = false") {
            continue;
        }
        for path in rules::files(&manifest.replace("Cargo.toml", "src"), ".rs") {
            let source = rules::text(&path);
            let comments = source
                .lines()
                .map(str::trim_start)
                .filter_map(|line| line.strip_prefix("///").or_else(|| line.strip_prefix("//!")));
            let mut fences = comments.filter(|line| line.trim_start().starts_with("```"));
            // Those that open; what closes comes next.
            while let Some(opening) = fences.next() {
                if opening.trim() != "```text" {
                    examples.push(format!("{path}: {opening}"));
                }
                fences.next();
            }
        }
    }
    assert!(examples.is_empty(), "doctest = false, though there are examples: {examples:#?}");
}
