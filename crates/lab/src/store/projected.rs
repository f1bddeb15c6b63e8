//! A file system that a host mounts and hands on by SFTP, without encryption: what a client of such a forwarder sees
//! beside what a client of the servers sees. Two ways: the forwarder with its page cache, and without.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use rustix::mount::{UnmountFlags, unmount};
use sys::process::{ChildStart, start_child_as};

use super::{AGAIN_AFTER, CONNECT_TIMEOUT, Part, find_program, is_mounted, log, moosefs, spawn};

/// Where distributions put the server.
const SERVERS: [&str; 3] = [
    "/usr/lib/openssh/sftp-server",
    "/usr/libexec/openssh/sftp-server",
    "/usr/lib/ssh/sftp-server",
];
/// Nothing that a client caches for long: default times make a file system of the client's memory.
const CLIENT_OPTIONS: &str = "allow_other,direct_io,dir_cache=no,attr_timeout=0,entry_timeout=0,\
                              negative_timeout=0,reconnect";

/// A way in which a file system is handed on.
pub(super) struct Way {
    /// What the names of mount points end in, at clients and at the forwarder.
    names: (&'static str, &'static str),
    port: u16,
    /// Options of the forwarder's own mount.
    options: &'static str,
}

pub(super) const WAYS: [Way; 2] = [
    Way { names: ("-projected", ""), port: 9900, options: "allow_other" },
    Way {
        names: ("-uncached", "-uncached"),
        port: 9901,
        options: "allow_other,mfscachemode=DIRECT",
    },
];

impl Way {
    /// Where it is mounted beside `own`, where the file system itself is.
    pub(super) fn point(&self, own: &Path, is_forwarder: bool) -> PathBuf {
        let ending = if is_forwarder { self.names.1 } else { self.names.0 };
        PathBuf::from(format!("{}{ending}", own.display()))
    }
}

fn server() -> Option<&'static str> {
    SERVERS.into_iter().find(|path| Path::new(path).is_file())
}

/// What is missing to hand a file system on, in one line.
pub(super) fn lacking() -> Option<String> {
    let missing = match (find_program("sshfs"), server()) {
        (Some(_), Some(_)) => return None,
        (None, _) => "sshfs",
        (_, None) => "sftp-server",
    };
    Some(format!(
        "the file system is not projected: {missing} not found; install sshfs openssh-sftp-server"
    ))
}

/// Keeps this host's side of every way, on threads of their own.
pub(super) fn keep(part: &Part) {
    for way in &WAYS {
        let part = part.clone();
        let keep = move || if part.forwards { forward(&part, way) } else { mount(&part, way) };
        if let Err(error) = thread::Builder::new().name("projected".to_owned()).spawn(keep) {
            log(&format!("the file system is not projected: {error}"));
        }
    }
}

/// Mounts the file system as soon as its servers are reached, and serves it.
fn forward(part: &Part, way: &Way) {
    let point = way.point(&part.filesystem.mount_point(), true);
    let listener = loop {
        if part.can_mount()
            && let Err(error) = spawn(&mut moosefs::client_at(part, &point, way.options))
        {
            log(&error.to_string());
        }
        while part.can_mount() && !is_mounted(&point) {
            thread::sleep(AGAIN_AFTER);
        }
        match TcpListener::bind(("0.0.0.0", way.port)) {
            Ok(listener) if is_mounted(&point) => break listener,
            Ok(_early) => thread::sleep(AGAIN_AFTER),
            Err(error) => {
                log(&error.to_string());
                thread::sleep(AGAIN_AFTER);
            }
        }
    };
    for connection in listener.incoming() {
        if let Err(error) = connection.and_then(serve) {
            log(&format!("SFTP: {error}"));
        }
    }
}

fn serve(connection: TcpStream) -> io::Result<()> {
    connection.set_nodelay(true)?;
    let (input, output): (OwnedFd, OwnedFd) = (connection.try_clone()?.into(), connection.into());
    let mut command = Command::new(server().unwrap_or("sftp-server"));
    command.stdin(input).stdout(output).stderr(Stdio::null());
    start_child_as(&mut command, ChildStart { dies_with_parent: true });
    let mut child = command.spawn()?;
    thread::Builder::new().spawn(move || child.wait())?;
    Ok(())
}

/// Mounts what the forwarder hands on, and again when that has ended.
fn mount(part: &Part, way: &Way) {
    let own = part.filesystem.mount_point();
    let (point, source) = (way.point(&own, false), way.point(&own, true));
    loop {
        let addresses = part.forwarder_addresses.iter();
        let reached = addresses.copied().find(|address| is_served(*address, way.port));
        if let Some(address) = reached {
            let mut client = Command::new("sshfs");
            client.arg("-f").arg(format!("{address}:{}", source.display())).arg(&point);
            client.args(["-o", &format!("directport={},{CLIENT_OPTIONS}", way.port)]);
            match spawn(&mut client) {
                Ok(mut child) => {
                    let ended = child.wait();
                    log(&format!("{}: sshfs has ended: {ended:?}", part.host));
                    unmount(&point, UnmountFlags::DETACH).ok();
                }
                Err(error) => log(&error.to_string()),
            }
        }
        thread::sleep(AGAIN_AFTER);
    }
}

fn is_served(address: IpAddr, port: u16) -> bool {
    TcpStream::connect_timeout(&SocketAddr::new(address, port), CONNECT_TIMEOUT).is_ok()
}
