//! What `vale-ctl` asks for: ports that stay, which switch they are on, and lists of them.
//!
//! A persistent port that is attached to no switch belongs to our switch `netmap`; so `valeX:NAME` may be
//! attached to, taken off, and found by its name alone.

use packet_switch::attachment::{Ask, Entry, HEADERS_BYTES, Kind, Shape};
use packet_switch::client::{ClientError, Connection};
use packet_switch::{Name, PortName};
use rustix::io::Errno;

use crate::abi::register;
use crate::host::{self, Host, Wish};
use crate::refusal;
use crate::user::{Fields, UserMemory, or};

/// Ports that are on no switch of VALE's.
const UNATTACHED: &str = "netmap";
/// Field of `struct nmreq_vale_attach` behind the `nmreq_register` in it.
const PORT_INDEX: usize = 56;
/// `NETMAP_POLLING_MODE_SINGLE_CPU`.
const SINGLE_CPU: u32 = 1;
/// `NETMAP_POLLING_MODE_MULTI_CPU`.
const MULTI_CPU: u32 = 2;
/// Most bytes of a name in a request.
const NAME_BYTES: usize = 64;

/// A name to write into a request's header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameAnswer(Option<String>);

impl NameAnswer {
    /// It, if there is one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.0.as_deref()
    }

    /// Writes it, if there is one.
    ///
    /// # Errors
    /// `EFAULT`: the request is not there any more.
    pub fn write(&self, user: &dyn UserMemory, header: u64) -> Result<(), Errno> {
        let Some(name) = &self.0 else { return Ok(()) };
        let mut field = [0; NAME_BYTES];
        field.iter_mut().take(NAME_BYTES - 1).zip(name.bytes()).for_each(|(to, from)| *to = from);
        user.write(header + 8, &field)
    }
}

/// `NETMAP_REQ_PORT_HDR_SET`.
///
/// # Errors
/// `EINVAL`: no length that netmap has, or not a port of a switch. `ENXIO`: no such port.
pub fn set_header(host: &Host, name: &str, bytes: u32) -> Result<(), Errno> {
    let known = u8::try_from(bytes).ok().filter(|bytes| HEADERS_BYTES.contains(bytes));
    let header_bytes = known.filter(|_| name.starts_with("vale")).ok_or(Errno::INVAL)?;
    let port: PortName = name.parse().map_err(or(Errno::INVAL))?;
    let mut connection = host::connect()?;
    entry(&mut connection, &port)?;
    ask(&mut connection, Ask::SetHeader { port, header_bytes })?;
    if let Some(adapter) = host.known(name) {
        adapter.set_header_bytes(bytes);
    }
    Ok(())
}

/// `NETMAP_REQ_PORT_HDR_GET`.
///
/// # Errors
/// `ENXIO`: no such port.
pub fn header_bytes(host: &Host, name: &str) -> Result<u32, Errno> {
    if !name.starts_with("vale") {
        return Ok(host.open(name, Wish::default())?.header_bytes());
    }
    let port: PortName = name.parse().map_err(or(Errno::INVAL))?;
    Ok(entry(&mut host::connect()?, &port)?.header_bytes.into())
}

/// `NETMAP_REQ_VALE_POLLING_ENABLE` and `…_DISABLE`: the switch's thread polls the port without end, on the
/// cores that the switch was started with.
///
/// # Errors
/// `ENXIO`: no such port. `EINVAL`: no such way of polling.
pub fn poll_always(name: &str, body: &Fields, always: bool) -> Result<(), Errno> {
    let is_mode = (SINGLE_CPU..=MULTI_CPU).contains(&body.u32(0));
    if always && (!is_mode || body.u32(8) == 0) {
        return Err(Errno::INVAL);
    }
    let port: PortName = name.parse().map_err(or(Errno::INVAL))?;
    let mut connection = host::connect()?;
    entry(&mut connection, &port)?;
    ask(&mut connection, Ask::Poll { port, always })
}

/// `NETMAP_REQ_VALE_LIST`: numbers of a port by name, or the next port by numbers.
///
/// # Errors
/// `ENOENT`: no such port, or no more.
pub fn list(name: &str, body: &mut Fields) -> Result<NameAnswer, Errno> {
    const BRIDGE: usize = 0;
    const PORT: usize = 4;
    let ports = vale_ports(&mut host::connect()?)?;
    let mut numbered = Vec::new();
    for (port, _) in &ports {
        let bridges = numbered.last().map_or(0, |(bridge, _, last): &(u16, u32, &PortName)| {
            bridge + u16::from(last.switch != port.switch)
        });
        let same = numbered.iter().filter(|(bridge, _, _)| *bridge == bridges).count();
        numbered.push((bridges, u32::try_from(same).unwrap_or(u32::MAX), port));
    }
    let (wanted_bridge, wanted_port) = (body.u16(BRIDGE), body.u32(PORT));
    let found = numbered.iter().find(|(bridge, index, port)| {
        if name.is_empty() {
            (*bridge, *index) >= (wanted_bridge, wanted_port)
        } else {
            port.to_string() == name
        }
    });
    let (bridge, index, port) = found.ok_or(Errno::NOENT)?;
    body.set_u16(BRIDGE, *bridge);
    body.set_u32(PORT, *index);
    Ok(NameAnswer(name.is_empty().then(|| port.to_string())))
}

/// `NETMAP_REQ_VALE_NEWIF`.
///
/// # Errors
/// `EEXIST`: a port of that name is there. `EINVAL`: no name.
pub fn new_port(name: &str, body: &Fields) -> Result<(), Errno> {
    let name = plain(name)?;
    let mut connection = host::connect()?;
    if find(&mut connection, &name)?.is_some() {
        return Err(Errno::EXIST);
    }
    let slots = body.u32(0).max(body.u32(4));
    let shape = if slots == 0 { Shape::default() } else { Shape { slots, ..Shape::default() } };
    ask(&mut connection, Ask::AddPort { port: on(UNATTACHED, &name)?, shape })
}

/// `NETMAP_REQ_VALE_DELIF`.
///
/// # Errors
/// `ENXIO`: no such port. `EBUSY`: it is on a switch, or a client has it.
pub fn delete_port(name: &str) -> Result<(), Errno> {
    let name = plain(name)?;
    let mut connection = host::connect()?;
    let (port, entry) = find(&mut connection, &name)?.ok_or(Errno::NXIO)?;
    if port.switch.to_string() != UNATTACHED || entry.attached > 0 {
        return Err(Errno::BUSY);
    }
    ask(&mut connection, Ask::DeletePort { port })
}

/// `NETMAP_REQ_VALE_ATTACH`.
///
/// # Errors
/// `ENXIO`: no such port. `EBUSY`: it is on a switch already, or a client has it.
pub fn attach(name: &str, body: &mut Fields) -> Result<(), Errno> {
    let target: PortName = name.parse().map_err(or(Errno::INVAL))?;
    if !name.starts_with("vale") || body.u32(register::MODE) == 0 {
        return Err(Errno::INVAL);
    }
    let mut connection = host::connect()?;
    body.set_u32(PORT_INDEX, 0);
    move_port(&mut connection, &target.port, UNATTACHED, &target.switch.to_string())
}

/// `NETMAP_REQ_VALE_DETACH`.
///
/// # Errors
/// `ENXIO`: no such port. `EBUSY`: a client has it.
pub fn detach(name: &str, body: &mut Fields) -> Result<(), Errno> {
    let target: PortName = name.parse().map_err(or(Errno::INVAL))?;
    let mut connection = host::connect()?;
    body.set_u32(0, 0);
    move_port(&mut connection, &target.port, &target.switch.to_string(), UNATTACHED)
}

/// A port without client is nothing but its name and shape, so moving it is making it anew.
fn move_port(connection: &mut Connection, name: &Name, from: &str, to: &str) -> Result<(), Errno> {
    let (port, entry) = find(connection, name)?.ok_or(Errno::NXIO)?;
    let is_movable = port.switch.to_string() == from && entry.kind == Kind::Port;
    if !is_movable || entry.attached > 0 {
        return Err(Errno::BUSY);
    }
    ask(connection, Ask::AddPort { port: on(to, name)?, shape: entry.shape })?;
    ask(connection, Ask::DeletePort { port })
}

fn plain(name: &str) -> Result<Name, Errno> {
    if name.starts_with("vale") {
        return Err(Errno::INVAL);
    }
    name.parse().map_err(or(Errno::INVAL))
}

fn on(switch: &str, name: &Name) -> Result<PortName, Errno> {
    format!("{switch}:{name}").parse().map_err(or(Errno::INVAL))
}

fn ports(connection: &mut Connection) -> Result<Vec<(PortName, Entry)>, Errno> {
    let entries = connection.list().map_err(or(Errno::IO))?;
    let parsed = entries.into_iter().filter_map(|entry| Some((entry.name.parse().ok()?, entry)));
    Ok(parsed.collect())
}

fn vale_ports(connection: &mut Connection) -> Result<Vec<(PortName, Entry)>, Errno> {
    let mut all = ports(connection)?;
    all.retain(|(port, _)| port.switch.to_string().starts_with("vale"));
    Ok(all)
}

fn entry(connection: &mut Connection, name: &PortName) -> Result<Entry, Errno> {
    let found = ports(connection)?.into_iter().find(|(port, _)| port == name);
    found.map(|(_, entry)| entry).ok_or(Errno::NXIO)
}

fn find(connection: &mut Connection, name: &Name) -> Result<Option<(PortName, Entry)>, Errno> {
    Ok(ports(connection)?.into_iter().find(|(port, _)| port.port == *name))
}

fn ask(connection: &mut Connection, ask: Ask) -> Result<(), Errno> {
    connection.ask(ask).map_err(|error| match error {
        ClientError::Refused { code, .. } => refusal::errno(code).unwrap_or(Errno::INVAL),
        _ => Errno::IO,
    })
}
