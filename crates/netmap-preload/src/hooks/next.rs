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

/// Functions of one type: each is found by its own name.
macro_rules! next {
    ($($type:ty: $($name:ident)*;)*) => {
        $($(
            /// The next library's.
            pub(super) fn $name() -> $type {
                const NAME: &CStr =
                    match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                        Ok(name) => name,
                        Err(_) => panic!("it ends with its only zero"),
                    };
                static NEXT: Next = Next::new(NAME);
                let found = NEXT.find();
                // SAFETY: the symbol of that name is a function of that type in every C library.
                unsafe { std::mem::transmute::<*mut c_void, $type>(found) }
            }
        )*)*
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
type One = unsafe extern "C" fn(c_int) -> c_int;
type Two = unsafe extern "C" fn(c_int, c_int) -> c_int;
type Three = unsafe extern "C" fn(c_int, c_int, c_int) -> c_int;
type CloseFrom = unsafe extern "C" fn(c_int);
type CloseRange = unsafe extern "C" fn(c_uint, c_uint, c_int) -> c_int;

next! {
    Open: open open64;
    OpenAt: openat openat64;
    Call: ioctl fcntl fcntl64;
    Map: mmap mmap64;
    One: close dup;
    Two: dup2;
    Three: dup3;
    CloseRange: close_range;
    CloseFrom: closefrom;
    Poll: poll;
    Ppoll: ppoll;
    Select: select;
    Pselect: pselect;
    EpollCtl: epoll_ctl;
    EpollWait: epoll_wait;
    EpollPwait: epoll_pwait;
    EpollPwait2: epoll_pwait2;
}
