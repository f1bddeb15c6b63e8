//! Native routing over many gateways, planned: hosts on several networks, joined by gateways that forward.
//!
//! This crate is pure. [`parse_plan`] reads a plan from TOML and reports every mistake with its line; [`wanted()`]
//! says what one host of it is to have, as the values of `netlink` that are sent to a kernel and read back;
//! [`difference`] orders the changes from what was found so that packets find a way throughout, and
//! [`command()`] writes them in iproute2's syntax. [`predict()`] says which gateway carries a flow, with the
//! kernel's own hash computed here; [`balance()`] counts all flows before a packet is sent, [`search_seed`] finds a
//! better seed, [`plan_of`] makes plans of any scale. [`emit()`] writes the plan as the configuration of
//! other systems, [`review`] holds routing files that exist against a plan.
//!
//! The crate `gateway` reads hosts and changes them.

#![forbid(unsafe_code)]

mod assign;
mod balance;
mod change;
mod command;
mod emit;
#[cfg(test)]
mod example;
mod file;
mod hash;
mod interfaces;
mod listing;
mod marks;
mod plan;
mod predict;
mod range;
mod remark;
mod simulate;
mod wanted;
mod weigh;

pub use assign::{Assignment, Choice};
pub use balance::{
    Balance, BalanceError, Counting, FLOWS_COUNT_MAX, SeedSearch, Side, balance, pairs_count,
    search_seed,
};
pub use change::{Change, Conflict, Difference, Found, Object, RouteKey, difference};
pub use command::{command, describe};
pub use emit::{Emission, PACKAGED_PROGRAM, SYSTEMS, System, emit, is_plain_path};
pub use file::{Mistake, PLAN_BYTES_MAX, PlanError, parse_plan};
pub use hash::{
    Flow, HashPolicy, TCP, bucket_of, bucket_shares, member_of, new_buckets, upper_bounds,
};
pub use interfaces::Interfaces;
pub use listing::{Finding, review};
pub use marks::{
    HardwareAddress, MarkDifference, is_mark_table, mark_differences, mark_table_name,
};
pub use plan::{
    Bfd, Buckets, GATEWAYS_COUNT_MAX, Gateway, Host, Mode, Network, Plan, Port, Role, Routing,
    RoutingLines, WEIGHT_MAX, Watch, WatchMode, contains, live, overlap,
};
pub use predict::{By, Chooser, PredictError, Prediction, predict};
pub use remark::second_tier_reached;
pub use simulate::{Scale, ScaleError, plan_of};
pub use wanted::{
    HostState, NET_METRIC, NEXTHOP_IDS_COUNT, Steering, WantedError, choice, first_kernel_with,
    group_id, hop_id, pair_id, wanted,
};
pub use weigh::{Proposal, Weighed, propose};
