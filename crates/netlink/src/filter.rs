//! Packet filters of nf_tables (`nfnetlink`): tables with their chains and rules, and the transactions that change
//! them.
//!
//! A [`FilterTable`] is read and written whole. Two tables that are equal filter alike: numbers that the kernel
//! assigns (handles, use counts) are no part of a value. Of its sets and maps only those are read that rules fill
//! ([`FilterMap`]); stateful objects are not read.
//!
//! Numbers are those of the kernel's `include/uapi/linux/netfilter/{nfnetlink,nf_tables}.h`.

mod expression;
mod map;
mod transaction;

use crate::attribute::{Attribute, RawAttribute, read};
use crate::bytes::text_of;
use crate::encoder::{Encoder, TooLongError};
use crate::message::{Frame, Frames, Message, flag};
use crate::object::{MalformedError, split};
use crate::prefix::Family;

pub use expression::{Comparison, Expression, MetaKey, PayloadBase};
pub use map::FilterMap;
pub use transaction::{generation_of, generation_question, transaction};

/// `NFNL_SUBSYS_NFTABLES`.
const SUBSYSTEM: u8 = 10;

const NEW_TABLE: u8 = 0;
const GET_TABLE: u8 = 1;
const DELETE_TABLE: u8 = 2;
const NEW_CHAIN: u8 = 3;
const GET_CHAIN: u8 = 4;
const NEW_RULE: u8 = 6;
const DELETE_RULE: u8 = 8;
const GET_RULE: u8 = 7;
const NEW_SET: u8 = 9;
const GET_SET: u8 = 10;

const NFTA_TABLE_NAME: u16 = 1;
const NFTA_TABLE_FLAGS: u16 = 2;
const NFTA_TABLE_USE: u16 = 3;
const NFTA_TABLE_HANDLE: u16 = 4;
const NFTA_TABLE_PAD: u16 = 5;
const NFTA_CHAIN_TABLE: u16 = 1;
const NFTA_CHAIN_HANDLE: u16 = 2;
const NFTA_CHAIN_NAME: u16 = 3;
const NFTA_CHAIN_HOOK: u16 = 4;
const NFTA_CHAIN_POLICY: u16 = 5;
const NFTA_CHAIN_USE: u16 = 6;
const NFTA_CHAIN_TYPE: u16 = 7;
const NFTA_CHAIN_PAD: u16 = 9;
const NFTA_CHAIN_FLAGS: u16 = 10;
const NFTA_CHAIN_ID: u16 = 11;
const NFTA_HOOK_HOOKNUM: u16 = 1;
const NFTA_HOOK_PRIORITY: u16 = 2;
const NFTA_RULE_TABLE: u16 = 1;
const NFTA_RULE_CHAIN: u16 = 2;
const NFTA_RULE_HANDLE: u16 = 3;
const NFTA_RULE_EXPRESSIONS: u16 = 4;
const NFTA_RULE_POSITION: u16 = 6;
const NFTA_RULE_USERDATA: u16 = 7;
const NFTA_RULE_PAD: u16 = 8;
const NFTA_LIST_ELEM: u16 = 1;
/// `NFT_CHAIN_BASE`, which the kernel reports of chains that hang on a hook.
const CHAIN_BASE: u32 = 1;
/// `NFTNL_UDATA_RULE_COMMENT`: the kind of a rule's text in its user data, as `nft` writes it.
const COMMENT: u8 = 0;
/// Length of `struct nfgenmsg`.
const HEADER_BYTES: usize = 4;

/// A table of one address family.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FilterTable {
    /// Of packets of this family.
    pub family: Family,
    /// Its name, the only one of its family.
    pub name: String,
    /// Its chains, in the order in which they were made.
    pub chains: Vec<FilterChain>,
    /// Its maps that rules fill, in the order in which they were made.
    pub maps: Vec<FilterMap>,
    /// Attributes that have no field here, as they were read.
    pub other: Vec<RawAttribute>,
}

/// A chain of rules.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FilterChain {
    /// Its name, the only one of its table.
    pub name: String,
    /// Where packets enter it; `None`: from other chains only.
    pub hook: Option<FilterHook>,
    /// Its rules, in their order.
    pub rules: Vec<FilterRule>,
    /// Attributes that have no field here, as they were read.
    pub other: Vec<RawAttribute>,
}

/// Where packets enter a chain.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FilterHook {
    /// What the chain may do: `filter`, `nat`, `route`.
    pub kind: String,
    /// `NF_INET_…`; 0 is before routing.
    pub number: u32,
    /// Chains of one hook run from the lowest to the highest.
    pub priority: i32,
    /// What becomes of packets at its end: `NF_DROP` is 0, `NF_ACCEPT` 1.
    pub policy: u32,
}

impl FilterHook {
    /// `NF_ACCEPT`.
    pub const ACCEPT: u32 = 1;
    /// `NF_INET_PRE_ROUTING`.
    pub const BEFORE_ROUTING: u32 = 0;
    /// `NF_INET_LOCAL_OUT`: packets of this host's own sockets.
    pub const OUTPUT: u32 = 3;
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FilterRule {
    /// What it compares and does, in that order.
    pub expressions: Vec<Expression>,
    /// What programs keep with it; the kernel does not read it.
    pub user_data: Vec<u8>,
    /// Attributes that have no field here, as they were read.
    pub other: Vec<RawAttribute>,
}

impl FilterRule {
    /// A rule with a text, which `nft` shows as its comment.
    #[must_use]
    pub fn with_comment(expressions: Vec<Expression>, comment: &str) -> Self {
        let length = u8::try_from(comment.len() + 1).unwrap_or(0);
        let user_data = match length {
            0 => Vec::new(),
            length => [&[COMMENT, length], comment.as_bytes(), &[0]].concat(),
        };
        Self { expressions, user_data, other: Vec::new() }
    }

    /// Its text, if it has one and nothing else.
    #[must_use]
    pub fn comment(&self) -> Option<String> {
        let (&[COMMENT, length], text) = self.user_data.split_first_chunk::<2>()? else {
            return None;
        };
        (usize::from(length) == text.len()).then(|| text_of(text)).flatten()
    }

    fn parse(attributes: &[u8]) -> Result<([String; 2], Self), MalformedError> {
        const NAME: &str = "filter rule";
        let (mut table, mut chain) = (None, None);
        let mut rule = Self { expressions: Vec::new(), user_data: Vec::new(), other: Vec::new() };
        read(NAME, attributes, |attribute| {
            match attribute.kind() {
                NFTA_RULE_TABLE => table = Some(attribute.text(NAME)?),
                NFTA_RULE_CHAIN => chain = Some(attribute.text(NAME)?),
                NFTA_RULE_EXPRESSIONS => read(NAME, attribute.value, |element| {
                    rule.expressions.push(Expression::parse(element.value)?);
                    Ok(())
                })?,
                NFTA_RULE_USERDATA => rule.user_data = attribute.value.to_vec(),
                // Where it stands: the order of the list.
                NFTA_RULE_HANDLE | NFTA_RULE_POSITION | NFTA_RULE_PAD => {}
                _other => rule.other.push(attribute.keep()),
            }
            Ok(())
        })?;
        let missing = |kind| MalformedError::Missing { object: NAME, kind };
        let table = table.ok_or(missing(NFTA_RULE_TABLE))?;
        Ok(([table, chain.ok_or(missing(NFTA_RULE_CHAIN))?], rule))
    }

    fn message(&self, table: &FilterTable, chain: &str) -> Result<Message, TooLongError> {
        let mut encoder = heading(table.family.number());
        encoder.text(NFTA_RULE_TABLE, &table.name);
        encoder.text(NFTA_RULE_CHAIN, chain);
        encoder.nested(NFTA_RULE_EXPRESSIONS, |list| {
            for expression in &self.expressions {
                list.nested(NFTA_LIST_ELEM, |element| expression.encode(element));
            }
        });
        if !self.user_data.is_empty() {
            encoder.attribute(NFTA_RULE_USERDATA, &self.user_data);
        }
        encoder.raw(&self.other);
        message(NEW_RULE, flag::CREATE | flag::APPEND, encoder)
    }
}

impl FilterChain {
    fn parse(attributes: &[u8]) -> Result<(String, Self), MalformedError> {
        const NAME: &str = "filter chain";
        let (mut table, mut name) = (None, None);
        let (mut kind, mut place, mut policy) = (None, None, None);
        let mut other = Vec::new();
        read(NAME, attributes, |attribute| {
            match attribute.kind() {
                NFTA_CHAIN_TABLE => table = Some(attribute.text(NAME)?),
                NFTA_CHAIN_NAME => name = Some(attribute.text(NAME)?),
                NFTA_CHAIN_TYPE => kind = Some(attribute.text(NAME)?),
                NFTA_CHAIN_POLICY => policy = Some(big_endian(&attribute, NAME)?),
                NFTA_CHAIN_HOOK => place = Some(parse_hook(&attribute, &mut other)?),
                NFTA_CHAIN_FLAGS if big_endian(&attribute, NAME)? & !CHAIN_BASE == 0 => {}
                NFTA_CHAIN_HANDLE | NFTA_CHAIN_USE | NFTA_CHAIN_ID | NFTA_CHAIN_PAD => {}
                _other => other.push(attribute.keep()),
            }
            Ok(())
        })?;
        let hook = place.zip(kind).map(|((number, priority), kind)| FilterHook {
            kind,
            number,
            priority,
            policy: policy.unwrap_or(FilterHook::ACCEPT),
        });
        let missing = |kind| MalformedError::Missing { object: NAME, kind };
        let name = name.ok_or(missing(NFTA_CHAIN_NAME))?;
        let chain = Self { name, hook, rules: Vec::new(), other };
        Ok((table.ok_or(missing(NFTA_CHAIN_TABLE))?, chain))
    }

    fn message(&self, table: &FilterTable) -> Result<Message, TooLongError> {
        let mut encoder = heading(table.family.number());
        encoder.text(NFTA_CHAIN_TABLE, &table.name);
        encoder.text(NFTA_CHAIN_NAME, &self.name);
        if let Some(hook) = &self.hook {
            encoder.nested(NFTA_CHAIN_HOOK, |inner| {
                inner.attribute(NFTA_HOOK_HOOKNUM, &hook.number.to_be_bytes());
                inner.attribute(NFTA_HOOK_PRIORITY, &hook.priority.to_be_bytes());
            });
            encoder.attribute(NFTA_CHAIN_POLICY, &hook.policy.to_be_bytes());
            encoder.text(NFTA_CHAIN_TYPE, &hook.kind);
        }
        encoder.raw(&self.other);
        message(NEW_CHAIN, flag::CREATE | flag::EXCLUSIVE, encoder)
    }
}

impl FilterTable {
    /// The requests that make it and everything in it, in their order; for [`transaction()`].
    ///
    /// # Errors
    /// An attribute is too long.
    pub fn create(&self) -> Result<Vec<Message>, TooLongError> {
        let mut encoder = heading(self.family.number());
        encoder.text(NFTA_TABLE_NAME, &self.name);
        encoder.raw(&self.other);
        let mut messages = vec![message(NEW_TABLE, flag::CREATE | flag::EXCLUSIVE, encoder)?];
        for (map, number) in self.maps.iter().zip(1..) {
            messages.push(map.message(self, number)?);
        }
        for chain in &self.chains {
            messages.push(chain.message(self)?);
        }
        for chain in &self.chains {
            for rule in &chain.rules {
                messages.push(rule.message(self, &chain.name)?);
            }
        }
        Ok(messages)
    }

    /// The request that deletes a table and everything in it.
    ///
    /// # Errors
    /// The name is too long.
    pub fn delete(family: Family, name: &str) -> Result<Message, TooLongError> {
        let mut encoder = heading(family.number());
        encoder.text(NFTA_TABLE_NAME, name);
        message(DELETE_TABLE, 0, encoder)
    }

    /// What lists all tables of a family, their chains, their rules and their maps: four questions.
    #[must_use]
    pub fn dumps(family: Family) -> [Message; 4] {
        [GET_TABLE, GET_CHAIN, GET_RULE, GET_SET].map(|kind| Message {
            kind: kind_of(kind),
            flags: flag::DUMP,
            body: vec![family.number(), 0, 0, 0],
        })
    }

    /// The tables whose names `is_wanted` admits, from the answers to [`dumps`](Self::dumps), all of one moment.
    ///
    /// # Errors
    /// An answer has not the form of its object.
    pub fn assemble(
        [tables, chains, rules, maps]: [&[Vec<u8>]; 4],
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<Vec<Self>, MalformedError> {
        let mut all: Vec<Self> = Vec::new();
        for body in tables {
            all.extend(Self::parse(body, &is_wanted)?);
        }
        let is_of = |attributes: &[u8]| {
            crate::attribute::attribute(attributes, NFTA_CHAIN_TABLE)
                .and_then(text_of)
                .is_some_and(|name| is_wanted(&name))
        };
        for body in chains {
            take_in(&mut all, NEW_CHAIN, body, &is_of)?;
        }
        for body in rules {
            take_in(&mut all, NEW_RULE, body, &is_of)?;
        }
        for body in maps {
            take_in(&mut all, NEW_SET, body, &is_of)?;
        }
        Ok(all)
    }

    fn parse(
        body: &[u8],
        is_wanted: &dyn Fn(&str) -> bool,
    ) -> Result<Option<Self>, MalformedError> {
        const NAME: &str = "filter table";
        let (&[family, ..], attributes) = split::<HEADER_BYTES>(NAME, body)?;
        let mut name = None;
        let mut other = Vec::new();
        read(NAME, attributes, |attribute| {
            match attribute.kind() {
                NFTA_TABLE_NAME => name = Some(attribute.text(NAME)?),
                NFTA_TABLE_FLAGS if big_endian(&attribute, NAME)? == 0 => {}
                NFTA_TABLE_USE | NFTA_TABLE_HANDLE | NFTA_TABLE_PAD => {}
                _other => other.push(attribute.keep()),
            }
            Ok(())
        })?;
        let name = name.ok_or(MalformedError::Missing { object: NAME, kind: NFTA_TABLE_NAME })?;
        let family = match Family::from_number(family) {
            Some(family) if is_wanted(&name) => family,
            // Of several families at once, of bridges, of devices.
            _other => return Ok(None),
        };
        Ok(Some(Self { family, name, chains: Vec::new(), maps: Vec::new(), other }))
    }

    /// All of it as the messages that make it, one behind the other, for a journal.
    ///
    /// # Errors
    /// An attribute is too long.
    pub fn encode(&self) -> Result<Vec<u8>, TooLongError> {
        let mut bytes = Vec::new();
        for message in self.create()? {
            message.write(0, flag::REQUEST, &mut bytes);
        }
        Ok(bytes)
    }

    /// The table that [`encode`](Self::encode) wrote.
    ///
    /// # Errors
    /// The bytes are none of a table.
    pub fn decode(bytes: &[u8]) -> Result<Self, MalformedError> {
        let short = MalformedError::Short { object: "filter table", bytes_count: bytes.len() };
        let mut all: Vec<Self> = Vec::new();
        for frame in Frames::new(bytes) {
            let Frame { kind, body, .. } = frame?;
            let [kind, _subsystem] = kind.to_le_bytes();
            if kind == NEW_TABLE {
                all.extend(Self::parse(body, &|_name| true)?);
            } else {
                take_in(&mut all, kind, body, &|_attributes| true)?;
            }
        }
        match <[Self; 1]>::try_from(all) {
            Ok([table]) => Ok(table),
            Err(_none_or_several) => Err(short),
        }
    }
}

/// Puts a chain, a rule or a map, which the body of its message holds, into its table.
fn take_in(
    all: &mut [FilterTable],
    kind: u8,
    body: &[u8],
    is_wanted: &dyn Fn(&[u8]) -> bool,
) -> Result<(), MalformedError> {
    let (&[family, ..], attributes) = split::<HEADER_BYTES>("filter", body)?;
    if !is_wanted(attributes) {
        return Ok(());
    }
    let is_of = |table: &&mut FilterTable, name: &str| {
        table.family.number() == family && table.name == name
    };
    if kind == NEW_CHAIN {
        let (name, chain) = FilterChain::parse(attributes)?;
        if let Some(table) = all.iter_mut().find(|table| is_of(table, &name)) {
            table.chains.push(chain);
        }
    } else if kind == NEW_RULE {
        let ([name, chain], rule) = FilterRule::parse(attributes)?;
        let table = all.iter_mut().find(|table| is_of(table, &name));
        let chains = table.map(|table| table.chains.iter_mut());
        if let Some(chain) = chains.and_then(|mut chains| chains.find(|one| one.name == chain)) {
            chain.rules.push(rule);
        }
    } else if kind == NEW_SET
        && let Some((name, map)) = FilterMap::parse(attributes)?
        && let Some(table) = all.iter_mut().find(|table| is_of(table, &name))
    {
        table.maps.push(map);
    }
    Ok(())
}

/// The name of the table that a notification is about; `None` for other notifications.
#[must_use]
pub fn table_announced(frame: Frame<'_>) -> Option<String> {
    let [kind, subsystem] = frame.kind.to_le_bytes();
    if subsystem != SUBSYSTEM || kind > DELETE_RULE {
        return None;
    }
    crate::attribute::attribute(frame.body.get(HEADER_BYTES..)?, NFTA_TABLE_NAME).and_then(text_of)
}

fn parse_hook(
    attribute: &Attribute<'_>,
    other: &mut Vec<RawAttribute>,
) -> Result<(u32, i32), MalformedError> {
    const NAME: &str = "filter hook";
    let (mut number, mut priority) = (None, None);
    read(NAME, attribute.value, |inner| {
        match inner.kind() {
            NFTA_HOOK_HOOKNUM => number = Some(big_endian(&inner, NAME)?),
            NFTA_HOOK_PRIORITY => priority = Some(big_endian(&inner, NAME)?.cast_signed()),
            _device => other.push(attribute.keep()),
        }
        Ok(())
    })?;
    let missing = |kind| MalformedError::Missing { object: NAME, kind };
    let number = number.ok_or(missing(NFTA_HOOK_HOOKNUM))?;
    Ok((number, priority.ok_or(missing(NFTA_HOOK_PRIORITY))?))
}

/// A number as nf_tables has them.
fn big_endian(attribute: &Attribute<'_>, object: &'static str) -> Result<u32, MalformedError> {
    attribute.u32(object).map(u32::from_be)
}

fn heading(family: u8) -> Encoder {
    let mut encoder = Encoder::default();
    encoder.fixed(&[family, 0, 0, 0]);
    encoder
}

fn kind_of(kind: u8) -> u16 {
    u16::from_be_bytes([SUBSYSTEM, kind])
}

fn message(kind: u8, flags: u16, encoder: Encoder) -> Result<Message, TooLongError> {
    Ok(Message { kind: kind_of(kind), flags, body: encoder.finish()? })
}

#[cfg(test)]
mod tests;
