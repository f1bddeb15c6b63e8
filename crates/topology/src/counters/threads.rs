//! Kernel threads of the network stack: `ksoftirqd/N`, and those of threaded NAPI.

use std::path::Path;
use std::sync::OnceLock;

use results::KernelThreadUse;

use crate::HostFiles;
use crate::files::parse_list;

/// Most kernel threads looked at: a host of 1024 cores has some ten thousand.
const THREADS_COUNT_MAX: usize = 65_536;

/// One thread at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Thread {
    pid: u32,
    name: String,
    run_ns: u64,
    wait_ns: u64,
    core: Option<u32>,
    allowed_cores: Vec<u32>,
}

/// The threads at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct KernelThreads {
    threads: Vec<Thread>,
}

impl KernelThreads {
    /// Empty where the process-id namespace does not show them.
    pub(super) fn read_from(files: &HostFiles) -> Self {
        Self { threads: pids(files).into_iter().filter_map(|pid| read(files, pid)).collect() }
    }

    /// Threads that ran since an earlier reading.
    pub(super) fn since(&self, earlier: &Self) -> Vec<KernelThreadUse> {
        let used = |now: &Thread| {
            let then = earlier.threads.iter().find(|then| then.pid == now.pid)?;
            let run_ns = now.run_ns.checked_sub(then.run_ns)?;
            let wait_ns = now.wait_ns.saturating_sub(then.wait_ns);
            (run_ns > 0).then(|| KernelThreadUse {
                name: now.name.clone(),
                pid: now.pid,
                run_s: run_ns as f64 * 1e-9,
                wait_s: wait_ns as f64 * 1e-9,
                core: now.core,
                allowed_cores: now.allowed_cores.clone(),
            })
        };
        self.threads.iter().filter_map(used).collect()
    }
}

/// Process ids of the threads in question. `ksoftirqd`s are there from the start and stay; only the
/// threads of NAPI come and go, and they are the youngest children of `kthreadd`.
fn pids(files: &HostFiles) -> Vec<u32> {
    static STEADY: OnceLock<Vec<u32>> = OnceLock::new();
    let Some(children) = files.proc("2/task/2/children") else { return Vec::new() };
    let children: Vec<u32> = children
        .split_ascii_whitespace()
        .take(THREADS_COUNT_MAX)
        .filter_map(|word| word.parse().ok())
        .collect();
    let named = |pid: u32, wanted: fn(&str) -> bool| {
        files.proc(&format!("{pid}/comm")).is_some_and(|name| wanted(name.trim()))
    };
    let softirq = |name: &str| name.starts_with("ksoftirqd/");
    let find_steady = || children.iter().copied().filter(|&pid| named(pid, softirq)).collect();
    // A recorded tree is another host's.
    let mut pids: Vec<u32> = if files.proc == Path::new("/proc") {
        STEADY.get_or_init(find_steady).clone()
    } else {
        find_steady()
    };
    pids.extend(
        children.iter().copied().filter(|&pid| named(pid, |name| name.starts_with("napi/"))),
    );
    pids
}

fn read(files: &HostFiles, pid: u32) -> Option<Thread> {
    let text = files.proc(&format!("{pid}/schedstat"))?;
    let mut figures = text.split_ascii_whitespace().map(|word| word.parse::<u64>().ok());
    let (run_ns, wait_ns) = (figures.next()??, figures.next()??);
    let name = files.proc(&format!("{pid}/comm"))?.trim().to_owned();
    let stat = files.proc(&format!("{pid}/stat"));
    let status = files.proc(&format!("{pid}/status")).unwrap_or_default();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    Some(Thread {
        pid,
        name,
        run_ns,
        wait_ns,
        core: stat.and_then(|stat| last_core(&stat)),
        allowed_cores: allowed.map(parse_list).unwrap_or_default(),
    })
}

/// Field 39 of `/proc/PID/stat`; counting starts after the name's last parenthesis.
fn last_core(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(39 - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn write(root: &Path, pid: u32, name: &str, run_ns: u64) {
        let folder = root.join(format!("proc/{pid}"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("comm"), format!("{name}\n")).unwrap();
        fs::write(folder.join("schedstat"), format!("{run_ns} 5000000 7\n")).unwrap();
        fs::write(folder.join("status"), "Name:\tx\nCpus_allowed_list:\t2-3\n").unwrap();
    }

    #[test]
    fn threads_of_the_stack_and_no_others() {
        let root =
            std::env::temp_dir().join(format!("clearstream-kthreads-{}", std::process::id()));
        fs::create_dir_all(root.join("proc/2/task/2")).unwrap();
        fs::write(root.join("proc/2/task/2/children"), "10 11 12 13 ").unwrap();
        for (pid, name) in [(10, "ksoftirqd/0"), (11, "kworker/0:1"), (12, "napi/eth0-8193")] {
            write(&root, pid, name, 1_000_000);
        }
        let files = HostFiles::at(&root);
        let before = KernelThreads::read_from(&files);
        write(&root, 12, "napi/eth0-8193", 501_000_000);
        let gained = KernelThreads::read_from(&files).since(&before);
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(before.threads.len(), 2);
        let [napi] = &gained[..] else { panic!("{gained:?}") };
        assert_eq!((napi.name.as_str(), napi.pid), ("napi/eth0-8193", 12));
        assert!((napi.run_s - 0.5).abs() < 1e-9 && napi.wait_s == 0.0);
        assert_eq!(napi.allowed_cores, [2, 3]);
    }

    #[test]
    fn the_core_stands_after_the_name() {
        let stat = "12 (napi) x) S 2 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 3 0";
        assert_eq!(last_core(stat), Some(3));
        bolero::check!().with_type::<String>().for_each(|text| {
            last_core(text);
        });
    }
}
