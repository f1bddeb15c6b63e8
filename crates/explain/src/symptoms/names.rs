//! Names of the symptoms that mechanisms read.

// The connection at the end that sends.

pub(crate) const DRAINED: &str = "drained-share";
pub(crate) const RETRANSMIT_SHARE: &str = "retransmit-share";
pub(crate) const MARKED_SEGMENTS: &str = "marked-segments";
pub(crate) const MARKED_SHARE: &str = "marked-share";

// The path.

pub(crate) const QUEUE_GROWTH: &str = "queue-growth";
pub(crate) const QUEUE_DELAY: &str = "queue-delay";
pub(crate) const ACKS_LOST_SHARE: &str = "acknowledgements-lost-share";
pub(crate) const ACKS_ARRIVED: &str = "acknowledgements-arrived";

// A host.

pub(crate) const QUOTA_THROTTLED: &str = "quota-throttled-share";
pub(crate) const QUOTA_STOPPED: &str = "quota-stopped-share";
pub(crate) const MEMORY_TRAFFIC: &str = "memory-traffic";
