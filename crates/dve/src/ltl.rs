//! Linear temporal logic: formulas as `.ltl` files write them, and their Büchi automata as DVE
//! property processes.
//!
//! A property process describes the bad runs, so it is made of the *negated* formula.
//!
//! ```
//! use dve::ltl::{Automaton, Formula};
//! let formula = Formula::parse("G (request -> F answer)").unwrap();
//! let bad_runs = Automaton::of(&formula.negated());
//! assert_eq!(bad_runs.states_count(), 2);
//! ```

mod automaton;
mod file;
mod formula;
mod parser;

pub use automaton::{Automaton, Edge, Literal};
pub(crate) use file::NAME as PROPERTY_NAME;
pub use file::{Definition, LtlFile, product, with_property};
pub use formula::{Formula, Temporal};
