//! Socket options that a spec requests, set before the socket is connected.

use std::os::fd::{AsFd, OwnedFd};

use results::{Finding, Protocol, TestSpec};
use rustix::net::SocketType;
use rustix::net::sockopt::socket_type;
use sys::SyscallError;
use sys::socket::{Family, Transport, new_socket};
use units::show_byte_size;

use super::EngineError;

/// Socket buffer of a UDP stream when the spec requests none, in bytes: the kernel's default of
/// 208 KiB would not hold a burst of 256 datagrams of 64 KiB.
const UDP_BUFFER_BYTES: u64 = 4 << 20;

/// Upper bound on the buffers of all UDP streams of a direction together, in bytes; many streams
/// get less each.
const UDP_BUFFERS_BYTES: u64 = 128 << 20;

/// The send and receive buffers that a spec requests for this end of a socket; `None`: the kernel's
/// default. Where the spec requests none, only UDP sockets get one, and only in the direction of
/// their data: the buffer that nobody reads must not exceed the kernel's default.
pub(super) fn buffers_asked(
    spec: &TestSpec,
    is_tcp: bool,
    sending: bool,
) -> (Option<u64>, Option<u64>) {
    if is_tcp && spec.window_side.is_some() {
        let (send, receive) = (spec.send_window_bytes(), spec.receive_window_bytes());
        return if sending { (send, None) } else { (None, receive) };
    }
    if spec.window_bytes.is_some() || is_tcp {
        return (spec.window_bytes, spec.window_bytes);
    }
    let share = UDP_BUFFERS_BYTES / u64::from(spec.streams.max(1));
    let bytes = Some(share.min(UDP_BUFFER_BYTES));
    if sending { (bytes, None) } else { (None, bytes) }
}

/// Creates a TCP socket of this family, MPTCP if the spec requests it; closed on exec, not yet
/// bound.
///
/// # Errors
/// The kernel does not support MPTCP, or too many files are open.
pub fn tcp_socket(family: Family, spec: &TestSpec) -> Result<OwnedFd, EngineError> {
    let transport = if spec.mptcp { Transport::Mptcp } else { Transport::Tcp };
    Ok(new_socket(family, transport)?)
}

/// Applies the spec to a socket before `connect` or `listen`: buffers, MSS, congestion control,
/// DSCP, pacing, `TCP_NODELAY`. What the kernel clamps or refuses becomes a finding, not an error.
/// The findings name no end, because only the caller knows which end this is.
///
/// `sending`: whether this end of the socket sends bulk data.
pub fn prepare_socket(socket: impl AsFd, spec: &TestSpec, sending: bool) -> Vec<Finding> {
    let socket = socket.as_fd();
    let mut findings = Findings(Vec::new());
    let is_tcp = socket_type(socket)
        .map_or(spec.protocol == Protocol::Tcp, |kind| kind == SocketType::STREAM);
    findings.buffers(socket, spec, is_tcp, sending);
    if is_tcp {
        if let Some(mss_bytes) = spec.mss_bytes {
            findings.refusal("mss-refused", sys::socket::set_mss(socket, mss_bytes));
        }
        if let Some(name) = &spec.congestion_control {
            let code = "congestion-control-refused";
            findings.refusal(code, sys::socket::set_congestion_control(socket, name));
        }
        if spec.nodelay {
            findings.refusal("nodelay-refused", sys::socket::set_nodelay(socket, true));
        }
    }
    if let Some(dscp) = spec.dscp {
        findings.refusal("dscp-refused", sys::socket::set_dscp(socket, dscp));
    }
    if let Some(bits_per_s) = spec.pacing_bits_per_s.filter(|_| sending) {
        let bytes_per_s = (bits_per_s / 8.0).max(1.0) as u64;
        findings.refusal("pacing-refused", sys::socket::set_max_pacing_rate(socket, bytes_per_s));
    }
    findings.0
}

struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, code: &str, text: String) {
        self.0.push(Finding { end: None, code: code.to_owned(), text });
    }

    fn refusal(&mut self, code: &str, answer: Result<(), SyscallError>) {
        if let Err(error) = answer {
            self.add(code, format!("{error}: {}", error.source));
        }
    }

    fn buffers(&mut self, socket: impl AsFd, spec: &TestSpec, is_tcp: bool, sending: bool) {
        let socket = socket.as_fd();
        let asked = spec.window_bytes;
        let (send, receive) = buffers_asked(spec, is_tcp, sending);
        let given = [
            ("send", send.map(|bytes| (bytes, sys::socket::set_send_buffer(socket, bytes)))),
            (
                "receive",
                receive.map(|bytes| (bytes, sys::socket::set_receive_buffer(socket, bytes))),
            ),
        ];
        for (which, given) in given {
            let Some((bytes, given)) = given else { continue };
            match given {
                // The kernel reports twice what it grants.
                Ok(given_bytes) if asked.is_some() && given_bytes.div_ceil(2) < bytes => {
                    let half = given_bytes / 2;
                    let text = format!(
                        "asked for a {which} buffer of {}, got {}",
                        show_byte_size(bytes),
                        show_byte_size(half)
                    );
                    self.add("window-clamped", text);
                }
                Ok(_) => {}
                Err(error) => self.refusal("window-refused", Err(error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use results::WindowSide;

    use super::*;

    #[test]
    fn a_window_of_one_side_leaves_the_other_to_the_kernel() {
        let asked = |side, sending| {
            let spec =
                TestSpec { window_bytes: Some(1 << 20), window_side: side, ..TestSpec::tcp() };
            buffers_asked(&spec, true, sending)
        };
        let (some, none) = (Some(1 << 20), None);
        assert_eq!(asked(None, true), (some, some));
        assert_eq!(asked(None, false), (some, some));
        assert_eq!(asked(Some(WindowSide::Sender), true), (some, none));
        assert_eq!(asked(Some(WindowSide::Sender), false), (none, none));
        assert_eq!(asked(Some(WindowSide::Receiver), true), (none, none));
        assert_eq!(asked(Some(WindowSide::Receiver), false), (none, some));
    }

    #[test]
    fn a_refusal_is_a_finding() {
        let spec = TestSpec {
            congestion_control: Some("no-such-one".into()),
            mss_bytes: Some(1_000_000),
            dscp: Some(46),
            nodelay: true,
            pacing_bits_per_s: Some(1e9),
            window_bytes: Some(1 << 40),
            ..TestSpec::tcp()
        };
        let socket = tcp_socket(Family::Ipv6, &spec).unwrap();
        let findings = prepare_socket(&socket, &spec, true);
        let codes: Vec<&str> = findings.iter().map(|finding| finding.code.as_str()).collect();
        assert_eq!(
            codes,
            ["window-clamped", "window-clamped", "mss-refused", "congestion-control-refused"],
            "{findings:?}"
        );
        assert!(findings[3].text.contains("no-such-one"), "{}", findings[3].text);
    }

    #[test]
    fn nothing_asked_nothing_found() {
        for transport in [Transport::Tcp, Transport::Udp] {
            let socket = new_socket(Family::Ipv4, transport).unwrap();
            assert_eq!(prepare_socket(&socket, &TestSpec::tcp(), true), []);
        }
    }
}
