//! iperf3 as a daemon, and its PID file.

use std::fs;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sys::private;

/// Environment variable that marks the process that continues in the background.
const BACKGROUND: &str = "CLEARSTREAM_IPERF3_BACKGROUND";

/// Whether this is the process that [`continue_in_background`] started; it then leaves the terminal's
/// session, so that the terminal's Ctrl-C and hangup do not reach it.
pub(super) fn is_in_background() -> bool {
    let is = std::env::var_os(BACKGROUND).is_some();
    if is {
        // Fails only if the process already leads a session.
        rustix::process::setsid().ok();
    }
    is
}

/// Restarts this program with the same arguments and without a terminal. The caller then ends.
pub(super) fn continue_in_background() -> io::Result<()> {
    let mut words = std::env::args_os();
    let name = words.next().unwrap_or_else(|| "iperf3".into());
    let mut command = Command::new(std::env::current_exe()?);
    command.arg0(name).args(words).env(BACKGROUND, "1");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // The child outlives this process, so nobody waits for it.
    command.spawn().map(drop)
}

/// The PID file of `-I`, removed when dropped.
#[derive(Debug)]
pub(super) struct PidFile(PathBuf);

impl PidFile {
    /// Writes the file, unless it names a running process.
    pub(super) fn create(path: &str) -> Result<Self, String> {
        let path = Path::new(path);
        let noted = private::open_existing(path).and_then(io::read_to_string).ok();
        let number = noted.and_then(|text| text.trim().parse::<i32>().ok());
        let other = number.and_then(rustix::process::Pid::from_raw);
        if other.is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok()) {
            return Err("Another instance of iperf3 appears to be running".to_owned());
        }
        private::create(path)
            .and_then(|mut file| file.write_all(std::process::id().to_string().as_bytes()))
            .map_err(|error| format!("error - unable to write PID file: {error}"))?;
        Ok(Self(path.into()))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // It does not matter if the file is already gone.
        fs::remove_file(&self.0).ok();
    }
}
