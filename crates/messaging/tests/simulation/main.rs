//! The machine in a simulated network: seeded, in simulated time. A failure names its seed.

mod computing;
mod hostile;
mod network;
mod oracle;
mod paths;
mod random_traffic;
mod recovery;
mod scale;
mod sessions;
mod simple;
