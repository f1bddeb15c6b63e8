//! `clearstream netmap`: runs an unmodified netmap program on the ports of a running switch.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use packet_switch::client::default_socket;

use super::port;
use crate::VerbResult;
use crate::exit::{VerbError, not_run};

/// File name of the preloaded library.
const LIBRARY: &str = "libclearstream_netmap.so";

/// Options of `netmap`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    clearstream switch run &\n  \
    clearstream netmap -- pkt-gen -i vale0:b -f rx &\n  \
    clearstream netmap -- pkt-gen -i vale0:a -f tx\n  \
    clearstream netmap -- pkt-gen -i 'pipe{1' -f tx\n  \
    clearstream netmap -- bridge -i vale0:x -i vale1:y\n\n\
    The switch then serves /dev/netmap to the program: ports are valeSWITCH:PORT, pipes NAME{ID and\n\
    NAME}ID, and netmap:NAME is the switch's port of that name. The library also works alone:\n\
    LD_PRELOAD=libclearstream_netmap.so, with the socket in $CLEARSTREAM_SWITCH. It interposes C\n\
    library calls, so statically linked programs bypass it. `clearstream help netmap-programs`\n\
    lists what is supported.\n\
    The program replaces this process: its exit code and its signals are its own. Exit code 126: it\n\
    cannot be executed; 127: there is no such program.")]
pub(crate) struct NetmapArgs {
    /// The switch's socket [default: $CLEARSTREAM_SWITCH, else below $XDG_RUNTIME_DIR, else /run].
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// The library to preload [default: that beside this program, otherwise in ../lib/clearstream].
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// The program and its arguments.
    #[arg(required = true, last = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

pub(crate) fn run(args: &NetmapArgs, _json: bool) -> VerbResult {
    // Checked here for a one-line error; the program would only say "no such file".
    drop(port::connect(args.socket.as_ref())?);
    let library = match &args.library {
        Some(library) => given_library(library)?,
        None => installed_library()?,
    };
    let socket = args.socket.clone().unwrap_or_else(default_socket);
    let [program, arguments @ ..] = args.program.as_slice() else {
        return Err(VerbError::usage("name a program after --"));
    };
    let error = Command::new(program)
        .args(arguments)
        .env("CLEARSTREAM_SWITCH", std::path::absolute(socket)?)
        .env("LD_PRELOAD", preloaded(&library))
        .exec();
    Ok(not_run(program, &error))
}

/// Checks the given library, because the dynamic loader ignores a missing one.
fn given_library(library: &Path) -> Result<PathBuf, VerbError> {
    let failed = |error: io::Error| VerbError::usage(format!("{}: {error}", library.display()));
    let mut magic = [0; 4];
    File::open(library).and_then(|mut file| file.read_exact(&mut magic)).map_err(failed)?;
    if magic != *b"\x7fELF" {
        return Err(VerbError::usage(format!("{}: this is not a library", library.display())));
    }
    library.canonicalize().map_err(failed)
}

/// Value of `LD_PRELOAD`: this library before those already preloaded.
fn preloaded(library: &Path) -> OsString {
    let mut list = library.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        list.push(":");
        list.push(others);
    }
    list
}

/// Path of the library in a build or an installation.
fn installed_library() -> Result<PathBuf, VerbError> {
    let program = std::env::current_exe()?;
    let folder = program.parent().unwrap_or(Path::new("/"));
    let places = [folder.join(LIBRARY), folder.join("../lib/clearstream").join(LIBRARY)];
    let found = places.iter().find_map(|place| place.canonicalize().ok());
    found.ok_or_else(|| {
        let searched = places.each_ref().map(|place| place.display().to_string()).join(" nor at ");
        VerbError::failed(format!(
            "the library to preload was found neither at {searched}; `make build` builds it"
        ))
    })
}
