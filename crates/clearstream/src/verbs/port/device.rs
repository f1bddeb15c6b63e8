//! `port add NAME type=…`: opening a device here, where its privilege and network namespace are, and
//! handing it to the switch.

use std::os::fd::{AsFd, BorrowedFd};

use packet_switch::attachment::{Ask, DeviceKind, Shape};
use packet_switch::client::Connection;
use packet_switch::{Name, PortName};
use sys::interface::{LinkSettings, RouteSocket};

use super::explain;
use crate::VerbResult;
use crate::exit::{Exit, VerbError};

/// `type=tap dev=tap0`, as words.
#[derive(Debug, Clone, Default)]
pub(super) struct Settings {
    kind: Option<String>,
    dev: Option<String>,
}

impl Settings {
    pub(super) fn parse(words: &[String]) -> Result<Self, VerbError> {
        let mut settings = Self::default();
        for word in words {
            let Some((key, value)) = word.split_once('=') else {
                return Err(VerbError::usage(format!(
                    "'{word}' is not KEY=VALUE, such as type=tap"
                )));
            };
            let place = match key {
                "type" => &mut settings.kind,
                "dev" => &mut settings.dev,
                _ => {
                    let known = "type and dev";
                    return Err(VerbError::usage(format!("'{key}': {known} can be set")));
                }
            };
            *place = Some(value.to_owned());
        }
        Ok(settings)
    }

    /// Which device it asks for, if any.
    pub(super) fn device(&self) -> Result<Option<Wanted>, VerbError> {
        match self.kind.as_deref() {
            None | Some("client") if self.dev.is_none() => Ok(None),
            None | Some("client") => Err(VerbError::usage("dev= goes with type=tap")),
            Some("tap") => Ok(Some(Wanted::Tap { dev: self.dev.clone() })),
            Some(other) => {
                Err(VerbError::usage(format!("type={other}: client and tap are possible")))
            }
        }
    }
}

/// A device to open.
#[derive(Debug)]
pub(super) enum Wanted {
    Tap { dev: Option<String> },
}

/// Opens it and makes it a port.
pub(super) fn add(
    connection: &mut Connection,
    port: &PortName,
    wanted: &Wanted,
    shape: Shape,
) -> VerbResult {
    match wanted {
        Wanted::Tap { dev } => {
            let dev = dev.clone().unwrap_or_else(|| default_device(&port.port));
            let tap = port_tap::Port::tap(&dev).map_err(|error| missing(&error))?;
            let fds = [tap.as_fd()];
            hand_over(connection, port, DeviceKind::Tap, shape, &fds)?;
            let up = LinkSettings { up: true, ..LinkSettings::default() };
            RouteSocket::open()
                .and_then(|mut socket| socket.set_link(&dev, up))
                .map_err(|error| missing(&error))?;
        }
    }
    Ok(Exit::Ok)
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

/// The port's own name, as far as an interface's may be that long.
fn default_device(port: &Name) -> String {
    port.to_string().chars().take(15).collect()
}

fn missing(error: &sys::SyscallError) -> VerbError {
    if error.is_privilege() {
        let what = "making a network device needs CAP_NET_ADMIN";
        return VerbError::missing(format!("{what}: {}", crate::exit::chain(error)));
    }
    VerbError::from_error(error)
}
