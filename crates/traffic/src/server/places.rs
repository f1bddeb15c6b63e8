//! Places for clients, and the total of the memory and streams that they hold, for the whole server
//! and for each address. Everything is counted before it is allocated.
//!
//! An address here is an IPv4 address or an IPv6 network of 64 bits, all of which belongs to one
//! host.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::control::{Refusal, RefusalCode};
use crate::engine::Need;

/// A place whose holder has neither moved data nor requested anything for this long may be
/// reassigned.
pub(super) const RECLAIM_AFTER: Duration = Duration::from_secs(3);

/// Memory of a session before it requests anything, in bytes: its thread, and its messages while
/// they are parsed (a frame of 64 KiB takes up to 2 MiB when parsed).
pub(super) const SESSION_BYTES: u64 = 4 << 20;

/// The limits of the whole server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Caps {
    /// Clients at once.
    pub(super) places: usize,
    /// Clients at once from one address.
    pub(super) places_an_address: usize,
    /// Memory of all tests and sessions, in bytes.
    pub(super) bytes: u64,
    /// Streams of all tests.
    pub(super) streams: u64,
    /// An older session ends after its current test if other clients are waiting.
    pub(super) age: Duration,
}

impl Caps {
    /// The part of the server's resources that one address may use.
    fn of_one_address(self) -> Need {
        Need { bytes: self.bytes / 2, streams: self.streams / 2 }
    }
}

/// The places of all clients.
#[derive(Debug)]
pub(super) struct Places {
    caps: Caps,
    epoch: Instant,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    seats: Vec<Arc<Seat>>,
    /// Places whose thread has not ended, including those taken back.
    threads_count: usize,
    held: Need,
    of: HashMap<IpAddr, Need>,
}

#[derive(Debug)]
struct Seat {
    owner: IpAddr,
    since_ms: u64,
    /// When its holder was last active, in milliseconds after the epoch.
    active_ms: AtomicU64,
    is_taken_back: AtomicBool,
    goes_after_test: AtomicBool,
}

/// The address that a peer at `address` counts as: for IPv6 the first 64 bits.
#[must_use]
pub fn owner_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// Which of the owners has most; of several, the one that comes first. `None` without any.
///
/// A server that drops connections of this one keeps a flood from one address from displacing a slow
/// greeting from another.
pub fn most_frequent(owners: impl Iterator<Item = IpAddr>) -> Option<IpAddr> {
    let mut counts: HashMap<IpAddr, (usize, usize)> = HashMap::new();
    for (order, owner) in owners.enumerate() {
        counts.entry(owner).or_insert((0, usize::MAX - order)).0 += 1;
    }
    counts.into_iter().max_by_key(|(_, rank)| *rank).map(|(owner, _)| owner)
}

impl Places {
    pub(super) fn new(caps: Caps) -> Arc<Self> {
        Arc::new(Self { caps, epoch: Instant::now(), inner: Mutex::default() })
    }

    /// Assigns a place to one more client. If none is free, takes one back from an idle holder.
    ///
    /// # Errors
    /// `busy`: the client's address has all its places, all other holders are active, or the memory
    /// is in use.
    pub(super) fn enter(self: &Arc<Self>, peer: SocketAddr) -> Result<Place, Refusal> {
        let owner = owner_of(peer.ip());
        let now_ms = self.now_ms();
        let mut inner = self.lock();
        let own_count = inner.seats.iter().filter(|seat| seat.owner == owner).count();
        let Caps { places, places_an_address, .. } = self.caps;
        if own_count >= places_an_address && !inner.take_back(now_ms, |seat| seat.owner == owner) {
            return Err(busy(format!(
                "the server is busy: your address uses all of its {places_an_address} places (of \
                 {places}); try again later"
            )));
        }
        if inner.seats.len() >= places && !inner.take_back(now_ms, |_| true) {
            let age_ms = u64::try_from(self.caps.age.as_millis()).unwrap_or(u64::MAX);
            for seat in inner.seats.iter().filter(|seat| now_ms - seat.since_ms > age_ms) {
                seat.goes_after_test.store(true, Ordering::Relaxed);
            }
            return Err(busy(format!(
                "the server is busy: all of its {places} places are taken; try again later"
            )));
        }
        let need = Need { bytes: SESSION_BYTES, streams: 0 };
        let share = self.grant(&mut inner, owner, need)?;
        let seat = Arc::new(Seat {
            owner,
            since_ms: now_ms,
            active_ms: AtomicU64::new(now_ms),
            is_taken_back: AtomicBool::new(false),
            goes_after_test: AtomicBool::new(false),
        });
        inner.seats.push(Arc::clone(&seat));
        inner.threads_count += 1;
        Ok(Place { places: Arc::clone(self), seat, _share: share })
    }

    /// Number of sessions whose threads have not ended.
    #[cfg(test)]
    fn sessions_count(&self) -> usize {
        self.lock().threads_count
    }

    fn grant(
        self: &Arc<Self>,
        inner: &mut Inner,
        owner: IpAddr,
        need: Need,
    ) -> Result<Share, Refusal> {
        let most = self.caps.of_one_address();
        if !need.fits(most) {
            return Err(Refusal::new(
                RefusalCode::Limit,
                format!(
                    "this test needs {} of this server's memory and {} streams; the limit per \
                     address is {} and {}: use fewer streams, smaller buffers or longer \
                     intervals",
                    units::show_byte_size(need.bytes),
                    need.streams,
                    units::show_byte_size(most.bytes),
                    most.streams,
                ),
            ));
        }
        let own = inner.of.get(&owner).copied().unwrap_or_default();
        let all = Need { bytes: self.caps.bytes, streams: self.caps.streams };
        if !own.and(need).fits(most) || !inner.held.and(need).fits(all) {
            if own.and(need).fits(most) {
                // Free what an idle test holds, for the next request.
                inner.take_back_memory(self.now_ms());
            }
            return Err(busy(format!(
                "the server is busy: running tests use its memory ({}, at most half of that per \
                 address) or its streams ({}); try again later",
                units::show_byte_size(all.bytes),
                all.streams
            )));
        }
        inner.held = inner.held.and(need);
        inner.of.insert(owner, own.and(need));
        Ok(Share { places: Arc::clone(self), owner, need })
    }

    fn give_back(&self, owner: IpAddr, need: Need) {
        let mut inner = self.lock();
        inner.held = inner.held.less(need);
        let left = inner.of.get(&owner).copied().unwrap_or_default().less(need);
        if left == Need::default() {
            inner.of.remove(&owner);
        } else {
            inner.of.insert(owner, left);
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Every critical section leaves the sums consistent, so a panic elsewhere does not matter.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Takes back the place of an idle holder: of the address with most places, the one that has
    /// been idle longest. Its session ends within moments. Returns `false` if no holder is idle.
    fn take_back(&mut self, now_ms: u64, eligible: impl Fn(&Seat) -> bool) -> bool {
        let reclaim_ms = RECLAIM_AFTER.as_millis() as u64;
        let idle_ms = |seat: &Seat| now_ms.saturating_sub(seat.active_ms.load(Ordering::Relaxed));
        let of_owner = |owner| self.seats.iter().filter(|seat| seat.owner == owner).count();
        let idle = self
            .seats
            .iter()
            .enumerate()
            .filter(|(_, seat)| eligible(seat) && idle_ms(seat) >= reclaim_ms);
        let worst = idle.max_by_key(|(_, seat)| (of_owner(seat.owner), idle_ms(seat)));
        let Some((position, _)) = worst else { return false };
        self.seats.swap_remove(position).is_taken_back.store(true, Ordering::Relaxed);
        true
    }

    /// Ends the session of an idle holder, of the address with most memory. The memory is freed
    /// when the session's thread ends, moments later.
    fn take_back_memory(&mut self, now_ms: u64) {
        let reclaim_ms = RECLAIM_AFTER.as_millis() as u64;
        let bytes = |owner: IpAddr| self.of.get(&owner).map_or(0, |need| need.bytes);
        let idle = self.seats.iter().enumerate().filter(|(_, seat)| {
            now_ms.saturating_sub(seat.active_ms.load(Ordering::Relaxed)) >= reclaim_ms
        });
        let worst = idle.max_by_key(|(_, seat)| bytes(seat.owner)).map(|(position, _)| position);
        if let Some(position) = worst {
            self.seats.swap_remove(position).is_taken_back.store(true, Ordering::Relaxed);
        }
    }
}

fn busy(reason: String) -> Refusal {
    Refusal::new(RefusalCode::Busy, reason)
}

/// One client's place. Freed when dropped, or earlier when it is taken back.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    seat: Arc<Seat>,
    _share: Share,
}

impl Place {
    /// Records that the holder has requested something or moved data.
    pub(super) fn touch(&self) {
        self.seat.active_ms.store(self.places.now_ms(), Ordering::Relaxed);
    }

    /// Whether the place has been assigned to another client.
    pub(super) fn is_taken_back(&self) -> bool {
        self.seat.is_taken_back.load(Ordering::Relaxed)
    }

    /// Whether the session has lasted long and other clients are waiting.
    pub(super) fn goes_after_test(&self) -> bool {
        self.seat.goes_after_test.load(Ordering::Relaxed)
    }

    /// Reserves what a test needs until the share is dropped.
    ///
    /// # Errors
    /// `limit`: no address may have that much; `busy`: other tests hold it now.
    pub(super) fn take(&self, need: Need) -> Result<Share, Refusal> {
        self.touch();
        self.places.grant(&mut self.places.lock(), self.seat.owner, need)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut inner = self.places.lock();
        inner.seats.retain(|seat| !Arc::ptr_eq(seat, &self.seat));
        inner.threads_count = inner.threads_count.saturating_sub(1);
    }
}

/// Part of the server's resources. Returned when dropped.
#[derive(Debug)]
pub(super) struct Share {
    places: Arc<Places>,
    owner: IpAddr,
    need: Need,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.places.give_back(self.owner, self.need);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(places: usize, places_an_address: usize) -> Arc<Places> {
        let age = Duration::from_secs(3600);
        Places::new(Caps { places, places_an_address, bytes: 100 << 20, streams: 100, age })
    }

    fn peer(text: &str) -> SocketAddr {
        text.parse().expect("an address and port")
    }

    /// As if the holder had done nothing for so long.
    fn idle(place: &Place, patience: Duration) {
        let ms = u64::try_from(patience.as_millis()).expect("short");
        let since = &place.seat.active_ms;
        since.store(since.load(Ordering::Relaxed).saturating_sub(ms), Ordering::Relaxed);
    }

    /// The clock runs from `RECLAIM_AFTER` on, so that places can have been idle.
    fn aged(mut places: Arc<Places>) -> Arc<Places> {
        let before = Instant::now().checked_sub(10 * RECLAIM_AFTER).expect("the host is up");
        Arc::get_mut(&mut places).expect("nobody else").epoch = before;
        places
    }

    #[test]
    fn an_address_has_its_share_and_a_network_of_64_bits_is_one() {
        for (mine, also_mine, other) in [
            ("127.0.0.1:1", "[::ffff:127.0.0.1]:2", "127.0.0.2:1"),
            ("[2001:db8::1]:1", "[2001:db8::ffff:1]:9", "[2001:db8:0:1::1]:1"),
        ] {
            let all = places(8, 2);
            let _held =
                [all.enter(peer(mine)).expect("free"), all.enter(peer(mine)).expect("free")];
            let refusal = all.enter(peer(also_mine)).expect_err("the share is taken");
            assert_eq!(refusal.code, RefusalCode::Busy);
            assert!(refusal.reason.contains("2 places (of 8)"), "{refusal}");
            all.enter(peer(other)).expect("another address");
        }
    }

    #[test]
    fn a_place_that_does_nothing_goes_to_who_has_none() {
        let all = aged(places(3, 2));
        let first = all.enter(peer("127.0.0.1:1")).expect("free");
        let second = all.enter(peer("127.0.0.1:2")).expect("free");
        let third = all.enter(peer("127.0.0.2:1")).expect("free");
        assert_eq!(all.enter(peer("127.0.0.3:1")).expect_err("full").code, RefusalCode::Busy);
        idle(&third, 4 * RECLAIM_AFTER);
        idle(&second, 2 * RECLAIM_AFTER);
        let _new = all.enter(peer("127.0.0.3:1")).expect("a place taken back");
        assert!(second.is_taken_back(), "of the address that has most");
        assert!(!first.is_taken_back() && !third.is_taken_back());
        assert_eq!(all.sessions_count(), 4, "its thread has not ended yet");
        drop(second);
        assert_eq!(all.sessions_count(), 3);
        assert_eq!(all.lock().seats.len(), 3, "the place was not freed twice");
    }

    #[test]
    fn memory_of_a_test_that_does_nothing_is_there_for_who_asks_next() {
        let all = aged(places(8, 8));
        let half = Need { bytes: 46 << 20, streams: 50 };
        let silent = all.enter(peer("127.0.0.1:1")).expect("free");
        let busy = all.enter(peer("127.0.0.2:1")).expect("free");
        let held = [silent.take(half).expect("within"), busy.take(half).expect("within")];
        let enter = || all.enter(peer("127.0.0.3:1"));
        assert_eq!(enter().expect_err("all is out").code, RefusalCode::Busy);
        assert!(!silent.is_taken_back() && !busy.is_taken_back(), "both have just asked");
        idle(&silent, 2 * RECLAIM_AFTER);
        assert_eq!(enter().expect_err("not free yet").code, RefusalCode::Busy);
        assert!(silent.is_taken_back() && !busy.is_taken_back());
        let [its, _other] = held;
        drop((its, silent));
        enter().expect("its memory has come back");
    }

    #[test]
    fn sums_are_kept_and_come_back() {
        let all = places(8, 8);
        let need = |bytes: u64, streams| Need { bytes: bytes << 20, streams };
        let one = all.enter(peer("127.0.0.1:1")).expect("free");
        let other = all.enter(peer("127.0.0.2:1")).expect("free");
        assert_eq!(one.take(need(51, 0)).expect_err("beyond half").code, RefusalCode::Limit);
        assert_eq!(one.take(need(0, 51)).expect_err("beyond half").code, RefusalCode::Limit);
        let held = one.take(need(40, 50)).expect("within");
        assert_eq!(one.take(need(10, 0)).expect_err("its half is out").code, RefusalCode::Busy);
        assert_eq!(one.take(need(0, 1)).expect_err("its half is out").code, RefusalCode::Busy);
        let rest = other.take(need(40, 50)).expect("the other half");
        let third = all.enter(peer("127.0.0.3:1")).expect("free");
        assert_eq!(third.take(need(10, 0)).expect_err("all is out").code, RefusalCode::Busy);
        drop((held, rest));
        third.take(need(40, 50)).expect("given back");
        drop((one, other, third));
        let inner = all.lock();
        assert_eq!((inner.held, inner.of.len(), inner.threads_count), (Need::default(), 0, 0));
    }
}
