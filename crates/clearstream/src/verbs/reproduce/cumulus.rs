//! The figures and tables of the Cumulus paper that need a file system: the same load on a file system mounted by its
//! clients (native) and as re-exported by a gateway (projected), interleaved, in the lab `cumulus`.

mod failover;
mod judge;
mod model;
mod paper;

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lab::ScopedLab;
use results::{
    Figure, FileIoWork, FileLocksWork, FileMetadataWork, Point, Results, TestOutcome, Work,
};
use sweep::{Plan, PlannedPoint, Setting};
use sys::process::{Ending, Owned};

use super::catalogue::Entry;
use super::single::wait_unless_told;
use super::{ReproduceArgs, Reproduced, conduct, local, publish};
use crate::VerbResult;
use crate::exit::VerbError;
use crate::progress::Progress;
use crate::runner::{self, Done, Driver};
use crate::signals;

/// The built-in lab that is brought up.
const LAB: &str = "cumulus";
/// The lab's name while this runs.
const NAME: &str = "cumulus-projected";
/// The host that re-exports the file system.
const FORWARDER: &str = "g1";
/// Longest time until clients have mounted everything.
const MOUNTED_MAX: Duration = Duration::from_secs(30);
/// Bytes that each client writes and reads, shared by its tasks: those of all repeats fit the file system of the lab, which
/// takes minutes to free what removed files occupied.
const CLIENT_BYTES: u64 = 32 << 20;
const TRANSFER_BYTES: u64 = 4 << 20;
/// Files of each client, shared by its tasks: a multiple of every number of tasks.
const FILES_COUNT: u64 = 480;
/// Kept length of a program's output, bytes.
const SAID_BYTES_MAX: usize = 64 << 20;
/// The paper's file sizes, bytes.
const SIZES: [u64; 4] = [0, 1024, 4096, 32_768];
const SEED: u64 = 0x2018;
/// Names of the varied parameters.
const TASKS: &str = "tasks_count";
const CLIENTS: &str = "clients_count";
const SIZE: &str = "file_bytes";
/// Suffix of a figure's name: bytes that crossed the gateways on the servers' side, over the load's bytes.
const AT_SERVERS: &str = "at_servers_share";

/// How clients access the file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Mounted by the clients.
    Native,
    /// Re-exported by a gateway with a cache.
    Projected,
    /// Re-exported by a gateway without a cache.
    Uncached,
}

impl Way {
    const ALL: [Self; 3] = [Self::Native, Self::Projected, Self::Uncached];

    fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Projected => "projected",
            Self::Uncached => "projected without a cache",
        }
    }

    fn mount(self) -> &'static str {
        match self {
            Self::Native => "/mnt/pfs",
            Self::Projected => "/mnt/pfs-projected",
            Self::Uncached => "/mnt/pfs-uncached",
        }
    }

    fn experiment(self, id: &str) -> String {
        format!("{id}, {}", self.name())
    }
}

/// One load: number of clients, tasks per client, and file size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Load {
    clients: u64,
    tasks: u64,
    /// Size of each file in metadata tests, bytes.
    file_bytes: u64,
}

impl Load {
    const fn of(clients: u64, tasks: u64, file_bytes: u64) -> Self {
        Self { clients, tasks, file_bytes }
    }
}

/// Kind of load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Streams,
    Metadata,
    Locks,
}

/// The kind of load and the loads of a catalogue entry.
fn study(id: &str) -> (Kind, Vec<Load>) {
    let of_sizes = |clients, tasks: &[u64]| -> Vec<Load> {
        let all = tasks.iter().flat_map(|tasks| SIZES.map(|size| Load::of(clients, *tasks, size)));
        all.collect()
    };
    match id {
        "G-flock" => (Kind::Locks, vec![Load::of(2, 1, 0)]),
        "G-tab2" | "G-tab3" | "G-fig2" => {
            (Kind::Streams, [1, 2, 4, 8].map(|tasks| Load::of(1, tasks, 0)).into())
        }
        "G-tab4" | "G-tab5" | "G-fig3-6" => (Kind::Metadata, of_sizes(1, &[1, 2, 4, 6, 8])),
        "G-fig7-8" => (Kind::Streams, vec![Load::of(1, 1, 0), Load::of(4, 1, 0)]),
        // More tasks on each client would be more ranks than the gateways' and servers' cores leave room for.
        _ => (Kind::Metadata, [vec![Load::of(1, 1, 0)], of_sizes(4, &[1, 2])].concat()),
    }
}

/// Whether this module runs the entry `id`.
pub(super) fn is_one(id: &str) -> bool {
    paper::IDS.contains(&id)
}

/// Runs one of this module's entries.
pub(super) fn run(entry: &'static Entry, args: &ReproduceArgs, json: bool) -> VerbResult {
    if args.host.is_some() {
        let line = format!("{} runs in a lab on this machine and takes no host", entry.id);
        return Err(VerbError::usage(line));
    }
    if entry.id == "G-failover" {
        return failover::run(entry, args, json);
    }
    signals::watch().map_err(|error| VerbError::from_error(&error))?;
    let (kind, loads) = study(entry.id);
    let clients = loads.iter().map(|load| load.clients).max().unwrap_or(1);
    let mut driver = Clients::up(kind, clients)?;
    let plan = Plan::new(settings(entry.id, kind, &loads), args.repeats, SEED);
    let conducted: Reproduced =
        conduct(entry, &plan, &mut driver, local::document(), Progress::new(0), args);
    drop(driver);
    let judge = |results: &Results| judge::judged(entry, (kind, &loads), results);
    publish(entry, conducted, judge, args, json)
}

fn settings(id: &str, kind: Kind, loads: &[Load]) -> Vec<Setting> {
    let one = |load: &Load| {
        Way::ALL.map(|way| {
            let setting = Setting::new(way.experiment(id), work(kind, way, load));
            let setting = setting.varying(TASKS, load.tasks as f64);
            let setting = setting.varying(CLIENTS, load.clients as f64);
            setting.varying(SIZE, load.file_bytes as f64)
        })
    };
    loads.iter().flat_map(one).collect()
}

fn work(kind: Kind, way: Way, load: &Load) -> Work {
    let ranks_count = load.clients * load.tasks;
    let path = way.mount().to_owned();
    match kind {
        Kind::Streams => Work::FileIo(FileIoWork {
            access: "write and read".to_owned(),
            path,
            has_file_per_rank: true,
            ranks_count,
            block_bytes: CLIENT_BYTES / load.tasks,
            transfer_bytes: TRANSFER_BYTES,
            segments_count: 1,
            by: "pwrite and pread".to_owned(),
            options: Some(Default::default()),
        }),
        Kind::Metadata => Work::FileMetadata(FileMetadataWork {
            phase: "all".to_owned(),
            path,
            ranks_count,
            items_count: load.clients * FILES_COUNT,
            file_bytes: load.file_bytes,
            options: Some(Default::default()),
        }),
        Kind::Locks => Work::FileLocks(FileLocksWork {
            lock: "flock and byte ranges".to_owned(),
            path,
            verdict: String::new(),
            what: String::new(),
        }),
    }
}

/// The lab, with its file system mounted in all three ways.
struct Clients {
    bed: ScopedLab,
    kind: Kind,
}

impl Clients {
    fn up(kind: Kind, clients_count: u64) -> Result<Self, VerbError> {
        let mut plan = lab::find_plan(LAB)?;
        plan.name = NAME.to_owned();
        if let Some(files) = &mut plan.filesystem {
            files.forwarder = Some(FORWARDER.to_owned());
        }
        let bed = ScopedLab::up(&plan, std::env::current_exe()?)?;
        if let Some(note) = bed.lab().notes().iter().find(|note| note.contains("file system")) {
            return Err(VerbError::missing(note));
        }
        let clients = Self { bed, kind };
        let applied = ended(clients.program(&["gateway", "apply", LAB, "--lab", NAME])?)?;
        if !applied.status.success() {
            return Err(VerbError::failed(format!("gateway apply: {}", applied.last_line())));
        }
        (1..=clients_count).try_for_each(|number| clients.wait_for_mounts(&client(number)))?;
        Ok(clients)
    }

    /// Waits until a client has mounted the file system in all three ways.
    fn wait_for_mounts(&self, client: &str) -> Result<(), VerbError> {
        let began = Instant::now();
        for way in Way::ALL {
            let line = format!("grep -q ' {} ' /proc/self/mountinfo", way.mount());
            let is_mounted = || -> Result<bool, VerbError> {
                let mut look = self.bed.command(client);
                look.args(["sh", "-c", &line]).stdin(Stdio::null()).stderr(Stdio::null());
                Ok(look.status()?.success())
            };
            while !is_mounted()? {
                if began.elapsed() > MOUNTED_MAX || signals::caught().is_some() {
                    let line = format!("{client} has not mounted {}", way.mount());
                    return Err(VerbError::failed(line));
                }
                thread::sleep(Duration::from_millis(100));
            }
        }
        Ok(())
    }

    fn program(&self, arguments: &[&str]) -> Result<Command, VerbError> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(arguments);
        Ok(command)
    }

    /// Runs the load of a planned point; returns the document that it prints.
    fn load(&self, planned: &PlannedPoint, way: Way) -> Result<Results, VerbError> {
        let of = |name: &str| planned.varied.get(name).map_or(1, |value| *value as u64);
        let (clients, tasks) = (of(CLIENTS), of(TASKS));
        let hosts: Vec<String> = (1..=clients).map(client).collect();
        let (hosts, ranks) = (hosts.join(","), (clients * tasks).to_string());
        let verb = if self.kind == Kind::Metadata { "meta" } else { "io" };
        let mut words = vec![verb, "--json", "--lab", NAME, "--hosts", &hosts];
        // One client's tasks are threads of one process; several clients' are ranks of a job.
        words.extend(if clients > 1 { ["--ranks", &ranks] } else { ["--threads", &ranks] });
        let place = format!("{}/load", way.mount());
        let block = (CLIENT_BYTES / tasks.max(1)).to_string();
        let transfer = TRANSFER_BYTES.to_string();
        let (files, size) = ((FILES_COUNT / tasks.max(1)).to_string(), of(SIZE).to_string());
        match self.kind {
            Kind::Locks => words.extend(["--locks", way.mount()]),
            Kind::Streams => {
                words.extend(["--gateways", LAB, "--", "-w", "-r", "-F", "-e", "-C", "-g"]);
                words.extend(["-b", &block, "-t", &transfer, "-o", &place]);
            }
            Kind::Metadata => {
                words.extend(["--gateways", LAB, "--", "-F", "-u", "-n", &files, "-d", &place]);
                words.extend(["-w", &size, "-e", &size]);
            }
        }
        let done = ended(self.program(&words)?)?;
        // Exit code 3 reports locks that do not work, which is an expected result.
        let is_well = done.status.success() || done.status.code() == Some(3);
        match results::read_results(&done.stdout) {
            Ok(results) if is_well && results.partial.is_none() => Ok(results),
            _other => Err(VerbError::failed(format!("{verb}: {}", done.last_line()))),
        }
    }
}

impl Driver for Clients {
    fn run(
        &mut self,
        planned: &PlannedPoint,
        _what: &str,
        _progress: &mut Progress,
    ) -> Result<Done, VerbError> {
        let started_unix_ms = runner::now_unix_ms();
        let is_it = |way: &Way| planned.experiment.ends_with(&format!(", {}", way.name()));
        let way = Way::ALL.into_iter().find(is_it).unwrap_or(Way::Native);
        let told = match self.load(planned, way) {
            Ok(told) => told,
            Err(error) => return Ok(Done::failed(planned, started_unix_ms, error)),
        };
        let figures = told.points.iter().flat_map(figures).collect();
        let outcome = TestOutcome { figures, ..TestOutcome::default() };
        let mut done = Done::measured(planned, started_unix_ms, outcome);
        done.beside = told.points.into_iter().map(|point| beside(planned, point)).collect();
        Ok(done)
    }
}

/// A phase's point from the load's own document, renamed to be stored beside the planned point.
fn beside(planned: &PlannedPoint, point: Point) -> Point {
    Point {
        experiment: format!("{}: {}", planned.experiment, point.experiment),
        varied: planned.varied.clone(),
        repeat: planned.repeat,
        ..point
    }
}

/// The figures of a phase, with the phase in their names.
fn figures(point: &Point) -> Vec<Figure> {
    let Some(outcome) = point.measured() else { return Vec::new() };
    let of = |name: &str| outcome.figures.iter().find(|one| one.name == name).map(|one| one.value);
    let (name, rate, unit) = match &point.work {
        Work::FileIo(work) => (work.access.clone(), of("moved_bytes_per_s"), "bytes_per_s"),
        Work::FileMetadata(work) => {
            (work.phase.to_lowercase().replace(' ', "_"), of("items_per_s"), "items_per_s")
        }
        Work::FileLocks(work) => {
            let works = if work.verdict == "works" { 1.0 } else { 0.0 };
            (work.lock.replace(' ', "_"), Some(works), "works_share")
        }
        _other => return Vec::new(),
    };
    let mut figures: Vec<Figure> =
        rate.map(|rate| Figure::new(format!("{name}_{unit}"), rate)).into_iter().collect();
    if let Some((_, seen)) = point.crossing().filter(|(_, seen)| seen.amplification.is_some()) {
        let bytes: u64 = seen.gateways.iter().map(|one| one.server_side_bytes).sum();
        let part = bytes as f64 / seen.load.max(1) as f64;
        figures.push(Figure::new(format!("{name}_{AT_SERVERS}"), part));
    }
    figures
}

fn client(number: u64) -> String {
    format!("c{number}")
}

/// Runs a program to its end, and captures its output.
fn ended(mut command: Command) -> Result<sys::process::Ended, VerbError> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Owned::start(&mut command, Ending::KILL)?.capture(SAID_BYTES_MAX)?;
    wait_unless_told(&mut child)?;
    Ok(child.ended_within(Duration::ZERO)?)
}
