//! Two hosts of a lab on which stock Open MPI starts ranks, and the cores that process what each of them receives.
//!
//! A link for each rank of a host stands for a network card with that many receive queues: a rank's packets come by its
//! link, and receive packet steering (RPS, kernel `Documentation/networking/scaling.rst`) processes each link's packets on
//! a core of our choice by an interrupt from the core that sent them. One more link has the launcher's own traffic.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use lab::ScopedLab;
use sys::private::Scratch;
use sys::process::{Ending, Owned};
use vm::line::quoted;

use super::layout::Layout;
use super::study::Receive;
use crate::exit::VerbError;
use crate::verbs::reproduce::idle::core_mask;
use crate::verbs::reproduce::single::wait_unless_told;

const HOSTS: [&str; 2] = ["near", "far"];
/// Kept length of a job's output, bytes.
const SAID_BYTES_MAX: usize = 4 << 20;
/// Interval after which scattered packets go to the next core. Interrupts that a chipset deals out change it with each.
const SCATTER_EVERY: &str = "1ms";
/// Hosts share no memory.
const SHARED_MEMORY: &str = "mount -t tmpfs tmpfs /dev/shm";

/// What runs a job.
#[derive(Debug)]
pub(super) struct Tools {
    /// Open MPI's launcher.
    pub(super) launcher: PathBuf,
    /// The provider; the one beside this program if absent.
    pub(super) library: Option<PathBuf>,
}

/// The lab with its hosts.
#[derive(Debug)]
pub(super) struct JobHosts {
    tools: Tools,
    layout: Layout,
    // Dropped before the lab.
    _holder: Owned,
    lab: ScopedLab,
    scratch: Scratch,
}

impl JobHosts {
    /// Brings the lab up, with a process on the far host by whose number the launcher's processes enter it.
    pub(super) fn up(tools: Tools, layout: Layout) -> Result<Self, VerbError> {
        let lab = ScopedLab::inline(&lab_text(layout.ranks_per_host()), std::env::current_exe()?)?;
        let scratch = Scratch::new("messages").map_err(|error| VerbError::from_error(&error))?;
        for host in HOSTS {
            std::fs::create_dir(scratch.path().join(host))?;
        }
        let script = format!("hostname far && {SHARED_MEMORY} && echo $$ && exec sleep infinity");
        let mut holder = lab.command("far");
        holder.args(["unshare", "-u", "-m", "-i", "sh", "-c", &script]);
        holder.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut holder = Owned::start(&mut holder, Ending::KILL)?;
        let mut pid = String::new();
        if let Some(out) = holder.take_stdout() {
            BufReader::new(out).read_line(&mut pid)?;
        }
        let pid: u32 = pid.trim().parse().map_err(|_error| {
            VerbError::missing(
                "a host of the lab cannot have namespaces of its own (unshare, mount)",
            )
        })?;
        let hosts = Self { tools, layout, _holder: holder, lab, scratch };
        // The launcher calls it with a host and a command line.
        let agent = format!(
            "#!/bin/sh\nshift\nexec nsenter -t {pid} -n -u -m -i sh -c \"export TMPDIR={} && $*\"\n",
            quoted(&hosts.scratch.path().join("far").display().to_string()),
        );
        hosts.write_script("agent", &agent)?;
        Ok(hosts)
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The folder for files that ranks read.
    pub(super) fn folder(&self) -> &Path {
        self.scratch.path()
    }

    /// Runs a program as all ranks; what they wrote on standard output.
    pub(super) fn run(
        &self,
        receive: Receive,
        program: &[String],
        limit: Duration,
    ) -> Result<String, VerbError> {
        self.run_steered(receive, receive, program, limit)
    }

    /// The same, with packets taken in on the cores of `steering`, another way to receive. [`Receive::Tcp`] steers nothing.
    pub(super) fn run_steered(
        &self,
        receive: Receive,
        steering: Receive,
        program: &[String],
        limit: Duration,
    ) -> Result<String, VerbError> {
        self.steer(steering)?;
        let scatterers = self.scatter(receive)?;
        let wrapper = self.write_script("rank", &wrapper(&self.layout, receive))?;
        let script = self.script((receive, steering), &wrapper, program, limit)?;
        let mut command = self.lab.command("near");
        command.args(["unshare", "-u", "-m", "-i", "sh", "-c", &script]);
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut job = Owned::start(&mut command, Ending::KILL)?.capture(SAID_BYTES_MAX)?;
        wait_unless_told(&mut job)?;
        drop(scatterers);
        let ended = job.ended_within(Duration::ZERO)?;
        if ended.status.success() {
            return Ok(String::from_utf8_lossy(&ended.stdout).into_owned());
        }
        Err(VerbError::failed(format!("the job ended ({}): {}", ended.status, ended.last_line())))
    }

    /// Runs a program on the first host alone, on the core of its first rank; what it wrote on standard output.
    pub(super) fn run_alone(
        &self,
        program: &[String],
        limit: Duration,
    ) -> Result<String, VerbError> {
        let mut command = self.lab.command(HOSTS[0]);
        let core = self.layout.ranks[0].first().copied().unwrap_or_default().to_string();
        let limit = limit.as_secs().to_string();
        command.args(["timeout", "-k", "5", &limit, "taskset", "-c", &core]).args(program);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut job = Owned::start(&mut command, Ending::KILL)?.capture(SAID_BYTES_MAX)?;
        wait_unless_told(&mut job)?;
        let ended = job.ended_within(Duration::ZERO)?;
        if ended.status.success() {
            return Ok(String::from_utf8_lossy(&ended.stdout).into_owned());
        }
        Err(VerbError::failed(format!("it ended ({}): {}", ended.status, ended.last_line())))
    }

    /// The shell's script that starts the job on the first host.
    fn script(
        &self,
        (receive, steering): (Receive, Receive),
        wrapper: &Path,
        program: &[String],
        limit: Duration,
    ) -> Result<String, VerbError> {
        let folder = self.scratch.path();
        let place = |name: &str| quoted(&folder.join(name).display().to_string());
        let slots = self.layout.ranks_per_host();
        let count = self.layout.ranks_count();
        let control = slots;
        let launcher = quoted(&self.tools.launcher.display().to_string());
        let mut script = format!(
            "hostname near && {SHARED_MEMORY} && export TMPDIR={} && exec timeout -k 5 {} ",
            place("near"),
            limit.as_secs()
        );
        let mut word = |word: &str| write!(script, "{word} ").unwrap_or(());
        if receive != Receive::Tcp {
            word(&quoted(&std::env::current_exe()?.display().to_string()));
            word("mpi");
            if let Some(library) = &self.tools.library {
                word(&format!("--library {}", quoted(&library.display().to_string())));
            }
            if steering == Receive::Tcp {
                word("--no-steer");
            }
            word("--");
        }
        word(&launcher);
        if receive == Receive::Tcp {
            word("--mca pml ob1 --mca btl tcp,vader,self --mca btl_tcp_if_include eth0");
        }
        word(&format!("--bind-to none --host near:{slots},far:{slots} -n {count}"));
        word(&format!("--mca plm rsh --mca plm_rsh_agent {}", place("agent")));
        word(&format!("--mca oob_tcp_if_include eth{control}"));
        word(&quoted(&wrapper.display().to_string()));
        program.iter().for_each(|one| word(&quoted(one)));
        Ok(script)
    }

    /// Has each host process what its links receive where this way wants it. The settings end with the lab.
    fn steer(&self, receive: Receive) -> Result<(), VerbError> {
        for (number, host) in HOSTS.into_iter().enumerate() {
            let mut script = String::new();
            for (device, cores) in self.layout.receive_cores(receive, number).iter().enumerate() {
                let mask = cores.first().map_or_else(|| "0".to_owned(), |core| core_mask(*core));
                writeln!(script, "echo {mask} > {} || exit", steering_file(device)).unwrap_or(());
            }
            let mut command = self.lab.command(host);
            command.args(["sh", "-c", &script]).stdin(Stdio::null());
            let output = command.output()?;
            if !output.status.success() {
                let said = String::from_utf8_lossy(&output.stderr);
                return Err(VerbError::missing(format!(
                    "the core that takes packets cannot be chosen here (rps_cpus): {}",
                    said.lines().last().unwrap_or("no reason given")
                )));
            }
        }
        Ok(())
    }

    /// Starts what deals packets out to several cores, where this way wants that.
    fn scatter(&self, receive: Receive) -> Result<Vec<Owned>, VerbError> {
        let mut started = Vec::new();
        for (number, host) in HOSTS.into_iter().enumerate() {
            for (device, cores) in self.layout.receive_cores(receive, number).iter().enumerate() {
                if cores.len() < 2 {
                    continue;
                }
                let masks: Vec<String> = cores.iter().map(|core| core_mask(*core)).collect();
                let mut command = self.lab.clearstream(host);
                command.args(["rank", "scatter", "--every", SCATTER_EVERY, "--masks"]);
                command.args([&masks.join(";"), &steering_file(device)]);
                command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
                started.push(Owned::start(&mut command, Ending::KILL)?);
            }
        }
        Ok(started)
    }

    fn write_script(&self, name: &str, text: &str) -> Result<PathBuf, VerbError> {
        let path = self.scratch.path().join(name);
        std::fs::write(&path, text)?;
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(&path, mode)?;
        Ok(path)
    }
}

/// Where the cores of a device's packets are set.
fn steering_file(device: usize) -> String {
    format!("/sys/class/net/eth{device}/queues/rx-0/rps_cpus")
}

/// A link for each rank of a host, and one for the launcher. A rank's packets leave by another link than they come by.
fn lab_text(ranks_per_host: usize) -> String {
    let link = "[[link]]\nbetween = [\"near\", \"far\"]\nwire = \"veth\"\nmtu = 1500\n";
    let sysctl =
        "[sysctl]\n\"net.ipv4.conf.default.rp_filter\" = 0\n\"net.ipv4.conf.all.rp_filter\" = 0\n";
    let links = link.repeat(ranks_per_host + 1);
    format!("name = \"messages\"\n{sysctl}[host.near]\n[host.far]\n{links}")
}

/// The script that each rank begins as: chooses its interface, and binds itself.
fn wrapper(layout: &Layout, receive: Receive) -> String {
    let mut text = "#!/bin/sh\ncase $OMPI_COMM_WORLD_RANK in\n".to_owned();
    for (host, cores) in layout.ranks.iter().enumerate() {
        for (rank, core) in cores.iter().enumerate() {
            let number = host * layout.ranks_per_host() + rank;
            let device = Layout::device(receive, rank);
            writeln!(text, "{number}) device=eth{device} core={core} ;;").unwrap_or(());
        }
    }
    text + "esac\nexport FI_CLEARSTREAM_IFACE=$device\nexec taskset -c \"$core\" \"$@\"\n"
}

/// Open MPI's launcher on the search path.
pub(super) fn launcher() -> Result<PathBuf, VerbError> {
    let is_open_mpi = |name: &&&str| {
        let launcher = crew::Launcher::detect(Path::new(name));
        launcher.is_ok_and(|launcher| launcher.flavour() == crew::Flavour::OpenMpi)
    };
    let found = ["mpirun.openmpi", "mpirun"].iter().find(is_open_mpi).map(PathBuf::from);
    found.ok_or_else(|| VerbError::missing("the jobs need Open MPI's mpirun (package openmpi-bin)"))
}

#[cfg(test)]
mod tests {
    use results::{Core, Machine};

    use super::*;

    #[test]
    fn the_lab_has_a_link_a_rank_and_one_for_the_launcher() {
        let plan = lab::file::parse_lab("inline", &lab_text(2)).expect("a lab");
        assert_eq!((plan.hosts.len(), plan.links.len()), (2, 3));
    }

    #[test]
    fn each_rank_has_its_core_and_the_device_of_its_queue() {
        let core = |core| Core { core, is_online: true, is_usable: true, ..Core::default() };
        let machine = Machine { cores: (0..2).map(core).collect(), ..Machine::default() };
        let layout = Layout::of(&machine, 2).expect("cores");
        let lines = |receive| wrapper(&layout, receive);
        assert!(lines(Receive::Queues).contains("1) device=eth1 core=1 ;;"));
        assert!(lines(Receive::Queues).contains("2) device=eth0 core=0 ;;"));
        assert!(lines(Receive::RoundRobin).contains("3) device=eth0 core=1 ;;"));
    }
}
