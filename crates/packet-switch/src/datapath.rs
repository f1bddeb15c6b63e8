//! A switch's thread: it carries frames from each port to the others, and sleeps when there are none.
//!
//! Ports take turns. A turn takes at most [`BATCH_SLOTS`] slots, and no more frames than its port's share
//! of the [work] pays for, so that nobody starves the others;
//! the frames are sorted by destination, and each destination is written once, and [woken](wake) if it sleeps. A full
//! destination drops (as VALE does); nobody waits for a slow one. Whoever breaks the protocol is
//! cut off on the spot.

mod cut_off;
mod inlet;
mod link;
mod marks;
mod monitor;
mod outlet;
mod queues;
mod resident;
mod sleep;
mod translate;
mod wake;
mod work;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use ring::Eagerness;
use shm::Bell;
use switch::frame::VnetHeader;
use switch::vale::{Addresses, Batch, DropReason, Forwarder, PortId, PortSet, Verdict};
use sys::SyscallError;
use sys::eventfd::Signaller;

pub(crate) use cut_off::{CutOff, Trouble};
pub(crate) use inlet::{FRAGMENTS_MAX, Inlet, Packet, Taken};
pub(crate) use link::{Command, Link};
pub(crate) use marks::{Holders, Marks};
pub(crate) use monitor::Monitor;
pub(crate) use outlet::Outlet;
pub(crate) use queues::{Inlets, Outlets};
pub(crate) use resident::Resident;
pub(crate) use work::Credit;

use crate::attachment::HEADERS_BYTES;
use crate::counters::{PortCounters, Tally, add};
use crate::deferred_drop::DeferredDrop;
use crate::panics;
use resident::Residents;
use translate::{Forms, Original};
use wake::Wakes;

/// Most slots that one port's turn takes.
pub(crate) const BATCH_SLOTS: usize = 256;

/// Fruitless rounds before the thread looks at the clock and lets others run: one of them may be the
/// client on this very core that has yet to answer.
const DRY_ROUNDS: u32 = 16;

/// One port as the thread has it.
#[derive(Debug)]
pub(crate) struct PortEnds {
    pub(crate) id: PortId,
    /// Unique in the daemon's life.
    pub(crate) serial: u64,
    /// Whose client it is.
    pub(crate) user: u32,
    pub(crate) inlets: Inlets,
    pub(crate) outlets: Outlets,
    pub(crate) marks: Marks,
    /// Bytes of virtio-net header before each of its frames: 0, 10 or 12.
    pub(crate) header_bytes: u8,
    /// Rung by the client when the switch sleeps, one for each transmit ring.
    pub(crate) kicks: Vec<Bell>,
    pub(crate) counters: Arc<PortCounters>,
    pub(crate) credit: Credit,
    /// The first port that has yet to get the frame that comes next: it costs more than a turn.
    pub(crate) rest: Option<PortId>,
}

impl PortEnds {
    /// Whether frames for the other port are handed over as they are, without a copy.
    #[inline]
    fn trades_with(&self, other: &Self) -> bool {
        self.marks.share_with(&other.marks) && self.header_bytes == other.header_bytes
    }
}

/// A switch at work.
pub(crate) struct Datapath {
    link: Arc<Link>,
    trouble: Sender<Trouble>,
    /// Rung after trouble was sent.
    control: Bell,
    ports: Vec<Option<Box<PortEnds>>>,
    /// Who watches which port.
    monitors: Vec<Vec<Monitor>>,
    watched: PortSet,
    forwarder: Forwarder,
    batch: Batch,
    taken: Taken,
    forms: Forms,
    /// Bytes of virtio-net header of each port.
    headers: Vec<u8>,
    rounds: u64,
    /// Work of a delivery beside copying.
    delivering: u64,
    steps: work::Steps,
    linger: Duration,
    eagerness: Eagerness,
    began: Instant,
    wakeups: Cell<u64>,
    /// Of the receive rings of the same number, as many as any port has.
    wakes: Vec<Wakes>,
    /// Ports that are to be polled without end.
    polled: PortSet,
    residents: Residents,
    /// Rings without waiting, where the kernel can.
    signaller: Option<Arc<Signaller>>,
    deferred_drop: DeferredDrop,
    /// Told to stop.
    is_stopped: bool,
    /// The next turn of this port panics.
    #[cfg(test)]
    fault: Option<PortId>,
}

impl Datapath {
    pub(crate) fn new(
        link: Arc<Link>,
        trouble: Sender<Trouble>,
        control: Bell,
        linger: Duration,
        seed: u64,
    ) -> Result<Self, SyscallError> {
        Ok(Self {
            link,
            trouble,
            control,
            ports: std::iter::repeat_with(|| None).take(switch::vale::PORTS_MAX).collect(),
            monitors: std::iter::repeat_with(Vec::new).take(switch::vale::PORTS_MAX).collect(),
            watched: PortSet::default(),
            forwarder: Forwarder::new(seed),
            batch: Batch::default(),
            taken: Taken::default(),
            forms: Forms::default(),
            headers: vec![0; switch::vale::PORTS_MAX],
            rounds: 0,
            delivering: 0,
            steps: work::Steps::default(),
            linger,
            eagerness: Eagerness::default(),
            began: Instant::now(),
            wakeups: Cell::new(0),
            wakes: vec![Wakes::default()],
            polled: PortSet::default(),
            residents: Residents::default(),
            signaller: None,
            deferred_drop: DeferredDrop::default(),
            is_stopped: false,
            #[cfg(test)]
            fault: None,
        })
    }

    /// How it rings doorbells, and the thread that drops for it what takes long to drop.
    pub(crate) fn equip(
        mut self,
        signaller: Option<Arc<Signaller>>,
        deferred_drop: DeferredDrop,
    ) -> Self {
        self.residents.set_deferred_drop(deferred_drop.clone());
        Self { signaller, deferred_drop, ..self }
    }

    /// To be called by the thread that is to [`run`](Self::run) it, while it may still read files.
    pub(crate) fn begin(&self) {
        self.link.begin();
    }

    /// Carries frames until told to stop.
    pub(crate) fn run(mut self) -> Result<(), SyscallError> {
        let mut idle_since = None;
        let mut dry_rounds = 0;
        loop {
            self.obey();
            if self.is_stopped {
                return Ok(());
            }
            let ports = *self.forwarder.ports();
            if self.round(&ports) > 0 {
                dry_rounds = 0;
                if let Some(since) = idle_since.take() {
                    self.eagerness.learn(self.linger, Instant::elapsed(&since));
                }
                continue;
            }
            dry_rounds += 1;
            if dry_rounds < DRY_ROUNDS {
                std::hint::spin_loop();
                continue;
            }
            let now = Instant::now();
            let since = *idle_since.get_or_insert(now);
            let linger = self.eagerness.of(self.linger);
            if now - since < linger || self.polled != PortSet::default() {
                std::thread::yield_now();
            } else {
                self.sleep()?;
                dry_rounds = 0;
            }
        }
    }

    /// One turn for each port; how many slots and packets that were.
    fn round(&mut self, ports: &PortSet) -> usize {
        // Whole seconds are enough for ageing and never run backwards.
        let now_s = u32::try_from(self.began.elapsed().as_secs()).unwrap_or(u32::MAX);
        let brought = self.residents.bring(now_s);
        self.rounds += 1;
        let share = work::share(ports.count());
        self.delivering = work::delivering(ports.count());
        let first = self.steps.begin();
        let is_sooner = |id: &PortId| first.is_none_or(|first| *id >= first);
        let order = ports.iter().filter(is_sooner).chain(ports.iter().filter(|id| !is_sooner(id)));
        let slots: usize = order.map(|id| self.turn(id, now_s, share)).sum();
        self.wake_again();
        brought + slots + self.residents.take_away()
    }

    fn turn(&mut self, id: PortId, now_s: u32, share: u64) -> usize {
        let Some(port) = &mut self.ports[id.index()] else { return 0 };
        // Who is told that it is attached gets every frame that anybody sends afterwards. Such a frame may have come
        // since the round began, so commands are looked at after it was seen and before it is routed.
        if port.inlets.look() {
            self.obey();
        }
        // Taken out while it is served, so that its frames can be written to the others.
        let Some(mut source) = self.ports[id.index()].take() else { return 0 };
        // A panic takes this port's client away and nobody else's.
        let outcome = panics::caught(|| self.serve(&mut source, now_s, share));
        match outcome.unwrap_or_else(|why| Err(CutOff::Fault(why))) {
            Ok(slots) => {
                self.ports[id.index()] = Some(source);
                slots
            }
            Err(why) => {
                self.cut_off(source, why);
                0
            }
        }
    }

    fn serve(&mut self, source: &mut PortEnds, now_s: u32, share: u64) -> Result<usize, CutOff> {
        #[cfg(test)]
        assert!(self.fault.take_if(|id| *id == source.id).is_none(), "asked for");
        let Some(credit) = source.credit.refill(share) else {
            // It pays for its last turns; its frames wait where they are.
            return source.inlets.current().has_some().map(usize::from);
        };
        source.inlets.current_mut().take(&mut source.marks, &mut self.taken)?;
        if self.taken.slots.is_empty() {
            return Ok(0);
        }
        let mut tally = Tally::default();
        let mut spent = self.sort(source, now_s, credit, &mut tally);
        let mut destinations = self.batch.destinations(self.forwarder.ports(), source.id);
        let begun = source.rest.take();
        if begun.is_some() || spent > credit {
            spent = self.portion(source, credit, begun, &mut destinations);
        }
        if !self.steps.take(source.id, spent.saturating_sub(credit)) {
            source.rest = begun;
            source.inlets.current().put_back(&mut source.marks, &mut self.taken, 0);
            return Ok(1);
        }
        if self.watched != PortSet::default() {
            self.show(source, &destinations, begun.is_none());
        }
        for id in destinations.iter() {
            let Some(mut port) = self.ports[id.index()].take() else { continue };
            match panics::caught(|| self.deliver(source, &mut port)) {
                Ok(Ok(())) => self.ports[id.index()] = Some(port),
                Ok(Err(why)) => self.cut_off(port, why),
                // Either may have caused it; neither's rings are to be believed now.
                Err(why) => {
                    self.cut_off(port, CutOff::Fault(why.clone()));
                    return Err(CutOff::Fault(why));
                }
            }
        }
        source.counters.incoming.add(&tally);
        source.credit.spend(spent);
        if source.rest.is_some() {
            source.inlets.current().put_back(&mut source.marks, &mut self.taken, 0);
            return Ok(1);
        }
        let count = self.taken.slots.len();
        let ring = source.inlets.release(&mut source.marks, &self.taken.slots);
        self.wake(source, ring, |port| Some(port.inlets.current().bell()))?;
        Ok(count)
    }

    /// Looks at the packets of the turn that the credit pays for, at least one, and notes where they go; what
    /// they cost. The others are left for the next turn.
    fn sort(&mut self, source: &mut PortEnds, now_s: u32, credit: u64, tally: &mut Tally) -> u64 {
        self.batch.clear();
        self.forms.clear();
        let skip = u32::from(source.header_bytes);
        let has_queues = self.wakes.len() > 1;
        let (mut spent, mut audience) = (0, None);
        for index in 0..self.taken.packets.len() {
            let packet = self.taken.packets[index];
            let fragments = self.taken.fragments(packet);
            let inlet = source.inlets.current();
            let verdict = match inlet.head(fragments, skip as usize) {
                _ if packet.bytes > work::PACKET_BYTES_MAX => Verdict::Drop(DropReason::TooLong),
                Some((head, bytes)) => {
                    self.forwarder.route(source.id, Addresses::of(&head), bytes, now_s)
                }
                None => Verdict::Drop(DropReason::TooShort),
            };
            if skip > 0 {
                self.forms.headers.push(inlet.header(fragments));
            }
            let cost = work::taking(packet.slots)
                + match verdict {
                    Verdict::Drop(_) => 0,
                    Verdict::To(port) if self.trades_with(source, port) => {
                        self.delivering + work::trading(packet.slots)
                    }
                    Verdict::To(port) => {
                        let (made, copied) = self.cost(source, index, port);
                        made + copied
                    }
                    Verdict::Flood => {
                        let audience = *audience.get_or_insert_with(|| self.audience(source.id));
                        let costs = audience
                            .into_iter()
                            .filter(|(_, count)| *count > 0)
                            .map(|(port, count)| (self.cost(source, index, port), count));
                        let (mut once, mut each) = (0, 0);
                        for ((made, copied), count) in costs {
                            (once, each) = (once.max(made), each + count * copied);
                        }
                        once + each
                    }
                };
            let is_late = source.rest.is_some() || spent + cost > credit;
            if index > 0 && is_late {
                source.inlets.current().put_back(&mut source.marks, &mut self.taken, index);
                break;
            }
            spent += cost;
            if source.rest.is_none() {
                tally.count(packet.bytes.saturating_sub(skip));
            }
            self.taken.packets[index].flood = verdict == Verdict::Flood;
            if has_queues {
                let fragments = self.taken.fragments(packet);
                let flow = source.inlets.current().flow(fragments, skip as usize);
                self.taken.packets[index].flow = flow;
            }
            self.batch.push(match verdict {
                Verdict::To(port) => Some(Some(port)),
                Verdict::Flood => Some(None),
                Verdict::Drop(reason) => {
                    tally.drop(reason);
                    None
                }
            });
        }
        spent
    }

    /// Everybody but one port, by what they need: a port of each kind and how many there are.
    fn audience(&self, but: PortId) -> [(PortId, u64); HEADERS_BYTES.len()] {
        HEADERS_BYTES.map(|header_bytes| {
            let all = self.forwarder.ports().iter().filter(|&id| id != but);
            let mut alike = all.filter(|id| self.headers[id.index()] == header_bytes);
            alike.next().map_or((but, 0), |first| (first, 1 + alike.count() as u64))
        })
    }

    fn trades_with(&self, source: &PortEnds, port: PortId) -> bool {
        // Of most ports the other need not be looked at.
        source.marks.is_shared()
            && self.ports[port.index()].as_ref().is_some_and(|port| source.trades_with(port))
    }

    /// What it takes to bring a packet of the turn to a port, at most: once for all such ports, and for each.
    fn cost(&self, source: &PortEnds, index: usize, port: PortId) -> (u64, u64) {
        let packet = self.taken.packets[index];
        let header_bytes = self.headers[port.index()];
        if header_bytes == source.header_bytes {
            return (0, self.delivering + work::copying(packet.bytes, packet.slots));
        }
        let packets = match self.forms.headers.get(index).and_then(|one| VnetHeader::parse(one)) {
            Some((header, _)) if header_bytes == 0 => header.packets_most(packet.bytes),
            _ => 1,
        };
        let copied = self.delivering + work::copying_parts(packet.bytes, packets);
        (work::making(packet.bytes, packets), copied)
    }

    /// Of the ports that a single packet goes to, from `begun` on, those that the credit pays for; what that
    /// costs. The others are the source's rest.
    fn portion(
        &self,
        source: &mut PortEnds,
        credit: u64,
        begun: Option<PortId>,
        destinations: &mut PortSet,
    ) -> u64 {
        let mut spent = work::taking(self.taken.packets[0].slots);
        let (mut now, mut once) = (PortSet::default(), 0);
        for id in destinations.iter().skip_while(|&id| begun.is_some_and(|begun| id < begun)) {
            let (made, copied) = self.cost(source, 0, id);
            if spent + copied + once.max(made) > credit && now != PortSet::default() {
                source.rest = Some(id);
                break;
            }
            once = once.max(made);
            spent += copied;
            now.insert(id);
        }
        *destinations = now;
        spent + once
    }

    fn deliver(&mut self, source: &PortEnds, port: &mut PortEnds) -> Result<(), CutOff> {
        let mut tally = Tally::default();
        for outlet in port.outlets.iter_mut() {
            outlet.refill(&mut port.marks)?;
        }
        // With two ports nobody else is there whose room could be taken.
        let room_for_others =
            if self.forwarder.ports().count() > 2 { port.outlets.first.spare() } else { 0 };
        for index in self.batch.packets_for(port.id) {
            let packet = self.taken.packets[index];
            if !packet.flood && source.trades_with(port) {
                let fragments = self.taken.fragments_mut(packet);
                let outlet = port.outlets.of_flow(packet.flow);
                let traded = outlet.trade(fragments, (&mut port.marks, &source.marks));
                tally.handed_over += u64::from(traded.is_ok());
                let frame_bytes = packet.bytes.saturating_sub(source.header_bytes.into());
                tally.settle(traded, frame_bytes as usize);
                continue;
            }
            let from = source.inlets.current().buffers();
            let (fragments, outlet) =
                (self.taken.fragments(packet), port.outlets.of_flow(packet.flow));
            let spare = if packet.flood { room_for_others } else { 0 };
            let header_bytes = source.header_bytes;
            if header_bytes == port.header_bytes {
                let frame_bytes = packet.bytes.saturating_sub(header_bytes.into());
                tally.settle(outlet.put(fragments, from, spare), frame_bytes as usize);
            } else {
                let original = Original { index, fragments, from, header_bytes };
                let (forms, header_bytes) = (&mut self.forms, port.header_bytes);
                outlet.put_translated(original, forms, header_bytes, spare, &mut tally);
            }
        }
        port.counters.outgoing.add(&tally);
        add(&port.counters.handed_over, tally.handed_over);
        self.publish(port)
    }

    fn cut_off(&mut self, port: Box<PortEnds>, why: CutOff) {
        let serial = port.serial;
        self.leave(port);
        let told = self.trouble.send(Trouble { serial, why });
        // Without a control thread the daemon is ending, and the client with it.
        if told.is_ok() {
            self.control.ring().ok();
        }
    }

    fn leave(&mut self, port: Box<PortEnds>) {
        self.forwarder.remove(port.id);
        port.kicks.iter().for_each(|kick| self.link.wake_set().remove(kick));
        self.deferred_drop.drop_later(port.user, port);
    }

    /// Does what the control thread asks.
    fn obey(&mut self) {
        if !self.link.has_commands() {
            return;
        }
        for command in self.link.take_commands() {
            match command {
                Command::Stop => self.is_stopped = true,
                Command::Reside { serial, resident } => {
                    self.residents.add(serial, resident);
                }
                Command::Add(port) => {
                    self.forwarder.add(port.id);
                    let index = port.id.index();
                    self.headers[index] = port.header_bytes;
                    let queues = self.wakes.len().max(port.outlets.count());
                    self.wakes.resize_with(queues, Wakes::default);
                    self.ports[index] = Some(port);
                }
                Command::SetHeader { id, header_bytes } => {
                    if let Some(port) = &mut self.ports[id.index()] {
                        self.headers[id.index()] = header_bytes;
                        port.header_bytes = header_bytes;
                    }
                }
                Command::Poll { id, always } => {
                    if always {
                        self.polled.insert(id);
                    } else {
                        self.polled.remove(id);
                    }
                }
                Command::Watch { id, monitor } => {
                    self.watched.insert(id);
                    self.monitors[id.index()].push(*monitor);
                }
                Command::Unwatch { id, serial } => {
                    let place = &mut self.monitors[id.index()];
                    let gone = place.extract_if(.., |monitor| monitor.serial == serial);
                    gone.for_each(|monitor| {
                        self.deferred_drop.drop_later(monitor.user, Box::new(monitor));
                    });
                    if place.is_empty() {
                        self.watched.remove(id);
                    }
                }
                Command::Remove { id, serial } => {
                    self.residents.remove(serial);
                    let place = &mut self.ports[id.index()];
                    if let Some(port) = place.take_if(|port| port.serial == serial) {
                        self.leave(port);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
