//! A lab's one process, in two steps: [`run_starter`] makes the namespaces and ends, [`run_init`] is
//! process 1 of the lab, makes the network and stays.

use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use packet_switch::line::SharedReport;
use ports::tap::Queues;
use rustix::thread::CapabilitySet;
use sys::namespace;
use sys::process::started_ticks;

use crate::answer::Answer;
use crate::counters::{COUNTERS_FILE, DirectionCounters, LabCounters, LinkCounters};
use crate::network::{self, Ports};
use crate::plan::LabPlan;
use crate::state::{LabDir, LabOwner, LabState};
use crate::switches::Switches;
use crate::{LabError, Program, lines, store};

/// How often the counters are written for `lab status`, and the owner is looked for.
const PUBLISH_EVERY: Duration = Duration::from_millis(500);

/// First step: namespaces of its own, then process 1 in them.
pub(crate) fn run_starter(program: &Program, dir: &Path) -> Result<(), LabError> {
    let own_user_namespace = !may_make_namespaces();
    if own_user_namespace {
        namespace::unshare_user().map_err(|error| LabError::NotPermitted {
            what: format!("this user may not create namespaces: {error}: {}", error.source),
            advice: if namespace::is_chroot() {
                "this runs in a chroot, where the kernel refuses user namespaces; enter that root with \
                 pivot_root (as containers do), or run outside"
            } else {
                "run as root, or allow user namespaces (sysctl user.max_user_namespaces, \
                 kernel.apparmor_restrict_unprivileged_userns)"
            }
            .to_owned(),
        })?;
    }
    namespace::unshare_process_ids()?;
    let mut init = program.command("init");
    init.arg(dir).arg(own_user_namespace.to_string());
    start(&mut init)
}

/// Second step: everything the plan names, then the frames, until killed or left by the owner.
pub(crate) fn run_init(
    program: &Program,
    dir: &Path,
    own_user_namespace: bool,
) -> Result<(), LabError> {
    let dir = LabDir::at(dir)?;
    let plan: LabPlan = serde_json::from_str(&dir.read("plan.json")?)
        .map_err(|error| LabError::NotStarted(error.to_string()))?;
    rustix::process::chdir("/").map_err(|error| sys::SyscallError::new("chdir", "/", error))?;
    sys::process::bury_children()?;
    let network = network::make(&plan)?;
    let pid = outer_pid()?;
    let mut state = LabState {
        pid,
        started_ticks: started_ticks(pid)
            .ok_or_else(|| LabError::NotStarted("no /proc/PID/stat".to_owned()))?,
        own_user_namespace,
        network_fds: network.namespaces.iter().map(AsRawFd::as_raw_fd).collect(),
        host_threads: host_threads(&network.namespaces)?,
        notes: network.notes,
        threads: network.threads,
        owner: dir.owner(),
        plan,
    };
    let threads_count = 2 * network.lightpaths.len();
    let cores_count = thread::available_parallelism().map_or(1, usize::from);
    let few_cores = cores_count < 2 * threads_count;
    let mut carried = Vec::new();
    for ports in network.lightpaths {
        carried.push(carry(ports, few_cores)?);
    }
    let mut switches = Switches::run(&dir, &state.plan, network.switches)?;
    state.notes.extend(store::start(program, &dir, &state.plan, &network.namespaces));
    let text =
        serde_json::to_string(&state).map_err(|error| LabError::NotStarted(error.to_string()))?;
    dir.write("state.json", &text)?;
    // Whoever asks as soon as it is up finds them.
    let counters = read_counters(&carried, &mut switches)?;
    write_counters(&dir, &counters)?;
    say_ready().map_err(|source| LabError::NotStarted(source.to_string()))?;
    publish(&dir, &carried, &mut switches, counters, state.owner)
}

/// Starts a program without waiting for it: its parent is about to end, or to bury it unasked.
fn start(command: &mut Command) -> Result<(), LabError> {
    match command.spawn() {
        Ok(_child) => Ok(()),
        Err(source) => Err(LabError::Spawn {
            program: command.get_program().to_string_lossy().into_owned(),
            source,
        }),
    }
}

fn may_make_namespaces() -> bool {
    let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN;
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(needed))
}

/// This process's id where the lab was brought up: `/proc` is still that of outside.
pub(crate) fn outer_pid() -> Result<i32, LabError> {
    let link = fs::read_link("/proc/self").map_err(LabError::state("read", "/proc/self"))?;
    link.to_str()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| LabError::NotStarted("/proc/self is no number".to_owned()))
}

/// Starts a thread in each of these network namespaces, which does nothing but be there: what `/proc`
/// tells about the namespace is read through it. Their ids where the lab was brought up.
fn host_threads(namespaces: &[OwnedFd]) -> Result<Vec<i32>, LabError> {
    let started = |namespace: &OwnedFd| {
        let namespace = namespace.try_clone().map_err(LabError::state("open", "network"))?;
        let (say, hear) = channel();
        let stay = move || {
            let id = namespace::enter_network(namespace.as_fd())
                .map_err(LabError::from)
                .and_then(|()| outer_thread_id());
            drop(namespace);
            say.send(id).ok();
            loop {
                thread::park();
            }
        };
        let builder = thread::Builder::new().name("host".to_owned()).stack_size(64 << 10);
        builder.spawn(stay).map_err(|error| sys::SyscallError::new("clone", "thread", error))?;
        hear.recv().map_err(|error| LabError::NotStarted(error.to_string()))?
    };
    namespaces.iter().map(started).collect()
}

/// The calling thread's id where the lab was brought up: the link reads `PID/task/TID`.
fn outer_thread_id() -> Result<i32, LabError> {
    let path = "/proc/thread-self";
    let link = fs::read_link(path).map_err(LabError::state("read", path))?;
    let id = link.file_name().and_then(|name| name.to_str()?.parse().ok());
    id.ok_or_else(|| LabError::NotStarted(format!("{path} is no number")))
}

/// Reports to `lab up`, and closes its pipe.
fn say_ready() -> io::Result<()> {
    Answer::Ready.say()?;
    let null = fs::File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok(())
}

struct Carried {
    link_index: usize,
    reports: [SharedReport; 2],
}

/// Starts both directions of a link.
fn carry(ports: Ports, few_cores: bool) -> Result<Carried, LabError> {
    let ([first, second], cores) = (ports.ends, &ports.plan.cores);
    let [there, back] = [(&first, &second), (&second, &first)]
        .map(|(from, to)| (Queues::new(vec![Arc::clone(from)]), Queues::new(vec![Arc::clone(to)])));
    let name = |way: &str| format!("{way}{}", ports.link_index);
    let reports = [
        lines::start(name("forward"), there, &ports.plan.forward, cores, few_cores)?,
        lines::start(name("backward"), back, &ports.plan.backward, cores, few_cores)?,
    ];
    Ok(Carried { link_index: ports.link_index, reports })
}

/// Writes the counters again and again; returns when the owner has ended.
fn publish(
    dir: &LabDir,
    carried: &[Carried],
    switches: &mut Switches,
    mut published: LabCounters,
    owner: Option<LabOwner>,
) -> Result<(), LabError> {
    while owner.is_none_or(LabOwner::is_running) {
        thread::sleep(PUBLISH_EVERY);
        let counters = read_counters(carried, switches)?;
        if counters != published {
            if let Err(error) = write_counters(dir, &counters) {
                log(&format!("{error}"));
            }
            published = counters;
        }
    }
    Ok(())
}

fn read_counters(carried: &[Carried], switches: &mut Switches) -> Result<LabCounters, LabError> {
    let links = carried.iter().map(|link| LinkCounters {
        link_index: link.link_index,
        forward: DirectionCounters::of(&link.reports[0]),
        backward: DirectionCounters::of(&link.reports[1]),
    });
    Ok(LabCounters { links: links.collect(), switches: switches.counters()? })
}

fn write_counters(dir: &LabDir, counters: &LabCounters) -> Result<(), LabError> {
    let text =
        serde_json::to_string(counters).map_err(|error| LabError::NotStarted(error.to_string()))?;
    dir.write(COUNTERS_FILE, &text)
}

/// The anchor's stderr is the log file in the lab's directory.
pub(crate) fn log(line: &str) {
    writeln!(io::stderr(), "{line}").ok();
}
