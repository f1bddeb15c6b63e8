//! Rank 0's part: when all is quiet, what is next, and what it came to.

use std::collections::HashSet;

use super::message::{Message, Question, Task, origin_parts};
use super::{Figures, Goal, Written};
use crate::cycle::Lasso;

/// What a search came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// Nothing of what was searched for is there.
    Nothing,
    /// A shortest run to a state that violates a property.
    Broken(Vec<Vec<u8>>),
    /// An accepting cycle.
    Cycle(Lasso),
    /// It was stopped early.
    Stopped,
}

/// What rank 0 knows at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// What it came to.
    pub ending: Ending,
    /// What each rank did.
    pub figures: Vec<Figures>,
    /// What each rank learnt beside states.
    pub notes: Vec<Vec<u8>>,
    /// The rank that could not begin and why ([`super::Rank::give_up`]), if there was one.
    pub trouble: Option<(usize, String)>,
}

/// Where the search is.
#[derive(Debug)]
enum Stage {
    Reach,
    Forward,
    Prune,
    /// Asked for the nearest state that violates a property.
    Broken,
    /// Going back from a state, step by step.
    Back(Back),
    /// Asked for a state on a cycle.
    Seed,
    /// Following origins until one comes again.
    Origins(HashSet<u64>),
    Loop,
    Gather,
    /// Rank 0's caller looks at what was gathered.
    Judging,
    /// Waiting for all that is under way to arrive.
    Pausing {
        serial: u64,
        is_second: bool,
    },
    /// It has; all write down what they know, or have done so.
    Paused,
    Ending,
}

/// A way that is followed backwards.
#[derive(Debug)]
struct Back {
    /// States, last first.
    way: Vec<Vec<u8>>,
    /// Of the last in `way`.
    distance: u32,
    in_loop: bool,
}

/// To whom, and what.
pub(super) type Order = (Option<usize>, Message);

/// Rank 0's knowledge of all.
#[derive(Debug)]
pub(super) struct Lead {
    aim: Goal,
    stage: Stage,
    task: u32,
    wave: u32,
    /// Whether a wave is under way.
    is_asking_quiet: bool,
    quiets: Vec<Option<(u64, u64, u64)>>,
    /// Sent and received of the last wave.
    before: Option<(u64, u64)>,
    kept_count: Option<u64>,
    question: u32,
    answers: Vec<Option<(Option<Vec<u8>>, u64)>>,
    /// Nearest known end of the task.
    bound: u32,
    seed: Option<(u32, u32)>,
    prefix: Vec<Vec<u8>>,
    /// The cycle that was told, to which a way is looked for.
    cycle: Vec<Vec<u8>>,
    ending: Ending,
    ended: Vec<Option<(Figures, Vec<u8>)>>,
    /// What each rank has to say of what it wrote down.
    written: Vec<Option<Written>>,
    trouble: Option<(usize, String)>,
    /// Last heard of each rank.
    pub(super) figures: Vec<Figures>,
}

impl Lead {
    pub(super) fn new(ranks_count: usize, aim: Goal) -> Self {
        Self {
            aim,
            stage: Stage::Reach,
            task: 1,
            wave: 0,
            is_asking_quiet: false,
            quiets: vec![None; ranks_count],
            before: None,
            kept_count: None,
            question: 0,
            answers: vec![None; ranks_count],
            bound: u32::MAX,
            seed: None,
            prefix: Vec::new(),
            cycle: Vec::new(),
            ending: Ending::Nothing,
            ended: vec![None; ranks_count],
            written: vec![None; ranks_count],
            trouble: None,
            figures: vec![Figures::default(); ranks_count],
        }
    }

    /// Rank 0 itself has nothing to do: time to ask whether the others have.
    pub(super) fn idle(&mut self) -> Vec<Order> {
        let is_running = matches!(
            self.stage,
            Stage::Reach
                | Stage::Forward
                | Stage::Prune
                | Stage::Loop
                | Stage::Gather
                | Stage::Pausing { .. }
        );
        if !is_running || self.is_asking_quiet {
            return Vec::new();
        }
        self.is_asking_quiet = true;
        self.wave += 1;
        self.quiets.fill(None);
        vec![(None, Message::Probe { wave: self.wave })]
    }

    /// A rank's answer to [`Message::Probe`].
    pub(super) fn quiet(&mut self, from: usize, wave: u32, counts: (u64, u64, u64)) -> Vec<Order> {
        if wave != self.wave || !self.is_asking_quiet {
            return Vec::new();
        }
        self.quiets[from] = Some(counts);
        let mut sums = (0u64, 0u64, 0u64);
        for counts in &self.quiets {
            let Some((sent, received, kept)) = counts else { return Vec::new() };
            sums.0 = sums.0.saturating_add(*sent);
            sums.1 = sums.1.saturating_add(*received);
            sums.2 = sums.2.saturating_add(*kept);
        }
        self.is_asking_quiet = false;
        let (sent, received, kept) = sums;
        // Twice the same sums, all of it arrived: nothing was under way at the end of the first wave.
        if sent == received && self.before == Some((sent, received)) {
            self.before = None;
            return self.task_done(kept);
        }
        self.before = Some((sent, received));
        Vec::new()
    }

    /// A rank found what ends the task.
    pub(super) fn found(
        &mut self,
        from: usize,
        task: u32,
        distance: u32,
        cycle_at: Option<u32>,
    ) -> Vec<Order> {
        if task != self.task || distance >= self.bound {
            return Vec::new();
        }
        self.bound = distance;
        if let Some(id) = cycle_at {
            self.seed = Some((from as u32, id));
        }
        vec![(None, Message::Bound { task, distance })]
    }

    fn begin(&mut self, stage: Stage, task: Task) -> Vec<Order> {
        self.stage = stage;
        self.task += 1;
        self.bound = u32::MAX;
        vec![(None, Message::Begin { number: self.task, task })]
    }

    fn ask(&mut self, stage: Stage, whom: Option<usize>, what: Question) -> Vec<Order> {
        self.stage = stage;
        self.question += 1;
        self.answers.fill(None);
        if let Some(whom) = whom {
            // The others have nothing to say.
            for (rank, answer) in self.answers.iter_mut().enumerate() {
                *answer = (rank != whom).then_some((None, 0));
            }
        }
        vec![(whom, Message::Ask { question: self.question, what })]
    }

    /// Ends the search, all ranks; `Stopped` if it is not done.
    pub(super) fn end(&mut self, ending: Ending) -> Vec<Order> {
        if matches!(self.stage, Stage::Ending) {
            return Vec::new();
        }
        self.stage = Stage::Ending;
        self.ending = ending;
        vec![(None, Message::End)]
    }

    /// Halts a search for states, so that it can be written down; none if it is past that.
    pub(super) fn pause(&mut self, serial: u64, is_second: bool) -> Vec<Order> {
        if !matches!((&self.stage, self.aim), (Stage::Reach, Goal::BadState { .. })) {
            return Vec::new();
        }
        self.stage = Stage::Pausing { serial, is_second };
        vec![(None, Message::Pause)]
    }

    /// What all ranks have to say of what they wrote, once each has.
    pub(super) fn take_written(&mut self) -> Option<Vec<Written>> {
        let all = self.written.iter().cloned().collect::<Option<Vec<_>>>()?;
        self.written.fill(None);
        Some(all)
    }

    pub(super) fn written(&mut self, from: usize, written: Written) {
        if matches!(self.stage, Stage::Paused) {
            self.written[from] = Some(written);
        }
    }

    /// Searches on after a pause.
    pub(super) fn go_on(&mut self) -> Vec<Order> {
        if !matches!(self.stage, Stage::Paused) {
            return Vec::new();
        }
        self.stage = Stage::Reach;
        // Whoever said to have nothing to do said so of the pause: those answers count no more.
        self.wave += 1;
        self.is_asking_quiet = false;
        self.before = None;
        vec![(None, Message::GoOn)]
    }

    /// A rank cannot begin: nothing can be found out.
    pub(super) fn unable(&mut self, from: usize, why: String) -> Vec<Order> {
        self.trouble.get_or_insert((from, why));
        self.end(Ending::Stopped)
    }

    fn task_done(&mut self, kept: u64) -> Vec<Order> {
        match (&self.stage, self.aim, self.seed) {
            (&Stage::Pausing { serial, is_second }, ..) => {
                self.stage = Stage::Paused;
                self.written.fill(None);
                vec![(None, Message::Write { serial, is_second })]
            }
            (Stage::Reach, Goal::BadState { .. }, _) => {
                self.ask(Stage::Broken, None, Question::Broken)
            }
            (Stage::Reach | Stage::Forward, _, Some((rank, id))) => {
                self.ask(Stage::Seed, Some(rank as usize), Question::State { id })
            }
            (Stage::Reach, _, None) => self.begin(Stage::Forward, Task::Forward),
            (Stage::Forward, ..) => self.begin(Stage::Prune, Task::Prune),
            (Stage::Prune, ..) if kept == 0 => self.end(Ending::Nothing),
            // Few more would go, and it would take as long again.
            (Stage::Prune, Goal::FairCycle, _)
                if self.kept_count.is_some_and(|before| kept >= before - before / 8) =>
            {
                self.begin(Stage::Gather, Task::Gather)
            }
            (Stage::Gather, ..) => {
                self.stage = Stage::Judging;
                Vec::new()
            }
            (Stage::Prune, ..) if self.kept_count == Some(kept) => {
                self.ask(Stage::Origins(HashSet::new()), None, Question::Kept)
            }
            (Stage::Prune, ..) => {
                self.kept_count = Some(kept);
                self.begin(Stage::Forward, Task::Forward)
            }
            (Stage::Loop, ..) => {
                let way = self.prefix.last().cloned().into_iter().collect();
                self.back(Back { way, distance: self.bound, in_loop: true })
            }
            _ => Vec::new(),
        }
    }

    /// Whether all that may be on a cycle is with rank 0.
    pub(super) fn is_judging(&self) -> bool {
        matches!(self.stage, Stage::Judging)
    }

    /// Which of what was gathered is a cycle of the kind that is looked for, if one is.
    pub(super) fn judged(&mut self, cycle: Vec<Vec<u8>>) -> Vec<Order> {
        if !self.is_judging() {
            return Vec::new();
        }
        match cycle.first().cloned() {
            None => self.end(Ending::Nothing),
            Some(state) => {
                self.cycle = cycle;
                self.ask(Stage::Seed, None, Question::Where { state })
            }
        }
    }

    /// A rank's answer to a question.
    pub(super) fn answer(
        &mut self,
        from: usize,
        question: u32,
        state: Option<Vec<u8>>,
        value: u64,
    ) -> Vec<Order> {
        if question != self.question {
            return Vec::new();
        }
        self.answers[from] = Some((state, value));
        if self.answers.iter().any(Option::is_none) {
            return Vec::new();
        }
        let answers = std::mem::take(&mut self.answers);
        self.answers = vec![None; answers.len()];
        self.question += 1;
        self.answered(answers.into_iter().flatten().collect())
    }

    fn answered(&mut self, answers: Vec<(Option<Vec<u8>>, u64)>) -> Vec<Order> {
        let first = answers.iter().map(|(_, value)| *value).find(|&value| value != 0);
        let states =
            answers.into_iter().filter_map(|(state, value)| state.map(|state| (value, state)));
        match std::mem::replace(&mut self.stage, Stage::Ending) {
            Stage::Broken => match states.min() {
                Some((distance, state)) => self.back(Back {
                    way: vec![state],
                    distance: u32::try_from(distance).unwrap_or(u32::MAX),
                    in_loop: false,
                }),
                None => self.end_now(Ending::Nothing),
            },
            Stage::Seed => match states.min() {
                Some((distance, state)) => self.back(Back {
                    way: vec![state],
                    distance: u32::try_from(distance).unwrap_or(u32::MAX),
                    in_loop: false,
                }),
                None => self.end_now(Ending::Stopped),
            },
            Stage::Back(mut back) => match states.min() {
                Some((_, state)) => {
                    back.way.push(state);
                    back.distance -= 1;
                    self.back(back)
                }
                None => self.end_now(Ending::Stopped),
            },
            Stage::Origins(mut met) => {
                let Some((origin, (rank, id))) =
                    first.and_then(|origin| Some((origin, origin_parts(origin)?)))
                else {
                    return self.end_now(Ending::Stopped);
                };
                if rank as usize >= self.figures.len() {
                    return self.end_now(Ending::Stopped);
                }
                if met.insert(origin) {
                    self.ask(Stage::Origins(met), Some(rank as usize), Question::Origin { id })
                } else {
                    self.seed = Some((rank, id));
                    self.ask(Stage::Seed, Some(rank as usize), Question::State { id })
                }
            }
            _ => Vec::new(),
        }
    }

    fn end_now(&mut self, ending: Ending) -> Vec<Order> {
        self.ending = ending;
        self.stage = Stage::Ending;
        vec![(None, Message::End)]
    }

    /// Goes one step back, or on with what is next when the way is whole.
    fn back(&mut self, mut back: Back) -> Vec<Order> {
        // The loop's way ends where it begins: its first state is there already.
        let last = u32::from(back.in_loop);
        if back.distance > last {
            let state = back.way.last().cloned().unwrap_or_default();
            let (distance, in_loop) = (back.distance - 1, back.in_loop);
            let question = Question::Before { distance, in_loop, state };
            return self.ask(Stage::Back(back), None, question);
        }
        back.way.reverse();
        if back.in_loop {
            let seed = self.prefix.pop().unwrap_or_default();
            // `way` holds the states behind the seed, and the seed at its end.
            back.way.pop();
            let cycle = std::iter::once(seed).chain(back.way).collect();
            let prefix = std::mem::take(&mut self.prefix);
            return self.end_now(Ending::Cycle(Lasso { prefix, cycle }));
        }
        if !self.cycle.is_empty() {
            back.way.pop();
            let (prefix, cycle) = (back.way, std::mem::take(&mut self.cycle));
            return self.end_now(Ending::Cycle(Lasso { prefix, cycle }));
        }
        match self.seed {
            Some((rank, id)) => {
                self.prefix = back.way;
                self.begin(Stage::Loop, Task::Loop { rank, id })
            }
            None => self.end_now(Ending::Broken(back.way)),
        }
    }

    /// A rank's last words.
    pub(super) fn ended(&mut self, from: usize, figures: Figures, notes: Vec<u8>) {
        self.figures[from] = figures;
        self.ended[from] = Some((figures, notes));
    }

    /// What it came to, once every rank has said its last.
    pub(super) fn outcome(&self) -> Option<Outcome> {
        let all: Option<Vec<_>> = self.ended.iter().cloned().collect();
        let (figures, notes) = all?.into_iter().unzip();
        let trouble = self.trouble.clone();
        Some(Outcome { ending: self.ending.clone(), figures, notes, trouble })
    }
}
