//! Messages between ranks that share one core, with another core that has nothing else to do: M-idle's part of messages.

use std::path::Path;
use std::time::Duration;

use results::{MessagesWork, TestOutcome, Work};

use super::BESIDES;
use super::answers::Program;
use super::hosts::{self, JobHosts, Tools};
use super::layout::Layout;
use super::study::{Distance, Load, Receive};
use crate::exit::VerbError;

/// Lengths of messages, bytes: the latency's, and the throughput's.
pub(in crate::verbs::reproduce) const SIZES: [u64; 2] = [0, 4 << 20];

/// Two hosts whose only ranks share a core.
#[derive(Debug)]
pub(in crate::verbs::reproduce) struct SharedCore(JobHosts);

impl SharedCore {
    /// Brings the hosts up; `None` where Open MPI is not installed.
    ///
    /// # Errors
    /// The lab cannot be brought up.
    pub(in crate::verbs::reproduce) fn up(
        library: Option<&Path>,
        process: u32,
        other: u32,
    ) -> Result<Option<Self>, VerbError> {
        let Ok(launcher) = hosts::launcher() else { return Ok(None) };
        let tools = Tools { launcher, library: super::absolute(library)? };
        JobHosts::up(tools, Layout::on_one_core(process, other)).map(|hosts| Some(Self(hosts)))
    }

    /// Median time of a message, with packets processed on the ranks' core or on the other; and its figure's name.
    ///
    /// # Errors
    /// The job failed, or a signal came.
    pub(in crate::verbs::reproduce) fn measure(
        &self,
        bytes: u64,
        is_away: bool,
        duration: Duration,
    ) -> Result<TestOutcome, VerbError> {
        let distance = if is_away { Distance::SharedCache } else { Distance::SameCore };
        let program = super::own_rank(&Load::PingPong, bytes, duration)?;
        let text = self.0.run(Receive::Single(distance), &program, duration + BESIDES)?;
        let answer = Program::Own.understand(&text, &Load::PingPong, bytes)?;
        let (duration_s, figures) = (answer.duration_s, answer.figures);
        Ok(TestOutcome { duration_s, figures, ..TestOutcome::default() })
    }
}

/// Name of the figure: half a round trip, seconds.
pub(in crate::verbs::reproduce) fn figure() -> &'static str {
    Load::PingPong.figure()
}

/// The work of a length.
pub(in crate::verbs::reproduce) fn work(bytes: u64) -> Work {
    Work::Messages(MessagesWork {
        pattern: Load::PingPong.name().to_owned(),
        by: Program::Own.name().to_owned(),
        ranks_count: 2,
        message_bytes: Some(bytes),
        through: "clearstream".to_owned(),
    })
}
