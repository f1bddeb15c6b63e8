//! `serve` as a process against clients that ask for all they can get: what it holds stays within
//! what it was given, and whoever asks next gets an answer.

#[path = "support/far_client.rs"]
mod far_client;

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use testkit::port;

use far_client::{Answer, FarClient, connect_from};
use results::{Direction, Protocol, ReceivePath, SendPath, TestLimit, TestSpec, UdpSpec};
use testkit::server::Server;
use traffic::control::RefusalCode;

const MEMORY: u64 = 256 << 20;

/// The program itself, its listeners and what the allocator keeps.
const CONSTANT: u64 = 48 << 20;

/// The most an honest client waits for an answer, be it "busy".
const ANSWER_TIME_MAX: Duration = Duration::from_secs(1);

/// Tests that take as much as may be asked for of one thing.
fn hungry() -> Vec<TestSpec> {
    let long = TestLimit::DurationS(300.0);
    let wide = |spec: TestSpec| TestSpec { limit: long, ..spec };
    let datagrams = |datagram_bytes, batch_count| {
        let udp = UdpSpec { datagram_bytes, gso: true, gro: true, batch_count };
        let offered_bits_per_s = Some(1e4);
        wide(TestSpec { udp: Some(udp), offered_bits_per_s, ..TestSpec::udp(datagram_bytes) })
    };
    let blocks = wide(TestSpec { block_bytes: Some(16 << 20), ..TestSpec::tcp() });
    let reverse = |spec: TestSpec| TestSpec { direction: Direction::Reverse, ..spec };
    vec![
        TestSpec { streams: 3, ..blocks.clone() },
        TestSpec { streams: 3, receive_path: ReceivePath::Zerocopy, ..blocks.clone() },
        TestSpec { streams: 3, send_path: SendPath::Sendfile, ..reverse(blocks.clone()) },
        TestSpec { streams: 20, ..reverse(blocks) },
        TestSpec { streams: 20, ..datagrams(1400, 1024) },
        reverse(datagrams(65_507, 512)),
        TestSpec { streams: 128, ..reverse(datagrams(1000, 1024)) },
        TestSpec {
            streams: 20,
            ..wide(TestSpec::request_response(Protocol::Tcp, 1 << 20, 1 << 20))
        },
        TestSpec {
            streams: 20,
            interval_s: 0.2,
            limit: TestLimit::TotalBytes(u64::MAX),
            ..TestSpec::tcp()
        },
    ]
}

/// Resident memory of a process now and at its highest, bytes.
fn resident_bytes(server: &Server) -> (u64, u64) {
    let status = fs::read_to_string(format!("/proc/{}/status", server.child.id())).expect("runs");
    let figure = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a figure");
        line.split_whitespace().next().expect("kB").parse::<u64>().expect("a number") << 10
    };
    (figure("VmRSS:"), figure("VmHWM:"))
}

/// As many sessions as there are places, each with the most it can get, and never a byte of data.
#[test]
fn hungry_clients_take_no_more_memory_than_the_server_was_given() {
    let memory = MEMORY.to_string();
    let server = Server::start(&["--bind", "127.0.0.1", "--memory", &memory]);
    let (mut served, mut codes) = (Vec::new(), Vec::new());
    for host in 2..6 {
        let from = Ipv4Addr::new(127, 0, 0, host);
        for spec in hungry() {
            let Some(mut client) = FarClient::greeted(from, server.port) else {
                codes.push(RefusalCode::Busy);
                continue;
            };
            let asked = Instant::now();
            match client.begin(&spec) {
                Answer::Begun => served.push(client),
                Answer::Refused(refusal) => {
                    assert!(asked.elapsed() < ANSWER_TIME_MAX, "{:?}", asked.elapsed());
                    codes.push(refusal.code);
                }
            }
        }
    }
    assert!(served.len() >= 3, "{} tests were let in", served.len());
    assert!(codes.len() >= 10, "{codes:?}");
    let typed = |code: &RefusalCode| matches!(code, RefusalCode::Busy | RefusalCode::Limit);
    assert!(codes.iter().all(typed), "{codes:?}");
    thread::sleep(Duration::from_millis(500));
    let (now, highest) = resident_bytes(&server);
    assert!(highest <= MEMORY + CONSTANT, "{now} bytes, at most {highest}");
    // An honest client is told at once that there is no room, or served.
    let began = Instant::now();
    if let Some(mut honest) = FarClient::greeted(Ipv4Addr::new(127, 0, 0, 9), server.port) {
        honest.begin(&TestSpec::tcp());
    }
    assert!(began.elapsed() < ANSWER_TIME_MAX, "{:?}", began.elapsed());
    drop(served);
    // Everything comes back: the memory, and a little later what the sessions had reserved of it.
    let is_served_again = || {
        let again = FarClient::greeted(Ipv4Addr::new(127, 0, 0, 2), server.port);
        again.is_some_and(|mut client| matches!(client.begin(&hungry()[0]), Answer::Begun))
    };
    let deadline = Instant::now() + Duration::from_secs(5);
    while resident_bytes(&server).0 > CONSTANT || !is_served_again() {
        assert!(Instant::now() < deadline, "{} bytes are left", resident_bytes(&server).0);
        thread::sleep(Duration::from_millis(50));
    }
}

/// The same through iperf3's protocol.
#[test]
fn hungry_iperf3_clients_are_refused_with_a_number() {
    let memory = MEMORY.to_string();
    let server = Server::start(&["--bind", "127.0.0.1", "--memory", &memory]);
    for (host, asked) in [
        (2, r#"{"tcp":true,"time":10,"parallel":128,"len":1048576}"#),
        (
            3,
            r#"{"udp":true,"time":10,"parallel":128,"len":1400,"burst":1000,"gso":1,"gro":1,"reverse":true}"#,
        ),
        (
            4,
            r#"{"tcp":true,"num":1,"parallel":128,"len":1048576,"window":1073741824,"bidirectional":true}"#,
        ),
    ] {
        let mut control = connect_from(Ipv4Addr::new(127, 0, 0, host), server.port);
        control.write_all(format!("{:a<36}\0", host).as_bytes()).expect("sent");
        let mut state = [0];
        control.read_exact(&mut state).expect("asked for parameters");
        assert_eq!(state, [9]);
        control.write_all(&u32::try_from(asked.len()).expect("short").to_be_bytes()).expect("sent");
        control.write_all(asked.as_bytes()).expect("sent");
        let mut answer = [0; 9];
        control.read_exact(&mut answer).expect("an answer");
        // SERVER_ERROR and "the server is busy" (iperf_api.h).
        assert_eq!(answer[..5], [0xFE, 0, 0, 0, 121], "{asked}");
    }
    let (now, highest) = resident_bytes(&server);
    assert!(highest < CONSTANT, "{now} bytes, at most {highest}");
}

/// Few descriptors, many connections: the server neither spins nor keeps others out.
#[test]
fn a_server_short_of_descriptors_stays_calm_and_answers() {
    let port = port::free_port();
    let script = format!(
        "ulimit -n 72; exec {} serve --bind 127.0.0.1 -p {port} --max-clients 4",
        env!("CARGO_BIN_EXE_clearstream")
    );
    let child = Command::new("sh")
        .args(["-c", &script])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    let server = Server { child, port };
    let deadline = Instant::now() + Duration::from_secs(5);
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
        assert!(Instant::now() < deadline, "it listens");
        thread::sleep(Duration::from_millis(20));
    }
    let crowd: Vec<_> = (0..400).map(|_| connect_from(Ipv4Addr::new(127, 0, 0, 2), port)).collect();
    let (before, began) = (cpu_ticks(&server), Instant::now());
    let asked = Instant::now();
    let honest = FarClient::greeted(Ipv4Addr::LOCALHOST, port).expect("a place");
    assert!(asked.elapsed() < ANSWER_TIME_MAX, "{:?}", asked.elapsed());
    thread::sleep(Duration::from_secs(1));
    // Ticks are hundredths of a second.
    let used_s = (cpu_ticks(&server) - before) as f64 / 100.0;
    assert!(used_s < 0.5 * began.elapsed().as_secs_f64(), "{used_s} s of processor time");
    drop((crowd, honest));
}

/// Processor time of the process so far, user and system.
fn cpu_ticks(server: &Server) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", server.child.id())).expect("runs");
    let after_name = stat.rsplit(')').next().expect("a name in brackets");
    let figures: Vec<&str> = after_name.split_whitespace().collect();
    let figure = |at: usize| figures[at].parse::<u64>().expect("a number");
    figure(11) + figure(12)
}
