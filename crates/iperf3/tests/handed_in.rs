//! iperf3 as the ordinary server and the ordinary client have it: handed in by the program.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use iperf3::Iperf3;
use iperf3::failure::Iperf3Error;
use iperf3::options::{self, Options, Request, Role};
use iperf3::server::listener::Listener;
use iperf3::server::{ServeLimits, serve_control};
use iperf3::sink::Silent;
use results::{TestLimit, TestSpec};
use traffic::client::{CONNECT_TIMEOUT, FarProtocol, Peer, Target, connect};
use traffic::server::{Notice, Server, ServerConfig};

const KNOWN: &[&dyn FarProtocol] = &[&Iperf3];

/// An ordinary server that speaks iperf3 too.
struct Serving {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    fn with(change: impl FnOnce(&mut ServerConfig)) -> Self {
        let mut config = ServerConfig {
            bind: Some(Ipv4Addr::LOCALHOST.into()),
            port: 0,
            personalities: vec![Arc::new(Iperf3)],
            ..ServerConfig::default()
        };
        change(&mut config);
        let server = Server::bind(config).unwrap();
        let address = server.addresses()[0];
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let silent = Arc::new(|_: &Notice| {});
            server.run(silent, &|| stopped.load(Ordering::Relaxed)).unwrap();
        });
        Self { address, stop, thread: Some(thread) }
    }

    /// Runs an iperf3 client with these options.
    fn client(&self, line: &str) -> Result<(), Iperf3Error> {
        let words = format!("-c 127.0.0.1 -p {} {line}", self.address.port());
        let words: Vec<_> = words.split_whitespace().map(str::to_owned).collect();
        let Ok(Request::Run(options)) = options::parse(&words) else { panic!("{line}") };
        iperf3::client::run(&options, &mut Silent, &|| None)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A failed server has failed its test already.
            thread.join().ok();
        }
    }
}

#[test]
fn an_ordinary_server_serves_iperf3_clients_within_its_limits() {
    let server = Serving::with(|config| {
        config.limits.streams_max = 2;
        config.limits.duration_max = Duration::from_secs(5);
        config.limits.rate_bits_per_s_max = Some(1e9);
    });
    for line in ["-n 100K", "-n 100K -P 2 -R", "-n 100K --bidir", "-n 100K -u -b 100M"] {
        server.client(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
    for (line, word) in
        [("-P 3", "streams"), ("-t 6", "duration"), ("-t 1 -b 2G", "total required bandwidth")]
    {
        let error = server.client(line).expect_err(line).to_string();
        assert!(error.contains(word), "{line}: {error}");
    }
}

#[test]
fn an_address_with_all_its_places_is_told_busy_in_iperf3s_way() {
    let server = Serving::with(|config| config.sessions_an_address_max = Some(1));
    let target = Target { host: "127.0.0.1".to_owned(), port: server.address.port(), family: None };
    // One of ours and one of iperf3's share the address's places.
    let ours = connect(&target, CONNECT_TIMEOUT, KNOWN).unwrap();
    assert!(matches!(ours, Peer::ClearStream(_)), "{ours:?}");
    let error = server.client("-n 1K").unwrap_err();
    assert!(matches!(error, Iperf3Error::Busy), "{error}");
}

#[test]
fn an_ordinary_client_tests_against_an_iperf3_server() {
    let mut listener = Listener::bind(&Options { port: 0, ..Options::new(Role::Server) }).unwrap();
    let target = Target { host: "127.0.0.1".to_owned(), port: listener.port(), family: None };
    let server = std::thread::spawn(move || {
        let client = listener.next_client(Duration::from_secs(10), &|| None).expect("a client");
        let mut data = listener.connections(&client);
        let limits = ServeLimits::default();
        let (control, cookie) = (client.control, client.cookie);
        serve_control(control, cookie, &mut data, &limits, &mut Silent, &|| None)
    });
    let peer = connect(&target, CONNECT_TIMEOUT, KNOWN).unwrap();
    assert_eq!(peer.name(), "iperf3");
    let busy = connect(&target, CONNECT_TIMEOUT, KNOWN).unwrap_err().to_string();
    assert!(busy.contains("the iperf3 server is busy with another test"), "{busy}");
    let Peer::Foreign(peer) = peer else { panic!("{peer:?}") };
    let idle = peer.round_trips(3, Duration::from_millis(1)).unwrap();
    assert_eq!((idle.count, idle.method.as_str()), (3, "tcp-connect"));
    let spec = TestSpec { limit: TestLimit::DurationS(0.3), interval_s: 0.1, ..TestSpec::tcp() };
    let mut intervals = 0;
    let outcome = peer
        .run_test(
            &spec,
            &mut |pair| {
                assert!(pair.far.is_none());
                intervals += 1;
            },
            &|| false,
        )
        .unwrap();
    assert!(intervals >= 2 && outcome.directions[0].received_bytes > 0, "{outcome:?}");
    server.join().unwrap().unwrap();
}
