//! Numbers that decide something in a verdict have a name and a reason, in `explain`'s tables.

/// Where limits are weighed, and experiments chosen and ruled on.
const WEIGHED: &[&str] = &[
    "crates/explain/src/limits",
    "crates/explain/src/observed",
    "crates/explain/src/rivals",
    "crates/explain/src/judgement",
];

/// Numbers without a choice in them: nothing, all, bits of a byte, and prefixes of units.
const PLAIN: &[&str] = &["0.0", "1.0", "8.0", "1e6", "1e-6", "1e9", "8e9"];

/// The decimal numbers of a line of code, text in quotes left out.
fn decimals(code: &str) -> Vec<String> {
    let is_name =
        |before: Option<char>| before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '.');
    let mut found = Vec::new();
    let mut rest = code;
    let mut before = None;
    while let Some(first) = rest.chars().next() {
        let length = if first.is_ascii_digit() && !is_name(before) {
            let is_part = |(at, c): (usize, char)| {
                let is_exponent = rest[..at].ends_with('e') && c == '-';
                !(c.is_ascii_digit() || c == '.' || c == 'e' || c == '_' || is_exponent)
            };
            let length =
                rest.char_indices().find(|part| is_part(*part)).map_or(rest.len(), |end| end.0);
            let number = &rest[..length];
            // A range holds two.
            let each = number.split("..").filter(|number| number.contains(['.', 'e']));
            found.extend(each.map(|number| number.trim_end_matches('_').to_owned()));
            length
        } else {
            first.len_utf8()
        };
        before = rest[..length].chars().next_back();
        rest = &rest[length..];
    }
    found
}

/// Code without comments and without what is in quotes, which may go over several lines.
fn without_text(source: &str) -> Vec<String> {
    let mut is_quoted = false;
    let line = |line: &str| {
        let mut code = String::new();
        if !is_quoted && line.trim_start().starts_with("//") {
            return code;
        }
        let mut is_escaped = false;
        for c in line.chars() {
            match c {
                '"' if !is_escaped => is_quoted = !is_quoted,
                _ if !is_quoted => code.push(c),
                _ => {}
            }
            is_escaped = c == '\\' && !is_escaped;
        }
        code
    };
    source.lines().map(line).collect()
}

#[test]
fn limits_decide_by_named_numbers() {
    let mut files: Vec<String> = WEIGHED.iter().map(|folder| format!("{folder}.rs")).collect();
    files.extend(WEIGHED.iter().flat_map(|folder| rules::files(folder, ".rs")));
    assert!(files.len() > 35, "{files:?}");
    let mut unnamed = Vec::new();
    for path in files {
        let source = rules::text(&path);
        for (at, line) in without_text(rules::program_part(&source)).iter().enumerate() {
            let chosen = decimals(line).into_iter().filter(|it| !PLAIN.contains(&it.as_str()));
            unnamed.extend(chosen.map(|number| format!("{path}:{}: {number}", at + 1)));
        }
    }
    assert!(
        unnamed.is_empty(),
        "give each a name and a reason in crates/explain/src/thresholds: {unnamed:#?}"
    );
}

#[test]
fn numbers_are_found_where_they_decide() {
    let code = "ramp(x.0, 0.35, 2e-6) * (1.0 - 0.8_f64) + a[0] as f64 / 8.0 + t.1.5";
    assert_eq!(decimals(code), ["0.35", "2e-6", "1.0", "0.8", "8.0"]);
    assert_eq!(decimals("0..3, 1_400, v1.5, 0x1e6"), Vec::<String>::new());
    assert_eq!(decimals("(0.2..1.5).contains"), ["0.2", "1.5"]);
    let lines = without_text("let a = \"0.5 \\\" 0.6\n0.7\" + 0.8;\n// 0.9\n");
    assert_eq!(lines.concat(), "let a =  + 0.8;");
}
