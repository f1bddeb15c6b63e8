//! netmap's device for programs that know nothing of the packet switch: preloaded, this library answers for
//! `/dev/netmap` in their place, and ports of the switch look like netmap's.
//!
//! * [`abi`], [`request`], [`legacy`], [`name`]: what programs say, taken apart without trusting a pointer;
//! * [`memory`], [`ring`]: the memory that programs map, and how its rings follow the switch's;
//! * [`adapter`], [`host`], [`mod@line`], [`switches`]: ports and pipes that this process is attached to, and the
//!   daemon that may be started anew meanwhile;
//! * [`descriptor`], [`control`], [`csb`], [`wait`], [`table`]: what its calls do;
//! * [`mod@refusal`]: error numbers for what the switch refuses;
//! * `hooks`: the calls of the C library that it stands in front of. All others, and all of a program that
//!   never opens `/dev/netmap`, go straight through.
#![expect(
    unsafe_code,
    reason = "a fence: the C library's calls are taken over here, with a program's pointers"
)]

// Programs in C that were linked with this library when it was also the C interface find its functions here.
use clearstream_user as _;

pub mod abi;
pub mod adapter;
pub mod control;
pub mod csb;
pub mod descriptor;
// Linked into a test program they would stand in front of its own calls.
#[cfg(not(test))]
mod hooks;
pub mod host;
pub mod legacy;
pub mod line;
pub mod memory;
pub mod name;
pub mod refusal;
pub mod request;
pub mod ring;
pub mod switches;
pub mod table;
pub mod user;
pub mod wait;
