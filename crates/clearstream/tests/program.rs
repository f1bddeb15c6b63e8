//! Tests of the program that wait more than they work, side by side. What judges time is in `quiet.rs`.

#[path = "support/bed.rs"]
mod bed;
mod cc_root;
mod check;
mod check_mpi;
mod check_ranks;
mod docs;
#[path = "support/effort.rs"]
mod effort;
mod iperf3_interop;
#[path = "support/kernel_threads.rs"]
mod kernel_threads;
mod lab;
mod live;
mod path_loopback;
mod peer_text;
#[path = "support/philosophers.rs"]
mod philosophers;
mod place;
#[path = "support/port.rs"]
mod port;
mod ports_root;
mod schema;
#[path = "support/server.rs"]
mod server;
#[path = "../../packet-switch/tests/support/socket.rs"]
mod socket;
mod strangers_root;
mod tune_hostile_root;
mod tune_root;
mod xdp_root;
