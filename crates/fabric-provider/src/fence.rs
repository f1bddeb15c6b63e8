//! From C to Rust and back: objects behind pointers, panics, error numbers.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::GENERATION;
use crate::endpoint::{Endpoint, Queues};
use crate::name::Name;
use crate::queue::{Counter, Queue};
use crate::remote::regions::Regions;

/// An error number of libfabric's, positive.
pub(crate) type Number = c_int;

/// What the objects of a domain share.
#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    generation: u32,
}

/// The objects of a domain, by number; closed ones are gone.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) endpoints: Vec<Option<Endpoint>>,
    pub(crate) queues: Vec<Option<Queue>>,
    /// Event counters.
    pub(crate) counters: Vec<Option<Counter>>,
    /// Address vectors.
    pub(crate) vectors: Vec<Option<Vec<Option<Name>>>>,
    /// Memory that peers may access.
    pub(crate) regions: Regions,
}

impl State {
    /// The endpoints, and where what they end is told.
    pub(crate) fn endpoints_and_queues(&mut self) -> (&mut [Option<Endpoint>], Queues<'_>) {
        let Self { endpoints, queues, counters, regions, .. } = self;
        (endpoints, Queues { queues, counters, regions })
    }

    /// Sends the messages that wait for further ones.
    pub(crate) fn send_waiting(&mut self) {
        self.endpoints.iter_mut().flatten().for_each(Endpoint::send_waiting);
    }

    /// Makes progress at each endpoint.
    pub(crate) fn progress(&mut self) {
        let (endpoints, mut queues) = self.endpoints_and_queues();
        for endpoint in endpoints.iter_mut().flatten() {
            endpoint.progress(&mut queues);
        }
    }
}

impl Shared {
    pub(crate) fn new() -> Arc<Self> {
        let generation = GENERATION.load(Ordering::Relaxed);
        Arc::new(Self { state: Mutex::default(), generation })
    }

    /// # Errors
    /// In a child of the process that opened the domain, or after a call that panicked.
    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, State>, Number> {
        if GENERATION.load(Ordering::Relaxed) != self.generation {
            return Err(libc::EIO);
        }
        self.state.lock().map_err(|_poisoned| libc::EIO)
    }

    /// None where another thread is in a call, and where [`lock`](Self::lock) fails.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, State>> {
        let is_own = GENERATION.load(Ordering::Relaxed) == self.generation;
        is_own.then(|| self.state.try_lock().ok()).flatten()
    }
}

/// An object as C sees it: `Fid` is one of libfabric's structures, which begins with a `Fid`.
#[repr(C)]
pub(crate) struct Object<Fid> {
    pub(crate) fid: Fid,
    pub(crate) shared: Arc<Shared>,
    pub(crate) index: usize,
}

impl<Fid> Object<Fid> {
    /// A new object for C.
    pub(crate) fn give(fid: Fid, shared: Arc<Shared>, index: usize) -> *mut Fid {
        Box::into_raw(Box::new(Self { fid, shared, index })).cast()
    }

    /// The object behind C's pointer.
    ///
    /// # Safety
    /// `fid` came from [`give`](Self::give) with the same type and was not taken back.
    pub(crate) unsafe fn of<'a>(fid: *mut Fid) -> &'a Self {
        // SAFETY: `give` made it of a box of this type, whose first field `fid` is (`repr(C)`). It is
        // only shared: what changes is behind a lock.
        unsafe { &*fid.cast::<Self>() }
    }

    /// Ends the object.
    ///
    /// # Safety
    /// As [`of`](Self::of); the pointer is not used again.
    pub(crate) unsafe fn take_back(fid: *mut Fid) -> Box<Self> {
        // SAFETY: as above.
        unsafe { Box::from_raw(fid.cast::<Self>()) }
    }
}

/// What a call answers: a panic is an I/O error, for it must not leave this library.
pub(crate) fn answer(call: impl FnOnce() -> Result<isize, Number>) -> isize {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => value,
        Ok(Err(number)) => -(number as isize),
        Err(_panic) => -(libc::EIO as isize),
    }
}

/// The same for calls that answer with an int.
pub(crate) fn answer_int(call: impl FnOnce() -> Result<(), Number>) -> c_int {
    answer(|| call().map(|()| 0)) as c_int
}

/// Puts a value into the first free place.
pub(crate) fn keep<T>(places: &mut Vec<Option<T>>, value: T) -> usize {
    let free = places.iter().position(Option::is_none);
    let index = free.unwrap_or_else(|| {
        places.push(None);
        places.len() - 1
    });
    places[index] = Some(value);
    index
}
