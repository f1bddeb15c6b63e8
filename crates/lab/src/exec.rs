//! Running a program on a lab's host, as seen from outside: entering the lab's user and process-id
//! namespaces, starting the [guest](crate::guest) there, passing signals on, reporting the end.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::process::{Child, Stdio};

use rustix::event::{PollFd, PollFlags};
use sys::process::{
    ChildStart, SignalReader, leave_open_for_children, start_child_as, start_daemon,
};

use crate::{Lab, LabError, Program};

/// How a program on a host ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecEnd {
    /// With an exit code.
    Code(u8),
    /// Ended by this signal.
    Signal(i32),
}

/// What the guest writes on its status pipe, one line each.
#[derive(Debug, PartialEq, Eq)]
enum Word {
    Started,
    Failed(u8, String),
    Ended(ExecEnd),
    Orphans,
}

/// A guest that was started, and the pipes to it.
struct Running {
    child: Child,
    control: File,
    status: File,
}

impl Lab {
    /// Runs a program on a host and waits for its end. SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and
    /// SIGUSR2 are passed on. If this process is killed, the program and all it started go too.
    ///
    /// This process joins the lab's namespaces, so it must have one thread and should end soon
    /// after.
    ///
    /// # Errors
    /// No such host, or the program cannot be started: then the code that shells use for it, 126 or
    /// 127, is in [`ExecError::Program`].
    pub fn exec(
        &self,
        program: &Program,
        host: &str,
        argv: &[OsString],
    ) -> Result<ExecEnd, ExecError> {
        let signals = SignalReader::open().map_err(LabError::from)?;
        let mut running = self.start_guest(program, host, argv, Attachment::Foreground)?;
        let mut heard = Vec::new();
        loop {
            let mut fds =
                [PollFd::new(&signals, PollFlags::IN), PollFd::new(&running.status, PollFlags::IN)];
            match rustix::event::poll(&mut fds, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    return Err(LabError::from(sys::SyscallError::new("poll", host, error)).into());
                }
            }
            let status_ready = !fds[1].revents().is_empty();
            while let Some(signal) = signals.next().map_err(LabError::from)? {
                // A terminal's signals reach the program without us.
                if !signal.from_kernel
                    && let Ok(number) = u8::try_from(signal.number)
                {
                    // A guest that is gone needs no signals.
                    running.control.write_all(&[number]).ok();
                }
            }
            if !status_ready {
                continue;
            }
            let mut chunk = [0; 512];
            let len = running.status.read(&mut chunk).unwrap_or(0);
            heard.extend_from_slice(&chunk[..len]);
            let words = words_of(&heard);
            let orphans = words.last() == Some(&Word::Orphans);
            // The pipe's end says that the guest has gone; with orphans it stays to bury them.
            if len > 0 && !orphans {
                continue;
            }
            if !orphans {
                // Nothing to learn from it, but it would stay as a zombie.
                running.child.wait().ok();
            }
            return match words.into_iter().find(|word| !matches!(word, Word::Started)) {
                Some(Word::Ended(end)) => Ok(end),
                Some(Word::Failed(code, message)) => Err(ExecError::Program { code, message }),
                _ => Ok(ExecEnd::Signal(9)),
            };
        }
    }

    /// The file to which [`Lab::exec_detached`] appends the output of a host's programs.
    #[must_use]
    pub fn detached_log(&self, host: &str) -> PathBuf {
        self.dir.path().join(detached_log_name(host))
    }

    /// Starts a program on a host and leaves it running, with its output in [`Lab::detached_log`],
    /// until it ends or the lab goes down. Returns the process id of its keeper, outside: signals
    /// sent there reach the program.
    ///
    /// The same conditions as for [`Lab::exec`] hold.
    ///
    /// # Errors
    /// As [`Lab::exec`].
    pub fn exec_detached(
        &self,
        program: &Program,
        host: &str,
        argv: &[OsString],
    ) -> Result<u32, ExecError> {
        let mut running = self.start_guest(program, host, argv, Attachment::Detached)?;
        let mut heard = Vec::new();
        loop {
            let mut chunk = [0; 512];
            let len = running.status.read(&mut chunk).unwrap_or(0);
            heard.extend_from_slice(&chunk[..len]);
            match words_of(&heard).into_iter().next() {
                Some(Word::Failed(code, message)) => {
                    return Err(ExecError::Program { code, message });
                }
                Some(_) => return Ok(running.child.id()),
                None if len == 0 => {
                    let message = "it ended at once".to_owned();
                    return Err(ExecError::Program { code: 126, message });
                }
                None => {}
            }
        }
    }

    fn start_guest(
        &self,
        program: &Program,
        host: &str,
        argv: &[OsString],
        attachment: Attachment,
    ) -> Result<Running, LabError> {
        let network = self.open_network(host)?;
        let pipe = || {
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
                .map_err(|error| sys::SyscallError::new("pipe2", host, error))
        };
        let (control_reader, control) = pipe()?;
        let (status, status_writer) = pipe()?;
        let fds = [network.as_fd(), control_reader.as_fd(), status_writer.as_fd()];
        let mut command = program.command("guest");
        command.args(fds.map(|fd| fd.as_raw_fd().to_string()));
        command.arg(self.dir.path()).arg(host).arg("--").args(argv);
        let is_detached = attachment == Attachment::Detached;
        if is_detached {
            let output = self.dir.append(&detached_log_name(host))?;
            let errors = output.try_clone().map_err(LabError::state("open", self.dir.path()))?;
            command.stdin(Stdio::null()).stdout(output).stderr(errors);
            start_daemon(&mut command, fds.map(|fd| fd.as_raw_fd()).to_vec());
        } else {
            for fd in fds {
                leave_open_for_children(&fd)?;
            }
            start_child_as(&mut command, ChildStart::default());
        }
        sys::namespace::enter_user_and_process_ids(
            self.anchor.as_fd(),
            self.state.own_user_namespace,
        )?;
        let child = command.spawn().map_err(|source| LabError::Spawn {
            program: command.get_program().to_string_lossy().into_owned(),
            source,
        })?;
        let mut control = File::from(control);
        if is_detached {
            // 0 is no signal: from here on the end of the pipe means nothing.
            control.write_all(&[0]).map_err(LabError::state("write", "control pipe"))?;
        }
        Ok(Running { child, control, status: File::from(status) })
    }

    pub(crate) fn open_network(&self, host: &str) -> Result<File, LabError> {
        let index = self.host_index(host)?;
        let fd = self.state.network_fds.get(index).copied().unwrap_or(-1);
        let path = format!("/proc/{}/fd/{fd}", self.state.pid);
        File::open(&path).map_err(LabError::state("open", path))
    }
}

fn detached_log_name(host: &str) -> String {
    format!("{host}.out")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attachment {
    Foreground,
    Detached,
}

/// Why a program could not be run on a host.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExecError {
    /// The host could not be entered.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// The program could not be started there.
    #[error("{message}")]
    Program {
        /// 127 when there is no such program, 126 when it cannot be executed.
        code: u8,
        /// The step that failed, and the reason.
        message: String,
    },
}

/// The whole lines of what the guest has said.
fn words_of(heard: &[u8]) -> Vec<Word> {
    let whole = heard.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    String::from_utf8_lossy(&heard[..whole]).lines().filter_map(word_of).collect()
}

fn word_of(line: &str) -> Option<Word> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    match word {
        "started" => Some(Word::Started),
        "orphans" => Some(Word::Orphans),
        "exit" => Some(Word::Ended(ExecEnd::Code(rest.parse().ok()?))),
        "signal" => Some(Word::Ended(ExecEnd::Signal(rest.parse().ok()?))),
        "failed" => {
            let (code, message) = rest.split_once(' ')?;
            Some(Word::Failed(code.parse().ok()?, message.to_owned()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_guest() {
        assert_eq!(words_of(b"started\nexi"), [Word::Started]);
        assert_eq!(words_of(b"started\nexit 3\n")[1], Word::Ended(ExecEnd::Code(3)));
        assert_eq!(
            words_of(b"started\nsignal 15\norphans\n")[1..],
            [Word::Ended(ExecEnd::Signal(15)), Word::Orphans]
        );
        assert_eq!(
            words_of(b"failed 127 no such program: x\n"),
            [Word::Failed(127, "no such program: x".to_owned())]
        );
        for garbage in [&b""[..], b"exit", b"exit x\n", b"\xff\n", b"failed 127\n", b"\n"] {
            assert_eq!(words_of(garbage), []);
        }
    }
}
