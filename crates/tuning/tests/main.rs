//! All tests of the crate from outside, as one program.

mod killed_root;
#[path = "support/memory.rs"]
mod memory;
mod steps;
mod strangers;
