//! Collective operations under every kind of schedule: whatever the order in which messages of
//! different ranks arrive, all operations end with the right outcome.

use std::collections::VecDeque;

use crew::{Collective, CollectiveError, Operation, Output};
use stats::Random;

/// Ranks of a job whose messages wait in a queue for each pair until a schedule delivers them.
struct Network {
    ranks: Vec<Collective>,
    queues: Vec<Vec<VecDeque<Vec<u8>>>>,
}

fn concatenate(mut first: Vec<u8>, second: Vec<u8>) -> Vec<u8> {
    first.extend(second);
    first
}

impl Network {
    fn begin(operation: Operation, count: usize, root: usize) -> Self {
        let begin = |me| {
            let mine = if operation == Operation::Barrier { Vec::new() } else { vec![me as u8] };
            Collective::begin(operation, 7, (me, count), root, mine)
        };
        let mut network = Self {
            ranks: (0..count).map(begin).collect(),
            queues: vec![vec![VecDeque::new(); count]; count],
        };
        (0..count).for_each(|rank| network.go_on(rank));
        network
    }

    fn go_on(&mut self, rank: usize) {
        self.ranks[rank].advance(&mut concatenate);
        while let Some((to, message)) = self.ranks[rank].poll() {
            assert_ne!(to, rank, "a message to itself");
            self.queues[rank][to].push_back(message);
        }
    }

    /// Delivers messages in a random order until none is left but those to and from `held`; how many
    /// there were.
    fn deliver(&mut self, random: &mut Random, held: Option<usize>) -> usize {
        let mut delivered = 0;
        loop {
            let mut pairs = Vec::new();
            for (from, queues) in self.queues.iter().enumerate() {
                let full = queues.iter().enumerate().filter(|(_, queue)| !queue.is_empty());
                let pair = full.map(|(to, _)| (from, to));
                pairs.extend(pair.filter(|&(from, to)| ![from, to].map(Some).contains(&held)));
            }
            if pairs.is_empty() {
                return delivered;
            }
            let (from, to) = pairs[random.below(pairs.len() as u64) as usize];
            let message = self.queues[from][to].pop_front().expect("one is there");
            self.ranks[to].handle(from, &message).expect("a message of this operation");
            self.go_on(to);
            delivered += 1;
        }
    }
}

fn outcome(operation: Operation, rank: usize, root: usize, count: usize) -> Output {
    let from_root = (0..count).map(|place| ((root + place) % count) as u8);
    match operation {
        Operation::Broadcast => Output::Bytes(vec![root as u8]),
        Operation::Reduce if rank == root => Output::Bytes(from_root.collect()),
        Operation::Gather if rank == root => {
            Output::All((0..count).map(|rank| vec![rank as u8]).collect())
        }
        _ => Output::Nothing,
    }
}

const ALL: [Operation; 4] =
    [Operation::Barrier, Operation::Broadcast, Operation::Reduce, Operation::Gather];

#[test]
fn every_operation_ends_right_whatever_the_order_of_arrival() {
    let mut random = Random::from_seed(1);
    for operation in ALL {
        for count in 1..=17 {
            for root in 0..count {
                let mut network = Network::begin(operation, count, root);
                let delivered = network.deliver(&mut random, None);
                let halves = if operation == Operation::Barrier { 2 } else { 1 };
                assert_eq!(delivered, halves * (count - 1), "{operation:?} of {count}");
                for (rank, collective) in network.ranks.into_iter().enumerate() {
                    assert_eq!(collective.waits_for(), None);
                    let output = collective.output().expect("it is done");
                    assert_eq!(output, outcome(operation, rank, root, count));
                }
            }
        }
    }
}

#[test]
fn no_rank_passes_a_barrier_before_all_have_come() {
    for count in 2..=17 {
        for late in 0..count {
            let mut network = Network::begin(Operation::Barrier, count, 0);
            network.deliver(&mut Random::from_seed(late as u64), Some(late));
            assert!(network.ranks.iter().all(|rank| !rank.is_done()), "{late} of {count}");
            network.deliver(&mut Random::from_seed(1), None);
            assert!(network.ranks.iter().all(Collective::is_done), "{late} of {count}");
        }
    }
}

#[test]
fn a_rank_waits_on_the_way_of_few_messages() {
    // The root of 1024 ranks hears ten and tells ten, and no message passes more than ten ranks.
    let count = 1024;
    let mut heard = vec![0; count];
    for me in 0..count {
        let mut rank = Collective::begin(Operation::Broadcast, 1, (me, count), 0, Vec::new());
        rank.advance(&mut concatenate);
        heard[me] = if me == 0 { 0 } else { 1 + heard[rank.waits_for().expect("a parent")] };
    }
    assert_eq!(heard.into_iter().max(), Some(10));
}

#[test]
fn ranks_that_are_out_of_step_are_told_so() {
    let mut barrier = Collective::begin(Operation::Barrier, 3, (0, 2), 0, Vec::new());
    barrier.advance(&mut concatenate);
    let mut reduce = Collective::begin(Operation::Reduce, 3, (1, 2), 0, vec![1]);
    reduce.advance(&mut concatenate);
    let (to, message) = reduce.poll().expect("it sends to the root");
    assert_eq!((to, Collective::serial_of(&message)), (0, Some(3)));
    let error = barrier.handle(1, &message).expect_err("another operation");
    assert_eq!(error.to_string(), "rank 1 is in a reduce where this rank is in a barrier");
    assert!(matches!(barrier.handle(1, &[0]), Err(CollectiveError::Malformed { rank: 1, .. })));
}

#[test]
fn malformed_messages_are_errors() {
    for operation in ALL {
        let mine = if operation == Operation::Barrier { Vec::new() } else { vec![1, 2, 3] };
        let mut sender = Collective::begin(operation, 1, (1, 2), 0, mine);
        sender.advance(&mut concatenate);
        let Some((_, message)) = sender.poll() else { continue };
        for length in 0..message.len() {
            let mut root = Collective::begin(operation, 1, (0, 2), 0, vec![0]);
            root.advance(&mut concatenate);
            let taken = root.handle(1, &message[..length]);
            // A reduce's bytes are its user's; those of a gather end with its last part.
            let is_whole = operation == Operation::Reduce && length >= 9
                || operation == Operation::Gather && length == 9;
            assert_eq!(taken.is_ok(), is_whole, "{operation:?} cut to {length}");
        }
    }
}
