//! Whether this host's kernel threads can be seen: not from another process-id namespace than its first.

/// False after saying why a test of them cannot be here.
pub fn are_visible() -> bool {
    let visible = std::fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n");
    if !visible {
        println!("skipped: kernel threads cannot be seen from this process-id namespace");
    }
    visible
}
