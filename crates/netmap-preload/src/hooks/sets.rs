//! Epoll sets with descriptors of netmap in them.
//!
//! The kernel's set does not hear of those; who waits for the set waits for it and for them.

use std::ffi::c_int;
use std::ptr;
use std::time::Duration;

use libc::{epoll_event, pollfd, sigset_t, timespec};
use rustix::io::Errno;

use super::waits::{duration, wait_for};
use super::{TABLE, answer, inside, next};
use crate::table::Interest;

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_ctl(
    set: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    if let Some(descriptor) = TABLE.get(fd) {
        let known = TABLE.interests(set).iter().any(|interest| interest.fd == fd);
        let asked = if event.is_null() {
            None
        } else {
            // SAFETY: not null, so by the call's contract an event.
            Some(unsafe { event.read_unaligned() })
        };
        let outcome = inside(|| match (operation, asked) {
            (libc::EPOLL_CTL_ADD, _) if known => Err(Errno::EXIST),
            (libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL, _) if !known => Err(Errno::NOENT),
            (
                libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD,
                Some(epoll_event { events, u64: data }),
            ) => {
                TABLE.watch(set, Interest { fd, descriptor, events, data });
                Ok(())
            }
            (libc::EPOLL_CTL_DEL, _) => {
                drop(TABLE.unwatch(set, fd));
                Ok(())
            }
            (_, None) => Err(Errno::FAULT),
            _ => Err(Errno::INVAL),
        });
        if let Some(outcome) = outcome {
            return answer(outcome);
        }
    }
    // SAFETY: the caller's own arguments.
    unsafe { next::epoll_ctl()(set, operation, fd, event) }
}

/// Waits for the kernel's set and for netmap's descriptors in it; `None` when there are none.
unsafe fn wait_with(
    set: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: Option<Duration>,
    mask: *const sigset_t,
) -> Option<c_int> {
    let interests = TABLE.interests(set);
    let room = usize::try_from(most).ok().filter(|room| *room > 0)?;
    if interests.is_empty() || events.is_null() {
        return None;
    }
    inside(|| {
        let events_of = |interest: &Interest| (interest.events & 0xffff) as i16;
        let mut entries: Vec<pollfd> = interests
            .iter()
            .map(|one| pollfd { fd: one.fd, events: events_of(one), revents: 0 })
            .collect();
        let ours: Vec<_> = interests.iter().map(|one| one.descriptor.clone()).enumerate().collect();
        entries.push(pollfd { fd: set, events: libc::POLLIN, revents: 0 });
        let answer = wait_for(&ours, &mut entries, timeout, mask);
        if answer <= 0 {
            return answer;
        }
        let mut count = 0;
        for (interest, entry) in interests.iter().zip(&entries) {
            if entry.revents != 0 && count < room {
                let events_now = u32::from(entry.revents as u16);
                let event = epoll_event { events: events_now, u64: interest.data };
                // SAFETY: the caller has room for `room` events, and `count` is less.
                let place = unsafe { events.add(count) };
                // SAFETY: as above.
                unsafe { place.write_unaligned(event) };
                count += 1;
            }
        }
        let rest = c_int::try_from(room - count).unwrap_or(0);
        if entries.last().is_some_and(|entry| entry.revents != 0) && rest > 0 {
            // SAFETY: `count` events are filled, and `rest` have room.
            let place = unsafe { events.add(count) };
            // SAFETY: as above; the wait is over, so this one takes no time.
            let more = unsafe { next::epoll_wait()(set, place, rest, 0) };
            count += usize::try_from(more).unwrap_or(0);
        }
        c_int::try_from(count).unwrap_or(most)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_wait(
    set: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    // SAFETY: the caller's own arguments.
    match unsafe { wait_with(set, events, most, milliseconds(timeout), ptr::null()) } {
        Some(answer) => answer,
        // SAFETY: the caller's own arguments.
        None => unsafe { next::epoll_wait()(set, events, most, timeout) },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_pwait(
    set: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's own arguments.
    match unsafe { wait_with(set, events, most, milliseconds(timeout), mask) } {
        Some(answer) => answer,
        // SAFETY: the caller's own arguments.
        None => unsafe { next::epoll_pwait()(set, events, most, timeout, mask) },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_pwait2(
    set: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's own arguments.
    let limit = unsafe { duration(timeout) };
    // SAFETY: as above.
    match unsafe { wait_with(set, events, most, limit, mask) } {
        Some(answer) => answer,
        // SAFETY: the caller's own arguments.
        None => unsafe { next::epoll_pwait2()(set, events, most, timeout, mask) },
    }
}

/// A negative one is none.
fn milliseconds(timeout: c_int) -> Option<Duration> {
    u64::try_from(timeout).ok().map(Duration::from_millis)
}
