//! A lab's switches: the packet switch itself, run in the anchor, with a TAP device for each host.
//!
//! Each switch has a daemon and a socket of its own, so that it has cores of its own, and so that
//! whoever may look into the lab's directory may ask it what any packet switch is asked: counters,
//! captures, more ports.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use packet_switch::PortName;
use packet_switch::attachment::{Ask, DeviceKind, HEADER_BYTES, Shape};
use packet_switch::client::{ClientError, Connection};
use packet_switch::daemon::{Config, Daemon, DaemonError};
use packet_switch::line::SharedReport;
use ports::tap::{Port, Queues};
use ports::{FromRing, ToRing};

use crate::LabError;
use crate::anchor::log;
use crate::counters::{DirectionCounters, HostPortCounters, SwitchCounters};
use crate::lines;
use crate::plan::{DirectionPlan, LabPlan, SwitchPlan};
use crate::state::LabDir;

/// All that run.
pub(crate) struct Switches {
    running: Vec<Running>,
}

struct Running {
    plan: SwitchPlan,
    connection: Connection,
    /// One a host, or none.
    lines: Vec<HostLine>,
}

/// A line between a host's device and its port of the switch, which is attached to as any client does.
struct HostLine {
    /// The attachment lasts as long.
    _connection: Connection,
    /// From the host to the switch, and back.
    reports: [SharedReport; 2],
}

impl Switches {
    /// Starts each switch of the plan and gives it its hosts' devices.
    pub(crate) fn run(
        dir: &LabDir,
        plan: &LabPlan,
        taps: Vec<Vec<Port>>,
    ) -> Result<Self, LabError> {
        let running = plan.switches.iter().zip(taps).map(|(switch, taps)| {
            run(dir, plan, switch, taps)
                .map_err(|error| LabError::NotStarted(format!("switch {}: {error}", switch.name)))
        });
        Ok(Self { running: running.collect::<Result<_, _>>()? })
    }

    /// What they have done so far.
    pub(crate) fn counters(&mut self) -> Result<Vec<SwitchCounters>, LabError> {
        let counters = self.running.iter_mut().map(|running| {
            running.counters().map_err(|error| {
                LabError::NotStarted(format!("switch {}: {error}", running.plan.name))
            })
        });
        counters.collect()
    }
}

/// Why a switch does not run.
#[derive(Debug, thiserror::Error)]
enum SwitchError {
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Name(#[from] packet_switch::NameError),
    #[error("no thread: {0}")]
    Thread(#[from] std::io::Error),
    #[error(transparent)]
    Line(#[from] LabError),
}

fn run(
    dir: &LabDir,
    lab: &LabPlan,
    plan: &SwitchPlan,
    taps: Vec<Port>,
) -> Result<Running, SwitchError> {
    let socket = dir.switch_socket(&plan.name);
    let mut daemon =
        Daemon::bind(Config { cores: plan.cores.clone(), ..Config::new(socket.clone()) })?;
    let name = plan.name.clone();
    thread::Builder::new().name("switches".to_owned()).spawn(move || {
        let mut notice = |_| {};
        // This thread and those that it begins; the anchor's others go on as they are.
        if let Err(error) = daemon.confine() {
            log(&format!("switch {name} keeps all system calls: {error}: {}", error.source));
        }
        if let Err(error) = daemon.run(&mut notice, &|| false) {
            log(&format!("switch {name} ended: {error}"));
        }
    })?;
    let mut connection = Connection::open(&socket)?;
    let mut lines = Vec::new();
    let hosts = plan.ends.iter().filter(|end| lab.guest(&end.host).is_none());
    for (number, (end, tap)) in (0..).zip(hosts.zip(taps)) {
        let port: PortName = format!("{}:{}", plan.name, end.host).parse()?;
        if let Some(line) = &plan.line {
            let seed = line.seed.wrapping_add(2 * number);
            let line = DirectionPlan { seed, ..line.clone() };
            lines.push(start_line(&socket, plan, port, tap, &line)?);
        } else {
            let ask = Ask::AddDevice { port, device: DeviceKind::Tap, shape: Shape::of_device() };
            connection.ask_with(ask, &[tap.as_fd()])?;
        }
    }
    Ok(Running { plan: plan.clone(), connection, lines })
}

fn start_line(
    socket: &Path,
    plan: &SwitchPlan,
    port: PortName,
    tap: Port,
    there: &DirectionPlan,
) -> Result<HostLine, SwitchError> {
    let mut connection = Connection::open(socket)?;
    let host = port.port.to_string();
    let attached = connection.attach_port_as(&port, Shape::of_device())?;
    connection.ask(Ask::SetHeader { port, header_bytes: HEADER_BYTES })?;
    let back = DirectionPlan { seed: there.seed.wrapping_add(1), ..there.clone() };
    let tap = Arc::new(tap);
    let into = (Queues::new(vec![Arc::clone(&tap)]), ToRing::new(attached.sender));
    let out = (FromRing::new(attached.receiver), Queues::new(vec![tap]));
    // Never in batches: a ring holds less than a line's memory.
    let reports = [
        lines::start(format!("to-{host}"), into, there, &plan.cores, false)?,
        lines::start(format!("from-{host}"), out, &back, &plan.cores, false)?,
    ];
    Ok(HostLine { _connection: connection, reports })
}

impl Running {
    fn counters(&mut self) -> Result<SwitchCounters, ClientError> {
        let entries = self.connection.list()?;
        let of_host = |number: usize, host: &str| {
            let line = self.lines.get(number).map(|line| line.reports.each_ref());
            let [to_switch, from_switch] = match line {
                Some(reports) => reports.map(|report| Some(DirectionCounters::of(report))),
                None => [None, None],
            };
            let name = format!("{}:{host}", self.plan.name);
            let entry = entries.iter().find(|entry| entry.name == name)?;
            let device = entry.device.as_ref();
            Some(HostPortCounters {
                host: host.to_owned(),
                count: entry.count.clone().unwrap_or_default(),
                refused_frames_count: device.map_or(0, |device| device.refused),
                ended: device.and_then(|device| device.ended.clone()),
                to_switch,
                from_switch,
            })
        };
        let ends = self.plan.ends.iter().enumerate();
        let ports = ends.filter_map(|(number, end)| of_host(number, &end.host)).collect();
        Ok(SwitchCounters { switch: self.plan.name.clone(), ports })
    }
}
