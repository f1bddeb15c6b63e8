//! The watcher against real kernels: hosts and gateways in network namespaces, failures planted in them, and
//! stock BFD daemons as peers. Needs root, iproute2, bird2 and frr.

#[path = "watch_root/rig.rs"]
mod rig;
#[path = "watch_root/watched.rs"]
mod watched;

#[path = "watch_root/daemons.rs"]
mod daemons;
#[path = "watch_root/failures.rs"]
mod failures;
#[path = "watch_root/routes.rs"]
mod routes;
#[path = "watch_root/sentinel.rs"]
mod sentinel;
