//! Recordings of every kind: real ones of a planted limit, built ones of everything a capture can
//! hold, and bytes that nobody meant to be one.

mod built;
mod damaged;
mod hostile;
mod real;
mod synthetic;
