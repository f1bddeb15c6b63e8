//! Values survive the way through bytes, and hostile bytes are refused: every parser of the crate
//! under random values, cut bodies, changed bytes and noise.

use std::net::IpAddr;

use netlink::{
    Action, Address, Answer, Bucket, Configurable, Discipline, Family, Frames, Hop, Link, Mark,
    Member, Mode, Neighbour, Nexthop, NexthopKind, Notification, Object, Path, Ports, Prefix,
    RawAttribute, Resilience, Route, Rule, Target, create, delete, family_number,
};

/// Random material for one value.
type Material = (bool, [u8; 16], [u8; 8], [u16; 4], [u32; 8], u64, Vec<(u8, u16, u32, bool)>);

/// Takes numbers of the material one after another.
struct Source<'a> {
    material: &'a Material,
    is_v6: bool,
}

impl Source<'_> {
    fn address(&self, salt: u8) -> IpAddr {
        let mut bytes = self.material.1;
        bytes[3] ^= salt;
        let [a, b, c, d, ..] = bytes;
        if self.is_v6 { bytes.into() } else { [a, b, c, d].into() }
    }

    fn prefix(&self) -> Prefix {
        let family = Family::of(self.address(0));
        let bits = self.material.2[0] % (family.bits() + 1);
        let kept = u32::from(family.bits() - bits);
        let address: IpAddr = match self.address(0) {
            IpAddr::V4(v4) => {
                let bits = v4.to_bits().checked_shr(kept).unwrap_or(0);
                std::net::Ipv4Addr::from_bits(bits.checked_shl(kept).unwrap_or(0)).into()
            }
            IpAddr::V6(v6) => {
                let bits = v6.to_bits().checked_shr(kept).unwrap_or(0);
                std::net::Ipv6Addr::from_bits(bits.checked_shl(kept).unwrap_or(0)).into()
            }
        };
        Prefix::new(address, bits).unwrap()
    }

    fn selector(&self) -> Option<Prefix> {
        Some(self.prefix()).filter(|prefix| prefix.bits() > 0)
    }

    fn bit(&self, place: u32) -> bool {
        self.material.5 & (1 << place) != 0
    }

    fn maybe<T>(&self, place: u32, value: T) -> Option<T> {
        self.bit(place).then_some(value)
    }

    /// Attributes of kinds that no parser knows.
    fn other(&self) -> Vec<RawAttribute> {
        let kinds = [900, 901 | 1 << 15];
        let count = usize::from(self.material.2[1] % 3);
        let raw =
            |flagged_kind| RawAttribute { flagged_kind, value: self.material.1[..5].to_vec() };
        kinds.into_iter().take(count).map(raw).collect()
    }

    fn path(&self, &(salt, weight, index, is_onlink): &(u8, u16, u32, bool)) -> Path {
        Path {
            gateway: Some(self.address(salt)),
            interface_index: Some(index).filter(|&index| index > 0),
            weight: weight % 256 + 1,
            is_onlink,
            other: Vec::new(),
        }
    }

    fn route(&self) -> Route {
        let (_, _, bytes, _, words, _, list) = self.material;
        let target = match bytes[2] % 3 {
            0 => Target::None,
            1 => Target::Nexthop(words[0]),
            _paths => Target::Paths(list.iter().map(|one| self.path(one)).collect()),
        };
        let mut route = Route::new(self.prefix(), target);
        route.source = self.selector().filter(|_| self.bit(0));
        (route.tos, route.protocol, route.scope, route.kind) =
            (bytes[3], bytes[4], bytes[5], bytes[6]);
        route.table = words[1];
        route.priority = self.maybe(1, words[2]);
        route.preferred_source = self.maybe(2, self.address(9));
        if self.bit(3) {
            route.metrics.values.extend([(1, words[3]), (2, words[4]), (13, words[5])]);
        }
        route.metrics.congestion_control = self.maybe(4, "cubic".to_owned());
        route.other = self.other();
        route
    }

    fn rule(&self) -> Rule {
        let (_, _, bytes, halves, words, wide, _) = self.material;
        let action = match bytes[2] % 7 {
            0 => Action::Table(words[0]),
            1 => Action::Goto(words[0]),
            2 => Action::Nop,
            3 => Action::Blackhole,
            4 => Action::Unreachable,
            5 => Action::Prohibit,
            _other => Action::Other(9, words[0]),
        };
        Rule {
            is_inverted: self.bit(0),
            source: self.selector().filter(|_| self.bit(1)),
            destination: self.selector().filter(|_| self.bit(2)),
            tos: bytes[3],
            input_interface: self.maybe(3, "eth0".to_owned()),
            output_interface: self.maybe(4, "lo".to_owned()),
            mark: self.maybe(5, Mark { value: words[1], mask: words[2] }),
            users: self.maybe(6, (words[3], words[4])),
            ip_protocol: self.maybe(7, bytes[4]),
            source_ports: self.maybe(8, Ports { first: halves[0], last: halves[1] }),
            destination_ports: self.maybe(9, Ports { first: halves[2], last: halves[3] }),
            tunnel_id: self.maybe(10, *wide),
            is_l3mdev: self.bit(11),
            suppress_prefix_bits: self.maybe(12, words[5] >> 1),
            suppress_group: self.maybe(13, words[6] >> 1),
            protocol: bytes[5],
            other: self.other(),
            ..Rule::new(Family::of(self.address(0)), words[7], action)
        }
    }

    fn nexthop(&self) -> Nexthop {
        let (_, _, bytes, halves, words, _, list) = self.material;
        let family = Family::of(self.address(0));
        let member =
            |&(_, weight, id, _): &(u8, u16, u32, bool)| Member { id, weight: weight.max(1) };
        let resilience = Resilience {
            buckets_count: halves[0],
            idle_hundredths: words[1],
            unbalanced_hundredths: words[2],
        };
        let kind = match bytes[2] % 3 {
            0 => NexthopKind::Blackhole(family),
            1 => NexthopKind::Hop(Hop {
                family,
                interface_index: self.maybe(0, words[3]),
                gateway: self.maybe(1, self.address(1)),
                is_onlink: self.bit(2),
            }),
            _group => NexthopKind::Group {
                members: list.iter().map(member).collect(),
                resilience: self.maybe(3, resilience),
            },
        };
        Nexthop { id: words[0], protocol: bytes[3], kind, other: self.other() }
    }

    fn neighbour(&self) -> Neighbour {
        let (_, mac, bytes, halves, words, ..) = self.material;
        let hardware = mac[..usize::from(bytes[2] % 9)].to_vec();
        Neighbour {
            state: halves[0],
            flags: bytes[3],
            protocol: bytes[4],
            other: self.other(),
            ..Neighbour::permanent(words[0], self.address(0), hardware)
        }
    }

    fn interface_address(&self) -> Address {
        let (_, _, bytes, _, words, ..) = self.material;
        let address = self.address(0);
        Address {
            peer: self.maybe(0, self.address(1)).filter(|&peer| peer != address),
            scope: bytes[2],
            flags: words[1] & 0x716,
            label: self.maybe(1, "eth0:1".to_owned()),
            broadcast: self.maybe(2, self.address(2)),
            lifetimes_s: self.maybe(3, (words[2], words[3] >> 1)),
            other: self.other(),
            ..Address::new(words[0], address, bytes[3])
        }
    }
}

/// A value comes back from its bytes; its bytes, cut anywhere or changed anywhere, are read or refused.
fn survives<O: Configurable + PartialEq + std::fmt::Debug>(value: &O, noise: u8) {
    let body = create(value, Mode::Create).unwrap().body;
    assert_eq!(O::parse(&body).as_ref(), Ok(value));
    delete(value).unwrap();
    let mut changed = body.clone();
    for at in 0..body.len() {
        O::parse(&body[..at]).ok();
        changed[at] ^= noise | 1;
        settles::<O>(&changed);
        changed[at] = body[at];
    }
}

/// What can be read at all stays the same when it is written and read again.
fn settles<O: Configurable + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
    if let Ok(value) = O::parse(bytes) {
        let again = create(&value, Mode::Create).unwrap().body;
        assert_eq!(O::parse(&again).as_ref(), Ok(&value), "{bytes:?}");
        assert!(again.len() <= bytes.len() + 256, "{bytes:?}");
    }
}

#[test]
fn values_survive_the_way_through_bytes() {
    bolero::check!().with_type::<Material>().for_each(|material| {
        let source = Source { material, is_v6: material.0 };
        let noise = material.2[7];
        survives(&source.route(), noise);
        survives(&source.rule(), noise);
        survives(&source.nexthop(), noise);
        survives(&source.neighbour(), noise);
        survives(&source.interface_address(), noise);
    });
}

#[test]
fn any_body_is_read_or_refused() {
    bolero::check!().for_each(|bytes: &[u8]| {
        settles::<Route>(bytes);
        settles::<Rule>(bytes);
        settles::<Nexthop>(bytes);
        settles::<Neighbour>(bytes);
        settles::<Address>(bytes);
        Link::parse(bytes).ok();
        Bucket::parse(bytes).ok();
        Discipline::parse(bytes).ok();
        family_number(bytes).ok();
    });
}

#[test]
fn any_datagram_is_taken_apart() {
    bolero::check!().for_each(|bytes: &[u8]| {
        for frame in Frames::new(bytes).flatten() {
            if let Ok(Answer::Data(object)) = frame.answer() {
                Notification::parse(object).ok();
            }
        }
    });
}

#[test]
fn rules_are_never_replaced() {
    let rule = Rule::new(Family::V4, 100, Action::Table(100));
    assert!(create(&rule, Mode::Create).is_ok());
    let error = create(&rule, Mode::Replace).unwrap_err();
    assert!(error.to_string().contains("cannot replace a rule"), "{error}");
}

#[test]
fn a_body_that_cannot_be_told_is_refused() {
    let member = Member { id: 1, weight: 1 };
    let fits = Nexthop::group(1, vec![member; 8191]);
    assert!(create(&fits, Mode::Create).is_ok());
    let error = create(&Nexthop::group(1, vec![member; 8192]), Mode::Create).unwrap_err();
    assert_eq!(error.to_string(), "netlink attribute 2 is longer than 65531 bytes");
}
