//! The matcher against the obvious model: two vectors that are searched from the front.

use super::*;

#[derive(Debug, Clone)]
struct Wanted {
    source: Option<u32>,
    channel: Channel,
    bits: u64,
    ignore: u64,
    id: u64,
}

#[derive(Debug, Clone)]
struct Came {
    source: u32,
    channel: Channel,
    bits: u64,
    id: u64,
}

fn fits(wanted: &Wanted, came: &Came) -> bool {
    wanted.source.is_none_or(|source| source == came.source)
        && wanted.channel == came.channel
        && wanted.bits | wanted.ignore == came.bits | wanted.ignore
}

#[derive(Debug, Default)]
struct Oracle {
    posted: Vec<Wanted>,
    came: Vec<Came>,
}

fn posted(wanted: &Wanted) -> Posted {
    Posted {
        source: wanted.source.map(PeerId),
        channel: wanted.channel,
        bits: wanted.bits,
        ignore: wanted.ignore,
        buffer: BufferId(0),
        offset: 0,
        room: 0,
        multi: None,
        writers: 0,
        context: wanted.id,
        order: 0,
        link: Link::OUT,
    }
}

fn unexpected(came: &Came) -> Unexpected {
    Unexpected {
        source: came.source,
        channel: came.channel,
        bits: came.bits,
        data: None,
        length: came.id,
        handle: None,
        place: None,
        body: Body::Announced,
        session: 0,
        is_shown: false,
        by_source: Link::OUT,
        by_arrival: Link::OUT,
    }
}

fn check(steps: &[(u8, u8, u8, u8)]) {
    let mut matcher = Matcher::new();
    (0..3).for_each(|_| matcher.add_peer());
    let mut oracle = Oracle::default();
    for (id, &(step, who, bits, mask)) in steps.iter().enumerate() {
        let id = id as u64;
        let channel = if step & 16 == 0 { Channel::Tagged } else { Channel::Plain };
        // Few bits, so that much matches, and one far up.
        let bits = u64::from(bits & 3) | u64::from(bits & 4) << 60;
        let ignore =
            if mask & 8 == 0 { 0 } else { u64::from(mask & 3) | u64::from(mask & 4) << 60 };
        let source = (who & 1 == 0).then_some(u32::from(who / 2) % 3);
        let wanted = Wanted { source, channel, bits, ignore, id };
        match step % 5 {
            0 | 1 => {
                let came = Came { source: u32::from(who) % 3, channel, bits, id };
                let expected = oracle.posted.iter().position(|wanted| fits(wanted, &came));
                let found = matcher.posted_for(came.source, channel, bits);
                let found_id = found.map(|index| matcher.posted[index].context);
                assert_eq!(found_id, expected.map(|at| oracle.posted[at].id));
                if let (Some(index), Some(at)) = (found, expected) {
                    oracle.posted.remove(at);
                    matcher.unpost(index);
                    matcher.posted.remove(index);
                } else {
                    matcher.keep(unexpected(&came));
                    oracle.came.push(came);
                }
            }
            2 | 3 => {
                let expected = oracle.came.iter().position(|came| fits(&wanted, came));
                let source = source.map(PeerId);
                let found = matcher.unexpected_for(source, channel, bits, ignore);
                let found_id = found.map(|index| matcher.unexpected[index].length);
                assert_eq!(found_id, expected.map(|at| oracle.came[at].id));
                if let (Some(index), Some(at)) = (found, expected) {
                    oracle.came.remove(at);
                    matcher.withdraw(index);
                    matcher.unexpected.remove(index);
                } else {
                    matcher.post(posted(&wanted));
                    oracle.posted.push(wanted);
                }
            }
            _ if !oracle.posted.is_empty() => {
                let at = usize::from(who) % oracle.posted.len();
                let id = oracle.posted.remove(at).id;
                let found = |&index: &u32| matcher.posted[index].context == id;
                let index = matcher.posted.indices().find(found).expect("it was posted");
                matcher.unpost(index);
                matcher.posted.remove(index);
            }
            _ => {}
        }
        let awaited = (0..3).map(|source| matcher.is_awaited(source));
        let named = |source| oracle.posted.iter().any(|wanted| wanted.source == Some(source));
        assert!(awaited.eq((0..3).map(named)));
    }
}

#[test]
fn matches_as_two_vectors_would() {
    bolero::check!().with_type::<Vec<(u8, u8, u8, u8)>>().for_each(|steps| check(steps));
}

#[test]
fn matches_as_two_vectors_would_for_a_million_steps() {
    let mut random = stats::Random::from_seed(14);
    for _ in 0..2_000 {
        let steps: Vec<_> = (0..500).map(|_| random.bits().to_le_bytes()).collect();
        let steps: Vec<_> = steps.iter().map(|b| (b[0], b[1], b[2], b[3])).collect();
        check(&steps);
    }
}
