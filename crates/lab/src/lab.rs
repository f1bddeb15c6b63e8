//! A lab seen from outside its anchor: brought up, found, taken down.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::Signal;
use sys::process::started_ticks;
use topology::HostFiles;

use crate::answer::Answer;
use crate::builtin::builtin_labs;
use crate::counters::{COUNTERS_FILE, LabCounters};
use crate::file::parse_lab;
use crate::plan::{LabPlan, WirePlan};
use crate::state::{LabDir, LabOwner, LabState, LabsDir, OWNER_FILE};
use crate::{LabError, Program};

/// A lab that is up.
#[derive(Debug)]
pub struct Lab {
    pub(crate) dir: LabDir,
    pub(crate) state: LabState,
    pub(crate) anchor: OwnedFd,
}

/// How [`Lab::up`] found things.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// It was brought up now.
    New,
    /// It was up already, from the same plan.
    Already,
}

/// Longest a lab may take to come up.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest the kernel may take to end a lab's programs.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
/// How often it is looked at whether they have.
const STOP_LOOK_EVERY: Duration = Duration::from_millis(50);

/// The plan of a built-in lab, or of a lab file.
///
/// # Errors
/// Neither exists, or the file is wrong.
pub fn find_plan(name_or_file: &str) -> Result<LabPlan, LabError> {
    if let Some(builtin) = builtin_labs().iter().find(|lab| lab.name == name_or_file) {
        return Ok(builtin.plan()?);
    }
    let path = Path::new(name_or_file);
    let looks_like_file = name_or_file.contains('/') || name_or_file.ends_with(".toml");
    if !looks_like_file && !path.is_file() {
        let known: Vec<&str> = builtin_labs().iter().map(|lab| lab.name).collect();
        return Err(LabError::Unknown { name: name_or_file.to_owned(), known: known.join(", ") });
    }
    let text = read_bounded(path)
        .map_err(|source| LabError::Unreadable { path: path.to_owned(), source })?;
    Ok(parse_lab(name_or_file, &text)?)
}

impl Lab {
    /// Brings a lab up; a lab of that name that is up from the same plan is left as it is. With an
    /// owner, a process id, a new lab goes when that process ends, however it ends.
    ///
    /// # Errors
    /// Another lab has the name or goes with another process, this user may not make namespaces or
    /// TAP devices, or the kernel refuses something; nothing is left behind.
    pub fn up(
        plan: &LabPlan,
        program: &Program,
        owner: Option<i32>,
    ) -> Result<(Self, Arrival), LabError> {
        let owner = owner.map(|pid| LabOwner::of(pid).ok_or(LabError::NoOwner(pid))).transpose()?;
        check_cores(plan)?;
        let labs = LabsDir::lock()?;
        let known = labs.lab(&plan.name)?;
        let up =
            known.and_then(|dir| dir.state_if_up().map(|(state, anchor)| (dir, state, anchor)));
        if let Some((dir, state, anchor)) = up {
            match state.owner {
                Some(other) if !other.is_running() => end_anchor(&anchor, &state)?,
                Some(other) if owner != Some(other) => {
                    return Err(LabError::Owned { name: plan.name.clone(), pid: other.pid });
                }
                _ if state.plan != *plan => {
                    return Err(LabError::OtherPlan { name: plan.name.clone() });
                }
                _ => return Ok((Self { dir, state, anchor }, Arrival::Already)),
            }
        }
        labs.remove(&plan.name)?;
        let dir = labs.create(&plan.name)?;
        match start_anchor(&dir, plan, program, owner) {
            Ok((mut state, anchor)) => {
                crate::veth::pin(&state.threads, &mut state.notes);
                let mut lab = Self { dir, state, anchor };
                match crate::machines::start(&lab, program) {
                    Ok(notes) => {
                        lab.state.notes.extend(notes);
                        Ok((lab, Arrival::New))
                    }
                    Err(error) => {
                        lab.end()?;
                        labs.remove(&plan.name)?;
                        labs.remove_if_empty();
                        Err(error)
                    }
                }
            }
            Err(error) => {
                labs.remove(&plan.name)?;
                labs.remove_if_empty();
                Err(error)
            }
        }
    }

    /// The lab of this name, which must be up.
    ///
    /// # Errors
    /// It is not up, or somebody else has this user's runtime folder.
    pub fn open(name: &str) -> Result<Self, LabError> {
        let labs = LabsDir::find()?;
        let opened = match &labs {
            Some(labs) => Self::open_in(labs, name)?,
            None => None,
        };
        opened.ok_or_else(|| LabError::not_up(name, &names_up(labs.as_ref())))
    }

    fn open_in(labs: &LabsDir, name: &str) -> Result<Option<Self>, LabError> {
        if name.is_empty() || name.starts_with('.') || name.contains('/') {
            return Ok(None);
        }
        let Some(dir) = labs.lab(name)? else { return Ok(None) };
        let up = dir.state_if_up();
        Ok(up.map(|(state, anchor)| Self { dir, state, anchor }))
    }

    /// All labs of this user that are up; remains of others are removed, once no lab is coming up or going down.
    ///
    /// # Errors
    /// The remains could not be removed, or somebody else has this user's runtime folder.
    pub fn all() -> Result<Vec<Self>, LabError> {
        let Some(labs) = LabsDir::find()? else { return Ok(Vec::new()) };
        let (up, known_count) = up_in(&labs)?;
        if up.len() < known_count {
            let labs = LabsDir::lock()?;
            for name in labs.names()? {
                let dir = labs.lab(&name).ok().flatten();
                if dir.is_none_or(|dir| dir.state_if_up().is_none()) {
                    labs.remove(&name)?;
                }
            }
            labs.remove_if_empty();
        }
        Ok(up)
    }

    /// The same at once: it removes nothing and takes no lock, which a lab that is being brought up holds.
    ///
    /// # Errors
    /// Somebody else has this user's runtime folder, or it cannot be read.
    pub fn all_now() -> Result<Vec<Self>, LabError> {
        let Some(labs) = LabsDir::find()? else { return Ok(Vec::new()) };
        Ok(up_in(&labs)?.0)
    }

    /// The only lab that is up.
    ///
    /// # Errors
    /// None is, or several are.
    pub fn only() -> Result<Self, LabError> {
        let mut all = Self::all()?;
        match (all.pop(), all.is_empty()) {
            (Some(lab), true) => Ok(lab),
            (None, _) => Err(LabError::NoneUp),
            (Some(last), false) => {
                all.push(last);
                let names: Vec<&str> = all.iter().map(|lab| lab.plan().name.as_str()).collect();
                Err(LabError::Ambiguous { count: names.len(), up: names.join(", ") })
            }
        }
    }

    /// Takes the lab of this name down with every program in it; false when it had ended, and only its remains
    /// were removed.
    ///
    /// # Errors
    /// There is none, it is another user's, or it does not end.
    pub fn down(name: &str) -> Result<bool, LabError> {
        let found = LabsDir::find()?;
        let known = found.as_ref().map_or(Ok(Vec::new()), LabsDir::names)?;
        if !known.iter().any(|known| known == name) {
            return Err(LabError::not_up(name, &names_up(found.as_ref())));
        }
        let labs = LabsDir::lock()?;
        let lab = Self::open_in(&labs, name)?;
        let was_up = lab.is_some();
        lab.map_or(Ok(()), |lab| lab.end())?;
        labs.remove(name)?;
        labs.remove_if_empty();
        Ok(was_up)
    }

    /// Ends its anchor and its guests.
    fn end(&self) -> Result<(), LabError> {
        end_anchor(&self.anchor, &self.state)?;
        self.end_guests()
    }

    /// What it is made of.
    #[must_use]
    pub fn plan(&self) -> &LabPlan {
        &self.state.plan
    }

    /// The anchor's process id: ending that process ends the lab.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.state.pid
    }

    /// The process it goes with.
    #[must_use]
    pub fn owner_pid(&self) -> Option<i32> {
        self.state.owner.map(|owner| owner.pid)
    }

    /// What could not be had, one line each.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.state.notes
    }

    /// What its emulated links and its switches have done; nothing in the moments after it came up and when it goes.
    ///
    /// # Errors
    /// The counters cannot be read.
    pub fn counters(&self) -> Result<LabCounters, LabError> {
        let text = match self.dir.read(COUNTERS_FILE) {
            Err(LabError::State { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(LabCounters::default());
            }
            read => read?,
        };
        serde_json::from_str(&text).map_err(|error| {
            LabError::state("read", self.dir.path().join(COUNTERS_FILE))(error.into())
        })
    }

    /// Where a switch of the lab is asked with `clearstream port`: its socket.
    #[must_use]
    pub fn switch_socket(&self, switch: &str) -> PathBuf {
        self.dir.switch_socket(switch)
    }

    /// The files of `/proc` that tell about a host's network namespace, by way of a thread of the anchor
    /// that stays in it; nothing runs on the host for that.
    ///
    /// # Errors
    /// No such host.
    pub fn host_files(&self, host: &str) -> Result<HostFiles, LabError> {
        let index = self.host_index(host)?;
        let thread = self.state.host_threads.get(index).copied().unwrap_or(-1);
        let proc = PathBuf::from(format!("/proc/{}/task/{thread}", self.state.pid));
        let mut files = HostFiles::default();
        files.proc = proc;
        Ok(files)
    }

    /// Lets this process see the files that programs on a host see, its mount of the lab's file system among them, and
    /// gives it the host's name. Its network stays that of outside, so that ranks of one MPI job on several hosts reach
    /// each other and their launcher; the file system's own client is on the host, and so is what it sends.
    ///
    /// To be called while the process has one thread.
    ///
    /// # Errors
    /// No such host, the host mounts no file system, or the kernel refuses.
    pub fn visit(&self, host: &str) -> Result<(), LabError> {
        self.host_index(host)?;
        let no_files = || {
            let why = format!("{host} mounts no file system of the lab '{}'", self.plan().name);
            LabError::NotStarted(why)
        };
        let mounts = crate::store::mounts_of(self.dir.path(), host)?.ok_or_else(no_files)?;
        if self.state.own_user_namespace {
            sys::namespace::enter_user(self.anchor.as_fd())?;
        }
        Ok(crate::view::visit(mounts, host)?)
    }

    /// A host's place in the plan.
    pub(crate) fn host_index(&self, host: &str) -> Result<usize, LabError> {
        let plan = self.plan();
        let found = plan.hosts.iter().position(|known| known.name == host);
        found.ok_or_else(|| LabError::unknown_host(plan, host))
    }
}

/// The labs that are up, and how many have a directory.
fn up_in(labs: &LabsDir) -> Result<(Vec<Lab>, usize), LabError> {
    let names = labs.names()?;
    let up = names.iter().filter_map(|name| Lab::open_in(labs, name).ok().flatten()).collect();
    Ok((up, names.len()))
}

/// Names of the labs that are up.
fn names_up(labs: Option<&LabsDir>) -> Vec<String> {
    let up = labs.and_then(|labs| up_in(labs).ok()).map_or_else(Vec::new, |(up, _known)| up);
    up.into_iter().map(|lab| lab.state.plan.name).collect()
}

/// Says no to cores on which nothing of the lab can run.
fn check_cores(plan: &LabPlan) -> Result<(), LabError> {
    let hosts = plan.hosts.iter().map(|host| (format!("host {}", host.name), &host.cores));
    let links = plan.links.iter().filter_map(|link| match &link.wire {
        WirePlan::Lightpath(path) => {
            let [one, other] = &link.ends;
            Some((format!("link {}-{}", one.host, other.host), &path.cores))
        }
        WirePlan::Veth(_) => None,
    });
    let switches =
        plan.switches.iter().map(|switch| (format!("switch {}", switch.name), &switch.cores));
    for (whose, cores) in hosts.chain(links).chain(switches) {
        if let Some(core) = sys::thread::first_unusable(cores) {
            return Err(LabError::NoCore { whose, core });
        }
    }
    Ok(())
}

fn start_anchor(
    dir: &LabDir,
    plan: &LabPlan,
    program: &Program,
    owner: Option<LabOwner>,
) -> Result<(LabState, OwnedFd), LabError> {
    dir.write("plan.json", &json(plan)?)?;
    if let Some(owner) = owner {
        dir.write(OWNER_FILE, &json(&owner)?)?;
    }
    dir.write("hosts", &plan.hosts_file())?;
    // Programs of any user look up names there; the folder around it stays closed.
    let hosts = dir.path().join("hosts");
    fs::set_permissions(&hosts, fs::Permissions::from_mode(0o644))
        .map_err(|error| sys::SyscallError::new("chmod", hosts.display().to_string(), error))?;
    let log = dir.create("log")?;
    let mut command = program.command("starter");
    command.arg(dir.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    sys::process::start_daemon(&mut command, Vec::new());
    let mut starter = command.spawn().map_err(|source| LabError::Spawn {
        program: command.get_program().to_string_lossy().into_owned(),
        source,
    })?;
    let answer = starter.stdout.take().map(read_answer).transpose()?.unwrap_or_default();
    // Its answer says it all; waiting only clears it away.
    starter.wait().ok();
    let refusal = match serde_json::from_slice::<Answer>(&answer) {
        Ok(answer) => answer.into_error(),
        Err(_) => {
            let log = dir.read("log").unwrap_or_default();
            let last = log.lines().last().unwrap_or("it ended without an error message");
            Some(LabError::NotStarted(last.to_owned()))
        }
    };
    match refusal {
        Some(error) => Err(error),
        None => dir.state_if_up().ok_or_else(|| LabError::NotStarted("it ended at once".into())),
    }
}

fn json(value: &impl serde::Serialize) -> Result<String, LabError> {
    serde_json::to_string(value).map_err(|error| LabError::NotStarted(error.to_string()))
}

fn read_answer(mut pipe: impl Read + AsFd) -> Result<Vec<u8>, LabError> {
    let mut answer = Vec::new();
    loop {
        if !is_ready(&pipe, START_TIMEOUT) {
            return Err(LabError::NotStarted(format!("no answer within {START_TIMEOUT:?}")));
        }
        let mut chunk = [0; 1024];
        match pipe.read(&mut chunk) {
            Ok(0) | Err(_) => return Ok(answer),
            Ok(len) => answer.extend_from_slice(&chunk[..len]),
        }
    }
}

fn end_anchor(anchor: &OwnedFd, state: &LabState) -> Result<(), LabError> {
    let name = &state.plan.name;
    let process_ids = process_id_namespace(state.pid);
    match rustix::process::pidfd_send_signal(anchor, Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(error) => {
            let error = sys::SyscallError::new("pidfd_send_signal", name, error);
            return Err(LabError::Syscall(error));
        }
    }
    // The kernel ends all other processes of the lab before it lets its init go. It waits until they
    // are buried too: where this machine's own process 1 buries nobody, as in many containers, what
    // is left of them holds nothing and is left to it.
    let began = Instant::now();
    while began.elapsed() < STOP_TIMEOUT {
        if is_ready(anchor, STOP_LOOK_EVERY) || !any_runs_in(process_ids.as_deref()) {
            return Ok(());
        }
    }
    let source = io::Error::from(io::ErrorKind::TimedOut);
    Err(LabError::Syscall(sys::SyscallError::new("pidfd poll", name, source)))
}

fn process_id_namespace(pid: i32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/pid")).ok()
}

/// Whether any process in this process-id namespace has not ended. Assumed when it cannot be seen.
fn any_runs_in(process_ids: Option<&Path>) -> bool {
    let (Some(process_ids), Ok(entries)) = (process_ids, fs::read_dir("/proc")) else {
        return true;
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|&pid| process_id_namespace(pid).as_deref() == Some(process_ids))
        .any(|pid| started_ticks(pid).is_some())
}

fn is_ready(fd: &impl AsFd, timeout: Duration) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::IN)];
    let timeout = Timespec::try_from(timeout).ok();
    loop {
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Err(rustix::io::Errno::INTR) => {}
            other => return other.is_ok_and(|ready_count| ready_count > 0),
        }
    }
}

/// A lab file is a page of text; whatever is longer is something else.
fn read_bounded(path: &Path) -> io::Result<String> {
    const MOST_BYTES: u64 = 1 << 20;
    let mut text = String::new();
    File::open(path)?.take(MOST_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MOST_BYTES {
        return Err(io::Error::other("longer than 1 MiB, not a lab file"));
    }
    Ok(text)
}
