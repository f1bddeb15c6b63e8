//! Hosts that each search with threads over one set of states and send each other messages, against plain searches.
//! Messages of a pair of hosts keep their order; each may take long.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use crate::promised::Promised;
use statespace::partition::{Figures, Subject};
use statespace::{Ended, HostEnd, Reach, SharedSearch, System};
use stats::Random;

/// A host's mail: sender and bytes.
type Mail = (usize, Vec<u8>);

/// A host's end of the network between all of them.
struct Post {
    me: usize,
    out: Vec<Sender<Mail>>,
    came: Receiver<Mail>,
    random: Random,
}

impl Post {
    fn network(hosts_count: usize, random: &mut Random) -> Vec<Self> {
        let (out, came): (Vec<_>, Vec<_>) = (0..hosts_count).map(|_| channel()).unzip();
        let end = |(me, came)| {
            let random = Random::from_seed(random.below(1 << 30));
            Self { me, out: out.clone(), came, random }
        };
        came.into_iter().enumerate().map(end).collect()
    }

    fn carry(&mut self, search: &SharedSearch) {
        while let Some((to, message)) = search.poll() {
            assert_ne!(to, self.me);
            if self.random.below(40) == 0 {
                thread::sleep(Duration::from_micros(self.random.below(200)));
            }
            // A host that has been let go takes nothing more.
            self.out[to].send((self.me, message)).ok();
        }
        for _ in 0..1 + self.random.below(3) {
            let Ok((from, message)) = self.came.try_recv() else { break };
            search.handle(from, &message).expect("no message is malformed");
        }
    }
}

/// What host 0 learns: how it ended everywhere, and the way to a violation.
type Outcome = (Vec<HostEnd>, Option<Vec<Vec<u8>>>);

fn host(
    system: &Promised,
    mut post: Post,
    hosts_count: usize,
    (threads_count, is_full): (usize, bool),
) -> Option<Outcome> {
    let us = (post.me, hosts_count);
    let search = SharedSearch::of_host(&mut system.clone(), us, threads_count, is_full);
    let search = search.expect("a first state");
    thread::scope(|scope| {
        for me in 1..threads_count {
            let search = &search;
            let mut wait = |is_idle: bool| {
                if is_idle {
                    thread::sleep(Duration::from_micros(50));
                }
            };
            scope.spawn(move || {
                search.work_and_post(me, &mut system.clone(), &mut wait).expect("none fails");
            });
        }
        let mut carry = |_is_idle| post.carry(&search);
        search.work_and_post(0, &mut system.clone(), &mut carry).expect("none fails");
    });
    search.tell_end(system.notes());
    if us.0 > 0 {
        while !search.is_finished() {
            post.carry(&search);
            search.answer_asked(&mut system.clone());
        }
        return None;
    }
    let ends = loop {
        match search.all_ends() {
            Some(ends) => break ends,
            None => post.carry(&search),
        }
    };
    let nearest = ends.iter().filter_map(|end| end.broken.clone()).min_by_key(|one| one.0);
    let way = nearest.map(|(level, state)| {
        let mut way = vec![state];
        for level in (0..level).rev() {
            let wanted = way.last().expect("a state").clone();
            let own = search.ask(level, &wanted, &mut system.clone());
            let before = own.or_else(|| {
                loop {
                    match search.answer() {
                        Some(answer) => break answer,
                        None => post.carry(&search),
                    }
                }
            });
            way.push(before.expect("some host has it"));
        }
        way.reverse();
        way
    });
    search.finish();
    post.carry(&search);
    Some((ends, way))
}

fn search(
    system: &Promised,
    hosts_count: usize,
    threads_count: usize,
    is_full: bool,
    random: &mut Random,
) -> Outcome {
    thread::scope(|scope| {
        let ends = Post::network(hosts_count, random).into_iter();
        let run = |post| move || host(system, post, hosts_count, (threads_count, is_full));
        let hosts: Vec<_> = ends.map(|post| scope.spawn(run(post))).collect();
        let mut outcomes = hosts.into_iter().map(|host| host.join().expect("no host fails"));
        outcomes.next().flatten().expect("host 0 leads")
    })
}

#[test]
fn hosts_find_what_one_thread_finds() {
    let mut random = Random::from_seed(43);
    let mut violated = 0;
    for round in 0..300 {
        let system = Promised::random(&mut random, if round % 2 == 0 { 0 } else { 12 });
        let mut judge = system.clone();
        let mut alone = Reach::new(system.clone()).expect("a first state");
        let mut broken = None;
        while alone.advance(1000, |id, state, steps| {
            if broken.is_none() && judge.is_broken(state, steps) {
                broken = Some(id);
            }
            true
        }) == Ok(true)
        {}
        let steps = broken.map(|id| alone.way_to(id).len());
        let (hosts_count, threads_count) = (1 + round % 4, 1 + round / 4 % 2);
        let is_full = round % 3 > 0;
        let (ends, way) = search(&system, hosts_count, threads_count, is_full, &mut random);
        assert_eq!(way.as_ref().map(Vec::len), steps, "round {round}");
        if let Some(way) = &way {
            assert_eq!(way[0], system.initial());
            assert!(system.follows(way), "round {round}");
            violated += 1;
        }
        if is_full || way.is_none() {
            let all: Vec<Figures> = ends.iter().map(|end| end.figures).collect();
            let (found, wanted) = (Figures::total(&all), alone.progress());
            let counts = |one: [u64; 3]| one;
            assert_eq!(
                counts([found.states_count, found.transitions_count, found.deadlocks_count]),
                counts([wanted.states_count, wanted.transitions_count, wanted.deadlocks_count]),
                "round {round}"
            );
            assert_eq!((found.queued_count, found.depth), (0, u64::from(wanted.depth)));
            let ended = |end: &HostEnd| matches!(end.ended, Ended::Whole | Ended::Broken);
            assert!(ends.iter().all(ended), "round {round}");
        }
    }
    assert!((40..140).contains(&violated), "{violated} of 300 is no fair mixture");
}

#[test]
fn hosts_that_are_stopped_say_so() {
    let mut random = Random::from_seed(44);
    let system = Promised::random(&mut random, 0);
    let mut posts = Post::network(2, &mut random);
    let (mut second, mut first) = (posts.pop().expect("two"), posts.pop().expect("two"));
    let searches = [0, 1].map(|me| SharedSearch::of_host(&mut system.clone(), (me, 2), 1, true));
    let [one, other] = searches.map(|search| search.expect("a first state"));
    one.stop();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut carry = |_| second.carry(&other);
            other.work_and_post(0, &mut system.clone(), &mut carry).expect("it does not fail");
        });
        let mut carry = |_| first.carry(&one);
        one.work_and_post(0, &mut system.clone(), &mut carry).expect("it does not fail");
        first.carry(&one);
    });
    assert_eq!((one.ended(), other.ended()), (Ended::Stopped, Ended::Stopped));
}

#[test]
fn no_bytes_of_another_host_do_harm() {
    let mut random = Random::from_seed(45);
    let mut system = Promised::random(&mut random, 0);
    let state_bytes = system.state_bytes();
    bolero::check!().with_type::<(u8, Vec<u8>)>().for_each(|(kind, rest)| {
        let search = SharedSearch::of_host(&mut system.clone(), (0, 3), 1, true);
        let search = search.expect("a first state");
        let bytes = [&[kind % 10][..], rest].concat();
        search.handle(1, &bytes).ok();
        assert!(search.handle(0, &bytes).is_err(), "a host says nothing to itself");
        assert!(search.handle(3, &bytes).is_err(), "there is no such host");
        let kept = search.figures().memory_bytes;
        assert!(kept < (8 << 20), "{kept} bytes for {} bytes of states", state_bytes);
    });
    // A batch of states that are none.
    let search = SharedSearch::of_host(&mut system, (0, 3), 1, true).expect("a first state");
    let batch = [&[1, 0, 0, 0, 0][..], &vec![0; 3 * state_bytes + 1]].concat();
    assert_eq!(search.handle(1, &batch).is_err(), state_bytes > 1);
    // A level that is two ahead cannot have begun.
    let done = [&[2, 2, 0, 0, 0][..], &[0; 17]].concat();
    assert!(search.handle(1, &done).is_err());
}
