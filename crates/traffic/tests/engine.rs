//! The engine, whose tests judge rates and times.

#[path = "../../clearstream/tests/support/effort.rs"]
mod effort;
mod engine_tcp;
mod engine_udp;
