use super::*;
use crate::metrics::metric;
use crate::object::{Mode, create};

fn prefix(text: &str, bits: u8) -> Prefix {
    Prefix::new(text.parse().unwrap(), bits).unwrap()
}

fn body(route: &Route) -> Vec<u8> {
    create(route, Mode::Create).unwrap().body
}

/// `ip route add 10.1.0.0/16 via 192.0.2.1 dev 7 metric 10 mtu 9000 table 1000`, as Linux 6.18 lists it.
#[test]
fn a_route_is_encoded_as_the_kernel_lists_it() {
    let mut route = Route::new(
        prefix("10.1.0.0", 16),
        Target::Paths(vec![Path {
            interface_index: Some(7),
            ..Path::via("192.0.2.1".parse().unwrap())
        }]),
    );
    route.table = 1000;
    route.priority = Some(10);
    route.metrics.values.insert(metric::MTU, 9000);
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let heading = |kind: u16, length: u16| [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    let expected: Vec<u8> = [
        // family, 16 bits of destination, none of source, tos, "see attribute", ours, universe, unicast
        vec![2, 16, 0, 0, 252, 77, 0, 1],
        words(&[0]),
        heading(RTA_TABLE, 8),
        words(&[1000]),
        heading(RTA_DST, 8),
        vec![10, 1, 0, 0],
        heading(RTA_PRIORITY, 8),
        words(&[10]),
        heading(RTA_METRICS, 12),
        heading(metric::MTU, 8),
        words(&[9000]),
        heading(RTA_OIF, 8),
        words(&[7]),
        heading(RTA_GATEWAY, 8),
        vec![192, 0, 2, 1],
    ]
    .concat();
    assert_eq!(body(&route), expected);
    assert_eq!(Route::parse(&expected), Ok(route));
}

#[test]
fn paths_keep_weights_and_gateways_of_the_other_family() {
    let over = |gateway: &str, weight, index| Path {
        weight,
        interface_index: Some(index),
        ..Path::via(gateway.parse().unwrap())
    };
    let mut route = Route::new(
        Prefix::all(Family::V4),
        Target::Paths(vec![over("192.0.2.1", 1, 3), over("fe80::1", 256, 4)]),
    );
    assert_eq!(Route::parse(&body(&route)), Ok(route.clone()));
    // One path with a weight stays in the form that can hold a weight.
    route.target = Target::Paths(vec![over("fe80::1", 5, 4)]);
    assert_eq!(Route::parse(&body(&route)), Ok(route.clone()));
    route.target = Target::Paths(vec![Path { is_onlink: true, ..over("fe80::1", 1, 4) }]);
    assert_eq!(Route::parse(&body(&route)), Ok(route));
}

#[test]
fn routes_on_the_link_have_its_scope() {
    let near = |family| {
        let path = Path { interface_index: Some(2), ..Path::default() };
        Route::new(Prefix::all(family), Target::Paths(vec![path])).scope
    };
    assert_eq!(near(Family::V4), scope::LINK);
    assert_eq!(near(Family::V6), scope::UNIVERSE);
    let nexthop = Route::new(Prefix::all(Family::V4), Target::Nexthop(7));
    assert_eq!(nexthop.scope, scope::UNIVERSE);
}

/// With a nexthop object the kernel lists the gateway too, and refuses to be told both.
#[test]
fn a_route_over_a_nexthop_object_names_only_the_object() {
    let route = Route::new(prefix("10.0.0.0", 8), Target::Nexthop(9));
    let mut listed = body(&route);
    let mut more = Encoder::default();
    more.u32(RTA_OIF, 3);
    more.address(RTA_GATEWAY, "192.0.2.1".parse().unwrap());
    more.u16(RTA_ENCAP_TYPE, 1);
    listed.extend(more.finish().unwrap());
    assert_eq!(Route::parse(&listed), Ok(route));
}

#[test]
fn attributes_of_the_wrong_form_are_reported() {
    let route = Route::new(prefix("10.0.0.0", 8), Target::None);
    let with = |kind: u16, value: &[u8]| {
        let mut more = Encoder::default();
        more.attribute(kind, value);
        Route::parse(&[body(&route), more.finish().unwrap()].concat())
    };
    for kind in [RTA_GATEWAY, RTA_OIF, RTA_PRIORITY, RTA_TABLE, RTA_NH_ID, RTA_VIA, RTA_PREFSRC] {
        let error = MalformedError::Attribute { object: "route", kind, bytes_count: 3 };
        assert_eq!(with(kind, &[2, 0, 1]), Err(error));
    }
    let cut = Err(MalformedError::Cut { object: "route" });
    assert_eq!(with(RTA_METRICS, &[9, 0, 2, 0]), cut);
    assert_eq!(with(RTA_MULTIPATH, &[8, 0, 0, 0, 1, 0, 0]), cut);
    assert_eq!(with(RTA_MULTIPATH, &[7, 0, 0, 0, 1, 0, 0, 0]), cut);
    // A gateway that calls itself IPv6 and has four bytes.
    assert!(with(RTA_VIA, &[10, 0, 192, 0, 2, 1]).is_err());
    assert!(matches!(Route::parse(&[28; 12]), Err(MalformedError::Family { family: 28, .. })));
    let wide = [&[2, 33][..], &[0; 10]].concat();
    assert!(matches!(Route::parse(&wide), Err(MalformedError::Family { .. })));
    assert!(matches!(Route::parse(&[2; 11]), Err(MalformedError::Short { .. })));
}

#[test]
fn filters_admit_what_they_ask_for() {
    let route = Route::new(prefix("10.0.0.0", 8), Target::None);
    let all = RouteFilter::all(Family::V4);
    assert!(all.admits(&route) && !RouteFilter::all(Family::V6).admits(&route));
    assert!(!RouteFilter { table: Some(255), ..all }.admits(&route));
    assert!(!RouteFilter { protocol: Some(protocol::BOOT), ..all }.admits(&route));
}
