//! Refusals: each has its code, and the words beside it decide nothing.

use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;

use packet_switch::attachment::{Answer, Ask, DeviceKind, PipeEnd, RefusalCode, Shape, XdpFacts};
use packet_switch::client::{ClientError, Connection};

use testkit::refuser::{Refuser, WORDS};
use testkit::serving::Serving;

fn code(outcome: Result<impl std::fmt::Debug, ClientError>) -> RefusalCode {
    match outcome {
        Err(ClientError::Refused { code, .. }) => code,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn a_daemon_refuses_with_the_code_of_the_reason() {
    let serving = Serving::start("codes");
    let mut connection = serving.connect();
    let port = || "vale0:a".parse().unwrap();
    let group = || "chain".parse().unwrap();
    let shape = Shape::default();
    let delete = Ask::DeletePort { port: port() };
    assert_eq!(code(connection.ask(delete)), RefusalCode::NotThere);
    assert_eq!(code(connection.attach_pipe(&group(), 0, PipeEnd::Master)), RefusalCode::NotThere);
    connection.ask(Ask::AddPort { port: port(), shape }).unwrap();
    assert_eq!(code(connection.ask(Ask::AddPort { port: port(), shape })), RefusalCode::Exists);
    let _attached = connection.attach_port(&port()).unwrap();
    assert_eq!(code(connection.attach_port(&port())), RefusalCode::Taken);
    let too_many = Ask::AddPipes { group: group(), pipes: 33, shape };
    assert_eq!(code(connection.ask(too_many)), RefusalCode::Limit);
    let flat = Shape { slots: 1, ..shape };
    let other = "vale0:b".parse().unwrap();
    assert_eq!(code(connection.attach_port_as(&other, flat)), RefusalCode::Invalid);
    let header = Ask::SetHeader { port: port(), header_bytes: 11 };
    assert_eq!(code(connection.ask(header)), RefusalCode::Invalid);

    let facts = XdpFacts { device: "eth0".into(), queue: 0, is_generic: false, takes_parts: false };
    let region = shm::Region::create("frames", 64 << 20).unwrap();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let fds = [socket.as_fd(), region.fd().unwrap()];
    let xdp = Ask::AddDevice { port: other.clone(), device: DeviceKind::Xdp(facts), shape };
    assert_eq!(code(connection.ask_with(xdp, &fds)), RefusalCode::Device);
    let null = std::fs::File::open("/dev/null").unwrap();
    let tap = Ask::AddDevice { port: other, device: DeviceKind::Tap, shape };
    assert_eq!(code(connection.ask_with(tap, &[null.as_fd()])), RefusalCode::System);
}

#[test]
fn a_message_that_cannot_be_read_is_refused_with_a_code() {
    let serving = Serving::start("unread");
    for (text, expected) in [
        ("no message", RefusalCode::Malformed),
        (r#"{"version":1,"ask":{"dance":{}}}"#, RefusalCode::Malformed),
        (r#"{"version":2,"ask":{"list":{}}}"#, RefusalCode::Version),
    ] {
        let socket = shm::Socket::connect(serving.path()).unwrap();
        socket.send(text.as_bytes(), &[]).unwrap();
        let shm::Message::Received { bytes, .. } = socket.receive().unwrap() else { panic!() };
        let Answer::Refused { code, .. } = Answer::decode(&bytes).unwrap() else { panic!() };
        assert_eq!(code, expected, "{text}");
    }
}

#[test]
fn root_what_belongs_to_another_user_is_refused_with_its_code() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: not root");
        return;
    }
    let serving = Serving::start("foreign");
    let mut connection = serving.connect();
    let port = || "vale0:a".parse().unwrap();
    connection.ask(Ask::AddPort { port: port(), shape: Shape::default() }).unwrap();
    std::fs::set_permissions(serving.path(), PermissionsExt::from_mode(0o666)).unwrap();
    let path = serving.path().to_owned();
    let stranger = std::thread::spawn(move || {
        let user = rustix::process::Uid::from_raw(65_534);
        rustix::thread::set_thread_res_uid(user, user, user).unwrap();
        code(Connection::open(&path).unwrap().ask(Ask::DeletePort { port: port() }))
    });
    assert_eq!(stranger.join().unwrap(), RefusalCode::NotOwner);
}

#[test]
fn other_words_for_a_refusal_change_nothing() {
    for code_sent in RefusalCode::ALL {
        for words in WORDS {
            let is_senseless = code_sent == RefusalCode::Invalid;
            let answer = Answer::Refused { code: code_sent, why: words.into(), is_senseless };
            let refuser = Refuser::start("words", move |_| answer.encode());
            let mut connection = Connection::open(refuser.path()).unwrap();
            let outcome = connection.attach_port(&"vale0:a".parse().unwrap());
            let Err(ClientError::Refused { code, why }) = outcome else { panic!("{outcome:?}") };
            assert_eq!((code, why.as_str()), (code_sent, words));
        }
    }
}

#[test]
fn a_daemon_without_codes_and_one_with_new_codes_are_understood() {
    for (text, expected) in [
        (r#"{"refused":{"why":"vale0:a is taken"}}"#, RefusalCode::Other),
        (r#"{"refused":{"why":"one slot","is_senseless":true}}"#, RefusalCode::Invalid),
        (r#"{"refused":{"code":"under_water","why":"not yet"}}"#, RefusalCode::Other),
    ] {
        let refuser = Refuser::start("peers", move |_| text.as_bytes().to_vec());
        let mut connection = Connection::open(refuser.path()).unwrap();
        assert_eq!(code(connection.attach_port(&"vale0:a".parse().unwrap())), expected, "{text}");
    }
}
