//! All tests of the crate from outside, as one program.

mod fair;
mod hosts;
#[path = "support/graph.rs"]
mod graph;
mod oracle;
mod partition;
#[path = "support/promised.rs"]
mod promised;
mod snapshot;
mod together;
