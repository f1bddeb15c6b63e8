//! Stock MPI jobs over the provider, unmodified: Debian's Open MPI finds it by `FI_PROVIDER_PATH`.

#[path = "waits/jobs.rs"]
mod jobs;
#[path = "waits/scene.rs"]
mod scene;
