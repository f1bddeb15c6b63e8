//! All tests of the crate from outside, as one program.

mod errors;
mod long;
mod ltl;
mod mdve;
mod semantics;
