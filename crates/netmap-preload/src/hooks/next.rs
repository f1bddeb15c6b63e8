//! The functions of the next library, usually the C library itself.

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{epoll_event, fd_set, nfds_t, off_t, pollfd, sigset_t, size_t, timespec, timeval};

/// A function by its name.
struct Next {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Next {
    const fn new(name: &'static CStr) -> Self {
        Self { name, found: AtomicPtr::new(std::ptr::null_mut()) }
    }

    fn find(&self) -> *mut c_void {
        let found = self.found.load(Ordering::Relaxed);
        if !found.is_null() {
            return found;
        }
        // SAFETY: the name ends with a zero; RTLD_NEXT is valid in a library.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if found.is_null() {
            // A C library without it has no program that calls it.
            std::process::abort();
        }
        self.found.store(found, Ordering::Relaxed);
        found
    }
}

macro_rules! next {
    ($($name:ident: $type:ty = $symbol:literal;)*) => {
        $(
            /// The next library's.
            pub(super) fn $name() -> $type {
                static NEXT: Next = Next::new($symbol);
                let found = NEXT.find();
                // SAFETY: the symbol of that name is a function of that type in every C library.
                unsafe { std::mem::transmute::<*mut c_void, $type>(found) }
            }
        )*
    };
}

type Open = unsafe extern "C" fn(*const c_char, c_int, ...) -> c_int;
type OpenAt = unsafe extern "C" fn(c_int, *const c_char, c_int, ...) -> c_int;
type Call = unsafe extern "C" fn(c_int, c_long, ...) -> c_int;
type Map = unsafe extern "C" fn(*mut c_void, size_t, c_int, c_int, c_int, off_t) -> *mut c_void;
type Poll = unsafe extern "C" fn(*mut pollfd, nfds_t, c_int) -> c_int;
type Ppoll = unsafe extern "C" fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t) -> c_int;
type Select =
    unsafe extern "C" fn(c_int, *mut fd_set, *mut fd_set, *mut fd_set, *mut timeval) -> c_int;
type Pselect = unsafe extern "C" fn(
    c_int,
    *mut fd_set,
    *mut fd_set,
    *mut fd_set,
    *const timespec,
    *const sigset_t,
) -> c_int;
type EpollCtl = unsafe extern "C" fn(c_int, c_int, c_int, *mut epoll_event) -> c_int;
type EpollWait = unsafe extern "C" fn(c_int, *mut epoll_event, c_int, c_int) -> c_int;
type EpollPwait =
    unsafe extern "C" fn(c_int, *mut epoll_event, c_int, c_int, *const sigset_t) -> c_int;
type EpollPwait2 =
    unsafe extern "C" fn(c_int, *mut epoll_event, c_int, *const timespec, *const sigset_t) -> c_int;
type CloseRange = unsafe extern "C" fn(c_uint, c_uint, c_int) -> c_int;

next! {
    open: Open = c"open";
    open64: Open = c"open64";
    openat: OpenAt = c"openat";
    openat64: OpenAt = c"openat64";
    ioctl: Call = c"ioctl";
    fcntl: Call = c"fcntl";
    fcntl64: Call = c"fcntl64";
    mmap: Map = c"mmap";
    mmap64: Map = c"mmap64";
    close: unsafe extern "C" fn(c_int) -> c_int = c"close";
    close_range: CloseRange = c"close_range";
    closefrom: unsafe extern "C" fn(c_int) = c"closefrom";
    epoll_pwait2: EpollPwait2 = c"epoll_pwait2";
    dup: unsafe extern "C" fn(c_int) -> c_int = c"dup";
    dup2: unsafe extern "C" fn(c_int, c_int) -> c_int = c"dup2";
    dup3: unsafe extern "C" fn(c_int, c_int, c_int) -> c_int = c"dup3";
    poll: Poll = c"poll";
    ppoll: Ppoll = c"ppoll";
    select: Select = c"select";
    pselect: Pselect = c"pselect";
    epoll_ctl: EpollCtl = c"epoll_ctl";
    epoll_wait: EpollWait = c"epoll_wait";
    epoll_pwait: EpollPwait = c"epoll_pwait";
}
