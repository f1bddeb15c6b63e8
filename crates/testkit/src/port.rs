//! Ports for servers that tests start.

use std::sync::atomic::{AtomicU16, Ordering};

/// Below the ports that the kernel hands out to clients (32768 and up, `ip_local_port_range`).
const FIRST: u16 = 20_000;
const ENOUGH: u16 = 10_000;
/// Has no factor in common with that.
const APART: u32 = 777;

/// A port that nobody has, TCP or UDP, and that this process has not given out before.
///
/// It is looked up in the kernel's tables, never bound here: a program that another thread starts
/// meanwhile holds this process's sockets, listening ones too, until its `execve` is done.
pub fn free_port() -> u16 {
    static GIVEN: AtomicU16 = AtomicU16::new(0);
    // Test programs that run side by side have numbers near each other; each begins far from the others, so that none
    // is given what another has been given and does not use yet.
    let own_start = std::process::id() % u32::from(ENOUGH) * APART % u32::from(ENOUGH);
    let own_start = u16::try_from(own_start).expect("below ENOUGH");
    loop {
        let given = GIVEN.fetch_add(1, Ordering::Relaxed);
        assert!(given < ENOUGH, "no port is free");
        let port = FIRST + (own_start + given) % ENOUGH;
        if !["tcp", "tcp6", "udp", "udp6"].into_iter().any(|table| is_in_use(table, port)) {
            return port;
        }
    }
}

/// Is the port a local one in this table of proc(5)?
fn is_in_use(table: &str, port: u16) -> bool {
    let ending = format!(":{port:04X}");
    let lines = std::fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default();
    lines.lines().filter_map(|line| line.split_whitespace().nth(1)).any(|at| at.ends_with(&ending))
}
