//! Guests on ports of the packet switch: stock QEMU with a virtio-net device, connected by vhost-user, or with the
//! port's own memory as a PCI device ([`PortType::Ptnet`](line::PortType)); and guests to which a queue of one of the
//! host's devices is passed through, without a switch.
//!
//! A guest that is up is one process, its *keeper* ([`keeper`]): it owns QEMU, lends the guest's port to the switch and
//! has a folder of small files and sockets. QEMU ends with the keeper (the kernel sees to that), the port ends with the
//! keeper's connection (the switch sees to that), and the keeper ends when QEMU does or when its folder is gone. All that
//! can stay after SIGKILL is the folder, which the next command removes.
#![forbid(unsafe_code)]

pub mod accelerator;
mod error;
pub mod image;
mod ivshmem;
pub mod keeper;
pub mod line;
mod machine;
mod ptnet;
pub mod serial;
mod shell;
mod state;
pub mod words;

pub use error::VmError;
pub use machine::{Machine, Program, Start};
pub use shell::{Console, Shell, ShellEnd};
pub use state::{MachineState, Place, ProcessId, QueueState};
