//! All tests of the crate from outside, as one program.

mod library;
#[path = "naive/all.rs"]
mod naive;
mod reduced;
mod spin;
mod trust;
