//! The published results schema is the one the program writes, and the sample files obey it.
//!
//! `CLEARSTREAM_WRITE_SCHEMA=1 cargo test -p clearstream --test waits schema` writes the published file.

#[path = "support/fields.rs"]
mod fields;

/// The page that documents every field; its generated part ends the file.
const PAGE: &str = "docs/results.md";
const GENERATED: &str =
    "<!-- Generated from the schema by `tests/schema.rs`; do not edit below. -->";

const PUBLISHED: &str = "docs/schema/results-2.schema.json";

fn schema() -> serde_json::Value {
    serde_json::to_value(results::json_schema()).expect("a schema is JSON")
}

#[test]
fn the_published_schema_is_ours() {
    let mut ours = serde_json::to_string_pretty(&schema()).expect("a schema is JSON");
    ours.push('\n');
    if std::env::var_os("CLEARSTREAM_WRITE_SCHEMA").is_some() {
        std::fs::write(rules::root().join(PUBLISHED), &ours).expect("the schema can be written");
    }
    assert!(
        rules::text(PUBLISHED) == ours,
        "{PUBLISHED} is not what the program writes; run this test with CLEARSTREAM_WRITE_SCHEMA=1 \
         and look at the difference: within a major version fields are only added"
    );
}

#[test]
fn the_page_documents_every_field() {
    let text = rules::text(PAGE);
    let (by_hand, _) = text.split_once(GENERATED).expect("the page has a generated part");
    let ours = format!("{by_hand}{GENERATED}\n\n{}", fields::page(&schema()));
    if std::env::var_os("CLEARSTREAM_WRITE_SCHEMA").is_some() {
        std::fs::write(rules::root().join(PAGE), &ours).expect("the page can be written");
        return;
    }
    assert!(
        text == ours,
        "{PAGE} is not up to date; run this test with CLEARSTREAM_WRITE_SCHEMA=1"
    );
    assert!(!ours.contains("| | |"), "a field of the schema has no description");
}

#[test]
fn the_major_version_is_in_the_file_name() {
    let major = results::SCHEMA_VERSION.split('.').next().expect("major.minor");
    assert_eq!(PUBLISHED, format!("docs/schema/results-{major}.schema.json"));
}

/// `clearstream path --json` promises `.verdict` with these fields and names.
#[test]
fn the_verdict_is_where_it_was_promised() {
    let schema = schema();
    assert!(schema["properties"]["verdict"].is_object());
    let verdict = &schema["$defs"]["Verdict"]["properties"];
    for field in ["limit", "end", "evidence", "confirmed", "advice"] {
        assert!(verdict[field].is_object(), "{field}");
    }
    let limits = serde_json::to_string(&schema["$defs"]["Limit"]).expect("JSON");
    for limit in results::Limit::ALL
        .into_iter()
        .chain(results::Limit::OF_FILES)
        .chain(results::Limit::OF_ACCOUNTS)
    {
        let name = serde_json::to_value(limit).expect("a limit is text");
        assert_eq!(name, limit.name());
        assert!(limits.contains(&format!("\"{}\"", limit.name())), "{limits}");
    }
}

#[test]
fn sample_files_parse() {
    let samples = rules::files("testdata/results", ".json");
    for path in &samples {
        let bytes = std::fs::read(rules::root().join(path)).expect("readable sample");
        let name = path.rsplit('/').next().expect("a file name");
        match results::read_results(&bytes) {
            Ok(document) => {
                assert!(!name.starts_with("bad-"), "{path} should not parse");
                let again = serde_json::to_vec(&document).expect("results are JSON");
                assert_eq!(
                    results::read_results(&again).expect("our own writing"),
                    document,
                    "{path}"
                );
            }
            Err(error) => assert!(name.starts_with("bad-"), "{path}: {error}"),
        }
    }
}
