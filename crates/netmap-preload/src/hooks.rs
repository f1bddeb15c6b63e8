//! The calls of the C library that this library stands in front of.
//!
//! Each asks whether it concerns netmap, and otherwise calls the next library's with the very arguments it
//! got. C's variable arguments are taken as one register: that is how x86-64 and aarch64 pass them.

mod files;
mod next;
mod process;
mod sets;
mod waits;

use std::cell::Cell;
use std::sync::LazyLock;

use rustix::io::Errno;

use crate::descriptor::Binding;
use crate::host::Host;
use crate::table::Table;

static TABLE: Table = Table::new();
static HOST: LazyLock<Host> = LazyLock::new(Host::default);

thread_local! {
    /// Whether this thread runs code of this library: what that calls is not netmap's business.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Runs code of this library, unless this thread runs some already.
fn inside<T>(run: impl FnOnce() -> T) -> Option<T> {
    // At a thread's very end there is nothing to remember it in.
    if INSIDE.try_with(|inside| inside.replace(true)).unwrap_or(true) {
        return None;
    }
    let answer = run();
    INSIDE.try_with(|inside| inside.set(false)).ok();
    Some(answer)
}

/// A program that ends without closing its ports must not lose what it sent.
extern "C" fn at_exit() {
    if !TABLE.is_empty() {
        inside(|| TABLE.all().iter().filter_map(|one| one.binding()).for_each(Binding::drain));
    }
}

/// The loader calls what stands here when the program ends.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;

/// Minus one, and the reason where C programs look for it.
fn fail(error: Errno) -> i32 {
    // SAFETY: no argument; the answer is this thread's.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: it points to this thread's `errno`.
    unsafe { *place = error.raw_os_error() };
    -1
}

fn answer(outcome: Result<(), Errno>) -> i32 {
    outcome.map_or_else(fail, |()| 0)
}
