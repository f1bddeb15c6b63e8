//! iperf3 as one protocol of many: what an ordinary server and an ordinary client need to know of it.

use std::error::Error;
use std::net::TcpStream;

use results::{TestOutcome, TestSpec};

use traffic::client::{FarProtocol, FarTestError, FirstAnswer};
use traffic::engine::IntervalReport;
use traffic::server::{ForeignClient, Personality, SessionHandle};

use super::account::Interval;
use super::client::run_spec;
use super::server::{ServeLimits, serve_control};
use super::sink::{Agreement, Sink};
use super::wire::{COOKIE_BYTES, Cookie, State};

/// `SIGTERM`: what iperf3 sessions are told when the server ends, or gives their place away.
const TERMINATION_SIGNAL: i32 = 15;

/// Over how many seconds a test's rate is averaged before one that is too fast is ended.
const RATE_INTERVAL_S: f64 = 1.0;

/// iperf3, for [`ServerConfig::personalities`](traffic::server::ServerConfig::personalities) and
/// [`connect`](traffic::client::connect).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Iperf3;

impl Personality for Iperf3 {
    fn name(&self) -> &'static str {
        "iperf3"
    }

    fn recognises(&self, greeting: &[u8; COOKIE_BYTES]) -> bool {
        Cookie(*greeting).is_plausible()
    }

    fn refusal(&self) -> &'static [u8] {
        // Stock clients print it as "server is busy".
        const { &[State::AccessDenied.byte()] }
    }

    /// The client gets the same engine as ours and the server's limits, in its own protocol.
    fn serve(&self, client: ForeignClient<'_>) -> Result<(), Box<dyn Error>> {
        let ForeignClient { control, greeting, data, limits, idle_timeout, session } = client;
        let limits = ServeLimits {
            streams_max: limits.streams_max,
            duration_max: Some(limits.duration_max),
            rate_bits_per_s_max: limits.rate_bits_per_s_max,
            rate_interval_s: RATE_INTERVAL_S,
            paces: true,
            patience: idle_timeout,
            ..ServeLimits::default()
        };
        let ending = || session.should_end().then_some(TERMINATION_SIGNAL);
        let mut sink = SessionSink { session };
        Ok(serve_control(control, greeting, data, &limits, &mut sink, &ending)?)
    }
}

/// Tells the server's session what its iperf3 client does.
struct SessionSink<'a> {
    session: &'a SessionHandle<'a>,
}

impl Sink for SessionSink<'_> {
    fn agreed(&mut self, _agreement: &Agreement) {
        self.session.touch();
    }

    fn interval(&mut self, interval: &Interval) {
        if interval.streams.iter().any(|stream| stream.bytes > 0) {
            self.session.touch();
        }
    }

    fn started(&mut self) {
        self.session.began("an iperf3 test");
    }
}

impl FarProtocol for Iperf3 {
    fn name(&self) -> &'static str {
        "iperf3"
    }

    fn server_command(&self) -> &'static str {
        "iperf3 -s"
    }

    fn first_answer(&self, first: u8) -> Option<FirstAnswer> {
        match State::from_byte(first)? {
            State::ParamExchange => Some(FirstAnswer::Ready),
            State::AccessDenied => Some(FirstAnswer::Busy),
            _ => None,
        }
    }

    fn run_test(
        &self,
        control: TcpStream,
        greeting: [u8; COOKIE_BYTES],
        spec: &TestSpec,
        on_report: &mut dyn FnMut(&IntervalReport),
        should_stop: &dyn Fn() -> bool,
    ) -> Result<TestOutcome, FarTestError> {
        run_spec(control, greeting, spec, on_report, should_stop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_recognised_and_nothing_else() {
        assert!(Iperf3.recognises(&Cookie::from_random([17; COOKIE_BYTES - 1]).0));
        assert!(Iperf3.recognises(b"abcdefghijklmnopqrstuvwxyz234567abcd\0"));
        for other in [
            *b"abcdefghijklmnopqrstuvwxyz234567abcde",
            *b"abcdefghijklmnopqrstuvwxyz234567abc\0\0",
            *b"CLEARSTREAM/1 Cabcdefghijklmnop\0\0\0\0\0\0",
            *b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n",
            [0; COOKIE_BYTES],
        ] {
            assert!(!Iperf3.recognises(&other), "{other:?}");
        }
    }

    #[test]
    fn a_server_is_known_by_its_first_byte() {
        assert_eq!(Iperf3.first_answer(9), Some(FirstAnswer::Ready));
        assert_eq!(Iperf3.first_answer(0xFF), Some(FirstAnswer::Busy));
        let others = (0..=u8::MAX).filter(|byte| ![9, 0xFF].contains(byte));
        assert!(others.into_iter().all(|byte| Iperf3.first_answer(byte).is_none()));
    }
}
