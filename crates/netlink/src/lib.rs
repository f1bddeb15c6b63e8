//! The kernel's netlink messages as typed values: links, addresses, routes, rules, nexthop objects,
//! neighbours and queueing disciplines (`rtnetlink(7)`), packet filters (`nft(8)`), TCP connections (`sock_diag(7)`), and
//! the frame that generic netlink shares.
//!
//! This crate is pure: bytes to values and back, no sockets. `sys::netlink_socket` sends and receives.
//!
//! - An [`Object`] is what the kernel lists and announces, a [`Configurable`] one is created and deleted as a
//!   whole. [`create`], [`delete`] and the `dump` functions of each type make the [`Message`] that asks for it.
//! - A configurable value holds configuration, not state: what was read from a dump can be sent back, and the
//!   kernel then has the same object again. Attributes that this crate does not know are kept in
//!   `other`, in order, so a foreign object survives the way through a value.
//! - Everything that is wrong with a message is reported ([`MalformedError`]); nothing is left out silently.
//! - Parsers never panic, and what they allocate is bounded by the length of the message.
//!
//! Numbers are those of the kernel's `include/uapi/linux/{netlink,rtnetlink,fib_rules,nexthop,neighbour,
//! if_link,if_addr,sock_diag,inet_diag}.h`.

mod address;
mod answer;
mod attribute;
mod bytes;
mod connection;
mod discipline;
mod encoder;
mod filter;
mod generic;
mod link;
mod message;
mod metrics;
mod neighbour;
mod nexthop;
mod notification;
mod object;
mod prefix;
mod route;
mod rule;

pub use address::{Address, AddressFilter};
pub use answer::{Answer, KernelError};
pub use attribute::{Attribute, Attributes, RawAttribute, attribute};
pub use bytes::{address_of, text_of, u16_of, u32_of, u64_of};
pub use connection::Connection;
pub use discipline::{Discipline, DisciplineKind, ROOT};
pub use encoder::{Encoder, TooLongError};
pub use filter::{
    Comparison, Expression, FilterChain, FilterHook, FilterMap, FilterRule, FilterTable, MetaKey,
    PayloadBase, generation_of, generation_question, table_announced, transaction,
};
pub use generic::{family_number, family_question, generic_attributes, generic_dump};
pub use link::{Link, LinkSettings, VethPair};
pub use message::{Frame, Frames, Message, flag};
pub use metrics::{Metrics, metric};
pub use neighbour::{Neighbour, NeighbourFilter, neighbour_state};
pub use nexthop::{Bucket, Hop, Member, Nexthop, NexthopFilter, NexthopKind, Resilience};
pub use notification::{Notification, Notified, group};
pub use object::{
    Configurable, CreateError, MalformedError, Mode, Object, create, delete, protocol, scope, table,
};
pub use prefix::{Family, Prefix, PrefixError};
pub use route::{Path, Route, RouteFilter, RouteQuestion, Target, route_kind};
pub use rule::{Action, Mark, Ports, Rule};
