//! The hash that `route-plan` computes is the kernel's: random flows, policies, weights, families and kinds of
//! multipath, each asked with `RTM_GETROUTE` in a network namespace of the test. Needs root and iproute2.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;

use netlink::{
    Bucket, Family, Link, Member, Mode, Nexthop, NexthopKind, Path, Prefix, Resilience, Route,
    RouteQuestion, Target,
};
use route_plan::{Flow, HashPolicy, bucket_of, member_of, new_buckets, upper_bounds};
use stats::Random;
use sys::netlink_socket::NetlinkSocket;

/// Flows of each policy, set of weights and family, through a plain multipath route and through groups.
const FLOWS_COUNT: usize = 10_000;
const WEIGHTS: [&[u16]; 3] = [&[1, 1, 1], &[5, 2, 1], &[256, 1, 100, 7]];
const SEEDS: [u32; 2] = [12_345, 4_000_000_000];
const POLICIES: [HashPolicy; 2] = [HashPolicy::Addresses, HashPolicy::Ports];
const GROUP: u32 = 100;
const BUCKETS_COUNT: u16 = 128;

/// A network namespace with an interface that has a network of each family, and many addresses.
struct Testbed {
    socket: NetlinkSocket,
    interface_index: u32,
    random: Random,
}

impl Testbed {
    /// For the calling thread; `None` without root.
    fn here() -> Option<Self> {
        let Ok(_namespace) = sys::namespace::unshare_network() else {
            println!("skipped: only root can create network namespaces");
            return None;
        };
        for line in [
            "link set lo up",
            "link add v0 type veth peer name v1",
            "link set v1 up",
            "link set v0 up",
            "addr add 10.100.0.1/16 dev v0",
            "addr add fd00:c::1/64 dev v0 nodad",
            // Every address of these is this host's own, so flows can come from any of them.
            "route add local 10.101.0.0/16 dev lo table local",
            "-6 route add local fd01::/16 dev lo table local",
        ] {
            let done = Command::new("ip").args(line.split(' ')).output().expect("iproute2");
            assert!(done.status.success(), "{line}: {}", String::from_utf8_lossy(&done.stderr));
        }
        let mut socket = NetlinkSocket::open().expect("a socket");
        let links = socket.list::<Link>(&Link::dump()).expect("links");
        let interface_index = links.iter().find(|link| link.name == "v0").expect("v0").index;
        Some(Self { socket, interface_index, random: Random::from_seed(1) })
    }

    fn set(&self, policy: HashPolicy, seed: u32) {
        let write = |name: &str, value: String| {
            std::fs::write(format!("/proc/sys/net/{name}"), value).expect(name);
        };
        write("ipv4/fib_multipath_hash_policy", policy.number().to_string());
        write("ipv6/fib_multipath_hash_policy", policy.number().to_string());
        write("ipv4/fib_multipath_hash_seed", seed.to_string());
    }

    /// A flow from one of this host's addresses to one behind the gateways.
    fn flow(&mut self, family: Family) -> Flow {
        let [a, b, c, d, e, f, g, h] = self.random.bits().to_be_bytes();
        let ends: [IpAddr; 2] = match family {
            Family::V4 => [Ipv4Addr::new(10, 101, a, b).into(), Ipv4Addr::new(10, 10, c, d).into()],
            Family::V6 => {
                let address = |first: u128, bits: u64| -> IpAddr {
                    Ipv6Addr::from_bits(u128::from(bits) | (first << 112)).into()
                };
                [address(0xfd01, self.random.bits()), address(0xfd05, self.random.bits())]
            }
        };
        let ports = [u16::from_be_bytes([e, f]).max(1), u16::from_be_bytes([g, h]).max(1)];
        let protocol = if a & 1 == 0 { 6 } else { 17 };
        Flow { protocol, ..Flow::tcp((ends[0], ports[0]), (ends[1], ports[1])) }
    }

    /// Index of the gateway by which the kernel would send the flow.
    fn asked(&mut self, flow: &Flow) -> usize {
        let question = RouteQuestion {
            source: Some(flow.source),
            flow: Some((flow.protocol, flow.source_port, flow.destination_port)),
            ..RouteQuestion::to(flow.destination)
        };
        let route = self.socket.find::<Route>(&question.message()).expect("a route");
        let Target::Paths(paths) = &route.target else { panic!("{route:?}") };
        let gateway = paths[0].gateway.expect("by a gateway");
        let found = (0..8).find(|&index| gateway_address(Family::of(gateway), index) == gateway);
        found.unwrap_or_else(|| panic!("{gateway} is none of the gateways"))
    }

    fn route(&mut self, family: Family, target: Target) {
        let to: IpAddr = match family {
            Family::V4 => "10.10.0.0".parse().unwrap(),
            Family::V6 => "fd05::".parse().unwrap(),
        };
        let route = Route::new(Prefix::new(to, 16).unwrap(), target);
        self.socket.create(&route, Mode::Replace).expect("a route");
    }

    fn paths(&self, family: Family, weights: &[u16]) -> Target {
        let path = |(index, &weight): (usize, &u16)| Path {
            interface_index: Some(self.interface_index),
            weight,
            ..Path::via(gateway_address(family, index))
        };
        Target::Paths(weights.iter().enumerate().map(path).collect())
    }

    /// Makes the group and the route over it anew.
    fn group(&mut self, family: Family, weights: &[u16], resilience: Option<Resilience>) {
        let group = Nexthop::group(GROUP, Vec::new());
        self.socket.delete(&group).ok();
        let mut members = Vec::new();
        for (index, &weight) in weights.iter().enumerate() {
            let id = 1 + u32::try_from(index).unwrap();
            let hop = Nexthop::via(id, gateway_address(family, index), self.interface_index);
            self.socket.delete(&hop).ok();
            self.socket.create(&hop, Mode::Create).expect("a nexthop");
            members.push(Member { id, weight });
        }
        let kind = NexthopKind::Group { members, resilience };
        self.socket.create(&Nexthop::new(GROUP, kind), Mode::Create).expect("a group");
        self.route(family, Target::Nexthop(GROUP));
    }
}

fn gateway_address(family: Family, index: usize) -> IpAddr {
    let last = 91 + u8::try_from(index).unwrap();
    match family {
        Family::V4 => Ipv4Addr::new(10, 100, 0, last).into(),
        Family::V6 => Ipv6Addr::new(0xfd00, 0xc, 0, 0, 0, 0, 0, last.into()).into(),
    }
}

/// Every combination of weights, policy, family and seed; seeds alternate.
fn combinations() -> impl Iterator<Item = (&'static [u16], HashPolicy, Family, u32)> {
    let families = [Family::V4, Family::V6];
    let each = WEIGHTS.into_iter().flat_map(move |weights| {
        let policies = POLICIES.into_iter();
        policies.flat_map(move |policy| families.map(|family| (weights, policy, family)))
    });
    each.zip(SEEDS.into_iter().cycle())
        .map(|((weights, policy, family), seed)| (weights, policy, family, seed))
}

#[test]
fn the_computed_hash_is_the_kernel_s_for_plain_routes_root() {
    let Some(mut bed) = Testbed::here() else { return };
    for (weights, policy, family, seed) in combinations() {
        bed.set(policy, seed);
        let target = bed.paths(family, weights);
        bed.route(family, target);
        let bounds = upper_bounds(weights);
        for _flow in 0..FLOWS_COUNT {
            let flow = bed.flow(family);
            let predicted = member_of(flow.hash(seed, policy), &bounds).expect("a member");
            assert_eq!(predicted, bed.asked(&flow), "{flow:?} {weights:?} {policy:?} {seed}");
        }
    }
}

#[test]
fn the_computed_hash_is_the_kernel_s_for_groups_root() {
    let Some(mut bed) = Testbed::here() else { return };
    for (weights, policy, family, seed) in combinations() {
        bed.set(policy, seed);
        bed.group(family, weights, None);
        let bounds = upper_bounds(weights);
        for _flow in 0..FLOWS_COUNT {
            let flow = bed.flow(family);
            let predicted = member_of(flow.hash(seed, policy), &bounds).expect("a member");
            assert_eq!(predicted, bed.asked(&flow), "{flow:?} {weights:?} {policy:?} {seed}");
        }
    }
}

#[test]
fn the_computed_buckets_are_the_kernel_s_for_resilient_groups_root() {
    let Some(mut bed) = Testbed::here() else { return };
    for (weights, policy, family, seed) in combinations() {
        bed.set(policy, seed);
        let resilience = Resilience {
            buckets_count: BUCKETS_COUNT,
            idle_hundredths: 12_000,
            unbalanced_hundredths: 0,
        };
        bed.group(family, weights, Some(resilience));
        let mut listed = bed.socket.list::<Bucket>(&Bucket::dump(GROUP)).expect("buckets");
        listed.sort_by_key(|bucket| bucket.index);
        let listed: Vec<usize> = listed.iter().map(|bucket| bucket.nexthop as usize - 1).collect();
        let buckets = new_buckets(weights, BUCKETS_COUNT);
        assert_eq!(buckets, listed, "{weights:?}");
        for _flow in 0..FLOWS_COUNT {
            let flow = bed.flow(family);
            let bucket = bucket_of(flow.hash(seed, policy), BUCKETS_COUNT);
            let predicted = buckets[usize::from(bucket)];
            assert_eq!(predicted, bed.asked(&flow), "{flow:?} {weights:?} {policy:?} {seed}");
        }
    }
}
