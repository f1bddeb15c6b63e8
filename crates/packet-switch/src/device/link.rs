//! A link between two ports: a lightpath each way.

use std::sync::Arc;

use switch::lightpath::{Lightpath, LightpathConfig};

use super::{DeviceError, Plug, Stop};
use crate::attachment::LinkWishes;
use crate::line::{FromRing, Line, SharedReport, ToRing};

/// Most that is in flight one way, bytes.
const FLIGHT_BYTES_MAX: usize = 512 << 20;

/// A direction, and what it tells.
pub(super) type Way = (Line<FromRing, ToRing>, SharedReport);

/// Both directions.
pub(super) fn lines(
    wishes: &LinkWishes,
    plugs: [Plug; 2],
    stop: &Arc<Stop>,
) -> Result<[Way; 2], DeviceError> {
    let path = |number: u64| {
        Lightpath::new(LightpathConfig {
            seed: wishes.seed.wrapping_mul(2).wrapping_add(number),
            delay_ns: wishes.delay_ns,
            jitter_ns: wishes.jitter_ns,
            rate_bits_per_s: wishes.rate_bits_per_s,
            queue_bytes: wishes.queue_bytes,
            loss: f64::from(wishes.loss_per_billion) * 1e-9,
            ..LightpathConfig::default()
        })
    };
    let line = |from, to, path| {
        let (report, stop) = (SharedReport::default(), Arc::clone(stop));
        let ends = (FromRing::until(from, stop), ToRing::new(to));
        (Line::new(ends.0, ends.1, path, FLIGHT_BYTES_MAX, Arc::clone(&report)), report)
    };
    let [one, other] = plugs;
    Ok([line(one.receiver, other.sender, path(0)?), line(other.receiver, one.sender, path(1)?)])
}
