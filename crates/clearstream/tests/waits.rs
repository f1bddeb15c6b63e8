//! Tests of the program that wait more than they work, side by side. What judges time is in `quiet.rs`.

mod asked;
mod check;
mod check_mpi;
mod check_ranks;
mod compare;
mod completion;
mod docs;
mod exit_codes;
mod explain_load;
mod filesystem_root;
mod gates;
mod gateway;
mod iperf3_interop;
mod joined_root;
mod lab;
mod live;
mod load;
mod manual;
mod mpi;
mod mpi_placement_root;
mod mpi_root;
mod mpi_xdp_root;
mod path_loopback;
mod peer_text;
#[path = "support/philosophers.rs"]
mod philosophers;
mod place;
mod ports_root;
mod recorded_root;
mod reproduce;
mod reproduce_messages_root;
mod schema;
mod strangers_root;
mod terminal;
mod tune_hostile_root;
mod tune_root;
mod vhost_user_root;
mod vm;
#[path = "support/vm_bed.rs"]
mod vm_bed;
mod vm_disturbed;
mod vm_lab_root;
mod vm_passthrough_root;
mod vm_ptnet;
mod xdp_root;

/// What is tested.
const PROGRAM: &str = env!("CARGO_BIN_EXE_clearstream");
