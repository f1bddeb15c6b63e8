//! What this host is made of, and what its counters say.
//!
//! Two kinds of reading. *Facts* ([`host_facts`], [`interfaces`]) are what a reader must know to
//! judge a figure: kernel, processor, cores, settings, and the interface that carries the path.
//! *Counters* ([`CounterSnapshot`], [`CoreTimes`], [`InterfaceCounters`]) are read before and after
//! a test; their difference says what the host did meanwhile.
//!
//! Everything is read as the *calling thread* sees it: its network namespace, its affinity. Nothing
//! here needs a privilege or changes anything, and nothing fails: what cannot be read is absent.
//! `/sys` shows the devices of whichever namespace mounted it, so device facts come from netlink
//! and ethtool, and `/sys` is believed only where it speaks of the same device.
//!
//! Parsers are pure functions over text and bytes; [`HostFiles`] moves the roots for tests.

mod cores;
mod counters;
mod device;
mod energy;
mod facts;
mod files;
mod forwarding;
mod machine;
mod protocols;
mod qdisc;
mod reading;

pub use cores::CoreTimes;
pub use counters::{CounterSnapshot, InterfaceCounters};
pub use device::{Interface, interface_facts, interface_toward, interfaces};
pub use energy::{EnergyMeter, NoMeter, Source as EnergySource};
pub use facts::host_facts;
pub use files::HostFiles;
pub use forwarding::{ForwardingCores, forwarding_cores};
pub use machine::{machine, machine_from};
pub use reading::{ConnectionReading, HostReading, ReadingGain};
