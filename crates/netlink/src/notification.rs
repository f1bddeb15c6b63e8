//! What the kernel announces to those who subscribed.

use crate::address::Address;
use crate::filter::table_announced;
use crate::link::Link;
use crate::message::Frame;
use crate::neighbour::Neighbour;
use crate::nexthop::Nexthop;
use crate::object::{MalformedError, Object};
use crate::route::Route;
use crate::rule::Rule;

/// Groups of notifications (`RTNLGRP_…`).
pub mod group {
    /// Interfaces.
    pub const LINK: u32 = 1;
    /// Neighbours.
    pub const NEIGHBOUR: u32 = 3;
    /// IPv4 addresses.
    pub const ADDRESS_V4: u32 = 5;
    /// IPv4 routes. Routes that go with their interface are not announced.
    pub const ROUTE_V4: u32 = 7;
    /// IPv4 rules.
    pub const RULE_V4: u32 = 8;
    /// IPv6 addresses.
    pub const ADDRESS_V6: u32 = 9;
    /// IPv6 routes.
    pub const ROUTE_V6: u32 = 11;
    /// IPv6 rules.
    pub const RULE_V6: u32 = 19;
    /// Nexthop objects. Those that go with their interface are not announced.
    pub const NEXTHOP: u32 = 32;
    /// Packet filters (`NFNLGRP_NFTABLES`, of a socket for them).
    pub const FILTER: u32 = 7;
}

/// An object appeared, changed or went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notification {
    /// It went; otherwise it is new or changed. Of packet filters never: other parts of the table may remain.
    pub is_gone: bool,
    /// The object.
    pub object: Notified,
}

/// What a notification is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notified {
    /// An interface.
    Link(Link),
    /// An address.
    Address(Address),
    /// A route.
    Route(Route),
    /// A neighbour.
    Neighbour(Neighbour),
    /// A rule.
    Rule(Rule),
    /// A nexthop object.
    Nexthop(Nexthop),
    /// The packet filter table of this name, or something in it.
    FilterTable(String),
    /// An object of another kind, by the number of its message.
    Other(u16),
}

impl Notification {
    /// From a frame whose sequence number is 0, or any other that carries an object.
    ///
    /// # Errors
    /// The body has not the form of its object.
    pub fn parse(frame: Frame<'_>) -> Result<Self, MalformedError> {
        if let Some(name) = table_announced(frame) {
            return Ok(Self { is_gone: false, object: Notified::FilterTable(name) });
        }
        let base = frame.kind & !3;
        let body = frame.body;
        let object = match base {
            Link::NEW_KIND => Link::parse(body).map(Notified::Link)?,
            Address::NEW_KIND => Address::parse(body).map(Notified::Address)?,
            Route::NEW_KIND => Route::parse(body).map(Notified::Route)?,
            Neighbour::NEW_KIND => Neighbour::parse(body).map(Notified::Neighbour)?,
            Rule::NEW_KIND => Rule::parse(body).map(Notified::Rule)?,
            Nexthop::NEW_KIND => Nexthop::parse(body).map(Notified::Nexthop)?,
            _other => Notified::Other(frame.kind),
        };
        Ok(Self { is_gone: frame.kind & 3 == 1, object })
    }
}
