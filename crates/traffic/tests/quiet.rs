//! The engine, whose tests judge rates and times.

mod engine_tcp;
mod engine_udp;
