//! One-line descriptions of tests, for terminals and logs.

use results::{Direction, Protocol, TestLimit, TestSpec};
use units::{count_of, show_byte_size, show_count_of, show_seconds};

/// Protocol, direction, streams and length: `TCP forward, 1 stream, 10.0 s`.
#[must_use]
pub fn describe_test(spec: &TestSpec) -> String {
    let protocol = match spec.protocol {
        Protocol::Tcp => "TCP",
        Protocol::Udp => "UDP",
    };
    let kind = match (&spec.request_response, spec.direction) {
        (Some(_), _) => "request/response",
        (None, Direction::Forward) => "forward",
        (None, Direction::Reverse) => "reverse",
        (None, Direction::Bidirectional) => "both directions",
    };
    let length = match spec.limit {
        TestLimit::DurationS(duration_s) => show_seconds(duration_s),
        TestLimit::TotalBytes(bytes) => show_byte_size(bytes),
        TestLimit::TotalBlocks(count) => {
            show_count_of(count, if spec.protocol == Protocol::Udp { "datagram" } else { "block" })
        }
    };
    format!("{protocol} {kind}, {}, {length}", count_of(spec.streams, "stream"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_is_asked() {
        assert_eq!(describe_test(&TestSpec::tcp()), "TCP forward, 1 stream, 10.0 s");
        let mut spec = TestSpec::udp(1400);
        spec.direction = Direction::Bidirectional;
        spec.streams = 4;
        spec.limit = TestLimit::TotalBytes(3 << 20);
        assert_eq!(describe_test(&spec), "UDP both directions, 4 streams, 3.00 MiB");
        spec.limit = TestLimit::TotalBlocks(10);
        assert_eq!(describe_test(&spec), "UDP both directions, 4 streams, 10 datagrams");
        spec.protocol = Protocol::Tcp;
        assert_eq!(describe_test(&spec), "TCP both directions, 4 streams, 10 blocks");
    }
}
