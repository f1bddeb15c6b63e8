//! The documents name what the program has: every verb, field and limit.

use std::process::Command;

/// What stands between single backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).filter(|word| !word.is_empty()).collect()
}

/// The program's verbs, as its help lists them.
fn verbs() -> Vec<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_clearstream")).arg("--help").output();
    let help = String::from_utf8(output.expect("the program starts").stdout).expect("UTF-8");
    let commands = help.split("Commands:\n").nth(1).expect("a list of commands");
    let mut verbs: Vec<String> = commands
        .lines()
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| Some(line.split_whitespace().next()?.to_owned()))
        .collect();
    verbs.sort_unstable();
    verbs
}

/// The part of a text below the heading.
fn section<'a>(text: &'a str, heading: &str) -> &'a str {
    let rest = text.split(&format!("\n## {heading}\n")).nth(1).expect(heading);
    rest.split("\n## ").next().unwrap_or(rest)
}

#[test]
fn verbs_guide_describes_every_verb() {
    let text = rules::text("docs/verbs.md");
    let rows = section(&text, "What each verb does").lines();
    let mut listed: Vec<&str> =
        rows.filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    listed.sort_unstable();
    assert_eq!(listed, verbs());
}

#[test]
fn readme_names_every_verb() {
    let text = rules::text("README.md");
    let rows = section(&text, "What it can do").lines().filter(|line| line.starts_with("| "));
    let mut named: Vec<&str> = rows.flat_map(quoted).collect();
    named.push("help");
    named.sort_unstable();
    assert_eq!(named, verbs());
}

#[test]
fn results_guide_names_every_field() {
    let text = rules::text("docs/results.md");
    let schema = serde_json::to_value(results::json_schema()).expect("a schema is JSON");
    let fields = schema["properties"].as_object().expect("properties");
    let words = quoted(&text);
    let missing: Vec<&String> =
        fields.keys().filter(|name| !words.contains(&name.as_str())).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn limits_guide_names_every_limit() {
    let text = rules::text("docs/limits.md");
    let words = quoted(&text);
    for limit in results::Limit::ALL
        .into_iter()
        .chain(results::Limit::OF_FILES)
        .chain(results::Limit::OF_ACCOUNTS)
    {
        assert!(words.contains(&limit.name()), "{}", limit.name());
    }
}
