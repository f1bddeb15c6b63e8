//! Marks of UDP: a socket keeps none from the request, so a map remembers by which gateway a client has asked last, and
//! packets of this host to that client, between the same ports, get its mark before they are routed.
//!
//! Connection tracking would do the same; but a rule that names it has the kernel track every connection of the host, in a
//! table that drops packets when it is full. This map only forgets.

use netlink::{
    Comparison, Expression, Family, FilterChain, FilterHook, FilterMap, FilterRule, MetaKey,
    PayloadBase,
};

use super::PRIORITY;

/// The chain of packets that go.
const CHAIN: &str = "answer";
const MAP: &str = "asked";
/// A client that has not asked for longer than this is answered by the host's own choice.
const TIMEOUT_MS: u64 = 180_000;
/// Most pairs of a client's and a server's port.
const ENTRIES_COUNT_MAX: u32 = 65_536;
/// `IPPROTO_UDP`.
const UDP: u8 = 17;
const PORT_BYTES: u32 = 2;
/// In a UDP header.
const SOURCE_PORT: u32 = 0;
const DESTINATION_PORT: u32 = 2;
/// Types of `nft` (`enum datatypes`): marks, ports, and how several are one key: six bits each.
const MARK_TYPE: u32 = 19;
const PORT_TYPE: u32 = 13;
const TYPE_BITS: u32 = 6;
/// `NFT_REG32_00`, the first quarter of the first register.
const QUARTER: u32 = 8;

/// What differs between the families.
struct Layout {
    word: &'static str,
    address_type: u32,
    address_bytes: u32,
    /// In the network header.
    source: u32,
    destination: u32,
    /// Where the client's and the server's port are behind the address, and the value behind the key.
    registers: [u32; 3],
}

fn layout(family: Family) -> Layout {
    match family {
        Family::V4 => Layout {
            word: "ip",
            address_type: 7,
            address_bytes: 4,
            source: 12,
            destination: 16,
            registers: [QUARTER + 1, QUARTER + 2, 2],
        },
        // The first quarter of a register is called as the register is.
        Family::V6 => Layout {
            word: "ip6",
            address_type: 8,
            address_bytes: 16,
            source: 8,
            destination: 24,
            registers: [2, QUARTER + 5, 3],
        },
    }
}

pub(super) fn map(family: Family) -> FilterMap {
    let layout = layout(family);
    let address = layout.address_type;
    FilterMap {
        name: MAP.to_owned(),
        key_type: (address << TYPE_BITS | PORT_TYPE) << TYPE_BITS | PORT_TYPE,
        // Each part fills quarters of registers.
        key_bytes: layout.address_bytes + 4 + 4,
        data_type: MARK_TYPE,
        data_bytes: 4,
        timeout_ms: TIMEOUT_MS,
        entries_count_max: ENTRIES_COUNT_MAX,
    }
}

/// What the rule before does: it removes the entry of a client that has asked by another gateway before, because an entry
/// that is renewed keeps its value. The mark that is looked up is replaced by the next rule.
pub(super) fn forget(family: Family, mark: u32) -> Vec<Expression> {
    let layout = layout(family);
    let [_, _, register] = layout.registers;
    let key = || key(&layout, layout.source, [SOURCE_PORT, DESTINATION_PORT]);
    let mut steps = is_udp();
    steps.extend(key());
    steps.push(Expression::LookUp { map: MAP.to_owned() });
    steps.push(Expression::SetMeta(MetaKey::Mark));
    steps.push(Expression::LoadMeta(MetaKey::Mark));
    steps.push(Expression::Compare(Comparison::Unequal, mark.to_ne_bytes().to_vec()));
    steps.extend(key());
    steps.push(Expression::LoadMetaAt { register, key: MetaKey::Mark });
    steps.push(Expression::Forget { map: MAP.to_owned(), register });
    steps
}

/// What a rule that marks does besides: it makes or renews the entry of the client.
pub(super) fn remember(family: Family) -> Vec<Expression> {
    let layout = layout(family);
    let mut steps = is_udp();
    steps.extend(key(&layout, layout.source, [SOURCE_PORT, DESTINATION_PORT]));
    let [_, _, register] = layout.registers;
    steps.push(Expression::LoadMetaAt { register, key: MetaKey::Mark });
    steps.push(Expression::Remember { map: MAP.to_owned(), register });
    steps
}

/// The chain that marks packets of this host which have no mark of their application's.
pub(super) fn chain(family: Family) -> FilterChain {
    let layout = layout(family);
    let mut steps = vec![
        Expression::LoadMeta(MetaKey::Mark),
        Expression::Compare(Comparison::Equal, vec![0; 4]),
    ];
    steps.extend(is_udp());
    steps.extend(key(&layout, layout.destination, [DESTINATION_PORT, SOURCE_PORT]));
    steps.push(Expression::LookUp { map: MAP.to_owned() });
    steps.push(Expression::SetMeta(MetaKey::Mark));
    let hook = FilterHook {
        kind: "route".to_owned(),
        number: FilterHook::OUTPUT,
        priority: PRIORITY,
        policy: FilterHook::ACCEPT,
    };
    let rule = FilterRule { expressions: steps, user_data: Vec::new(), other: Vec::new() };
    FilterChain { name: CHAIN.to_owned(), hook: Some(hook), rules: vec![rule], other: Vec::new() }
}

fn is_udp() -> Vec<Expression> {
    vec![Expression::LoadMeta(MetaKey::Protocol), Expression::Compare(Comparison::Equal, vec![UDP])]
}

/// Loads the client's address, its port and the server's.
fn key(layout: &Layout, address: u32, ports: [u32; 2]) -> [Expression; 3] {
    let port = |offset_bytes, register| Expression::LoadPayloadAt {
        register,
        base: PayloadBase::Transport,
        offset_bytes,
        length_bytes: PORT_BYTES,
    };
    let [client, server, _] = layout.registers;
    [
        Expression::LoadPayload {
            base: PayloadBase::Network,
            offset_bytes: address,
            length_bytes: layout.address_bytes,
        },
        port(ports[0], client),
        port(ports[1], server),
    ]
}

pub(super) fn map_command(family: Family, place: &str) -> String {
    let address = format!("{}_addr", if family == Family::V4 { "ipv4" } else { "ipv6" });
    let seconds = TIMEOUT_MS / 1000;
    format!(
        "add map {place} {MAP} {{ type {address} . inet_service . inet_service : mark; flags dynamic,timeout; \
         timeout {seconds}s; size {ENTRIES_COUNT_MAX}; }}"
    )
}

/// With a blank before.
pub(super) fn forget_words(family: Family, mark: u32) -> String {
    let ip = layout(family).word;
    let key = format!("{ip} saddr . udp sport . udp dport");
    format!(
        " meta l4proto udp meta mark set {key} map @{MAP} meta mark != {mark} delete @{MAP} {{ {key} : meta mark }}"
    )
}

/// With a blank before.
pub(super) fn remember_words(family: Family) -> String {
    let ip = layout(family).word;
    format!(" meta l4proto udp update @{MAP} {{ {ip} saddr . udp sport . udp dport : meta mark }}")
}

pub(super) fn chain_commands(family: Family, place: &str) -> [String; 2] {
    let ip = layout(family).word;
    [
        format!(
            "add chain {place} {CHAIN} {{ type route hook output priority {PRIORITY}; policy accept; }}"
        ),
        format!(
            "add rule {place} {CHAIN} meta mark 0 meta l4proto udp meta mark set \
             {ip} daddr . udp dport . udp sport map @{MAP}"
        ),
    ]
}
