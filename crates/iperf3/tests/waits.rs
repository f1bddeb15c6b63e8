//! All tests of the crate from outside, as one program.

mod handed_in;
mod hostile;
mod spec;
