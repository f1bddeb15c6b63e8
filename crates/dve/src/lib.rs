//! The DVE modelling language (`DiVinE`'s): models of processes that run side by side, share variables
//! and meet on channels.
//!
//! [`Model::parse`] reads and compiles a model; [`Steps`] gives the steps out of a state. Semantics are
//! those of `DiVinE` 2.4, whose state counts were published (BEEM, Pelánek 2007); where its own
//! description is silent and implementations differ, the code says which was taken.
//!
//! Pure: no I/O, no clock. Any text gives a model or a [`Diagnostic`] with line, column and caret.

#![forbid(unsafe_code)]

mod code;
mod diagnostic;
mod examples;
mod lexer;
pub mod ltl;
mod mdve;
mod model;
mod parser;
mod reduction;
mod resolve;
mod show;
mod steps;
mod suggest;
mod syntax;

pub use diagnostic::{At, Diagnostic};
pub use examples::{EXAMPLES, Example, example, suggest_example};
pub use mdve::expand_parameters;
pub use model::{Fault, Model};
pub use reduction::Reduction;
pub use steps::{Step, Steps};
pub use syntax::Kind;
