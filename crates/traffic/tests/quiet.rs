//! The engine, and whole tests over loopback: what judges rates and times.

#[path = "support/control.rs"]
mod control;
mod control_loopback;
mod control_prolonged;
mod engine_tcp;
mod engine_udp;
#[path = "support/raw.rs"]
mod raw;
