//! Messages between the ranks of an MPI job, by whichever library launched it.
//!
//! Nothing is linked: the launcher says in the environment whose job this is, and that library is
//! loaded then. Open MPI (4 and 5) and MPICH with those that share its binary interface are spoken
//! to; their handles differ (addresses there, numbers here), which [`World`] hides.
//!
//! One of the crates with `unsafe`: everything that MPI asks of its caller is kept up here.

#![expect(unsafe_code, reason = "a fence: C calls of MPI live here")]

mod calls;
mod world;

pub use world::{Flavour, MpiError, World, launched_by};
