//! Kernel threads that poll interfaces, and the daemon that moves interrupts.
//!
//! With threaded NAPI a thread `napi/INTERFACE-ID` does what the softirq did. A process-id
//! namespace hides kernel threads; then there are none to show.

use results::NapiThread;

use crate::HostFiles;
use crate::files::parse_list;

/// Processes looked at; `pid_max` may be four million, hosts run some thousands.
const PROCESSES_MAX: usize = 1 << 16;

/// The threads of this host that bear on its interfaces.
#[derive(Debug, Default)]
pub(super) struct KernelThreads {
    /// Process id and name, `napi/` in front.
    napi: Vec<(u32, String)>,
    /// Whether `irqbalance` runs.
    pub(super) irqbalance_runs: bool,
    /// Kernel threads can be seen at all.
    pub(super) are_visible: bool,
}

impl KernelThreads {
    /// Scans `/proc`.
    pub(super) fn read(files: &HostFiles) -> Self {
        let mut threads = Self::default();
        for name in files.proc_names("").iter().take(PROCESSES_MAX) {
            let Ok(pid) = name.parse::<u32>() else { continue };
            let Some(comm) = files.proc(&format!("{pid}/comm")) else { continue };
            match comm.trim_end() {
                "irqbalance" => threads.irqbalance_runs = true,
                "kthreadd" => threads.are_visible = true,
                name if name.starts_with("napi/") => threads.napi.push((pid, name.to_owned())),
                _other => {}
            }
        }
        threads
    }

    /// The threads whose name is an interface's.
    ///
    /// A name says nothing of namespaces: two interfaces of one name in two of them are both found.
    pub(super) fn of_interface(&self, files: &HostFiles, interface: &str) -> Vec<NapiThread> {
        let mut threads: Vec<NapiThread> = self
            .napi
            .iter()
            .filter_map(|(pid, name)| {
                let napi_id = napi_id(name, interface)?;
                Some(NapiThread { napi_id, ..describe(files, *pid, name) })
            })
            .collect();
        threads.sort_by_key(|thread| (thread.napi_id, thread.pid));
        threads
    }
}

/// The cores a thread may run on and the one it last ran on.
pub(super) fn describe(files: &HostFiles, pid: u32, name: &str) -> NapiThread {
    let status = files.proc(&format!("{pid}/status")).unwrap_or_default();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    NapiThread {
        pid,
        name: name.to_owned(),
        allowed_cores: allowed.map(parse_list).unwrap_or_default(),
        last_core: files.proc(&format!("{pid}/stat")).and_then(|stat| last_core(&stat)),
        ..NapiThread::default()
    }
}

/// The number after `napi/INTERFACE-`: `Some(None)` where the kernel cut the name off after 15
/// letters (before Linux 5.17), `None` when it is another interface's.
pub(super) fn napi_id(name: &str, interface: &str) -> Option<Option<u32>> {
    /// `TASK_COMM_LEN` without the NUL.
    const NAME_BYTES_MAX: usize = 15;
    let (found, id) = name.strip_prefix("napi/")?.rsplit_once('-').unwrap_or((name, ""));
    if found == interface
        && let Ok(id) = id.parse()
    {
        return Some(Some(id));
    }
    let whole = format!("napi/{interface}-");
    let is_cut = name.len() == NAME_BYTES_MAX && whole.as_bytes().starts_with(name.as_bytes());
    is_cut.then_some(None)
}

/// The 39th field of `/proc/PID/stat` (`processor`), counted after the name in parentheses.
fn last_core(stat: &str) -> Option<u32> {
    let (_name, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(36)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_belongs_to_the_interface_of_its_name() {
        assert_eq!(napi_id("napi/eth0-8193", "eth0"), Some(Some(8193)));
        assert_eq!(napi_id("napi/eth0-1-8193", "eth0-1"), Some(Some(8193)));
        assert_eq!(napi_id("napi/eth0-1-8193", "eth0"), None);
        assert_eq!(napi_id("napi/enp65s0f0n", "enp65s0f0np0"), Some(None));
        assert_eq!(napi_id("napi/eth0-81930", "eth0"), Some(Some(81930)));
        assert_eq!(napi_id("napi/", "eth0"), None);
        assert_eq!(napi_id("irq/24-eth0", "eth0"), None);
    }

    #[test]
    fn the_last_core_is_counted_after_a_name_with_spaces() {
        let mut stat = "17 (napi/a) b-1) S".to_owned();
        for field in 4..=52 {
            stat.push_str(&format!(" {field}"));
        }
        assert_eq!(last_core(&stat), Some(39));
        assert_eq!(last_core("17 (cut) S 1 2"), None);
    }
}
