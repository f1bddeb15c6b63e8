//! What a program's descriptor of `/dev/netmap` is bound to, and what its calls do.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::event::epoll;
use rustix::io::Errno;

use crate::abi::{self, interface, register};
use crate::adapter::Adapter;
use crate::csb::Csb;
use crate::host::{Host, Wish};
use crate::memory::Memory;
use crate::ring::{Direction, Ring, Synced};
use crate::user::{Fields, UserMemory, or};

/// A descriptor, bound or not.
#[derive(Debug, Default)]
pub struct Descriptor {
    binding: OnceLock<Binding>,
}

/// What it is bound to.
#[derive(Debug)]
pub struct Binding {
    /// None when only memory was asked for.
    adapter: Option<Arc<Adapter>>,
    memory: Arc<Memory>,
    tx: Rings,
    rx: Rings,
    interface: usize,
    flags: u64,
    /// Where the cursors are, in CSB mode.
    csb: OnceLock<Csb>,
    /// The switch has cut this client off, or has gone for too long.
    gone: AtomicBool,
    /// The program's epoll set, and for how many daemons its wakers are in it.
    set: OnceLock<Option<OwnedFd>>,
    watched: AtomicU32,
}

/// Longest sleep while the next daemon is waited for.
const WAITING_NAP: Duration = Duration::from_millis(20);

/// Events that mean "may I send", and "has something come".
const OUT: i16 = libc::POLLOUT | libc::POLLWRNORM;
const IN: i16 = libc::POLLIN | libc::POLLRDNORM;

impl Descriptor {
    /// Binds it, as the body of [`abi::REGISTER`] says, and writes into the body what came of it. The
    /// program's descriptor `fd` is an epoll set; it gets what wakes a sleeper. `prepare` sees what it is bound
    /// to before anybody else.
    ///
    /// # Errors
    /// `EBUSY`: it is bound, or somebody has the ring or port. Else as [`Host::open`].
    pub fn register(
        &self,
        host: &Host,
        fd: BorrowedFd<'_>,
        name: &str,
        body: &mut Fields,
        prepare: &dyn Fn(&Binding) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        if self.binding.get().is_some() {
            return Err(Errno::BUSY);
        }
        let binding = Binding::new(host, name, body)?;
        prepare(&binding)?;
        binding.watch(fd)?;
        self.binding.set(binding).map_err(or(Errno::BUSY))
    }

    /// What it is bound to.
    #[must_use]
    pub fn binding(&self) -> Option<&Binding> {
        self.binding.get()
    }

    /// `NIOCTXSYNC` or `NIOCRXSYNC`.
    ///
    /// # Errors
    /// `ENXIO`: not bound. `EIO`: the switch has ended, or has cut this client off.
    pub fn sync(&self, transmit: bool, user: &dyn UserMemory) -> Result<(), Errno> {
        let binding = self.binding.get().ok_or(Errno::NXIO)?;
        if binding.csb.get().is_some() {
            return Err(Errno::BUSY);
        }
        binding.glance();
        let rings = if transmit { &binding.tx } else { &binding.rx };
        if !transmit {
            binding.forward(user);
        }
        let broken = rings.iter().filter(|(_, ring)| ring.sync(user) == Synced::Broken).count();
        if broken > 0 || binding.is_gone() { Err(Errno::IO) } else { Ok(()) }
    }

    /// What poll says of it, synchronising what was asked for as netmap does.
    #[must_use]
    pub fn examine(&self, events: i16, user: &dyn UserMemory) -> i16 {
        let Some(binding) = self.binding.get() else { return libc::POLLERR };
        binding.glance();
        if binding.is_gone() || binding.csb.get().is_some() {
            return libc::POLLERR;
        }
        let mut answer = 0;
        let pushes = binding.flags & abi::NO_TX_POLL == 0;
        for (_, ring) in &binding.tx {
            if events & OUT != 0 || (pushes && ring.has_pending()) {
                answer |= verdict(ring.sync(user), events & OUT);
            }
        }
        if events & IN != 0 || binding.flags & abi::DO_RX_POLL != 0 {
            binding.forward(user);
            for (_, ring) in &binding.rx {
                answer |= verdict(ring.sync(user), events & IN);
            }
        }
        answer
    }

    /// Asks to be woken for these events; false when there is something already.
    #[must_use]
    pub fn arm(&self, events: i16) -> bool {
        let Some(binding) = self.binding.get() else { return true };
        // Each must be asked, whatever the others say.
        let tx = binding.tx.iter().filter(|_| events & OUT != 0);
        let rx = binding.rx.iter().filter(|_| events & IN != 0);
        let news = tx.chain(rx).filter(|(_, ring)| !ring.arm()).count();
        news == 0
    }

    /// After a sleep.
    pub fn disarm(&self) {
        let Some(binding) = self.binding.get() else { return };
        binding.tx.iter().chain(&binding.rx).for_each(|(_, ring)| ring.disarm());
        binding.attend();
    }

    /// How long whoever waits for it may sleep before it looks again.
    #[must_use]
    pub fn nap(&self) -> Option<Duration> {
        let binding = self.binding.get()?;
        let rings = binding.tx.iter().chain(&binding.rx);
        let waits = binding.adapter.as_ref().is_some_and(|adapter| adapter.is_waiting());
        rings.filter_map(|(_, ring)| ring.nap()).chain(waits.then_some(WAITING_NAP)).min()
    }
}

fn verdict(synced: Synced, events: i16) -> i16 {
    match synced {
        Synced::Ready(true) => events,
        Synced::Ready(false) => 0,
        Synced::Reset | Synced::Broken => libc::POLLERR,
    }
}

impl Binding {
    fn new(host: &Host, name: &str, body: &mut Fields) -> Result<Self, Errno> {
        let wish = Wish {
            memory: body.u16(register::MEM_ID),
            slots: body.u32(register::TX_SLOTS).max(body.u32(register::RX_SLOTS)),
        };
        let flags = body.u64(register::FLAGS);
        if body.u32(register::MODE) == abi::NULL {
            let memory = host.memory(wish.memory)?;
            return Self::finish(None, memory, (Vec::new(), Vec::new()), body);
        }
        let watched = [abi::MONITOR_TX, abi::MONITOR_RX].map(|flag| flags & flag != 0);
        let is_monitor = watched != [false; 2];
        let adapter =
            if is_monitor { host.watch(name, wish, watched)? } else { host.open(name, wish)? };
        if adapter.header_bytes() > 0 && flags & abi::ACCEPT_VNET_HDR == 0 {
            return Err(Errno::IO);
        }
        let rings = choose(&adapter, body)?;
        let memory = Arc::clone(adapter.memory());
        bind(&rings, flags & abi::EXCLUSIVE != 0)?;
        Self::finish(Some(adapter), memory, rings, body)
    }

    /// From here on dropping it gives everything back.
    fn finish(
        adapter: Option<Arc<Adapter>>,
        memory: Arc<Memory>,
        (tx, rx): (Rings, Rings),
        body: &mut Fields,
    ) -> Result<Self, Errno> {
        let flags = body.u64(register::FLAGS);
        let interface = memory.take_interface().inspect_err(|_| unbind(&tx, &rx))?;
        let binding = Self {
            adapter,
            memory,
            tx,
            rx,
            interface,
            flags,
            csb: OnceLock::new(),
            gone: AtomicBool::new(false),
            set: OnceLock::new(),
            watched: AtomicU32::new(0),
        };
        binding.describe(body)?;
        Ok(binding)
    }

    /// The interface's descriptor, and the same in the answer.
    fn describe(&self, body: &mut Fields) -> Result<(), Errno> {
        let memory = &self.memory;
        let words = memory.interface_words(self.interface)?;
        let put = |word: usize, value: u32| {
            if let Some(word) = words.get(word) {
                word.store(value, Ordering::Relaxed);
            }
        };
        (0..words.len()).for_each(|word| put(word, 0));
        let mut name = [0; 16];
        let full = self.adapter.as_ref().map_or("", |adapter| adapter.name());
        name.iter_mut().take(15).zip(full.bytes()).for_each(|(to, from)| *to = from);
        for (word, bytes) in name.chunks_exact(4).enumerate() {
            put(word, u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
        }
        if let Some(adapter) = &self.adapter {
            for (half, slots) in adapter.slots().into_iter().enumerate() {
                body.set_u32(register::TX_SLOTS + 4 * half, slots);
                body.set_u16(register::TX_RINGS + 2 * half, 1);
            }
        }
        // Like the rings of a memory without port these are counted, whether bound or not.
        for half in [0, 2] {
            let host = body.u16(register::HOST_TX_RINGS + half).max(1);
            body.set_u16(register::HOST_TX_RINGS + half, host);
        }
        let counts = [0, 4, 2, 6].map(|at| body.u16(register::TX_RINGS + at));
        let all: usize = counts.iter().map(|count| usize::from(*count)).sum();
        if all > Memory::offsets_max() {
            return Err(Errno::NOMEM);
        }
        put(interface::VERSION, abi::API.into());
        put(interface::FLAGS, if memory.id() == 1 { 0 } else { interface::PRIVATE_MEMORY });
        let [tx, host_tx, rx, host_rx] = counts.map(u32::from);
        put(interface::TX_RINGS, tx);
        put(interface::TX_RINGS + 1, rx);
        put(interface::HOST_TX_RINGS, host_tx);
        put(interface::HOST_TX_RINGS + 1, host_rx);
        if self.adapter.is_some() {
            self.place_rings(counts, &put);
        }
        let (first, extra) = memory.take_list(body.u32(register::EXTRA_BUFS));
        put(interface::BUFS_HEAD, first);
        body.set_u32(register::EXTRA_BUFS, extra);
        body.set_u64(register::OFFSET, self.interface as u64);
        body.set_u64(register::MEMSIZE, memory.length_bytes() as u64);
        body.set_u16(register::MEM_ID, memory.id());
        Ok(())
    }

    /// Offsets in netmap's order: transmit, host transmit, receive, host receive; 0 where not bound.
    fn place_rings(&self, counts: [u16; 4], put: &dyn Fn(usize, u32)) {
        let [tx, host_tx, ..] = counts.map(usize::from);
        for (bound, first) in [(&self.tx, 0), (&self.rx, tx + host_tx)] {
            for (at, ring) in bound {
                let to_ring = (ring.offset() - self.interface) as u64;
                let word = interface::HEADER_BYTES / 4 + 2 * (first + usize::from(*at));
                put(word, to_ring as u32);
                put(word + 1, (to_ring >> 32) as u32);
                ring.set_number(*at);
            }
        }
    }

    /// Puts what wakes a sleeper into the program's epoll set.
    fn watch(&self, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        // Kept for the next daemon's wakers.
        self.set.get_or_init(|| rustix::io::fcntl_dupfd_cloexec(fd, 0).ok()).as_ref();
        self.put_wakers(fd)
    }

    fn put_wakers(&self, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        let add = |source: BorrowedFd<'_>, number: u64| {
            let data = epoll::EventData::new_u64(number);
            match epoll::add(fd, source, data, epoll::EventFlags::IN) {
                // A host ring's is there already when the others are renewed.
                Err(Errno::EXIST) => Ok(()),
                answer => answer,
            }
        };
        for (number, (_, ring)) in (0..).zip(self.tx.iter().chain(&self.rx)) {
            // Two descriptors of one ring have the same bell, but each a set of its own.
            ring.with_waker(|waker| add(waker, number)).transpose()?;
        }
        if let Some(adapter) = &self.adapter {
            adapter.with_connection(|connection| add(connection.as_fd(), u64::MAX)).transpose()?;
        }
        Ok(())
    }

    /// Looks after the line to the switch now and then.
    fn glance(&self) {
        self.look_after(Adapter::glance);
    }

    /// Looks after it now.
    pub fn attend(&self) {
        self.look_after(Adapter::attend);
    }

    fn look_after(&self, look: fn(&Adapter) -> bool) {
        let Some(adapter) = &self.adapter else { return };
        if !look(adapter) {
            self.gone.store(true, Ordering::Relaxed);
        }
        let renewals = adapter.renewals();
        if self.watched.swap(renewals, Ordering::Relaxed) != renewals
            && let Some(set) = self.set.get().and_then(Option::as_ref)
        {
            // Those of former daemons went with their descriptors. Where there is no room for the new
            // ones, the program's own timeouts end its sleeps.
            self.put_wakers(set.as_fd()).ok();
        }
    }

    /// Hands what the program gives back marked to the other side: to the host, or where this descriptor has
    /// the port's ring to transmit on, to the port.
    fn forward(&self, user: &dyn UserMemory) {
        let mut rings = self.rx.iter().filter(|(_, ring)| ring.forwards()).peekable();
        if rings.peek().is_none() {
            return;
        }
        let Some(host) = self.adapter.as_ref().and_then(|adapter| adapter.host_side()) else {
            return;
        };
        let down = self.tx.iter().find(|(_, ring)| !ring.is_hosts());
        for (_, ring) in rings {
            match (ring.is_hosts(), down) {
                (false, _) => ring.forward_up(&host),
                (true, Some((_, to))) => ring.forward_down(to, user),
                (true, None) => {}
            }
        }
    }

    fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// From now on cursors are in the program's memory; `entries` says where.
    ///
    /// # Errors
    /// `EBUSY`: they are already. `EINVAL`: somebody else may have the rings too. Else as [`Csb::new`].
    pub fn enable_csb(&self, entries: &Fields, user: &dyn UserMemory) -> Result<(), Errno> {
        if self.csb.get().is_some() {
            return Err(Errno::BUSY);
        }
        if self.flags & abi::EXCLUSIVE == 0 {
            return Err(Errno::INVAL);
        }
        let rings = self.tx.iter().chain(&self.rx).map(|(_, ring)| Arc::clone(ring)).collect();
        let csb = Csb::new(rings, entries.u64(0), entries.u64(8), user)?;
        self.csb.set(csb).map_err(|_again| Errno::BUSY)
    }

    /// The cursors in the program's memory, if they are there.
    #[must_use]
    pub fn csb(&self) -> Option<&Csb> {
        self.csb.get()
    }

    /// Waits until the switch has taken what was sent.
    pub fn drain(&self) {
        if let Some(adapter) = &self.adapter {
            adapter.drain();
        }
    }

    /// What a program maps.
    #[must_use]
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }
}

/// Rings with their numbers.
type Rings = Vec<(u16, Arc<Ring>)>;

/// The rings that a request means: those to transmit, those to receive.
fn choose(adapter: &Adapter, body: &Fields) -> Result<(Rings, Rings), Errno> {
    let only = body.u64(register::FLAGS) & (abi::TX_RINGS_ONLY | abi::RX_RINGS_ONLY);
    if only == abi::TX_RINGS_ONLY | abi::RX_RINGS_ONLY {
        return Err(Errno::INVAL);
    }
    let half = |direction, hidden: u64, at: usize| {
        if only == hidden { Ok(Vec::new()) } else { choose_half(adapter, body, direction, at) }
    };
    let tx = half(Direction::Transmit, abi::RX_RINGS_ONLY, 0)?;
    let rx = half(Direction::Receive, abi::TX_RINGS_ONLY, 2)?;
    Ok((tx, rx))
}

fn choose_half(
    adapter: &Adapter,
    body: &Fields,
    direction: Direction,
    at: usize,
) -> Result<Rings, Errno> {
    let (mode, wanted) = (body.u32(register::MODE), body.u16(register::RING_ID));
    let mut rings = Vec::new();
    if matches!(mode, abi::ALL_NIC | abi::NIC_SW | abi::ONE_NIC) {
        rings.push((0, adapter.ring(direction)?));
    }
    if matches!(mode, abi::SW | abi::NIC_SW | abi::ONE_SW) {
        let count = body.u16(register::HOST_TX_RINGS + at).max(1);
        rings.extend((1..).zip(adapter.host_rings(direction, count)?));
    }
    if matches!(mode, abi::ONE_NIC | abi::ONE_SW) {
        // Of the host's rings the first has the number after that of the port's.
        let number = wanted.saturating_add(u16::from(mode == abi::ONE_SW));
        rings.retain(|(at, _)| *at == number);
    }
    if rings.is_empty() { Err(Errno::INVAL) } else { Ok(rings) }
}

fn bind((tx, rx): &(Rings, Rings), exclusive: bool) -> Result<(), Errno> {
    let all: Vec<&Arc<Ring>> = tx.iter().chain(rx).map(|(_, ring)| ring).collect();
    for (index, ring) in all.iter().enumerate() {
        if let Err(error) = ring.bind(exclusive) {
            all[..index].iter().for_each(|bound| bound.unbind());
            return Err(error);
        }
    }
    Ok(())
}

fn unbind(tx: &Rings, rx: &Rings) {
    tx.iter().chain(rx).for_each(|(_, ring)| ring.unbind());
}

impl Drop for Binding {
    fn drop(&mut self) {
        unbind(&self.tx, &self.rx);
        if let Ok(words) = self.memory.interface_words(self.interface) {
            self.memory.free_list(words[interface::BUFS_HEAD].load(Ordering::Relaxed));
        }
        self.memory.free_interface(self.interface);
    }
}
