//! The lab's file system: on each of its hosts one keeper, a process of the lab that starts the servers' programs or
//! mounts the file system, and stays.
//!
//! A client's mount is in the keeper's mount namespace. Programs on that host enter it ([`mounts_of`]) and so see the
//! mount, the machine around the lab does not. All data is in memory; with the lab everything goes.

mod glusterfs;
mod memory;
mod moosefs;
mod projected;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, mount_remount, unmount,
};
use sys::SyscallError;
use sys::process::{
    ChildStart, leave_open_for_children, start_child_as, started_ticks, take_inherited,
};

use crate::anchor::{log, outer_pid};
use crate::plan::{FilesystemKind, FilesystemPlan, LabPlan};
use crate::state::LabDir;
use crate::{LabError, Program, view};

/// Longest that one host's part may take to stand.
const START_TIMEOUT: Duration = Duration::from_secs(15);
/// How often it is looked whether something stands.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How often a client tries to mount.
const AGAIN_AFTER: Duration = Duration::from_millis(200);
/// Longest wait for a server's answer.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// What a keeper says once its part stands.
const READY: &str = "ready";

/// Where a keeper notes itself for programs of its host.
fn note_name(host: &str) -> String {
    format!("{host}.mounts")
}

/// The mount namespace that programs of this host share with the keeper of its file system; `None` where there is
/// none. To be called while `/proc` is that of outside.
pub(crate) fn mounts_of(dir: &Path, host: &str) -> Result<Option<OwnedFd>, SyscallError> {
    let Ok(text) = LabDir::at(dir).and_then(|dir| dir.read(&note_name(host))) else {
        return Ok(None);
    };
    let mut words = text.split_whitespace();
    let pid: i32 = words.next().and_then(|word| word.parse().ok()).unwrap_or(-1);
    let ticks: Option<u64> = words.next().and_then(|word| word.parse().ok());
    let path = format!("/proc/{pid}/ns/mnt");
    let what = format!("{path}: the file system of {host} has ended; its log is {host}.store.log");
    let opened =
        File::open(&path).map_err(|error| SyscallError::new("open", what.clone(), error))?;
    // Looked at after it was opened: another process of that number would have another start.
    if ticks.is_none() || started_ticks(pid) != ticks {
        return Err(SyscallError::new("open", &what, rustix::io::Errno::SRCH));
    }
    Ok(Some(OwnedFd::from(opened)))
}

/// Starts the plan's file system, servers first; what could not be had, one line each.
pub(crate) fn start(
    program: &Program,
    dir: &LabDir,
    plan: &LabPlan,
    networks: &[OwnedFd],
) -> Vec<String> {
    let Some(filesystem) = &plan.filesystem else { return Vec::new() };
    let (programs, packages) = match filesystem.kind {
        FilesystemKind::MooseFs => (moosefs::PROGRAMS, moosefs::PACKAGES),
        FilesystemKind::GlusterFs => (glusterfs::PROGRAMS, glusterfs::PACKAGES),
    };
    let missing: Vec<&str> =
        programs.iter().copied().filter(|name| find_program(name).is_none()).collect();
    if !missing.is_empty() {
        return vec![format!(
            "no file system: {} not found; install {packages}",
            missing.join(", ")
        )];
    }
    let lacking = filesystem.forwarder.as_ref().and_then(|_| projected::lacking());
    for host in filesystem.hosts() {
        let number = plan.hosts.iter().position(|known| known.name == *host);
        let Some(network) = number.and_then(|number| networks.get(number)) else { continue };
        if let Err(error) = start_keeper(program, dir, network, host) {
            // Clients of servers that do not stand would wait for ever.
            return vec![format!("no file system: {host}: {error}")];
        }
    }
    lacking.into_iter().chain(memory::lacking(filesystem.bytes_max())).collect()
}

fn start_keeper(
    program: &Program,
    dir: &LabDir,
    network: &OwnedFd,
    host: &str,
) -> Result<(), LabError> {
    let network = network.try_clone().map_err(LabError::state("open", "network"))?;
    leave_open_for_children(&network)?;
    let mut command = program.command("store");
    command.arg(network.as_raw_fd().to_string()).arg(dir.path()).arg(host);
    let errors = dir.append(&format!("{host}.store.log"))?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
    let mut keeper = command.spawn().map_err(|source| LabError::Spawn {
        program: command.get_program().to_string_lossy().into_owned(),
        source,
    })?;
    let Some(answer) = keeper.stdout.take() else { return Ok(()) };
    let line = first_line(answer, START_TIMEOUT)?;
    match line.as_str() {
        READY => Ok(()),
        "" => {
            keeper.kill().ok();
            Err(LabError::NotStarted(format!("not up within {START_TIMEOUT:?}")))
        }
        why => Err(LabError::NotStarted(why.to_owned())),
    }
}

/// What comes first; empty when nothing comes in time.
fn first_line(pipe: impl Read + AsFd, within: Duration) -> Result<String, LabError> {
    let mut fds = [rustix::event::PollFd::new(&pipe, rustix::event::PollFlags::IN)];
    let timeout = rustix::event::Timespec::try_from(within).ok();
    let ready = rustix::event::poll(&mut fds, timeout.as_ref());
    if ready.is_ok_and(|count| count == 0) {
        return Ok(String::new());
    }
    let mut line = String::new();
    let read = BufReader::new(pipe).read_line(&mut line);
    read.map_err(LabError::state("read", "the file system's keeper"))?;
    Ok(line.trim_end().to_owned())
}

/// Runs as `store NETWORK-FD DIRECTORY HOST`.
pub(crate) fn run(arguments: &[OsString]) -> u8 {
    let [_, network, dir, host] = arguments else { return 1 };
    let number = network.to_str().and_then(|text| text.parse().ok()).unwrap_or(-1);
    let host = host.to_string_lossy();
    match take_inherited(number)
        .map_err(LabError::from)
        .and_then(|network| Part::prepare(network, Path::new(dir), &host))
        .and_then(|part| Ok((part.begin()?, part)))
    {
        Ok((children, part)) => {
            // The anchor may have given up.
            writeln!(io::stdout(), "{READY}").ok();
            part.keep(children);
            0
        }
        Err(error) => {
            writeln!(io::stdout(), "{error}").ok();
            1
        }
    }
}

/// What one host does for the file system.
#[derive(Clone)]
struct Part {
    filesystem: FilesystemPlan,
    host: String,
    /// The lab's directory.
    directory: PathBuf,
    /// Where the servers are reached, in the plan's order.
    server_addresses: Vec<IpAddr>,
    /// Where the metadata is served: the first of them.
    metadata_address: IpAddr,
    mounts: bool,
    /// It hands the file system on.
    forwards: bool,
    /// Where clients reach the host that does.
    forwarder_addresses: Vec<IpAddr>,
}

impl Part {
    /// Enters the host, where programs that share its view can find it.
    fn prepare(network: OwnedFd, dir: &Path, host: &str) -> Result<Self, LabError> {
        let lab_dir = LabDir::at(dir)?;
        let plan: LabPlan = serde_json::from_str(&lab_dir.read("plan.json")?)
            .map_err(|error| LabError::NotStarted(error.to_string()))?;
        let no_part = || {
            LabError::NotStarted(format!("{host} is neither server nor client of a file system"))
        };
        let filesystem = plan.filesystem.clone().ok_or_else(no_part)?;
        let address = |server: &String| plan.addresses_of(server).find(IpAddr::is_ipv4);
        let server_addresses: Option<Vec<IpAddr>> =
            filesystem.servers.iter().map(address).collect();
        let server_addresses = server_addresses.ok_or_else(no_part)?;
        let metadata_address = *server_addresses.first().ok_or_else(no_part)?;
        let mounts = filesystem.clients.iter().any(|client| client == host);
        let forwards = filesystem.forwarder.as_deref() == Some(host);
        let forwarder = filesystem.forwarder.iter().filter(|_| projected::lacking().is_none());
        let forwarder_addresses = forwarder.flat_map(|name| plan.addresses_of(name)).collect();
        let host = host.to_owned();
        let part = Self {
            filesystem,
            host: host.clone(),
            directory: dir.to_owned(),
            server_addresses,
            metadata_address,
            mounts,
            forwards,
            forwarder_addresses,
        };
        let host = host.as_str();
        // The lab's init buries its children unasked; this one waits for its own.
        sys::process::keep_children()?;
        let outer = outer_pid()?;
        let ticks = started_ticks(outer).unwrap_or_default();
        view::enter(network, dir, host)?;
        let mount_error = |path: &Path| {
            let path = path.display().to_string();
            move |error| LabError::from(SyscallError::new("mount", &path, error))
        };
        let base = Path::new("/mnt");
        mount("tmpfs", base, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, None)
            .and_then(|()| mount_change(base, MountPropagationFlags::SHARED))
            .map_err(mount_error(base))?;
        for point in part.mount_points() {
            fs::create_dir(&point).map_err(LabError::state("make", &point))?;
        }
        // Until the file system is mounted, or when it has gone, nobody writes into this memory instead.
        mount_remount(base, MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV, "")
            .map_err(mount_error(base))?;
        if part.mounts {
            lab_dir.write(&note_name(host), &format!("{outer} {ticks}\n"))?;
        }
        Ok(part)
    }

    /// Where something is mounted on this host.
    fn mount_points(&self) -> Vec<PathBuf> {
        let own = self.filesystem.mount_point();
        let projected = projected::WAYS.iter().map(|way| way.point(&own, self.forwards));
        let projected = projected.filter(|point| *point != own).collect::<Vec<_>>();
        let has_more = self.forwards || self.mounts && self.filesystem.forwarder.is_some();
        std::iter::once(own).chain(projected.into_iter().filter(|_| has_more)).collect()
    }

    fn is_first(&self) -> bool {
        self.filesystem.servers.first() == Some(&self.host)
    }

    /// Starts what runs on the host; returns once it stands. A client whose servers cannot be reached yet, as nobody
    /// has planned the routes, waits for them in [`Part::keep`].
    fn begin(&self) -> Result<Vec<Child>, LabError> {
        match (self.filesystem.kind, self.mounts) {
            _forwarder if self.forwards => Ok(Vec::new()),
            (_, true) if !self.can_mount() => Ok(Vec::new()),
            (_, true) => Ok(vec![self.mount()?]),
            (FilesystemKind::MooseFs, false) => moosefs::serve(self),
            (FilesystemKind::GlusterFs, false) => glusterfs::serve(self),
        }
    }

    fn can_mount(&self) -> bool {
        match self.filesystem.kind {
            FilesystemKind::MooseFs => is_listening(self.metadata_address, moosefs::CLIENTS_PORT),
            FilesystemKind::GlusterFs => glusterfs::can_mount(self),
        }
    }

    fn mount(&self) -> Result<Child, LabError> {
        let mut command = match self.filesystem.kind {
            FilesystemKind::MooseFs => moosefs::client(self),
            FilesystemKind::GlusterFs => glusterfs::client(self)?,
        };
        let mut child = spawn(&mut command)?;
        wait_for(&mut child, "the mount", || is_mounted(&self.filesystem.mount_point()))?;
        Ok(child)
    }

    /// Stays with what runs here. A client that has ended is started again; servers are not, so that what a test
    /// ended stays ended.
    fn keep(&self, mut children: Vec<Child>) {
        if !self.forwarder_addresses.is_empty() && (self.forwards || self.mounts) {
            projected::keep(self);
        }
        if self.forwards {
            // Its threads do the work.
            loop {
                thread::park();
            }
        }
        if self.mounts && children.is_empty() {
            children.push(self.mount_at_last());
        }
        while let Some(mut child) = children.pop() {
            let ended = child.wait();
            log(&format!("{}: a program of the file system has ended: {ended:?}", self.host));
            if self.mounts {
                unmount(self.filesystem.mount_point(), UnmountFlags::DETACH).ok();
                children.push(self.mount_at_last());
            }
        }
    }

    /// Mounts as soon as the servers can be reached.
    fn mount_at_last(&self) -> Child {
        loop {
            if self.can_mount() {
                match self.mount() {
                    Ok(child) => return child,
                    Err(error) => log(&error.to_string()),
                }
            }
            thread::sleep(AGAIN_AFTER);
        }
    }
}

/// Starts a program of the file system; what it says goes to the keeper's log.
fn spawn(command: &mut Command) -> Result<Child, LabError> {
    command.stdin(Stdio::null()).stdout(io::stderr());
    start_child_as(command, ChildStart { dies_with_parent: true });
    command.spawn().map_err(|source| LabError::Spawn {
        program: command.get_program().to_string_lossy().into_owned(),
        source,
    })
}

/// Waits until something that a program does is there.
fn wait_for(
    child: &mut Child,
    what: &str,
    mut is_there: impl FnMut() -> bool,
) -> Result<(), LabError> {
    let began = Instant::now();
    while !is_there() {
        if let Ok(Some(status)) = child.try_wait() {
            return Err(LabError::NotStarted(format!("{what}: its program ended: {status}")));
        }
        if began.elapsed() > START_TIMEOUT {
            return Err(LabError::NotStarted(format!("{what} did not appear in time")));
        }
        thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

fn is_listening(address: IpAddr, port: u16) -> bool {
    TcpStream::connect_timeout(&SocketAddr::new(address, port), CONNECT_TIMEOUT).is_ok()
}

/// Whether something is mounted there; asking the file system itself may take until its servers are reached.
fn is_mounted(point: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mounts.lines().any(|line| line.split(' ').nth(4).map(Path::new) == Some(point))
}

/// Where a program is, among those that a user may not have in `PATH` too.
fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(more).map(|dir| dir.join(name)).find(|file| file.is_file())
}
