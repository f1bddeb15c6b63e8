//! Trust groups: ports of one switch whose clients share one memory, so that a frame for another member is handed over
//! without a copy.
//!
//! The memory has [`TRUST_SEATS`] seats, each with a transmit ring and a receive ring. Its members can read and write all
//! of it, as the two ends of a pipe can, and trust each other with its contents. Whose each buffer is stands in the
//! switch's own memory ([`Holders`]): the switch and all other ports depend on nothing that a member writes.
//!
//! A group exists as long as a port is a member. A switch that is started anew knows of none: members bring their memory
//! and the number of their seat.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::lent_memory::LentMemory;
use super::make::{self, MakeError};
use super::memory::Share;
use super::registry::{Answered, Refusal, Registry};
use crate::attachment::{Answer, Delivery, Shape, TRUST_SEATS, TrustSeat};
use crate::datapath::Holders;
use crate::name::{Name, PortName};

/// A memory and whose its buffers are. There may be several of one name: one for each [`TRUST_SEATS`] members, and those
/// that are older than the daemon.
#[derive(Debug)]
pub(super) struct TrustGroup {
    name: Name,
    user: u32,
    shape: Shape,
    /// The memory's device and number.
    identity: (u64, u64),
    memory: OwnedFd,
    holders: Holders,
    /// Of a memory that this daemon has made. Only such a one takes new members: of another it is not known which seats
    /// are somebody's who has yet to come back.
    share: Option<Share>,
}

/// A port's place in a group.
#[derive(Debug, Clone)]
pub(super) struct Member {
    group: Arc<TrustGroup>,
    pub(super) seat: u8,
}

impl Member {
    pub(super) fn group_name(&self) -> Name {
        self.group.name.clone()
    }

    /// Whose the buffers of its memory are.
    pub(super) fn holders(&self) -> &Holders {
        &self.group.holders
    }

    fn is_at(&self, group: &Arc<TrustGroup>, seat: u8) -> bool {
        Arc::ptr_eq(&self.group, group) && self.seat == seat
    }
}

impl Registry {
    /// A port that nobody has becomes a member of a group of its user's.
    pub(super) fn join_group(&mut self, user: u32, name: &PortName, group: Name) -> Answered {
        let port = self.port(name).ok_or_else(|| Refusal::NotThere(format!("port {name}")))?;
        if user != port.user && user != 0 {
            return Err(Refusal::Foreign(name.to_string()));
        }
        if port.client.is_some() || port.device.is_some() || port.trust.is_some() {
            return Err(Refusal::Taken(name.to_string()));
        }
        let (user, shape) = (port.user, port.shape);
        let is_open = |one: &TrustGroup| {
            one.share.is_some() && (&one.name, one.user, one.shape) == (&group, user, shape)
        };
        let free_seat = |of: &Arc<TrustGroup>| {
            (0..TRUST_SEATS).find(|&seat| self.members(name).all(|one| !one.is_at(of, seat)))
        };
        let open = self.members(name).filter(|one| is_open(&one.group)).find_map(|one| {
            Some(Member { group: Arc::clone(&one.group), seat: free_seat(&one.group)? })
        });
        let member = match open {
            Some(member) => member,
            None => Member { group: Arc::new(self.new_group(group, user, shape)?), seat: 0 },
        };
        let delivery = Delivery {
            answer: Answer::Seated { seat: member.seat },
            fds: vec![make::dup(&member.group.memory)?],
        };
        if let Some(port) = self.port_mut(name) {
            port.trust = Some(member);
        }
        Ok(delivery)
    }

    /// The place of a port whose client brings memory and says which seat of a group it has there; none of one that says
    /// nothing.
    pub(super) fn membership(
        &mut self,
        user: u32,
        name: &PortName,
        memory: &LentMemory,
        said: Option<TrustSeat>,
    ) -> Result<Option<Member>, Refusal> {
        let port = self.port(name).ok_or_else(|| Refusal::NotThere(format!("port {name}")))?;
        let only_its_own = || Refusal::Member(name.to_string());
        let Some(TrustSeat { group, seat }) = said else {
            return if port.trust.is_none() { Ok(None) } else { Err(only_its_own()) };
        };
        if user != port.user && user != 0 {
            return Err(Refusal::Foreign(name.to_string()));
        }
        if seat >= TRUST_SEATS {
            return Err(Refusal::Limit { what: "seats of a group", max: TRUST_SEATS.into() });
        }
        let wanted = (&group, port.user, port.shape, memory.identity);
        let fits = |one: &TrustGroup| (&one.name, one.user, one.shape, one.identity) == wanted;
        if let Some(member) = &port.trust {
            let is_it = member.seat == seat && fits(&member.group);
            return if is_it { Ok(Some(member.clone())) } else { Err(only_its_own()) };
        }
        let known = self.members(name).find(|one| one.group.identity == memory.identity);
        let group = match known.map(|one| &one.group) {
            Some(known) if !fits(known) => return Err(only_its_own()),
            Some(known) => Arc::clone(known),
            None => Arc::new(TrustGroup {
                name: group,
                user: port.user,
                shape: port.shape,
                identity: memory.identity,
                memory: make::memory_of(&memory.region)?,
                holders: make::holders(port.shape),
                share: None,
            }),
        };
        if self.members(name).any(|one| one.is_at(&group, seat)) {
            return Err(Refusal::Taken(format!("seat {seat} of {}", group.name)));
        }
        let member = Member { group, seat };
        if let Some(port) = self.port_mut(name) {
            port.trust = Some(member.clone());
        }
        Ok(Some(member))
    }

    /// All members of groups at the switch of a port.
    fn members(&self, name: &PortName) -> impl Iterator<Item = &Member> {
        let ports = self.switches.get(&name.switch).into_iter();
        ports.flat_map(|switch| switch.ports.values()).filter_map(|port| port.trust.as_ref())
    }

    fn new_group(&mut self, name: Name, user: u32, shape: Shape) -> Result<TrustGroup, Refusal> {
        let bytes = make::group_bytes(shape).map_err(MakeError::from)?;
        self.memory.reserve(bytes)?;
        let region = make::group_memory(shape, bytes)?;
        Ok(TrustGroup {
            name,
            user,
            shape,
            identity: region.file()?.unwrap_or_default(),
            memory: make::memory_of(&region)?,
            holders: make::holders(shape),
            share: Some(self.memory.take(bytes)),
        })
    }
}
