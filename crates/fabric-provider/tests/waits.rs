//! Stock MPI jobs over the provider, unmodified: Debian's Open MPI finds it by `FI_PROVIDER_PATH`.
#![expect(unsafe_code, reason = "a job's system calls are filtered before it starts")]

#[path = "waits/jobs.rs"]
mod jobs;
#[path = "waits/memory.rs"]
mod memory;
#[path = "waits/ports.rs"]
mod ports;
#[path = "waits/scene.rs"]
mod scene;
#[path = "waits/strangers.rs"]
mod strangers;
