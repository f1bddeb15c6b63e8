//! What the registry keeps: switches with their threads and ports, groups of pipes, and who is attached.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use shm::Bell;
use switch::vale::PortId;
use sys::SyscallError;

use super::make::PipeGroup;
use super::memory::{Lease, Share};
use super::monitors::Watcher;
use super::session::SessionId;
use super::trust::Member;
use crate::attachment::{Entry, Kind, PIPES_MAX, PipeEnd, Shape};
use crate::counters::PortCounters;
use crate::datapath::{Command, Link};
use crate::deferred_drop::DeferredDrop;
use crate::device::Device;
use crate::name::Name;

#[derive(Debug)]
pub(super) struct Switch {
    pub(super) link: Arc<Link>,
    pub(super) thread: Option<JoinHandle<Result<(), SyscallError>>>,
    pub(super) ports: BTreeMap<Name, Port>,
    /// Whom its thread was waking when the control thread looked last.
    pub(super) ringing: u64,
    /// Doorbells of clients that have left, by user, until the thread has dropped them too.
    pub(super) gone: Vec<(u32, Vec<Bell>)>,
}

#[derive(Debug)]
pub(super) struct Port {
    pub(super) id: PortId,
    pub(super) shape: Shape,
    /// Whether it goes with its client.
    pub(super) kind: Kind,
    /// The user who may remove it, besides root: the one that added it.
    pub(super) user: u32,
    /// With whose connection its device goes.
    pub(super) lender: Option<SessionId>,
    pub(super) counters: Arc<PortCounters>,
    pub(super) client: Option<Client>,
    pub(super) last_cut_off: Option<String>,
    /// What drives it, if that is not a client; both ports of a link have the same.
    pub(super) device: Option<Arc<Device>>,
    pub(super) watchers: Vec<Watcher>,
    /// Bytes of virtio-net header before each frame.
    pub(super) header_bytes: u8,
    /// Its place in a trust group.
    pub(super) trust: Option<Member>,
}

/// Who is attached to a port.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) session: SessionId,
    pub(super) user: u32,
    pub(super) attachment: u32,
    pub(super) serial: u64,
    pub(super) lease: Lease,
    /// The bells the switch rings for it, to empty should they be jammed.
    pub(super) bells: Vec<Bell>,
}

#[derive(Debug)]
pub(super) struct Group {
    pub(super) pipes: Vec<Ends>,
    pub(super) memory: PipeGroup,
    /// Whether it is removed when no client is attached.
    pub(super) ephemeral: bool,
    pub(super) shape: Shape,
    pub(super) user: u32,
    /// Dropped after the memory that it stands for.
    pub(super) _share: Share,
}

impl Group {
    /// Who is attached, with the pipe's number.
    pub(super) fn attached(&self) -> impl Iterator<Item = (usize, (SessionId, u32))> + '_ {
        let pipes = self.pipes.iter().enumerate();
        let ends = pipes.flat_map(|(pipe, ends)| [(pipe, ends.master), (pipe, ends.slave)]);
        ends.filter_map(|(pipe, end)| Some((pipe, end?)))
    }
}

/// Who is attached to the ends of a pipe.
#[derive(Debug, Default)]
pub(super) struct Ends {
    pub(super) master: Option<(SessionId, u32)>,
    pub(super) slave: Option<(SessionId, u32)>,
}

impl Ends {
    pub(super) fn end(&mut self, end: PipeEnd) -> &mut Option<(SessionId, u32)> {
        match end {
            PipeEnd::Master => &mut self.master,
            PipeEnd::Slave => &mut self.slave,
        }
    }
}

impl Port {
    pub(super) fn entry(&self, name: String) -> Entry {
        Entry {
            name,
            kind: self.kind,
            shape: self.shape,
            attached: u32::from(self.client.is_some()),
            count: Some(self.counters.read()),
            last_cut_off: self.last_cut_off.clone(),
            device: self.device.as_ref().map(|device| device.state()),
            header_bytes: self.header_bytes,
            trust: self.trust.as_ref().map(Member::group_name),
        }
    }
}

impl Group {
    pub(super) fn is_deserted(&self) -> bool {
        self.pipes.iter().all(|ends| ends.master.is_none() && ends.slave.is_none())
    }

    pub(super) fn entry(&self, name: String) -> Entry {
        let ends = self.pipes.iter().flat_map(|ends| [&ends.master, &ends.slave]);
        let attached = ends.filter(|end| end.is_some()).count();
        Entry {
            name,
            kind: Kind::Pipes { pipes: u32::try_from(self.pipes.len()).unwrap_or(PIPES_MAX) },
            shape: self.shape,
            attached: u32::try_from(attached).unwrap_or(u32::MAX),
            count: None,
            last_cut_off: None,
            device: None,
            header_bytes: 0,
            trust: None,
        }
    }
}

impl Switch {
    pub(super) fn stop(&self) {
        // The link's bell is ours alone; it cannot break.
        self.link.send(Command::Stop).ok();
    }
}

/// How long the end of the daemon waits for a switch's thread.
const THREAD_END: Duration = Duration::from_secs(1);

impl Drop for Switch {
    fn drop(&mut self) {
        self.stop();
        let Some(thread) = self.thread.take() else { return };
        let began = Instant::now();
        while !thread.is_finished() && began.elapsed() < THREAD_END {
            std::thread::sleep(Duration::from_millis(1));
            self.free_jam(&DeferredDrop::default());
        }
        // One that hangs even so ends with the process. What an ended one said was asked for by
        // `check_threads` while that mattered.
        if thread.is_finished() {
            thread.join().ok();
        }
    }
}
