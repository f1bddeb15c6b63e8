//! A process of an MPI job: rounds of messages, signs of life, collective operations, and the end.
//!
//! Rank 0 leads: it gives orders, each of which begins a round, until it says that the job is over.
//! Rounds are numbered by MPI tags: messages of an earlier round are dropped, messages of a later one
//! wait. Each rank tells rank 0 that it is alive, and rank 0 each rank; a rank that is silent for too long
//! ends the job.

use std::collections::VecDeque;
use std::thread;
use std::time::{Duration, Instant};

use mpi::{MpiError, World};

use crate::collective::{Collective, CollectiveError, Combine, Operation, Output};
use crate::exchange::{Exchange, ExchangeError, Transport};

/// A rank with nothing to do looks for messages without a pause for so long, then with pauses.
const EAGER_FOR: Duration = Duration::from_micros(300);
const PAUSE: Duration = Duration::from_micros(50);
/// One that does not yield its core polls for so long, then takes the shortest pauses that there are.
const SPIN_FOR: Duration = Duration::from_micros(20);
const SHORT_PAUSE: Duration = Duration::from_micros(1);

/// The tag of collective operations; rounds begin at 1.
const COLLECTIVE: i32 = 0;

/// The first byte of what rank 0 sends at the beginning of a round.
const ORDER: u8 = 1;
const END: u8 = 0;

/// How ranks watch each other.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// Each rank tells rank 0 so often that it is alive, and rank 0 each rank.
    pub beat_every: Duration,
    /// A rank that was not heard of for so long is lost.
    pub lost_after: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self { beat_every: Duration::from_secs(1), lost_after: Duration::from_secs(30) }
    }
}

/// One process of a job. It must be left by [`Job::leave`]; one that is dropped instead, as by a panic,
/// ends the job for all ranks.
#[derive(Debug)]
pub struct Job<T: Transport = World> {
    /// Gone when the job is over.
    transport: Option<T>,
    me: usize,
    ranks_count: usize,
    timing: Timing,
    /// The round under way; counts up.
    round: i32,
    /// Messages of this round that have not been asked for.
    waiting: VecDeque<(usize, Vec<u8>)>,
    /// Messages of later rounds.
    early: VecDeque<(usize, i32, Vec<u8>)>,
    /// Collective operations begun so far, and messages of the one under way and of later ones.
    serial: u32,
    collective: VecDeque<(usize, Vec<u8>)>,
    /// When each rank was last heard of.
    heard: Vec<Instant>,
    beat: Instant,
    /// Rank 0 has said that nothing more comes.
    is_over: bool,
    is_lost: bool,
    lost_code: u8,
    /// It gives its core away while it waits for messages.
    yields: bool,
}

impl Job {
    /// The job that launched this process, if one of at least two ranks did. `lost_code` is the exit code
    /// of a job that loses a rank.
    ///
    /// # Errors
    /// The launcher's library cannot be loaded, or MPI cannot be entered.
    pub fn of_launcher(lost_code: u8) -> Result<Option<Self>, MpiError> {
        let Some(flavour) = mpi::launched_by() else { return Ok(None) };
        let world = World::open(flavour)?;
        if world.size() > 1 {
            return Ok(Some(Self::over(world, Timing::default(), lost_code)));
        }
        world.finish(1)?;
        Ok(None)
    }
}

impl<T: Transport> Job<T> {
    /// A job over any transport.
    pub fn over(transport: T, timing: Timing, lost_code: u8) -> Self {
        let (me, ranks_count) = (transport.rank(), transport.size());
        let now = Instant::now();
        Self {
            transport: Some(transport),
            me,
            ranks_count,
            timing,
            round: 0,
            waiting: VecDeque::new(),
            early: VecDeque::new(),
            serial: 0,
            collective: VecDeque::new(),
            heard: vec![now; ranks_count],
            beat: now,
            is_over: false,
            is_lost: false,
            lost_code,
            yields: true,
        }
    }

    /// This process's number.
    pub fn me(&self) -> usize {
        self.me
    }

    /// Processes in the job.
    pub fn ranks_count(&self) -> usize {
        self.ranks_count
    }

    /// From now on this rank does not yield its core while it waits for messages: on a busy host it may come back a
    /// tick of the scheduler later, where a thread that sleeps is run at once. For ranks that wait for each other often and
    /// have little to say.
    pub fn never_yield(&mut self) {
        self.yields = false;
    }

    /// Begins a round with an order to all other ranks; for rank 0.
    ///
    /// # Errors
    /// The transport failed.
    pub fn order(&mut self, order: &[u8]) -> Result<(), ExchangeError> {
        self.begin_round();
        let order = [&[ORDER], order].concat();
        (1..self.ranks_count).try_for_each(|to| self.send(to, order.clone()))
    }

    /// Waits for rank 0's next order and enters its round; none when the job is over. For all other ranks.
    ///
    /// # Errors
    /// The transport failed, or rank 0 is lost.
    pub fn next_order(&mut self) -> Result<Option<Vec<u8>>, ExchangeError> {
        self.begin_round();
        // Other ranks may have had the order before this one, and be at work.
        let mut others = VecDeque::new();
        let mut order = loop {
            match self.receive(self.timing.beat_every)? {
                Some((0, order)) => break order,
                Some(message) => others.push_back(message),
                None => {}
            }
        };
        others.append(&mut self.waiting);
        self.waiting = others;
        match order.first() {
            Some(&ORDER) => {
                order.remove(0);
                Ok(Some(order))
            }
            Some(&END) => {
                self.is_over = true;
                Ok(None)
            }
            _ => Err(ExchangeError::UnknownOrder),
        }
    }

    /// This rank cannot go on, or another cannot: [`Job::leave`] will end the job for all.
    pub fn give_up(&mut self) {
        self.is_lost = true;
    }

    /// As [`Job::give_up`]; the job ends with this exit code instead of that of a lost rank.
    pub fn give_up_with(&mut self, code: u8) {
        self.give_up();
        self.lost_code = code;
    }

    /// Waits until all ranks have come here.
    ///
    /// # Errors
    /// A rank is lost, did not come in time, or is in another operation; the job cannot go on then.
    pub fn barrier(&mut self, within: Duration) -> Result<(), ExchangeError> {
        let mut none = |first, _| first;
        self.collect((Operation::Barrier, 0), Vec::new(), within, &mut none).map(|_nothing| ())
    }

    /// Hands `mine` of rank `root` to all ranks; what others pass is ignored.
    ///
    /// # Errors
    /// As of [`Job::barrier`].
    pub fn broadcast(
        &mut self,
        root: usize,
        mine: Vec<u8>,
        within: Duration,
    ) -> Result<Vec<u8>, ExchangeError> {
        let mut none = |first, _| first;
        let output = self.collect((Operation::Broadcast, root), mine, within, &mut none)?;
        Ok(if let Output::Bytes(bytes) = output { bytes } else { Vec::new() })
    }

    /// Combines what all ranks pass into one value, for rank `root`; none at the others. `combine` must
    /// be associative; values are combined in the order of ranks from `root` on, so that the outcome does
    /// not depend on the order in which messages arrive.
    ///
    /// # Errors
    /// As of [`Job::barrier`].
    pub fn reduce(
        &mut self,
        root: usize,
        mine: Vec<u8>,
        within: Duration,
        combine: Combine<'_>,
    ) -> Result<Option<Vec<u8>>, ExchangeError> {
        let output = self.collect((Operation::Reduce, root), mine, within, combine)?;
        Ok(if let Output::Bytes(bytes) = output { Some(bytes) } else { None })
    }

    /// What all ranks pass, in order of rank, for rank `root`; none at the others.
    ///
    /// # Errors
    /// As of [`Job::barrier`].
    pub fn gather(
        &mut self,
        root: usize,
        mine: Vec<u8>,
        within: Duration,
    ) -> Result<Option<Vec<Vec<u8>>>, ExchangeError> {
        let mut none = |first, _| first;
        let output = self.collect((Operation::Gather, root), mine, within, &mut none)?;
        Ok(if let Output::All(all) = output { Some(all) } else { None })
    }

    /// Leaves the job, which ends for this process with `code`; all output must have been written,
    /// because MPI may not let go of its processes. `was_cut` tells whether a signal ended the work: a
    /// process that would end well then ends with the code of a lost job.
    pub fn leave(mut self, code: u8, was_cut: impl FnOnce() -> bool) {
        self.end(code, was_cut);
    }

    fn end(&mut self, code: u8, was_cut: impl FnOnce() -> bool) {
        if !self.is_lost {
            self.is_lost = self.part().is_err();
        }
        let Some(transport) = self.transport.take() else { return };
        // A launcher of MPICH that was told to end the job may end with 0, which says that all is well,
        // unless a rank ends it first.
        let was_cut = was_cut();
        let ends_all = was_cut && self.me == 0 && transport.is_end_taken_for_success();
        let code = if self.is_lost || was_cut && code == 0 { self.lost_code } else { code };
        if self.is_lost || ends_all {
            if self.is_lost {
                transport.end_launcher_soon();
            }
            transport.abort(code);
        } else {
            transport.finish(code);
        }
    }

    /// Rank 0 says that the job is over and waits until all have confirmed it: MPI may wait forever
    /// for a message that nobody took before its receiver left. So no rank sends anything after that.
    fn part(&mut self) -> Result<(), ExchangeError> {
        if self.me != 0 {
            while !self.is_over {
                self.next_order()?;
            }
            return self.send(0, vec![END, 0]);
        }
        self.begin_round();
        (1..self.ranks_count).try_for_each(|to| self.send(to, vec![END, 0]))?;
        let start = Instant::now();
        let mut left = 1;
        while left < self.ranks_count {
            if self.arrived()?.is_some() {
                left += 1;
            } else if start.elapsed() > self.timing.lost_after {
                return Err(ExchangeError::NoLeave);
            } else {
                thread::sleep(PAUSE);
            }
        }
        Ok(())
    }

    fn begin_round(&mut self) {
        self.round += 1;
        self.waiting.clear();
        let early = std::mem::take(&mut self.early);
        for (from, tag, message) in early {
            if tag == self.round {
                self.waiting.push_back((from, message));
            } else {
                self.early.push_back((from, tag, message));
            }
        }
    }

    /// A message of this round, if one has arrived.
    fn arrived(&mut self) -> Result<Option<(usize, Vec<u8>)>, ExchangeError> {
        match self.waiting.pop_front() {
            Some(message) => Ok(Some(message)),
            None => self.take_in(),
        }
    }

    /// The next message of this round from the transport; what else arrives is noted or kept.
    fn take_in(&mut self) -> Result<Option<(usize, Vec<u8>)>, ExchangeError> {
        let Some(transport) = &mut self.transport else { return Ok(None) };
        while let Some((from, tag, message)) = transport.receive()? {
            if let Some(heard) = self.heard.get_mut(from) {
                *heard = Instant::now();
            }
            if message.is_empty() {
                continue;
            }
            if tag == self.round && tag != COLLECTIVE {
                return Ok(Some((from, message)));
            }
            if tag == COLLECTIVE {
                self.collective.push_back((from, message));
            } else if tag > self.round {
                self.early.push_back((from, tag, message));
            }
        }
        Ok(None)
    }

    /// Takes in all that has arrived; messages of this round are kept in order.
    fn keep_all(&mut self) -> Result<(), ExchangeError> {
        while let Some(message) = self.take_in()? {
            self.waiting.push_back(message);
        }
        Ok(())
    }

    /// Tells that this rank is alive, and looks whether another is not.
    fn beat(&mut self) -> Result<(), ExchangeError> {
        if self.beat.elapsed() < self.timing.beat_every {
            return Ok(());
        }
        self.beat = Instant::now();
        let others = if self.me == 0 { 1..self.ranks_count } else { 0..1 };
        for other in others {
            if self.heard[other].elapsed() > self.timing.lost_after {
                // This rank may have been away, with the other's signs of life waiting to be read.
                self.keep_all()?;
            }
            if self.heard[other].elapsed() > self.timing.lost_after {
                let seconds = self.timing.lost_after.as_secs();
                return Err(ExchangeError::Silent { rank: other, seconds });
            }
            self.send(other, Vec::new())?;
        }
        Ok(())
    }

    /// Runs a collective operation to its end.
    fn collect(
        &mut self,
        (operation, root): (Operation, usize),
        mine: Vec<u8>,
        within: Duration,
        combine: Combine<'_>,
    ) -> Result<Output, ExchangeError> {
        let done = self.try_collect((operation, root), mine, within, combine);
        self.is_lost |= done.is_err();
        done
    }

    fn try_collect(
        &mut self,
        (operation, root): (Operation, usize),
        mine: Vec<u8>,
        within: Duration,
        combine: Combine<'_>,
    ) -> Result<Output, ExchangeError> {
        self.serial = self.serial.wrapping_add(1);
        let us = (self.me, self.ranks_count);
        let mut collective = Collective::begin(operation, self.serial, us, root, mine);
        let start = Instant::now();
        collective.advance(combine);
        loop {
            while let (Some(transport), Some((to, message))) =
                (&mut self.transport, collective.poll())
            {
                transport.send(to, COLLECTIVE, message)?;
            }
            collective = match collective.output() {
                Ok(output) => return Ok(output),
                Err(unfinished) => *unfinished,
            };
            self.keep_all()?;
            if let Some((from, message)) = self.next_of_collective() {
                collective.handle(from, &message)?;
                collective.advance(combine);
                continue;
            }
            self.beat()?;
            let waited = start.elapsed();
            if waited > within
                && let Some(rank) = collective.waits_for()
            {
                let (operation, seconds) = (collective.name(), within.as_secs_f64());
                return Err(CollectiveError::Late { rank, operation, seconds }.into());
            }
            pause(waited, self.yields);
        }
    }

    /// A message of the operation under way. Messages of the next ones, which other ranks may be in
    /// already, are kept.
    fn next_of_collective(&mut self) -> Option<(usize, Vec<u8>)> {
        let is_due = |message: &[u8]| {
            Collective::serial_of(message).is_none_or(|serial| serial == self.serial)
        };
        let place = self.collective.iter().position(|(_, message)| is_due(message))?;
        self.collective.remove(place)
    }
}

impl<T: Transport> Exchange for Job<T> {
    fn send(&mut self, to: usize, message: Vec<u8>) -> Result<(), ExchangeError> {
        let Some(transport) = &mut self.transport else { return Ok(()) };
        transport.send(to, self.round, message)
    }

    fn receive(&mut self, wait: Duration) -> Result<Option<(usize, Vec<u8>)>, ExchangeError> {
        self.beat()?;
        let start = Instant::now();
        loop {
            let message = self.arrived()?;
            let waited = start.elapsed();
            if message.is_some() || waited >= wait {
                return Ok(message);
            }
            pause(waited, self.yields);
        }
    }

    fn keep_alive(&mut self) -> Result<(), ExchangeError> {
        self.beat()?;
        self.keep_all()
    }
}

impl<T: Transport> Drop for Job<T> {
    /// A rank that goes without having left the job must not be waited for.
    fn drop(&mut self) {
        if self.transport.is_some() {
            self.is_lost = true;
            self.end(self.lost_code, || false);
        }
    }
}

/// Waits a little for messages.
fn pause(waited: Duration, yields: bool) {
    match (yields, waited) {
        (true, waited) if waited < EAGER_FOR => thread::yield_now(),
        (false, waited) if waited < SPIN_FOR => std::hint::spin_loop(),
        (false, waited) if waited < EAGER_FOR => thread::sleep(SHORT_PAUSE),
        _long => thread::sleep(PAUSE),
    }
}
