//! What tests and benchmarks of several rooms share. No part of what is installed; crates use it as a
//! dev-dependency, `peers` for its planted limits.
//!
//! Most of it asserts instead of returning errors: a test that cannot have its bed has failed.
#![allow(missing_docs, missing_debug_implementations, reason = "read beside the tests that use it")]

pub mod daemon;
pub mod effort;
pub mod executable;
pub mod kernel_threads;
pub mod lab_bed;
pub mod machines;
pub mod own_memory;
pub mod planted;
pub mod port;
pub mod refuser;
pub mod root;
pub mod server;
pub mod serving;
pub mod socket;
pub mod spans;
pub mod stalls;
pub mod switch_bed;

use std::path::Path;
use std::sync::LazyLock;

/// The program under test, which cargo has built beside the tests of its package.
pub fn program() -> &'static str {
    static PROGRAM: LazyLock<String> = LazyLock::new(|| {
        let own = std::env::current_exe().expect("a test has a path");
        // Tests are in `deps`, other programs beside it.
        let mut folders = own.ancestors().skip(1).take(2).map(|folder| folder.join("clearstream"));
        let found = folders.find(|path| is_program(path));
        let found = found.unwrap_or_else(|| panic!("no program beside {}", own.display()));
        found.into_os_string().into_string().expect("a plain path")
    });
    &PROGRAM
}

fn is_program(path: &Path) -> bool {
    path.is_file()
}
