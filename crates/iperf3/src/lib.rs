//! iperf3: its protocol, options, output and JSON over our own [`traffic::engine`].
//!
//! Pure: [`wire`] (cookie, states, messages), [`options`] (the command line), [`account`] (what the
//! intervals add up to), [`figures`] and [`ordered`] (how iperf3 writes numbers and JSON).
//! With sockets: [`client`] and [`server`]. Told what happens: a [`sink::Sink`]; [`text`] and
//! [`json`] are the two that iperf3 has. `clearstream iperf3` calls these; [`Iperf3`] is what the
//! program hands to [`traffic::server`], so that it speaks this protocol on the same port, and to
//! [`traffic::client`], so that it can ask a stock `iperf3 -s` for tests. Why the protocol is written
//! here: `docs/decisions/0001-iperf3-protocol.md`.

pub mod account;
mod channel;
pub mod client;
pub mod failure;
pub mod figures;
pub mod json;
pub mod options;
pub mod ordered;
mod personality;
mod run;
pub mod server;
pub mod sink;
mod sockets;
pub mod stored;
pub mod text;
pub mod wire;

pub use personality::Iperf3;

/// The iperf3 release whose options, output and JSON are followed.
pub const FOLLOWED_RELEASE: &str = "3.21";

/// What stands where iperf3 writes `iperf 3.21`.
#[must_use]
pub fn version_line() -> String {
    format!("iperf {FOLLOWED_RELEASE} (ClearStream {})", env!("CARGO_PKG_VERSION"))
}

/// The system, as `uname -a` begins.
#[must_use]
pub fn system_line() -> String {
    let system = rustix::system::uname();
    let fields =
        [system.sysname(), system.nodename(), system.release(), system.version(), system.machine()];
    fields.map(|field| field.to_string_lossy().into_owned()).join(" ")
}

/// `Sat, 21 Nov 2026 06:50:00 GMT` (RFC 1123), as iperf3 writes the time.
#[must_use]
pub fn http_date(unix_ms: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    // The one calendar of the program writes 2026-11-21T06:50:00Z.
    let text = units::Timestamp { unix_ms }.to_string();
    let field = |from: usize, to: usize| text.get(from..to).unwrap_or_default();
    let month = field(5, 7).parse::<usize>().unwrap_or(1).clamp(1, 12);
    let days = usize::try_from(unix_ms / 86_400_000).unwrap_or(0);
    format!(
        "{}, {} {} {} {} GMT",
        DAYS[days % 7],
        field(8, 10),
        MONTHS[month - 1],
        field(0, 4),
        field(11, 19)
    )
}

/// iperf3's default port.
pub const DEFAULT_PORT: u16 = 5201;

#[cfg(test)]
mod tests {
    #[test]
    fn dates_as_in_rfc_1123() {
        assert_eq!(super::http_date(1_795_243_800_516), "Sat, 21 Nov 2026 06:50:00 GMT");
        assert_eq!(super::http_date(0), "Thu, 01 Jan 1970 00:00:00 GMT");
    }
}
