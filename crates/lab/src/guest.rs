//! The keeper of a program on a host: inside the lab, between `lab exec` and the program.
//!
//! It enters the host ([`view`]), starts the program, passes on the signals it is told, and buries what the program
//! leaves behind. When `lab exec` is killed, its end of the control pipe closes and the
//! keeper ends the program and everything it started. When the program ends by itself, what it left
//! running may stay, until the lab goes down.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus};
use sys::SyscallError;
use sys::process::{ChildStart, SignalReader, start_child_as, take_inherited};

use crate::plan::LabPlan;
use crate::state::LabDir;
use crate::view;

struct Pipes {
    control: File,
    status: File,
}

/// Runs as `guest NETWORK-FD CONTROL-FD STATUS-FD DIRECTORY HOST -- PROGRAM…`.
pub(crate) fn run(arguments: &[OsString]) -> u8 {
    let [_, network, control, status, dir, host, _, program, rest @ ..] = arguments else {
        return 1;
    };
    let number = |text: &OsString| text.to_str().and_then(|text| text.parse().ok()).unwrap_or(-1);
    let take = |text: &OsString| take_inherited(number(text));
    let (Ok(network), Ok(control), Ok(status)) = (take(network), take(control), take(status))
    else {
        return 1;
    };
    let mut pipes = Pipes { control: File::from(control), status: File::from(status) };
    let ended = prepare(network, Path::new(dir), &host.to_string_lossy())
        .map_err(|error| (126, format!("{error}: {}", error.source)))
        .and_then(|(signals, sees_own_processes)| {
            let mut command = Command::new(program);
            command.args(rest);
            // Results say that the path was emulated.
            if let Some(lab) = Path::new(dir).file_name() {
                command.env("CLEARSTREAM_LAB", lab);
            }
            // What a program keeps here goes with the lab.
            command.env("CLEARSTREAM_LAB_DIR", dir);
            start_child_as(&mut command, ChildStart { dies_with_parent: true });
            let name = program.to_string_lossy();
            let child = command.spawn().map_err(|error| refusal(&name, &error))?;
            let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            let pid = pid.ok_or_else(|| (126, format!("{name}: no process id")))?;
            Ok(Keeper { pid, signals, sees_own_processes })
        });
    match ended {
        Ok(keeper) => {
            say(&mut pipes.status, "started");
            keeper.keep(pipes);
        }
        Err((code, message)) => say(&mut pipes.status, &format!("failed {code} {message}")),
    }
    0
}

/// Shells' codes for a program that is not there (127) or cannot be executed (126).
fn refusal(program: &str, error: &io::Error) -> (u8, String) {
    match error.kind() {
        io::ErrorKind::NotFound => (127, format!("no such program: {program}")),
        _ => (126, format!("cannot execute {program}: {error}")),
    }
}

fn say(status: &mut File, line: &str) {
    // Nobody listens when `lab exec` is gone; the control pipe tells.
    status.write_all(format!("{line}\n").as_bytes()).ok();
}

/// Puts this process into the host; also whether `/proc` shows the lab's processes only.
fn prepare(network: OwnedFd, dir: &Path, host: &str) -> Result<(SignalReader, bool), SyscallError> {
    let signals = SignalReader::open()?;
    let sees_own_processes = view::enter(network, dir, host)?;
    let cores = LabDir::at(dir)
        .and_then(|dir| dir.read("plan.json"))
        .ok()
        .and_then(|text| serde_json::from_str::<LabPlan>(&text).ok())
        .and_then(|plan| plan.host(host).map(|host| host.cores.clone()))
        .unwrap_or_default();
    if !cores.is_empty() {
        sys::thread::pin_current(&cores)?;
    }
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|error| SyscallError::new("prctl(PR_SET_CHILD_SUBREAPER)", host, error))?;
    Ok((signals, sees_own_processes))
}

struct Keeper {
    pid: Pid,
    signals: SignalReader,
    sees_own_processes: bool,
}

impl Keeper {
    /// Stays until the program and all it left behind have ended.
    fn keep(self, pipes: Pipes) {
        let Pipes { control, mut status } = pipes;
        let mut control = Some(control);
        loop {
            self.sleep(control.as_ref());
            while let Ok(Some(signal)) = self.signals.next() {
                if !signal.from_kernel && signal.number != Signal::CHILD.as_raw() {
                    self.pass_on(signal.number);
                }
            }
            if let Some(pipe) = control.as_mut().filter(|pipe| has_input(pipe)) {
                let mut byte = [0];
                match pipe.read(&mut byte) {
                    Ok(1) if byte[0] == 0 => control = None,
                    Ok(1) => self.pass_on(i32::from(byte[0])),
                    _ => return self.end_all(),
                }
            }
            if let Some(end) = self.bury() {
                say(&mut status, &end);
                break;
            }
        }
        if has_children() {
            drop(control);
            say(&mut status, "orphans");
            drop(status);
            self.keep_the_rest();
        }
    }

    fn sleep(&self, control: Option<&File>) {
        let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
        fds.extend(control.map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        // Interrupted or not, everything is looked at again.
        rustix::event::poll(&mut fds, None).ok();
    }

    fn pass_on(&self, number: i32) {
        if let Some(signal) = Signal::from_named_raw(number) {
            // It may have ended meanwhile.
            rustix::process::kill_process(self.pid, signal).ok();
        }
    }

    /// Buries ended children; how the program ended, once it has.
    fn bury(&self) -> Option<String> {
        let mut end = None;
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            if pid == self.pid {
                end = end_of(status);
            }
        }
        end
    }

    /// Lets go of the program's input and output, and waits for orphans it left.
    fn keep_the_rest(&self) {
        if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
            // If one fails, a reader of the program's output waits for its orphans too.
            rustix::stdio::dup2_stdin(&null).ok();
            rustix::stdio::dup2_stdout(&null).ok();
            rustix::stdio::dup2_stderr(&null).ok();
        }
        while rustix::process::wait(WaitOptions::empty()).is_ok() {}
    }

    /// Ends the program and all it started: orphans become our children, so going round until none
    /// is left gets them all.
    fn end_all(&self) {
        rustix::process::kill_process(self.pid, Signal::KILL).ok();
        loop {
            if self.sees_own_processes {
                for child in children() {
                    rustix::process::kill_process(child, Signal::KILL).ok();
                }
            }
            if rustix::process::wait(WaitOptions::empty()).is_err() {
                return;
            }
        }
    }
}

fn has_children() -> bool {
    let left = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    rustix::process::waitid(WaitId::All, left).is_ok()
}

fn end_of(status: WaitStatus) -> Option<String> {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Some(format!("exit {code}")),
        (None, Some(number)) => Some(format!("signal {number}")),
        (None, None) => None,
    }
}

fn has_input(pipe: &File) -> bool {
    let mut fds = [PollFd::new(pipe, PollFlags::IN)];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut fds, Some(&now)).is_ok_and(|ready_count| ready_count > 0)
}

/// This process's children, from `/proc`.
fn children() -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let own = rustix::process::getpid().as_raw_nonzero().get();
    entries
        .filter_map(|entry| {
            let pid: i32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let (_name, after) = stat.rsplit_once(')')?;
            let parent: i32 = after.split_ascii_whitespace().nth(1)?.parse().ok()?;
            (parent == own).then(|| Pid::from_raw(pid))?
        })
        .collect()
}
