//! Names of the symptoms that mechanisms read.

// The connection at the end that sends.

pub(crate) const DRAINED: &str = "drained-share";

// A host.

pub(crate) const MEMORY_TRAFFIC: &str = "memory-traffic";
