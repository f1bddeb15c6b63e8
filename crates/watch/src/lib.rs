//! Gateways watched on a real host: what [`liveness`] decides, with sockets, timers and files.
//!
//! * [`Watch`]: the watcher of a host: probes through each gateway, BFD, ICMP errors and the kernel's
//!   announcements in; routes steered ([`Steering`]), events, metrics and a state file out;
//! * [`Reflecting`]: the far end, which reflects probes through the gateway they came by.
//!
//! A watcher is one thread. It does not wait for a disk or a pipe: events, metrics and the state file are written
//! by a thread of their own ([`Recorder`]). When it ends, however it ends, routes stay as it left them last.

mod asking;
mod bfd_sockets;
mod filter;
mod filters;
mod icmp;
mod lines;
mod link;
mod metrics;
mod metrics_server;
mod neighbours;
mod options;
mod processors;
mod recorder;
mod reflecting;
mod sentinels;
mod state_file;
mod watching;

pub use lines::Form;
pub use link::{WatchError, monotonic_ns};
pub use metrics_server::Published;
pub use options::{
    AnnounceOptions, BfdPeer, GatewayOptions, ReflectOptions, SentinelOptions, WatchOptions,
};
pub use recorder::{Recorder, Records};
pub use reflecting::Reflecting;
pub use state_file::{GatewayRecord, StateFile};
pub use watching::{Promptness, Steering, Watch};
