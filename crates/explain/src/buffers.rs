//! Sizes the socket buffer that a TCP window needs: the one source of every `tcp_rmem` and `tcp_wmem`
//! value that a verdict recommends.

use results::HostFacts;

use crate::ceiling::window_ceiling;
use crate::numbers::positive;

/// Bandwidth-delay products a window must hold: one in flight, one while a loss is repaired
/// (RFC 6349 section 3.3.1 asks for at least one; loss recovery fills a second one).
const PRODUCTS_COUNT: f64 = 2.0;

/// The kernel stores buffer sizes in a signed 32-bit integer.
const BUFFER_BYTES_MAX: f64 = 2_147_483_647.0;

/// Largest share of the host's memory that one connection's buffer may take.
const MEMORY_SHARE_MAX: f64 = 1.0 / 16.0;

/// A TCP socket buffer whose size the kernel tunes by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Buffer {
    /// The receiver's: up to the third figure of `net.ipv4.tcp_rmem`.
    Receive,
    /// The sender's: up to the third figure of `net.ipv4.tcp_wmem`.
    Send,
}

impl Buffer {
    /// The sysctl whose third figure bounds this buffer.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::Receive => "net.ipv4.tcp_rmem",
            Self::Send => "net.ipv4.tcp_wmem",
        }
    }

    /// The socket option by which a program asks for a size of its own.
    pub(crate) fn option(self) -> &'static str {
        match self {
            Self::Receive => "SO_RCVBUF",
            Self::Send => "SO_SNDBUF",
        }
    }

    /// The kernel's own bound where the host has memory enough, bytes (Documentation/networking/ip-sysctl.rst).
    pub(crate) fn usual_max_bytes(self) -> f64 {
        match self {
            Self::Receive => f64::from(6 << 20),
            Self::Send => f64::from(4 << 20),
        }
    }

    /// Share of the buffer that is usable as window; the rest is the kernel's overhead.
    ///
    /// Receiving: before Linux 6.6 `tcp_adv_win_scale` sets it, 1 meaning half; since then a connection
    /// begins with half. Sending: a little more than half, with page fragments.
    #[must_use]
    pub fn window_share(self, host: Option<&HostFacts>) -> f64 {
        let scale = host.filter(|host| has_window_scale(&host.kernel));
        let scale = scale.and_then(|host| host.sysctls.get("net.ipv4.tcp_adv_win_scale"));
        match (self, scale.and_then(|text| text.trim().parse::<i32>().ok())) {
            (Self::Send, _) => 0.6,
            (Self::Receive, Some(scale @ 1..=16)) => 1.0 - 0.5_f64.powi(scale),
            (Self::Receive, Some(scale @ -16..=0)) => 0.5_f64.powi(-scale),
            (Self::Receive, _) => 0.5,
        }
    }

    /// The size, in bytes, that this buffer must be allowed to grow to for a rate over a round trip: two
    /// bandwidth-delay products of window, within what the kernel and the host's memory can hold. `None`
    /// if a figure is not finite and positive.
    ///
    /// ```
    /// // 500 Mbit/s over 20 ms: two products of 1.25 MB, twice as much buffer.
    /// let bytes = explain::Buffer::Receive.needed_bytes(500e6, 0.02, None);
    /// assert_eq!(bytes, Some(5_046_272));
    /// ```
    #[must_use]
    pub fn needed_bytes(
        self,
        bits_per_s: f64,
        rtt_s: f64,
        host: Option<&HostFacts>,
    ) -> Option<u64> {
        let window = positive(bits_per_s * rtt_s / 8.0 * PRODUCTS_COUNT)?;
        let memory = host.and_then(|host| host.memory_bytes).map_or(f64::MAX, |b| b as f64);
        let bytes = window / self.window_share(host);
        Some(round_up(bytes.min(memory * MEMORY_SHARE_MAX)))
    }

    /// Throughput that a buffer of `bytes` allows over a round trip, bit/s.
    #[must_use]
    pub fn allows_bits_per_s(
        self,
        bytes: f64,
        rtt_s: f64,
        host: Option<&HostFacts>,
    ) -> Option<f64> {
        window_ceiling(bytes * self.window_share(host), rtt_s)
    }
}

/// Whether the kernel derives the window from `tcp_adv_win_scale`, as it did before Linux 6.6.
fn has_window_scale(kernel: &str) -> bool {
    let mut numbers = kernel.split(['.', '-']).map(|part| part.parse::<u32>().ok());
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(major), Some(minor)) => (major, minor) < (6, 6),
        _ => false,
    }
}

/// Rounds a buffer size up to a multiple of 64 KiB, within the kernel's largest size.
#[must_use]
pub fn round_up(bytes: f64) -> u64 {
    const STEP: u64 = 64 << 10;
    let rounded = units::saturating_u64(bytes.min(BUFFER_BYTES_MAX)).div_ceil(STEP) * STEP;
    rounded.min(units::saturating_u64(BUFFER_BYTES_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(kernel: &str, scale: &str, memory_bytes: Option<u64>) -> HostFacts {
        let sysctls = [("net.ipv4.tcp_adv_win_scale".to_owned(), scale.to_owned())].into();
        HostFacts { kernel: kernel.to_owned(), sysctls, memory_bytes, ..HostFacts::default() }
    }

    #[test]
    fn what_is_window_of_a_receive_buffer_is_the_kernels_choice() {
        let share = |kernel: &str, scale: &str| {
            Buffer::Receive.window_share(Some(&host(kernel, scale, None)))
        };
        assert_eq!((share("6.1.0-9-amd64", "1"), share("5.4.0", "2")), (0.5, 0.75));
        assert_eq!((share("4.19.0", "-2"), share("6.12.3", "2")), (0.25, 0.5));
        assert_eq!((share("5.4.0", "x"), share("", "2"), share("5.4", "99")), (0.5, 0.5, 0.5));
    }

    #[test]
    fn a_buffer_holds_two_products_of_window_within_the_hosts_memory() {
        let needed = |buffer: Buffer, host| buffer.needed_bytes(1e9, 0.1, host);
        let product = 12_500_000.0;
        for (buffer, share) in [(Buffer::Receive, 0.5), (Buffer::Send, 0.6)] {
            let bytes = needed(buffer, None).expect("figures") as f64;
            assert!((0.0..65_536.0).contains(&(bytes - product * 2.0 / share)), "{bytes}");
        }
        let small = host("6.1", "1", Some(256 << 20));
        assert_eq!(needed(Buffer::Receive, Some(&small)), Some(16 << 20));
        assert_eq!(Buffer::Receive.needed_bytes(f64::NAN, 0.1, None), None);
        assert_eq!(Buffer::Send.needed_bytes(1e30, 1e3, None), Some(2_147_483_647));
    }
}
