//! Why a request is refused.

use std::error::Error;
use std::time::Duration;

use shm::RegionError;
use sys::SyscallError;
use thiserror::Error;

use super::lent_memory::LentMemoryError;
use super::make::MakeError;
use crate::attachment::{RefusalCode, Shape};
use crate::device::DeviceError;

/// What was tried and why it failed, in one line for somebody in another process.
pub(super) fn words(refusal: &Refusal) -> String {
    let mut text = refusal.to_string();
    if refusal.is_of_kernel() {
        text = format!("the switch's process: {text}");
    }
    let mut cause = refusal.source();
    while let Some(one) = cause {
        let more = one.to_string();
        // Some say it themselves.
        if !text.contains(&more) {
            text += &format!(": {more}");
        }
        cause = one.source();
    }
    text
}

/// Why somebody is told no.
#[derive(Debug, Error)]
pub(super) enum Refusal {
    /// A port, a switch, or a pipe or group of pipes, with its kind in front of its name.
    #[error("there is no {0}")]
    NotThere(String),
    #[error("{0} already exists")]
    Exists(String),
    #[error("{0} is already in use")]
    Taken(String),
    #[error("{what}: the limit of {max} is reached")]
    Limit { what: &'static str, max: u64 },
    #[error(
        "memory of ports that have left is still being freed; the limit of {max} bytes is reached until then"
    )]
    Freeing { max: u64 },
    #[error("one of your doorbells was jammed; attach again in {} s", .0.as_secs() + 1)]
    Paused(Duration),
    #[error("{0} belongs to another user")]
    Foreign(String),
    #[error(
        "rings of {} slots with buffers of {} bytes: expected 2 to 4096 slots, and a multiple of \
         64 bytes up to 65536", .0.slots, .0.buffer_bytes)]
    Shape(Shape),
    #[error("a virtio-net header of {0} bytes: expected 0, 10 or 12")]
    Header(u8),
    #[error(
        "{0} is a member of a trust group: it can use only the group's memory, at its own seat"
    )]
    Member(String),
    #[error("the rings of a trust group's member are always made anew")]
    Resumed,
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error(transparent)]
    Memory(#[from] LentMemoryError),
    #[error(transparent)]
    Make(#[from] MakeError),
    #[error(transparent)]
    Syscall(#[from] SyscallError),
}

impl Refusal {
    /// Whether a system call of this process failed.
    fn is_of_kernel(&self) -> bool {
        matches!(
            self,
            Self::Syscall(_)
                | Self::Make(MakeError::Syscall(_) | MakeError::Region(RegionError::Syscall(_)))
                | Self::Device(DeviceError::Syscall(_))
        )
    }

    /// Why, for the client's program.
    pub(super) fn code(&self) -> RefusalCode {
        match self {
            Self::NotThere(_) => RefusalCode::NotThere,
            Self::Exists(_) => RefusalCode::Exists,
            Self::Taken(_) => RefusalCode::Taken,
            Self::Limit { .. } => RefusalCode::Limit,
            Self::Paused(_) | Self::Freeing { .. } => RefusalCode::Busy,
            Self::Foreign(_) => RefusalCode::NotOwner,
            Self::Shape(_)
            | Self::Header(_)
            | Self::Member(_)
            | Self::Resumed
            | Self::Make(MakeError::Layout(_) | MakeError::Region(RegionError::Size { .. }))
            | Self::Device(DeviceError::Queues { .. } | DeviceError::Link(_)) => {
                RefusalCode::Invalid
            }
            Self::Make(_) | Self::Syscall(_) | Self::Device(DeviceError::Syscall(_)) => {
                RefusalCode::System
            }
            Self::Device(_) | Self::Memory(_) => RefusalCode::Device,
        }
    }
}
