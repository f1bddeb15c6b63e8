//! A second reading of the language, written apart from the first and as plainly as can be: trees are
//! walked, states are records, sets are hash sets. It shares no code with `dve`.

#![allow(dead_code, reason = "each test uses its part")]

pub(crate) mod graph;
pub(crate) mod interpreter;
pub(crate) mod random;
pub(crate) mod tree;
