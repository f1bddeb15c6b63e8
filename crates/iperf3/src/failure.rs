//! What can go wrong, in iperf3's words and with iperf3's numbers.

use std::io;

use thiserror::Error;

use super::wire::WireError;

/// Why a run failed. The text is what iperf3 prints behind `iperf3: error - `, so that scripts that
/// read it keep working; where 3.21 appends advice to a 3.12 text, the short text stands.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Iperf3Error {
    /// No control connection.
    #[error("unable to connect to server: {0}")]
    Connect(String),
    /// Nobody can connect to us.
    #[error("unable to start listener for connections: {}", os_text(.0))]
    Listen(io::Error),
    /// The cookie did not go out.
    #[error("unable to send cookie to server: {}", os_text(.0))]
    SendCookie(io::Error),
    /// No cookie came.
    #[error("unable to receive cookie at server: {}", os_text(.0))]
    ReceiveCookie(io::Error),
    /// The control connection cannot be written.
    #[error("unable to send control message: {}", os_text(.0))]
    SendMessage(io::Error),
    /// The control connection cannot be read.
    #[error("unable to receive control message: {}", os_text(.0))]
    ReceiveMessage(io::Error),
    /// The other end said nothing for too long.
    #[error("unable to receive control message: nothing came from the other end for {0} s")]
    Silence(u64),
    /// The control connection ended in the middle.
    #[error("control socket has closed unexpectedly")]
    ControlClosed,
    /// A byte that is no state, or comes at the wrong moment.
    #[error("received an unknown control message (ensure other side is iperf3 and not iperf)")]
    UnknownMessage,
    /// The parameters could not be read.
    #[error("unable to receive parameters from client: {0}")]
    Parameters(WireError),
    /// The results could not be read.
    #[error("unable to receive results: {0}")]
    Results(WireError),
    /// The other end's results name a stream we do not have.
    #[error("stream has an invalid id")]
    StreamId,
    /// The server has another client.
    #[error("the server is busy running a test. try again later")]
    Busy,
    /// The server was stopped.
    #[error("the server has terminated")]
    ServerTerminated,
    /// The client was stopped.
    #[error("the client has terminated")]
    ClientTerminated,
    /// A signal asked this end to stop; not a failure (exit code 0 since 3.19).
    #[error("terminated by signal {}", signal_name(*.0))]
    Interrupted(i32),
    /// Nothing was received for `--rcv-timeout`.
    #[error("idle timeout for receiving data")]
    NoData,
    /// A data connection could not be made.
    #[error("unable to connect stream: {0}")]
    StreamConnect(String),
    /// A data connection did not come.
    #[error("unable to accept stream connection: {0}")]
    StreamAccept(String),
    /// The UDP stream's greeting was not answered.
    #[error("unable to read from stream socket: {}", os_text(.0))]
    StreamRead(io::Error),
    /// The engine could not run the streams.
    #[error("unable to initialize stream: {0}")]
    Engine(String),
    /// A socket option was refused.
    #[error("{0}")]
    Option(Refusal),
    /// The client asks for more than the server grants.
    #[error("total required bandwidth is larger than server limit")]
    TotalRate,
    /// The client asks for longer than the server grants.
    #[error("client's requested duration exceeds the server's maximum permitted limit")]
    TooLong,
    /// The client did not end its test in time.
    #[error("server test duration expired")]
    Expired,
    /// Too many streams.
    #[error("number of parallel streams too large (maximum = {0})")]
    TooManyStreams(u32),
    /// A block of no size or too large a one.
    #[error("block size too large (maximum = {0} bytes)")]
    BlockSize(u32),
    /// `--logfile` cannot be opened.
    #[error("unable to open log file: {}", os_text(.0))]
    LogFile(io::Error),
    /// The server has no room for what the client asks for, now or ever.
    #[error("{0}")]
    NoRoom(String),
    /// Not done by this program.
    #[error("{0}")]
    Absent(&'static str),
    /// The server's answer to our request, by its number.
    #[error("{0}")]
    AtServer(String),
}

/// A socket option that the kernel refused.
#[derive(Debug, Error)]
#[error("{what}{}", what.cause(source))]
pub struct Refusal {
    /// iperf3's sentence and number.
    what: OptionKind,
    source: io::Error,
}

impl Refusal {
    /// `what` could not be set because of `source`.
    #[must_use]
    pub fn new(what: OptionKind, source: io::Error) -> Self {
        Self { what, source }
    }
}

/// Socket options with a sentence of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum OptionKind {
    /// `-N`.
    #[error("unable to set TCP/SCTP NODELAY")]
    NoDelay,
    /// `-M`.
    #[error("unable to set TCP/SCTP MSS")]
    Mss,
    /// `-w`.
    #[error("unable to set socket buffer size")]
    Buffer,
    /// `-S`, IPv4.
    #[error("unable to set IP TOS")]
    TypeOfService,
    /// `-S`, IPv6.
    #[error("unable to set IPv6 traffic class")]
    TrafficClass,
    /// `-L`.
    #[error("unable to set IPv6 flow label")]
    FlowLabel,
    /// `-C`.
    #[error(
        "unable to set TCP_CONGESTION: Supplied congestion control algorithm not supported on this host"
    )]
    Congestion,
    /// `--bind-dev`.
    #[error("Unable to bind-to-device (check perror, maybe permissions?)")]
    BindDevice,
    /// `--dont-fragment`.
    #[error("unable to set IP Do-Not-Fragment flag")]
    DontFragment,
    /// `--snd-timeout`.
    #[error("unable to set TCP USER_TIMEOUT")]
    UserTimeout,
    /// `--cntl-ka`.
    #[error("unable to set socket keepalive (SO_KEEPALIVE) option")]
    KeepAlive,
    /// `-A`.
    #[error("unable to set CPU affinity")]
    Affinity,
}

impl Iperf3Error {
    /// iperf3's number for it (`i_errno`, esnet/iperf `src/iperf_api.h`), as a server sends it.
    #[must_use]
    pub fn code(&self) -> i32 {
        match self {
            Self::TooManyStreams(_) => 6,
            Self::BlockSize(_) => 7,
            Self::Absent(_) => 13,
            Self::LogFile(_) => 17,
            Self::TotalRate => 27,
            Self::TooLong => 37,
            Self::Listen(_) => 102,
            Self::Connect(_) => 103,
            Self::SendCookie(_) => 105,
            Self::ReceiveCookie(_) => 106,
            Self::ControlClosed => 109,
            Self::UnknownMessage => 110,
            Self::SendMessage(_) => 111,
            Self::ReceiveMessage(_) | Self::Silence(_) => 112,
            Self::Parameters(_) => 114,
            Self::Results(_) => 117,
            Self::ClientTerminated | Self::Interrupted(_) => 119,
            Self::ServerTerminated => 120,
            Self::Busy | Self::NoRoom(_) => 121,
            Self::Option(refusal) => refusal.what.code(),
            Self::NoData => 144,
            Self::Expired => 160,
            Self::Engine(_) => 201,
            Self::StreamConnect(_) => 203,
            Self::StreamAccept(_) => 204,
            Self::StreamRead(_) => 206,
            Self::StreamId => 208,
            Self::AtServer(_) => 0,
        }
    }

    /// What a server's number and `errno` say.
    #[must_use]
    pub fn from_server(code: i32, errno: i32) -> Self {
        let sentence = match code {
            6 => "number of parallel streams too large",
            7 => "block size too large",
            13 => "an option you are trying to set is not implemented yet",
            20 => "block size invalid",
            27 => "total required bandwidth is larger than server limit",
            37 => "client's requested duration exceeds the server's maximum permitted limit",
            106 => "unable to receive cookie at server",
            109 => "control socket has closed unexpectedly",
            110 => "received an unknown control message",
            111 => "unable to send control message",
            112 => "unable to receive control message",
            114 => "unable to receive parameters from client",
            117 => "unable to receive results",
            121 => "the server is busy running a test. try again later",
            122 => "unable to set TCP/SCTP NODELAY",
            123 => "unable to set TCP/SCTP MSS",
            124 => "unable to set socket buffer size",
            132 => "unable to set CPU affinity",
            134 => {
                "unable to set TCP_CONGESTION: Supplied congestion control algorithm not supported on this host"
            }
            141 => "socket buffer size not set correctly",
            142 => "test authorization failed",
            144 => "idle timeout for receiving data",
            160 => "server test duration expired",
            202 => "unable to start stream listener",
            204 => "unable to accept stream connection",
            205 => "unable to write to stream socket",
            206 => "unable to read from stream socket",
            _ => return Self::AtServer(format!("the server failed (int_errno={code})")),
        };
        if errno > 0 {
            Self::AtServer(format!("{sentence}: {}", os_text(&io::Error::from_raw_os_error(errno))))
        } else {
            Self::AtServer(sentence.to_owned())
        }
    }
}

impl OptionKind {
    /// The system's reason, behind the sentences where iperf3 has it too.
    fn cause(self, source: &io::Error) -> String {
        match self {
            Self::FlowLabel | Self::Congestion | Self::BindDevice | Self::DontFragment => {
                String::new()
            }
            _ => format!(": {}", os_text(source)),
        }
    }

    fn code(self) -> i32 {
        match self {
            Self::NoDelay => 122,
            Self::Mss => 123,
            Self::Buffer => 124,
            Self::TypeOfService => 125,
            Self::TrafficClass => 126,
            Self::FlowLabel => 127,
            Self::Affinity => 132,
            Self::Congestion => 134,
            Self::BindDevice => 143,
            Self::DontFragment => 145,
            Self::UserTimeout => 148,
            Self::KeepAlive => 155,
        }
    }
}

/// `Interrupt(2)`, as `strsignal(3)` and iperf3 write it.
#[must_use]
pub fn signal_name(number: i32) -> String {
    let name = match number {
        1 => "Hangup",
        2 => "Interrupt",
        15 => "Terminated",
        _ => "Signal",
    };
    format!("{name}({number})")
}

/// The system's words for an error, without Rust's number behind them.
pub(super) fn os_text(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}
