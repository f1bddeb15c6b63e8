//! The release program under attack: started, watched from outside, ended.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{PoisonError, RwLock, RwLockWriteGuard};
use std::time::{Duration, Instant};

use sys::process::{Ending, Owned};

/// How long a server may take to listen.
const START: Duration = Duration::from_secs(10);
/// How long a daemon may take to come back to what it was after an attack.
const RECOVERY: Duration = Duration::from_secs(5);
/// Memory of its own beyond what it had at first, bytes: what an allocator keeps.
const OWN_MORE_MAX: u64 = 64 << 20;

/// Held for reading while a program is started.
static STARTING: RwLock<()> = RwLock::new(());

/// Starts a program that ends with the calling thread. Between `fork` and `execve` the child has copies of
/// every descriptor here.
pub(crate) fn start(command: &mut Command) -> std::io::Result<Owned> {
    let _starting = STARTING.read().unwrap_or_else(PoisonError::into_inner);
    // Whatever state it is in, it gets no say in its end.
    Owned::start(command, Ending::KILL)
}

/// While this is held nobody starts a program: for who has a descriptor whose closing does not come back. A child
/// would wait in `execve` for ever, with its own copy of what could end that.
pub(crate) fn no_starts() -> RwLockWriteGuard<'static, ()> {
    STARTING.write().unwrap_or_else(PoisonError::into_inner)
}

/// A daemon of the program.
#[derive(Debug)]
pub(crate) struct Daemon {
    child: Owned,
    log: PathBuf,
    base: Option<Size>,
    /// What is known to stand in the log without harm.
    read_to: u64,
}

/// What a process has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) threads: u64,
    pub(crate) descriptors: u64,
    pub(crate) resident_bytes: u64,
    /// Resident memory that no file or region is behind: heap and stacks, bytes.
    pub(crate) own_bytes: u64,
    /// Address space of shared memory, touched or not, bytes. How much of a port's region is resident depends on
    /// how far its buffers have circulated, so that says nothing of what an attack left behind.
    pub(crate) shared_bytes: u64,
}

impl Daemon {
    /// Starts `program` with `arguments`, until the calling thread ends; what it says goes to `log`.
    pub(crate) fn start(program: &Path, arguments: &[&str], log: PathBuf) -> Result<Self, String> {
        let file = File::create(&log).map_err(|error| format!("{}: {error}", log.display()))?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        let child =
            start(&mut command).map_err(|error| format!("{}: {error}", program.display()))?;
        Ok(Self { child, log, base: None, read_to: 0 })
    }

    /// As [`start`](Self::start), of a server that listens on this TCP port when this returns.
    pub(crate) fn start_listening(
        program: &Path,
        arguments: &[&str],
        log: PathBuf,
        port: u16,
    ) -> Result<Self, String> {
        let mut daemon = Self::start(program, arguments, log)?;
        let until = Instant::now() + START;
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            daemon.check()?;
            if Instant::now() > until {
                return Err(format!("{} does not listen: {}", arguments[0], daemon.log_text()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(daemon)
    }

    /// What it is like now is what it must come back to.
    pub(crate) fn take_base(&mut self) -> Result<(), String> {
        self.base = Some(self.size()?);
        Ok(())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn log_text(&self) -> String {
        fs::read(&self.log)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    pub(crate) fn size(&self) -> Result<Size, String> {
        size_of(self.pid())
    }

    /// Whether every thread of it has a system-call filter, as far as this machine has such: an attack on a daemon
    /// without its defence would prove nothing.
    pub(crate) fn check_confined(&self) -> Result<(), String> {
        if !has_filters() {
            return Ok(());
        }
        let folder = format!("/proc/{}/task", self.pid());
        let tasks = fs::read_dir(&folder).map_err(|error| format!("{folder}: {error}"))?;
        for task in tasks.flatten() {
            // A thread that has ended meanwhile has no status.
            let Ok(status) = fs::read_to_string(task.path().join("status")) else { continue };
            if !status.contains("Seccomp:\t2") {
                let name = status.lines().next().unwrap_or_default();
                return Err(format!("a thread of the daemon is not confined: {name}"));
            }
        }
        Ok(())
    }

    /// Whether it is the same process as ever, has come back to its size, and has not panicked.
    pub(crate) fn check(&mut self) -> Result<(), String> {
        let since = Instant::now();
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("the daemon ended: {status}: {}", last_line(&self.log_text())));
            }
            self.check_log()?;
            let Some(base) = self.base else { return Ok(()) };
            let size = self.size()?;
            let grown = [
                ("threads", size.threads, base.threads),
                ("descriptors", size.descriptors, base.descriptors),
                (
                    "MiB of heap and stacks",
                    size.own_bytes >> 20,
                    (base.own_bytes + OWN_MORE_MAX) >> 20,
                ),
                ("KiB of shared memory", size.shared_bytes >> 10, base.shared_bytes >> 10),
            ];
            match grown.into_iter().find(|(_, now, most)| now > most) {
                None => return Ok(()),
                Some((what, now, most)) if since.elapsed() > RECOVERY => {
                    return Err(format!(
                        "{now} {what} after {RECOVERY:?}, at most {most} expected"
                    ));
                }
                Some(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    fn check_log(&mut self) -> Result<(), String> {
        let mut text = String::new();
        let mut bytes = Vec::new();
        if let Ok(mut file) = File::open(&self.log)
            && file.seek(SeekFrom::Start(self.read_to)).is_ok()
            && file.read_to_end(&mut bytes).is_ok()
        {
            text = String::from_utf8_lossy(&bytes).into_owned();
            // A word may be cut by the end of what is there now.
            self.read_to += (bytes.len() as u64).saturating_sub(64);
        }
        let panicked = text.lines().find(|line| line.contains("panicked at"));
        panicked.map_or(Ok(()), |line| Err(format!("the log has a panic: {line}")))
    }
}

/// Whether the daemon can be confined on this machine: its filters are for these processors, and need
/// `CONFIG_SECCOMP_FILTER`.
pub(crate) fn has_filters() -> bool {
    let is_known = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));
    is_known && Path::new("/proc/sys/kernel/seccomp/actions_avail").exists()
}

/// Size of a process, as `/proc` has it.
pub(crate) fn size_of(pid: u32) -> Result<Size, String> {
    let of_process = |what: &str, error: std::io::Error| format!("/proc/{pid}/{what}: {error}");
    let status = fs::read_to_string(format!("/proc/{pid}/status"))
        .map_err(|error| of_process("status", error))?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
    };
    let descriptors =
        fs::read_dir(format!("/proc/{pid}/fd")).map_err(|error| of_process("fd", error))?.count();
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))
        .map_err(|error| of_process("maps", error))?;
    Ok(Size {
        threads: field("Threads").unwrap_or(0),
        descriptors: descriptors as u64,
        resident_bytes: field("VmRSS").unwrap_or(0) << 10,
        own_bytes: field("RssAnon").unwrap_or(0) << 10,
        shared_bytes: maps.lines().filter_map(shared_bytes_of).sum(),
    })
}

/// Length of the mapping that a line of `/proc/PID/maps` describes, if it is shared, bytes.
fn shared_bytes_of(line: &str) -> Option<u64> {
    let mut fields = line.split_whitespace();
    let (from, to) = fields.next()?.split_once('-')?;
    fields.next()?.ends_with('s').then_some(())?;
    let address = |text| u64::from_str_radix(text, 16).ok();
    address(to)?.checked_sub(address(from)?)
}

fn last_line(text: &str) -> String {
    let line = text.lines().rev().find(|line| !line.contains("attached") && !line.is_empty());
    line.unwrap_or("it said nothing").chars().take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_shared_mappings_count_and_by_length() {
        let region =
            "7f0000000000-7f0000200000 rw-s 00000000 00:01 1061 /memfd:clearstream-port (deleted)";
        let heap = "55d0a0000000-55d0a0021000 rw-p 00000000 00:00 0 [heap]";
        assert_eq!(shared_bytes_of(region), Some(2 << 20));
        assert_eq!(shared_bytes_of(heap), None);
        assert_eq!(shared_bytes_of(""), None);
    }
}
