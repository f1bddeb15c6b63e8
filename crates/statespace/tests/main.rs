//! All tests of the crate from outside, as one program.

mod fair;
#[path = "support/graph.rs"]
mod graph;
mod hosts;
mod oracle;
mod partition;
#[path = "support/promised.rs"]
mod promised;
mod snapshot;
mod together;
