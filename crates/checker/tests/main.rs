//! All tests of the crate from outside, as one program.

#[path = "naive/all.rs"]
mod naive;
mod reduced;
mod trust;
