//! What a rank's work asks of the other ranks: barriers, broadcasts, gathers. The work runs on a thread
//! of its own; each request goes to the thread that carries the job's messages.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::Instant;

use crew::Operation;

use crate::clock::{self, ClockOffset};
use crate::error::LoadError;
use crate::messenger::EAGER_FOR;
use crate::output::{Listener, Said};
use crate::watch::Activity;

/// A request of the work to its messenger.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) operation: Operation,
    pub(crate) root: usize,
    pub(crate) mine: Vec<u8>,
    /// Ranks that take part: this many from 0.
    pub(crate) size: usize,
    /// All ranks of the job take part.
    pub(crate) is_whole: bool,
}

/// What a request gave.
#[derive(Debug)]
pub(crate) enum Answer {
    Nothing,
    Bytes(Vec<u8>),
    All(Vec<Vec<u8>>),
}

/// What a rank knows of another.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Member {
    /// The name of its host.
    pub host: String,
    /// Its clock.
    pub clock: ClockOffset,
}

/// This rank's end of the team of ranks.
#[derive(Debug)]
pub struct Team {
    pub(crate) me: usize,
    /// Ranks of the job.
    pub(crate) world: usize,
    /// Ranks that take part in the test under way.
    pub(crate) size: usize,
    pub(crate) members: Arc<Vec<Member>>,
    pub(crate) requests: Sender<Request>,
    pub(crate) answers: Receiver<Answer>,
    /// The edges of phases are said, see [`Team::mark_phases`].
    pub(crate) marks_phases: bool,
    /// What this rank is doing.
    pub activity: Arc<Activity>,
}

impl Team {
    /// This rank's number.
    #[must_use]
    pub fn me(&self) -> usize {
        self.me
    }

    /// Ranks that take part in the test under way.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Whether this is rank 0.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.me == 0
    }

    /// All ranks of the job: their hosts and clocks.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The name of this rank's host.
    #[must_use]
    pub fn host(&self) -> &str {
        self.members.get(self.me).map_or("", |member| &member.host)
    }

    /// Seconds on the clock that all ranks share.
    #[must_use]
    pub fn now_s(&self) -> f64 {
        self.shared_s(clock::now_ns())
    }

    /// A moment of this host's monotonic clock, ns, on the clock that all ranks share, seconds.
    #[must_use]
    pub fn shared_s(&self, now_ns: u64) -> f64 {
        let offset_s = self.members.get(self.me).map_or(0.0, |member| member.clock.monotonic_s);
        now_ns as f64 * 1e-9 + offset_s
    }

    /// From now on only the ranks below `size` take part in barriers, broadcasts and gathers.
    pub fn narrow(&mut self, size: usize) {
        self.size = size.clamp(1, self.world);
    }

    /// From now on rank 0 says when phases begin and end ([`Said::PhaseBegins`], [`Said::PhaseEnds`]), and the other
    /// ranks wait while it says that one begins. All ranks must call it.
    pub fn mark_phases(&mut self) {
        self.marks_phases = true;
    }

    /// A phase begins: all ranks have come here.
    ///
    /// # Errors
    /// A rank failed.
    pub(crate) fn begin_phase(&mut self, say: &mut Listener) -> Result<(), LoadError> {
        if !self.marks_phases {
            return Ok(());
        }
        if self.leads() {
            say(Said::PhaseBegins);
        }
        self.barrier()
    }

    /// A phase is over: all ranks have come here.
    pub(crate) fn end_phase(&self, name: &'static str, say: &mut Listener) {
        if self.marks_phases && self.leads() {
            say(Said::PhaseEnds(name));
        }
    }

    /// Waits until all ranks of the job have come here, those that do not take part in the test too.
    ///
    /// # Errors
    /// A rank failed.
    pub fn meet_all(&mut self) -> Result<(), LoadError> {
        let size = self.world;
        self.ask(Operation::Barrier, 0, Vec::new(), (size, true)).map(|_nothing| ())
    }

    /// Waits until all ranks of the test have come here.
    ///
    /// # Errors
    /// A rank failed.
    pub fn barrier(&mut self) -> Result<(), LoadError> {
        let size = self.size;
        self.ask(Operation::Barrier, 0, Vec::new(), (size, false)).map(|_nothing| ())
    }

    /// Hands rank 0's bytes to all ranks; what others pass is ignored.
    ///
    /// # Errors
    /// A rank failed.
    pub fn broadcast(&mut self, mine: Vec<u8>) -> Result<Vec<u8>, LoadError> {
        let size = self.size;
        match self.ask(Operation::Broadcast, 0, mine, (size, false))? {
            Answer::Bytes(bytes) => Ok(bytes),
            _ => Ok(Vec::new()),
        }
    }

    /// Hands rank 0's number to all ranks.
    ///
    /// # Errors
    /// A rank failed.
    pub fn broadcast_number(&mut self, mine: i64) -> Result<i64, LoadError> {
        let bytes = self.broadcast(mine.to_le_bytes().to_vec())?;
        let bytes = bytes.try_into().map_err(|_length| LoadError::Malformed { rank: 0 })?;
        Ok(i64::from_le_bytes(bytes))
    }

    /// What all ranks pass, in order of rank, for rank 0; nothing at the others.
    ///
    /// # Errors
    /// A rank failed.
    pub fn gather(&mut self, mine: Vec<u8>) -> Result<Vec<Vec<u8>>, LoadError> {
        let size = self.size;
        match self.ask(Operation::Gather, 0, mine, (size, false))? {
            Answer::All(all) => Ok(all),
            _ => Ok(Vec::new()),
        }
    }

    /// The numbers that all ranks pass, for rank 0; nothing at the others.
    ///
    /// # Errors
    /// A rank failed.
    pub fn gather_numbers(&mut self, mine: &[f64]) -> Result<Vec<Vec<f64>>, LoadError> {
        let bytes = mine.iter().flat_map(|number| number.to_le_bytes()).collect();
        Ok(self.gather(bytes)?.iter().map(|bytes| numbers(bytes)).collect())
    }

    /// The numbers that all ranks pass, in order of rank, for all ranks. All pass equally many.
    ///
    /// # Errors
    /// A rank failed.
    pub fn share_numbers(&mut self, mine: &[f64]) -> Result<Vec<Vec<f64>>, LoadError> {
        let bytes = mine.iter().flat_map(|number| number.to_le_bytes()).collect();
        let all = self.gather(bytes)?.concat();
        let all = numbers(&self.broadcast(all)?);
        Ok(all.chunks(mine.len().max(1)).map(<[f64]>::to_vec).collect())
    }

    fn ask(
        &mut self,
        operation: Operation,
        root: usize,
        mine: Vec<u8>,
        (size, is_whole): (usize, bool),
    ) -> Result<Answer, LoadError> {
        self.activity.end();
        let request = Request { operation, root, mine, size, is_whole };
        // A messenger that is gone has said why; nobody looks at what this rank returns then.
        let gone = || LoadError::Other("the ranks are out of step".to_owned());
        self.requests.send(request).map_err(|_unsent| gone())?;
        let asked = Instant::now();
        while asked.elapsed() < EAGER_FOR {
            match self.answers.try_recv() {
                Ok(answer) => return Ok(answer),
                Err(TryRecvError::Disconnected) => return Err(gone()),
                Err(TryRecvError::Empty) => std::hint::spin_loop(),
            }
        }
        self.answers.recv().map_err(|_nobody| gone())
    }
}

fn numbers(bytes: &[u8]) -> Vec<f64> {
    bytes.as_chunks::<8>().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect()
}
