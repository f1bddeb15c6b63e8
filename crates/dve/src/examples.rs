//! Models to learn from: each is an error that was made in earnest, its repair, or a classic.
//!
//! The comment at the head of a model says what it shows, and which searches to try with which verdict; a test runs
//! these. The language itself is described in `docs/dve.md`.

use crate::suggest::did_you_mean;

/// A model that comes with the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Example {
    /// What it is called.
    pub name: &'static str,
    /// The model's text.
    pub text: &'static str,
    /// Whether the text has parameters ([`expand_parameters`](crate::expand_parameters)).
    pub has_parameters: bool,
}

impl Example {
    const fn new(name: &'static str, text: &'static str) -> Self {
        Self { name, text, has_parameters: false }
    }

    /// What it shows, in a line.
    ///
    /// ```
    /// let example = dve::example("philosophers").unwrap();
    /// assert!(example.title().starts_with("Dining philosophers"));
    /// ```
    #[must_use]
    pub fn title(&self) -> &'static str {
        let line = self.text.lines().next().unwrap_or_default();
        line.trim_start_matches("// ").trim_end_matches('.')
    }

    /// The name of the file that it would be.
    #[must_use]
    pub fn file_name(&self) -> String {
        format!("{}.{}", self.name, if self.has_parameters { "mdve" } else { "dve" })
    }
}

/// The examples, simple ones first.
pub const EXAMPLES: [Example; 15] = [
    Example::new("lost-update", include_str!("../models/lost-update.dve")),
    Example::new("check-then-set", include_str!("../models/check-then-set.dve")),
    Example::new("set-then-check", include_str!("../models/set-then-check.dve")),
    Example::new("peterson", include_str!("../models/peterson.dve")),
    Example::new("lost-wake-up", include_str!("../models/lost-wake-up.dve")),
    Example::new("bounded-buffer", include_str!("../models/bounded-buffer.dve")),
    Example::new("readers-writers", include_str!("../models/readers-writers.dve")),
    Example::new("philosophers", include_str!("../models/philosophers.dve")),
    Example::new("philosophers-ordered", include_str!("../models/philosophers-ordered.dve")),
    Example {
        has_parameters: true,
        ..Example::new("token-ring", include_str!("../models/token-ring.mdve"))
    },
    Example::new("leader-election", include_str!("../models/leader-election.dve")),
    Example::new("elevator", include_str!("../models/elevator.dve")),
    Example::new("alternating-bit", include_str!("../models/alternating-bit.dve")),
    Example::new("two-phase-commit", include_str!("../models/two-phase-commit.dve")),
    Example::new("river-crossing", include_str!("../models/river-crossing.dve")),
];

/// The example of that name.
#[must_use]
pub fn example(name: &str) -> Option<&'static Example> {
    EXAMPLES.iter().find(|example| example.name == name)
}

/// `;` or `; did you mean `NAME`?` for a name that no example has.
#[must_use]
pub fn suggest_example(name: &str) -> String {
    match did_you_mean(name, EXAMPLES.iter().map(|example| example.name)) {
        hint if hint.is_empty() => ";".to_owned(),
        hint => hint,
    }
}
