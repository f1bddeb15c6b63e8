//! A server on a free loopback port for the length of a test.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use results::{TestLimit, TestOutcome, TestSpec};
use traffic::client::{self, ClientError, Target};
use traffic::server::{Notice, Server, ServerConfig};

pub(crate) struct Running {
    pub(crate) target: Target,
    stop: Arc<AtomicBool>,
    notices: Arc<Mutex<Vec<Notice>>>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    pub(crate) fn start() -> Self {
        Self::with(|_| {})
    }

    /// A server on 127.0.0.1, changed before it starts.
    pub(crate) fn with(change: impl FnOnce(&mut ServerConfig)) -> Self {
        let mut config = ServerConfig {
            bind: Some(Ipv4Addr::LOCALHOST.into()),
            port: 0,
            ..ServerConfig::default()
        };
        change(&mut config);
        let server = Server::bind(config).expect("a free port");
        let address = server.addresses()[0];
        let host = match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => "127.0.0.1".to_owned(),
            ip => ip.to_string(),
        };
        let target = Target { host, port: address.port(), family: None };
        let stop = Arc::new(AtomicBool::new(false));
        let notices = Arc::new(Mutex::new(Vec::new()));
        let (stopped, noticed) = (Arc::clone(&stop), Arc::clone(&notices));
        let thread = thread::spawn(move || {
            let sink = Arc::new(move |notice: &Notice| {
                noticed.lock().expect("no panic").push(notice.clone());
            });
            server.run(sink, &|| stopped.load(Ordering::Relaxed)).expect("serves");
        });
        Self { target, stop, notices, thread: Some(thread) }
    }

    pub(crate) fn test(&self, spec: &TestSpec) -> Result<TestOutcome, ClientError> {
        client::run_test(&self.target, spec, &mut |_| {}, &|| false)
    }

    pub(crate) fn notices(&self) -> MutexGuard<'_, Vec<Notice>> {
        self.notices.lock().expect("no panic")
    }

    /// How sessions ended so far.
    pub(crate) fn endings(&self) -> Vec<String> {
        let ended = |notice: &Notice| match notice {
            Notice::Ended { how, .. } => Some(how.clone()),
            _ => None,
        };
        self.notices().iter().filter_map(ended).collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A failed server has failed its test already.
            thread.join().ok();
        }
    }
}

/// Makes a test short.
pub(crate) fn brief(mut spec: TestSpec) -> TestSpec {
    spec.limit = TestLimit::DurationS(0.4);
    spec.interval_s = 0.1;
    spec
}

/// Waits until `condition` holds.
pub(crate) fn eventually(what: &str, patience: Duration, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + patience;
    while !condition() {
        assert!(Instant::now() < deadline, "{what} within {patience:?}");
        thread::sleep(Duration::from_millis(10));
    }
}
