//! How often a round wakes a receiver: at most twice.
//!
//! Waking is a system call, and a client may ask for it at each delivery (ptnet guests do). If hundreds of ports that
//! flood each other do so, each round would have a call for every pair of them. So a receiver is woken at once by the
//! first frames that it sleeps for. Frames that follow in the same round are announced when it ends, if the receiver
//! sleeps again by then.

use std::sync::atomic::Ordering;

use shm::Bell;
use switch::vale::{PortId, PortSet};

#[cfg(test)]
use super::queues::QueueFault;
use super::{CutOff, Datapath, Link, Outlet, PortEnds};
use crate::counters::add;

/// The receivers of a round.
#[derive(Debug, Default)]
pub(super) struct Wakes {
    /// Woken in this round.
    woken: PortSet,
    /// Got frames after they were woken.
    owed: PortSet,
}

impl Wakes {
    /// Whether a port that just got frames is to be woken now. `sleeps` looks whether it has to be woken at all; a
    /// port that was woken before is looked at when the round [ends](Self::end_round).
    #[inline]
    pub(super) fn delivered(&mut self, port: PortId, sleeps: impl FnOnce() -> bool) -> bool {
        if self.woken.contains(port) {
            self.owed.insert(port);
            return false;
        }
        let wakes = sleeps();
        if wakes {
            self.woken.insert(port);
        }
        wakes
    }

    /// Begins the next round. The ports that are returned are to be woken if they sleep.
    #[inline]
    pub(super) fn end_round(&mut self) -> PortSet {
        self.woken = PortSet::default();
        std::mem::take(&mut self.owed)
    }
}

impl Datapath {
    /// Wakes receivers that were woken in this round, got frames after that, and sleep again.
    pub(super) fn wake_again(&mut self) {
        for queue in 0..self.wakes.len() {
            for id in self.wakes[queue].end_round().iter() {
                let Some(mut port) = self.ports[id.index()].take() else { continue };
                // Another port, with fewer rings, may have come to its place.
                let ring = port.outlets.get_mut(queue).is_some_and(Outlet::must_ring);
                match self.wake(&port, ring, |port| port.outlets.get(queue).map(Outlet::bell)) {
                    Ok(()) => self.ports[id.index()] = Some(port),
                    Err(why) => self.cut_off(port, why),
                }
            }
        }
    }

    /// Hands over what was delivered to a port, and wakes its client.
    pub(super) fn publish(&mut self, port: &mut PortEnds) -> Result<(), CutOff> {
        let queues = port.outlets.count();
        #[cfg(test)]
        let fault = port.outlets.fault;
        #[cfg(test)]
        let queues = queues - usize::from(queues > 1 && fault == Some(QueueFault::LastForgotten));
        for queue in 0..queues {
            let Some(outlet) = port.outlets.get_mut(queue) else { break };
            let wakes = queue;
            #[cfg(test)]
            let wakes = if fault == Some(QueueFault::SharedWakes) { 0 } else { wakes };
            let ring = outlet.publish(&mut port.marks)
                && self.wakes[wakes].delivered(port.id, || outlet.must_ring());
            self.wake(port, ring, |port| port.outlets.get(queue).map(Outlet::bell))?;
        }
        Ok(())
    }

    /// Rings a client's bell if it sleeps. Where that may block, the link says for whom while this thread is
    /// in the call (see [`Link`]).
    pub(super) fn wake(
        &self,
        port: &PortEnds,
        ring: bool,
        bell: impl FnOnce(&PortEnds) -> Option<&Bell>,
    ) -> Result<(), CutOff> {
        if !ring {
            return Ok(());
        }
        let Some(bell) = bell(port) else { return Ok(()) };
        add(&port.counters.wakeups, 1);
        let rung = if let Some(signaller) = &self.signaller {
            bell.ring_by(signaller)
        } else {
            self.wakeups.set(self.wakeups.get() + 1);
            let wake_up = Link::wake_up(self.wakeups.get(), port.serial);
            self.link.ringing.store(wake_up, Ordering::Relaxed);
            let rung = bell.ring();
            self.link.ringing.store(0, Ordering::Relaxed);
            rung
        };
        rung.map_err(|error| CutOff::Bell(error.source.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How a client asks to be woken.
    #[derive(Debug, Default, Clone, Copy, PartialEq)]
    enum Flag {
        #[default]
        Awake,
        /// Until it is woken.
        Sleeps,
        /// At each delivery, whatever has been rung.
        Always,
    }

    #[derive(Debug, Default, Clone, Copy)]
    struct Client {
        flag: Flag,
        /// Frames that it has neither taken nor been woken for since it fell asleep.
        unannounced: bool,
        rings_in_round: u32,
    }

    impl Client {
        /// The ring's own rule: once for each time it fell asleep, or always.
        fn must_ring(&mut self) -> bool {
            let rings = self.flag != Flag::Awake;
            if self.flag == Flag::Sleeps {
                self.flag = Flag::Awake;
            }
            rings
        }

        fn ring(&mut self) {
            self.unannounced = false;
            self.rings_in_round += 1;
        }
    }

    #[derive(Debug, Clone, Copy, bolero::TypeGenerator)]
    enum Step {
        Deliver(u8),
        /// Takes its frames, and sleeps.
        Sleep(u8),
        SleepAlways(u8),
        EndRound,
    }

    const PORTS: usize = 3;

    /// Whatever clients and deliveries do, nobody sleeps through the end of a round with frames, and nobody is woken
    /// more than twice in it.
    #[test]
    fn no_wake_is_lost_and_none_is_the_third() {
        bolero::check!().with_type::<Vec<Step>>().for_each(|steps| {
            let (mut wakes, mut clients) = (Wakes::default(), [Client::default(); PORTS]);
            for step in steps.iter().chain([&Step::EndRound]) {
                match *step {
                    Step::Deliver(number) => {
                        let index = usize::from(number) % PORTS;
                        let client = &mut clients[index];
                        client.unannounced |= client.flag != Flag::Awake;
                        let port = PortId::new(index).unwrap();
                        if wakes.delivered(port, || client.must_ring()) {
                            client.ring();
                        }
                    }
                    Step::Sleep(number) => {
                        let client = &mut clients[usize::from(number) % PORTS];
                        (client.flag, client.unannounced) = (Flag::Sleeps, false);
                    }
                    Step::SleepAlways(number) => {
                        let client = &mut clients[usize::from(number) % PORTS];
                        (client.flag, client.unannounced) = (Flag::Always, false);
                    }
                    Step::EndRound => {
                        for port in wakes.end_round().iter() {
                            if clients[port.index()].must_ring() {
                                clients[port.index()].ring();
                            }
                        }
                        for client in &mut clients {
                            assert!(!client.unannounced, "a wake is lost: {client:?}");
                            assert!(client.rings_in_round <= 2, "{client:?}");
                            client.rings_in_round = 0;
                        }
                    }
                }
            }
        });
    }

    #[test]
    fn the_first_frames_of_a_round_wake_at_once() {
        let (mut wakes, port) = (Wakes::default(), PortId::new(7).unwrap());
        for _ in 0..3 {
            assert!(!wakes.delivered(port, || false), "it is awake");
            assert!(wakes.delivered(port, || true));
            assert!(!wakes.delivered(port, || panic!("looked at")));
            assert!(wakes.end_round().iter().eq([port]));
        }
        assert_eq!(wakes.end_round(), PortSet::default());
    }
}
