//! Tests of the program that judge time, or want the cores for themselves: `make test` runs them one at a time,
//! with nothing beside them.

mod cli;
#[path = "support/effort.rs"]
mod effort;
mod explain;
#[path = "support/kernel_threads.rs"]
mod kernel_threads;
mod packets;
mod planted_recorded;
mod planted_root;
#[path = "support/port.rs"]
mod port;
mod serve_limits;
#[path = "support/server.rs"]
mod server;
#[path = "../../packet-switch/tests/support/socket.rs"]
mod socket;
mod topo;
