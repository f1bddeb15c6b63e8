//! The calls of one library, found by name and typed for its handles.

use std::ffi::{CStr, c_char, c_int, c_void};

/// A library that is loaded and stays so.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Library(*mut c_void);

impl Library {
    /// Loads the first of these that is there.
    pub(crate) fn open(names: &[&CStr]) -> Result<Self, String> {
        let mut why = String::new();
        for name in names {
            // SAFETY: dlopen asks for a string that ends with 0, which a CStr is; constructors of MPI
            // libraries have no conditions.
            let library =
                unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
            if !library.is_null() {
                return Ok(Self(library));
            }
            if why.is_empty() {
                why = last_error();
            }
        }
        Err(why)
    }

    /// The address of a function or object.
    pub(crate) fn symbol(self, name: &CStr) -> Result<*mut c_void, String> {
        // SAFETY: dlsym asks for a library that is loaded, which `open` made sure of and nothing
        // closes, and a string that ends with 0.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        if address.is_null() { Err(last_error()) } else { Ok(address) }
    }
}

fn last_error() -> String {
    // SAFETY: dlerror has no conditions.
    let text: *mut c_char = unsafe { libc::dlerror() };
    if text.is_null() {
        return "unknown reason".to_owned();
    }
    // SAFETY: dlerror's text ends with 0 and stays until this thread's next dl call.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_string_lossy().into_owned()
}

/// Room for any library's `MPI_Status` (24 bytes in Open MPI, 20 in MPICH).
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(16))]
pub(crate) struct Status(pub(crate) [c_int; 16]);

/// A library's handle: an address or a number, as `repr(transparent)` of what C passes.
pub(crate) trait Handle: Copy + std::fmt::Debug + 'static {
    /// What `MPI_Improbe` and `MPI_Isend` may write over.
    const ZERO: Self;
    /// `MPI_ANY_SOURCE`.
    const ANY_SOURCE: c_int;
    /// Which `int` of an `MPI_Status` holds the sender; the tag follows it.
    const SOURCE_PLACE: usize;
}

/// Open MPI's: the address of an object.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Address(pub(crate) *mut c_void);

/// MPICH's.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Number(pub(crate) c_int);

impl Handle for Address {
    const ZERO: Self = Self(std::ptr::null_mut());
    const ANY_SOURCE: c_int = -1;
    const SOURCE_PLACE: usize = 0;
}

impl Handle for Number {
    const ZERO: Self = Self(0);
    const ANY_SOURCE: c_int = -2;
    const SOURCE_PLACE: usize = 2;
}

/// `MPI_ANY_TAG`, the same in both.
pub(crate) const ANY_TAG: c_int = -1;

type InitThread = unsafe extern "C" fn(*mut c_int, *mut c_void, c_int, *mut c_int) -> c_int;
type Plain = unsafe extern "C" fn() -> c_int;
type OfComm<H> = unsafe extern "C" fn(H, *mut c_int) -> c_int;
type SetErrhandler<H> = unsafe extern "C" fn(H, H) -> c_int;
type Isend<H> = unsafe extern "C" fn(*const c_void, c_int, H, c_int, c_int, H, *mut H) -> c_int;
type Irecv<H> = unsafe extern "C" fn(*mut c_void, c_int, H, c_int, c_int, H, *mut H) -> c_int;
type Wait<H> = unsafe extern "C" fn(*mut H, *mut Status) -> c_int;
type Test<H> = unsafe extern "C" fn(*mut H, *mut c_int, *mut Status) -> c_int;
type Improbe<H> = unsafe extern "C" fn(c_int, c_int, H, *mut c_int, *mut H, *mut Status) -> c_int;
type GetCount<H> = unsafe extern "C" fn(*const Status, H, *mut c_int) -> c_int;
type Imrecv<H> = unsafe extern "C" fn(*mut c_void, c_int, H, *mut H, *mut H) -> c_int;
type Send<H> = unsafe extern "C" fn(*const c_void, c_int, H, c_int, c_int, H) -> c_int;
type Recv<H> = unsafe extern "C" fn(*mut c_void, c_int, H, c_int, c_int, H, *mut Status) -> c_int;
type Alltoall<H> = unsafe extern "C" fn(*const c_void, c_int, H, *mut c_void, c_int, H, H) -> c_int;
type Barrier<H> = unsafe extern "C" fn(H) -> c_int;
type Abort<H> = unsafe extern "C" fn(H, c_int) -> c_int;
type LibraryVersion = unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int;

/// The calls that are used, with the handles of one library.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Calls<H> {
    pub(crate) world: H,
    pub(crate) byte: H,
    pub(crate) errors_return: H,
    pub(crate) init_thread: InitThread,
    pub(crate) finalize: Plain,
    pub(crate) comm_rank: OfComm<H>,
    pub(crate) comm_size: OfComm<H>,
    pub(crate) set_errhandler: SetErrhandler<H>,
    pub(crate) isend: Isend<H>,
    pub(crate) irecv: Irecv<H>,
    pub(crate) wait: Wait<H>,
    pub(crate) test: Test<H>,
    pub(crate) improbe: Improbe<H>,
    pub(crate) get_count: GetCount<H>,
    pub(crate) imrecv: Imrecv<H>,
    pub(crate) send: Send<H>,
    pub(crate) recv: Recv<H>,
    pub(crate) alltoall: Alltoall<H>,
    pub(crate) barrier: Barrier<H>,
    pub(crate) abort: Abort<H>,
    pub(crate) library_version: LibraryVersion,
}

/// A function by name, as the type of the field it goes to.
macro_rules! function {
    ($library:expr, $name:literal, $kind:ty) => {{
        let address = $library.symbol($name)?;
        // SAFETY: the MPI standard (4.0, annex A.3) gives the function of this name these parameters,
        // and the library's handles are of the type `H` stands for.
        let function = unsafe { std::mem::transmute::<*mut c_void, $kind>(address) };
        function
    }};
}

impl<H: Handle> Calls<H> {
    /// Finds all calls; `world`, `byte` and `errors_return` are the library's handles.
    pub(crate) fn find(
        library: Library,
        [world, byte, errors_return]: [H; 3],
    ) -> Result<Self, String> {
        Ok(Self {
            world,
            byte,
            errors_return,
            init_thread: function!(library, c"MPI_Init_thread", InitThread),
            finalize: function!(library, c"MPI_Finalize", Plain),
            comm_rank: function!(library, c"MPI_Comm_rank", OfComm<H>),
            comm_size: function!(library, c"MPI_Comm_size", OfComm<H>),
            set_errhandler: function!(library, c"MPI_Comm_set_errhandler", SetErrhandler<H>),
            isend: function!(library, c"MPI_Isend", Isend<H>),
            irecv: function!(library, c"MPI_Irecv", Irecv<H>),
            wait: function!(library, c"MPI_Wait", Wait<H>),
            test: function!(library, c"MPI_Test", Test<H>),
            improbe: function!(library, c"MPI_Improbe", Improbe<H>),
            get_count: function!(library, c"MPI_Get_count", GetCount<H>),
            imrecv: function!(library, c"MPI_Imrecv", Imrecv<H>),
            send: function!(library, c"MPI_Send", Send<H>),
            recv: function!(library, c"MPI_Recv", Recv<H>),
            alltoall: function!(library, c"MPI_Alltoall", Alltoall<H>),
            barrier: function!(library, c"MPI_Barrier", Barrier<H>),
            abort: function!(library, c"MPI_Abort", Abort<H>),
            library_version: function!(library, c"MPI_Get_library_version", LibraryVersion),
        })
    }
}
