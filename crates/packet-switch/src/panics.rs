//! Panics that concern one client, port or device, and not the daemon.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

/// Longest account of a panic, characters.
const WORDS_MAX: usize = 200;

/// What `work` gives, or what it said when it panicked. Whatever it was working on is to be thrown away then.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| words(&*panic))
}

static COUNT: AtomicU64 = AtomicU64::new(0);

/// How many there were in this process.
pub(crate) fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

/// What a thread said that ended in a panic, which is counted here.
pub(crate) fn words(panic: &(dyn Any + Send)) -> String {
    COUNT.fetch_add(1, Ordering::Relaxed);
    let said = panic.downcast_ref::<&str>().copied();
    let said = said.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let said = printable(said.unwrap_or("no message"), WORDS_MAX);
    format!("internal error: {said}")
}

/// The first characters of a text that somebody else wrote, without those that a terminal takes for
/// commands and those that no name of a thread can have.
pub(crate) fn printable(text: &str, characters_max: usize) -> String {
    let shown = |one: char| if one.is_control() { '?' } else { one };
    text.chars().take(characters_max).map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_with_its_words() {
        assert_eq!(caught(|| 7), Ok(7));
        let number = 7;
        let said = caught(|| assert!(number == 8, "not {number}\u{1b}[2J")).unwrap_err();
        assert_eq!(said, "internal error: not 7?[2J");
    }

    #[test]
    fn what_others_write_is_short_and_plain() {
        assert_eq!(printable("a\0b\u{1b}[31m\n", 6), "a?b?[3");
    }
}
