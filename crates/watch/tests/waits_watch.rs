//! The watcher against real kernels: hosts and gateways in network namespaces, failures planted in them, and
//! stock BFD daemons as peers. Needs root, iproute2, bird2 and frr.

#[path = "waits_watch/rig.rs"]
mod rig;
#[path = "waits_watch/watched.rs"]
mod watched;

#[path = "waits_watch/daemons.rs"]
mod daemons;
#[path = "waits_watch/failures.rs"]
mod failures;
#[path = "waits_watch/routes.rs"]
mod routes;
#[path = "waits_watch/sentinel.rs"]
mod sentinel;
