//! Metrics of a route (`RTAX_…`): what connections over it start from.

use std::collections::BTreeMap;

use crate::attribute::read;
use crate::encoder::Encoder;
use crate::object::MalformedError;

/// Numbers of metrics.
pub mod metric {
    /// Bit mask of the metrics that path discovery may not change, by their numbers.
    pub const LOCK: u16 = 1;
    /// Largest packet, bytes.
    pub const MTU: u16 = 2;
    /// Largest window that is advertised, bytes.
    pub const WINDOW: u16 = 3;
    /// Congestion window that is not passed, segments; binds only where locked.
    pub const CWND: u16 = 7;
    /// Largest segment that is advertised, bytes.
    pub const ADVMSS: u16 = 8;
    /// First congestion window, segments.
    pub const INITCWND: u16 = 11;
    /// Shortest retransmission timeout, ms.
    pub const RTO_MIN: u16 = 13;
    /// The congestion control's name; the only one that is a text.
    pub(crate) const CONGESTION_CONTROL: u16 = 16;
}

/// Metrics of a route.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Metrics {
    /// By the numbers in [`metric`]; 0 is "not set", and the kernel does not list it.
    pub values: BTreeMap<u16, u32>,
    /// Congestion control of connections over the route.
    pub congestion_control: Option<String>,
}

impl Metrics {
    /// Whether no metric is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty() && self.congestion_control.is_none()
    }

    /// A metric, if it is set.
    #[must_use]
    pub fn get(&self, metric: u16) -> Option<u32> {
        self.values.get(&metric).copied().filter(|&value| value > 0)
    }

    /// Whether path discovery must leave this metric alone.
    #[must_use]
    pub fn is_locked(&self, metric: u16) -> bool {
        let locks = self.get(metric::LOCK).unwrap_or(0);
        1_u32.checked_shl(metric.into()).is_some_and(|bit| locks & bit != 0)
    }

    pub(crate) fn parse(object: &'static str, bytes: &[u8]) -> Result<Self, MalformedError> {
        let mut metrics = Self::default();
        read(object, bytes, |attribute| {
            if attribute.kind() == metric::CONGESTION_CONTROL {
                metrics.congestion_control = Some(attribute.text(object)?);
            } else {
                metrics.values.insert(attribute.kind(), attribute.u32(object)?);
            }
            Ok(())
        })?;
        Ok(metrics)
    }

    pub(crate) fn encode(&self, kind: u16, to: &mut Encoder) {
        if self.is_empty() {
            return;
        }
        to.container(kind, |inner| {
            for (&metric, &value) in &self.values {
                inner.u32(metric, value);
            }
            if let Some(name) = &self.congestion_control {
                inner.text(metric::CONGESTION_CONTROL, name);
            }
        });
    }
}
