//! What frames come from and go to outside the switch: TAP devices and queues of network devices by `AF_XDP`.
#![forbid(unsafe_code)]

pub mod tap;
pub mod xdp;
