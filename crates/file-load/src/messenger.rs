//! The thread of a rank that carries messages: it runs the collective operations that the work asks for,
//! keeps the job alive while the work is in a call, and ends the test when a call hangs, a rank fails or
//! a signal comes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use crew::{Collective, Exchange, ExchangeError, Job, MemoryTransport, Output, Timing, Transport};

use crate::clock::{self, ClockOffset, Exchanged};
use crate::error::LoadError;
use crate::team::{Answer, Member, Request, Team};
use crate::watch::Activity;

/// How often a messenger with nothing to do looks for messages, signals and calls that hang.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A request that comes so soon after the last is waited for without sleeping.
pub(crate) const EAGER_FOR: Duration = Duration::from_micros(20);

/// How long a rank that failed waits for rank 0 to end the job.
const END_GRACE: Duration = Duration::from_secs(5);

/// Questions to each other host for its clock.
const CLOCK_QUESTIONS: usize = 32;

/// First bytes of messages.
const WHOLE: u8 = 0;
const PART: u8 = 1;
const FAILURE: u8 = 2;
const CLOCK: u8 = 3;
const REFUSAL: u8 = 4;

/// When a test is ended from outside.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// A call that has not returned for so long hangs.
    pub stall: Duration,
    /// The signal that asks this process to end, if one has.
    pub signal: fn() -> Option<i32>,
    /// The exit code of a job whose options make no test on its ranks.
    pub usage_code: u8,
}

/// What a rank does: with its team, on a thread of its own.
pub trait Work<R>: FnOnce(&mut Team) -> Result<R, LoadError> + Send + 'static {}

impl<R, W: FnOnce(&mut Team) -> Result<R, LoadError> + Send + 'static> Work<R> for W {}

/// Runs the work of this rank of a job. All ranks must call it.
///
/// # Errors
/// The work of this or another rank failed, hangs, or was interrupted. At rank 0 the reason is that of
/// the rank that failed.
pub fn run_rank<T: Transport, R: Send + 'static>(
    job: &mut Job<T>,
    limits: Limits,
    work: impl Work<R>,
) -> Result<R, LoadError> {
    let (me, world) = (job.me(), job.ranks_count());
    job.never_yield();
    // A round must be open for messages to travel.
    if me == 0 {
        job.order(&[])?;
    } else {
        job.next_order()?;
    }
    let mut messenger = Messenger::new(Some(job), (me, world), limits);
    let done = messenger.run(work);
    match &done {
        Ok(_) => {}
        Err(LoadError::Usage(_)) => job.give_up_with(limits.usage_code),
        Err(_) => job.give_up(),
    }
    done
}

/// Runs the work of the only rank there is.
///
/// # Errors
/// The work failed, hangs, or was interrupted.
pub fn run_alone<R: Send + 'static>(limits: Limits, work: impl Work<R>) -> Result<R, LoadError> {
    Messenger::<Job<MemoryTransport>>::new(None, (0, 1), limits).run(work)
}

/// Runs `count` ranks as threads of this process; `work` makes the work of each.
///
/// # Errors
/// The reason of the rank that failed, hangs, or was interrupted.
///
/// # Panics
/// When `count` is 0.
pub fn run_threads<R: Send + 'static, W: Work<R>>(
    count: usize,
    limits: Limits,
    lost_code: u8,
    mut work: impl FnMut(usize) -> W,
) -> Result<R, LoadError> {
    let mut ends = MemoryTransport::job(count).into_iter();
    let lead = ends.next().expect("a rank");
    let rank = move |end: MemoryTransport, work: W| {
        let mut job = Job::over(end, Timing::default(), lost_code);
        let done = run_rank(&mut job, limits, work);
        job.leave(0, || false);
        done
    };
    let others: Vec<_> = ends
        .enumerate()
        .map(|(place, end)| {
            let work = work(place + 1);
            thread::spawn(move || rank(end, work).map(|_done| ()))
        })
        .collect();
    let done = rank(lead, work(0));
    // Ranks that hang in a call stay behind; the process ends without them.
    for (place, other) in others.into_iter().enumerate() {
        if done.is_ok() {
            other.join().map_err(|_panic| LoadError::Panicked { rank: place + 1 })??;
        }
    }
    done
}

struct Messenger<'j, E: Exchange> {
    /// None: this rank is alone.
    link: Option<&'j mut E>,
    me: usize,
    world: usize,
    limits: Limits,
    activity: Arc<Activity>,
    host: String,
    /// Operations begun: of all ranks, and since the last of these of those that take part in a test.
    serials: [u32; 2],
    /// Messages of operations that have not begun here.
    early: VecDeque<(usize, Vec<u8>)>,
    /// Another rank said why the test ends.
    is_told: bool,
}

impl<'j, E: Exchange> Messenger<'j, E> {
    fn new(link: Option<&'j mut E>, (me, world): (usize, usize), limits: Limits) -> Self {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let activity = Arc::new(Activity::default());
        let early = VecDeque::new();
        Self { link, me, world, limits, activity, host, serials: [0; 2], early, is_told: false }
    }

    fn run<R: Send + 'static>(&mut self, work: impl Work<R>) -> Result<R, LoadError> {
        self.try_run(work).map_err(|error| self.end(error))
    }

    fn try_run<R: Send + 'static>(&mut self, work: impl Work<R>) -> Result<R, LoadError> {
        let members = Arc::new(self.meet()?);
        let (requests, asked) = channel();
        let (answer, answers) = channel();
        let (finish, finished) = channel();
        let mut team = Team {
            me: self.me,
            world: self.world,
            size: self.world,
            members,
            requests,
            answers,
            activity: self.activity.clone(),
            marks_phases: false,
        };
        let at_work = thread::Builder::new().name("file-load".to_owned()).spawn(move || {
            // Nobody listens any more where another rank has ended the test.
            finish.send(work(&mut team)).ok();
        });
        at_work.map_err(|source| LoadError::File { path: "a thread".to_owned(), source })?;
        self.serve(&asked, &answer)?;
        finished.recv().map_err(|_gone| LoadError::Panicked { rank: self.me })?
    }

    /// Answers requests until the work is done.
    fn serve(
        &mut self,
        asked: &Receiver<Request>,
        answer: &Sender<Answer>,
    ) -> Result<(), LoadError> {
        while let Some(request) = self.next_request(asked)? {
            let operation = request.operation;
            let output = match self.collect(request)? {
                Output::Nothing => Answer::Nothing,
                Output::Bytes(bytes) => Answer::Bytes(bytes),
                Output::All(all) => Answer::All(all),
            };
            if answer.send(output).is_err() {
                return Err(LoadError::Other(format!("{operation:?}: the work has ended")));
            }
        }
        Ok(())
    }

    fn next_request(&mut self, asked: &Receiver<Request>) -> Result<Option<Request>, LoadError> {
        let start = Instant::now();
        while start.elapsed() < EAGER_FOR {
            match asked.try_recv() {
                Ok(request) => return Ok(Some(request)),
                Err(TryRecvError::Disconnected) => return Ok(None),
                Err(TryRecvError::Empty) => std::hint::spin_loop(),
            }
        }
        loop {
            match asked.recv_timeout(LOOK_EVERY) {
                Ok(request) => return Ok(Some(request)),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => self.look()?,
            }
        }
    }

    /// Takes in messages, and looks whether something ends the test.
    fn look(&mut self) -> Result<(), LoadError> {
        while let Some((from, message)) = self.receive(Duration::ZERO)? {
            self.early.push_back((from, message));
        }
        if let Some(number) = (self.limits.signal)() {
            return Err(LoadError::Interrupted(number));
        }
        let limit_s = self.limits.stall.as_secs_f64();
        match self.activity.stalled(limit_s, clock::now_ns()) {
            None => Ok(()),
            Some((what, seconds)) => {
                let host = self.host.clone();
                Err(LoadError::Stalled { rank: self.me, host, what, seconds })
            }
        }
    }

    /// A message of another rank, other than that it failed.
    fn receive(&mut self, wait: Duration) -> Result<Option<(usize, Vec<u8>)>, LoadError> {
        let Some(link) = &mut self.link else { return Ok(None) };
        let Some((from, message)) = link.receive(wait)? else { return Ok(None) };
        let line = || String::from_utf8_lossy(&message[1..]).into_owned();
        let error = match message.first() {
            Some(&FAILURE) => LoadError::Other(line()),
            Some(&REFUSAL) => LoadError::Usage(line()),
            _ => return Ok(Some((from, message))),
        };
        self.is_told = true;
        Err(error)
    }

    fn send(&mut self, to: usize, kind: u8, body: &[u8]) -> Result<(), LoadError> {
        match &mut self.link {
            Some(link) => Ok(link.send(to, [&[kind], body].concat())?),
            None => Ok(()),
        }
    }

    /// Runs a collective operation to its end, however long others need.
    fn collect(&mut self, request: Request) -> Result<Output, LoadError> {
        let Request { operation, root, mine, size, is_whole } = request;
        let (kind, group) = if is_whole { (WHOLE, 0) } else { (PART, 1) };
        self.serials[group] = self.serials[group].wrapping_add(1);
        let serial = self.serials[group];
        let mut collective = Collective::begin(operation, serial, (self.me, size), root, mine);
        let combine = &mut |first: Vec<u8>, _| first;
        collective.advance(combine);
        let mut looked = Instant::now();
        loop {
            while let Some((to, message)) = collective.poll() {
                self.send(to, kind, &message)?;
            }
            collective = match collective.output() {
                Ok(output) => {
                    if is_whole {
                        // Ranks that took no part have not counted the others' operations.
                        self.serials[1] = 0;
                    }
                    return Ok(output);
                }
                Err(unfinished) => *unfinished,
            };
            if let Some((from, message)) = self.next_of((kind, serial))? {
                collective.handle(from, &message[1..]).map_err(ExchangeError::from)?;
                collective.advance(combine);
            }
            if looked.elapsed() >= LOOK_EVERY {
                looked = Instant::now();
                self.look()?;
            }
        }
    }

    /// A message of the operation under way; those of others are kept.
    fn next_of(&mut self, wanted: (u8, u32)) -> Result<Option<(usize, Vec<u8>)>, LoadError> {
        let is_due = |message: &[u8]| {
            let serial = message.get(1..).and_then(Collective::serial_of);
            (message.first() == Some(&wanted.0)) && serial.is_none_or(|serial| serial == wanted.1)
        };
        if let Some(place) = self.early.iter().position(|(_, message)| is_due(message)) {
            return Ok(self.early.remove(place));
        }
        match self.receive(LOOK_EVERY)? {
            Some((from, message)) if is_due(&message) => Ok(Some((from, message))),
            Some(other) => {
                self.early.push_back(other);
                Ok(None)
            }
            None => Ok(None),
        }
    }

    /// Who is there: hosts and clocks of all ranks.
    fn meet(&mut self) -> Result<Vec<Member>, LoadError> {
        let mine = format!("{}\n{}", self.host, clock::identity()).into_bytes();
        let size = self.world;
        let request =
            move |operation, mine| Request { operation, root: 0, mine, size, is_whole: true };
        let gather = request(crew::Operation::Gather, mine);
        let broadcast = |bytes| request(crew::Operation::Broadcast, bytes);
        let told = match self.collect(gather)? {
            Output::All(all) => all.join(&b"\0"[..]),
            _ => Vec::new(),
        };
        let told = broadcast(told);
        let Output::Bytes(told) = self.collect(told)? else {
            return Err(LoadError::Malformed { rank: 0 });
        };
        let told = String::from_utf8_lossy(&told).into_owned();
        let hosts: Vec<(&str, &str)> =
            told.split('\0').map(|one| one.split_once('\n').unwrap_or((one, ""))).collect();
        if hosts.len() != self.world {
            return Err(LoadError::Malformed { rank: 0 });
        }
        let mut members = Vec::new();
        for rank in 0..self.world {
            let (host, clock) = hosts[rank];
            let is_known = |other: &usize| !clock.is_empty() && hosts[*other].1 == clock;
            let clock = match (0..rank).find(is_known) {
                Some(0) => ClockOffset::default(),
                Some(other) => members.get(other).map_or_else(ClockOffset::default, clock_of),
                None if rank == 0 => ClockOffset::default(),
                None => self.compare_clocks(rank)?,
            };
            members.push(Member { host: host.to_owned(), clock });
        }
        Ok(members)
    }

    /// The clock of a rank, asked for by rank 0 and told to all.
    fn compare_clocks(&mut self, rank: usize) -> Result<ClockOffset, LoadError> {
        let mut told = Vec::new();
        if self.me == 0 {
            let offset = self.ask_clock(rank)?;
            let ClockOffset { monotonic_s, wall_s, uncertainty_s } = offset;
            told = [monotonic_s, wall_s, uncertainty_s].map(f64::to_le_bytes).concat();
        } else if self.me == rank {
            for _ in 0..CLOCK_QUESTIONS {
                let (from, _) = self.next_clock()?;
                let clocks = [clock::now_ns() as f64 * 1e-9, clock::wall_s()];
                self.send(from, CLOCK, &clocks.map(f64::to_le_bytes).concat())?;
            }
        }
        let request = Request {
            operation: crew::Operation::Broadcast,
            root: 0,
            mine: told,
            size: self.world,
            is_whole: true,
        };
        let Output::Bytes(told) = self.collect(request)? else {
            return Err(LoadError::Malformed { rank: 0 });
        };
        match *numbers(&told) {
            [monotonic_s, wall_s, uncertainty_s] => {
                Ok(ClockOffset { monotonic_s, wall_s, uncertainty_s })
            }
            _ => Err(LoadError::Malformed { rank: 0 }),
        }
    }

    fn ask_clock(&mut self, rank: usize) -> Result<ClockOffset, LoadError> {
        let mut exchanges = Vec::new();
        for _ in 0..CLOCK_QUESTIONS {
            let seconds = || clock::now_ns() as f64 * 1e-9;
            let sent_s = seconds();
            let wall_less_monotonic_s = clock::wall_s() - seconds();
            self.send(rank, CLOCK, &[])?;
            let (from, clocks) = self.next_clock()?;
            let answered_s = seconds();
            let &[monotonic_s, wall_s] = clocks.as_slice() else {
                return Err(LoadError::Malformed { rank: from });
            };
            exchanges.push(Exchanged {
                sent_s,
                answered_s,
                wall_less_monotonic_s,
                monotonic_s,
                wall_s,
            });
        }
        ClockOffset::of(&exchanges).ok_or(LoadError::Malformed { rank })
    }

    fn next_clock(&mut self) -> Result<(usize, Vec<f64>), LoadError> {
        loop {
            match self.receive(LOOK_EVERY)? {
                Some((from, message)) if message.first() == Some(&CLOCK) => {
                    return Ok((from, numbers(&message[1..])));
                }
                Some(other) => self.early.push_back(other),
                None => self.look()?,
            }
        }
    }

    /// Makes a failure known: rank 0 hears of it and ends the job; a rank that is not heard ends it itself.
    fn end(&mut self, error: LoadError) -> LoadError {
        let is_usage = matches!(error, LoadError::Usage(_));
        let kind = if is_usage { REFUSAL } else { FAILURE };
        let is_told = self.is_told || matches!(error, LoadError::Other(_));
        if self.me == 0 {
            for to in 1..self.world {
                // A rank that cannot be told notices that the job has ended.
                self.send(to, kind, error.to_string().as_bytes()).ok();
            }
            return error;
        }
        if !is_told && self.send(0, kind, error.to_string().as_bytes()).is_ok() {
            let start = Instant::now();
            while start.elapsed() < END_GRACE && self.receive(LOOK_EVERY).is_ok() {}
        }
        error
    }
}

fn clock_of(member: &Member) -> ClockOffset {
    member.clock
}

fn numbers(bytes: &[u8]) -> Vec<f64> {
    bytes.as_chunks::<8>().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect()
}
