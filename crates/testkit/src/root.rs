//! Tests that only root can run.

/// Whether this is root; says in the log's words for a skipped test when it is not.
pub fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("skipped: needs root");
    }
    is_root
}
