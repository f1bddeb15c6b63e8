//! The pure packet core: no I/O, no clock, no unsafe. Time comes in as `now_ns`, frames as bytes
//! the owner read, and what leaves is a decision the owner carries out.
//!
//! * [`frame`]: what a frame with its virtio-net header is on the wire;
//! * [`lightpath`]: one direction of a link: rate, queue, delay, jitter, loss, by seed;
//! * [`delay_line`]: where the bytes wait until they leave;
//! * [`flow`]: which flow a frame belongs to;
//! * [`vale`]: a learning switch: where each frame of a batch goes;
//! * [`split`]: a super-segment of which some wire packets are lost;
//! * [`offload`]: frames for a port that wants no virtio-net headers.
#![forbid(unsafe_code)]

pub mod delay_line;
pub mod flow;
pub mod frame;
pub mod lightpath;
pub mod offload;
pub mod split;
pub mod vale;
