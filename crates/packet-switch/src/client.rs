//! Attaching from a program.
//!
//! ```no_run
//! use std::path::Path;
//! use packet_switch::client::{Connection, FOREVER};
//!
//! let mut connection = Connection::open(Path::new("/run/clearstream/switch"))?;
//! let mut port = connection.attach_port(&"vale0:a".parse()?)?;
//! port.sender.wait(FOREVER)?;
//! if port.sender.put(0, &[0xff; 60]) {
//!     port.sender.publish(1)?;
//! }
//! let arrived = port.receiver.wait(FOREVER)?;
//! let mut frame = [0; 2048];
//! for offset in 0..arrived {
//!     println!("{:?} bytes", port.receiver.copy(offset, &mut frame));
//! }
//! port.receiver.release(arrived)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use ring::{Bells, Layout, LayoutError, Patience, Receiver, Sender};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::rand::GetRandomFlags;
use shm::{Bell, Message, Region, RegionError, Socket};
use sys::SyscallError;
use thiserror::Error;

use crate::attachment::{
    Answer, Ask, Entry, Health, MessageError, PipeEnd, RefusalCode, Request, RingSeat, Shape,
    TrustSeat,
};
use crate::name::{Name, PortName};

/// As long as it takes; polls while answers come quickly, and sleeps otherwise.
pub const FOREVER: Patience = Patience { linger: LINGER, timeout: Duration::MAX };

/// How long it is worth while to poll: a little more than two wake-ups take where an idle core is slow
/// to begin, as in a virtual machine.
pub const LINGER: Duration = Duration::from_micros(100);

/// Where clients find the daemon: `CLEARSTREAM_SWITCH`, or in the user's runtime folder
/// (`XDG_RUNTIME_DIR`, where [nobody else can put one](sys::private::runtime_variable)), or in `/run`,
/// where only root can. A variable that is empty is none.
#[must_use]
pub fn default_socket() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("CLEARSTREAM_SWITCH").unwrap_or_else(|| {
        let folder = sys::private::runtime_variable().unwrap_or_else(|| "/run".into());
        folder.join("clearstream-switch.sock")
    })
}

/// Why something could not be had.
#[derive(Debug, Error)]
pub enum ClientError {
    /// Nothing serves that socket.
    #[error("no switch at {}: start one with `clearstream switch run`", .0.display())]
    NoDaemon(PathBuf),
    /// The daemon refused the request.
    #[error("{why}")]
    Refused {
        /// The reason for programs.
        code: RefusalCode,
        /// The reason for people.
        why: String,
    },
    /// The daemon has ended this attachment.
    #[error("the switch disconnected this client: {0}")]
    CutOff(String),
    /// The daemon has ended.
    #[error("the switch has ended")]
    SwitchEnded,
    /// The daemon says something that is not in the protocol.
    #[error("the switch gave an unexpected answer: {0}")]
    Unexpected(String),
    /// The daemon's answer cannot be read.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// The memory it hands over is not as it should be.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// Its rings are not as they should be.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The kernel refused.
    #[error(transparent)]
    Syscall(#[from] SyscallError),
}

/// A connection to the daemon; attachments last as long as it does.
#[derive(Debug)]
pub struct Connection {
    socket: Socket,
    /// Came while an answer was awaited.
    cut_off: VecDeque<(u32, String)>,
    /// Regions mapped already, by what the kernel calls them: two pipes of a group are one memory, and
    /// frames can be swapped between them.
    regions: Vec<((u64, u64), Weak<Region>)>,
    /// As the last list said.
    health: Health,
}

/// An attachment: the rings of a port or of a pipe's end.
#[derive(Debug)]
pub struct Attached {
    /// To name it by.
    pub attachment: u32,
    /// Bytes of virtio-net header before each frame: 0, 10 or 12.
    pub header_bytes: u8,
    /// Which rings these are, and where it sits: that of the sender, that of the receiver.
    pub seats: [RingSeat; 2],
    /// Frames go out here.
    pub sender: Sender,
    /// Frames come in here.
    pub receiver: Receiver,
}

impl Connection {
    /// Connects to the daemon that serves `path`.
    ///
    /// # Errors
    /// Nothing serves it, or permission is denied.
    pub fn open(path: &Path) -> Result<Self, ClientError> {
        use std::io::ErrorKind::{ConnectionRefused, NotFound};
        let socket = Socket::connect(path).map_err(|error| match error.source.kind() {
            ConnectionRefused | NotFound => ClientError::NoDaemon(path.to_owned()),
            _ => ClientError::Syscall(error),
        })?;
        Ok(Self {
            socket,
            cut_off: VecDeque::new(),
            regions: Vec::new(),
            health: Health::default(),
        })
    }

    /// Attaches to a port, which is made if it is not there.
    ///
    /// # Errors
    /// Somebody else is attached to it, or the daemon has no room for another.
    pub fn attach_port(&mut self, port: &PortName) -> Result<Attached, ClientError> {
        self.attach_port_as(port, Shape::default())
    }

    /// The same; a port that is made gets that shape.
    ///
    /// # Errors
    /// As [`attach_port`](Self::attach_port).
    pub fn attach_port_as(
        &mut self,
        port: &PortName,
        shape: Shape,
    ) -> Result<Attached, ClientError> {
        self.attach(Ask::AttachPort { port: port.clone(), shape })
    }

    /// Copies of what passes a port, both ways: frames behind a [`Record`](crate::attachment::Record)
    /// in the receiver, which is never woken: ask now and then. The sender leads nowhere.
    ///
    /// # Errors
    /// There is no such port, it is another user's, or has as many watchers as a port may have.
    pub fn watch(&mut self, port: &PortName) -> Result<Attached, ClientError> {
        self.attach(Ask::Watch { port: port.clone() })
    }

    /// Attaches to one end of a pipe.
    ///
    /// # Errors
    /// There is no such pipe, it is another user's, or somebody is attached to that end.
    pub fn attach_pipe(
        &mut self,
        group: &Name,
        pipe: u32,
        end: PipeEnd,
    ) -> Result<Attached, ClientError> {
        self.attach(Ask::AttachPipe { group: group.clone(), pipe, end })
    }

    /// Attaches to one end of a pipe that is made if it is not there, and that goes with its last client.
    ///
    /// # Errors
    /// It is another user's, or somebody is attached to that end.
    pub fn open_pipe(
        &mut self,
        group: &Name,
        end: PipeEnd,
        shape: Shape,
    ) -> Result<Attached, ClientError> {
        self.attach(Ask::OpenPipe { group: group.clone(), end, shape })
    }

    /// Attaches memory of the caller's own to a port that nobody has; the number of the attachment. With it go, for each
    /// pair of rings, the bells of the transmit ring and of the receive ring: of each, first the one that the switch
    /// waits for.
    ///
    /// # Errors
    /// The port is not there, it or the memory is in use, or the memory is no use for a port of its shape.
    pub fn attach_memory(
        &mut self,
        port: &PortName,
        is_fresh: bool,
        memory: BorrowedFd<'_>,
        bells: &[[[&Bell; 2]; 2]],
    ) -> Result<u32, ClientError> {
        let ask = Ask::AttachMemory { port: port.clone(), is_fresh, trust: None };
        self.bring_memory(ask, memory, bells)
    }

    /// Makes a port that nobody has a member of a trust group: the number of its seat, and the group's memory.
    ///
    /// # Errors
    /// The port is not there, is another user's, or is in use or a member already.
    pub fn join_group(
        &mut self,
        port: &PortName,
        group: &Name,
    ) -> Result<(TrustSeat, OwnedFd), ClientError> {
        let ask = Ask::JoinGroup { port: port.clone(), group: group.clone() };
        match self.exchange(ask)? {
            (Answer::Seated { seat }, fds) => {
                let memory = fds.into_iter().next();
                let memory = memory.ok_or_else(|| short("a descriptor is missing"))?;
                Ok((TrustSeat { group: group.clone(), seat }, memory))
            }
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Attaches a member of a trust group, whose rings are made anew, with the group's memory; otherwise as
    /// [`attach_memory`](Self::attach_memory). A switch that does not know the group learns of it.
    ///
    /// # Errors
    /// The port is not there, it or the seat is in use, or the memory is no use for a group of its shape.
    pub fn attach_member(
        &mut self,
        port: &PortName,
        seat: &TrustSeat,
        memory: BorrowedFd<'_>,
        bells: [[&Bell; 2]; 2],
    ) -> Result<u32, ClientError> {
        let trust = Some(seat.clone());
        let ask = Ask::AttachMemory { port: port.clone(), is_fresh: true, trust };
        self.bring_memory(ask, memory, &[bells])
    }

    fn bring_memory(
        &mut self,
        ask: Ask,
        memory: BorrowedFd<'_>,
        bells: &[[[&Bell; 2]; 2]],
    ) -> Result<u32, ClientError> {
        let bells = bells.iter().flatten().flatten().map(AsFd::as_fd);
        let fds: Vec<_> = std::iter::once(memory).chain(bells).collect();
        match self.exchange_with(ask, &fds)? {
            (Answer::Attached { attachment, .. }, _) => Ok(attachment),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Asks for something that comes without memory.
    ///
    /// # Errors
    /// The daemon refused, or has ended.
    pub fn ask(&mut self, ask: Ask) -> Result<(), ClientError> {
        self.ask_with(ask, &[])
    }

    /// The same with descriptors: those of a device.
    ///
    /// # Errors
    /// The daemon refused, or has ended.
    pub fn ask_with(&mut self, ask: Ask, fds: &[BorrowedFd<'_>]) -> Result<(), ClientError> {
        match self.exchange_with(ask, fds)? {
            (Answer::Done, _) => Ok(()),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// All ports and groups.
    ///
    /// # Errors
    /// The daemon has ended.
    pub fn list(&mut self) -> Result<Vec<Entry>, ClientError> {
        let mut all: Vec<Entry> = Vec::new();
        loop {
            let after = all.last().map(|entry| entry.name.clone());
            match self.exchange(Ask::List { after })? {
                (Answer::Listed { entries, more, health }, _) => {
                    self.health = health;
                    // An empty list that promises more would never end.
                    let more = more && !entries.is_empty();
                    all.extend(entries);
                    if !more {
                        return Ok(all);
                    }
                }
                (other, _) => return Err(unexpected(&other)),
            }
        }
    }

    /// What the daemon said of itself with the last [`list`](Self::list).
    #[must_use]
    pub fn health(&self) -> Health {
        self.health
    }

    /// The next attachment that ended unasked, with the reason; does not wait.
    ///
    /// # Errors
    /// The daemon has ended.
    pub fn poll_cut_off(&mut self) -> Result<Option<(u32, String)>, ClientError> {
        if let Some(early) = self.cut_off.pop_front() {
            return Ok(Some(early));
        }
        if !self.has_news() {
            return Ok(None);
        }
        match self.receive()? {
            (Answer::CutOff { attachment, why }, _) => Ok(Some((attachment, why))),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Whether the daemon has sent an unsolicited message, or has ended.
    #[must_use]
    pub fn has_news(&self) -> bool {
        let mut set = [PollFd::new(&self.socket, PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        !self.cut_off.is_empty() || rustix::event::poll(&mut set, Some(&at_once)) == Ok(1)
    }

    fn exchange(&mut self, ask: Ask) -> Result<(Answer, Vec<OwnedFd>), ClientError> {
        self.exchange_with(ask, &[])
    }

    fn exchange_with(
        &mut self,
        ask: Ask,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(Answer, Vec<OwnedFd>), ClientError> {
        use std::io::ErrorKind::{BrokenPipe, ConnectionReset};
        let sent = self.socket.send(&Request::encode(ask), fds);
        // A daemon that has closed may have said why.
        if let Err(error) = sent
            && !matches!(error.source.kind(), BrokenPipe | ConnectionReset)
        {
            return Err(error.into());
        }
        loop {
            match self.receive()? {
                (Answer::CutOff { attachment, why }, _) => {
                    self.cut_off.push_back((attachment, why));
                }
                (Answer::Refused { code, why, is_senseless }, _) => {
                    // A daemon from before there were codes says only that.
                    let is_invalid = is_senseless && code == RefusalCode::Other;
                    let code = if is_invalid { RefusalCode::Invalid } else { code };
                    return Err(ClientError::Refused { code, why });
                }
                answer => return Ok(answer),
            }
        }
    }

    fn receive(&mut self) -> Result<(Answer, Vec<OwnedFd>), ClientError> {
        loop {
            match self.socket.receive()? {
                Message::Received { bytes, fds } => return Ok((Answer::decode(&bytes)?, fds)),
                Message::TooLong => return Err(MessageError::TooLong.into()),
                Message::NoDescriptors => return Err(MessageError::NoDescriptors.into()),
                Message::Closed => return Err(ClientError::SwitchEnded),
                // A signal.
                Message::Nothing => {}
            }
        }
    }

    fn attach(&mut self, ask: Ask) -> Result<Attached, ClientError> {
        let (answer, fds) = self.exchange(ask)?;
        let Answer::Attached { attachment, rings, header_bytes } = answer else {
            return Err(unexpected(&answer));
        };
        let mut fds = fds.into_iter();
        let mut next = || fds.next().ok_or_else(|| short("a descriptor is missing"));
        let region = self.region(next()?)?;
        let layout = Layout::read(&region)?;
        let (mut sender, mut receiver) = (None, None);
        for RingSeat { ring, sends, .. } in &rings {
            let bells = Bells { theirs: Bell::from_fd(next()?), ours: Bell::from_fd(next()?) };
            let place = if *sends { &mut sender } else { &mut receiver };
            *place = Some((*ring, bells));
        }
        let seat = |sends: bool| {
            let mut its = rings.iter().filter(|ring| ring.sends == sends);
            its.next().copied().ok_or_else(|| short("a ring is missing"))
        };
        let seats = [seat(true)?, seat(false)?];
        let join = |ring, seat| layout.end(&region, ring, seat, random_number());
        let (tx, tx_bells) = sender.ok_or_else(|| short("a ring is missing"))?;
        let (rx, rx_bells) = receiver.ok_or_else(|| short("a ring is missing"))?;
        Ok(Attached {
            attachment,
            header_bytes,
            seats,
            sender: Sender::join(join(tx, seats[0].seat())?, layout.buffers(&region)?, tx_bells),
            receiver: Receiver::join(
                join(rx, seats[1].seat())?,
                layout.buffers(&region)?,
                rx_bells,
            ),
        })
    }

    /// Maps memory, unless it is mapped already.
    fn region(&mut self, fd: OwnedFd) -> Result<Arc<Region>, ClientError> {
        let stat = rustix::fs::fstat(&fd)
            .map_err(|error| SyscallError::new("fstat", "shared memory", error))?;
        let identity = (stat.st_dev, stat.st_ino);
        self.regions.retain(|(_, region)| region.strong_count() > 0);
        let known = self.regions.iter().find(|(its, _)| *its == identity);
        if let Some(region) = known.and_then(|(_, region)| region.upgrade()) {
            return Ok(region);
        }
        let region = Region::attach(fd)?;
        self.regions.push((identity, Arc::downgrade(&region)));
        Ok(region)
    }
}

/// Readable when an attachment ended or the daemon has ended.
impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn unexpected(answer: &Answer) -> ClientError {
    ClientError::Unexpected(format!("{answer:?}").chars().take(200).collect())
}

fn short(what: &str) -> ClientError {
    ClientError::Unexpected(what.to_owned())
}

/// Where a seat begins to number its requests to be woken; see [`ring::End::join`].
fn random_number() -> u32 {
    let mut bytes = [0; 4];
    // Without randomness any number is as good as another, unless a seat changes hands just then.
    rustix::rand::getrandom(&mut bytes[..], GetRandomFlags::NONBLOCK).ok();
    u32::from_ne_bytes(bytes)
}
