//! The watcher in a simulated world: loss, delay, hangs, dead ports, MTU holes, oversleeping, clocks that
//! jump, flapping. The same seed gives the same run.

#[path = "simulated/world.rs"]
mod world;

#[path = "simulated/chaos.rs"]
mod chaos;
#[path = "simulated/failures.rs"]
mod failures;
#[path = "simulated/patience.rs"]
mod patience;
