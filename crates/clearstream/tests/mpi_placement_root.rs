//! Jobs of stock Open MPI on two hosts of a lab whose link has two receive queues: ranks are bound, their packets steered, and
//! nothing of it is left behind.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::PROGRAM;
use crate::mpi_root::{Hosts, said};

/// Two ranks on each host.
pub(crate) const RANKS: &str = "--host near:2,far:2 -n 4";
/// Every setting of the interface that a plan may change.
const SETTINGS: &str = "cd /sys/class/net/eth0 && head queues/rx-*/* threaded; ethtool -n eth0; cat /proc/irq/*/smp_affinity_list; true";

/// The lab, if this machine has a core for each rank of a host.
pub(crate) fn hosts(name: &str) -> Option<Hosts> {
    if sys::thread::usable_cores().expect("cores").len() < 2 {
        println!("skipped: two ranks of a host need two cores");
        return None;
    }
    Hosts::up(name, "wire = \"veth\"\nqueues = 2")
}

pub(crate) fn text_of(command: &mut Command) -> String {
    said(&command.stdin(Stdio::null()).output().expect("it starts"))
}

/// A job that exchanges messages until it is ended.
pub(crate) struct Running {
    child: Child,
    job: String,
    /// What the verb and the ranks wrote on standard error when the job had begun.
    told: BufReader<std::process::ChildStderr>,
}

impl Running {
    pub(crate) fn begin(hosts: &Hosts, options: &str, words: &str) -> Self {
        let job = hosts.job.display().to_string();
        let mut command = hosts.command_of(options, &format!("{words} {job} 1000000"));
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut out = BufReader::new(child.stdout.take().expect("it is piped"));
        let told = BufReader::new(child.stderr.take().expect("it is piped"));
        let mut running = Self { child, job, told };
        let mut line = String::new();
        while !line.contains("began") {
            line.clear();
            if out.read_line(&mut line).expect("text") == 0 {
                panic!("the job ended at once: {}", running.rest());
            }
        }
        running
    }

    fn rest(&mut self) -> String {
        let mut text = String::new();
        self.told.read_to_string(&mut text).expect("text");
        text
    }

    /// The process whose command line begins so, and whose environment has this word.
    pub(crate) fn process(&self, command: &str, word: &str) -> u32 {
        let found = std::fs::read_dir("/proc").expect("processes").flatten().find_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            let read = |file: &str| std::fs::read(entry.path().join(file)).unwrap_or_default();
            let line = String::from_utf8_lossy(&read("cmdline")).replace('\0', " ");
            let has = |text: &[u8]| text.split(|&byte| byte == 0).any(|one| one == word.as_bytes());
            let is_it = line.starts_with(command)
                && line.contains(&self.job)
                && (word.is_empty() || has(&read("environ")));
            is_it.then_some(pid)
        });
        found.unwrap_or_else(|| panic!("no process {command} {word}"))
    }

    /// The cores on which each thread of a rank may run.
    fn cores_of(&self, rank: u32) -> Vec<String> {
        let pid = self.process(&self.job, &format!("OMPI_COMM_WORLD_RANK={rank}"));
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("threads").flatten();
        let cores = tasks.map(|task| {
            let status = std::fs::read_to_string(task.path().join("status")).expect("a thread");
            let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            line.expect("its cores").trim().to_owned()
        });
        let mut cores: Vec<String> = cores.collect();
        cores.dedup();
        cores
    }

    /// What was said by the end of the job.
    pub(crate) fn wait(mut self) -> String {
        self.child.wait().expect("it ends");
        self.rest()
    }

    /// Sends the verb a signal; what was said after the job has ended.
    pub(crate) fn end(self, signal: &str) -> String {
        let pid = self.process(&format!("{PROGRAM} mpi"), "").to_string();
        let kill = Command::new("kill").args([signal, &pid]).status();
        assert!(kill.expect("kill is installed").success());
        self.wait()
    }
}

/// The cores to which receive packet steering hands a queue's packets, as a list.
fn steered(hosts: &Hosts, queue: u32) -> String {
    let file = format!("/sys/class/net/eth0/queues/rx-{queue}/rps_cpus");
    let mask = text_of(&mut hosts.on_near(&format!("cat {file}")));
    let mask = u64::from_str_radix(&mask.trim().replace(',', ""), 16).expect("a mask");
    let cores: Vec<u32> = (0..64).filter(|core| mask >> core & 1 == 1).collect();
    settings::list_of(&cores)
}

#[test]
fn ranks_are_bound_and_steered_as_planned_and_all_is_as_before_at_the_end_root() {
    let Some(hosts) = hosts("mpi-place") else { return };
    let settings = || text_of(&mut hosts.on_near(SETTINGS));
    let before = settings();
    let plan = format!(
        "exec '{PROGRAM}' mpi plan --json --interface eth0 -- mpirun.openmpi --allow-run-as-root {RANKS} true"
    );
    let plan = text_of(&mut hosts.on_near(&plan));
    let plan: serde_json::Value = serde_json::from_str(&plan).unwrap_or_else(|_| panic!("{plan}"));

    let running = Running::begin(&hosts, "", RANKS);
    for rank in 0..2_u32 {
        let planned = plan["ranks"][rank as usize]["cores"][0].as_u64().expect("a core");
        assert_eq!(running.cores_of(rank), [planned.to_string()], "rank {rank}");
        assert_eq!(steered(&hosts, rank), planned.to_string(), "queue {rank}");
    }
    let keys: Vec<&str> = plan["changes"]
        .as_array()
        .expect("changes")
        .iter()
        .filter_map(|change| change["key"].as_str())
        .collect();
    assert_eq!(keys, ["eth0/rx-0/rps_cpus", "eth0/rx-1/rps_cpus"]);
    assert_ne!(settings(), before);
    let told = running.end("-TERM");
    assert_eq!(settings(), before, "{told}");
    for line in [
        "ranks of this host are bound to cores",
        "steered while the job runs: 2 settings changed",
        "eth0 cannot direct flows to queues by rules (Operation not supported",
    ] {
        assert!(told.contains(line), "{line}: {told}");
    }

    // One that ends by itself, with its own code.
    let job = hosts.job.display().to_string();
    let output = hosts.command_of("", &format!("{RANKS} {job} 1")).output().expect("it starts");
    assert!(said(&output).contains("correct: 4 ranks"), "{}", said(&output));
    assert_eq!((output.status.code(), settings()), (Some(0), before), "{}", said(&output));
    let journal = text_of(&mut hosts.on_near(&format!("exec '{PROGRAM}' tune status")));
    assert!(!journal.contains("rps_cpus"), "{journal}");
}

#[test]
fn what_a_killed_job_leaves_changed_is_reverted_to_the_byte_root() {
    let Some(hosts) = hosts("mpi-place-kill") else { return };
    let settings = || text_of(&mut hosts.on_near(SETTINGS));
    let before = settings();
    let running = Running::begin(&hosts, "", RANKS);
    let launcher = running.process("mpirun.openmpi", "");
    running.end("-KILL");
    let until = Instant::now() + Duration::from_secs(10);
    while std::path::Path::new(&format!("/proc/{launcher}")).exists() {
        assert!(Instant::now() < until, "the launcher outlives the verb");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_ne!(settings(), before, "nobody was left to change it back");
    let reverted = text_of(&mut hosts.on_near(&format!("exec '{PROGRAM}' tune revert")));
    assert_eq!(settings(), before, "{reverted}");
}

#[test]
fn bindings_of_the_launcher_stay_and_both_are_off_by_option_root() {
    let Some(hosts) = hosts("mpi-place-off") else { return };
    let settings = || text_of(&mut hosts.on_near(SETTINGS));
    let before = settings();
    let running = Running::begin(&hosts, "", &format!("--bind-to core --map-by core {RANKS}"));
    for rank in 0..2 {
        let own = running.cores_of(rank);
        assert!(own.len() == 1 && !own[0].contains(['-', ',']), "{own:?}");
        assert_eq!(steered(&hosts, rank), own[0], "packets go where the rank is");
    }
    let pid = running.process(&running.job, "OMPI_COMM_WORLD_RANK=0");
    let environment = std::fs::read(format!("/proc/{pid}/environ")).expect("a rank's");
    assert!(!String::from_utf8_lossy(&environment).contains("FI_CLEARSTREAM_CORES"));
    let told = running.end("-TERM");
    assert!(told.contains("ranks stay where the launcher's own options bind them"), "{told}");
    assert_eq!(settings(), before);

    let running = Running::begin(&hosts, "--no-bind --no-steer", RANKS);
    let all = running.cores_of(0);
    assert!(all.len() == 1 && all[0].contains(['-', ',']), "Open MPI's default: {all:?}");
    assert_eq!(settings(), before);
    // The launcher has taken the verb's place.
    let launcher = running.process("mpirun.openmpi", "").to_string();
    Command::new("kill").args(["-TERM", &launcher]).status().expect("kill is installed");
    let mut running = running;
    running.child.wait().expect("it ends");
}
