//! Opening, controlling, mapping, copying and closing descriptors.

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use std::os::fd::{BorrowedFd, IntoRawFd};
use std::sync::Arc;

use libc::{off_t, size_t};
use rustix::event::epoll;
use rustix::io::Errno;

use super::process::ThisProcess;
use super::{HOST, TABLE, answer, fail, inside, next};
use crate::memory::Memory;
use crate::{control, host};

const DEVICE: &CStr = c"/dev/netmap";

/// Whether a path is netmap's device.
unsafe fn is_device(path: *const c_char) -> bool {
    if path.is_null() {
        return false;
    }
    // SAFETY: the caller passes on a path that its caller gave to `open`: it ends with a zero.
    unsafe { CStr::from_ptr(path) == DEVICE }
}

/// A descriptor of netmap; none when no switch runs, and then the next library's may have one.
fn open_device(flags: c_int) -> Option<c_int> {
    inside(|| {
        host::connect().ok()?;
        let close_on_exec = flags & libc::O_CLOEXEC != 0;
        let flags =
            if close_on_exec { epoll::CreateFlags::CLOEXEC } else { epoll::CreateFlags::empty() };
        let fd = epoll::create(flags).ok()?.into_raw_fd();
        drop(TABLE.insert(fd, Arc::default()));
        Some(fd)
    })
    .flatten()
}

macro_rules! opens {
    ($($name:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
                // SAFETY: the caller's path.
                if unsafe { is_device(path) } && let Some(fd) = open_device(flags) {
                    return fd;
                }
                // SAFETY: the caller's own arguments.
                unsafe { next::$name()(path, flags, mode) }
            }
        )*
    };
}

macro_rules! opens_at {
    ($($name:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(
                folder: c_int,
                path: *const c_char,
                flags: c_int,
                mode: c_uint,
            ) -> c_int {
                // SAFETY: the caller's path.
                if unsafe { is_device(path) } && let Some(fd) = open_device(flags) {
                    return fd;
                }
                // SAFETY: the caller's own arguments.
                unsafe { next::$name()(folder, path, flags, mode) }
            }
        )*
    };
}

opens! { open open64 }
opens_at! { openat openat64 }

/// `open` as programs call it that were built with checks.
#[unsafe(no_mangle)]
unsafe extern "C" fn __open_2(path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller's own arguments; such calls create nothing.
    unsafe { open(path, flags, 0) }
}

/// The same.
#[unsafe(no_mangle)]
unsafe extern "C" fn __open64_2(path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: as above.
    unsafe { open64(path, flags, 0) }
}

/// The same.
#[unsafe(no_mangle)]
unsafe extern "C" fn __openat_2(folder: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: as above.
    unsafe { openat(folder, path, flags, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ioctl(fd: c_int, request: c_long, argument: *mut c_void) -> c_int {
    if let Some(descriptor) = TABLE.get(fd) {
        // SAFETY: the table knows it, so it is open until the program closes it.
        let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
        let outcome = inside(|| {
            let argument = argument.addr() as u64;
            control::ioctl(&HOST, &descriptor, borrowed, request as u64, argument, &ThisProcess)
        });
        if let Some(outcome) = outcome {
            return answer(outcome);
        }
    }
    // SAFETY: the caller's own arguments.
    unsafe { next::ioctl()(fd, request, argument) }
}

macro_rules! maps {
    ($($name:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(
                address: *mut c_void,
                length: size_t,
                protection: c_int,
                flags: c_int,
                fd: c_int,
                offset: off_t,
            ) -> *mut c_void {
                if let Some(descriptor) = TABLE.get(fd).filter(|_| flags & libc::MAP_ANONYMOUS == 0)
                {
                    return match descriptor.binding() {
                        Some(binding) if offset == 0 => {
                            // SAFETY: the caller's own arguments.
                            unsafe { map(binding.memory(), address, length, protection, flags) }
                        }
                        _ => {
                            fail(Errno::INVAL);
                            libc::MAP_FAILED
                        }
                    };
                }
                // SAFETY: the caller's own arguments.
                unsafe { next::$name()(address, length, protection, flags, fd, offset) }
            }
        )*
    };
}

maps! { mmap mmap64 }

/// Maps the parts of a memory one behind the other.
unsafe fn map(
    memory: &Memory,
    address: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
) -> *mut c_void {
    if length == 0 || length > memory.length_bytes() {
        fail(Errno::INVAL);
        return libc::MAP_FAILED;
    }
    let reserve = (flags & libc::MAP_FIXED) | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: what the program asked for, with nothing behind it yet.
    let start = unsafe { next::mmap()(address, length, libc::PROT_NONE, reserve, -1, 0) };
    if start == libc::MAP_FAILED {
        return start;
    }
    let mut done = 0;
    for part in memory.parts() {
        let bytes = part.length_bytes().min(length - done);
        let Some(fd) = part.fd().filter(|_| bytes > 0) else { continue };
        let place = start.wrapping_byte_add(done);
        let flags = (flags & !libc::MAP_ANONYMOUS) | libc::MAP_FIXED;
        let fd = std::os::fd::AsRawFd::as_raw_fd(&fd);
        // SAFETY: these `bytes` were reserved just now, for this.
        let mapped = unsafe { next::mmap()(place, bytes, protection, flags, fd, 0) };
        if mapped == libc::MAP_FAILED {
            // SAFETY: reserved above, and not handed out.
            unsafe { libc::munmap(start, length) };
            fail(Errno::NOMEM);
            return libc::MAP_FAILED;
        }
        done += bytes;
    }
    start
}

#[unsafe(no_mangle)]
unsafe extern "C" fn close(fd: c_int) -> c_int {
    forget(fd);
    // SAFETY: the caller's own argument.
    unsafe { next::close()(fd) }
}

/// `CLOSE_RANGE_CLOEXEC`: they are not closed yet.
const LATER: c_int = 4;

#[unsafe(no_mangle)]
unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if flags & LATER == 0 {
        TABLE.within(first, last).into_iter().for_each(forget);
    }
    // SAFETY: the caller's own arguments.
    unsafe { next::close_range()(first, last, flags) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn closefrom(first: c_int) {
    let from = c_uint::try_from(first).unwrap_or(0);
    TABLE.within(from, c_uint::MAX).into_iter().for_each(forget);
    // SAFETY: the caller's own argument.
    unsafe { next::closefrom()(first) };
}

/// A number that is about to mean something else.
fn forget(fd: c_int) {
    if !TABLE.is_empty() {
        inside(|| drop(TABLE.remove(fd)));
    }
}

/// A number that means the same as another.
fn copied(from: c_int, to: c_int) -> c_int {
    if to >= 0
        && let Some(descriptor) = TABLE.get(from)
    {
        inside(|| drop(TABLE.insert(to, descriptor)));
    }
    to
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dup(fd: c_int) -> c_int {
    // SAFETY: the caller's own argument.
    copied(fd, unsafe { next::dup()(fd) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dup2(from: c_int, to: c_int) -> c_int {
    if from != to {
        forget(to);
    }
    // SAFETY: the caller's own arguments.
    copied(from, unsafe { next::dup2()(from, to) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    if from != to {
        forget(to);
    }
    // SAFETY: the caller's own arguments.
    copied(from, unsafe { next::dup3()(from, to, flags) })
}

macro_rules! fcntls {
    ($($name:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(fd: c_int, command: c_long, argument: *mut c_void) -> c_int {
                // SAFETY: the caller's own arguments.
                let answer = unsafe { next::$name()(fd, command, argument) };
                let copies = [libc::F_DUPFD, libc::F_DUPFD_CLOEXEC];
                if copies.iter().any(|copy| c_long::from(*copy) == command) {
                    return copied(fd, answer);
                }
                answer
            }
        )*
    };
}

fcntls! { fcntl fcntl64 }
