//! MPI jobs, whatever their ranks do.
//!
//! A job is started on its hosts ([`Launcher`], [`ManualJob`]), its ranks are bound to cores ([`cores`],
//! [`bind_thread`]) and exchange messages ([`Exchange`]): as processes of a job ([`Job`]), which watch
//! each other and end together, or as threads of one process ([`run_threads`]). Processes of a job also
//! have collective operations: barrier, broadcast, reduce and gather, each with a deadline.
//!
//! Where the ranks of a job will run, and what receives their messages, is told without starting it: [`job_map()`] asks
//! the launcher, [`plan_job`] adds what a host's machine has, and what is bound and steered for the job. What held it up is read from what its ranks report at their end
//! ([`judge_messages`]).

#![forbid(unsafe_code)]

mod bind;
mod collective;
mod exchange;
mod job;
mod job_map;
mod launch;
mod manual;
mod memory;
mod orphan;
mod placement;
mod steering;
mod threads;
mod vendor;
mod waiting;

pub use bind::{bind_thread, cores, process_cores};
pub use collective::{Collective, CollectiveError, Combine, Operation, Output};
pub use exchange::{Exchange, ExchangeError, Transport};
pub use job::{Job, Timing};
pub use job_map::{BoundThread, JobMap, MappedRank, job_map};
pub use launch::{LaunchError, Launcher, run_launcher};
pub use manual::{ManualJob, ManualJobError, manual_launcher};
pub use memory::MemoryTransport;
pub use mpi::{Flavour, MpiError, launched_by};
pub use placement::{
    CoreChoice, EndpointPlace, HereView, QueueChoice, RankPlacement, Receiver, even_ranks,
    physical_cores_count,
};
pub use steering::{Binder, FlowRules, JobPlan, Unsteered, Wishes, plan_job};
pub use threads::{Channels, ThreadsEnd, run_threads};
pub use waiting::{MessagesLimit, RankMessages, Waited, judge_messages};
