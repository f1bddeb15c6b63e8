//! What this process has open: ports by name, memories by number.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use packet_switch::PortName;
use packet_switch::attachment::{PipeEnd, RefusalCode, SLOTS_DEFAULT, Shape};
use packet_switch::client::{Attached, ClientError, Connection, default_socket};
use rustix::io::Errno;

use crate::adapter::Adapter;
use crate::line::Origin;
use crate::memory::{Memory, SLOTS_MAX};
use crate::name::Target;
use crate::refusal;

/// netmap's number for the memory that all NICs share.
const SHARED_MEMORY: u16 = 1;

/// What a program wants of a port that is not open yet.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wish {
    /// Which memory; 0 leaves it open.
    pub memory: u16,
    /// Slots of a ring; 0 leaves it open.
    pub slots: u32,
}

/// Everything that is open.
#[derive(Debug, Default)]
pub struct Host {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    adapters: BTreeMap<String, Weak<Adapter>>,
    memories: BTreeMap<u16, Weak<Memory>>,
    /// Memory of a port and of its pipes, by the port's name.
    families: BTreeMap<String, Weak<Memory>>,
    /// The number that a port's memory had last.
    last_ids: BTreeMap<String, u16>,
    shared: Option<Arc<Memory>>,
    last_id: u16,
}

impl Host {
    /// The port of that name, attached to unless it is already.
    ///
    /// # Errors
    /// `ENXIO`: no switch, or no such port. `EBUSY`: another process has it. `EINVAL`: no such name or
    /// memory. Otherwise what stands for the switch's refusal ([`refusal::errno`]). The reason goes to stderr, as
    /// the kernel's would to its log.
    pub fn open(&self, name: &str, wish: Wish) -> Result<Arc<Adapter>, Errno> {
        let target = Target::parse(name)?;
        let mut state = self.state();
        if let Some(adapter) = state.adapters.get(name).and_then(Weak::upgrade) {
            let fits = wish.memory == 0 || wish.memory == adapter.memory().id();
            return if fits { Ok(adapter) } else { Err(Errno::INVAL) };
        }
        let mut connection = connect()?;
        let (attached, origin) =
            attach(&mut connection, &target, wish).map_err(|error| complain(name, &error))?;
        let memory = state.memory(&target, wish.memory, &attached)?;
        let adapter = Adapter::new(name, &memory, attached, connection, origin);
        state.adapters.retain(|_, adapter| adapter.strong_count() > 0);
        state.adapters.insert(name.to_owned(), Arc::downgrade(&adapter));
        Ok(adapter)
    }

    /// Copies of what passes a port: of what it sends, of what it receives. Each caller has its own.
    ///
    /// # Errors
    /// `ENXIO`: no switch, or no such port. `EINVAL`: nobody has it. `EOPNOTSUPP`: the switch does not see
    /// what passes a pipe. `EPERM`: another user's.
    pub fn watch(&self, name: &str, wish: Wish, ways: [bool; 2]) -> Result<Arc<Adapter>, Errno> {
        let target = Target::parse(name)?;
        if target.pipe.is_some() {
            return Err(Errno::OPNOTSUPP);
        }
        let mut connection = connect()?;
        let entries = connection.list().map_err(|error| complain(name, &error))?;
        let wanted = target.switch_port()?;
        let found = entries.iter().find_map(|entry| {
            let port: PortName = entry.name.parse().ok()?;
            let is_it = match &wanted {
                Some(wanted) => port == *wanted,
                None => port.port.to_string() == target.base,
            };
            is_it.then_some((port, entry.attached))
        });
        let (port, attached) = found.ok_or(Errno::NXIO)?;
        if attached == 0 {
            return Err(Errno::INVAL);
        }
        let attached = connection.watch(&port).map_err(|error| complain(name, &error))?;
        let id = self.state().new_id();
        let memory = Memory::alone(id)?;
        self.state().memories.insert(id, Arc::downgrade(&memory));
        let slots = if wish.slots == 0 { SLOTS_DEFAULT } else { wish.slots.clamp(2, SLOTS_MAX) };
        Ok(Adapter::watching(name, &memory, slots, attached, (port, connection), ways))
    }

    /// The port of that name, if it is open in this process.
    #[must_use]
    pub fn known(&self, name: &str) -> Option<Arc<Adapter>> {
        self.state().adapters.get(name).and_then(Weak::upgrade)
    }

    /// The memory that belongs to no port, or one that is open.
    ///
    /// # Errors
    /// `EINVAL`: no such memory.
    pub fn memory(&self, id: u16) -> Result<Arc<Memory>, Errno> {
        self.state().known(if id == 0 { SHARED_MEMORY } else { id })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn memory(
        &mut self,
        target: &Target,
        wanted: u16,
        attached: &Attached,
    ) -> Result<Arc<Memory>, Errno> {
        // A program may ask for a port's memory by the number that it was told before it opened it.
        let again = self.last_ids.get(&target.base) == Some(&wanted);
        if wanted != 0 && !(again && self.known(wanted).is_err()) {
            return self.known(wanted);
        }
        if let Some(memory) = self.families.get(&target.base).and_then(Weak::upgrade) {
            return Ok(memory);
        }
        let half = target.pipe.as_ref().map(|(end, _)| *end == PipeEnd::Slave);
        let id = if again { wanted } else { self.new_id() };
        self.last_ids.insert(target.base.clone(), id);
        let memory = Memory::of_switch(id, attached.sender.buffers().region(), half)?;
        self.memories.insert(id, Arc::downgrade(&memory));
        self.families.insert(target.base.clone(), Arc::downgrade(&memory));
        Ok(memory)
    }

    fn known(&mut self, id: u16) -> Result<Arc<Memory>, Errno> {
        if id != SHARED_MEMORY {
            return self.memories.get(&id).and_then(Weak::upgrade).ok_or(Errno::INVAL);
        }
        if let Some(shared) = &self.shared {
            return Ok(Arc::clone(shared));
        }
        let shared = Memory::alone(SHARED_MEMORY)?;
        self.shared = Some(Arc::clone(&shared));
        Ok(shared)
    }

    /// A program tells memories apart by their numbers, also those it unmapped: none comes twice, as long
    /// as 65 000 are enough.
    fn new_id(&mut self) -> u16 {
        self.memories.retain(|_, memory| memory.strong_count() > 0);
        loop {
            self.last_id = self.last_id.wrapping_add(1).max(SHARED_MEMORY + 1);
            if !self.memories.contains_key(&self.last_id) {
                return self.last_id;
            }
        }
    }
}

/// Connects to the switch.
///
/// # Errors
/// `ENXIO`: nobody serves its socket.
pub fn connect() -> Result<Connection, Errno> {
    Connection::open(&default_socket()).map_err(|error| complain("/dev/netmap", &error))
}

fn attach(
    connection: &mut Connection,
    target: &Target,
    wish: Wish,
) -> Result<(Attached, Origin), ClientError> {
    let slots = if wish.slots == 0 { SLOTS_DEFAULT } else { wish.slots };
    let shape = Shape { slots, ..Shape::default() };
    let no_name = |errno: Errno| refused(RefusalCode::Invalid, errno.to_string());
    if let Some((end, _)) = &target.pipe {
        let attached = connection.open_pipe(&target.group().map_err(no_name)?, *end, shape)?;
        return Ok((attached, Origin::Pipe));
    }
    let port = match target.switch_port().map_err(no_name)? {
        Some(port) => port,
        None => device(connection, &target.base)?,
    };
    Ok((connection.attach_port_as(&port, shape)?, Origin::Port(port, shape)))
}

/// The port by which a program gets at the device of that name: the switch's port of that name itself while no
/// client has it, and a new one beside it where the switch drives a device.
fn device(connection: &mut Connection, name: &str) -> Result<PortName, ClientError> {
    let entries = connection.list()?;
    let found = entries.iter().find_map(|entry| {
        let port: PortName = entry.name.parse().ok()?;
        let is_device = entry.device.as_ref().is_some_and(|device| device.kind != "link");
        let is_its = entry.device.as_ref().is_some_and(|device| is_device && device.name == name);
        (is_its || port.port.to_string() == name).then_some((port, is_device))
    });
    let nowhere =
        || refused(RefusalCode::NotThere, format!("no port of the switch is called {name}"));
    match found.ok_or_else(nowhere)? {
        (port, false) => Ok(port),
        (port, true) => {
            let beside = format!("{}:{name}.netmap", port.switch);
            beside.parse().ok().ok_or_else(nowhere)
        }
    }
}

/// What is refused here, before the switch is asked.
fn refused(code: RefusalCode, why: String) -> ClientError {
    ClientError::Refused { code, why }
}

fn complain(name: &str, error: &ClientError) -> Errno {
    let errno = match error {
        ClientError::Refused { code, .. } => refusal::errno(*code).unwrap_or(Errno::NXIO),
        ClientError::Syscall(error) => {
            error.source.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)
        }
        _ => Errno::NXIO,
    };
    say(name, error);
    errno
}

/// What a person should know.
pub fn say(name: &str, what: &dyn std::fmt::Display) {
    // There may be no stderr.
    writeln!(std::io::stderr(), "clearstream netmap: {name}: {what}").ok();
}
