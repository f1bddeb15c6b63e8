//! All tests of the crate from outside, as one program.

mod page;
mod palette;
