//! All tests of the crate from outside, as one program.

mod collective;
mod job;
mod mpi;
mod threads;
