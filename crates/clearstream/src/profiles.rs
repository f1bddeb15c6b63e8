//! Published lists of settings, compared with the running kernel's.

use std::collections::BTreeMap;

use tuning::profile::{Advice, Profile};

/// The running kernel's values for a profile's keys; keys that it does not have are left out.
pub(crate) fn running_values(profile: &Profile) -> BTreeMap<String, String> {
    let mut running = BTreeMap::new();
    for (key, _) in &profile.settings {
        let path = format!("/proc/sys/{}", key.replace('.', "/"));
        // A profile must not name arbitrary paths: keys that contain `..` are ignored.
        if let (false, Ok(text)) = (key.contains(".."), std::fs::read_to_string(path)) {
            let text = text.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
            running.insert(key.clone(), text);
        }
    }
    running
}

/// What the published value would do on today's kernels, if it would do harm or nothing.
pub(crate) fn effect(advice: Advice) -> Option<&'static str> {
    match advice {
        Advice::Harmful => Some("harmful"),
        Advice::Idle => Some("no effect"),
        _ => None,
    }
}

/// A published value with its effect: `0 (harmful)`.
pub(crate) fn shown(published: &str, advice: Advice) -> String {
    effect(advice).map_or_else(|| published.to_owned(), |effect| format!("{published} ({effect})"))
}

/// One word for how the running value compares with a published one.
pub(crate) fn word(published: &str, running: &str) -> &'static str {
    if running == published { "same" } else { "differs" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn harm_is_said_of_the_published_value_and_not_of_the_running_one() {
        assert_eq!(shown("0", Advice::Harmful), "0 (harmful)");
        assert_eq!(shown("1", Advice::Idle), "1 (no effect)");
        assert_eq!(shown("1", Advice::Sized), "1");
        assert_eq!((word("0", "1"), word("1", "1")), ("differs", "same"));
    }
}
