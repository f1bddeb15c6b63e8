//! Generates the command line that repeats a test.

use std::fmt::Write;

use results::{Direction, Protocol, ReceivePath, SendPath, TestLimit, TestSpec, WindowSide};
use traffic::client::{Family, Target};

use super::{BATCH_COUNT_DEFAULT, DATAGRAM_BYTES_DEFAULT};

/// The `clearstream test` command that runs exactly this test.
#[must_use]
pub(crate) fn command_line(target: &Target, spec: &TestSpec) -> String {
    let mut line = Line(format!("clearstream test {}", target.host));
    line.target(target);
    line.test(spec);
    line.length(spec);
    line.sockets(spec);
    line.hosts(spec);
    line.0
}

struct Line(String);

impl Line {
    fn flag(&mut self, flag: &str) {
        self.0.push(' ');
        self.0.push_str(flag);
    }

    fn value(&mut self, flag: &str, value: impl std::fmt::Display) {
        // Writing to a String cannot fail.
        write!(self.0, " {flag} {value}").ok();
    }

    fn optional<V: std::fmt::Display>(&mut self, flag: &str, value: Option<V>) {
        if let Some(value) = value {
            self.value(flag, value);
        }
    }

    fn target(&mut self, target: &Target) {
        if target.port != traffic::server::DEFAULT_PORT {
            self.value("-p", target.port);
        }
        match target.family {
            Some(Family::V4) => self.flag("-4"),
            Some(Family::V6) => self.flag("-6"),
            None => {}
        }
    }

    fn test(&mut self, spec: &TestSpec) {
        if spec.protocol == Protocol::Udp {
            self.flag("-u");
        }
        if spec.streams != 1 {
            self.value("-P", spec.streams);
        }
        match spec.direction {
            Direction::Forward => {}
            Direction::Reverse => self.flag("-R"),
            Direction::Bidirectional => self.flag("--bidir"),
        }
        if let Some(sizes) = &spec.request_response {
            self.flag(&format!("--rr={},{}", sizes.request_bytes, sizes.response_bytes));
        }
        if spec.latency_under_load {
            self.flag("--latency");
        }
    }

    fn length(&mut self, spec: &TestSpec) {
        match spec.limit {
            TestLimit::DurationS(duration_s) => self.value("-t", duration_s),
            TestLimit::TotalBytes(bytes) => self.value("-n", bytes),
            TestLimit::TotalBlocks(blocks) => self.value("-k", blocks),
        }
        if spec.omit_s > 0.0 {
            self.value("-O", spec.omit_s);
        }
        if (spec.interval_s - 1.0).abs() > 1e-9 {
            self.value("-i", spec.interval_s);
        }
    }

    fn sockets(&mut self, spec: &TestSpec) {
        self.optional("-l", spec.block_bytes);
        self.optional("-w", spec.window_bytes);
        self.optional(
            "--window-side",
            spec.window_side.map(|side| match side {
                WindowSide::Sender => "sender",
                WindowSide::Receiver => "receiver",
            }),
        );
        self.optional("-M", spec.mss_bytes);
        self.optional("-C", spec.congestion_control.as_ref());
        self.optional("--dscp", spec.dscp);
        // The option takes whole bits per second; a fraction of one has no measurable effect.
        self.optional("-b", spec.offered_bits_per_s.map(f64::round));
        self.optional("--pacing-rate", spec.pacing_bits_per_s.map(f64::round));
        self.optional("--read-rate", spec.read_bits_per_s.map(f64::round));
        if spec.udp.is_some() && spec.offered_bits_per_s.is_none() {
            self.flag("--flood");
        }
        self.optional("--port-base", spec.first_port);
        if spec.mptcp {
            self.flag("-m");
        }
        if spec.nodelay && spec.request_response.is_none() {
            self.flag("-N");
        }
        let Some(udp) = &spec.udp else { return };
        if u64::from(udp.datagram_bytes) != DATAGRAM_BYTES_DEFAULT {
            self.value("-l", udp.datagram_bytes);
        }
        if !udp.gso {
            self.flag("--no-gso");
        }
        if !udp.gro {
            self.flag("--no-gro");
        }
        if udp.batch_count != BATCH_COUNT_DEFAULT {
            self.value("--batch", udp.batch_count);
        }
    }

    fn hosts(&mut self, spec: &TestSpec) {
        match spec.send_path {
            SendPath::Copy => {}
            SendPath::Sendfile => self.value("--send-path", "sendfile"),
            SendPath::Zerocopy => self.value("--send-path", "zerocopy"),
        }
        match spec.receive_path {
            ReceivePath::Copy => {}
            ReceivePath::Discard => self.value("--receive-path", "discard"),
            ReceivePath::Zerocopy => self.value("--receive-path", "zerocopy"),
        }
        let list = |cores: &[u32]| {
            let names: Vec<String> = cores.iter().map(u32::to_string).collect();
            (!names.is_empty()).then(|| names.join(","))
        };
        self.optional("--cores", list(&spec.near_cores));
        self.optional("--far-cores", list(&spec.far_cores));
        self.optional("--interrupt-core", spec.near_interrupt_core);
        self.optional("--far-interrupt-core", spec.far_interrupt_core);
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::verbs::options::{TargetOptions, TestOptions};

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        target: TargetOptions,
        #[command(flatten)]
        test: TestOptions,
    }

    fn again(line: &str) -> (Target, TestSpec) {
        let words = line.split_whitespace().skip(1);
        let command = Command::try_parse_from(words).expect(line);
        (command.target.target(), command.test.spec().expect(line))
    }

    #[test]
    fn the_command_of_a_test_is_that_test() {
        let mut rich = TestSpec::tcp();
        rich.direction = Direction::Bidirectional;
        rich.streams = 8;
        rich.limit = TestLimit::TotalBytes(10 << 30);
        (rich.omit_s, rich.interval_s) = (2.0, 0.25);
        (rich.block_bytes, rich.window_bytes) = (Some(65_536), Some(16 << 20));
        rich.window_side = Some(WindowSide::Receiver);
        (rich.mss_bytes, rich.dscp) = (Some(1400), Some(46));
        rich.congestion_control = Some("bbr".to_owned());
        rich.pacing_bits_per_s = Some(9.5e9);
        rich.offered_bits_per_s = Some(1e9);
        rich.read_bits_per_s = Some(5e8);
        (rich.mptcp, rich.nodelay, rich.latency_under_load) = (true, true, true);
        (rich.send_path, rich.receive_path) = (SendPath::Zerocopy, ReceivePath::Discard);
        (rich.near_cores, rich.far_cores) = (vec![0, 2, 3], vec![1]);
        rich.first_port = Some(40_000);
        (rich.near_interrupt_core, rich.far_interrupt_core) = (Some(3), Some(0));
        let mut udp = TestSpec::udp(1200);
        udp.direction = Direction::Reverse;
        udp.limit = TestLimit::DurationS(0.5);
        let slow = TestSpec { offered_bits_per_s: Some(1e6), ..TestSpec::udp(1448) };
        let target = Target { host: "geneva".to_owned(), port: 5301, family: Some(Family::V6) };
        for spec in [
            TestSpec::tcp(),
            rich,
            udp,
            TestSpec::udp(1448),
            slow,
            TestSpec::request_response(Protocol::Tcp, 1, 1),
            TestSpec::request_response(Protocol::Tcp, 64, 4096),
        ] {
            let line = command_line(&target, &spec);
            assert_eq!(again(&line), (target.clone(), spec), "{line}");
        }
    }

    #[test]
    fn datagrams_flood_only_by_name() {
        let offered = |line: &str| again(line).1.offered_bits_per_s;
        assert_eq!(offered("clearstream test geneva -u"), Some(1e6));
        assert_eq!(offered("clearstream test geneva -u -b 5G"), Some(5e9));
        assert_eq!(offered("clearstream test geneva -u -b 0"), None);
        assert_eq!(offered("clearstream test geneva -u --flood"), None);
        assert_eq!(offered("clearstream test geneva -u --rr"), None);
        assert_eq!(offered("clearstream test geneva"), None);
    }

    #[test]
    fn rates_of_a_command_are_whole() {
        let offered_bits_per_s = Some(334_137_846.255_105_7);
        let spec = TestSpec { offered_bits_per_s, ..TestSpec::tcp() };
        let line = command_line(&Target::new("geneva"), &spec);
        assert_eq!(line, "clearstream test geneva -t 10 -b 334137846");
    }

    #[test]
    fn the_simplest_test_is_the_simplest_command() {
        let line = command_line(&Target::new("geneva"), &TestSpec::tcp());
        assert_eq!(line, "clearstream test geneva -t 10");
    }
}
