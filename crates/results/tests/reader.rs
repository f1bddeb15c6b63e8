//! The reader against files that are damaged, foreign or hostile.

use results::{ReadError, read_results};

const WHOLE: &[u8] = include_bytes!("../../../testdata/results/synthetic-unseen.json");

#[test]
fn a_whole_file_reads_and_writes_back_the_same() {
    let read = read_results(WHOLE).expect("a whole file");
    let written = serde_json::to_vec(&read).expect("writes");
    assert_eq!(read_results(&written).expect("reads again"), read);
}

#[test]
fn a_truncated_file_says_that_it_ends_in_the_middle() {
    let trimmed = WHOLE.trim_ascii_end();
    for share in 1..100 {
        let cut = &trimmed[..trimmed.len() * share / 100];
        let error = read_results(cut).expect_err("cut short");
        assert!(error.to_string().contains("ends in the middle"), "{share}%: {error}");
        assert_eq!(error.to_string().lines().count(), 1);
    }
}

#[test]
fn another_major_version_is_refused_and_a_minor_one_read() {
    let text = String::from_utf8_lossy(WHOLE);
    let version = |version: &str| {
        text.replacen("\"schema_version\":\"1.0\"", &format!("\"schema_version\":\"{version}\""), 1)
    };
    assert!(read_results(version("1.7").as_bytes()).is_ok());
    let refused = read_results(version("2.0").as_bytes());
    assert!(matches!(refused, Err(ReadError::Version { found }) if found == "2.0"));
}

#[test]
fn unknown_fields_are_ignored() {
    let text = String::from_utf8_lossy(WHOLE);
    let newer = text.replacen("\"schema_version\"", "\"novelty\": [1, {}], \"schema_version\"", 1);
    assert!(read_results(newer.as_bytes()).is_ok());
}

#[test]
fn nesting_without_end_is_an_error_not_a_crash() {
    let mut deep = b"{\"schema_version\":\"1.0\",\"x\":".to_vec();
    deep.extend(std::iter::repeat_n(b'[', 1 << 20));
    assert!(read_results(&deep).is_err());
}

#[test]
fn hostile_bytes_never_panic() {
    bolero::check!().for_each(|bytes: &[u8]| {
        let _outcome = read_results(bytes);
    });
}

#[test]
fn damage_anywhere_never_panics() {
    bolero::check!().with_type::<(u32, u8)>().for_each(|(at, byte)| {
        let mut damaged = WHOLE.to_vec();
        let at = *at as usize % damaged.len();
        damaged[at] = *byte;
        // Most damage is refused; damage inside a string or number may pass. Neither may panic.
        let _outcome = read_results(&damaged);
    });
}
