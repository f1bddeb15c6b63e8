//! What `clearstream mpi` planned for this rank: the core it runs on and the UDP port of its endpoint, which a rule of the
//! network card knows. Both hold for one host, which the values name, and go by the rank's number among those of its host.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::interfaces::complain_of;

/// `HOST:CORE/CORES;CORE/CORES…` by number: the rank's core, and the cores that its launcher is known to give it.
const CORES_VARIABLE: &str = "FI_CLEARSTREAM_CORES";
/// `HOST:PORT`: the port of the first rank; others follow.
const PORT_VARIABLE: &str = "FI_CLEARSTREAM_UDP_PORT";
/// Where ports of queues are looked for where none is planned, and how many are tried.
const FIRST_PORT: u16 = 61_008;
const LAST_PORT: u16 = 65_000;
const PORTS_TRIED: usize = 64;
/// What launchers say of this process among those of its host.
const LOCAL_VARIABLES: [&str; 3] =
    ["OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"];

/// A rank's core.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wanted {
    core: u32,
    /// Where the launcher lets it run. A rank that is elsewhere has been bound by somebody else.
    expected: Vec<u32>,
}

/// The value for this host; `None` for another's.
fn of_host(value: &str, host: &str) -> Option<String> {
    let (name, rest) = value.rsplit_once(':')?;
    (name == host).then(|| rest.to_owned())
}

/// What a value says of the rank of this number.
fn wanted(cores: &str, local: usize) -> Option<Wanted> {
    let (core, expected) = cores.split(';').nth(local)?.split_once('/')?;
    let expected: Option<Vec<u32>> = expected.split(',').map(|core| core.parse().ok()).collect();
    Some(Wanted { core: core.parse().ok()?, expected: expected? })
}

fn local_rank() -> Option<usize> {
    LOCAL_VARIABLES.iter().find_map(|name| std::env::var(name).ok()?.parse().ok())
}

fn here(variable: &str) -> Option<String> {
    let value = std::env::var(variable).ok()?;
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    of_host(&value, &host)
}

/// Binds all threads of this process to the planned core, once. A process that was bound by somebody else is left there.
pub(crate) fn bind() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let Some(wanted) = local_rank().and_then(|local| wanted(&here(CORES_VARIABLE)?, local))
        else {
            return;
        };
        let core = wanted.core;
        match sys::thread::usable_cores() {
            Ok(cores) if cores == wanted.expected || cores == [core] => {}
            Ok(cores) => {
                complain_of(&format!(
                    "this rank was bound to cores {cores:?} by its own command and stays there, not on core {core} as planned"
                ));
                return;
            }
            Err(_error) => return,
        }
        if let Err(error) = bind_threads(core) {
            complain_of(&format!("this rank cannot be bound to core {core}: {error}"));
        }
    });
}

/// Threads that start later inherit it.
fn bind_threads(core: u32) -> Result<(), sys::SyscallError> {
    sys::thread::pin_current(&[core])?;
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    for task in tasks {
        let id = task.file_name().to_str().and_then(|name| name.parse().ok());
        // One that has ended meanwhile needs no core.
        id.and_then(|id| sys::thread::pin_thread(id, &[core]).ok());
    }
    Ok(())
}

/// The planned UDP port, for the first endpoint of this process.
pub(crate) fn port() -> Option<u16> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let first: u16 = here(PORT_VARIABLE)?.parse().ok()?;
    let port = first.checked_add(u16::try_from(local_rank()?).ok()?)?;
    (!TAKEN.swap(true, Ordering::Relaxed)).then_some(port)
}

/// Ports beyond those that the kernel gives away by default, whose receive queue is this rank's by its number.
pub(crate) fn ports_of_queue(queues_count: u32) -> impl Iterator<Item = u16> {
    of_queue(queues_count, local_rank().unwrap_or(0))
}

fn of_queue(queues_count: u32, local: usize) -> impl Iterator<Item = u16> {
    let queues_count = queues_count.max(1) as usize;
    let first = usize::from(FIRST_PORT).next_multiple_of(queues_count) + local % queues_count;
    let ports = (first..=usize::from(LAST_PORT)).step_by(queues_count);
    ports.take(PORTS_TRIED).filter_map(|port| u16::try_from(port).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_a_host_get_ports_of_different_queues() {
        for queues_count in [1, 2, 3, 7, 16] {
            for local in 0..queues_count as usize {
                let mut ports = of_queue(queues_count, local);
                assert!(ports.all(|port| u32::from(port) % queues_count == local as u32));
            }
            let more = of_queue(queues_count, queues_count as usize).next();
            assert_eq!(more, of_queue(queues_count, 0).next());
        }
    }

    #[test]
    fn a_plan_holds_for_the_host_and_the_rank_that_it_names() {
        let value = "near.example:0/0,1;1/0,1";
        let cores = of_host(value, "near.example").expect("this host");
        assert_eq!(wanted(&cores, 1), Some(Wanted { core: 1, expected: vec![0, 1] }));
        assert_eq!(wanted(&cores, 2), None);
        assert_eq!(of_host(value, "near"), None);
        for bad in ["", "0", "x/1", "0/", "0/x", "/"] {
            assert_eq!(wanted(bad, 0), None, "{bad}");
        }
    }
}
