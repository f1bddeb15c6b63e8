//! The engine, and whole tests over loopback: what judges rates and times.

#[path = "support/control.rs"]
mod control;
mod control_loopback;
mod engine_tcp;
mod engine_udp;
