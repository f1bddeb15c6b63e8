//! Published lists of settings beside what the running kernel has.

use std::collections::BTreeMap;

use tuning::profile::{Advice, Profile};

/// What the running kernel has for a profile's keys; without those it does not know.
pub(crate) fn running_values(profile: &Profile) -> BTreeMap<String, String> {
    let mut running = BTreeMap::new();
    for (key, _) in &profile.settings {
        let path = format!("/proc/sys/{}", key.replace('.', "/"));
        // A key of a profile is no path: only plain names get here.
        if let (false, Ok(text)) = (key.contains(".."), std::fs::read_to_string(path)) {
            let text = text.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
            running.insert(key.clone(), text);
        }
    }
    running
}

/// A published value beside the running one, in a word.
pub(crate) fn word(advice: Advice, published: &str, running: Option<&str>) -> &'static str {
    match (advice, running) {
        (_, None) => "not here",
        (_, Some(here)) if here == published => "same",
        (Advice::Harmful, _) => "harmful",
        (Advice::Idle, _) => "no effect",
        _ => "differs",
    }
}
