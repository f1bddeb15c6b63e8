//! `poll` and `select`, and what they are called elsewhere.

use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use libc::{fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};
use rustix::io::Errno;

use super::process::ThisProcess;
use super::{TABLE, fail, inside, next};
use crate::descriptor::Descriptor;
use crate::wait;

/// The entries that are netmap's.
fn watched(entries: &[pollfd]) -> Vec<(usize, Arc<Descriptor>)> {
    let known = entries.iter().enumerate();
    known.filter_map(|(at, entry)| Some((at, TABLE.get(entry.fd)?))).collect()
}

fn to_timespec(timeout: Duration) -> timespec {
    timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    }
}

/// Waits for entries some of which are netmap's, with the signals of `mask` blocked meanwhile.
pub(super) fn wait_for(
    watched: &wait::Watched,
    entries: &mut [pollfd],
    timeout: Option<Duration>,
    mask: *const sigset_t,
) -> c_int {
    let mut sleep = |entries: &mut [pollfd], timeout: Option<Duration>| {
        let timeout = timeout.map(to_timespec);
        let until = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
        let count = entries.len() as nfds_t;
        // SAFETY: `entries` and `until` are ours, the mask is the caller's.
        unsafe { next::ppoll()(entries.as_mut_ptr(), count, until, mask) }
    };
    wait::poll(watched, entries, timeout, &ThisProcess, &mut sleep)
}

/// The caller's entries as a slice.
unsafe fn slice<'a>(entries: *mut pollfd, count: nfds_t) -> &'a mut [pollfd] {
    if entries.is_null() {
        return &mut [];
    }
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: whoever calls `poll` promises that many entries, its own until it returns.
    unsafe { std::slice::from_raw_parts_mut(entries, count) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn poll(entries: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    if !TABLE.is_empty() {
        // SAFETY: the caller's own arguments.
        let all = unsafe { slice(entries, count) };
        let ours = watched(all);
        let timeout = u64::try_from(timeout).ok().map(Duration::from_millis);
        if !ours.is_empty()
            && let Some(answer) = inside(|| wait_for(&ours, all, timeout, ptr::null()))
        {
            return answer;
        }
    }
    // SAFETY: the caller's own arguments.
    unsafe { next::poll()(entries, count, timeout) }
}

/// `poll` as programs call it that were built with checks.
#[unsafe(no_mangle)]
unsafe extern "C" fn __poll_chk(
    entries: *mut pollfd,
    count: nfds_t,
    timeout: c_int,
    _room: usize,
) -> c_int {
    // SAFETY: the caller's own arguments.
    unsafe { poll(entries, count, timeout) }
}

/// A timeout that a caller gave, none for none.
pub(super) unsafe fn duration(timeout: *const timespec) -> Option<Duration> {
    if timeout.is_null() {
        return None;
    }
    // SAFETY: not null, so by the call's contract a time.
    let timespec { tv_sec, tv_nsec } = unsafe { *timeout };
    let seconds = Duration::from_secs(tv_sec.try_into().unwrap_or(0));
    Some(seconds + Duration::from_nanos(tv_nsec.try_into().unwrap_or(0)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ppoll(
    entries: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    if !TABLE.is_empty() {
        // SAFETY: the caller's own arguments.
        let all = unsafe { slice(entries, count) };
        let ours = watched(all);
        // SAFETY: as above.
        let timeout = unsafe { duration(timeout) };
        if !ours.is_empty()
            && let Some(answer) = inside(|| wait_for(&ours, all, timeout, mask))
        {
            return answer;
        }
    }
    // SAFETY: the caller's own arguments.
    unsafe { next::ppoll()(entries, count, timeout, mask) }
}

/// `ppoll` as programs call it that were built with checks.
#[unsafe(no_mangle)]
unsafe extern "C" fn __ppoll_chk(
    entries: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    _room: usize,
) -> c_int {
    // SAFETY: the caller's own arguments.
    unsafe { ppoll(entries, count, timeout, mask) }
}

/// Bits of a word of an `fd_set`.
const WORD_BITS: usize = 64;

/// A caller's set of so many descriptors, a bit each; empty where it gave none.
unsafe fn bits<'a>(set: *mut fd_set, count: usize) -> &'a mut [u64] {
    if set.is_null() {
        return &mut [];
    }
    // SAFETY: whoever calls `select` promises as many bits as it counts descriptors, in whole words.
    unsafe { std::slice::from_raw_parts_mut(set.cast::<u64>(), count.div_ceil(WORD_BITS)) }
}

/// The three sets of a `select` as entries for `poll`, and back.
struct Sets<'a> {
    sets: [&'a mut [u64]; 3],
    entries: Vec<pollfd>,
}

/// What a set asks for, and which answers count.
const EVENTS: [(i16, i16); 3] = [
    (libc::POLLIN, libc::POLLIN | libc::POLLHUP | libc::POLLERR),
    (libc::POLLOUT, libc::POLLOUT | libc::POLLERR),
    (libc::POLLPRI, libc::POLLPRI),
];

impl<'a> Sets<'a> {
    unsafe fn new(count: c_int, sets: [*mut fd_set; 3]) -> Self {
        let number = usize::try_from(count).unwrap_or(0);
        // SAFETY: the caller's own arguments.
        let sets = sets.map(|set| unsafe { bits(set, number) });
        let mut entries = Vec::new();
        for fd in 0..count.max(0) {
            let mut events = 0;
            for (set, (asked, _)) in sets.iter().zip(EVENTS) {
                events |= if has(set, fd) { asked } else { 0 };
            }
            if events != 0 {
                entries.push(pollfd { fd, events, revents: 0 });
            }
        }
        Self { sets, entries }
    }

    /// Writes the answers into the sets; how many there are, or `EBADF`.
    fn answer(&mut self) -> c_int {
        if self.entries.iter().any(|entry| entry.revents & libc::POLLNVAL != 0) {
            return fail(Errno::BADF);
        }
        let mut ready = 0;
        for (set, (asked, counts)) in self.sets.iter_mut().zip(EVENTS) {
            set.fill(0);
            for entry in &self.entries {
                let at = usize::try_from(entry.fd).unwrap_or(0);
                if entry.events & asked != 0
                    && entry.revents & counts != 0
                    && let Some(word) = set.get_mut(at / WORD_BITS)
                {
                    *word |= 1 << (at % WORD_BITS);
                    ready += 1;
                }
            }
        }
        ready
    }
}

fn has(set: &[u64], fd: c_int) -> bool {
    let at = usize::try_from(fd).unwrap_or(0);
    set.get(at / WORD_BITS).is_some_and(|word| word >> (at % WORD_BITS) & 1 != 0)
}

/// `select` for sets with netmap in them; `None` when there is none.
unsafe fn select_with(
    count: c_int,
    sets: [*mut fd_set; 3],
    timeout: Option<Duration>,
    mask: *const sigset_t,
) -> Option<c_int> {
    if TABLE.is_empty() {
        return None;
    }
    // SAFETY: the caller's own arguments.
    let mut sets = unsafe { Sets::new(count, sets) };
    let ours = watched(&sets.entries);
    if ours.is_empty() {
        return None;
    }
    inside(|| match wait_for(&ours, &mut sets.entries, timeout, mask) {
        answer if answer < 0 => answer,
        _ => sets.answer(),
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    let left = if timeout.is_null() {
        None
    } else {
        // SAFETY: not null, so by the call's contract a time.
        let timeval { tv_sec, tv_usec } = unsafe { *timeout };
        let seconds = Duration::from_secs(tv_sec.try_into().unwrap_or(0));
        Some(seconds + Duration::from_micros(tv_usec.try_into().unwrap_or(0)))
    };
    // SAFETY: the caller's own arguments.
    let answer = unsafe { select_with(count, [read, write, except], left, ptr::null()) };
    match answer {
        Some(answer) => answer,
        // SAFETY: the caller's own arguments.
        None => unsafe { next::select()(count, read, write, except, timeout) },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's own arguments.
    let left = unsafe { duration(timeout) };
    // SAFETY: as above.
    let answer = unsafe { select_with(count, [read, write, except], left, mask) };
    match answer {
        Some(answer) => answer,
        // SAFETY: the caller's own arguments.
        None => unsafe { next::pselect()(count, read, write, except, timeout, mask) },
    }
}
