//! The watcher against real kernels: hosts and gateways in network namespaces, failures planted in them, and
//! stock BFD daemons as peers. Needs root, iproute2, bird2 and frr.

#[path = "quiet_watch/rig.rs"]
mod rig;
#[path = "quiet_watch/watched.rs"]
mod watched;

#[path = "quiet_watch/daemons.rs"]
mod daemons;
#[path = "quiet_watch/failures.rs"]
mod failures;
#[path = "quiet_watch/routes.rs"]
mod routes;
#[path = "quiet_watch/sentinel.rs"]
mod sentinel;
