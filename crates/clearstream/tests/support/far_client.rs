//! A client of `serve` written by hand, from any loopback address: it asks, connects what it must,
//! and then does nothing.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use results::TestSpec;
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use traffic::control::{
    ClientMessage, FrameBuffer, Purpose, Refusal, SERVER_FRAME_BYTES_MAX, ServerMessage, Token,
    encode, streams_of,
};

/// A TCP connection from this loopback address to the server.
pub(crate) fn connect_from(from: Ipv4Addr, port: u16) -> TcpStream {
    let fd = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    bind(&fd, &SocketAddr::from((from, 0))).expect("loopback is 127.0.0.0/8");
    connect(&fd, &SocketAddr::from((Ipv4Addr::LOCALHOST, port))).expect("it listens");
    let stream = TcpStream::from(fd);
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
    stream
}

/// What came of asking for a test.
pub(crate) enum Answer {
    /// It runs.
    Begun,
    /// It does not.
    Refused(Refusal),
}

/// A client with a control connection, and data connections that are held and not used.
pub(crate) struct FarClient {
    from: Ipv4Addr,
    port: u16,
    control: TcpStream,
    buffer: FrameBuffer,
    tcp: Vec<TcpStream>,
    udp: Vec<UdpSocket>,
}

impl FarClient {
    /// Let in; `None` when the server is busy.
    pub(crate) fn greeted(from: Ipv4Addr, port: u16) -> Option<Self> {
        let mut control = connect_from(from, port);
        control.write_all(&Purpose::Control.greeting()).expect("sent");
        let buffer = FrameBuffer::new(SERVER_FRAME_BYTES_MAX);
        let mut client = Self { from, port, control, buffer, tcp: Vec::new(), udp: Vec::new() };
        match client.hear() {
            ServerMessage::Hello { .. } => Some(client),
            ServerMessage::Refused(_) => None,
            other => panic!("{other:?}"),
        }
    }

    /// Asks for a test and takes it to where data would flow.
    pub(crate) fn begin(&mut self, spec: &TestSpec) -> Answer {
        self.say(&ClientMessage::Start { spec: Box::new(spec.clone()) });
        let token = match self.hear() {
            ServerMessage::Accepted { token, .. } => token,
            ServerMessage::Refused(refusal) => return Answer::Refused(refusal),
            other => panic!("{other:?}"),
        };
        for plan in streams_of(spec) {
            self.open(&token, plan.index, plan.protocol == results::Protocol::Udp);
        }
        while self.hear() != ServerMessage::Ready {}
        self.say(&ClientMessage::Go);
        assert_eq!(self.hear(), ServerMessage::Started);
        Answer::Begun
    }

    fn open(&mut self, token: &Token, index: u16, udp: bool) {
        let greeting = Purpose::Stream { token: token.clone(), index }.greeting();
        if udp {
            let socket = UdpSocket::bind((self.from, 0)).expect("a port");
            socket.connect((Ipv4Addr::LOCALHOST, self.port)).expect("connected");
            socket.send(&greeting).expect("sent");
            self.udp.push(socket);
        } else {
            let mut stream = connect_from(self.from, self.port);
            stream.write_all(&greeting).expect("sent");
            self.tcp.push(stream);
        }
    }

    fn say(&mut self, message: &ClientMessage) {
        self.control.write_all(&encode(message).expect("encodes")).expect("sent");
    }

    fn hear(&mut self) -> ServerMessage {
        let mut bytes = [0; 4096];
        loop {
            if let Some(message) = self.buffer.next_message().expect("well-behaved") {
                return message;
            }
            let count = self.control.read(&mut bytes).expect("an answer in time");
            assert!(count > 0, "the server closed");
            self.buffer.extend(&bytes[..count]);
        }
    }
}
