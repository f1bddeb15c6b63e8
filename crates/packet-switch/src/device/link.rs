//! A link between two ports: a lightpath each way.

use std::sync::Arc;

use ports::{FromRing, ToRing};
use switch::lightpath::{Lightpath, LightpathConfig};

use super::{DeviceError, Plug, Stop, THREAD_BYTES};
use crate::attachment::LinkConfig;
use crate::line::{Line, SharedReport};

/// Most that is in flight one way, bytes ...
const FLIGHT_BYTES_MAX: u64 = 512 << 20;
/// ... and of all the memory there may be, this share: so eight links fit that say nothing of their rate.
const FLIGHT_SHARE: u64 = 16;
/// What frames need that only pass.
const FLIGHT_BYTES_MIN: u64 = 2 << 20;
/// The shortest frames take so many times the memory that they take on the wire.
const SHORT_FRAMES: u64 = 3;

/// Bytes of memory for the frames of a direction: what fits on the way and into the queue, if the configuration says
/// how much that is.
pub(super) fn flight_bytes(config: &LinkConfig, memory_bytes_max: u64) -> u64 {
    let most = (memory_bytes_max / FLIGHT_SHARE).clamp(FLIGHT_BYTES_MIN, FLIGHT_BYTES_MAX);
    let time_ns = config.delay_ns.saturating_add(config.jitter_ns);
    let needed = match (config.rate_bits_per_s, config.queue_bytes) {
        (None, _) if time_ns == 0 => 0,
        (Some(rate), Some(queue_bytes)) => {
            let on_the_way = u128::from(rate) * u128::from(time_ns) / 8_000_000_000;
            u64::try_from(on_the_way).unwrap_or(u64::MAX).saturating_add(queue_bytes)
        }
        _ => most,
    };
    needed.saturating_mul(SHORT_FRAMES).saturating_add(FLIGHT_BYTES_MIN).min(most)
}

/// All that a direction may hold, its thread included.
pub(super) fn direction_bytes(config: &LinkConfig, memory_bytes_max: u64) -> u64 {
    // As a line takes it, for frames that wait.
    flight_bytes(config, memory_bytes_max) / 8 * 11 + THREAD_BYTES
}

/// A direction, and what it tells.
pub(super) type Way = (Line<FromRing, ToRing>, SharedReport);

/// The lines of both directions.
pub(super) fn lines(
    config: &LinkConfig,
    memory_bytes_max: u64,
    plugs: [Plug; 2],
    stop: &Arc<Stop>,
) -> Result<[Way; 2], DeviceError> {
    let path = |number: u64| {
        Lightpath::new(LightpathConfig {
            seed: config.seed.wrapping_mul(2).wrapping_add(number),
            delay_ns: config.delay_ns,
            jitter_ns: config.jitter_ns,
            rate_bits_per_s: config.rate_bits_per_s,
            queue_bytes: config.queue_bytes,
            loss: f64::from(config.loss_per_billion) * 1e-9,
            ..LightpathConfig::default()
        })
    };
    let limit_bytes = flight_bytes(config, memory_bytes_max) as usize;
    let line = |from, to, path| {
        let (report, stop) = (SharedReport::default(), Arc::clone(stop));
        let line = Line::new(from, to, path, limit_bytes, Arc::clone(&report));
        (line.until(stop), report)
    };
    let [one, other] = plugs;
    Ok([line(one.from, other.to, path(0)?), line(other.from, one.to, path(1)?)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_link_may_hold_follows_from_what_is_said_of_it() {
        const ALL: u64 = 8 << 30;
        let plain = LinkConfig::default();
        let (rate_bits_per_s, delay_ns) = (Some(1_000_000_000), 10_000_000);
        let known = LinkConfig { rate_bits_per_s, delay_ns, queue_bytes: Some(100_000), ..plain };
        assert_eq!(flight_bytes(&plain, ALL), FLIGHT_BYTES_MIN);
        assert_eq!(flight_bytes(&known, ALL), FLIGHT_BYTES_MIN + 3 * (1_250_000 + 100_000));
        let endless = u64::MAX;
        for unknown in [
            LinkConfig { delay_ns, ..plain },
            LinkConfig { rate_bits_per_s, ..plain },
            LinkConfig { rate_bits_per_s: Some(endless), delay_ns: endless, ..known },
            LinkConfig { queue_bytes: Some(endless), ..known },
        ] {
            assert_eq!(flight_bytes(&unknown, ALL), FLIGHT_BYTES_MAX);
            assert_eq!(flight_bytes(&unknown, 100 << 20), (100 << 20) / FLIGHT_SHARE);
        }
    }
}
