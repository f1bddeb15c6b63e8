//! Doorbells that a switch hangs on, and what follows for those who jammed them.
//!
//! Bells jam only where they are rung by plain writes (see [`Link`]). Each jam stops a switch until the control
//! thread has looked twice. So that nobody can buy one stop after the other, a user whose bell was jammed gets no new
//! attachment for a pause, which doubles with each further jam, and loses all attachments when another bell jams within
//! it. Root and the daemon's own user are spared: they could end the daemon as well.
//!
//! [`Link`]: crate::datapath::Link

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use shm::Bell;

use super::entries::{Client, Switch};
use super::registry::{Refusal, Registry};
use crate::datapath::{CutOff, Link, Trouble};
use crate::deferred_drop::{DAEMON, DeferredDrop};

/// The pause after the first jam.
const PAUSE: Duration = Duration::from_secs(10);
/// The longest; after as long without another jam a user's earlier ones are forgotten.
const PAUSE_MAX: Duration = Duration::from_secs(3600);

/// Users whose bells have jammed.
#[derive(Debug, Default)]
pub(super) struct Jams {
    pauses: BTreeMap<u32, Pause>,
}

#[derive(Debug)]
struct Pause {
    length: Duration,
    until: Instant,
}

impl Jams {
    /// A bell of that user's has jammed; whether that is within the pause after an earlier one.
    fn note(&mut self, user: u32, now: Instant) -> bool {
        self.pauses.retain(|_, pause| now < pause.until + PAUSE_MAX);
        let Some(pause) = self.pauses.get_mut(&user) else {
            self.pauses.insert(user, Pause { length: PAUSE, until: now + PAUSE });
            return false;
        };
        let within = now < pause.until;
        pause.length = (2 * pause.length).min(PAUSE_MAX);
        pause.until = now + pause.length;
        within
    }

    /// What is left of that user's pause.
    fn left(&self, user: u32, now: Instant) -> Option<Duration> {
        let pause = self.pauses.get(&user)?;
        pause.until.checked_duration_since(now).filter(|left| !left.is_zero())
    }
}

/// Who jammed a switch.
#[derive(Debug, Default)]
pub(super) struct Jam {
    /// Attachments, by serial number.
    serials: Vec<u64>,
    users: BTreeSet<u32>,
}

impl Switch {
    /// If the thread has been in the same wake-up since the last call, empties the counters it may hang on: then that
    /// wake-up succeeds. Who that was, and whoever else is ready to do the same.
    ///
    /// The last close of a bell that a client holds in an epoll set takes as long as that set is locked: bells
    /// of clients that have left go to `later`.
    pub(super) fn free_jam(&mut self, later: &DeferredDrop) -> Option<Jam> {
        let ringing = self.link.ringing.load(Ordering::Relaxed);
        let same = ringing != 0 && ringing == self.ringing;
        let jammed = same && self.link.hangs_in(ringing);
        self.ringing = ringing;
        if !jammed {
            if ringing == 0 && !self.link.has_commands() {
                self.let_bells_go(later);
            }
            return None;
        }
        // Whether it helped is seen the next time.
        let mut jam = Jam::default();
        for (user, bells) in &self.gone {
            if clear_full(bells) {
                jam.users.insert(*user);
            }
        }
        for client in self.ports.values().filter_map(|port| port.client.as_ref()) {
            let Client { serial, user, bells, .. } = client;
            if clear_full(bells) || *serial == Link::serial_of(ringing) {
                jam.users.insert(*user);
                jam.serials.push(*serial);
            }
        }
        Some(jam)
    }

    /// Drops the bells of clients that have left.
    fn let_bells_go(&mut self, later: &DeferredDrop) {
        self.gone.drain(..).for_each(|(user, bells)| later.drop_later(user, Box::new(bells)));
    }
}

/// Empties those that a write would wait for; whether there are any.
fn clear_full(bells: &[Bell]) -> bool {
    let full = bells.iter().filter(|bell| bell.is_full());
    full.map(|bell| drop(bell.clear_now())).count() > 0
}

impl Registry {
    /// Frees switches that hang in waking somebody, and takes the attachments of those away. To be called no more often
    /// than any honest wake-up takes.
    pub(super) fn watch_bells(&mut self, now: Instant) {
        let switches = self.switches.values_mut().chain(&mut self.ending);
        let jams: Vec<Jam> =
            switches.filter_map(|switch| switch.free_jam(&self.deferred_drop)).collect();
        for Jam { serials, users } in jams {
            self.cut_off(serials, "a write to it would block");
            for user in users {
                let is_trusted = user == DAEMON || user == self.owner;
                if !is_trusted && self.jams.note(user, now) {
                    let clients = self.clients().filter(|client| client.user == user);
                    let all = clients.map(|client| client.serial).collect();
                    self.cut_off(
                        all,
                        "another doorbell of this user was jammed, not for the first time",
                    );
                }
            }
        }
        let is_over =
            |switch: &mut Switch| switch.thread.as_ref().is_none_or(|one| one.is_finished());
        for mut switch in self.ending.extract_if(.., is_over) {
            switch.let_bells_go(&self.deferred_drop);
            self.deferred_drop.drop_later(DAEMON, Box::new(switch));
        }
    }

    /// Whether that user may attach, or has to wait.
    pub(super) fn check_pause(&self, user: u32, now: Instant) -> Result<(), Refusal> {
        self.jams.left(user, now).map_or(Ok(()), |left| Err(Refusal::Paused(left)))
    }

    fn cut_off(&self, serials: Vec<u64>, why: &str) {
        for serial in serials {
            let why = CutOff::Bell(why.to_owned());
            // Both ends of this channel are here, and the bell is ours alone.
            self.trouble.0.send(Trouble { serial, why }).ok();
            self.trouble_bell.ring().ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use ring::{Bells, Layout, Seat, Sender};
    use shm::Region;

    use super::super::Config;
    use super::super::descriptor_threads::Brought;
    use super::super::registry::Asked;
    use super::*;
    use crate::attachment::{Ask, Delivery, Shape};
    use crate::device::Keep;

    /// A registry whose switches ring by plain writes.
    struct Bench {
        registry: Registry,
        next_session: u64,
    }

    impl Bench {
        fn attach(&mut self, user: u32, port: &str) -> Result<Delivery, Refusal> {
            let ask = Ask::AttachPort { port: port.parse().unwrap(), shape: Shape::default() };
            self.next_session += 1;
            let (session, brought, keep) = (self.next_session, Brought::Nothing, Keep::default());
            self.registry.answer(Asked { session, user, ask, brought, keep }, &mut |_| {})
        }

        /// Looks at the bells until somebody is cut off; the users whose ports are left.
        fn users_left(&mut self) -> Vec<u32> {
            let until = Instant::now() + Duration::from_secs(20);
            while self.registry.settle_trouble(&mut |_| {}).is_empty() {
                assert!(Instant::now() < until, "nobody is cut off");
                self.registry.watch_bells(Instant::now());
                std::thread::sleep(Duration::from_millis(5));
            }
            self.registry.clients().map(|client| client.user).collect()
        }
    }

    /// What a client does to make whoever rings for it wait for ever.
    fn jam(attached: &Delivery) {
        let region = Region::attach(attached.fds[0].try_clone().unwrap()).unwrap();
        let bell = &attached.fds[4];
        rustix::io::write(bell, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        rustix::fs::fcntl_setfl(bell, rustix::fs::OFlags::empty()).unwrap();
        let mut asleep = Layout::read(&region).unwrap().end(&region, 1, Seat::User, 1).unwrap();
        while !asleep.arm().unwrap() {
            let count = asleep.observe().unwrap();
            asleep.advance(count);
        }
    }

    #[test]
    fn who_jams_a_bell_waits_and_who_does_it_again_loses_everything() {
        let config = Config { plain_bells: true, ..Config::new("/nowhere".into()) };
        let mut bench = Bench { registry: Registry::new(&config).unwrap(), next_session: 0 };
        // Whoever runs the tests is spared, as root is.
        let [honest, hostile] = [1, 2].map(|more| bench.registry.owner + more);
        bench.registry.begin();
        let sender = bench.attach(honest, "vale0:sender").unwrap();
        let region = Region::attach(sender.fds[0].try_clone().unwrap()).unwrap();
        let layout = Layout::read(&region).unwrap();
        let bell = |number: usize| Bell::from_fd(sender.fds[number].try_clone().unwrap());
        let bells = Bells { theirs: bell(1), ours: bell(2) };
        let end = layout.end(&region, 0, Seat::User, 1).unwrap();
        let mut sender = Sender::join(end, layout.buffers(&region).unwrap(), bells);
        let mut send = || {
            assert!(sender.reserve(1).unwrap() > 0 && sender.put(0, &[0xff; 60]));
            sender.publish(1).unwrap();
        };
        let [first, second, _third] =
            ["vale0:1", "vale0:2", "vale0:3"].map(|port| bench.attach(hostile, port).unwrap());

        jam(&first);
        send();
        assert_eq!(bench.users_left(), [hostile, hostile, honest]);
        let refused = bench.attach(hostile, "vale0:4").unwrap_err();
        assert!(matches!(refused, Refusal::Paused(left) if left <= PAUSE), "{refused}");
        bench.attach(honest, "vale0:other").unwrap();

        jam(&second);
        send();
        assert_eq!(bench.users_left(), [honest, honest]);
        let refused = bench.attach(hostile, "vale0:4").unwrap_err();
        assert!(matches!(refused, Refusal::Paused(left) if left > PAUSE), "{refused}");
    }

    #[test]
    fn pauses_double_and_are_forgotten() {
        let (mut jams, began) = (Jams::default(), Instant::now());
        let at = |seconds| began + Duration::from_secs(seconds);
        assert_eq!(jams.left(7, at(0)), None);
        assert!(!jams.note(7, at(0)));
        assert_eq!(jams.left(7, at(9)), Some(Duration::from_secs(1)));
        assert_eq!(jams.left(8, at(9)), None, "it is another's");
        assert_eq!(jams.left(7, at(10)), None);
        assert!(!jams.note(7, at(10)), "the pause is over");
        assert_eq!(jams.left(7, at(10)), Some(Duration::from_secs(20)));
        assert!(jams.note(7, at(29)));
        assert_eq!(jams.left(7, at(29)), Some(Duration::from_secs(40)));
        for _ in 0..20 {
            assert!(jams.note(7, at(30)));
        }
        assert_eq!(jams.left(7, at(30)), Some(PAUSE_MAX));
        assert!(!jams.note(7, at(30 + 7200)));
        assert_eq!(jams.left(7, at(30 + 7200)), Some(PAUSE), "forgotten");
    }
}
