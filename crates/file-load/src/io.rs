//! File input and output in IOR's words.

pub mod engine;
pub mod json;
pub mod layout;
pub mod offsets;
pub mod options;
pub mod summary;
pub mod text;
