//! Which switches, ports and pipes there are, and who is attached to them.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use shm::{Bell, Region};
use switch::vale::{PORTS_MAX, PortId};
use sys::SyscallError;

use super::descriptor_threads::Brought;
use super::entries::{Client, Ends, Group, Port, Switch};
use super::jams::Jams;
use super::lent_memory::Lent;
use super::make::{self, Handout, MakeError, PipeGroup, Role};
use super::memory::Memory;
pub(super) use super::refusal::Refusal;
use super::session::SessionId;
use super::switches::Signallers;
use super::{Config, Notice};
use crate::attachment::{Answer, Ask, Delivery, Health, Kind, PIPES_MAX, PipeEnd, Shape};
use crate::datapath::{Command, PortEnds, Trouble};
use crate::deferred_drop::DeferredDrop;
use crate::device::Keep;
use crate::name::{Name, PortName};
use crate::threads::Threads;

/// Most switches.
pub(super) const SWITCHES_MAX: usize = 8;
/// Most attachments of one connection.
const ATTACHMENTS_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct Registry {
    pub(super) switches: BTreeMap<Name, Switch>,
    /// Switches without ports whose threads have been told to stop.
    pub(super) ending: Vec<Switch>,
    pub(super) groups: BTreeMap<Name, Group>,
    /// Memory of clients' own that is attached, or was and is still held by some thread.
    pub(super) lent: Vec<Lent>,
    pub(super) linger: Duration,
    pub(super) threads: Threads,
    pub(super) signallers: Signallers,
    pub(super) deferred_drop: DeferredDrop,
    pub(super) jams: Jams,
    /// The daemon's own user.
    pub(super) owner: u32,
    /// As lists say it.
    pub(super) health: Health,
    pub(super) memory: Memory,
    next_serial: u64,
    next_attachment: u32,
    pub(super) trouble: (Sender<Trouble>, Receiver<Trouble>),
    pub(super) trouble_bell: Bell,
    /// What those are to be told whose port was taken away.
    pub(super) farewells: Vec<(SessionId, Answer)>,
}

/// What came over a connection.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) session: SessionId,
    pub(super) user: u32,
    pub(super) ask: Ask,
    /// What the descriptors are that came with it.
    pub(super) brought: Brought,
    pub(super) keep: Keep,
}

pub(super) type Answered = Result<Delivery, Refusal>;

impl Registry {
    pub(super) fn new(config: &Config) -> Result<Self, SyscallError> {
        Ok(Self {
            switches: BTreeMap::new(),
            ending: Vec::new(),
            groups: BTreeMap::new(),
            lent: Vec::new(),
            linger: config.linger,
            threads: Threads { cores: config.cores.clone(), confined: false },
            signallers: Signallers::new(config.plain_bells),
            deferred_drop: DeferredDrop::default(),
            jams: Jams::default(),
            owner: rustix::process::geteuid().as_raw(),
            health: Health::default(),
            memory: Memory::new(config.memory_bytes_max),
            next_serial: 1,
            next_attachment: 1,
            trouble: mpsc::channel(),
            trouble_bell: Bell::new()?,
            farewells: Vec::new(),
        })
    }

    pub(super) fn trouble_bell(&self) -> &Bell {
        &self.trouble_bell
    }

    /// Does what a client asks.
    pub(super) fn answer(&mut self, asked: Asked, notice: &mut dyn FnMut(Notice)) -> Answered {
        let Asked { session, user, ask, brought, keep } = asked;
        match ask {
            Ask::AttachPort { port, shape } => {
                let delivery = self.attach_port(session, user, &port, shape)?;
                notice(Notice::Attached { name: port.to_string(), user });
                Ok(delivery)
            }
            Ask::SetHeader { port, header_bytes } => self.set_header(user, &port, header_bytes),
            Ask::Poll { port, always } => self.poll_always(user, &port, always),
            Ask::Watch { port } => self.watch(session, user, &port),
            Ask::AttachPipe { group, pipe, end } => {
                let delivery = self.attach_pipe(session, user, &group, pipe, end)?;
                notice(Notice::Attached { name: format!("{group} pipe {pipe}"), user });
                Ok(delivery)
            }
            Ask::OpenPipe { group, end, shape } => {
                let delivery = self.open_pipe(session, user, &group, end, shape)?;
                notice(Notice::Attached { name: format!("{group} pipe 0"), user });
                Ok(delivery)
            }
            Ask::Detach { attachment } => {
                self.detach(notice, |one, number| one == session && number == attachment);
                Ok(Answer::Done.into())
            }
            Ask::AddPort { port, shape } => self.add_port(user, &port, shape),
            Ask::AddPipes { group, pipes, shape } => self.add_pipes(user, group, pipes, shape),
            Ask::AddDevice { port, device, shape } => {
                let adopted = brought.device(&device)?;
                self.add_device(user, &port, &device, shape, adopted, keep)?;
                notice(Notice::Attached { name: port.to_string(), user });
                Ok(Answer::Done.into())
            }
            Ask::LendDevice { port, device, shape } => {
                let adopted = brought.device(&device)?;
                self.add_device(user, &port, &device, shape, adopted, keep)?;
                self.lend(&port, session);
                notice(Notice::Attached { name: port.to_string(), user });
                Ok(Answer::Done.into())
            }
            Ask::LendPort { port, shape } => {
                self.add_port(user, &port, shape)?;
                self.lend(&port, session);
                Ok(Answer::Done.into())
            }
            Ask::AttachMemory { port, is_fresh, trust } => {
                let (memory, how) = (brought.memory()?, (is_fresh, trust));
                let delivery = self.attach_memory(session, user, &port, memory, how)?;
                notice(Notice::Attached { name: port.to_string(), user });
                Ok(delivery)
            }
            Ask::JoinGroup { port, group } => self.join_group(user, &port, group),
            Ask::AddLink { one, other, link } => {
                self.add_link(user, &[one, other], &link)?;
                Ok(Answer::Done.into())
            }
            Ask::DeletePort { port } => self.delete_port(user, &port, notice),
            Ask::DeletePipes { group } => self.delete_pipes(user, &group, notice),
            Ask::List { after } => Ok(self.list(after.as_deref()).into()),
        }
    }

    fn attach_port(
        &mut self,
        session: SessionId,
        user: u32,
        name: &PortName,
        shape: Shape,
    ) -> Answered {
        self.check_pause(user, Instant::now())?;
        self.check_attachments(session)?;
        let ephemeral = self.port(name).is_none();
        if ephemeral {
            self.new_port(user, name, shape, Kind::Ephemeral)?;
        }
        let outcome = self.plug(session, user, name);
        if ephemeral && outcome.is_err() {
            self.forget_port(name);
        }
        outcome
    }

    /// Gives a free port's rings to a client and to the switch's thread.
    fn plug(&mut self, session: SessionId, user: u32, name: &PortName) -> Answered {
        if self.port(name).is_some_and(|port| port.trust.is_some()) {
            return Err(Refusal::Member(name.to_string()));
        }
        let (role, shape) = self.free_port(user, name, 0)?;
        let attachment = self.next_attachment();
        let header_bytes = role.header_bytes;
        let (ends, region, handout) = make::port(role, shape)?;
        self.join(name, (session, attachment), ends, (region, 0))?;
        Ok(attached(attachment, handout, header_bytes))
    }

    /// What a port that nobody has is to its switch, and its shape; there is memory for it, and `more`.
    pub(super) fn free_port(
        &mut self,
        user: u32,
        name: &PortName,
        more: u64,
    ) -> Result<(Role, Shape), Refusal> {
        let serial = self.next_serial();
        let port = self.port(name).ok_or_else(|| Refusal::NotThere(format!("port {name}")))?;
        if port.client.is_some() {
            return Err(Refusal::Taken(name.to_string()));
        }
        let (header_bytes, counters) = (port.header_bytes, Arc::clone(&port.counters));
        let role = Role { id: port.id, serial, user, header_bytes, counters };
        let shape = port.shape;
        let bytes = make::region_bytes(shape, 2).map_err(MakeError::from)?;
        self.memory.reserve(bytes.saturating_add(more))?;
        Ok((role, shape))
    }

    /// Hands a port's ends to its switch's thread, and writes down who sits at the others: with the region,
    /// and the bytes that the client takes besides.
    pub(super) fn join(
        &mut self,
        name: &PortName,
        (session, attachment): (SessionId, u32),
        ends: PortEnds,
        (region, client_bytes): (Weak<Region>, u64),
    ) -> Result<(), Refusal> {
        let not_there = || Refusal::NotThere(format!("port {name}"));
        let bells = ends.inlets.bells().chain(ends.outlets.bells()).map(Bell::share);
        let bells = bells.collect::<Result<_, _>>()?;
        let switch = self.switches.get_mut(&name.switch).ok_or_else(not_there)?;
        let port = switch.ports.get_mut(&name.port).ok_or_else(not_there)?;
        let (serial, user) = (ends.serial, ends.user);
        let bytes = client_bytes + make::region_bytes(port.shape, 2).map_err(MakeError::from)?;
        let wake_set = switch.link.wake_set();
        if let Err(error) = ends.kicks.iter().try_for_each(|kick| wake_set.add(kick)) {
            ends.kicks.iter().for_each(|kick| wake_set.remove(kick));
            return Err(error.into());
        }
        switch.link.send(Command::Add(Box::new(ends)))?;
        let lease = self.memory.lease(region, bytes);
        port.client = Some(Client { session, user, attachment, serial, lease, bells });
        Ok(())
    }

    fn attach_pipe(
        &mut self,
        session: SessionId,
        user: u32,
        name: &Name,
        pipe: u32,
        end: PipeEnd,
    ) -> Answered {
        self.check_attachments(session)?;
        let attachment = self.next_attachment();
        let no_group = || Refusal::NotThere(format!("group of pipes {name}"));
        let group = self.groups.get_mut(name).ok_or_else(no_group)?;
        if user != group.user && user != 0 {
            return Err(Refusal::Foreign(name.to_string()));
        }
        let full_name = || format!("pipe {pipe} of {name}");
        let ends =
            group.pipes.get_mut(pipe as usize).ok_or_else(|| Refusal::NotThere(full_name()))?;
        let place = ends.end(end);
        if place.is_some() {
            return Err(Refusal::Taken(format!("that end of {}", full_name())));
        }
        let handout = group.memory.handout(pipe, end)?;
        *place = Some((session, attachment));
        Ok(attached(attachment, handout, 0))
    }

    fn open_pipe(
        &mut self,
        session: SessionId,
        user: u32,
        name: &Name,
        end: PipeEnd,
        shape: Shape,
    ) -> Answered {
        if !self.groups.contains_key(name) {
            self.add_pipes(user, name.clone(), 1, shape)?;
            if let Some(group) = self.groups.get_mut(name) {
                group.ephemeral = true;
            }
        }
        let outcome = self.attach_pipe(session, user, name, 0, end);
        self.forget_deserted_groups();
        outcome
    }

    fn add_port(&mut self, user: u32, name: &PortName, shape: Shape) -> Answered {
        if self.port(name).is_some() {
            return Err(Refusal::Exists(name.to_string()));
        }
        self.new_port(user, name, shape, Kind::Port)?;
        Ok(Answer::Done.into())
    }

    fn add_pipes(&mut self, user: u32, name: Name, pipes: u32, shape: Shape) -> Answered {
        check_shape(shape)?;
        if !(1..=PIPES_MAX).contains(&pipes) {
            return Err(Refusal::Limit { what: "pipes of a group", max: PIPES_MAX.into() });
        }
        if self.groups.contains_key(&name) {
            return Err(Refusal::Exists(name.to_string()));
        }
        let bytes = make::region_bytes(shape, 2 * pipes).map_err(MakeError::from)?;
        self.memory.reserve(bytes)?;
        let memory = PipeGroup::new(shape, pipes)?;
        let share = self.memory.take(bytes);
        let pipes = (0..pipes).map(|_| Ends::default()).collect();
        self.groups
            .insert(name, Group { pipes, memory, ephemeral: false, shape, user, _share: share });
        Ok(Answer::Done.into())
    }

    pub(super) fn delete_port(
        &mut self,
        user: u32,
        name: &PortName,
        notice: &mut dyn FnMut(Notice),
    ) -> Answered {
        let port = self.port(name).ok_or_else(|| Refusal::NotThere(format!("port {name}")))?;
        if user != port.user && user != 0 {
            return Err(Refusal::Foreign(name.to_string()));
        }
        for name in self.ports_of_one_device(name) {
            let why = format!("{name} was removed");
            let tell =
                |(session, attachment)| (session, Answer::CutOff { attachment, why: why.clone() });
            let farewells: Vec<_> = self.attached_to(&name).into_iter().map(tell).collect();
            self.farewells.extend(farewells);
            let client = self.port(&name).and_then(|port| port.client.as_ref());
            if let Some(serial) = client.map(|client| client.serial) {
                self.detach_serial(serial, notice);
            }
            self.forget_port(&name);
        }
        Ok(Answer::Done.into())
    }

    fn delete_pipes(&mut self, user: u32, name: &Name, notice: &mut dyn FnMut(Notice)) -> Answered {
        let no_group = || Refusal::NotThere(format!("group of pipes {name}"));
        let group = self.groups.get(name).ok_or_else(no_group)?;
        if user != group.user && user != 0 {
            return Err(Refusal::Foreign(name.to_string()));
        }
        // Whoever is attached keeps the memory until it lets go; nobody else gets it.
        for (pipe, (session, attachment)) in group.attached() {
            notice(Notice::Detached { name: format!("{name} pipe {pipe}") });
            let why = format!("{name} was removed");
            self.farewells.push((session, Answer::CutOff { attachment, why }));
        }
        if let Some(group) = self.groups.remove(name) {
            self.deferred_drop.drop_later(group.user, Box::new(group));
        }
        Ok(Answer::Done.into())
    }

    /// A connection has closed.
    pub(super) fn leave(&mut self, session: SessionId, notice: &mut dyn FnMut(Notice)) {
        self.detach(notice, |one, _| one == session);
        self.take_back_lent(session, notice);
    }

    /// Clients that a switch cut off, or whose port was taken away: whom to tell what.
    pub(super) fn settle_trouble(
        &mut self,
        notice: &mut dyn FnMut(Notice),
    ) -> Vec<(SessionId, Answer)> {
        // The bell is ours alone.
        self.trouble_bell.clear().ok();
        let troubles: Vec<Trouble> = self.trouble.1.try_iter().collect();
        let mut to_tell = std::mem::take(&mut self.farewells);
        for Trouble { serial, why } in troubles {
            let why = why.to_string();
            if let Some((name, port)) = self.port_of(serial) {
                port.last_cut_off = Some(why.clone());
                let client = port.client.as_ref().map(|one| (one.session, one.attachment));
                notice(Notice::CutOff { name, why: why.clone() });
                let tell = |(session, attachment)| (session, Answer::CutOff { attachment, why });
                to_tell.extend(client.map(tell));
            }
            self.detach_serial(serial, notice);
        }
        to_tell
    }

    fn detach(&mut self, notice: &mut dyn FnMut(Notice), whom: impl Fn(SessionId, u32) -> bool) {
        self.unwatch(&whom);
        let serials: Vec<u64> = self
            .clients()
            .filter(|client| whom(client.session, client.attachment))
            .map(|client| client.serial)
            .collect();
        serials.into_iter().for_each(|serial| self.detach_serial(serial, notice));
        for (name, group) in &mut self.groups {
            for (pipe, ends) in group.pipes.iter_mut().enumerate() {
                for end in [&mut ends.master, &mut ends.slave] {
                    if end.take_if(|(session, number)| whom(*session, *number)).is_some() {
                        notice(Notice::Detached { name: format!("{name} pipe {pipe}") });
                    }
                }
            }
        }
        self.forget_deserted_groups();
    }

    fn forget_deserted_groups(&mut self) {
        let goes = |group: &Group| group.ephemeral && group.is_deserted();
        for (_, group) in self.groups.extract_if(.., |_, group| goes(group)) {
            self.deferred_drop.drop_later(group.user, Box::new(group));
        }
    }

    pub(super) fn detach_serial(&mut self, serial: u64, notice: &mut dyn FnMut(Notice)) {
        let Some((name, port)) = self.port_of(serial) else { return };
        let (id, ephemeral) = (port.id, port.kind == Kind::Ephemeral);
        let client = port.client.take();
        let bells = client.map(|client| {
            self.memory.end(client.lease);
            (client.user, client.bells)
        });
        notice(Notice::Detached { name: name.clone() });
        let Ok(name) = name.parse::<PortName>() else { return };
        if let Some(switch) = self.switches.get_mut(&name.switch) {
            switch.gone.extend(bells);
            // The link's bell is ours alone; it cannot break.
            switch.link.send(Command::Remove { id, serial }).ok();
        }
        if ephemeral {
            self.forget_port(&name);
        }
    }

    /// Everybody at a port.
    pub(super) fn clients(&self) -> impl Iterator<Item = &Client> {
        let ports = self.switches.values().flat_map(|switch| switch.ports.values());
        ports.filter_map(|port| port.client.as_ref())
    }

    /// A port's client and those who watch it.
    fn attached_to(&self, name: &PortName) -> Vec<(SessionId, u32)> {
        let client = self.port(name).and_then(|port| port.client.as_ref());
        let client = client.map(|client| (client.session, client.attachment));
        client.into_iter().chain(self.watchers_of(name)).collect()
    }

    pub(super) fn port(&self, name: &PortName) -> Option<&Port> {
        self.switches.get(&name.switch)?.ports.get(&name.port)
    }

    pub(super) fn port_mut(&mut self, name: &PortName) -> Option<&mut Port> {
        self.switches.get_mut(&name.switch)?.ports.get_mut(&name.port)
    }

    fn port_of(&mut self, serial: u64) -> Option<(String, &mut Port)> {
        self.switches.iter_mut().find_map(|(switch, entry)| {
            let mut ports = entry.ports.iter_mut();
            let its = |port: &Port| port.client.as_ref().is_some_and(|one| one.serial == serial);
            ports.find(|(_, port)| its(port)).map(|(name, port)| (format!("{switch}:{name}"), port))
        })
    }

    pub(super) fn new_port(
        &mut self,
        user: u32,
        name: &PortName,
        shape: Shape,
        kind: Kind,
    ) -> Result<(), Refusal> {
        check_shape(shape)?;
        let switch = self.switch(&name.switch)?;
        let free = |&number: &usize| switch.ports.values().all(|port| port.id.index() != number);
        let id = (0..PORTS_MAX)
            .find(free)
            .and_then(PortId::new)
            .ok_or(Refusal::Limit { what: "ports of a switch", max: PORTS_MAX as u64 })?;
        let counters = Arc::default();
        let port = Port {
            id,
            shape,
            kind,
            user,
            lender: None,
            counters,
            client: None,
            last_cut_off: None,
            device: None,
            watchers: Vec::new(),
            header_bytes: 0,
            trust: None,
        };
        switch.ports.insert(name.port.clone(), port);
        Ok(())
    }

    /// Takes a port out, and its switch when it was the last.
    pub(super) fn forget_port(&mut self, name: &PortName) {
        self.unwatch_port(name);
        let Some(switch) = self.switches.get_mut(&name.switch) else { return };
        if let Some(port) = switch.ports.remove(&name.port) {
            // The link's bell is ours alone; it cannot break.
            switch.link.send(Command::Poll { id: port.id, always: false }).ok();
            self.deferred_drop.drop_later(port.user, Box::new(port));
        }
        if switch.ports.is_empty()
            && let Some(switch) = self.switches.remove(&name.switch)
        {
            switch.stop();
            self.ending.push(switch);
        }
    }

    pub(super) fn check_attachments(&self, session: SessionId) -> Result<(), Refusal> {
        let at_ports = self.clients().filter(|client| client.session == session);
        let at_pipes = self.groups.values().flat_map(Group::attached);
        let at_pipes = at_pipes.filter(|(_, (one, _))| *one == session);
        if at_ports.count() + at_pipes.count() + self.watches_of(session) < ATTACHMENTS_MAX {
            return Ok(());
        }
        Err(Refusal::Limit { what: "attachments of a client", max: ATTACHMENTS_MAX as u64 })
    }

    pub(super) fn next_serial(&mut self) -> u64 {
        let serial = self.next_serial;
        self.next_serial += 1;
        serial
    }

    pub(super) fn next_attachment(&mut self) -> u32 {
        let attachment = self.next_attachment;
        self.next_attachment = self.next_attachment.wrapping_add(1);
        attachment
    }
}

pub(super) fn attached(attachment: u32, handout: Handout, header_bytes: u8) -> Delivery {
    let Handout { fds, rings } = handout;
    Delivery { answer: Answer::Attached { attachment, rings, header_bytes }, fds }
}

fn check_shape(shape: Shape) -> Result<(), Refusal> {
    if shape.is_possible() { Ok(()) } else { Err(Refusal::Shape(shape)) }
}
