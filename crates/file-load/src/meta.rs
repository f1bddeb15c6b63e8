//! Files and directories in mdtest's words.

pub mod engine;
pub mod options;
pub mod shape;
pub mod summary;
pub mod text;
