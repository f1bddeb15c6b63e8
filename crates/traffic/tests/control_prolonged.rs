//! Clients that would have the server work for them for longer than it allows.

use std::io::Write;
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use crate::control::Running;
use crate::raw::{Raw, address};
use results::{TestLimit, TestSpec};
use traffic::control::{ClientMessage, Limits, Purpose, ServerMessage, encode};

/// A client that talks without end is neither read without end nor let run beyond its time.
#[test]
fn a_client_that_never_stops_talking_cannot_prolong_its_test() {
    let limits = Limits { duration_max: Duration::from_secs(1), ..Limits::default() };
    let server = Running::with(|config| config.limits = limits);
    let mut raw = Raw::greeted(&server);
    let spec = TestSpec { limit: TestLimit::TotalBytes(u64::MAX), ..TestSpec::tcp() };
    raw.say(&ClientMessage::Start { spec: Box::new(spec) });
    let Some(ServerMessage::Accepted { token, .. }) = raw.hear() else { panic!("accepted") };
    let mut data = TcpStream::connect(address(&server)).expect("listens");
    data.write_all(&Purpose::Stream { token, index: 0 }.greeting()).expect("sent");
    raw.say(&ClientMessage::Go);
    let mut talker = raw.stream.try_clone().expect("cloned");
    let many = encode(&ClientMessage::Alive).expect("encodes").repeat(1000);
    let talking = thread::spawn(move || while talker.write_all(&many).is_ok() {});
    data.write_all(&[7; 1000]).expect("sent");
    let began = Instant::now();
    loop {
        match raw.hear().expect("the end of the test before that of the session") {
            ServerMessage::Stopped { reason } => break assert!(reason.contains("longer")),
            _ => assert!(began.elapsed() < Duration::from_secs(5), "it goes on"),
        }
    }
    raw.stream.shutdown(std::net::Shutdown::Both).expect("open");
    talking.join().expect("no panic");
}
