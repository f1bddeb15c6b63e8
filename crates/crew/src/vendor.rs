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

/// The ranks in Open MPI's table (`--display-map`), by number.
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
    fn any_text_is_a_table_with_ranks_or_without() {
        for text in ["", "Process rank: x", "Process rank: 1 [core 1[hwt 9-", "[core [hwt"] {
            assert!(mapped_ranks(text).len() <= 1, "{text}");
        }
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
