//! The vocabulary of host changes: one typed name for every setting this program changes, the values
//! it takes, a change of it, and the shell command that makes the same change by hand.
//!
//! `explain` names changes in these words, `tuning` journals, makes and undoes them, tests that move
//! interrupts lease them, and a results file stores them as the text that [`Key`] prints. Text becomes a
//! [`Key`] through [`std::str::FromStr`] alone, and a value passes [`Key::check`] before it comes near a
//! host.
//!
//! A key says nothing of where: it is a setting of one host, and where the kernel keeps it for each
//! network namespace, of one namespace. Whoever holds a change holds its place beside it: the end of
//! the path, and the namespace in which the world that reads and writes it was opened.
//!
//! A new family of settings (a route, a rule, a nexthop) is a variant of [`Key`], an arm each in its
//! parser, printer, [`Key::check`] and [`command()`], and an arm in the world that can change it. The
//! journal, undoing and every verb take it as it is.

#![forbid(unsafe_code)]

pub mod catalogue;
mod change;
mod command;
mod key;
pub mod text;
mod value;

pub use change::Change;
pub use command::{command, commands, word};
pub use key::{
    FILES, FilterTableName, FlowName, InterfaceKey, Key, KeyError, PARAMETERS, Parameter,
    PersistedFile, RouteName,
};
pub use value::{RootQdisc, VALUE_BYTES_MAX, cores_of, list_of, mask_of};
