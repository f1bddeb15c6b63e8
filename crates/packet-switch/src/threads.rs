//! What all threads of a daemon that carry frames have in common.

use sys::SyscallError;
use sys::sandbox::{self, Calls};

/// Longest name of a thread, bytes, as the kernel shows it.
pub(crate) const THREAD_NAME_MAX: usize = 15;

/// Where they run, and what they may do.
#[derive(Debug, Clone, Default)]
pub(crate) struct Threads {
    /// The cores on which they run; any when empty.
    pub(crate) cores: Vec<u32>,
    /// Whether they give up what they have no need of.
    pub(crate) confined: bool,
}

impl Threads {
    /// To be called by each of them when it begins.
    pub(crate) fn begin(&self) -> Result<(), SyscallError> {
        self.begin_with(Calls::Carry)
    }

    /// The same, by a thread that keeps those calls.
    pub(crate) fn begin_with(&self, calls: Calls) -> Result<(), SyscallError> {
        if !self.cores.is_empty() {
            sys::thread::pin_current(&self.cores)?;
        }
        if self.confined { sandbox::enter(calls) } else { Ok(()) }
    }

    /// Whether they have one core between them, so that they could only take turns.
    pub(crate) fn have_one_core(&self) -> bool {
        match self.cores.as_slice() {
            [] => std::thread::available_parallelism().is_ok_and(|count| count.get() == 1),
            cores => cores.len() == 1,
        }
    }
}
