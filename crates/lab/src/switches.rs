//! A lab's switches: the packet switch itself, run in the anchor, with a TAP device for each host.
//!
//! Each switch has a daemon and a socket of its own, so that it has cores of its own, and so that
//! whoever may look into the lab's directory may ask it what any packet switch is asked: counters,
//! captures, more ports.

use std::os::fd::AsFd;
use std::thread;

use packet_switch::PortName;
use packet_switch::attachment::{Ask, DeviceKind, Shape};
use packet_switch::client::{ClientError, Connection};
use packet_switch::daemon::{Config, Daemon, DaemonError};
use port_tap::Port;

use crate::LabError;
use crate::anchor::log;
use crate::counters::{HostPortCounters, SwitchCounters};
use crate::plan::{LabPlan, SwitchPlan};
use crate::state::LabDir;

/// All that run.
pub(crate) struct Switches {
    running: Vec<Running>,
}

struct Running {
    plan: SwitchPlan,
    connection: Connection,
}

impl Switches {
    /// Starts each switch of the plan and gives it its hosts' devices.
    pub(crate) fn run(
        dir: &LabDir,
        plan: &LabPlan,
        taps: Vec<Vec<Port>>,
    ) -> Result<Self, LabError> {
        let running = plan.switches.iter().zip(taps).map(|(switch, taps)| {
            run(dir, switch, &taps)
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
}

fn run(dir: &LabDir, plan: &SwitchPlan, taps: &[Port]) -> Result<Running, SwitchError> {
    let socket = dir.switch_socket(&plan.name);
    let daemon = Daemon::bind(Config { cores: plan.cores.clone(), ..Config::new(socket.clone()) })?;
    let name = plan.name.clone();
    thread::Builder::new().name("switches".to_owned()).spawn(move || {
        let mut notice = |_| {};
        if let Err(error) = daemon.run(&mut notice, &|| false) {
            log(&format!("switch {name} ended: {error}"));
        }
    })?;
    let mut connection = Connection::open(&socket)?;
    for (end, tap) in plan.ends.iter().zip(taps) {
        let port = port_name(plan, &end.host)?;
        let ask = Ask::AddDevice { port, device: DeviceKind::Tap, shape: Shape::of_device() };
        connection.ask_with(ask, &[tap.as_fd()])?;
    }
    Ok(Running { plan: plan.clone(), connection })
}

fn port_name(plan: &SwitchPlan, host: &str) -> Result<PortName, packet_switch::NameError> {
    format!("{}:{host}", plan.name).parse()
}

impl Running {
    fn counters(&mut self) -> Result<SwitchCounters, ClientError> {
        let entries = self.connection.list()?;
        let of_host = |host: &str| {
            let name = format!("{}:{host}", self.plan.name);
            let entry = entries.iter().find(|entry| entry.name == name)?;
            let device = entry.device.as_ref();
            Some(HostPortCounters {
                host: host.to_owned(),
                count: entry.count.clone().unwrap_or_default(),
                refused_frames_count: device.map_or(0, |device| device.refused),
                ended: device.and_then(|device| device.ended.clone()),
            })
        };
        let ports = self.plan.ends.iter().filter_map(|end| of_host(&end.host)).collect();
        Ok(SwitchCounters { switch: self.plan.name.clone(), ports })
    }
}
