//! What the judged connection was set up with, which is told in words and not in figures.

use super::run::Run;

/// Facts of the connection as the sender's kernel reports them; `None`: not reported.
#[derive(Debug, Clone, Default)]
pub(crate) struct Setup {
    /// Name of the sender's congestion control.
    pub(crate) congestion_control: Option<String>,
    /// Whether a window scale was negotiated.
    pub(crate) is_window_scaled: Option<bool>,
    /// Whether both ends agreed on selective acknowledgements.
    pub(crate) is_sack_negotiated: Option<bool>,
}

impl Setup {
    pub(crate) fn of(run: &Run<'_>) -> Self {
        let Some(tcp) = run.senders.first().and_then(|stream| stream.tcp.as_ref()) else {
            return Self::default();
        };
        Self {
            congestion_control: Some(tcp.congestion_control.clone())
                .filter(|name| !name.is_empty()),
            // A kernel that reports its segment count also reports the options.
            is_window_scaled: tcp.segments_out_count.map(|_| tcp.window_scale_shifts.is_some()),
            is_sack_negotiated: tcp.sack_negotiated,
        }
    }

    /// Whether the sender uses BBR of any version.
    pub(crate) fn is_bbr(&self) -> bool {
        self.congestion_control.as_deref().is_some_and(|name| name.starts_with("bbr"))
    }
}
