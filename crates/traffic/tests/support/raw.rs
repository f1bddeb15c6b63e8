//! A client that keeps to no protocol.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::control::Running;
use traffic::control::{
    ClientMessage, FrameBuffer, Purpose, SERVER_FRAME_BYTES_MAX, ServerMessage, encode,
};

/// A client that sends what it likes.
pub(crate) struct Raw {
    pub(crate) stream: TcpStream,
    buffer: FrameBuffer,
}

impl Raw {
    pub(crate) fn connect(server: &Running) -> Self {
        let stream = TcpStream::connect(address(server)).expect("listens");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
        Self::over(stream)
    }

    pub(crate) fn over(stream: TcpStream) -> Self {
        Self { stream, buffer: FrameBuffer::new(SERVER_FRAME_BYTES_MAX) }
    }

    /// Greeted, and the server's hello taken.
    pub(crate) fn greeted(server: &Running) -> Self {
        let mut raw = Self::connect(server);
        raw.send(&Purpose::Control.greeting());
        assert!(matches!(raw.hear(), Some(ServerMessage::Hello { .. })));
        raw
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("sent");
    }

    pub(crate) fn say(&mut self, message: &ClientMessage) {
        self.send(&encode(message).expect("encodes"));
    }

    /// The next message; `None` when the server has closed.
    pub(crate) fn hear(&mut self) -> Option<ServerMessage> {
        let mut bytes = [0; 4096];
        loop {
            if let Some(message) = self.buffer.next_message().expect("the server is well-behaved") {
                return Some(message);
            }
            match self.stream.read(&mut bytes) {
                Ok(0) => return None,
                Ok(count) => self.buffer.extend(&bytes[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("the server neither answers nor closes: {error}"),
            }
        }
    }
}

pub(crate) fn address(server: &Running) -> (&str, u16) {
    (&server.target.host, server.target.port)
}
