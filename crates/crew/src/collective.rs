//! Collective operations as state machines: which rank sends what to whom, without a clock, and
//! without input or output.
//!
//! All run on one binomial tree whose root is the operation's root. A rank's parent has the same number
//! (counted from the root) with the lowest set bit cleared. What flows up (reduce, gather, the first half
//! of a barrier) waits for all children; what flows down (broadcast, the second half of a barrier) waits
//! for the parent. Each rank thus waits only for ranks that wait for nothing of its own, so no
//! operation can deadlock, whatever the order in which messages of different ranks arrive.
//!
//! MPI's own collective calls are not used: they wait without a deadline for a rank that is lost, and no
//! sign of life leaves this rank while they wait.

use std::collections::BTreeMap;

use thiserror::Error;

/// Which collective operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// No rank ends it before all ranks have begun it.
    Barrier,
    /// The root's bytes go to all ranks.
    Broadcast,
    /// All ranks' bytes are combined into one value at the root.
    Reduce,
    /// All ranks' bytes come to the root.
    Gather,
}

impl Operation {
    fn flows_up(self) -> bool {
        self != Self::Broadcast
    }

    fn flows_down(self) -> bool {
        matches!(self, Self::Barrier | Self::Broadcast)
    }

    fn code(self) -> u8 {
        match self {
            Self::Barrier => 0,
            Self::Broadcast => 1,
            Self::Reduce => 2,
            Self::Gather => 3,
        }
    }

    fn name(code: u8) -> &'static str {
        match code {
            0 => "a barrier",
            1 => "a broadcast",
            2 => "a reduce",
            3 => "a gather",
            _ => "an unknown operation",
        }
    }
}

/// Why a collective operation failed.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum CollectiveError {
    /// The ranks do not call the same operations in the same order with the same root.
    #[error("rank {rank} is in {theirs} where this rank is in {ours}")]
    OutOfStep {
        /// The other rank.
        rank: usize,
        /// Its operation.
        theirs: &'static str,
        /// The operation of this rank.
        ours: &'static str,
    },
    /// A message that no rank sends.
    #[error("rank {rank} sent a malformed message in {operation}")]
    Malformed {
        /// Its sender.
        rank: usize,
        /// The operation of this rank.
        operation: &'static str,
    },
    /// The deadline passed.
    #[error("rank {rank} did not reach {operation} within {seconds:.1} s")]
    Late {
        /// One of the ranks that are waited for.
        rank: usize,
        /// The operation.
        operation: &'static str,
        /// How long it was waited for, seconds.
        seconds: f64,
    },
}

/// What a finished operation leaves at this rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Nothing: a barrier, or a reduce or gather at another rank than the root.
    Nothing,
    /// A broadcast's bytes, or the combined value at the root of a reduce.
    Bytes(Vec<u8>),
    /// All ranks' bytes in order of rank, at the root of a gather.
    All(Vec<Vec<u8>>),
}

/// Combines the values of a reduce: the first with the one that follows it in the order of ranks,
/// counted from the root. It must be associative; it need not be commutative, because the order is the
/// same however messages arrive.
pub type Combine<'a> = &'a mut dyn FnMut(Vec<u8>, Vec<u8>) -> Vec<u8>;

/// One collective operation at one rank.
#[derive(Debug)]
pub struct Collective {
    operation: Operation,
    serial: u32,
    me: usize,
    root: usize,
    count: usize,
    /// What came from each child, by the child's number counted from the root.
    from_children: BTreeMap<usize, Vec<u8>>,
    mine: Vec<u8>,
    /// What is to be sent.
    outbox: Vec<(usize, Vec<u8>)>,
    state: State,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    WaitsForChildren,
    WaitsForParent,
    Done(Output),
}

/// Bytes in front of each message: the operation, its root and its number in the sequence of operations.
const HEADER_BYTES: usize = 9;

impl Collective {
    /// Rank `me` of `count` begins an operation. `serial` counts the operations of the job, equally at all
    /// ranks; `mine` is what this rank contributes (nothing in a barrier, the root's bytes in a
    /// broadcast).
    ///
    /// # Panics
    /// When `me` or `root` is no rank, or there are more than 2³² ranks.
    #[must_use]
    pub fn begin(
        operation: Operation,
        serial: u32,
        (me, count): (usize, usize),
        root: usize,
        mine: Vec<u8>,
    ) -> Self {
        assert!(me < count && root < count, "no rank {me} or {root} of {count}");
        assert!(u32::try_from(count).is_ok(), "too many ranks: {count}");
        let state =
            if operation.flows_up() { State::WaitsForChildren } else { State::WaitsForParent };
        let (from_children, outbox) = (BTreeMap::new(), Vec::new());
        Self { operation, serial, me, root, count, from_children, mine, outbox, state }
    }

    /// Goes on as far as what has arrived allows. To be called once at the start and after each
    /// [`Self::handle`].
    pub fn advance(&mut self, combine: Combine<'_>) {
        if self.state == State::WaitsForChildren
            && self.children().all(|child| self.from_children.contains_key(&child))
        {
            self.send_up(combine);
        }
        if self.state == State::WaitsForParent && self.is_root() {
            let bytes = std::mem::take(&mut self.mine);
            self.send_down(bytes);
        }
    }

    /// Takes in a message of this operation. Messages of later operations must be kept until those begin
    /// ([`Self::serial_of`]).
    ///
    /// # Errors
    /// The ranks are out of step, or the message is malformed.
    pub fn handle(&mut self, from: usize, message: &[u8]) -> Result<(), CollectiveError> {
        let malformed = CollectiveError::Malformed { rank: from, operation: self.name() };
        let Some((header, body)) = message.split_first_chunk::<HEADER_BYTES>() else {
            return Err(malformed);
        };
        if header != &self.header() {
            return Err(CollectiveError::OutOfStep {
                rank: from,
                theirs: Operation::name(header[0]),
                ours: self.name(),
            });
        }
        if from >= self.count || self.operation == Operation::Barrier && !body.is_empty() {
            return Err(malformed);
        }
        let place = self.place(from);
        if self.state == State::WaitsForChildren
            && self.children().any(|child| child == place)
            && !self.from_children.contains_key(&place)
        {
            if self.operation == Operation::Gather && parts(body).is_none() {
                return Err(malformed);
            }
            self.from_children.insert(place, body.to_vec());
            return Ok(());
        }
        if self.state == State::WaitsForParent && !self.is_root() && place == self.parent() {
            self.send_down(body.to_vec());
            return Ok(());
        }
        Err(malformed)
    }

    /// The number of the operation that a message belongs to; none where it is no message of one.
    #[must_use]
    pub fn serial_of(message: &[u8]) -> Option<u32> {
        let bytes = message.get(HEADER_BYTES - 4..HEADER_BYTES)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    }

    /// The next message to send, and to whom.
    pub fn poll(&mut self) -> Option<(usize, Vec<u8>)> {
        self.outbox.pop()
    }

    /// What the operation left here, once it is done and all has been sent.
    ///
    /// # Errors
    /// The operation itself where it is still under way.
    pub fn output(self) -> Result<Output, Box<Self>> {
        match self.state {
            State::Done(output) if self.outbox.is_empty() => Ok(output),
            _ => Err(Box::new(self)),
        }
    }

    /// Whether [`Self::output`] has something.
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Done(_)) && self.outbox.is_empty()
    }

    /// A rank whose message is waited for.
    #[must_use]
    pub fn waits_for(&self) -> Option<usize> {
        match self.state {
            State::WaitsForChildren => {
                let mut children = self.children();
                let missing = children.find(|child| !self.from_children.contains_key(child));
                missing.map(|child| self.rank(child))
            }
            State::WaitsForParent => Some(self.rank(self.parent())),
            State::Done(_) => None,
        }
    }

    /// The operation, for messages: `a barrier`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        Operation::name(self.operation.code())
    }

    fn header(&self) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        header[0] = self.operation.code();
        header[1..5].copy_from_slice(&(self.root as u32).to_le_bytes());
        header[5..].copy_from_slice(&self.serial.to_le_bytes());
        header
    }

    fn is_root(&self) -> bool {
        self.me == self.root
    }

    /// A rank's number counted from the root.
    fn place(&self, rank: usize) -> usize {
        (rank + self.count - self.root) % self.count
    }

    /// The rank with a number counted from the root.
    fn rank(&self, place: usize) -> usize {
        (place + self.root) % self.count
    }

    /// This rank's parent, counted from the root; of the root itself.
    fn parent(&self) -> usize {
        let place = self.place(self.me);
        place & place.saturating_sub(1)
    }

    /// This rank's children, counted from the root, in ascending order: the child at distance 2ᵏ has the
    /// 2ᵏ ranks from there on, so that ascending children are ascending ranges of ranks.
    fn children(&self) -> impl Iterator<Item = usize> + use<> {
        let (place, count) = (self.place(self.me), self.count);
        let lowest = if place == 0 { count } else { place & place.wrapping_neg() };
        let distances = (0..usize::BITS).map(|bit| 1_usize << bit);
        distances
            .take_while(move |&distance| distance < lowest && place + distance < count)
            .map(move |distance| place + distance)
    }

    /// All children have been heard: sends to the parent, or ends at the root.
    fn send_up(&mut self, combine: Combine<'_>) {
        let mut mine = std::mem::take(&mut self.mine);
        let children = std::mem::take(&mut self.from_children);
        match self.operation {
            Operation::Barrier | Operation::Broadcast => {}
            Operation::Reduce => {
                mine = children.into_values().fold(mine, combine);
            }
            Operation::Gather => {
                mine = [
                    &part(self.me, &mine)[..],
                    &children.into_values().collect::<Vec<_>>().concat(),
                ]
                .concat();
            }
        }
        if self.operation.flows_down() {
            self.state = State::WaitsForParent;
        }
        if !self.is_root() {
            self.post(self.parent(), &mine);
            if !self.operation.flows_down() {
                self.state = State::Done(Output::Nothing);
            }
        } else if self.operation == Operation::Reduce {
            self.state = State::Done(Output::Bytes(mine));
        } else if self.operation == Operation::Gather {
            self.state = State::Done(Output::All(self.in_order(&mine)));
        }
    }

    /// The bytes of each rank; empty where a rank's are missing, which no tree of ours leaves out.
    fn in_order(&self, gathered: &[u8]) -> Vec<Vec<u8>> {
        let mut all = vec![Vec::new(); self.count];
        for (rank, bytes) in parts(gathered).unwrap_or_default() {
            if let Some(place) = all.get_mut(rank) {
                *place = bytes.to_vec();
            }
        }
        all
    }

    /// The parent has been heard, or this is the root: sends to the children and ends.
    fn send_down(&mut self, bytes: Vec<u8>) {
        // The farthest child has the most ranks behind it: it is posted last and polled first.
        for child in self.children() {
            self.post(child, &bytes);
        }
        let output = match self.operation {
            Operation::Broadcast => Output::Bytes(bytes),
            _ => Output::Nothing,
        };
        self.state = State::Done(output);
    }

    fn post(&mut self, place: usize, body: &[u8]) {
        let message = [&self.header()[..], body].concat();
        self.outbox.push((self.rank(place), message));
    }
}

/// A rank's contribution to a gather.
fn part(rank: usize, bytes: &[u8]) -> Vec<u8> {
    let header = [(rank as u64).to_le_bytes(), (bytes.len() as u64).to_le_bytes()].concat();
    [&header[..], bytes].concat()
}

/// The contributions in a message; none where it is malformed.
fn parts(mut message: &[u8]) -> Option<Vec<(usize, &[u8])>> {
    let mut parts = Vec::new();
    while !message.is_empty() {
        let (rank, rest) = message.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
        let (bytes, rest) = rest.split_at_checked(length)?;
        parts.push((usize::try_from(u64::from_le_bytes(*rank)).ok()?, bytes));
        message = rest;
    }
    Some(parts)
}
