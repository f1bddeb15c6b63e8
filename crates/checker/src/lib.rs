//! DVE models as systems to search.
//!
//! Joins the language (`dve`) to the searches (`statespace`): no I/O, no clock. Its tests hold both
//! against a second interpreter, as plain as can be, on random models.

#![forbid(unsafe_code)]

mod ranked;
mod system;

pub use ranked::RankedModel;
pub use system::{FAILED, ModelSystem, TAKEN, WENT_WELL, actors};
