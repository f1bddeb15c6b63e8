//! `cargo test -p rules`: what the repository promises itself, checked from its text alone.

mod docs;
mod layers;
mod promises;
mod thresholds;
mod tidy;
