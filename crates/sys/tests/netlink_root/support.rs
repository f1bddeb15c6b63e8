//! A network namespace for each test, and `ip` in it.

use std::os::fd::OwnedFd;
use std::process::Command;

use netlink::{Link, Path, Prefix};
use serde_json::Value;
use sys::netlink_socket::NetlinkSocket;

/// Runs in a thread of its own inside a new network namespace, which ends with it. In it stands a veth
/// pair `a0`–`a1`, up, `a0` with 192.0.2.1/24 and 2001:db8::1/64. `None` without root.
pub(crate) fn inside<T: Send>(body: impl FnOnce(Bench) -> T + Send) -> Option<T> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root");
        return None;
    }
    let run = || {
        let namespace = sys::namespace::unshare_network().unwrap();
        ip("link set lo up");
        ip("link add a0 type veth peer name a1");
        ip("addr add 192.0.2.1/24 dev a0");
        ip("addr add 2001:db8::1/64 dev a0 nodad");
        ip("link set a0 up");
        ip("link set a1 up");
        let mut socket = NetlinkSocket::open().unwrap();
        let links = socket.list::<Link>(&Link::dump()).unwrap();
        let index = links.iter().find(|link| link.name == "a0").unwrap().index;
        body(Bench { socket, index, namespace })
    };
    std::thread::scope(|scope| match scope.spawn(run).join() {
        Ok(value) => Some(value),
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// What a test works with.
pub(crate) struct Bench {
    pub(crate) socket: NetlinkSocket,
    /// Of `a0`.
    pub(crate) index: u32,
    pub(crate) namespace: OwnedFd,
}

impl Bench {
    /// A path over `a0`.
    pub(crate) fn path(&self, gateway: &str) -> Path {
        let gateway = gateway.parse().unwrap();
        Path { interface_index: Some(self.index), ..Path::via(gateway) }
    }
}

pub(crate) fn prefix(text: &str) -> Prefix {
    let (address, bits) = text.split_once('/').unwrap();
    Prefix::new(address.parse().unwrap(), bits.parse().unwrap()).unwrap()
}

/// Runs `ip` in the calling thread's namespace.
pub(crate) fn ip(arguments: &str) -> String {
    let output = Command::new("ip").args(arguments.split(' ')).output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments}: {complaint}");
    String::from_utf8(output.stdout).unwrap()
}

/// What `ip -j` lists.
pub(crate) fn listed(arguments: &str) -> Vec<Value> {
    let text = ip(&format!("-j -d {arguments}"));
    match serde_json::from_str(&text) {
        Ok(Value::Array(rows)) => rows,
        // An empty list is an empty text.
        other => {
            assert!(text.trim().is_empty(), "ip {arguments}: {other:?}");
            Vec::new()
        }
    }
}

/// The first row whose field has this value.
pub(crate) fn row<'a>(rows: &'a [Value], field: &str, value: impl Into<Value>) -> &'a Value {
    let value = value.into();
    rows.iter()
        .find(|row| row[field] == value)
        .unwrap_or_else(|| panic!("{field}={value}: {rows:#?}"))
}
