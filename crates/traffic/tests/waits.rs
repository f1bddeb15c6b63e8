//! Peers that keep to the protocols and peers that do not: tests that wait more than they work.

#[path = "support/control.rs"]
mod control;
mod control_far_end;
mod control_hostile;
mod personality;
#[path = "support/raw.rs"]
mod raw;
