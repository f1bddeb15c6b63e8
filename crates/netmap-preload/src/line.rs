//! What ties a port to the switch's daemon, also to the next one when it is started anew.
//!
//! A port whose daemon has gone neither takes nor gives frames; it does not fail either. It asks for the same
//! port again, seldom and seldomer, until there is one or the time is up. Frames in the old rings that
//! nobody took are lost, and counted. A pipe goes on without a daemon: its memory is its two ends'.

use std::time::{Duration, Instant};

use packet_switch::PortName;
use packet_switch::attachment::{Ask, Shape};
use packet_switch::client::{Attached, ClientError, Connection, default_socket};

use crate::host::say;

/// First pause between two attempts, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];
/// How long the next daemon is waited for.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// What was attached to.
#[derive(Debug, Clone)]
pub enum Origin {
    /// A port of a switch.
    Port(PortName, Shape),
    /// Copies of what passes one.
    Watch(PortName),
    /// A pipe's end.
    Pipe,
}

/// How it stands.
#[derive(Debug)]
pub enum News {
    /// As before.
    None,
    /// Another daemon has the port now: these are its rings.
    Renewed(Box<Attached>),
    /// Nobody will take or give frames any more.
    Ended,
}

/// The connection, or when to try again.
#[derive(Debug)]
pub struct Line {
    name: String,
    origin: Origin,
    connection: Option<Connection>,
    lost: Option<Instant>,
    next_try: Instant,
    pause: Duration,
    ended: bool,
}

impl Line {
    /// Of something that is attached.
    #[must_use]
    pub fn new(name: &str, origin: Origin, connection: Connection) -> Self {
        Self {
            name: name.to_owned(),
            origin,
            connection: Some(connection),
            lost: None,
            next_try: Instant::now(),
            pause: PAUSES[0],
            ended: false,
        }
    }

    /// The connection, while there is one.
    #[must_use]
    pub fn connection(&self) -> Option<&Connection> {
        self.connection.as_ref()
    }

    /// Whether the next daemon is waited for.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.lost.is_some() && !self.ended
    }

    /// Looks what the daemon says, and after its end for the next one.
    pub fn attend(&mut self, header_bytes: u8) -> News {
        if self.ended {
            return News::Ended;
        }
        if let Some(connection) = &mut self.connection {
            if !connection.has_news() {
                return News::None;
            }
            match connection.poll_cut_off() {
                Ok(None) => return News::None,
                Ok(Some((_, why))) => {
                    return self.end(&format!("the switch disconnected this client: {why}"));
                }
                Err(_) => self.lose(),
            }
        }
        match self.lost {
            Some(lost) => self.try_again(lost, header_bytes),
            None => News::None,
        }
    }

    fn lose(&mut self) {
        self.connection = None;
        if matches!(self.origin, Origin::Pipe) {
            say(&self.name, &"the switch has ended; the pipe still works between its two ends");
            return;
        }
        say(&self.name, &"the switch has ended; waiting for the next one");
        (self.lost, self.next_try, self.pause) = (Some(Instant::now()), Instant::now(), PAUSES[0]);
    }

    fn end(&mut self, why: &str) -> News {
        say(&self.name, &why);
        self.ended = true;
        News::Ended
    }

    fn try_again(&mut self, lost: Instant, header_bytes: u8) -> News {
        let now = Instant::now();
        if now < self.next_try {
            return News::None;
        }
        match self.attach(header_bytes) {
            Ok((attached, connection)) => {
                (self.connection, self.lost) = (Some(connection), None);
                News::Renewed(Box::new(attached))
            }
            Err(error) if now - lost >= WAIT_MAX => self.end(&error.to_string()),
            Err(_) => {
                (self.next_try, self.pause) = (now + self.pause, (self.pause * 2).min(PAUSES[1]));
                News::None
            }
        }
    }

    fn attach(&self, header_bytes: u8) -> Result<(Attached, Connection), ClientError> {
        let mut connection = Connection::open(&default_socket())?;
        let attached = match &self.origin {
            Origin::Port(port, shape) => {
                let attached = connection.attach_port_as(port, *shape)?;
                if attached.header_bytes != header_bytes {
                    let port = port.clone();
                    connection.ask(Ask::SetHeader { port, header_bytes })?;
                }
                attached
            }
            Origin::Watch(port) => connection.watch(port)?,
            Origin::Pipe => return Err(ClientError::SwitchEnded),
        };
        Ok((attached, connection))
    }
}
