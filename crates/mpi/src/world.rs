//! `MPI_COMM_WORLD`: who we are, and messages to and from the others.

mod blocking;

use std::collections::VecDeque;
use std::env;
use std::ffi::{CStr, c_char, c_int};
use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use thiserror::Error;

use crate::calls::{ANY_TAG, Address, Calls, Handle, Library, Number, Status};
use blocking::Blocking;

/// Whose binary interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// Open MPI 4 and 5.
    OpenMpi,
    /// MPICH and what shares its interface (MVAPICH, Intel MPI, Cray MPI).
    Mpich,
}

impl fmt::Display for Flavour {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::OpenMpi => "Open MPI",
            Self::Mpich => "MPICH",
        })
    }
}

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MpiError {
    /// The launcher's library cannot be loaded.
    #[error("{flavour} launched this process, but its library cannot be loaded: {why}")]
    NoLibrary {
        /// Whose.
        flavour: Flavour,
        /// What the loader says.
        why: String,
    },
    /// A call failed.
    #[error("{call} failed with MPI error {code}")]
    Failed {
        /// Name of the call.
        call: &'static str,
        /// The library's error code.
        code: i32,
    },
    /// A message longer than 2 GiB, which MPI cannot count.
    #[error("a message of {bytes} bytes is too long for MPI")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
}

/// Whose launcher started this process, if one did.
#[must_use]
pub fn launched_by() -> Option<Flavour> {
    let has = |name: &str| env::var_os(name).is_some();
    if has("OMPI_COMM_WORLD_SIZE") || has("PMIX_RANK") {
        Some(Flavour::OpenMpi)
    } else if has("PMI_RANK") || has("PMI_SIZE") {
        Some(Flavour::Mpich)
    } else {
        None
    }
}

/// All processes of the job. MPI is entered when it is opened and left by [`World::finish`]; it stays
/// on its thread.
#[derive(Debug)]
pub struct World {
    port: Box<dyn Port>,
    flavour: Flavour,
    rank: usize,
    size: usize,
    version: String,
    /// MPI was entered for this thread only.
    thread: PhantomData<Rc<()>>,
}

impl World {
    /// Loads the library and enters MPI. Once a process.
    ///
    /// # Errors
    /// [`MpiError::NoLibrary`]; [`MpiError::Failed`] when MPI cannot be entered.
    pub fn open(flavour: Flavour) -> Result<Self, MpiError> {
        let port = open_port(flavour).map_err(|why| MpiError::NoLibrary { flavour, why })?;
        let (rank, size) = port.enter()?;
        let version = port.version()?;
        Ok(Self { port, flavour, rank, size, version, thread: PhantomData })
    }

    /// Whose library.
    #[must_use]
    pub fn flavour(&self) -> Flavour {
        self.flavour
    }

    /// This process's number.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Processes in the job.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// What the library says it is, one line.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Sends a message; does not wait for it to arrive. Messages to one rank arrive in order.
    ///
    /// # Errors
    /// [`MpiError::TooLong`]; [`MpiError::Failed`].
    ///
    /// # Panics
    /// When there is no such rank, or the tag is negative.
    pub fn send(&mut self, to: usize, tag: i32, message: Vec<u8>) -> Result<(), MpiError> {
        assert!(to < self.size && tag >= 0, "no rank {to} of {}, or tag {tag}", self.size);
        self.port.send(to as c_int, tag, message)
    }

    /// Frees what has been sent; how many messages are still on their way.
    ///
    /// # Errors
    /// [`MpiError::Failed`].
    pub fn reap(&mut self) -> Result<usize, MpiError> {
        self.port.reap()
    }

    /// A message that has arrived, if any: sender, tag, bytes.
    ///
    /// # Errors
    /// [`MpiError::Failed`].
    pub fn receive(&mut self) -> Result<Option<(usize, i32, Vec<u8>)>, MpiError> {
        self.port.receive()
    }

    /// Leaves MPI; waits for the other ranks to do the same. All that was sent must have been received.
    ///
    /// MPI may not let go: over a long path, MPICH (4.0 on UCX 1.13) now and then waits in `MPI_Finalize`
    /// for an answer of a rank that has stopped listening. This process then ends with `code` after a
    /// while; whatever it has to say must have been said. Launchers of MPICH take that for a good end.
    ///
    /// # Errors
    /// [`MpiError::Failed`].
    pub fn finish(mut self, code: u8) -> Result<(), MpiError> {
        let leash = Leash::new(self.flavour, code);
        while self.port.reap()? > 0 {
            std::thread::yield_now();
        }
        let done = self.port.leave();
        leash.release();
        done
    }

    /// Ends all processes of the job, this one too, with an exit code.
    pub fn abort(self, code: u8) -> ! {
        let _leash = Leash::new(self.flavour, code);
        self.port.abort(c_int::from(code));
        // MPI may still write to what it was given.
        end(code)
    }
}

/// How long MPI may take to be left. MPICH's launcher minds nothing; Open MPI's takes a process that
/// never left MPI for a failed one.
const MPICH_PATIENCE: Duration = Duration::from_secs(2);
const OPEN_MPI_PATIENCE: Duration = Duration::from_secs(10);

/// Ends this process with an exit code unless released in time.
struct Leash(Sender<()>);

impl Leash {
    fn new(flavour: Flavour, code: u8) -> Self {
        let patience = match flavour {
            Flavour::OpenMpi => OPEN_MPI_PATIENCE,
            Flavour::Mpich => MPICH_PATIENCE,
        };
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            // A sender that is gone without a word belongs to a caller that failed and says so.
            if receiver.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
                end(code);
            }
        });
        Self(sender)
    }

    fn release(self) {
        // The thread is there: it waits for this.
        self.0.send(()).ok();
    }
}

/// Ends this process at once, without handlers: those of MPI would wait with it.
fn end(code: u8) -> ! {
    // SAFETY: _exit has no conditions.
    unsafe { libc::_exit(c_int::from(code)) }
}

/// The setting of Open MPI that chooses how messages travel (MCA parameter `pml`).
const LAYER: &str = "OMPI_MCA_pml";

/// Whether all ranks are on this host, so that `MPI_Init` need not look for networks, which takes Open
/// MPI 4.1 a fifth of a second; not if a layer was chosen (`mpirun --mca pml`).
fn needs_no_network(all: Option<u32>, here: Option<u32>, is_chosen: bool) -> bool {
    all.is_some() && all == here && !is_chosen
}

fn open_port(flavour: Flavour) -> Result<Box<dyn Port>, String> {
    match flavour {
        Flavour::OpenMpi => {
            let count = |name| env::var(name).ok()?.parse().ok();
            let [all, here] = ["OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"].map(count);
            if needs_no_network(all, here, env::var_os(LAYER).is_some()) {
                // SAFETY: no other thread reads or writes the environment but through `std::env`, whose
                // lock this takes; threads of MPI come with `MPI_Init_thread`.
                unsafe { env::set_var(LAYER, "ob1") };
            }
            let library = Library::open(&[c"libmpi.so.40"])?;
            let object = |name: &CStr| library.symbol(name).map(Address);
            let handles = [
                object(c"ompi_mpi_comm_world")?,
                object(c"ompi_mpi_byte")?,
                object(c"ompi_mpi_errors_return")?,
            ];
            Ok(Box::new(Session::new(Calls::find(library, handles)?)))
        }
        Flavour::Mpich => {
            let library = Library::open(&[c"libmpich.so.12", c"libmpi.so.12"])?;
            // MPI_COMM_WORLD, MPI_BYTE and MPI_ERRORS_RETURN of MPICH's binary interface.
            let handles = [Number(0x4400_0000), Number(0x4c00_010d), Number(0x5400_0001)];
            Ok(Box::new(Session::new(Calls::find(library, handles)?)))
        }
    }
}

/// A [`Session`] of any library.
trait Port: Blocking + fmt::Debug {
    fn enter(&self) -> Result<(usize, usize), MpiError>;
    fn version(&self) -> Result<String, MpiError>;
    fn send(&mut self, to: c_int, tag: c_int, message: Vec<u8>) -> Result<(), MpiError>;
    fn reap(&mut self) -> Result<usize, MpiError>;
    fn receive(&mut self) -> Result<Option<(usize, i32, Vec<u8>)>, MpiError>;
    fn leave(&self) -> Result<(), MpiError>;
    fn abort(&self, code: c_int);
}

/// A library and what is under way with it.
#[derive(Debug)]
struct Session<H> {
    calls: Calls<H>,
    /// Sends that MPI has not said to be done: it still reads the buffer.
    sending: VecDeque<(H, Vec<u8>)>,
    /// Messages that have been matched and may still be on their way, in the order they came.
    receiving: VecDeque<Receiving<H>>,
}

/// A message that MPI writes to `bytes` until the request is done.
#[derive(Debug)]
struct Receiving<H> {
    request: H,
    from: c_int,
    tag: c_int,
    bytes: Vec<u8>,
}

impl<H> Session<H> {
    fn new(calls: Calls<H>) -> Self {
        Self { calls, sending: VecDeque::new(), receiving: VecDeque::new() }
    }
}

impl<H: Handle> Session<H> {
    /// Begins to take in the next message that has announced itself. Nothing here waits: the rank that
    /// sends a long one may be gone before the rest of it comes.
    fn match_next(&mut self) -> Result<(), MpiError> {
        let Calls { world, byte, .. } = self.calls;
        let (mut is_there, mut handle, mut status) = (0, H::ZERO, Status::default());
        // SAFETY: MPI is entered; flag, message handle and status are ours, each with room enough.
        let code = unsafe {
            (self.calls.improbe)(
                H::ANY_SOURCE,
                ANY_TAG,
                world,
                &raw mut is_there,
                &raw mut handle,
                &raw mut status,
            )
        };
        checked("MPI_Improbe", code)?;
        if is_there == 0 {
            return Ok(());
        }
        let mut length = 0;
        // SAFETY: the status is the one that MPI_Improbe filled.
        let code = unsafe { (self.calls.get_count)(&raw const status, byte, &raw mut length) };
        checked("MPI_Get_count", code)?;
        let mut bytes = vec![0u8; usize::try_from(length).unwrap_or(0)];
        let (to, mut request) = (bytes.as_mut_ptr().cast(), H::ZERO);
        // SAFETY: the handle is of a matched message of `length` bytes; `bytes` has that room, is kept
        // in `receiving` until MPI_Test says that it is done, and its bytes do not move with it.
        let code =
            unsafe { (self.calls.imrecv)(to, length, byte, &raw mut handle, &raw mut request) };
        let (from, tag) = (status.0[H::SOURCE_PLACE], status.0[H::SOURCE_PLACE + 1]);
        if code != 0 {
            // Whether MPI still writes to the bytes is not said: they stay.
            std::mem::forget(bytes);
            return checked("MPI_Imrecv", code);
        }
        self.receiving.push_back(Receiving { request, from, tag, bytes });
        Ok(())
    }
}

/// `MPI_THREAD_FUNNELED`, the same in both.
const FUNNELED: c_int = 1;

/// Room for `MPI_Get_library_version` (8192 in MPICH, 256 in Open MPI).
const VERSION_BYTES: usize = 8192;

fn checked(call: &'static str, code: c_int) -> Result<(), MpiError> {
    if code == 0 { Ok(()) } else { Err(MpiError::Failed { call, code }) }
}

impl<H: Handle> Port for Session<H> {
    fn enter(&self) -> Result<(usize, usize), MpiError> {
        let Calls { world, errors_return, .. } = self.calls;
        let (mut provided, mut rank, mut size) = (0, 0, 0);
        let none = std::ptr::null_mut();
        // SAFETY: argc and argv may be null since MPI 2; `provided` is an int of ours.
        let code = unsafe {
            (self.calls.init_thread)(none, std::ptr::null_mut(), FUNNELED, &raw mut provided)
        };
        checked("MPI_Init_thread", code)?;
        // SAFETY: MPI is entered; both are handles of this library.
        checked("MPI_Comm_set_errhandler", unsafe {
            (self.calls.set_errhandler)(world, errors_return)
        })?;
        // SAFETY: MPI is entered; `rank` is an int of ours.
        checked("MPI_Comm_rank", unsafe { (self.calls.comm_rank)(world, &raw mut rank) })?;
        // SAFETY: MPI is entered; `size` is an int of ours.
        checked("MPI_Comm_size", unsafe { (self.calls.comm_size)(world, &raw mut size) })?;
        Ok((usize::try_from(rank).unwrap_or(0), usize::try_from(size).unwrap_or(1)))
    }

    fn version(&self) -> Result<String, MpiError> {
        let mut text = vec![0u8; VERSION_BYTES];
        let mut length = 0;
        // SAFETY: the text has the room that the library's MPI_MAX_LIBRARY_VERSION_STRING asks for.
        let code = unsafe {
            (self.calls.library_version)(text.as_mut_ptr().cast::<c_char>(), &raw mut length)
        };
        checked("MPI_Get_library_version", code)?;
        text.truncate(usize::try_from(length).unwrap_or(0).min(VERSION_BYTES));
        let text = String::from_utf8_lossy(&text).into_owned();
        let lines = text.split(['\n', ',']).map(|part| part.trim_end_matches('\0'));
        let words: Vec<&str> = lines.take(1).flat_map(str::split_whitespace).collect();
        Ok(words.join(" "))
    }

    fn send(&mut self, to: c_int, tag: c_int, message: Vec<u8>) -> Result<(), MpiError> {
        let Ok(length) = c_int::try_from(message.len()) else {
            return Err(MpiError::TooLong { bytes: message.len() });
        };
        let Calls { world, byte, .. } = self.calls;
        let mut request = H::ZERO;
        let bytes = message.as_ptr().cast();
        // SAFETY: MPI reads `length` bytes until the request is done; the vector that owns them is
        // kept unchanged in `sending` until MPI_Test says so, and its bytes do not move with it.
        let code =
            unsafe { (self.calls.isend)(bytes, length, byte, to, tag, world, &raw mut request) };
        self.sending.push_back((request, message));
        if code != 0 {
            // Whether MPI still reads the bytes is not said: they stay.
            if let Some((_, message)) = self.sending.pop_back() {
                std::mem::forget(message);
            }
        }
        checked("MPI_Isend", code)
    }

    fn reap(&mut self) -> Result<usize, MpiError> {
        while let Some((request, _)) = self.sending.front_mut() {
            let (mut is_done, mut status) = (0, Status::default());
            // SAFETY: the request is one that MPI_Isend gave and no test has ended; `Status` has room
            // for the library's.
            let code = unsafe { (self.calls.test)(request, &raw mut is_done, &raw mut status) };
            checked("MPI_Test", code)?;
            if is_done == 0 {
                break;
            }
            self.sending.pop_front();
        }
        Ok(self.sending.len())
    }

    fn receive(&mut self) -> Result<Option<(usize, i32, Vec<u8>)>, MpiError> {
        self.match_next()?;
        let Some(first) = self.receiving.front_mut() else { return Ok(None) };
        let (mut is_done, mut status) = (0, Status::default());
        // SAFETY: the request is one that MPI_Imrecv gave and no test has ended; `Status` has room for
        // the library's.
        let code =
            unsafe { (self.calls.test)(&raw mut first.request, &raw mut is_done, &raw mut status) };
        checked("MPI_Test", code)?;
        if is_done == 0 {
            return Ok(None);
        }
        let done = self.receiving.pop_front();
        Ok(done.map(|Receiving { from, tag, bytes, .. }| {
            (usize::try_from(from).unwrap_or(0), tag, bytes)
        }))
    }

    fn leave(&self) -> Result<(), MpiError> {
        // SAFETY: MPI is entered, on this thread, and `World::finish` takes the world away.
        checked("MPI_Finalize", unsafe { (self.calls.finalize)() })
    }

    fn abort(&self, code: c_int) {
        // SAFETY: MPI is entered; the call does not return but where it cannot end the job.
        unsafe { (self.calls.abort)(self.calls.world, code) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_on_one_host_needs_no_network_unless_told_otherwise() {
        assert!(needs_no_network(Some(2), Some(2), false));
        assert!(!needs_no_network(Some(2), Some(2), true), "chosen by the user");
        assert!(!needs_no_network(Some(2), Some(1), false), "another host");
        assert!(!needs_no_network(None, None, false), "a launcher that does not say");
    }
}
