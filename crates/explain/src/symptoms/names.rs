//! Names of the symptoms that mechanisms read.

/// Part of the samples in which the sender was given less to send than the windows allow.
pub(crate) const DRAINED: &str = "drained-share";
