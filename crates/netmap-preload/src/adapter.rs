//! A port or a pipe's end that this process is attached to, shared by all descriptors bound to it.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use packet_switch::PortName;
use packet_switch::client::{Attached, Connection};
use ports::tap::Port;
use rustix::io::Errno;

use crate::host;
use crate::line::{Line, News, Origin};
use crate::memory::Memory;
use crate::ring::{Backend, Direction, HostEnd, Ring, Watch};

/// Rings with what is behind them.
#[derive(Debug)]
pub struct Adapter {
    name: String,
    memory: Arc<Memory>,
    is_pipe: bool,
    slots: [u32; 2],
    /// Transmit ring and receive ring.
    pair: [Mutex<Place>; 2],
    /// The host's rings, of either kind.
    host: [Mutex<Vec<Arc<Ring>>>; 2],
    has_host: bool,
    /// What is behind those.
    host_port: Mutex<Option<Arc<Port>>>,
    /// The attachment lasts as long as it does.
    line: Mutex<Line>,
    /// Whether the next daemon is waited for.
    waiting: AtomicBool,
    /// How often there was one.
    renewals: AtomicU32,
    /// How often somebody has glanced at the line.
    glances: AtomicU32,
    header_bytes: AtomicU32,
}

/// A ring, made when first asked for: in another memory than the switch's it takes buffers.
#[derive(Debug)]
enum Place {
    Free(Backend),
    Made(Arc<Ring>),
}

/// Of so many synchronisations one looks after the line, which is a system call.
const GLANCES: u32 = 256;

/// How long closing a port waits for the switch.
const DRAIN_MAX: Duration = Duration::from_millis(100);

/// Most pairs of host rings.
pub const HOST_RINGS_MAX: u16 = 16;
/// Slots of a host ring.
const HOST_SLOTS: u32 = 256;

impl Adapter {
    /// Puts netmap's rings in front of an attachment.
    #[must_use]
    pub fn new(
        name: &str,
        memory: &Arc<Memory>,
        attached: Attached,
        connection: Connection,
        origin: Origin,
    ) -> Arc<Self> {
        let is_pipe = matches!(origin, Origin::Pipe);
        let Attached { mut sender, mut receiver, header_bytes, .. } = attached;
        let slots = [sender.end().slots(), receiver.end().slots()];
        let free = |backend| Mutex::new(Place::Free(backend));
        Arc::new(Self {
            name: name.to_owned(),
            memory: Arc::clone(memory),
            is_pipe,
            slots,
            pair: [free(Backend::Send(sender)), free(Backend::Receive(receiver))],
            host: [Mutex::default(), Mutex::default()],
            has_host: !is_pipe && !name.starts_with("vale"),
            host_port: Mutex::default(),
            line: Mutex::new(Line::new(name, origin, connection)),
            waiting: AtomicBool::new(false),
            renewals: AtomicU32::new(0),
            glances: AtomicU32::new(0),
            header_bytes: AtomicU32::new(header_bytes.into()),
        })
    }

    /// Puts netmap's rings in front of copies of what passes a port: of what it sends and of what it
    /// receives, if wanted. Nothing is behind the ring to transmit.
    #[must_use]
    pub fn watching(
        name: &str,
        memory: &Arc<Memory>,
        slots: u32,
        attached: Attached,
        (port, connection): (PortName, Connection),
        ways: [bool; 2],
    ) -> Arc<Self> {
        let watch = Backend::Watch(Watch::new(attached.receiver, ways));
        let free = |backend| Mutex::new(Place::Free(backend));
        Arc::new(Self {
            name: name.to_owned(),
            memory: Arc::clone(memory),
            is_pipe: false,
            slots: [slots; 2],
            pair: [free(Backend::Idle), free(watch)],
            host: [Mutex::default(), Mutex::default()],
            has_host: false,
            host_port: Mutex::default(),
            line: Mutex::new(Line::new(name, Origin::Watch(port), connection)),
            waiting: AtomicBool::new(false),
            renewals: AtomicU32::new(0),
            glances: AtomicU32::new(0),
            header_bytes: AtomicU32::new(0),
        })
    }

    /// As the program calls it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where its rings lie.
    #[must_use]
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Whether it is a pipe's end.
    #[must_use]
    pub fn is_pipe(&self) -> bool {
        self.is_pipe
    }

    /// Slots of its transmit ring and of its receive ring.
    #[must_use]
    pub fn slots(&self) -> [u32; 2] {
        self.slots
    }

    /// Its ring of that direction.
    ///
    /// # Errors
    /// `ENOMEM`: the memory has no room for it.
    pub fn ring(&self, direction: Direction) -> Result<Arc<Ring>, Errno> {
        let mut place = lock(&self.pair[direction as usize]);
        let backend = match &mut *place {
            Place::Made(ring) => return Ok(Arc::clone(ring)),
            Place::Free(backend) => std::mem::replace(backend, Backend::Idle),
        };
        let slots = self.slots[direction as usize];
        let ring = Ring::new(&self.memory, direction, slots, backend, self.is_pipe)?;
        *place = Place::Made(Arc::clone(&ring));
        Ok(ring)
    }

    /// So many of the host's rings, made when first asked for. Behind them is a TAP device of the port's
    /// name: one that is there, or one that goes with the port. What the host sends comes to the first.
    ///
    /// # Errors
    /// `ENOMEM`: the memory has no room for them. `EINVAL`: a pipe or a port of a switch has none, a monitor
    /// watches none, or more than [`HOST_RINGS_MAX`]. `EPERM`, `EBUSY` and others: the device.
    pub fn host_rings(&self, direction: Direction, count: u16) -> Result<Vec<Arc<Ring>>, Errno> {
        if !self.has_host || count > HOST_RINGS_MAX {
            return Err(Errno::INVAL);
        }
        let port = self.host_port()?;
        let mut rings = lock(&self.host[direction as usize]);
        while rings.len() < usize::from(count) {
            let receives = direction == Direction::Receive && rings.is_empty();
            let backend = Backend::Host(HostEnd::new(&port, receives));
            rings.push(Ring::new(&self.memory, direction, HOST_SLOTS, backend, false)?);
        }
        Ok(rings[..usize::from(count)].to_vec())
    }

    fn host_port(&self) -> Result<Arc<Port>, Errno> {
        let mut place = lock(&self.host_port);
        if let Some(port) = &*place {
            return Ok(Arc::clone(port));
        }
        let port = Port::tap(&self.name).map_err(|error| {
            host::say(&format!("{}^", self.name), &error);
            error.source.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)
        })?;
        Ok(Arc::clone(place.insert(Arc::new(port))))
    }

    /// The host's network stack, for what a program forwards to it: there since somebody asked for the host's
    /// rings, and not where frames have headers that only the port knows.
    #[must_use]
    pub fn host_side(&self) -> Option<Arc<Port>> {
        if self.header_bytes() > 0 { None } else { lock(&self.host_port).clone() }
    }

    /// Does something with the connection to the switch, while there is one.
    pub fn with_connection<T>(&self, with: impl FnOnce(&Connection) -> T) -> Option<T> {
        lock(&self.line).connection().map(with)
    }

    /// Looks after the line now and then, as often as it is called; false when it has ended.
    pub fn glance(&self) -> bool {
        let turn = self.glances.fetch_add(1, Ordering::Relaxed);
        let due = turn.is_multiple_of(GLANCES) || self.is_waiting();
        !due || self.attend()
    }

    /// Looks after the line: takes the next daemon's rings when there is one. False when it has ended.
    pub fn attend(&self) -> bool {
        let mut line = lock(&self.line);
        let header_bytes = u8::try_from(self.header_bytes()).unwrap_or(0);
        let news = line.attend(header_bytes);
        let is_alive = !matches!(news, News::Ended);
        if let News::Renewed(attached) = news {
            let lost = self.renew(*attached);
            host::say(&self.name, &format!("the switch is back; {lost} slots of frames were lost"));
            self.renewals.fetch_add(1, Ordering::Relaxed);
        }
        self.waiting.store(line.is_waiting(), Ordering::Relaxed);
        is_alive
    }

    /// Whether the next daemon is waited for.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed)
    }

    /// How often there was a next daemon.
    #[must_use]
    pub fn renewals(&self) -> u32 {
        self.renewals.load(Ordering::Relaxed)
    }

    /// Puts other rings behind those of the program; how many slots of frames the old ones kept.
    fn renew(&self, attached: Attached) -> u32 {
        let [mut sender, mut receiver] =
            [Backend::Send(attached.sender), Backend::Receive(attached.receiver)];
        let mut lost = 0;
        for (place, backend) in self.pair.iter().zip([&mut sender, &mut receiver]) {
            match &mut *lock(place) {
                Place::Made(ring) => lost += ring.renew(backend),
                Place::Free(free) => free.renew(backend),
            }
        }
        lost
    }

    /// Bytes of virtio-net header in front of each frame.
    #[must_use]
    pub fn header_bytes(&self) -> u32 {
        self.header_bytes.load(Ordering::Relaxed)
    }

    /// Notes that the switch was told another length.
    pub fn set_header_bytes(&self, bytes: u32) {
        self.header_bytes.store(bytes, Ordering::Relaxed);
    }

    /// netmap's switch takes frames while the program asks it to; ours does soon after. A program that
    /// sends and closes at once must not lose them.
    /// What is in a pipe stays there for its other end.
    pub fn drain(&self) {
        if self.is_pipe {
            return;
        }
        let Place::Made(tx) = &*lock(&self.pair[0]) else { return };
        let began = Instant::now();
        while !tx.is_drained() && began.elapsed() < DRAIN_MAX {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        self.drain();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
