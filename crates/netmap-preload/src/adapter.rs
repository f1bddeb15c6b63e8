//! A port or a pipe's end that this process is attached to, shared by all descriptors bound to it.

use std::sync::{Arc, Mutex, PoisonError};

use packet_switch::client::{Attached, Connection};
use rustix::io::Errno;

use crate::memory::Memory;
use crate::ring::{Backend, Direction, Ring};

/// Rings with what is behind them.
#[derive(Debug)]
pub struct Adapter {
    name: String,
    memory: Arc<Memory>,
    tx: Arc<Ring>,
    rx: Arc<Ring>,
    host: Mutex<Option<(Arc<Ring>, Arc<Ring>)>>,
    /// The attachment lasts as long as it does.
    connection: Mutex<Connection>,
    header_bytes: Mutex<u32>,
}

impl Adapter {
    /// Puts netmap's rings in front of an attachment.
    ///
    /// # Errors
    /// `ENOMEM`: the memory has no room for them.
    pub fn new(
        name: &str,
        memory: &Arc<Memory>,
        attached: Attached,
        connection: Connection,
        is_pipe: bool,
    ) -> Result<Arc<Self>, Errno> {
        let Attached { mut sender, mut receiver, .. } = attached;
        let (tx_slots, rx_slots) = (sender.end().slots(), receiver.end().slots());
        let ring =
            |direction, slots, backend| Ring::new(memory, direction, slots, backend, is_pipe);
        let tx = ring(Direction::Transmit, tx_slots, Backend::Send(sender))?;
        let rx = ring(Direction::Receive, rx_slots, Backend::Receive(receiver))?;
        Ok(Arc::new(Self {
            name: name.to_owned(),
            memory: Arc::clone(memory),
            tx,
            rx,
            host: Mutex::new(None),
            connection: Mutex::new(connection),
            header_bytes: Mutex::new(0),
        }))
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

    /// Its pair of rings.
    #[must_use]
    pub fn rings(&self) -> (&Arc<Ring>, &Arc<Ring>) {
        (&self.tx, &self.rx)
    }

    /// Its pair of host rings, made when first asked for. Nothing is behind them.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn host_rings(&self) -> Result<(Arc<Ring>, Arc<Ring>), Errno> {
        let mut host = self.host.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((tx, rx)) = &*host {
            return Ok((Arc::clone(tx), Arc::clone(rx)));
        }
        let ring =
            |direction, slots| Ring::new(&self.memory, direction, slots, Backend::Idle, false);
        let pair = (
            ring(Direction::Transmit, self.tx.slots())?,
            ring(Direction::Receive, self.rx.slots())?,
        );
        *host = Some((Arc::clone(&pair.0), Arc::clone(&pair.1)));
        Ok(pair)
    }

    /// Does something with the connection to the switch.
    pub fn with_connection<T>(&self, with: impl FnOnce(&mut Connection) -> T) -> T {
        with(&mut self.connection.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Bytes of virtio-net header in front of each frame.
    #[must_use]
    pub fn header_bytes(&self) -> u32 {
        *self.header_bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
