//! What ranks say to each other, as bytes. All numbers are little-endian.

use super::{Figures, Written};

/// Which of the computations over the state space is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Task {
    /// Find all states and their distances from the first.
    Reach,
    /// Keep what accepting states reach; count the steps into each state that is kept.
    Forward,
    /// Drop what no kept state leads to.
    Prune,
    /// Distances from one state, of this rank, until it is met again.
    Loop { rank: u32, id: u32 },
    /// NumberCache all states that are kept to rank 0.
    Gather,
}

/// What a state is told with: its distance by this way, and the greatest accepting state on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) distance: u32,
    pub(super) origin: u64,
}

/// No accepting state.
pub(super) const NO_ORIGIN: u64 = 0;

/// An accepting state as a number that is never [`NO_ORIGIN`].
pub(super) fn origin(rank: u32, id: u32) -> u64 {
    u64::from(rank + 1) << 32 | u64::from(id)
}

/// The rank and number of [`origin`].
pub(super) fn origin_parts(origin: u64) -> Option<(u32, u32)> {
    Some((u32::try_from(origin >> 32).ok()?.checked_sub(1)?, origin as u32))
}

/// A message, but for the states of [`Message::Data`], which follow in groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Message {
    /// States of a task.
    Data { task: u32 },
    /// So many of your batches were taken in.
    Taken { batches: u64 },
    /// To all: tell me when nothing is left to do, with what went out and came in.
    Probe { wave: u32 },
    /// To rank 0: the answer.
    Quiet { wave: u32, sent: u64, received: u64, kept: u64 },
    /// To rank 0: how far I am, now and then.
    Figures(Figures),
    /// To all: the next task.
    Begin { number: u32, task: Task },
    /// To all: what is this far away needs no look.
    Bound { task: u32, distance: u32 },
    /// To rank 0: found what ends the task, this far away. For an accepting state on a cycle its
    /// number as well.
    Found { task: u32, distance: u32, cycle_at: Option<u32> },
    /// A question of rank 0.
    Ask { question: u32, what: Question },
    /// To rank 0: a state or none, and a number that goes with it.
    Answer { question: u32, state: Option<Vec<u8>>, value: u64 },
    /// To a rank whose states led to states of mine: so many uses of a state of yours are over. A
    /// number and a count each.
    Release(Vec<(u32, u32)>),
    /// To all: the end, send what you counted.
    End,
    /// To rank 0: that.
    Ended { figures: Figures, notes: Vec<u8> },
    /// To all: look at no further states' steps, but take in and send out all that is under way.
    Pause,
    /// To all: search on.
    GoOn,
    /// To all: nothing is under way, write down what you know.
    Write { serial: u64, is_second: bool },
    /// To rank 0: that is done, or why it is not.
    Written(Written),
    /// To all: everyone has, or somebody has not.
    Settled { is_whole: bool, is_second: bool },
    /// To rank 0: this rank cannot begin.
    Unable { why: String },
}

/// What rank 0 asks for once all is quiet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Question {
    /// The nearest state that violates a property, and its distance.
    Broken,
    /// A state `distance` away that leads to this one.
    Before { distance: u32, in_loop: bool, state: Vec<u8> },
    /// This state, and its distance.
    State { id: u32 },
    /// The origin of a state that is kept.
    Origin { id: u32 },
    /// The origin of any accepting state that is kept.
    Kept,
    /// This state's distance.
    Where { state: Vec<u8> },
}

/// Bytes that no rank sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MalformedMessage;

impl Message {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut to = Writer(Vec::new());
        match self {
            Self::Data { task } => to.u8(0).u32(*task),
            Self::Taken { batches } => to.u8(1).u64(*batches),
            Self::Probe { wave } => to.u8(2).u32(*wave),
            Self::Quiet { wave, sent, received, kept } => {
                to.u8(3).u32(*wave).u64(*sent).u64(*received).u64(*kept)
            }
            Self::Figures(figures) => to.u8(4).figures(figures),
            Self::Begin { number, task } => {
                let (kind, rank, id) = match task {
                    Task::Reach => (0, 0, 0),
                    Task::Forward => (1, 0, 0),
                    Task::Prune => (2, 0, 0),
                    Task::Loop { rank, id } => (3, *rank, *id),
                    Task::Gather => (4, 0, 0),
                };
                to.u8(5).u32(*number).u8(kind).u32(rank).u32(id)
            }
            Self::Bound { task, distance } => to.u8(6).u32(*task).u32(*distance),
            Self::Found { task, distance, cycle_at } => to
                .u8(7)
                .u32(*task)
                .u32(*distance)
                .u8(u8::from(cycle_at.is_some()))
                .u32(cycle_at.unwrap_or(0)),
            Self::Ask { question, what } => {
                let to = to.u8(8).u32(*question);
                match what {
                    Question::Broken => to.u8(0),
                    Question::Before { distance, in_loop, state } => {
                        to.u8(1).u32(*distance).u8(u8::from(*in_loop)).bytes(state)
                    }
                    Question::State { id } => to.u8(2).u32(*id),
                    Question::Kept => to.u8(3),
                    Question::Origin { id } => to.u8(4).u32(*id),
                    Question::Where { state } => to.u8(5).bytes(state),
                }
            }
            Self::Answer { question, state, value } => {
                let to = to.u8(9).u32(*question).u64(*value).u8(u8::from(state.is_some()));
                to.bytes(state.as_deref().unwrap_or_default())
            }
            Self::End => to.u8(10),
            Self::Ended { figures, notes } => to.u8(11).figures(figures).bytes(notes),
            Self::Release(uses) => {
                uses.iter().fold(to.u8(12), |to, &(id, count)| to.u32(id).u32(count))
            }
            Self::Pause => to.u8(13),
            Self::GoOn => to.u8(14),
            Self::Write { serial, is_second } => to.u8(15).u64(*serial).u8(u8::from(*is_second)),
            Self::Written(Ok(sum)) => to.u8(16).u8(1).u64(*sum),
            Self::Written(Err(why)) => to.u8(16).u8(0).bytes(why.as_bytes()),
            Self::Settled { is_whole, is_second } => {
                to.u8(17).u8(u8::from(*is_whole)).u8(u8::from(*is_second))
            }
            Self::Unable { why } => to.u8(18).bytes(why.as_bytes()),
        };
        to.0
    }

    /// The message at the head of `bytes`, and the rest of them.
    pub(super) fn decode(bytes: &[u8]) -> Result<(Self, &[u8]), MalformedMessage> {
        let mut from = Reader(bytes);
        let message = match from.u8()? {
            0 => Self::Data { task: from.u32()? },
            1 => Self::Taken { batches: from.u64()? },
            2 => Self::Probe { wave: from.u32()? },
            3 => Self::Quiet {
                wave: from.u32()?,
                sent: from.u64()?,
                received: from.u64()?,
                kept: from.u64()?,
            },
            4 => Self::Figures(from.figures()?),
            5 => Self::Begin { number: from.u32()?, task: from.task()? },
            6 => Self::Bound { task: from.u32()?, distance: from.u32()? },
            7 => {
                let (task, distance) = (from.u32()?, from.u32()?);
                let (is_cycle, at) = (from.u8()? != 0, from.u32()?);
                Self::Found { task, distance, cycle_at: is_cycle.then_some(at) }
            }
            8 => Self::Ask { question: from.u32()?, what: from.question()? },
            9 => {
                let (question, value) = (from.u32()?, from.u64()?);
                let is_there = from.u8()? != 0;
                let state = from.rest();
                Self::Answer { question, state: is_there.then_some(state), value }
            }
            10 => Self::End,
            11 => Self::Ended { figures: from.figures()?, notes: from.rest() },
            12 => {
                let mut uses = Vec::with_capacity(from.0.len() / 8);
                while !from.0.is_empty() {
                    uses.push((from.u32()?, from.u32()?));
                }
                Self::Release(uses)
            }
            13 => Self::Pause,
            14 => Self::GoOn,
            15 => Self::Write { serial: from.u64()?, is_second: from.u8()? != 0 },
            16 => match from.u8()? {
                0 => Self::Written(Err(from.text())),
                _ => Self::Written(Ok(from.u64()?)),
            },
            17 => Self::Settled { is_whole: from.u8()? != 0, is_second: from.u8()? != 0 },
            18 => Self::Unable { why: from.text() },
            _ => return Err(MalformedMessage),
        };
        Ok((message, from.0))
    }
}

/// A group's head: its key and how many states follow.
pub(super) const GROUP_BYTES: usize = 16;

pub(super) fn group(key: Key, states_count: u32) -> [u8; GROUP_BYTES] {
    let mut head = [0; GROUP_BYTES];
    head[..4].copy_from_slice(&states_count.to_le_bytes());
    head[4..8].copy_from_slice(&key.distance.to_le_bytes());
    head[8..].copy_from_slice(&key.origin.to_le_bytes());
    head
}

/// The groups of a batch: keys and states one behind the other.
pub(super) fn groups(
    bytes: &[u8],
    state_bytes: usize,
) -> impl Iterator<Item = Result<(Key, &[u8]), MalformedMessage>> {
    let mut from = Reader(bytes);
    std::iter::from_fn(move || {
        if from.0.is_empty() {
            return None;
        }
        let mut read = || {
            let count = from.u32()? as usize;
            let key = Key { distance: from.u32()?, origin: from.u64()? };
            let states = from.take(count.checked_mul(state_bytes).ok_or(MalformedMessage)?)?;
            Ok((key, states))
        };
        let result = read();
        if result.is_err() {
            from.0 = &[];
        }
        Some(result)
    })
}

struct Writer(Vec<u8>);

impl Writer {
    fn u8(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }
    fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }
    fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }
    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }
    fn figures(&mut self, figures: &Figures) -> &mut Self {
        for value in figures.to_array() {
            self.u64(value);
        }
        self
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], MalformedMessage> {
        let (head, rest) = self.0.split_at_checked(count).ok_or(MalformedMessage)?;
        self.0 = rest;
        Ok(head)
    }
    fn u8(&mut self) -> Result<u8, MalformedMessage> {
        Ok(self.take(1)?[0])
    }
    fn u32(&mut self) -> Result<u32, MalformedMessage> {
        let bytes = self.take(4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }
    fn u64(&mut self) -> Result<u64, MalformedMessage> {
        Ok(u64::from(self.u32()?) | u64::from(self.u32()?) << 32)
    }
    fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0).to_vec()
    }
    fn text(&mut self) -> String {
        String::from_utf8_lossy(&self.rest()).into_owned()
    }
    fn figures(&mut self) -> Result<Figures, MalformedMessage> {
        let mut values = [0; Figures::COUNT];
        for value in &mut values {
            *value = self.u64()?;
        }
        Ok(Figures::from_array(values))
    }
    fn task(&mut self) -> Result<Task, MalformedMessage> {
        let (kind, rank, id) = (self.u8()?, self.u32()?, self.u32()?);
        match kind {
            0 => Ok(Task::Reach),
            1 => Ok(Task::Forward),
            2 => Ok(Task::Prune),
            3 => Ok(Task::Loop { rank, id }),
            4 => Ok(Task::Gather),
            _ => Err(MalformedMessage),
        }
    }
    fn question(&mut self) -> Result<Question, MalformedMessage> {
        match self.u8()? {
            0 => Ok(Question::Broken),
            1 => {
                let (distance, in_loop) = (self.u32()?, self.u8()? != 0);
                Ok(Question::Before { distance, in_loop, state: self.rest() })
            }
            2 => Ok(Question::State { id: self.u32()? }),
            3 => Ok(Question::Kept),
            4 => Ok(Question::Origin { id: self.u32()? }),
            5 => Ok(Question::Where { state: self.rest() }),
            _ => Err(MalformedMessage),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back() {
        let figures = Figures { states_count: 7, sent_bytes: 1 << 40, ..Figures::default() };
        let state = vec![1, 2, 3];
        let all = [
            Message::Data { task: 3 },
            Message::Taken { batches: 1 << 33 },
            Message::Probe { wave: 9 },
            Message::Quiet { wave: 1, sent: 2, received: 3, kept: 4 },
            Message::Figures(figures),
            Message::Begin { number: 2, task: Task::Reach },
            Message::Begin { number: 3, task: Task::Loop { rank: 1, id: 70_000 } },
            Message::Bound { task: 1, distance: 12 },
            Message::Found { task: 1, distance: 12, cycle_at: Some(0) },
            Message::Found { task: 1, distance: 12, cycle_at: None },
            Message::Ask { question: 1, what: Question::Broken },
            Message::Ask {
                question: 2,
                what: Question::Before { distance: 4, in_loop: true, state: state.clone() },
            },
            Message::Ask { question: 3, what: Question::State { id: 8 } },
            Message::Ask { question: 4, what: Question::Kept },
            Message::Ask { question: 5, what: Question::Origin { id: 9 } },
            Message::Ask { question: 6, what: Question::Where { state: state.clone() } },
            Message::Begin { number: 4, task: Task::Gather },
            Message::Answer { question: 4, state: Some(state), value: origin(0, 5) },
            Message::Answer { question: 4, state: None, value: 0 },
            Message::End,
            Message::Ended { figures, notes: vec![9; 5] },
            Message::Release(vec![(7, 1), (u32::MAX, 3)]),
            Message::Pause,
            Message::GoOn,
            Message::Write { serial: 1 << 60, is_second: true },
            Message::Written(Ok(1 << 50)),
            Message::Written(Err("no space left".to_owned())),
            Message::Settled { is_whole: true, is_second: false },
            Message::Unable { why: "it is damaged".to_owned() },
        ];
        for message in all {
            assert_eq!(Message::decode(&message.encode()), Ok((message, &[][..])));
        }
        assert_eq!(origin_parts(origin(4, 77)), Some((4, 77)));
        assert_eq!(origin_parts(NO_ORIGIN), None);
    }

    #[test]
    fn any_bytes_are_a_message_or_none() {
        bolero::check!().for_each(|bytes: &[u8]| {
            if let Ok((Message::Data { .. }, rest)) = Message::decode(bytes) {
                for group in groups(rest, 5) {
                    assert!(group.is_err() || group.is_ok_and(|(_, states)| states.len() % 5 == 0));
                }
            }
        });
    }
}
