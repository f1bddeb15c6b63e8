//! Tests of the program that judge time, or want the cores for themselves: `make test` runs them one at a time,
//! with nothing beside them, except those in `paced`.

mod cc_root;
mod cli;
mod explain;
mod mpi_slow_rank;
mod packets;
/// What a link or a clock sets the pace of, and no core here: `tools/test` runs three at a time.
mod paced {
    mod datagram_queue_root;
    mod gateway_bfd_root;
    mod gateway_follow_root;
    mod gateway_lab_root;
    mod gateway_stalls_root;
    mod gateway_units_root;
    mod gateway_watch_root;
    mod gateway_weights_root;
    mod reproduce_cumulus_root;
    pub(crate) mod tune_gain_root;
}
mod planted_recorded;
mod planted_root;
mod serve_limits;
mod topo;
#[path = "support/tune_bed.rs"]
mod tune_bed;
mod tune_send_buffer_root;

/// What is tested.
const PROGRAM: &str = env!("CARGO_BIN_EXE_clearstream");
