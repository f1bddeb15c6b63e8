//! What MPI libraries say in words only. No launcher answers with a code whose it is, MPICH's asks in
//! lines of text for the parts of a job that it does not start itself, and Open MPI's tells in a table where it
//! would start ranks. All such text is read here; the tests below and `tests/mpi.rs` hold it against the launchers
//! that are installed.

use mpi::Flavour;

use crate::job_map::{BoundThread, MappedRank};

/// What is in the answer to `--version`, whose launcher gives it, and an answer as it was seen.
const ANSWERS: [(&str, Flavour, &str); 4] = [
    ("(Open MPI)", Flavour::OpenMpi, "mpirun (Open MPI) 4.1.4"),
    ("(OpenRTE)", Flavour::OpenMpi, "mpirun.openmpi (OpenRTE) 4.1.4"),
    ("HYDRA build details", Flavour::Mpich, "HYDRA build details:\n    Version: 4.0.2"),
    // Its launchers other than Hydra, of versions before 3.
    ("MPICH", Flavour::Mpich, "MPICH2 Version: 1.4.1"),
];

/// Names of Open MPI's launcher and of its daemon on other hosts, as the kernel shows them.
const OPEN_MPI_NAMES: [&str; 5] = ["mpirun", "mpirun.openmpi", "orterun", "prterun", "orted"];

/// Names under which MPICH's launcher is installed, Debian's first.
pub(crate) const MPICH_NAMES: [&str; 3] = ["mpiexec.mpich", "mpiexec.hydra", "mpiexec"];

/// Whose launcher answers so to `--version`.
pub(crate) fn flavour(answer: &str) -> Option<Flavour> {
    ANSWERS.iter().find(|(mark, ..)| answer.contains(mark)).map(|&(_, flavour, _)| flavour)
}

/// Whether a process of this name may be Open MPI's launcher or its daemon.
pub(crate) fn is_open_mpi(process_name: &str) -> bool {
    OPEN_MPI_NAMES.contains(&process_name)
}

/// A line that MPICH's launcher writes when it leaves the start of a job's parts to others
/// (`-launcher manual`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ManualLine<'a> {
    /// The command that starts the next host's part.
    Start(&'a str),
    /// All parts were asked for.
    End,
    /// What a rank wrote.
    Output(&'a str),
}

impl<'a> ManualLine<'a> {
    pub(crate) fn of(line: &'a str) -> Self {
        match line.strip_prefix("HYDRA_LAUNCH: ") {
            Some(words) => Self::Start(words),
            None if line.starts_with("HYDRA_LAUNCH_END") => Self::End,
            None => Self::Output(line),
        }
    }
}

/// Most ranks that are read of a table.
const RANKS_MAX: usize = 1 << 20;

/// The ranks in Open MPI's table (`--display-map`), by number. Release 4 has a line for each rank; release 5 has a paragraph, with
/// the binding in a line of its own.
pub(crate) fn mapped_ranks(table: &str) -> Vec<MappedRank> {
    let mut ranks: Vec<MappedRank> = Vec::new();
    let mut host = "";
    for line in table.lines() {
        if let Some((_, rest)) = line.split_once("Data for node: ") {
            host = rest.split_whitespace().next().unwrap_or_default();
        } else if let Some((_, rest)) = line.split_once("Process rank: ")
            && let Some(rank) = number_at(rest)
            && ranks.len() < RANKS_MAX
        {
            ranks.push(MappedRank { rank, host: host.to_owned(), bound: bound_threads(rest) });
        } else if let Some((_, rest)) = line.split_once("Data for proc: [")
            && let Some(rank) = rest.rsplit_once(',').and_then(|(_, rank)| number_at(rank))
            && ranks.len() < RANKS_MAX
        {
            ranks.push(MappedRank { rank, host: host.to_owned(), bound: Vec::new() });
        } else if let Some((_, rest)) = line.split_once("Binding: ")
            && let Some(rank) = ranks.last_mut()
        {
            rank.bound = bound_cores(rest);
        }
    }
    ranks.sort_by_key(|rank| rank.rank);
    ranks.dedup_by_key(|rank| rank.rank);
    ranks
}

/// `socket 0[core 1[hwt 0-1]], socket 1[core 8[hwt 0]]:[./BB]`; nothing where no core is named.
fn bound_threads(text: &str) -> Vec<BoundThread> {
    /// Hardware threads of a core, at most; a larger range is no range.
    const THREADS_MAX: u32 = 64;
    let mut bound = Vec::new();
    for part in text.split("[core ").skip(1) {
        let Some(core) = number_at(part) else { continue };
        let Some((_, threads)) = part.split_once("[hwt ") else { continue };
        let Some(first) = number_at(threads) else { continue };
        let digits = threads.find(|one: char| !one.is_ascii_digit()).unwrap_or(threads.len());
        let last = threads[digits..].strip_prefix('-').and_then(number_at).unwrap_or(first);
        let threads = first..=last.min(first.saturating_add(THREADS_MAX));
        bound.extend(threads.map(|thread| BoundThread { core, thread }));
    }
    bound.sort_unstable();
    bound.dedup();
    bound
}

/// `package[0][core:L0-1,3]package[1][core:L8]` of release 5: whole cores by the launcher's numbers, each with as many hardware
/// threads as a core may have; those that it has not are nobody's. Nothing where no core is named, or by other numbers.
fn bound_cores(text: &str) -> Vec<BoundThread> {
    /// Hardware threads of a core, at most.
    const THREADS_MAX: u32 = 8;
    /// Cores of a range, at most; a larger range is no range.
    const CORES_MAX: u32 = 4096;
    let mut bound = Vec::new();
    for part in text.split("[core:L").skip(1) {
        let list = part.split(']').next().unwrap_or_default();
        for range in list.split(',') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (Some(first), Some(last)) = (number_at(first), number_at(last)) else { continue };
            for core in first..=last.min(first.saturating_add(CORES_MAX)) {
                bound.extend((0..THREADS_MAX).map(|thread| BoundThread { core, thread }));
            }
        }
    }
    bound.sort_unstable();
    bound.dedup();
    bound
}

/// The number that a text begins with.
fn number_at(text: &str) -> Option<u32> {
    let digits = text.find(|one: char| !one.is_ascii_digit()).unwrap_or(text.len());
    text[..digits].parse().ok()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::Launcher;

    #[test]
    fn each_answer_that_was_seen_tells_its_vendor() {
        for (_, vendor, seen) in ANSWERS {
            assert_eq!(flavour(seen), Some(vendor), "{seen}");
        }
        assert_eq!(flavour("GNU coreutils"), None);
    }

    #[test]
    fn the_installed_launchers_tell_their_vendors() {
        for (name, vendor) in
            [("mpirun.openmpi", Flavour::OpenMpi), ("mpiexec.mpich", Flavour::Mpich)]
        {
            let launcher = Launcher::detect(Path::new(name)).expect("packages openmpi-bin, mpich");
            assert_eq!(launcher.flavour(), vendor, "{name}");
        }
        assert_eq!(crate::manual_launcher(), Some("mpiexec.mpich"));
    }

    #[test]
    fn a_table_of_open_mpi_tells_host_and_cores_of_each_rank() {
        // As release 4.1.4 wrote it, but for the second host's binding.
        let table = " Data for JOB [12769,1] offset 0 Total slots allocated 4\n\n \
             ========================   JOB MAP   ========================\n\n \
             Data for node: far\tNum slots: 2\tMax slots: 0\tNum procs: 2\n \
             \tProcess OMPI jobid: [12769,1] App: 0 Process rank: 2 Bound: socket 0[core 1[hwt 0-1]], \
             socket 1[core 10[hwt 0]]:[../BB][B.]\n \
             \tProcess OMPI jobid: [12769,1] App: 0 Process rank: 3 Bound: N/A\n\n \
             Data for node: vm\tNum slots: 1\tMax slots: 0\tNum procs: 2\n \
             \tProcess OMPI jobid: [12769,1] App: 0 Process rank: 0 Bound: socket 0[core 0[hwt 0]]:[B/.]\n \
             \tProcess OMPI jobid: [12769,1] App: 0 Process rank: 1 Bound: UNBOUND\n\n";
        let ranks = mapped_ranks(table);
        let hosts: Vec<(u32, &str)> =
            ranks.iter().map(|one| (one.rank, one.host.as_str())).collect();
        assert_eq!(hosts, [(0, "vm"), (1, "vm"), (2, "far"), (3, "far")]);
        let thread = |core, thread| BoundThread { core, thread };
        assert_eq!(ranks[0].bound, [thread(0, 0)]);
        assert_eq!(ranks[1].bound, []);
        assert_eq!(ranks[2].bound, [thread(1, 0), thread(1, 1), thread(10, 0)]);
    }

    #[test]
    fn a_table_of_release_5_tells_host_and_cores_of_each_rank() {
        // As release 5.0.11 wrote it, but for the last two ranks.
        let table = "\n=================================   JOB MAP   =================================\n\
             Data for JOB prterun-vm-1@1 offset 0 Total slots allocated 2\n\
             Mapper requested: NULL  Last mapper: round_robin  Mapping policy: BYCORE:NOOVERSUBSCRIBE  Ranking policy: FILL\n\
             Binding policy: CORE:IF-SUPPORTED  Cpu set: N/A  PPR: N/A  Cpus-per-rank: N/A  Cpu Type: CORE\n\
             Num nodes: 1\n\n\
             Data for node: vm\tState: 3\tFlags: DAEMON_LAUNCHED:LOCATION_VERIFIED:MAPPED:SLOTS_GIVEN\n\
             \x20               resolved from localhost\n\
             \x20       Daemon: [prterun-vm-1@0,0]\tDaemon launched: True\n\
             \x20       Data for proc: [prterun-vm-1@1,0]\n\
             \x20               Pid: 0\tLocal rank: 0\tNode rank: 0\tApp rank: 0\n\
             \x20       \tBinding: package[0][core:L1]\n\
             \x20       Data for proc: [prterun-vm-1@1,1]\n\
             \x20       \tBinding: UNBOUND\n\
             Data for node: far\tState: 3\n\
             \x20       Data for proc: [prterun-vm-1@1,2]\n\
             \x20       \tBinding: package[0][core:L0-1,3]package[1][core:L8]\n";
        let ranks = mapped_ranks(table);
        let hosts: Vec<(u32, &str)> =
            ranks.iter().map(|one| (one.rank, one.host.as_str())).collect();
        assert_eq!(hosts, [(0, "vm"), (1, "vm"), (2, "far")]);
        let cores = |rank: &MappedRank| {
            let mut cores: Vec<u32> = rank.bound.iter().map(|one| one.core).collect();
            cores.dedup();
            cores
        };
        assert_eq!(
            ranks.iter().map(cores).collect::<Vec<_>>(),
            [vec![1], vec![], vec![0, 1, 3, 8]]
        );
        assert_eq!(ranks[0].bound.len(), 8, "each thread that the core may have");
    }

    #[test]
    fn any_text_is_a_table_with_ranks_or_without() {
        for text in [
            "",
            "Data for proc: [",
            "Binding: [core:L",
            "Process rank: x",
            "Process rank: 1 [core 1[hwt 9-",
            "[core [hwt",
        ] {
            assert!(mapped_ranks(text).len() <= 1, "{text}");
        }
        let huge = "Data for proc: [a,1]\nBinding: package[0][core:L0-4294967295]";
        assert!(mapped_ranks(huge)[0].bound.len() < 40_000);
        let huge = "Process rank: 1 Bound: [core 1[hwt 0-4294967295]]";
        assert_eq!(mapped_ranks(huge)[0].bound.len(), 65);
    }

    #[test]
    fn the_installed_launcher_tells_where_it_would_start_ranks_and_starts_none() {
        let arguments: Vec<std::ffi::OsString> =
            ["--allow-run-as-root", "--host", "here:2,far:1", "-n", "3", "true"]
                .map(Into::into)
                .into();
        let map = crate::job_map("mpirun.openmpi".as_ref(), &arguments, None).expect("it runs");
        let hosts: Vec<&str> = map.ranks.iter().map(|one| one.host.as_str()).collect();
        assert_eq!(hosts, ["here", "here", "far"], "{}", map.complaint);
    }
}
