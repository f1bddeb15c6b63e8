//! The watcher of a host: one thread that waits for packets, announcements and its timers.

use std::os::fd::{AsFd, BorrowedFd};

use liveness::sentinel::Belief;
use liveness::states::{
    BfdInput, DrainError, EventKind, GatewayCounters, GatewayState, Inputs, Output, Watcher,
};
use netlink::{Notified, group};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::mm::MlockAllFlags;
use sys::SyscallError;
use sys::netlink_socket::{NetlinkError, NetlinkSocket};

use crate::asking::Asking;
use crate::bfd_sockets::BfdSockets;
use crate::filters::FilterChanges;
use crate::icmp::IcmpListener;
use crate::link::{self, WatchError, monotonic_ns, unix_us};
use crate::metrics::{self, GatewayFigures};
use crate::neighbours;
use crate::options::{GatewayOptions, WatchOptions};
use crate::processors::Processors;
use crate::recorder::Recorder;
use crate::sentinels::{Announcing, Listening};
use crate::state_file::{GatewayRecord, StateFile, state_word};

/// How long a watcher looks for its gateways before it begins, less than a second.
const FIND_NS: u64 = 500_000_000;
/// How often gateways without an answer are looked for on the link.
const LOOK_INTERVAL_NS: u64 = 1_000_000_000;
/// So much later at most: with what the watcher is woken for anyway, unless nothing is due.
const LOOK_SLACK_NS: u64 = 500_000_000;
/// So long after the kernel's last announcement routes are put back: changes come in groups.
const SETTLE_NS: u64 = 20_000_000;
/// Announcements are not waited for any longer, however many come.
const SETTLE_NS_MAX: u64 = 200_000_000;
/// After which routes that could not be put back are tried again.
const RETRY_NS: u64 = 1_000_000_000;
/// How often metrics are written while nothing changes.
const METRICS_INTERVAL_NS: u64 = 5_000_000_000;
/// Real-time priority: low, above all ordinary threads.
const PRIORITY: u8 = 10;

/// Moves the host's routes.
pub trait Steering {
    /// Has routes lead over these gateways (indices in the plan's order, never none) and no others.
    ///
    /// # Errors
    /// One line: what failed and why. The watcher says it in its events and has [`restore`](Self::restore) try
    /// again.
    fn steer(&mut self, gateways: &[u16]) -> Result<(), String>;

    /// Links, routes or nexthop objects have changed: puts back what is missing of the plan with these
    /// gateways. Called after this program's own changes as well, and must then change nothing.
    ///
    /// # Errors
    /// As [`steer`](Self::steer); tried again after a second.
    fn restore(&mut self, gateways: &[u16]) -> Result<(), String>;

    /// Gateways that are to be out of use though they work (indices in the plan's order); `None`: as before. Asked
    /// once a second, and before routes are put back.
    fn drained(&mut self) -> Option<Vec<u16>> {
        None
    }

    /// Whether a change that the kernel announces may be one of the plan's objects; others do not call for
    /// [`restore`](Self::restore).
    fn concerns(&self, _announced: &Notified) -> bool {
        true
    }
}

/// What the kernel granted against being late.
#[derive(Debug)]
pub struct Promptness {
    /// Why the thread has no real-time priority.
    pub priority: Result<(), SyscallError>,
    /// Why its memory may be paged out.
    pub memory: Result<(), SyscallError>,
}

impl Promptness {
    /// Asks for real-time priority (`SCHED_FIFO`) for the calling thread and for the process's memory to stay
    /// where it is. To be called by the threads of watchers and of reflectors: a reflector that is not run for
    /// three intervals looks as if all gateways had failed at once.
    #[must_use]
    pub fn ask() -> Self {
        let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
        Self {
            priority: sys::thread::run_in_real_time(PRIORITY),
            memory: rustix::mm::mlockall(flags)
                .map_err(|error| SyscallError::new("mlockall", "this process", error)),
        }
    }
}

/// The watcher of a host.
#[derive(Debug)]
pub struct Watch {
    plan: String,
    names: Vec<String>,
    options: WatchOptions,
    interface_index: u32,
    watcher: Watcher,
    asking: Asking,
    icmp: IcmpListener,
    bfd: BfdSockets,
    sentinels: Option<Listening>,
    announcing: Option<Announcing>,
    announcements: NetlinkSocket,
    filters: Option<FilterChanges>,
    netlink: NetlinkSocket,
    next_look_ns: u64,
    search: neighbours::Search,
    /// Since when routes may be missing, and until when to wait for more announcements.
    unsettled: Option<(u64, u64)>,
    is_interface_gone: bool,
    /// What was said last of routes that could not be put back.
    complaint: String,
    next_metrics_ns: u64,
    drained: Vec<u16>,
    readable: Readable,
    processors: Processors,
    /// The watcher was doubtful after its last turn.
    was_doubtful: bool,
}

/// What there is to read, beside answers.
#[derive(Debug, Clone, Copy)]
struct Readable {
    is_icmp: bool,
    has_announcements: bool,
}

impl Watch {
    /// Opens a watcher in the calling thread's network namespace.
    ///
    /// # Errors
    /// A privilege is missing (`CAP_NET_RAW`), the interface is not there, a port is taken, or the options
    /// contradict each other.
    pub fn open(options: WatchOptions) -> Result<Self, WatchError> {
        check(&options)?;
        let mut announcements = NetlinkSocket::open().map_err(WatchError::netlink("changes"))?;
        let groups =
            [group::LINK, group::NEIGHBOUR, group::ROUTE_V4, group::ROUTE_V6, group::NEXTHOP];
        announcements.subscribe(&groups).map_err(WatchError::netlink("changes"))?;
        rustix::io::ioctl_fionbio(&announcements, true)
            .map_err(|error| SyscallError::new("ioctl(FIONBIO)", "netlink", error))?;
        let mut netlink = NetlinkSocket::open().map_err(WatchError::netlink("interfaces"))?;
        let link = link::interface(&mut netlink, &options.interface)?;
        let inputs: Vec<Inputs> = options
            .gateways
            .iter()
            .map(|gateway| Inputs {
                is_probed: gateway.is_probed,
                was_down: options.were_down.contains(&gateway.name),
            })
            .collect();
        let mut watch = Self {
            plan: options.plan.clone(),
            names: options.gateways.iter().map(|gateway| gateway.name.clone()).collect(),
            interface_index: link.index,
            watcher: Watcher::new(options.timing, &inputs)?,
            asking: Asking::open(&options, &link)?,
            icmp: IcmpListener::open(options.near)?,
            bfd: BfdSockets::open(&options, link.index)?,
            sentinels: Listening::open(&options)?,
            announcing: Announcing::open(&options)?,
            announcements,
            filters: options.has_filters.then(FilterChanges::open).transpose()?,
            netlink,
            next_look_ns: 0,
            search: neighbours::Search::default(),
            unsettled: None,
            is_interface_gone: false,
            complaint: String::new(),
            next_metrics_ns: 0,
            drained: Vec::new(),
            readable: Readable { is_icmp: true, has_announcements: true },
            processors: Processors::open(),
            was_doubtful: false,
            options,
        };
        watch.watcher.handle_carrier(monotonic_ns(), link.has_carrier());
        watch.learn_neighbours()?;
        watch.find_gateways()?;
        Ok(watch)
    }

    /// Waits a moment for the gateways' Ethernet addresses, so that the first rounds are not missed for want
    /// of them.
    fn find_gateways(&mut self) -> Result<(), SyscallError> {
        let until_ns = monotonic_ns() + FIND_NS;
        self.look_for_gateways();
        loop {
            let is_unknown = |(index, one): (usize, &GatewayOptions)| {
                one.is_sent_through() && self.asking.mac(index as u16).is_none()
            };
            let left_ns = until_ns.saturating_sub(monotonic_ns());
            if left_ns == 0 || !self.options.gateways.iter().enumerate().any(is_unknown) {
                return Ok(());
            }
            let timeout = Timespec { tv_sec: 0, tv_nsec: left_ns.cast_signed() };
            let mut set = [PollFd::from_borrowed_fd(self.announcements.as_fd(), PollFlags::IN)];
            match rustix::event::poll(&mut set, Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => self.hear_announcements(&|_| true),
                Err(error) => return Err(SyscallError::new("poll", "watcher", error)),
            }
        }
    }

    /// State of a gateway.
    #[must_use]
    pub fn state(&self, gateway: u16) -> Option<GatewayState> {
        self.watcher.state(gateway)
    }

    /// Sums of a gateway.
    #[must_use]
    pub fn counters(&self, gateway: u16) -> Option<GatewayCounters> {
        self.watcher.counters(gateway)
    }

    /// State, round trips, probes and failures of each gateway as OpenMetrics text.
    #[must_use]
    pub fn open_metrics(&self) -> String {
        let used: Vec<u16> = self.watcher.used().collect();
        let figures = |(index, name)| {
            let index = index as u16;
            let (state, counters) = (self.watcher.state(index)?, self.watcher.counters(index)?);
            let name: &String = name;
            Some(GatewayFigures { name, state, is_used: used.contains(&index), counters })
        };
        let all: Vec<_> = self.names.iter().enumerate().filter_map(figures).collect();
        metrics::open_metrics(&self.plan, &all)
    }

    /// Packets accepted and refused from each far host.
    pub fn probe_counters(
        &self,
    ) -> impl Iterator<Item = (std::net::IpAddr, liveness::probe::ProbeCounters)> {
        self.asking.counters()
    }

    /// Takes a gateway out of use, or ends that.
    ///
    /// # Errors
    /// It is the last one in use, or there is none of this index.
    pub fn set_draining(&mut self, gateway: u16, is_drained: bool) -> Result<(), DrainError> {
        self.watcher.set_draining(monotonic_ns(), gateway, is_drained)
    }

    /// Watches until `stop` is readable. Routes are left as they are.
    ///
    /// # Errors
    /// The interface is gone, also if another has its name by now: open another watcher. `poll(2)` failed.
    pub fn run(
        &mut self,
        stop: BorrowedFd<'_>,
        steering: &mut dyn Steering,
        recorder: &mut Recorder,
    ) -> Result<(), SyscallError> {
        self.record_state(recorder);
        // Routes may be as another watcher left them.
        self.unsettle();
        loop {
            self.turn(steering, recorder);
            if self.is_interface_gone {
                let gone = std::io::ErrorKind::NotFound;
                return Err(SyscallError::new("interface", &self.options.interface, gone));
            }
            if self.sleep(stop)? {
                self.bfd.leave(|gateway| self.asking.mac(gateway));
                return Ok(());
            }
        }
    }

    /// One turn: everything that has arrived, then everything that is due.
    fn turn(&mut self, steering: &mut dyn Steering, recorder: &mut Recorder) {
        let watcher = &mut self.watcher;
        self.asking.take(|answer| watcher.handle_answer(answer));
        let asking = &mut self.asking;
        if self.readable.is_icmp {
            self.icmp.take(|message| {
                if let Some(heard) = asking.handle_icmp(message) {
                    watcher.handle_unreachable(monotonic_ns(), &heard);
                }
            });
        }
        let asking = &self.asking;
        let mac = |gateway| asking.mac(gateway);
        self.bfd.turn(mac, |gateway, input: BfdInput| {
            watcher.handle_bfd(monotonic_ns(), gateway, input);
        });
        if let Some(sentinels) = &mut self.sentinels {
            let relaxed_ns = self.options.sentinels.as_ref().map(|options| options.relaxed_ns);
            sentinels.turn(|belief| match belief {
                Belief::Relax(is_relaxed) => watcher.relax(relaxed_ns.filter(|_| is_relaxed)),
                Belief::Reported { gateway, is_failed } => {
                    watcher.handle_reported(monotonic_ns(), gateway, is_failed);
                }
            });
        }
        if self.readable.has_announcements {
            self.hear_announcements(&|announced| steering.concerns(announced));
        }
        let filters = self.filters.as_mut();
        if filters.is_some_and(|filters| filters.take(&|changed| steering.concerns(changed))) {
            self.unsettle();
        }
        let now_ns = monotonic_ns();
        if now_ns >= self.next_look_ns || self.is_settled(now_ns) {
            self.learn_drained(steering);
        }
        self.look_for_gateways();
        if self.was_doubtful {
            let stolen_ns = self.processors.stolen_ns();
            self.watcher.handle_stolen(monotonic_ns(), stolen_ns);
        }
        let mut is_other = false;
        let mut now_ns = monotonic_ns();
        while let Some(output) = self.watcher.poll(now_ns) {
            match output {
                Output::Ask(ask) => self.asking.ask(now_ns, &ask),
                Output::Event(event) => {
                    if let EventKind::Use { gateways } = &event.kind {
                        if let Err(why) = steering.steer(gateways) {
                            recorder.complaint(&why);
                            self.unsettle();
                        }
                        now_ns = monotonic_ns();
                    }
                    is_other |= matches!(event.kind, EventKind::State { .. });
                    recorder.event(&event, &self.names);
                }
            }
        }
        self.asking.flush();
        self.doubt();
        if is_other {
            self.record_state(recorder);
        }
        self.record_metrics(recorder, is_other);
        if let Some(announcing) = &mut self.announcing {
            announcing.turn(&self.watcher, is_other);
        }
        self.restore(steering, recorder);
    }

    /// Begins to look at the processors when the first round has been missed: what was stolen before was no reason for it.
    fn doubt(&mut self) {
        let is_doubtful = self.watcher.is_doubtful();
        if is_doubtful && !self.was_doubtful {
            self.processors.begin();
        }
        self.was_doubtful = is_doubtful;
    }

    /// Waits for something to do; whether it is to stop. Answers are nothing to do: nothing follows from one before its
    /// round is over, so a round costs one wake-up while all is well, two otherwise, however many gateways there are.
    fn sleep(&mut self, stop: BorrowedFd<'_>) -> Result<bool, SyscallError> {
        let now_ns = monotonic_ns();
        let settles_ns = self.unsettled.map(|(_, until_ns)| until_ns);
        let silent_ns = self.sentinels.as_ref().and_then(Listening::wakes_at);
        let tells_ns = self.announcing.as_ref().map(Announcing::wakes_at);
        let looks_ns = Some(self.next_look_ns.saturating_add(LOOK_SLACK_NS));
        let wakes_ns = [self.bfd.wakes_at(), settles_ns, silent_ns, tells_ns, looks_ns];
        let wakes_ns = wakes_ns.into_iter().flatten().min().unwrap_or(u64::MAX);
        let longest_ns = wakes_ns.min(self.watcher.wakes_at()).saturating_sub(now_ns);
        let timeout = Timespec {
            tv_sec: (longest_ns / 1_000_000_000).cast_signed(),
            tv_nsec: (longest_ns % 1_000_000_000).cast_signed(),
        };
        let mut set = vec![
            PollFd::from_borrowed_fd(stop, PollFlags::IN),
            PollFd::from_borrowed_fd(self.icmp.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.announcements.as_fd(), PollFlags::IN),
        ];
        let more = self.sentinels.iter().map(AsFd::as_fd);
        let more = more.chain(self.filters.iter().map(AsFd::as_fd));
        set.extend(more.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        set.extend(self.bfd.descriptors().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        match rustix::event::poll(&mut set, Some(&timeout)) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(false),
            Err(error) => return Err(SyscallError::new("poll", "watcher", error)),
        }
        let is_readable = |index: usize| !set[index].revents().is_empty();
        let is_stopped = is_readable(0);
        self.readable = Readable { is_icmp: is_readable(1), has_announcements: is_readable(2) };
        Ok(is_stopped)
    }

    fn hear_announcements(&mut self, concerns: &dyn Fn(&Notified) -> bool) {
        loop {
            let notifications = match self.announcements.notifications() {
                Ok(notifications) if notifications.is_empty() => return,
                Ok(notifications) => notifications,
                Err(NetlinkError::Lost) => {
                    // Everything may have changed.
                    self.unsettle();
                    self.learn_all();
                    continue;
                }
                Err(_malformed) => continue,
            };
            for notification in notifications {
                match notification.object {
                    Notified::Link(link) if link.index == self.interface_index => {
                        let has_carrier = !notification.is_gone && link.has_carrier();
                        self.is_interface_gone |= notification.is_gone;
                        self.watcher.handle_carrier(monotonic_ns(), has_carrier);
                        self.asking.handle_link(&link);
                        self.unsettle();
                    }
                    ref object @ (Notified::Route(_) | Notified::Nexthop(_))
                        if concerns(object) =>
                    {
                        self.unsettle();
                    }
                    Notified::Neighbour(neighbour)
                        if neighbour.interface_index == self.interface_index
                            && !notification.is_gone =>
                    {
                        self.learn(&neighbour);
                    }
                    _other => {}
                }
            }
        }
    }

    fn unsettle(&mut self) {
        let now_ns = monotonic_ns();
        let (since_ns, _) = self.unsettled.unwrap_or((now_ns, 0));
        let until_ns = (now_ns + SETTLE_NS).min(since_ns + SETTLE_NS_MAX);
        self.unsettled = Some((since_ns, until_ns));
    }

    /// Whether routes may be missing and no more announcements are waited for.
    fn is_settled(&self, now_ns: u64) -> bool {
        self.unsettled.is_some_and(|(_, until_ns)| until_ns <= now_ns)
    }

    fn learn_drained(&mut self, steering: &mut dyn Steering) {
        let Some(drained) = steering.drained() else { return };
        for gateway in 0..self.names.len() {
            let gateway = gateway as u16;
            let is_drained = drained.contains(&gateway);
            if is_drained != self.drained.contains(&gateway)
                // The last one stays in use; it is asked again.
                && self.set_draining(gateway, is_drained).is_ok()
            {
                self.drained.retain(|other| *other != gateway);
                self.drained.extend(Some(gateway).filter(|_| is_drained));
            }
        }
    }

    fn restore(&mut self, steering: &mut dyn Steering, recorder: &mut Recorder) {
        if self.is_settled(monotonic_ns()) {
            self.unsettled = None;
            let used: Vec<u16> = self.watcher.used().collect();
            let restored = steering.restore(&used);
            let why = restored.as_ref().err().cloned().unwrap_or_default();
            if why != self.complaint && !why.is_empty() {
                recorder.complaint(&why);
            }
            self.complaint = why;
            if restored.is_err() {
                let now_ns = monotonic_ns();
                self.unsettled = Some((now_ns, now_ns + RETRY_NS));
            }
        }
    }

    fn learn_all(&mut self) {
        if let Ok(link) = link::interface(&mut self.netlink, &self.options.interface) {
            self.watcher.handle_carrier(monotonic_ns(), link.has_carrier());
        }
        // What is not learned now is asked for within a second.
        self.learn_neighbours().ok();
    }

    fn learn_neighbours(&mut self) -> Result<(), WatchError> {
        let known = neighbours::known(&mut self.netlink, self.interface_index, self.options.near)?;
        known.iter().for_each(|neighbour| self.learn(neighbour));
        Ok(())
    }

    /// A gateway that the kernel cannot find keeps the address it had: probes find out when it is back.
    fn learn(&mut self, neighbour: &netlink::Neighbour) {
        let Some(mac) = neighbours::mac(neighbour) else { return };
        let mut has_changed = false;
        for (index, gateway) in self.options.gateways.iter().enumerate() {
            if gateway.address == neighbour.address {
                has_changed |= self.asking.mac(index as u16) != Some(mac);
                self.asking.set_mac(index as u16, Some(mac));
            }
        }
        if has_changed && self.filters.is_some() {
            self.unsettle();
        }
    }

    /// Has the kernel look for gateways whose Ethernet address is unknown, or may be another one now.
    fn look_for_gateways(&mut self) {
        let now_ns = monotonic_ns();
        if now_ns < self.next_look_ns {
            return;
        }
        self.next_look_ns = now_ns + LOOK_INTERVAL_NS;
        for (index, gateway) in self.options.gateways.iter().enumerate() {
            let (index, address) = (index as u16, gateway.address);
            let state = self.watcher.state(index);
            let is_down = state == Some(GatewayState::Down);
            let is_failed = is_down || state == Some(GatewayState::Held);
            if gateway.is_sent_through() && (is_failed || self.asking.mac(index).is_none()) {
                self.search.look(&mut self.netlink, self.interface_index, address, is_down);
            } else {
                self.search.end(address);
            }
        }
    }

    /// Metrics are written with what happens anyway; the watcher is not woken for them.
    fn record_metrics(&mut self, recorder: &Recorder, has_changed: bool) {
        let now_ns = monotonic_ns();
        if recorder.has_metrics() && (has_changed || now_ns >= self.next_metrics_ns) {
            self.next_metrics_ns = now_ns + METRICS_INTERVAL_NS;
            recorder.metrics(self.open_metrics());
        }
    }

    fn record_state(&self, recorder: &Recorder) {
        let used: Vec<u16> = self.watcher.used().collect();
        let record = |(index, name): (usize, &String)| GatewayRecord {
            name: name.clone(),
            state: self.watcher.state(index as u16).map(state_word).unwrap_or_default(),
            is_used: used.contains(&(index as u16)),
        };
        let gateways = self.names.iter().enumerate().map(record).collect();
        let plan = self.plan.clone();
        recorder.state(StateFile { plan, unix_s: unix_us() / 1_000_000, gateways });
    }
}

fn check(options: &WatchOptions) -> Result<(), WatchError> {
    let wrong = |why: String| Err(WatchError::Addresses(why));
    if options.far.is_empty() {
        return wrong("no far host can reflect probes: name one in the plan".to_owned());
    }
    let is_v6 = options.near.is_ipv6();
    let gateways = options.gateways.iter().map(|gateway| gateway.address);
    let Some(other) =
        options.far.iter().copied().chain(gateways).find(|one| one.is_ipv6() != is_v6)
    else {
        return Ok(());
    };
    wrong(format!("{other} is of another family than {}: watch each separately", options.near))
}
