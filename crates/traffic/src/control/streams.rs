//! Derives the streams of a test from its spec; both ends get the same result.

use results::{Direction, Protocol, TestSpec};

use crate::engine::StreamRole;

/// The name of the latency probe in messages.
pub const PROBE_LABEL: &str = "latency probe";

/// One stream of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamPlan {
    /// Number: forward streams first, then reverse ones, then the probe.
    pub index: u16,
    /// Transport of this stream (the probe is always TCP).
    pub protocol: Protocol,
    /// The role of the near end.
    pub near: StreamRole,
    /// The role of the far end.
    pub far: StreamRole,
}

/// All streams of a test, in the order of their numbers.
#[must_use]
pub fn streams_of(spec: &TestSpec) -> Vec<StreamPlan> {
    let forward = (StreamRole::Send, StreamRole::Receive);
    let reverse = (StreamRole::Receive, StreamRole::Send);
    let kinds: &[_] = match (&spec.request_response, spec.direction) {
        (Some(_), _) => &[(StreamRole::Request, StreamRole::Respond)],
        (None, Direction::Forward) => &[forward],
        (None, Direction::Reverse) => &[reverse],
        (None, Direction::Bidirectional) => &[forward, reverse],
    };
    let mut roles: Vec<_> = kinds
        .iter()
        .flat_map(|&roles| (0..spec.streams).map(move |_| (spec.protocol, roles)))
        .collect();
    if spec.latency_under_load {
        roles.push((Protocol::Tcp, (StreamRole::Probe, StreamRole::Respond)));
    }
    (0_u16..)
        .zip(roles)
        .map(|(index, (protocol, (near, far)))| StreamPlan { index, protocol, near, far })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_forward_then_reverse_then_probe() {
        let mut spec = TestSpec::udp(1400);
        spec.streams = 2;
        spec.direction = Direction::Bidirectional;
        spec.latency_under_load = true;
        let streams = streams_of(&spec);
        let near: Vec<_> = streams.iter().map(|stream| stream.near).collect();
        use StreamRole::{Probe, Receive, Send};
        assert_eq!(near, [Send, Send, Receive, Receive, Probe]);
        assert_eq!(streams.iter().map(|stream| stream.index).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        assert_eq!(streams[4].protocol, Protocol::Tcp);
    }
}
