//! `clearstream mpi`: an unmodified MPI job over ClearStream's messages; it fails rather than fall back to TCP.

mod carried;
mod one_sided;
mod placed;
mod plan;
mod transport;

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use packet_switch::Name as SwitchName;
use sys::own_address;

use self::one_sided::OneSided;
use self::placed::{LauncherBinding, Placed, PlacementArgs};
use self::transport::{
    Carrier, SHARED_MEMORY_VARIABLE, SharedMemory, TRANSPORT_VARIABLE, carrier, shared_memory,
};
use crate::VerbResult;
use crate::exit::{VerbError, complain, not_run};
use crate::store;

/// File name of the libfabric provider, in a build and in an installation.
const LIBRARY: &str = "libclearstream_fi.so";
/// The provider's name in libfabric.
const PROVIDER: &str = "clearstream";

/// Open MPI parameters that select the provider. With `pml` set, a job without the provider fails.
const OPEN_MPI: [(&str, &str); 3] = [
    ("OMPI_MCA_pml", "cm"),
    ("OMPI_MCA_mtl", "ofi"),
    ("OMPI_MCA_mtl_ofi_provider_include", PROVIDER),
];
/// Open MPI parameters that select a transport; if given on the command line, they take precedence.
const CHOICES: [&str; 5] =
    ["pml", "mtl", "mtl_ofi_provider_include", "mtl_ofi_provider_exclude", "osc"];
/// Environment variables that the ranks need on every host.
const FORWARDED: [&str; 10] = [
    "FI_PROVIDER_PATH",
    INTERFACE_VARIABLE,
    PORT_VARIABLE,
    "CLEARSTREAM_SWITCH",
    "FI_CLEARSTREAM_REPORT",
    LIVE_VARIABLE,
    SHARED_MEMORY_VARIABLE,
    TRANSPORT_VARIABLE,
    carried::CORES_VARIABLE,
    carried::UDP_PORT_VARIABLE,
];
/// Names the provider a folder for counters of running ranks.
const LIVE_VARIABLE: &str = "FI_CLEARSTREAM_LIVE";
/// Tells the provider which interface or address of the host endpoints use.
const INTERFACE_VARIABLE: &str = "FI_CLEARSTREAM_IFACE";
/// Tells the provider which packet switch, and which network of switches, endpoints have a port on.
const PORT_VARIABLE: &str = "FI_CLEARSTREAM_PORT";

/// Options of `mpi`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = "Examples:\n  \
    clearstream mpi -- mpirun -n 4 ./job\n  \
    clearstream mpi plan -- mpirun -n 4 ./job\n  \
    clearstream mpi --interface eth1 -- mpirun --hostfile hosts ./job\n  \
    clearstream mpi --shared-memory off -- mpirun -n 4 ./job\n  \
    clearstream mpi --transport xdp -- mpirun --hostfile hosts ./job\n  \
    clearstream mpi --port vale0@rack7 -- mpirun --hostfile hosts ./job\n  \
    clearstream mpi --report counters.json -- mpirun -n 2 ./job\n  \
    clearstream mpi --live job -- mpirun -n 4 ./job      beside it: clearstream live --messages job\n\n\
    The launcher must be Open MPI's, 4 or 5, with its libfabric component (Debian's has it). The\n\
    library must have the same path on every host. The exit code is the launcher's, and signals are\n\
    passed on to it. Open MPI's launcher ends with the code of the rank that failed, and with 128+n if\n\
    signal n killed a rank. Ranks of this host are bound next to their receive queues and, as far as\n\
    privileges allow, packets from other hosts are steered there while the job runs (`mpi plan` shows\n\
    how); `clearstream tune revert` undoes what is left if this program is killed. A job that cannot\n\
    use the library fails; it does not fall back to TCP. Parameters that choose another transport\n\
    (--mca pml, --mca mtl, --mca osc) are refused.")]
pub(crate) struct MpiArgs {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    transport: TransportArgs,
    #[command(flatten)]
    placement: PlacementArgs,
    /// Have each rank append a line of JSON with its packet counters to FILE when it ends.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Have each rank keep its packet counters in FOLDER while it runs, for `clearstream live --messages
    /// FOLDER`; made if it is missing.
    #[arg(long, value_name = "FOLDER")]
    live: Option<PathBuf>,
    /// The libfabric provider [default: that beside this program, otherwise in ../lib/clearstream].
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// The launcher and its arguments.
    #[arg(required = true, last = true, value_name = "LAUNCHER")]
    launcher: Vec<OsString>,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Show where each rank of a job would run and which queue and interrupt would receive for it,
    /// with the reasons; starts nothing.
    Plan(plan::PlanArgs),
}

/// Which way messages take.
#[derive(Debug, clap::Args)]
struct TransportArgs {
    /// The interface, or the address of this host, that messages use [default: that of the default
    /// route].
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    /// Exchange messages as Ethernet frames over a port of this packet switch, which each host runs. Ranks whose
    /// switches are joined by links or devices name the same NETWORK; without it, only ranks of one switch
    /// reach each other through it, and all others by UDP. A rank without the switch fails.
    #[arg(long, value_name = "SWITCH[@NETWORK]", value_parser = checked_port)]
    port: Option<String>,
    /// What carries packets between hosts [default: udp].
    #[arg(long, value_name = "HOW", value_enum, conflicts_with = "port")]
    transport: Option<Carrier>,
    /// How ranks of one host exchange messages [default: direct]. Ranks that cannot share memory use UDP
    /// and say why.
    #[arg(long, value_name = "HOW", value_enum)]
    shared_memory: Option<SharedMemory>,
    /// What carries one-sided operations (MPI_Put, MPI_Get, MPI_Accumulate) [default: messages with Open MPI 4; memory with
    /// Open MPI 5, which has no other way].
    #[arg(long, value_name = "HOW", value_enum)]
    one_sided: Option<OneSided>,
}

pub(crate) fn run(args: &MpiArgs, json: bool) -> VerbResult {
    match &args.action {
        Some(Action::Plan(plan)) => plan::run(plan, json),
        None => start(args),
    }
}

/// Runs the job. The launcher takes this process's place unless settings are to be changed back at its end.
fn start(args: &MpiArgs) -> VerbResult {
    let [launcher, arguments @ ..] = args.launcher.as_slice() else {
        return Err(VerbError::usage("name a launcher after --, such as mpirun"));
    };
    store::check_outputs([args.report.as_deref()])?;
    let library = library(args.library.as_deref())?;
    refuse_other_ways(arguments, args.transport.one_sided)?;
    let one_sided = match check_launcher(launcher) {
        Ok(release) => OneSided::chosen(args.transport.one_sided, release)?,
        Err(LauncherError::NotRun(error)) => return Ok(not_run(launcher, &error)),
        Err(LauncherError::Unfit(line)) => return Err(VerbError::missing(line)),
    };
    refuse_other_ways(arguments, Some(one_sided))?;
    check_interface(args.transport.interface.as_deref(), arguments)?;
    let shared_memory = shared_memory(args.transport.shared_memory)?;
    let port = port(args.transport.port.as_deref())?;
    let carrier = carrier(args.transport.transport, port.as_deref())?;
    let folder = library.parent().unwrap_or(Path::new("/"));
    let mut command = Command::new(launcher);
    let one_sided = one_sided.parameters().iter().copied();
    command.envs(OPEN_MPI).envs(one_sided).env("FI_PROVIDER_PATH", folder);
    command.env(SHARED_MEMORY_VARIABLE, shared_memory.value());
    command.env(TRANSPORT_VARIABLE, carrier.value());
    if let Some(interface) = &args.transport.interface {
        command.env(INTERFACE_VARIABLE, interface);
    }
    if let Some(port) = &port {
        command.env(PORT_VARIABLE, port);
    }
    if let Some(report) = &args.report {
        command.env("FI_CLEARSTREAM_REPORT", std::path::absolute(report)?);
    }
    if let Some(folder) = &args.live {
        if folder.exists() && !folder.is_dir() {
            return Err(VerbError::usage(format!("{}: is not a directory", folder.display())));
        }
        std::fs::create_dir_all(folder).map_err(|error| VerbError::unreadable(folder, &error))?;
        command.env(LIVE_VARIABLE, std::path::absolute(folder)?);
    }
    let placed = placed(args, launcher, arguments, port.as_deref(), carrier);
    let planned = placed.as_ref();
    for (name, value) in [
        (carried::CORES_VARIABLE, planned.and_then(carried::cores_value)),
        (carried::UDP_PORT_VARIABLE, planned.and_then(carried::port_value)),
    ] {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    let is_set = |name: &&str| {
        command.get_envs().any(|(known, _)| known == *name) || std::env::var_os(name).is_some()
    };
    let forwarded: Vec<&str> = FORWARDED.into_iter().filter(is_set).collect();
    for name in forwarded {
        command.args(["-x", name]);
    }
    let line = shared_memory.line(port.as_deref(), carrier);
    writeln!(crate::out::stderr(), "clearstream: {line}").ok();
    command.args(arguments);
    carried::run(command, placed.as_ref())
}

/// The plan of a job; `None` where nothing is bound or steered, or the launcher does not tell where it would start the ranks.
fn placed(
    args: &MpiArgs,
    launcher: &OsStr,
    arguments: &[OsString],
    port: Option<&str>,
    carrier: Carrier,
) -> Option<Placed> {
    let wanted = &args.placement;
    let binding = placed::launcher_binding(arguments, |name| std::env::var(name).ok());
    if (wanted.no_bind && wanted.no_steer) || binding == LauncherBinding::None {
        return None;
    }
    let unplanned = |why: &dyn std::fmt::Display| {
        complain(&format!(
            "ranks are not bound and their packets not steered: {} {why}",
            launcher.display()
        ));
    };
    let map = match crew::job_map(launcher, arguments, local_slots(arguments)) {
        Ok(map) => map,
        Err(error) => {
            unplanned(&format_args!("does not tell where it would start them ({error})"));
            return None;
        }
    };
    // It says itself why it starts none.
    if map.ranks.is_empty() {
        return None;
    }
    let interface = args.transport.interface.as_deref();
    // An interface that only other hosts have: nothing is planned here.
    placed::placed(&map.ranks, Some(binding), interface, port, carrier, wanted).ok()
}

/// Launcher options and variables that start ranks elsewhere, perhaps none on this host.
const HOST_OPTIONS: [&str; 5] = ["-H", "-host", "-hostfile", "-machinefile", "-default-hostfile"];
const HOST_VARIABLES: [&str; 5] = [
    "SLURM_JOB_ID",
    "PBS_NODEFILE",
    "LSB_HOSTS",
    "OMPI_MCA_orte_default_hostfile",
    "PRTE_MCA_prte_default_hostfile",
];

/// Whether a launcher would start ranks on other hosts, too, or only there.
fn runs_elsewhere(arguments: &[OsString]) -> bool {
    let names_hosts = |word: &OsString| {
        let word = word.to_string_lossy();
        let word = word.strip_prefix("--").map_or(word.to_string(), |rest| format!("-{rest}"));
        HOST_OPTIONS.contains(&word.as_str())
    };
    arguments.iter().any(names_hosts)
        || HOST_VARIABLES.iter().any(|name| std::env::var_os(name).is_some())
}

/// The ranks that Open MPI's launcher starts on this host without being told to share cores; `None` if hosts are named.
fn local_slots(arguments: &[OsString]) -> Option<usize> {
    if runs_elsewhere(arguments) {
        return None;
    }
    let machine = topology::machine();
    let has_option = |name: &str| arguments.iter().any(|word| word == name);
    let by_thread = has_option("--use-hwthread-cpus") || has_option("-use-hwthread-cpus");
    Some(match by_thread {
        true => machine.cores.iter().filter(|core| core.is_online).count(),
        false => crew::physical_cores_count(&machine),
    })
}

/// Refuses an interface that this host lacks, if the ranks run here: each of them would fail on it.
fn check_interface(given: Option<&str>, arguments: &[OsString]) -> Result<(), VerbError> {
    let variable = std::env::var(INTERFACE_VARIABLE).ok().filter(|value| !value.is_empty());
    let Some(wanted) = given.or(variable.as_deref()) else { return Ok(()) };
    if runs_elsewhere(arguments) || own_address::choose(Some(wanted)).is_some() {
        return Ok(());
    }
    Err(no_interface(wanted))
}

/// An interface or address that this host lacks, with those that it has.
fn no_interface(wanted: &str) -> VerbError {
    let mut names: Vec<String> =
        own_address::all().into_iter().map(|place| place.interface).collect();
    names.dedup();
    names.sort_unstable();
    names.dedup();
    VerbError::usage(format!(
        "--interface {wanted}: this host has no interface or address {wanted} that messages could use; interfaces with an \
         address: {}",
        names.join(", ")
    ))
}

/// What the command line says, else the environment. Each rank would fail on a malformed name.
fn port(given: Option<&str>) -> Result<Option<String>, VerbError> {
    if let Some(given) = given {
        return Ok(Some(given.to_owned()));
    }
    match std::env::var(PORT_VARIABLE) {
        Ok(value) if !value.is_empty() => checked_port(&value)
            .map(Some)
            .map_err(|line| VerbError::usage(format!("{PORT_VARIABLE}={value}: {line}"))),
        _ => Ok(None),
    }
}

/// `SWITCH[@NETWORK]` as the provider understands it.
fn checked_port(text: &str) -> Result<String, String> {
    let (switch, network) = text.split_once('@').unwrap_or((text, "any"));
    switch.parse::<SwitchName>().map_err(|error| error.to_string())?;
    if network.is_empty() {
        return Err("no network name follows the '@'".to_owned());
    }
    Ok(text.to_owned())
}

/// Why a launcher is not used.
enum LauncherError {
    /// It cannot be executed.
    NotRun(io::Error),
    /// It is not Open MPI's, or lacks libfabric: what is missing.
    Unfit(String),
}

/// The given library, or the one of the build or installation.
fn library(given: Option<&Path>) -> Result<PathBuf, VerbError> {
    if let Some(given) = given {
        let name = given.file_name().unwrap_or_default();
        if !name.as_encoded_bytes().ends_with(b"fi.so") {
            let text = "libfabric loads only libraries whose names end in fi.so";
            return Err(VerbError::usage(format!("{}: {text}", given.display())));
        }
        let failed = |error| VerbError::usage(format!("{}: {error}", given.display()));
        return given.canonicalize().map_err(failed);
    }
    let program = std::env::current_exe()?;
    let folder = program.parent().unwrap_or(Path::new("/"));
    let places = [folder.join(LIBRARY), folder.join("../lib/clearstream").join(LIBRARY)];
    let found = places.iter().find_map(|place| place.canonicalize().ok());
    found.ok_or_else(|| {
        let searched = places.each_ref().map(|place| place.display().to_string()).join(" nor at ");
        VerbError::missing(format!(
            "the libfabric provider was found neither at {searched}; `make build` builds it"
        ))
    })
}

/// Refuses a job whose arguments select another transport, because its messages would use that.
fn refuse_other_ways(arguments: &[OsString], one_sided: Option<OneSided>) -> Result<(), VerbError> {
    let further = one_sided.map_or(&[][..], OneSided::further_choices);
    let choices = CHOICES.iter().chain(further);
    let is_mca = |word: &OsString| word.as_encoded_bytes().ends_with(b"-mca");
    for pair in arguments.windows(2) {
        if is_mca(&pair[0]) && choices.clone().any(|choice| pair[1] == **choice) {
            let name = pair[1].display();
            return Err(VerbError::usage(format!(
                "--mca {name} selects another transport than ClearStream's: leave it out"
            )));
        }
    }
    Ok(())
}

/// Checks that the launcher is Open MPI's with libfabric, and returns its release, 4 or 5; the error says what is missing.
fn check_launcher(launcher: &OsStr) -> Result<u32, LauncherError> {
    let name = launcher.display();
    let asked = Command::new(launcher).arg("--version").output();
    let asked = asked.map_err(LauncherError::NotRun)?;
    let version = String::from_utf8_lossy(&asked.stdout).into_owned();
    if version.contains("HYDRA") {
        return Err(LauncherError::Unfit(format!(
            "{name} is MPICH's launcher, which `clearstream mpi` cannot start: use Open MPI's \
             mpirun, or start MPICH yourself (clearstream help mpi-jobs)"
        )));
    }
    if !version.contains("Open MPI") && !version.contains("OpenRTE") && !version.contains("PRRTE") {
        return Err(LauncherError::Unfit(format!(
            "{name} is not Open MPI's launcher; write for example: clearstream mpi -- mpirun -n 2 ./job"
        )));
    }
    // The tool that lists Open MPI's components is in the launcher's folder.
    let beside = found(launcher).map(|path| path.with_file_name("ompi_info"));
    let tool = beside.filter(|path| path.exists()).unwrap_or_else(|| "ompi_info".into());
    let listed = Command::new(&tool).args(["--parsable", "--param", "mtl", "ofi"]).output();
    let listed = listed.map_err(|error| {
        LauncherError::Unfit(format!("{}: {error}: cannot tell what it has", tool.display()))
    })?;
    if !String::from_utf8_lossy(&listed.stdout).contains("mca:mtl:ofi") {
        return Err(LauncherError::Unfit(format!(
            "the Open MPI of {name} was built without libfabric (it has no component mtl/ofi)"
        )));
    }
    Ok(release(&version))
}

/// The release that a launcher's answer to `--version` names, 4 if it names none. PRRTE's own launcher is that of release 5.
fn release(version: &str) -> u32 {
    if version.contains("PRRTE") {
        return 5;
    }
    let number = version.split_once(") ").map_or("", |(_, number)| number);
    number.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(4)
}

/// Path of a program, with symbolic links resolved.
fn found(program: &OsStr) -> Option<PathBuf> {
    let path = Path::new(program);
    if path.components().count() > 1 {
        return Some(path.to_owned());
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(path)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_release_names_itself() {
        for (answer, expected) in [
            ("mpirun (Open MPI) 5.0.11\n\nReport bugs to", 5),
            ("mpirun.openmpi (OpenRTE) 4.1.4\n", 4),
            ("prterun (PRRTE) 3.0.13\n", 5),
            ("(Open MPI", 4),
        ] {
            assert_eq!(release(answer), expected, "{answer}");
        }
        let messages = Some(OneSided::Messages);
        assert_eq!(OneSided::chosen(None, 4).ok(), messages);
        assert_eq!(OneSided::chosen(None, 5).ok(), Some(OneSided::Memory));
        assert_eq!(OneSided::chosen(messages, 4).ok(), messages);
        assert!(OneSided::chosen(messages, 5).is_err());
    }
}
