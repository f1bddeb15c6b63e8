//! What the judged connection was set up with, which is told in words and not in figures.

use results::{StreamEnd, TcpSummary};

use super::run::Run;

/// Facts of the connection as the sender's kernel reports them, or the receiver's where the sender's does not; `None`: not reported.
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
        let told = |streams: &[&StreamEnd]| streams.first().and_then(|stream| stream.tcp.clone());
        let sender = told(&run.senders);
        // An option counts only where both ends offer it, so either end tells what was agreed on.
        let either = sender.clone().or_else(|| told(&run.receivers));
        Self {
            congestion_control: sender
                .map(|tcp| tcp.congestion_control)
                .filter(|name| !name.is_empty()),
            is_window_scaled: either.as_ref().and_then(TcpSummary::is_window_scaled),
            is_sack_negotiated: either.and_then(|tcp| tcp.sack_negotiated),
        }
    }

    /// Whether the sender uses BBR of any version.
    pub(crate) fn is_bbr(&self) -> bool {
        self.congestion_control.as_deref().is_some_and(|name| name.starts_with("bbr"))
    }
}
