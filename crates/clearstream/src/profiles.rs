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

/// One word for how a published value compares with the running one.
pub(crate) fn word(advice: Advice, published: &str, running: Option<&str>) -> &'static str {
    match (advice, running) {
        (_, None) => "not here",
        (_, Some(here)) if here == published => "same",
        (Advice::Harmful, _) => "harmful",
        (Advice::Idle, _) => "no effect",
        _ => "differs",
    }
}
