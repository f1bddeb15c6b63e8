//! `port add NAME --type …`: opens a device in this process, which has the required privilege and network
//! namespace, and passes it to the switch.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use packet_switch::attachment::{Ask, DeviceKind, Shape, TAP_QUEUES_MAX, XdpFacts};
use packet_switch::client::Connection;
use packet_switch::{Name, PortName};
use ports::xdp::OpenError;
use sys::interface::{LinkSettings, RouteSocket};

use super::explain;
use crate::VerbResult;
use crate::exit::{Exit, VerbError};

/// What a port is to be made of, by options or as words: `type=tap dev=tap0`.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct Settings {
    /// What is behind the port: client (a process attaches; the default), tap (the host's stack), xdp (a queue
    /// of a network device), vhost-user (a guest with a stock virtio-net driver).
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// The network device: a new one for type tap, an existing one for type xdp.
    #[arg(long = "device", value_name = "NAME")]
    dev: Option<String>,
    /// For type vhost-user: the socket to create, to which the guest's hypervisor connects.
    #[arg(long, value_name = "SOCKET")]
    path: Option<PathBuf>,
    /// For type xdp: number of the device's queue [default: 0].
    #[arg(long, value_name = "N")]
    queue: Option<u32>,
    /// For type tap: number of queues; the frames of a flow stay on one, in order [default: 1].
    #[arg(long, value_name = "N")]
    queues: Option<u32>,
}

impl Settings {
    /// Adds settings given as words `KEY=VALUE`, which override options.
    pub(super) fn with(mut self, words: &[String]) -> Result<Self, VerbError> {
        for word in words {
            let Some((key, value)) = word.split_once('=') else {
                return Err(VerbError::usage(format!(
                    "'{word}' is not KEY=VALUE, such as type=tap"
                )));
            };
            match key {
                "type" => self.kind = Some(value.to_owned()),
                "dev" => self.dev = Some(value.to_owned()),
                "path" => self.path = Some(value.into()),
                "queue" | "queues" => {
                    let number: Result<u32, _> =
                        value.parse().map_err(|error| VerbError::usage(format!("{word}: {error}")));
                    let place = if key == "queue" { &mut self.queue } else { &mut self.queues };
                    *place = Some(number?);
                }
                _ => {
                    let known = "type, dev, path, queue and queues";
                    return Err(VerbError::usage(format!("'{key}': {known} can be set")));
                }
            }
        }
        Ok(self)
    }

    /// The device that the settings describe, if any.
    pub(super) fn device(&self) -> Result<Option<Wanted>, VerbError> {
        let dev = self.dev.clone();
        if self.queues.is_some() && self.kind.as_deref() != Some("tap") {
            return Err(VerbError::usage("only a TAP device has several queues: --type tap"));
        }
        let is_guest = self.kind.as_deref() == Some("vhost-user");
        if self.path.is_some() != is_guest {
            return Err(VerbError::usage(
                "--type vhost-user needs --path SOCKET, and --path needs --type vhost-user",
            ));
        }
        if is_guest && (dev.is_some() || self.queue.is_some()) {
            return Err(VerbError::usage(
                "--type vhost-user takes no device and no queue of the host",
            ));
        }
        if let Some(path) = self.path.clone() {
            return Ok(Some(Wanted::Guest { path }));
        }
        match (self.kind.as_deref(), self.queue) {
            (None | Some("client"), None) if dev.is_none() => Ok(None),
            (None | Some("client"), _) => {
                Err(VerbError::usage("--device needs --type tap or --type xdp"))
            }
            (Some("tap"), None) => match self.queues.unwrap_or(1) {
                queues @ 1..=TAP_QUEUES_MAX => Ok(Some(Wanted::Tap { dev, queues })),
                count => {
                    let message = format!("{count} queues; a TAP port has 1 to {TAP_QUEUES_MAX}");
                    Err(VerbError::usage(message))
                }
            },
            (Some("tap"), _) => {
                Err(VerbError::usage("--queue needs --type xdp; a TAP device has --queues"))
            }
            (Some("xdp"), queue) => {
                let dev = dev.ok_or_else(|| VerbError::usage("--type xdp needs --device NAME"))?;
                Ok(Some(Wanted::Xdp { dev, queue: queue.unwrap_or(0) }))
            }
            (Some(other), _) => Err(VerbError::usage(format!(
                "--type {other}: expected client, tap, xdp or vhost-user"
            ))),
        }
    }
}

/// A device to open.
#[derive(Debug)]
pub(super) enum Wanted {
    Tap { dev: Option<String>, queues: u32 },
    Xdp { dev: String, queue: u32 },
    Guest { path: PathBuf },
}

impl Wanted {
    /// Default ring sizes of the device's port.
    pub(super) fn default_shape(&self) -> Shape {
        match self {
            Self::Tap { .. } | Self::Guest { .. } => Shape::of_device(),
            // Frames are at most as long as on the wire, not super-segments.
            Self::Xdp { .. } => Shape::default(),
        }
    }
}

/// Opens the device and adds it as a port.
pub(super) fn add(
    connection: &mut Connection,
    port: &PortName,
    wanted: &Wanted,
    shape: Shape,
) -> VerbResult {
    match wanted {
        Wanted::Tap { dev, queues } => {
            let dev = dev.clone().unwrap_or_else(|| default_device(&port.port));
            check_name(&dev)?;
            let taps = match queues {
                1 => ports::tap::Port::tap(&dev).map(|tap| vec![tap]),
                count => ports::tap::Port::tap_queues(&dev, *count),
            };
            let taps = taps.map_err(|error| refused(&dev, &error))?;
            let fds: Vec<_> = taps.iter().map(AsFd::as_fd).collect();
            hand_over(connection, port, DeviceKind::Tap, shape, &fds)?;
            let up = LinkSettings { up: true, ..LinkSettings::default() };
            RouteSocket::open()
                .and_then(|mut socket| socket.set_link(&dev, up))
                .map_err(|error| missing(&error))?;
        }
        Wanted::Guest { path } => add_guest(connection, port, path, shape)?,
        Wanted::Xdp { dev, queue } => add_queue(connection, port, (dev, *queue), shape)?,
    }
    Ok(Exit::Ok)
}

/// Adds a vhost-user port. Creates the socket with this command's privilege; the switch accepts connections.
fn add_guest(
    connection: &mut Connection,
    port: &PortName,
    path: &Path,
    shape: Shape,
) -> Result<(), VerbError> {
    let listener = ports::vm::Listener::bind(path).map_err(|error| {
        if error.source.kind() == std::io::ErrorKind::AddrInUse {
            return VerbError::failed(format!("{} already exists", path.display()));
        }
        missing(&error)
    })?;
    let device = DeviceKind::VhostUser { path: path.display().to_string() };
    let added = hand_over(connection, port, device, shape, &[listener.as_fd()]);
    if added.is_err() {
        // This command created the socket, and nobody serves it.
        std::fs::remove_file(path).ok();
    }
    added
}

fn add_queue(
    connection: &mut Connection,
    port: &PortName,
    (dev, queue): (&str, u32),
    shape: Shape,
) -> Result<(), VerbError> {
    let opened = ports::xdp::open(dev, queue).map_err(|error| match &error {
        OpenError::Privilege(_) | OpenError::Kernel(_) | OpenError::Memory(_) => {
            VerbError::missing(crate::exit::chain(&error))
        }
        _ => VerbError::from_error(&error),
    })?;
    let no_memory = || VerbError::failed("the frames' memory has no descriptor");
    let mut fds = vec![opened.socket.as_fd(), opened.memory.fd().ok_or_else(no_memory)?];
    fds.extend(opened.holds.iter().map(AsFd::as_fd));
    let facts = XdpFacts {
        device: dev.to_owned(),
        queue,
        is_generic: opened.is_generic,
        takes_parts: opened.takes_parts,
    };
    hand_over(connection, port, DeviceKind::Xdp(facts), shape, &fds)
}

fn hand_over(
    connection: &mut Connection,
    port: &PortName,
    device: DeviceKind,
    shape: Shape,
    fds: &[BorrowedFd<'_>],
) -> Result<(), VerbError> {
    let ask = Ask::AddDevice { port: port.clone(), device, shape };
    connection.ask_with(ask, fds).map_err(|error| explain(&error))
}

/// The port's name, cut to the 15 characters that an interface's name may have.
fn default_device(port: &Name) -> String {
    port.to_string().chars().take(15).collect()
}

/// Checks a name by the kernel's rules for interfaces (`dev_valid_name`).
fn check_name(dev: &str) -> Result<(), VerbError> {
    let is_bad = |one: char| one.is_whitespace() || one.is_control() || "/:%".contains(one);
    if (1..16).contains(&dev.len()) && !dev.contains(is_bad) && dev != "." && dev != ".." {
        return Ok(());
    }
    let text =
        format!("'{dev}' is not a device name: 1 to 15 bytes, without '/', ':', '%' or space");
    Err(VerbError::usage(text))
}

/// The error for a TAP device that cannot be opened.
fn refused(dev: &str, error: &sys::SyscallError) -> VerbError {
    use std::io::ErrorKind::{InvalidInput, ResourceBusy};
    match error.source.kind() {
        InvalidInput => VerbError::failed(format!(
            "{dev} already exists and is not a TAP device with that many queues"
        )),
        ResourceBusy => VerbError::failed(format!("another program uses the TAP device {dev}")),
        _ => missing(error),
    }
}

fn missing(error: &sys::SyscallError) -> VerbError {
    if error.is_privilege() {
        let what = "creating a network device needs CAP_NET_ADMIN";
        return VerbError::missing(format!("{what}: {}", crate::exit::chain(error)));
    }
    VerbError::from_error(error)
}
