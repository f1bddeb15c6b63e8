//! The command line that the user typed, where the program starts itself again with other words.

/// Name of the option by which the program tells itself.
pub(crate) const OPTION: &str = "--typed";

/// The option for a program that this one starts: it has the words that the user typed.
pub(crate) fn option() -> String {
    let words: Vec<String> = std::env::args().collect();
    // A list of strings is always JSON.
    format!("{OPTION}={}", serde_json::to_string(&words).unwrap_or_default())
}

/// The words of a value of [`OPTION`].
///
/// # Errors
/// The value is not one that this program has written.
pub(crate) fn words(value: &str) -> Result<Vec<String>, &'static str> {
    serde_json::from_str(value).map_err(|_no_list| "--typed is for internal use only")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_typed_comes_through_as_it_was() {
        let option = option();
        let value = option.strip_prefix("--typed=").expect("the option");
        let typed: Vec<String> = std::env::args().collect();
        assert_eq!(words(value).as_deref(), Ok(&typed[..]));
        let odd = r#"["a b","\"","ü"]"#;
        assert_eq!(words(odd).map(|words| words.len()), Ok(3));
        assert!(words("5").is_err());
    }
}
