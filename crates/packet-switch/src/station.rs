//! An attachment that outlives the daemon: when that is started again, the same port is attached to anew.
//!
//! ```no_run
//! use std::path::Path;
//! use packet_switch::client::FOREVER;
//! use packet_switch::station::{Backoff, Place, Station};
//!
//! let place = Place::Port("vale0:a".parse()?);
//! let mut station = Station::attach(Path::new("/run/clearstream-switch.sock"), place)?;
//! loop {
//!     if station.is_deserted() {
//!         let back = station.rejoin(Backoff::default(), &|| false)?;
//!         eprintln!("back after {:?}; {} frames were lost", back.away, back.lost);
//!     }
//!     let arrived = station.port().receiver.wait(FOREVER)?;
//!     station.port().receiver.release(arrived)?;
//! }
//! # #[allow(unreachable_code)]
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::attachment::{Ask, PipeEnd, Shape};
use crate::client::{Attached, ClientError, Connection};
use crate::name::{Name, PortName};

/// What to attach to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A port, which is made if it is not there.
    Port(PortName),
    /// An end of a pipe, which must be there.
    Pipe {
        /// The group it belongs to.
        group: Name,
        /// Which of the group's pipes.
        pipe: u32,
        /// The end to attach to.
        end: PipeEnd,
    },
}

/// How a daemon is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// First pause between two attempts; each is twice the one before.
    pub first: Duration,
    /// Longest pause.
    pub most: Duration,
    /// After how long to give up.
    pub total: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(20),
            most: Duration::from_secs(1),
            total: Duration::from_secs(60),
        }
    }
}

/// What a new daemon meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rejoined {
    /// How long there was none.
    pub away: Duration,
    /// Slots of frames that were handed over and that the old daemon had not taken.
    pub lost: u32,
}

/// An attachment and how to get it again.
#[derive(Debug)]
pub struct Station {
    socket: PathBuf,
    place: Place,
    connection: Connection,
    port: Attached,
}

impl Station {
    /// Attaches.
    ///
    /// # Errors
    /// No daemon, or it says no.
    pub fn attach(socket: &Path, place: Place) -> Result<Self, ClientError> {
        let mut connection = Connection::open(socket)?;
        let port = join(&mut connection, &place, Shape::default(), 0)?;
        Ok(Self { socket: socket.to_owned(), place, connection, port })
    }

    /// The port's rings. After [`rejoin`](Self::rejoin) they are others.
    #[must_use]
    pub fn port(&mut self) -> &mut Attached {
        &mut self.port
    }

    /// The connection, and the rings.
    #[must_use]
    pub fn parts(&mut self) -> (&mut Connection, &mut Attached) {
        (&mut self.connection, &mut self.port)
    }

    /// Whether the daemon has something to say, which is never good: it has gone, or has cut us off. A
    /// system call.
    #[must_use]
    pub fn is_deserted(&self) -> bool {
        self.connection.has_news()
    }

    /// Waits for a new daemon, with pauses that grow, and attaches to the same port of it: with the same
    /// rings and headers. A port that had been added to stay is one that goes with its client now, unless
    /// somebody adds it again. Frames that have arrived in the old rings are to be taken before.
    ///
    /// # Errors
    /// [`ClientError::CutOff`]: the daemon is there and does not want us. Else what the last attempt met
    /// when the time was up or `stop` said so.
    pub fn rejoin(
        &mut self,
        backoff: Backoff,
        stop: &dyn Fn() -> bool,
    ) -> Result<Rejoined, ClientError> {
        if let Ok(Some((_, why))) = self.connection.poll_cut_off() {
            return Err(ClientError::CutOff(why));
        }
        let sender = &mut self.port.sender;
        let slots = sender.place().slots();
        // A ring that was broken has taken nothing.
        let lost = (slots - 1).saturating_sub(sender.reserve(u32::MAX).unwrap_or(0));
        let buffer_bytes = u32::try_from(sender.buffers().buffer_bytes()).unwrap_or(u32::MAX);
        let (shape, header_bytes) = (Shape { slots, buffer_bytes }, self.port.header_bytes);
        let (began, mut pause) = (Instant::now(), backoff.first);
        loop {
            let attempt = Connection::open(&self.socket).and_then(|mut connection| {
                let port = join(&mut connection, &self.place, shape, header_bytes)?;
                Ok((connection, port))
            });
            match attempt {
                Ok((connection, port)) => {
                    (self.connection, self.port) = (connection, port);
                    return Ok(Rejoined { away: began.elapsed(), lost });
                }
                Err(error) if stop() || began.elapsed() >= backoff.total => return Err(error),
                Err(_) => {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(backoff.most);
                }
            }
        }
    }
}

fn join(
    connection: &mut Connection,
    place: &Place,
    shape: Shape,
    header_bytes: u8,
) -> Result<Attached, ClientError> {
    match place {
        Place::Pipe { group, pipe, end } => connection.attach_pipe(group, *pipe, *end),
        Place::Port(port) => {
            let attached = connection.attach_port_as(port, shape)?;
            if header_bytes != attached.header_bytes && header_bytes != 0 {
                connection.ask(Ask::SetHeader { port: port.clone(), header_bytes })?;
            }
            Ok(attached)
        }
    }
}
