//! Connections that have not said their cookie, or wait for their turn.
//!
//! They are few, so that threads and descriptors stay bounded, but no number of silent ones keeps a client
//! out: when the places are taken, the newcomer gets that of the oldest connection of the address that has
//! most of them. A client says its cookie within a round trip, so only somebody who takes all places
//! anew in that time can displace it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use traffic::server::{most_frequent, owner_of};

/// The places of unidentified connections, by their numbers in the order of acceptance.
#[derive(Debug)]
pub(super) struct Unidentified {
    places: Mutex<BTreeMap<u64, Visitor>>,
    place_count_max: usize,
}

#[derive(Debug)]
struct Visitor {
    owner: IpAddr,
    stream: Arc<TcpStream>,
}

impl Unidentified {
    /// At most `place_count_max` connections (at least 1).
    pub(super) const fn new(place_count_max: usize) -> Self {
        Self { places: Mutex::new(BTreeMap::new()), place_count_max }
    }

    /// Gives the connection a place, if need be that of another, which is closed.
    pub(super) fn enter(&self, place: u64, from: IpAddr, stream: TcpStream) -> Arc<TcpStream> {
        let stream = Arc::new(stream);
        let mut places = self.places();
        if places.len() >= self.place_count_max
            && let Some(displaced) = displaced(&places)
            && let Some(visitor) = places.remove(&displaced)
        {
            // It may have gone already.
            visitor.stream.shutdown(Shutdown::Both).ok();
        }
        places.insert(place, Visitor { owner: owner_of(from), stream: Arc::clone(&stream) });
        stream
    }

    /// Frees the place; whether the connection still had it.
    pub(super) fn leave(&self, place: u64) -> bool {
        self.places().remove(&place).is_some()
    }

    fn places(&self) -> MutexGuard<'_, BTreeMap<u64, Visitor>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The oldest connection of the address that has most of them.
fn displaced(places: &BTreeMap<u64, Visitor>) -> Option<u64> {
    let owner = most_frequent(places.values().map(|visitor| visitor.owner))?;
    places.iter().find(|(_, visitor)| visitor.owner == owner).map(|(place, _)| *place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{ErrorKind, Read};
    use std::net::{Ipv4Addr, TcpListener};
    use std::time::Duration;

    fn address(last: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, last).into()
    }

    /// A connection whose other end is returned beside it.
    fn connection(listener: &TcpListener) -> (TcpStream, TcpStream) {
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        near.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        (near, listener.accept().unwrap().0)
    }

    fn is_closed(mut near: &TcpStream) -> bool {
        match near.read(&mut [0]) {
            Ok(count) => count == 0,
            Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        }
    }

    #[test]
    fn a_newcomer_displaces_the_oldest_of_the_address_with_most() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let places = Unidentified::new(4);
        let mut near = Vec::new();
        for (place, from) in [(1, 7), (2, 8), (3, 8), (4, 9), (5, 7), (6, 7)] {
            let (this_end, far_end) = connection(&listener);
            places.enter(place, address(from), far_end);
            near.push(this_end);
        }
        // With 5 the two of .8 were most, with 6 the two of .7.
        let closed: Vec<bool> = near.iter().map(is_closed).collect();
        assert_eq!(closed, [true, true, false, false, false, false]);
        let kept: Vec<bool> = (1..=6).map(|place| places.leave(place)).collect();
        assert_eq!(kept, [false, false, true, true, true, true]);
    }

    #[test]
    fn who_left_is_not_displaced() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let places = Unidentified::new(1);
        let (first, far_end) = connection(&listener);
        let stream = places.enter(1, address(1), far_end);
        assert!(places.leave(1));
        let (_second, far_end) = connection(&listener);
        places.enter(2, address(1), far_end);
        assert!(!is_closed(&first));
        assert!(Arc::into_inner(stream).is_some(), "the connection is its owner's alone");
    }
}
