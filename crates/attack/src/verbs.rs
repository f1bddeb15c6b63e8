//! Verbs that talk to a hostile server, read hostile files, or find what another user put in their way; and servers with
//! options of their own.

pub(crate) mod files;
pub(crate) mod gateways;
pub(crate) mod owners;
pub(crate) mod planted;
pub(crate) mod servers;
pub(crate) mod stock_server;

use std::fs::File;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::case::Case;

/// All attacks on verbs.
pub(crate) fn cases() -> Vec<Case> {
    [
        servers::CASES,
        files::CASES,
        planted::CASES,
        gateways::CASES,
        owners::CASES,
        stock_server::CASES,
    ]
    .concat()
}

/// Resident memory that no verb needs for what it is given here, bytes.
const RESIDENT_MAX: u64 = 1 << 30;
/// How often its size is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// The exit code of a Rust program that panicked.
const PANICKED: i32 = 101;

/// What a verb did.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) status: ExitStatus,
    pub(crate) text: String,
}

/// Runs a verb, as user `user` if given, with nothing of this process's environment. It must end in time,
/// without a signal or a panic, small, and say nothing that a terminal would obey.
pub(crate) fn run(
    program: &Path,
    arguments: &[&str],
    folder: &Path,
    user: Option<u32>,
    within: Duration,
) -> Result<Said, String> {
    let what =
        || format!("`clearstream {}`", arguments.join(" ").chars().take(100).collect::<String>());
    let log = rustix::fs::memfd_create("said", rustix::fs::MemfdFlags::CLOEXEC)
        .map_err(|error| format!("memfd: {error}"))?;
    let log = File::from(log);
    let share = || log.try_clone().map_err(|error| error.to_string());
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder).env_clear().stdin(Stdio::null());
    command.env("PATH", "/usr/bin:/bin").stdout(share()?).stderr(share()?);
    if let Some(user) = user {
        std::os::unix::process::CommandExt::uid(&mut command, user);
        std::os::unix::process::CommandExt::gid(&mut command, user);
    }
    let mut child =
        crate::program::start(&mut command).map_err(|error| format!("{}: {error}", what()))?;
    let since = Instant::now();
    let status = loop {
        let ended = child.wait_within(LOOK_EVERY).map_err(|error| error.to_string())?;
        if let Some(status) = ended {
            break status;
        }
        let resident_bytes =
            crate::program::size_of(child.id()).map_or(0, |size| size.resident_bytes);
        let why = if resident_bytes > RESIDENT_MAX {
            Some(format!("{} MiB resident", resident_bytes >> 20))
        } else {
            (since.elapsed() > within).then(|| format!("still runs after {within:?}"))
        };
        if let Some(why) = why {
            return Err(format!("{}: {why}", what()));
        }
    };
    let text = read(log);
    let object = if status.code().is_none() || status.code() == Some(PANICKED) {
        Some(format!("{status}: {}", text.lines().last().unwrap_or_default()))
    } else if let Some(line) = text.lines().find(|line| line.contains("panicked at")) {
        Some(line.to_owned())
    } else {
        let obeyed = |one: char| one.is_control() && one != '\n' && one != '\t';
        text.lines()
            .find(|line| line.contains(obeyed))
            .map(|line| format!("said to the terminal: {line:?}"))
    };
    object.map_or(Ok(Said { status, text }), |why| Err(format!("{}: {why}", what())))
}

fn read(mut log: File) -> String {
    use std::io::{Read, Seek};
    let mut bytes = Vec::new();
    if log.rewind().is_ok() {
        log.read_to_end(&mut bytes).ok();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
