//! What MPI libraries say in words only. No launcher answers with a code whose it is, and MPICH's asks in
//! lines of text for the parts of a job that it does not start itself. All such text is read here; the
//! test below and `tests/mpi.rs` hold it against the launchers that are installed.

use mpi::Flavour;

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
}
