//! Switches: how their threads begin, and what becomes of their ports when one ends unasked.

use std::collections::BTreeMap;
use std::sync::Arc;

use sys::SyscallError;
use sys::eventfd::Signaller;

use super::Notice;
use super::entries::Switch;
use super::registry::{Refusal, Registry, SWITCHES_MAX};
use crate::attachment::Answer;
use crate::datapath::{Datapath, Link};
use crate::deferred_drop::{DAEMON, DeferredDrop};
use crate::name::Name;
use crate::panics;
use crate::threads::THREAD_NAME_MAX;

/// What rings for each switch, made before anything is given up and before others have used up what the host
/// has of it (`fs.aio-max-nr`).
#[derive(Debug)]
pub(super) struct Signallers {
    of_switches: Result<Vec<Arc<Signaller>>, SyscallError>,
    /// All guests': their threads come and go, and none of them may end one.
    of_guests: Option<Arc<Signaller>>,
}

impl Signallers {
    pub(super) fn new(plain: bool) -> Self {
        if plain {
            let asked_for = std::io::ErrorKind::Unsupported;
            let of_switches = Err(SyscallError::new("io_setup", "not asked for", asked_for));
            return Self { of_switches, of_guests: None };
        }
        let one = || Signaller::new().map(Arc::new);
        Self { of_switches: (0..SWITCHES_MAX).map(|_| one()).collect(), of_guests: one().ok() }
    }

    /// One that no switch has, or that few have.
    fn one(&self) -> Option<Arc<Signaller>> {
        self.of_switches.as_ref().ok()?.iter().min_by_key(|one| Arc::strong_count(one)).cloned()
    }

    /// That of guests.
    pub(super) fn of_guests(&self) -> Option<Arc<Signaller>> {
        self.of_guests.clone()
    }
}

impl Registry {
    /// To be called once this thread has given up what it gives up.
    pub(super) fn begin(&mut self) {
        self.deferred_drop = DeferredDrop::begin();
    }

    pub(super) fn waits_for_bells(&self) -> Option<&SyscallError> {
        self.signallers.of_switches.as_ref().err()
    }

    /// The switch of that name, made when it is not there.
    pub(super) fn switch(&mut self, name: &Name) -> Result<&mut Switch, Refusal> {
        if !self.switches.contains_key(name) {
            if self.switches.len() >= SWITCHES_MAX {
                return Err(Refusal::Limit { what: "switches", max: SWITCHES_MAX as u64 });
            }
            let link = Arc::new(Link::new()?);
            let (trouble, bell) = (self.trouble.0.clone(), self.trouble_bell.share()?);
            let datapath =
                Datapath::new(Arc::clone(&link), trouble, bell, self.linger, random_seed())?
                    .equip(self.signallers.one(), self.deferred_drop.clone());
            let threads = self.threads.clone();
            let thread = std::thread::Builder::new()
                .name(panics::printable(&name.to_string(), THREAD_NAME_MAX))
                .spawn(move || {
                    datapath.begin();
                    threads.begin()?;
                    datapath.run()
                })
                .map_err(|error| SyscallError::new("clone", format!("switch {name}"), error))?;
            let switch = Switch {
                link,
                thread: Some(thread),
                ports: BTreeMap::new(),
                ringing: 0,
                gone: Vec::new(),
            };
            self.switches.insert(name.clone(), switch);
        }
        self.switches.get_mut(name).ok_or_else(|| Refusal::NotThere(format!("switch {name}")))
    }

    /// Takes away switches whose threads have ended unasked, with their ports; the others go on, and the
    /// name is free for another.
    pub(super) fn check_threads(&mut self, notice: &mut dyn FnMut(Notice)) {
        let has_ended =
            |switch: &Switch| switch.thread.as_ref().is_some_and(|thread| thread.is_finished());
        let ended = self.switches.extract_if(.., |_, switch| has_ended(switch));
        let ended: Vec<(Name, Switch)> = ended.collect();
        for (name, mut switch) in ended {
            let outcome = switch.thread.take().map(std::thread::JoinHandle::join);
            let why = match outcome {
                Some(Ok(Err(error))) => error.to_string(),
                Some(Err(panic)) => panics::words(&*panic),
                Some(Ok(Ok(()))) | None => "its thread ended unexpectedly".to_owned(),
            };
            for (port_name, port) in &mut switch.ports {
                let name = format!("{name}:{port_name}");
                notice(Notice::CutOff { name, why: why.clone() });
                let client = port.client.take();
                let client = client.map(|client| {
                    switch.gone.push((client.user, client.bells));
                    self.memory.end(client.lease);
                    (client.session, client.attachment)
                });
                let watchers = std::mem::take(&mut port.watchers);
                let watchers: Vec<_> = watchers
                    .into_iter()
                    .map(|one| {
                        let whose = one.whose();
                        self.memory.end(one.into_lease());
                        whose
                    })
                    .collect();
                self.farewells.extend(client.into_iter().chain(watchers).map(|whose| {
                    let (session, attachment) = whose;
                    (session, Answer::CutOff { attachment, why: why.clone() })
                }));
            }
            notice(Notice::Fault { what: format!("switch {name}"), why });
            for (user, bells) in std::mem::take(&mut switch.gone) {
                self.deferred_drop.drop_later(user, Box::new(bells));
            }
            self.deferred_drop.drop_later(DAEMON, Box::new(switch));
        }
    }
}

/// Key of the address hash; it must not be guessable.
pub(crate) fn random_seed() -> u64 {
    let mut bytes = [0; 8];
    // Where the kernel has no randomness yet, the table still works, only predictably.
    rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::NONBLOCK).ok();
    u64::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::super::Config;
    use super::super::descriptor_threads::Brought;
    use super::super::registry::Asked;
    use super::*;
    use crate::attachment::{Ask, Shape};
    use crate::datapath::Command;
    use crate::device::Keep;

    #[test]
    fn a_switch_whose_thread_ends_takes_its_own_ports_and_no_others() {
        let mut registry = Registry::new(&Config::new("/nowhere".into())).unwrap();
        registry.begin();
        let attach = |registry: &mut Registry, session: u64, port: &str| {
            let ask = Ask::AttachPort { port: port.parse().unwrap(), shape: Shape::default() };
            let brought = Brought::Nothing;
            let asked = Asked { session, user: 1, ask, brought, keep: Keep::default() };
            registry.answer(asked, &mut |_| {}).unwrap()
        };
        let [one, other] = ["vale0:a", "vale1:a"].map(|port| port.parse().unwrap());
        let first = attach(&mut registry, 1, "vale0:a");
        attach(&mut registry, 2, "vale1:a");
        let before = registry.memory.used_bytes();
        let link = Arc::clone(&registry.switches.values().next().unwrap().link);
        link.send(Command::Stop).unwrap();
        let mut notices = Vec::new();
        while registry.port(&one).is_some() {
            registry.check_threads(&mut |notice| notices.push(notice));
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(registry.port(&other).is_some(), "the other switch goes on");
        let until = Instant::now() + Duration::from_secs(20);
        while registry.memory.used_bytes() != before / 2 {
            assert!(Instant::now() < until, "its memory is counted no more");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(notices.iter().any(|one| matches!(one, Notice::Fault { .. })), "{notices:?}");
        let Answer::Attached { attachment, .. } = first.answer else { panic!() };
        let told = registry.settle_trouble(&mut |_| {});
        assert!(
            matches!(&told[..], [(1, Answer::CutOff { attachment: its, .. })] if *its == attachment),
            "{told:?}"
        );
        attach(&mut registry, 1, "vale0:a");
    }
}
